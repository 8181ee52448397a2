"""What a move decides without I/O: times by another clock, the distance to requests that may be under way."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from gossamer.frontier.politeness import SiteTerms
from gossamer.frontier.state_rows import DumpedSite, DumpedUrl
from gossamer.model.stream import MoveMark, MoveStatus
from gossamer.model.task import UrlState
from gossamer.project.upkeep.move.copy import in_time
from gossamer.project.upkeep.move.proof import RowSample, differing_counts

NOW = 5_000.0


def every(seconds: float | None) -> SiteTerms:
    return SiteTerms(interval=None if seconds is None else timedelta(seconds=seconds))


def site(
    *, next_at: float = 4_990.0, rest_until: float = 0.0, asked: float | None = None, in_progress: int = 0
) -> DumpedSite:
    return DumpedSite(
        name="shop.example", next_at=next_at, rest_until=rest_until, asked_interval=asked, in_progress=in_progress
    )


@pytest.mark.parametrize(
    ("before", "interval", "next_at"),
    [
        (site(), 2.0, 4_990.0),  # nobody was there: the bucket stays as it is
        (site(in_progress=1), 2.0, NOW + 2),  # a dead worker may have asked until now
        (site(in_progress=3, asked=30.0), 2.0, NOW + 30),  # and the site's own wish counts
        (site(in_progress=1, next_at=6_000.0), 2.0, 6_000.0),
        (site(in_progress=1), None, 4_990.0),  # no rate, no distance
    ],
)
def test_the_next_request_keeps_its_distance_from_one_that_may_be_under_way(
    before: DumpedSite, interval: float | None, next_at: float
) -> None:
    after = in_time(before, 0.0, NOW, lambda _: every(interval))
    assert isinstance(after, DumpedSite)
    assert (after.next_at, after.in_progress) == (next_at, 0)


def test_waiting_times_go_by_the_clock_of_the_target() -> None:
    # given a laptop whose clock is an hour behind the server's
    rested = in_time(site(rest_until=4_999.0), 3_600.0, NOW, lambda _: every(None))
    assert isinstance(rested, DumpedSite)
    assert (rested.next_at, rested.rest_until) == (8_590.0, 8_599.0)

    waiting = DumpedUrl(
        job=1, site="shop.example", fingerprint=b"f" * 16, url="https://shop.example/", state=UrlState.WAITING,
        reason="timeout", message="", priority=0, depth=0, attempts=1, deliveries=0, max_attempts=4, due_at=4_995.0,
        created_at=4_000.0, changed_at=4_000.0, kind="parse", data="", redirects=(), fetcher=None, proxy_pool=None,
        country=None, parent=None, parent_site=None,
    )  # fmt: skip
    due = in_time(waiting, 3_600.0, NOW, lambda _: every(None))
    assert isinstance(due, DumpedUrl)
    assert (due.due_at, due.created_at) == (8_595.0, 4_000.0)


def test_zero_is_no_time_and_is_not_shifted() -> None:
    never = in_time(site(next_at=0.0), 3_600.0, NOW, lambda _: every(None))
    assert isinstance(never, DumpedSite)
    assert (never.next_at, never.rest_until) == (0.0, 0.0)


def test_a_sample_is_as_large_as_it_may_be_and_reaches_the_end_of_a_long_stream() -> None:
    sample: RowSample[int] = RowSample(20)
    for n in range(15):
        sample.offer(n)
    assert sorted(sample.kept) == list(range(15))
    for n in range(15, 10_000):
        sample.offer(n)
    assert len(set(sample.kept)) == 20
    assert max(sample.kept) > 1_000  # by chance it fails once in 10**20 runs


def test_differences_are_told_with_both_numbers() -> None:
    assert differing_counts("state", {"a": 2, "b": 1}, {"a": 2, "c": 1_000}) == [
        "state: b: 1 here, 0 there",
        "state: c: 0 here, 1,000 there",
    ]


def test_marks_of_earlier_versions_are_read() -> None:
    text = b'{"standing":"moved","place":"/new/state.db","at":1.5,"tally":{"jobs":3}}'
    mark = MoveMark(status=MoveStatus.MOVED, place="/new/state.db", at=1.5, counts={"jobs": 3})
    assert msgspec.json.decode(text, type=MoveMark) == mark
    assert msgspec.json.encode(mark) == text
