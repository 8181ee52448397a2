"""Windows at the times: closed outside of them, open within, asked again when the clock says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gossamer.clock import VirtualClock
from gossamer.crawl.windows import JobWindows, OpenTimes
from gossamer.model.windows import parse_windows

NIGHT = parse_windows("22:00-06:00 UTC")


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_gate_without_windows_is_always_open() -> None:
    assert OpenTimes((), VirtualClock(at("2027-01-31T12:00"))).wait() == timedelta(0)


def test_a_gate_opens_and_closes_with_its_window() -> None:
    clock = VirtualClock(at("2027-01-31T12:00"))
    times = OpenTimes(NIGHT, clock)
    assert times.wait() == timedelta(hours=10)
    clock.advance(10 * 3600)
    assert times.wait() == timedelta(0)
    clock.advance(8 * 3600 - 1)
    assert times.wait() == timedelta(0)
    clock.advance(1)
    assert times.wait() == timedelta(hours=16)


def test_each_site_has_its_own_windows() -> None:
    clock = VirtualClock(at("2027-01-31T12:00"))
    windows = JobWindows((), lambda site: NIGHT if site == "night.example" else (), clock)
    assert windows.job.wait() == timedelta(0)
    assert windows.wait_for("night.example") == timedelta(hours=10)
    assert windows.wait_for("day.example") == timedelta(0)


def test_a_clock_that_is_put_back_is_looked_at_anew() -> None:
    # given an open window that was looked at, and one that was found closed
    clock = VirtualClock(at("2027-01-31T23:00"))
    always, night = OpenTimes(parse_windows("00:00-24:00 UTC"), clock), OpenTimes(NIGHT, clock)
    assert (always.wait(), night.wait()) == (timedelta(0), timedelta(0))
    # when the clock is put back by a week and an hour and a half
    clock.advance(-(7 * 24 + 1.5) * 3600)
    # then what is open is open, and what is closed opens when it should
    assert always.wait() == timedelta(0)
    assert night.wait() == timedelta(minutes=30)
