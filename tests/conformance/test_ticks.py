"""What every book of schedules promises to the leading scheduler: a tick and its job are one step. Each test runs on
each backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import DeadFilter
from gossamer.model.job import JobState
from gossamer.model.schedule import Schedule, ScheduleProgress, Settled
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate
from tests.conformance.schedule_books import DUE, PRICES, TERM, fired, opening, progress_of, settled, written
from tests.patience import PATIENCE


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def test_a_tick_becomes_a_job_that_workers_can_work_on(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)

    done = await lab.ticks.settle(term, before, fired(before), opening(before))

    assert done.progress == await progress_of(lab)
    assert done.progress == msgspec.structs.replace(fired(before), last_job=done.job.id, version=done.progress.version)
    assert done.progress.version > before.version
    assert done.job == await lab.jobs.job(done.job.id)
    job = done.job
    assert (job.name, job.schedule, job.due, job.spider_name) == (PRICES.name, PRICES.name, DUE, "shop")
    assert (job.state, job.created_at) == (JobState.RUNNING, pytest.approx(lab.clock.now(), abs=1e-6))
    assert await lab.jobs.running_jobs() == [job]
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    async with lab.again() as elsewhere:
        (lease,) = (await elsewhere.frontier.lease(job.id, "w", 9)).leases
        await elsewhere.frontier.complete(lease, UrlState.DONE)
        assert (await elsewhere.frontier.lease(job.id, "w", 9)).drained
        assert await elsewhere.jobs.close_job(job.id, "done")


async def test_a_tick_without_a_job_changes_the_progress_alone(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    skipped = msgspec.structs.replace(before, last_due=DUE, skipped=1, trouble="the run before goes on")

    done = await lab.ticks.settle(term, before, skipped)

    assert done.job is None
    assert done.progress == await progress_of(lab)
    assert done.progress == msgspec.structs.replace(skipped, version=done.progress.version)
    assert await lab.jobs.jobs() == []


async def test_a_run_that_still_goes_on_is_replaced(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    first = await settled(lab, term, before)
    await lab.frontier.add(first.job.id, [candidate(f"https://{site}.test/") for site in "abcd"])
    (lease,) = (await lab.frontier.lease(first.job.id, "w", 1)).leases

    later = fired(first.progress, DUE + 60), opening(before, DUE + 60)
    second = await lab.ticks.settle(term, first.progress, *later, replaces=first.job.id)

    old, counts = await lab.jobs.job(first.job.id), await lab.jobs.counts(first.job.id)
    assert (old.state, old.ending) == (JobState.FINISHED, "replaced")
    assert (counts.open, counts.dropped) == (0, 4)
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(lease, UrlState.DONE)
    assert [job.id for job in await lab.jobs.running_jobs()] == [second.job.id]
    assert second.progress.last_job == second.job.id != first.job.id
    assert second.progress.runs == 2


@pytest.mark.parametrize("replaces", ["", "another-7"])
async def test_a_job_that_may_not_be_replaced_is_in_the_way_of_a_tick(lab, replaces):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    job = await lab.job(PRICES.name)  # that somebody has begun since the leader looked

    assert await lab.ticks.settle(term, before, fired(before), opening(before), replaces=replaces) is None

    assert await lab.jobs.running_jobs() == [job]
    assert await lab.schedules.schedules() == [before]


async def with_a_letter(lab, term, before) -> Settled:
    """A run that has ended with a dead letter: it runs again when that is replayed."""
    done = await settled(lab, term, before)
    await lab.frontier.add(done.job.id, [candidate(f"https://{done.job.id}.test/")])
    (lease,) = (await lab.frontier.lease(done.job.id, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.jobs.seal_seeds(done.job.id)
    assert await lab.jobs.close_job(done.job.id, "done")
    return done


async def test_of_two_runs_that_run_again_the_newer_is_replaced(lab):
    term = await lab.ticks.lead("one", TERM)
    first = await with_a_letter(lab, term, await written(lab))
    last = await with_a_letter(lab, term, first.progress)
    for one in (first, last):  # the older one is the first to run again
        assert await lab.queue.replay(DeadFilter(job=one.job.id)) == 1
    replaced = [job.id for job in await lab.jobs.running_jobs()]
    assert replaced == [first.job.id, last.job.id]

    # when ticks replace the newest run, again and again
    for due in (DUE + 60, DUE + 120):
        before = last.progress
        newest = (await lab.jobs.running_jobs())[-1].id
        last = await lab.ticks.settle(term, before, fired(before, due), opening(before, due), replaces=newest)
        assert (await lab.jobs.job(newest)).ending == "replaced"

    # then the older one runs on beside the last
    assert [job.id for job in await lab.jobs.running_jobs()] == [first.job.id, last.job.id]
    assert len((await lab.frontier.lease(first.job.id, "w", 9)).leases) == 1
    assert (await lab.jobs.counts(replaced[1])).dropped == 1


async def test_a_run_that_runs_again_is_replaced_though_a_newer_one_has_ended(lab):
    term = await lab.ticks.lead("one", TERM)
    first = await with_a_letter(lab, term, await written(lab))
    second = await settled(lab, term, first.progress)
    assert await lab.queue.replay(DeadFilter(job=first.job.id)) == 1
    await lab.jobs.seal_seeds(second.job.id)
    assert await lab.jobs.close_job(second.job.id, "done")
    assert [job.id for job in await lab.jobs.running_jobs()] == [first.job.id]

    later = fired(second.progress, DUE + 60), opening(second.progress, DUE + 60)
    third = await lab.ticks.settle(term, second.progress, *later, replaces=first.job.id)

    assert [job.id for job in await lab.jobs.running_jobs()] == [third.job.id]
    assert (await lab.jobs.job(first.job.id)).ending == "replaced"
    assert (await lab.jobs.job(second.job.id)).ending == "done"


async def test_a_leader_has_its_term_before_anything_is_cleared_away(lab):
    # given a look after what dead processes left that does not come to its end
    looked = asyncio.Event()

    async def stuck() -> None:
        looked.set()
        await asyncio.Event().wait()

    lab.jobs.cleanup.resume = stuck

    async with asyncio.timeout(PATIENCE):
        term = await lab.ticks.lead("one", TERM)
        await looked.wait()
        assert (await lab.ticks.lead("one", TERM)).token == term.token


async def test_a_leader_enters_what_is_new_and_forgets_what_is_gone(lab):
    term = await lab.ticks.lead("one", TERM)
    new = ScheduleProgress(schedule=PRICES, origin="file", created_at=DUE)

    done = await lab.ticks.settle(term, None, new)

    assert await lab.schedules.schedules() == [done.progress]
    assert await lab.ticks.settle(term, None, new) is None  # somebody was faster
    await lab.schedules.pause(PRICES.name, True)
    assert not await lab.ticks.forget(term, done.progress)
    now = await progress_of(lab)
    lab.clock.advance(6)
    for write in (lab.ticks.settle(term, None, new), lab.ticks.forget(term, now)):
        with pytest.raises(LeaseLost):
            await write
    assert await lab.ticks.forget(await lab.ticks.lead("one", TERM), now)
    assert await lab.schedules.schedules() == []


async def test_every_change_is_counted_once(lab):
    async def counted(what) -> int:
        before = await lab.ticks.changes()
        await what
        return await lab.ticks.changes() - before

    term = await lab.ticks.lead("one", TERM)
    assert await counted(lab.schedules.put(PRICES, origin="file")) == 1
    assert await counted(lab.schedules.put(PRICES, origin="file", replace=True)) == 0
    before = await progress_of(lab)
    assert await counted(lab.ticks.settle(term, before, fired(before), opening(before))) == 1
    assert await counted(lab.ticks.settle(term, before, fired(before), opening(before))) == 0
    assert await counted(lab.schedules.pause(PRICES.name, True)) == 1
    assert await counted(lab.schedules.remove(PRICES.name)) == 1
    assert await counted(lab.schedules.remove(PRICES.name)) == 0
    new = await lab.ticks.settle(term, None, before)
    assert await counted(lab.ticks.forget(term, new.progress)) == 1


@pytest.mark.parametrize("change", ["replaced", "paused", "removed", "written anew"])
async def test_a_schedule_that_was_changed_meanwhile_begins_no_job(lab, change):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    if change == "replaced":
        await lab.schedules.put(msgspec.structs.replace(PRICES, limit=1), origin="added", replace=True)
    elif change == "paused":
        await lab.schedules.pause(PRICES.name, True)
    else:
        await lab.schedules.remove(PRICES.name)
    if change == "written anew":
        await written(lab)
    now = await lab.schedules.schedules()

    assert await lab.ticks.settle(term, before, fired(before), opening(before)) is None

    assert await lab.schedules.schedules() == now
    assert await lab.jobs.jobs() == []


async def test_of_all_who_decide_about_a_tick_one_does(lab):
    before = await written(lab)
    async with lab.again() as elsewhere:
        term = await lab.ticks.lead("one", TERM)

        answers = await asyncio.gather(
            *(
                one.ticks.settle(term, before, fired(before), opening(before))
                for one in (lab, elsewhere)
                for _ in range(10)
            )
        )

        (done,) = [answer for answer in answers if answer is not None]
        assert await lab.jobs.jobs() == [done.job]
        assert await elsewhere.schedules.schedules() == [done.progress]


async def test_two_that_believe_to_lead_fire_a_tick_once(lab):
    before = await written(lab)
    async with lab.again() as elsewhere:
        old = await lab.ticks.lead("old", TERM)
        lab.clock.advance(6)
        new = await elsewhere.ticks.lead("new", TERM)

        late, good = await asyncio.gather(
            lab.ticks.settle(old, before, fired(before), opening(before)),
            elsewhere.ticks.settle(new, before, fired(before), opening(before)),
            return_exceptions=True,
        )

        assert isinstance(late, LeaseLost)
        assert await lab.jobs.jobs() == [good.job]
        assert await lab.schedules.schedules() == [good.progress]


async def test_a_leader_whose_term_is_over_changes_nothing_though_nobody_follows(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    lab.clock.advance(5.1)

    for what in ((fired(before), opening(before)), (fired(before),)):
        with pytest.raises(LeaseLost):
            await lab.ticks.settle(term, before, *what)

    assert await lab.schedules.schedules() == [before]
    assert await lab.jobs.jobs() == []
    again = await lab.ticks.lead("one", TERM)
    assert again.token == term.token
    assert (await settled(lab, term, before)).job is not None  # a term that was prolonged


async def test_a_leader_that_dies_after_its_decision_leaves_nothing_to_decide(lab):
    before = await written(lab)
    async with lab.again() as dying:
        done = await settled(dying, await dying.ticks.lead("dying", TERM), before)
    lab.clock.advance(6)

    term = await lab.ticks.lead("next", TERM)
    assert await lab.ticks.settle(term, before, fired(before), opening(before)) is None

    (progress,) = await lab.schedules.schedules()
    assert (progress.last_due, progress.last_job, progress.runs) == (DUE, done.job.id, 1)
    assert [job.id for job in await lab.jobs.running_jobs()] == [done.job.id]


@pytest.mark.parametrize("lab", ["shards", "cluster"], indirect=True)
async def test_a_job_that_only_one_shard_knows_of_is_worked_on_in_all(lab):
    # given a worker that died while it told the shards of a new job, and another one that has just looked around
    before = await written(lab)
    await lab.frontier.lease((await lab.job("other")).id, "w", 1)
    done = await settled(lab, await lab.ticks.lead("one", TERM), before)
    number = (await lab.jobs.row(done.job.id)).number
    await lab.jobs.server.call("HSET", lab.jobs.keys.in_shard(0, f"{number}:meta"), "state", "running")

    await lab.frontier.add(done.job.id, [candidate(f"https://{site}.test/") for site in "abcdefgh"])

    assert len((await lab.frontier.lease(done.job.id, "w", 20)).leases) == 8


async def test_ticks_of_many_schedules_are_decided_together(lab):
    schedules = [Schedule(name=f"s{n:03}", spider="shop", trigger="every 1h") for n in range(200)]
    await asyncio.gather(*(lab.schedules.put(one, origin="file") for one in schedules))
    schedules_now = await lab.schedules.schedules()
    assert [one.schedule for one in schedules_now] == schedules
    term = await lab.ticks.lead("one", TERM)

    done = await asyncio.gather(*(settled(lab, term, progress) for progress in schedules_now))

    assert await lab.schedules.schedules() == [one.progress for one in done]
    jobs = {job.id: job.schedule for job in await lab.jobs.running_jobs()}
    assert jobs == {one.progress.last_job: one.progress.schedule.name for one in done}
    assert len(jobs) == 200
