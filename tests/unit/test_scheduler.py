"""The scheduler on a real state with a clock that the test moves: who leads, what fires, what waits, what is told."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.assembly import open_system
from gossamer.clock import VirtualClock
from gossamer.errors import Misconfigured
from gossamer.model.events import (
    Leading,
    ScheduleFailed,
    ScheduleFired,
    ScheduleQueued,
    ScheduleSkipped,
    Trouble,
)
from gossamer.model.job import JobState, JobTerms
from gossamer.model.schedule import Overlap, Schedule, Standing
from gossamer.schedule.triggers import Every
from gossamer.scheduler import Scheduler, budget_of, schedules_of
from gossamer.scheduler.deciding import LONGEST_PAUSE, Due, Rest, failed, look
from gossamer.settings import load
from tests.services.valkey import running_valkey

SPIDER = """
from gossamer import Spider

class Books(Spider):
    start_urls = ["https://a.test/"]
    limit = 70
    max_attempts = 2

    def parse(self, page):
        return None

    def product(self, page):
        return None
"""
HOURLY = Schedule(name="prices", spider="books", trigger="every 1h")
HOUR, DAY = 3600.0, 86400.0


class Ear:
    """Keeps what was said."""

    def __init__(self):
        self.events = []

    def emit(self, event):
        self.events.append(event)

    def heard(self, kind):
        found = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found


class Bench:
    """A project with a spider, its state, and one scheduler that the test turns by hand."""

    def __init__(self, system, clock):
        self.system, self.clock, self.ear = system, clock, Ear()
        self.scheduler = Scheduler(system, self.ear, name="one")
        self.began = clock.now()

    async def add(self, schedule, **changes):
        assert await self.system.schedules.put(msgspec.structs.replace(schedule, **changes), origin="added")

    async def look(self, advance=0.0, scheduler=None):
        """Move the clock and let the scheduler do all that is due then."""
        self.clock.advance(advance)
        for _ in range(5):
            await (scheduler or self.scheduler).turn()

    async def standing(self, name="prices"):
        (found,) = [one for one in await self.system.schedules.schedules() if one.schedule.name == name]
        return found

    async def end(self, job):
        await self.system.jobs.seal_seeds(job)
        assert await self.system.jobs.close_job(job, "done")

    def fired(self):
        """When the runs that have begun since the last call were due, in seconds from the beginning."""
        return [round(event.due - self.began, 3) for event in self.ear.heard(ScheduleFired)]

    async def running(self):
        return [job.id for job in await self.system.jobs.running_jobs()]


@asynccontextmanager
async def bench_in(folder, toml=""):
    (folder / "spiders").mkdir(exist_ok=True)
    (folder / "spiders" / "books.py").write_text(SPIDER)
    (folder / "gossamer.toml").write_text(toml)
    clock = VirtualClock()
    async with open_system(load(start=folder, environ={}), clock=clock) as system:
        yield Bench(system, clock)


@pytest.fixture
async def bench(tmp_path):
    async with bench_in(tmp_path) as bench:
        yield bench


# -- ticks --------------------------------------------------------------------------------------------------------


async def test_a_tick_becomes_a_job_with_all_that_the_schedule_says_and_the_spider_wishes(bench):
    await bench.add(
        HOURLY,
        source='{"type":"urls","urls":["https://a.test/{1..9}"]}',
        kind="product",
        priority=4,
        min_age=timedelta(minutes=5),
        windows="22:00-06:00",
        limit=30,
    )

    await bench.look()

    (event,) = bench.ear.heard(ScheduleFired)
    standing, job = await bench.standing(), await bench.system.jobs.job(event.job)
    assert (job.name, job.schedule, job.due, job.spider_name) == ("prices", "prices", bench.began, "books")
    terms = await bench.system.jobs.terms(event.job)
    assert (terms.limit, terms.max_attempts, terms.kind, terms.priority) == (30, 2, "product", 4)
    assert (terms.source, terms.windows) == (standing.schedule.source, "22:00-06:00")
    assert (terms.min_age, terms.budget) == (timedelta(minutes=5), None)
    assert (standing.runs, standing.last_due, standing.last_job) == (1, bench.began, event.job)


async def test_every_tick_fires_once_and_missed_ones_fire_once_together(bench):
    await bench.add(HOURLY)
    begun = []
    for advance in (0, HOUR / 2, HOUR / 2, HOUR, 5.5 * HOUR, HOUR / 2):
        await bench.look(advance)
        begun += bench.fired()
        for job in await bench.running():
            await bench.end(job)

    assert begun == [0, HOUR, 2 * HOUR, 7 * HOUR, 8 * HOUR]
    assert (await bench.standing()).runs == 5


async def test_nothing_is_due_between_ticks_and_a_look_says_how_long(bench):
    await bench.add(HOURLY)
    await bench.look()
    await bench.look(HOUR - 0.25)

    assert (await bench.scheduler.turn()).total_seconds() == pytest.approx(0.25, abs=0.01)
    await bench.add(HOURLY, name="far", trigger="at 2100-01-01")
    bench.clock.advance(1)
    await bench.look()
    assert await bench.scheduler.turn() == timedelta(seconds=1)


async def test_a_site_can_be_scheduled_by_its_address(bench):
    await bench.add(HOURLY, spider="https://a.test/")

    await bench.look()

    assert [job.spider_name for job in await bench.system.jobs.running_jobs()] == ["https://a.test/"]


async def test_a_schedule_that_cannot_be_read_is_told_once_and_disturbs_no_other(bench):
    await bench.add(HOURLY, name="odd", trigger="when the moon is full")
    await bench.add(HOURLY)

    await bench.look()
    await bench.look(HOUR)

    assert bench.fired() == [0]
    (trouble,) = bench.ear.heard(Trouble)
    assert "Schedule odd is left alone" in trouble.message


# -- a run that still goes on -------------------------------------------------------------------------------------


async def test_skip_lets_a_tick_go_while_the_run_before_goes_on(bench):
    await bench.add(HOURLY)
    await bench.look()
    (first,) = await bench.running()

    await bench.look(HOUR)

    (event,) = bench.ear.heard(ScheduleSkipped)
    assert (event.schedule, event.due, event.reason) == ("prices", bench.began + HOUR, "running")
    standing = await bench.standing()
    assert (standing.runs, standing.skipped, standing.last_due) == (1, 1, bench.began + HOUR)
    assert await bench.running() == [first]


async def test_queue_begins_one_run_when_the_one_before_has_ended(bench):
    await bench.add(HOURLY, overlap=Overlap.QUEUE)
    await bench.look()
    (first,) = await bench.running()
    await bench.look(HOUR)
    assert [event.due - bench.began for event in bench.ear.heard(ScheduleQueued)] == [HOUR]
    # when another tick comes meanwhile, it is skipped
    await bench.look(HOUR)
    assert [event.due - bench.began for event in bench.ear.heard(ScheduleSkipped)] == [2 * HOUR]
    assert bench.fired() == [0]

    await bench.end(first)
    await bench.look(1.0)

    assert bench.fired() == [HOUR]
    (second,) = await bench.running()
    standing = await bench.standing()
    assert (standing.last_job, standing.waiting_due, standing.last_due) == (second, None, bench.began + 2 * HOUR)
    assert (standing.runs, standing.skipped) == (2, 1)


async def test_replace_ends_the_run_before(bench):
    await bench.add(HOURLY, overlap=Overlap.REPLACE)
    await bench.look()
    (first,) = await bench.running()

    await bench.look(HOUR)

    (second,) = await bench.running()
    old = await bench.system.jobs.job(first)
    assert (old.state, old.ending, second != first) == (JobState.FINISHED, "replaced", True)
    assert bench.fired() == [0, HOUR]


async def test_a_job_that_somebody_else_began_under_that_name_is_not_replaced(bench):
    job, _ = await bench.system.jobs.open_job("prices", JobTerms(), fresh=False)
    await bench.add(HOURLY)

    await bench.look()

    assert await bench.running() == [job.id]
    assert (await bench.standing()).skipped == 1


async def test_the_ticks_of_a_paused_schedule_are_skipped_and_it_goes_on_with_the_next(bench):
    await bench.add(HOURLY)
    await bench.system.schedules.pause("prices", True)
    await bench.look()
    await bench.look(HOUR)
    assert [event.reason for event in bench.ear.heard(ScheduleSkipped)] == ["paused", "paused"]

    await bench.system.schedules.pause("prices", False)
    await bench.look(HOUR / 2)
    assert bench.fired() == []
    await bench.look(HOUR / 2)

    assert bench.fired() == [2 * HOUR]
    assert (await bench.standing()).skipped == 2


async def test_pausing_forgets_the_run_that_waits_and_no_tick_comes_back(bench):
    await bench.add(HOURLY, overlap=Overlap.QUEUE)
    for advance in (0, HOUR, HOUR):
        await bench.look(advance)
    (first,) = await bench.running()
    await bench.system.schedules.pause("prices", True)
    await bench.look()

    await bench.system.schedules.pause("prices", False)
    await bench.end(first)
    await bench.look(1.0)

    assert bench.fired() == [0]
    standing = await bench.standing()
    assert (standing.waiting_due, standing.last_due, standing.skipped) == (None, bench.began + 2 * HOUR, 2)


# -- runs that cannot be begun ------------------------------------------------------------------------------------


async def test_a_spider_that_does_not_load_is_tried_again_with_growing_pauses_and_its_tick_is_not_lost(bench):
    file = bench.system.settings.root / "spiders" / "books.py"
    file.write_text("raise RuntimeError('not today')")
    await bench.add(HOURLY)
    await bench.add(HOURLY, name="well", spider="https://a.test/")
    pauses = []
    for _ in range(9):
        await bench.look(pauses[-1] if pauses else 0)
        (event,) = bench.ear.heard(ScheduleFailed)
        pauses.append(round(event.delay))
        assert "not today" in event.message
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    standing = await bench.standing()
    assert (standing.failures, standing.last_due, standing.runs) == (9, None, 0)
    assert "not today" in standing.trouble
    assert [event.schedule for event in bench.ear.heard(ScheduleFired)] == ["well"]

    file.write_text(SPIDER)
    await bench.look(300)

    assert bench.fired() == [0]
    standing = await bench.standing()
    assert (standing.failures, standing.retry_at, standing.trouble, standing.runs) == (0, None, "", 1)


async def test_a_tick_that_could_not_run_gives_way_to_the_next(bench):
    file = bench.system.settings.root / "spiders" / "books.py"
    file.unlink()
    await bench.add(HOURLY)
    await bench.look()
    await bench.look(HOUR)
    assert "There is no spider 'books'" in (await bench.standing()).trouble

    file.write_text(SPIDER)
    await bench.look(30)

    assert bench.fired() == [HOUR]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kind": "prodct"}, "Did you mean product"),
        ({"spider": "grumpy"}, "ValueError: no"),
        ({"spider": "leaving"}, "SystemExit: 3"),
        ({"spider": "books.toml"}, "books.toml"),
    ],
)
async def test_what_is_wrong_with_a_spider_is_the_schedules_trouble(bench, changes, words):
    for name, error in (("Grumpy", "ValueError('no')"), ("Leaving", "SystemExit(3)")):
        text = SPIDER.replace("Books", name) + f"\n    def __init__(self):\n        raise {error}\n"
        (bench.system.settings.root / "spiders" / f"{name.lower()}.py").write_text(text)
    await bench.add(HOURLY, **changes)

    await bench.look()

    assert words in (await bench.standing()).trouble
    assert await bench.running() == []


# -- who leads ----------------------------------------------------------------------------------------------------


async def test_another_scheduler_leads_when_the_leader_is_silent_and_fires_what_was_missed_once(bench):
    await bench.add(HOURLY)
    other = Scheduler(bench.system, bench.ear, name="two")
    await bench.look()
    await bench.look(scheduler=other)
    assert (bench.scheduler.leads, other.leads, bench.fired()) == (True, False, [0])
    await bench.end("prices-1")
    # when the leader falls silent, and a tick is due
    await bench.look(HOUR - 7, scheduler=other)
    await bench.look(7, scheduler=other)

    assert other.leads
    assert bench.fired() == [HOUR]
    # and the old one comes back to life, it follows
    await bench.look()
    assert not bench.scheduler.leads
    assert [(event.leader, event.leads) for event in bench.ear.heard(Leading)] == [
        ("one", True), ("two", True), ("one", False),
    ]  # fmt: skip


async def test_a_leader_that_was_overtaken_in_the_middle_of_its_look_fires_nothing(bench):
    await bench.add(HOURLY)
    await bench.look()
    await bench.end("prices-1")
    bench.clock.advance(HOUR - 1)
    await bench.scheduler.turn()
    # given that its term ends just now, by the backend's clock, and that it does not know
    other = await bench.system.ticks.lead("one", timedelta(seconds=1))
    bench.clock.advance(1)
    assert other is not None

    await bench.scheduler.turn()

    assert not bench.scheduler.leads
    assert "does not lead" in bench.ear.heard(Trouble)[0].message
    assert bench.fired() == [0]
    await bench.look()
    assert bench.fired() == [HOUR]


async def test_a_scheduler_that_is_drained_lets_the_next_one_lead_at_once(bench):
    await bench.add(HOURLY)
    fired = asyncio.Event()

    class Bell:
        def emit(self, event):
            if isinstance(event, ScheduleFired):
                fired.set()

    first = Scheduler(bench.system, Bell(), name="first")
    running = asyncio.create_task(first.run())
    async with asyncio.timeout(10):
        await fired.wait()
        first.drain()
        await running

    await bench.look()
    assert bench.scheduler.leads


async def test_a_state_that_is_away_is_told_once_and_waited_for(tmp_path):
    with running_valkey("--appendonly", "yes", "--appendfsync", "always") as server:
        async with bench_in(tmp_path, f'state = "{server.address()}"\nproject = "away"\n') as bench:
            await bench.add(HOURLY)
            await bench.look()
            server.kill()
            bench.clock.advance(3)
            for _ in range(5):
                await bench.scheduler.turn()
            words = [event.message for event in bench.ear.heard(Trouble)]
            assert 1 <= len(words) == len(set(words)) <= 2  # a lost connection, then one that is refused
            server.start()

            await bench.look()

            assert bench.scheduler.leads
            assert (await bench.standing()).runs == 1


# -- gossamer.toml ------------------------------------------------------------------------------------------------

TWO = """
[schedules.prices]
spider = "books"
every = "1h"

