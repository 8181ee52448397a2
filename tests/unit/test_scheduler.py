"""What a scheduler begins: ticks, runs that still go on, runs that cannot be begun. A real state, and a clock that the
test moves."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gossamer.model.events import ScheduleFailed, ScheduleFired, ScheduleQueued, ScheduleSkipped, Trouble
from gossamer.model.job import JobState, JobTerms
from gossamer.model.schedule import Overlap
from tests.patience import until
from tests.unit.schedulers import HOUR, HOURLY, SPIDER, WAITING
from tests.unit.schedulers import bench as bench

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
    standing, job = await bench.standing(), await bench.system.state.jobs.job(event.job)
    assert (job.name, job.schedule, job.due, job.spider_name) == ("prices", "prices", bench.began, "books")
    terms = await bench.system.state.jobs.terms(event.job)
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
    standing = await bench.standing()
    assert (standing.runs, standing.skipped, standing.skip_reason) == (5, 4, "missed")


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

    assert [job.spider_name for job in await bench.system.state.jobs.running_jobs()] == ["https://a.test/"]


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
    old = await bench.system.state.jobs.job(first)
    assert (old.state, old.ending, second != first) == (JobState.FINISHED, "replaced", True)
    assert bench.fired() == [0, HOUR]


async def test_a_job_that_somebody_else_began_under_that_name_is_not_replaced(bench):
    job, _ = await bench.system.state.jobs.open_job("prices", JobTerms(), fresh=False)
    await bench.add(HOURLY)

    await bench.look()

    assert await bench.running() == [job.id]
    assert (await bench.standing()).skipped == 1


async def test_the_ticks_of_a_paused_schedule_are_skipped_and_it_goes_on_with_the_next(bench):
    await bench.add(HOURLY)
    await bench.system.state.schedules.pause("prices", True)
    await bench.look()
    await bench.look(HOUR)
    assert [event.reason for event in bench.ear.heard(ScheduleSkipped)] == ["paused", "paused"]

    await bench.system.state.schedules.pause("prices", False)
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
    await bench.system.state.schedules.pause("prices", True)
    await bench.look()

    await bench.system.state.schedules.pause("prices", False)
    await bench.end(first)
    await bench.look(1.0)

    assert bench.fired() == [0]
    standing = await bench.standing()
    assert (standing.waiting_due, standing.last_due, standing.skipped) == (None, bench.began + 2 * HOUR, 2)


async def test_a_tick_that_comes_to_a_paused_schedule_does_not_hide_the_one_that_waits(bench):
    await bench.add(HOURLY, overlap=Overlap.QUEUE)
    for advance in (0, HOUR):
        await bench.look(advance)
    assert (await bench.standing()).waiting_due == bench.began + HOUR

    await bench.system.state.schedules.pause("prices", True)
    await bench.look(HOUR)

    skips = [(round(event.due - bench.began), event.reason) for event in bench.ear.heard(ScheduleSkipped)]
    assert skips == [(HOUR, "paused"), (2 * HOUR, "paused")]
    standing = await bench.standing()
    assert (standing.runs, standing.skipped, standing.waiting_due) == (1, 2, None)
    assert standing.skip_reason == "paused"


async def test_a_job_that_begins_while_a_tick_is_decided_is_not_replaced(bench):
    # given a spider that takes its time, and somebody who begins a run of that name meanwhile
    root = bench.system.settings.root
    (root / "spiders" / "slow.py").write_text(WAITING.format(name="Slow", root=str(root)))
    await bench.add(HOURLY, spider="slow")
    looking = asyncio.create_task(bench.scheduler.turn())
    await until((root / "begun").exists)
    job, _ = await bench.system.state.jobs.open_job("prices", JobTerms(), fresh=False)
    (root / "go").touch()
    await looking

    await bench.look(1.0)

    assert await bench.running() == [job.id]
    assert [event.reason for event in bench.ear.heard(ScheduleSkipped)] == ["running"]


# -- from when on ticks count -------------------------------------------------------------------------------------


async def test_a_changed_trigger_makes_up_for_nothing_before_the_change(bench):
    await bench.add(HOURLY, trigger="0 3 * * *")
    for _ in range(2):  # from eight in the morning to four, and to midnight of the next day
        await bench.look(20 * HOUR)
    assert bench.fired() == [19 * HOUR]
    await bench.end("prices-1")

    await bench.change(HOURLY, trigger="0 23 * * *")
    await bench.look()
    assert bench.fired() == []
    await bench.look(23 * HOUR)

    assert bench.fired() == [63 * HOUR]


async def test_an_interval_that_is_changed_is_counted_from_then_and_a_new_one_runs_at_once(bench):
    await bench.add(HOURLY, name="new", spider="https://a.test/")
    await bench.change(HOURLY, name="new", spider="https://a.test/", trigger="every 3h")
    await bench.add(HOURLY)
    await bench.look()
    assert bench.fired() == [0, 0]
    await bench.end("prices-2")

    bench.clock.advance(HOUR / 2)
    await bench.change(HOURLY, trigger="every 10m")
    await bench.look()
    assert bench.fired() == []
    await bench.look(600)

    assert bench.fired() == [HOUR / 2 + 600]


async def test_what_was_missed_while_a_schedule_was_paused_does_not_run(bench):
    await bench.add(HOURLY, overlap=Overlap.QUEUE)
    await bench.look()
    await bench.look(HOUR)
    assert (await bench.standing()).waiting_due is not None
    # given that no scheduler looks while it is paused
    await bench.system.state.schedules.pause("prices", True)
    bench.clock.advance(2.5 * HOUR)
    await bench.system.state.schedules.pause("prices", False)
    await bench.end("prices-1")

    await bench.look()
    assert bench.fired() == [0]
    await bench.look(HOUR / 2)

    assert bench.fired() == [4 * HOUR]
    assert (await bench.standing()).skipped == 1


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
