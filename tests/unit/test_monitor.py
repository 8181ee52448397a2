"""What people and log systems see: progress, rate, ETA, JSON lines."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gossamer.cli.progress import Warnings
from gossamer.clock import VirtualClock
from gossamer.model import events
from gossamer.model.events import EventHub
from gossamer.model.job import JobCounts, JobPace
from gossamer.monitor.counts import EventCounts
from gossamer.monitor.logs import JsonLog
from gossamer.monitor.progress import RateEstimator, describe, is_discovering, short_duration, time_left
from gossamer.parse.page_context import PageContext, working_on
from gossamer.parse.spider import Spider


def test_the_progress_gives_rate_and_eta_from_the_last_seconds():
    speed = RateEstimator()
    speed.progress(JobCounts(queued=100), 0.0)
    progress = speed.progress(JobCounts(queued=75, leased=5, done=18, dead=2), 2.0)
    assert (progress.total, progress.done, progress.dead) == (100, 18, 2)
    assert progress.rate == 10
    assert progress.eta == timedelta(seconds=8)
    assert describe(progress) == "20/100 pages  10.0/s  2 dead  queue 75  eta 0:08"


def test_old_speed_is_forgotten():
    speed = RateEstimator()
    speed.progress(JobCounts(queued=1000), 0.0)
    speed.progress(JobCounts(done=900, queued=100), 10.0)
    assert speed.progress(JobCounts(done=900, queued=100), 20.0).rate == 0


def test_a_crawl_that_finds_a_page_for_each_that_it_fetches_tells_no_end():
    """Sixty thousand pages in a chain: the queue is short all the time, and no share of it says anything."""
    speed = RateEstimator()
    for second in range(120):
        done = 7 * second
        progress = speed.progress(JobCounts(done=done, queued=40, leased=4, discovered=done + 44), float(second))
    assert progress.eta is None
    assert describe(progress).endswith("still discovering (+420 in the last minute)")
    assert "833 pages  7.0/s" in describe(progress)


def test_an_end_is_told_by_the_rate_at_which_the_queue_shrinks():
    speed = RateEstimator()
    for second in range(61):  # ten pages a second are fetched, four are found
        progress = speed.progress(JobCounts(done=10 * second, queued=600 - 6 * second), float(second))
    assert progress.found is None
    assert progress.eta == timedelta(seconds=40)
    assert progress.total == 840


def test_no_end_comes_sooner_than_the_sites_allow():
    speed = RateEstimator()
    speed.progress(JobCounts(queued=100), 0.0)
    progress = speed.progress(JobCounts(queued=50, done=50), 5.0, at_least=100.0)
    assert progress.eta == timedelta(seconds=100)


def test_a_limit_is_an_end_that_discovery_does_not_move():
    speed = RateEstimator()
    speed.progress(JobCounts(queued=100), 0.0, limit=100)
    progress = speed.progress(JobCounts(queued=500, done=50), 5.0, limit=100)
    assert (progress.eta, progress.found) == (timedelta(seconds=5), None)


@given(
    remaining=st.integers(1, 10**7),
    pace=st.builds(JobPace, st.integers(0, 10**5), st.integers(0, 10**5), st.floats(0.1, 60)),
    least=st.floats(0, 10**6),
    limited=st.booleans(),
)
def test_a_time_that_is_told_empties_the_queue_at_the_rates_seen(remaining, pace, least, limited):
    seconds = time_left(remaining, pace, limited=limited, at_least=least)
    shrinks = pace.settled - (0 if limited else pace.found)
    if shrinks <= 0 or is_discovering(pace, limited=limited):
        assert seconds is None
    else:
        assert seconds is not None
        assert seconds >= least
        assert seconds * shrinks / pace.seconds >= remaining * 0.999


def test_a_limit_bounds_what_is_still_to_do():
    progress = RateEstimator().progress(JobCounts(queued=1000, done=10), 0.0, limit=50)
    assert progress.total == 50
    assert progress.eta is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (8, "0:08"), (725, "12:05"), (11400, "3:10:00"), (200_000, "2 days")]
)
def test_durations_are_spelled_briefly(seconds, text):
    assert short_duration(None if seconds is None else timedelta(seconds=seconds)) == text


def page_events(clock):
    common = {"at": clock.now(), "job": "j-1", "url": "https://a.test/", "site": "a.test"}
    return [
        events.Fetched(**common, status=200, bytes=1000, seconds=0.5),
        events.Parsed(**common, items=2, links=9, seconds=0.25),
        events.ItemDropped(**common, step="cheap", reason="too cheap"),
        events.Stored(**common, items=2, changed=1, seconds=0.125),
        events.Completed(**common, outcome="done", added=9),
        events.Retried(**common, reason="timeout", attempt=1, delay=1.0),
        events.Buried(**common, reason="http-404", attempt=1, message="gone"),
        events.Trouble(at=clock.now(), stage="store", message="disk full"),
    ]


def test_the_tally_counts_what_happened():
    clock = VirtualClock()
    tally = EventCounts(clock)
    for event in page_events(clock):
        EventHub(tally).emit(event)
    clock.advance(4)
    assert (tally.pages, tally.items, tally.changed, tally.bytes, tally.retries) == (2, 2, 1, 1000, 1)
    assert tally.reasons == {"http-404": 1}
    assert tally.item_drops == {"cheap: too cheap": 1}
    assert tally.last_trouble == "disk full"
    assert tally.rate() == 0.5


def test_reasons_that_name_each_item_do_not_fill_the_memory_and_are_told_to_others():
    clock = VirtualClock()
    tally, first = EventCounts(clock), EventCounts(clock)
    for number in range(200):
        drop = events.ItemDropped(at=clock.now(), job="j", url="u", site="s", step="twins", reason=f"like {number}")
        tally.emit(drop)
    first.add(tally.to_bytes())

    assert len(tally.item_drops) == 51
    assert tally.item_drops["twins"] == 150
    assert first.item_drops.total() >= 199


def test_every_event_is_one_json_line_and_a_summary_tells_speeds():
    clock, stream = VirtualClock(), io.StringIO()
    log = JsonLog(stream, clock)
    for event in page_events(clock):
        log.emit(event)
    clock.advance(11)
    log.emit(page_events(clock)[0])

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines][:4] == ["ItemDropped", "Completed", "Retried", "Buried"]
    page = lines[1]
    assert (page["level"], page["outcome"], page["status"], page["bytes"]) == ("info", "done", 200, 1000)
    assert (page["items"], page["changed"], page["links"]) == (2, 1, 9)
    assert [page[f"{stage}_seconds"] for stage in ("fetch", "parse", "store")] == [0.5, 0.25, 0.125]
    assert lines[0]["at"].endswith("Z")
    assert sum(line["level"] == "info" for line in lines if line.get("url") and line["event"] != "ItemDropped") == 1
    assert [line["level"] for line in lines if line["event"] in ("Buried", "Retried")] == ["warning", "error"]
    summary = lines[-1]
    assert summary["event"] == "Summary"
    assert (summary["pages"], summary["items"]) == (2, 2)
    assert summary["items_per_second"] == pytest.approx(2 / 11, abs=0.01)
    assert summary["stage_seconds"]["parse"] == 0.25
    assert summary["stage_items"]["parse"] == 2
    assert summary["stage_items_per_second"]["parse"] == 8.0


def test_the_level_of_the_log_is_followed_while_it_is_written():
    clock, stream, level = VirtualClock(), io.StringIO(), ["warning"]
    log, spider = JsonLog(stream, clock, lambda: level[0]), logging.getLogger("gossamer.spider.lamps")
    with log.hearing():
        for now in ("warning", "debug", "info"):
            level[0] = now
            for event in page_events(clock):
                log.emit(event)
            spider.debug("a detail at %s", now)
            spider.info("a word at %s", now)
            stream.write("\n")

    warning, debug, info = (
        [json.loads(line) for line in part.splitlines()] for part in stream.getvalue().split("\n\n")[:3]
    )
    assert {line["event"] for line in warning} == {"Retried", "Buried", "Trouble"}
    assert [line["event"] for line in debug if line["level"] == "debug"] == ["Fetched", "Parsed", "Stored", "Logged"]
    assert [line["message"] for line in debug if line["event"] == "Logged"] == ["a detail at debug", "a word at debug"]
    assert "debug" not in {line["level"] for line in info}
    assert info[-1]["message"] == "a word at info"
    assert logging.getLogger("gossamer.spider").level == logging.NOTSET


def test_what_spiders_log_is_among_the_lines():
    stream = io.StringIO()
    log = JsonLog(stream, VirtualClock())

    class Lamps(Spider):
        name = "lamps"

    spider = Lamps()
    with log.hearing():
        with working_on(PageContext("lamps-1", "https://shop.example/1")):
            spider.log.info("%s is %d years old", "it", 7)
            spider.log.debug("not this")
        wrong = {"name": "gossamer.spider.lamps", "msg": "%d arguments", "args": ("wrong",), "levelname": "WARNING"}
        log.line_of_spider(logging.makeLogRecord(wrong))
        try:
            raise KeyError("price")
        except KeyError:
            spider.log.exception("no price")
    spider.log.error("after the end")

    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert first.items() >= {
        "level": "info", "event": "Logged", "spider": "lamps", "job": "lamps-1", "url": "https://shop.example/1",
        "message": "it is 7 years old",
    }.items()  # fmt: skip
    assert (second["level"], "wrong" in second["message"]) == ("warning", True)
    assert third["level"] == "error"
    assert third["message"].endswith("KeyError: 'price'")


def test_moments_in_the_log_have_one_form():
    stream = io.StringIO()

    JsonLog(stream, VirtualClock()).emit(events.ScheduleFired(at=60.5, schedule="prices", job="prices-1", due=60.0))

    line = json.loads(stream.getvalue())
    assert (line["at"], line["due"]) == ("1970-01-01T00:01:00.500Z", "1970-01-01T00:01:00.000Z")


def test_a_log_that_nobody_reads_any_more_fails_nobody():
    # given a log whose reader has left
    ours, theirs = os.pipe()
    os.close(ours)
    stream = os.fdopen(theirs, "w")
    log = JsonLog(stream, VirtualClock())
    # when there is something to log, again and again, then nothing is raised
    for _ in range(3):
        log.emit(events.JobEnded(at=0, job="a-1", ending="done"))
    log.summary()

    with contextlib.suppress(BrokenPipeError):
        stream.close()


@pytest.mark.parametrize(("seconds", "wait"), [(42, "42 s"), (725, "12 min"), (200_000, "2 days")])
def test_a_site_that_rests_is_named_once_with_its_wait(seconds, wait):
    clock, stream = VirtualClock(), io.StringIO()
    warnings = Warnings(Console(file=stream, width=200))
    retried = events.Retried(
        at=clock.now(), job="j-1", url="https://a.test/", site="a.test",
        reason="http-429", attempt=1, delay=float(seconds), message="It answered 429.",
    )  # fmt: skip
    warnings.emit(retried)
    warnings.emit(retried)
    assert stream.getvalue() == f"a.test has to wait {wait}: It answered 429.\n"


def test_a_site_that_stays_away_is_told_once_when_its_pauses_become_long():
    stream = io.StringIO()
    warnings = Warnings(Console(file=stream, width=200))
    for delay in (2.0, 8.0, 16.0, 32.0):
        warnings.emit(events.SiteAway(at=0.0, job="one-1", site="a.test", delay=delay, message="Nobody listens."))

    assert stream.getvalue() == ("a.test cannot be reached, next try in 16 s, then less often: Nobody listens.\n")


def test_with_json_logs_nothing_is_written_that_is_not_json(capsys):
    clock, stream = VirtualClock(), io.StringIO()
    with warnings.catch_warnings(), JsonLog(stream, clock).hearing():
        warnings.simplefilter("always")
        logging.getLogger("gossamer.server").warning("a store does not answer: %s", "no route")
        logging.getLogger("some.library").error("broken pipe")
        logging.getLogger("some.library").info("hello")
        logging.getLogger("gossamer.spider.books").warning("odd price")
        warnings.warn("old name", DeprecationWarning, stacklevel=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["level"], line.get("logger", line.get("spider"))) for line in lines] == [
        ("warning", "gossamer.server"), ("error", "some.library"), ("warning", "books"), ("warning", "py.warnings"),
    ]  # fmt: skip
    assert lines[0]["message"] == "a store does not answer: no route"
    assert capsys.readouterr().err == ""
    assert logging.getLogger().handlers == [
        one for one in logging.getLogger().handlers if "OtherLines" not in repr(one)
    ]