[schedules.news]
spider = "https://a.test/"
every = "2h"
"""


async def test_the_book_follows_the_file(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
        assert sorted(event.schedule for event in bench.ear.heard(ScheduleFired)) == ["news", "prices"]
        assert {one.origin for one in await bench.system.schedules.schedules()} == {"file"}
    # when one is changed and the other one has vanished
    changed = TWO.partition("[schedules.news]")[0].replace("1h", "30m")
    async with bench_in(tmp_path, changed) as bench:
        await bench.look()

        (standing,) = await bench.system.schedules.schedules()
        assert (standing.schedule.trigger, standing.runs) == ("every 30m", 1)
        assert len(await bench.running()) == 2  # their jobs go on


async def test_a_schedule_that_was_added_stays_beside_one_of_the_file_with_its_name(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.add(HOURLY, trigger="every 7h")
        await bench.add(HOURLY, name="mine")

        await bench.look()
        await bench.look(60)

        standings = await bench.system.schedules.schedules()
        found = {one.schedule.name: (one.origin, one.schedule.trigger) for one in standings}
        assert found == {
            "mine": ("added", "every 1h"), "news": ("file", "every 2h"), "prices": ("added", "every 7h"),
        }  # fmt: skip
        (trouble,) = bench.ear.heard(Trouble)
        assert "prices of gossamer.toml is not used" in trouble.message


async def test_a_schedule_of_the_file_that_was_removed_comes_back(tmp_path):
    async with bench_in(tmp_path, TWO) as bench:
        await bench.look()
        await bench.system.schedules.remove("news")

        await bench.look()

        assert sorted(schedules_of(bench.system.settings.schedules)) == ["news", "prices"]
        assert (await bench.standing("news")).origin == "file"


# -- budgets ------------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    per_day=st.integers(1, 10**9),
    start=st.integers(1_700_000_000_000, 1_900_000_000_000),
    steps=st.lists(st.integers(1_000, 86_400_000), min_size=1, max_size=50),
)
def test_the_shares_of_all_runs_add_up_to_the_budget_of_the_time_that_passed(per_day, start, steps):
    moments = [start]
    for step in steps:
        moments.append(moments[-1] + step)

    shares = [
        budget_of(per_day, due=due / 1000, since=since / 1000, following=None) for since, due in pairwise(moments)
    ]

    passed = (moments[-1] - start) / 86_400_000
    assert all(0 <= share <= per_day for share in shares)
    assert abs(sum(shares) - per_day * passed) <= 1 + per_day * 1e-12


def test_a_first_run_gets_the_share_of_the_time_to_the_next_and_a_late_one_a_day_at_most():
    noon = 20_000 * DAY + DAY / 2

    assert budget_of(240, due=noon, since=None, following=noon + HOUR) == 10
    assert budget_of(240, due=noon, since=None, following=noon + 9 * DAY) == 240
    assert budget_of(240, due=noon, since=None, following=None) == 240
    assert budget_of(240, due=noon, since=noon - 9 * DAY, following=noon + HOUR) == 240
    assert budget_of(240, due=noon, since=noon + HOUR, following=noon + HOUR) == 10  # a clock that was ahead


async def test_runs_share_the_budget_of_the_day_and_none_is_begun_for_nothing(bench):
    await bench.add(HOURLY, budget=8)  # one for every third tick
    for _ in range(25):
        await bench.look()
        for job in await bench.running():
            await bench.end(job)
        bench.clock.advance(HOUR)

    spent = [(await bench.system.jobs.terms(job.id)).budget for job in await bench.system.jobs.jobs()]
    assert set(spent) == {1}
    assert len(spent) in (8, 9)  # a day and an hour
    assert {event.reason for event in bench.ear.heard(ScheduleSkipped)} == {"budget"}


async def test_a_run_after_a_break_gets_the_share_of_the_whole_break(bench):
    await bench.add(HOURLY, budget=240)
    for advance in (0, HOUR, 6 * HOUR):
        await bench.look(advance)
        for job in await bench.running():
            await bench.end(job)

    spent = [(await bench.system.jobs.terms(f"prices-{number}")).budget for number in (1, 2, 3)]
    assert spent == [10, 10, 60]


# -- decisions ----------------------------------------------------------------------------------------------------


def test_a_pause_that_a_wrong_clock_made_is_not_waited_out():
    now = 1_800_000_000.0
    broken = failed(Standing(schedule=HOURLY, origin="added", created_at=now), now, now, "no").after

    assert look(broken, Every(HOUR), now + 1) == Rest(now + 5)
    assert look(broken, Every(HOUR), now + 5) == Due(now)
    # when the clock is put back by a while, the remembered moment is farther away than any pause
    assert look(broken, Every(HOUR), now - LONGEST_PAUSE.total_seconds() - 10) == Rest(now)


async def test_a_clock_that_was_a_day_ahead_does_not_silence_a_schedule_for_a_day(bench):
    await bench.add(HOURLY)
    await bench.look(DAY)
    await bench.end("prices-1")
    bench.fired()
    # when the clock is put right
    bench.clock.advance(-DAY)
    await bench.look(60)
    assert bench.fired() == []
    await bench.look(HOUR)

    assert bench.fired() == [HOUR]


async def test_a_file_with_a_schedule_that_is_none_is_refused(tmp_path):
    with pytest.raises(Misconfigured, match=r"Schedule 'a': cron: .*minutes are 0 to 59"):
        async with bench_in(tmp_path, '[schedules.a]\nspider = "books"\ncron = "61 * * * *"') as bench:
            await bench.look()
