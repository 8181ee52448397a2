"""What every book of schedules promises to people and to the leading scheduler. Each test runs on each backend."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import JobTerms
from gossamer.model.job import JobState
from gossamer.model.schedule import Overlap, Schedule, Settled, Standing
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate

TERM = timedelta(seconds=5)
DUE = 1_767_225_600.123456

PRICES = Schedule(
    name="prices of ☂",
    spider="shop",
    trigger="0 3 * * *",
    zone="Europe/Berlin",
    source='{"sitemap":"https://shop.test/sitemap.xml"}',
    priority=5,
    min_age=timedelta(hours=1.5),
    windows="22:00-06:00 Europe/Berlin",
    overlap=Overlap.REPLACE,
    limit=1000,
)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def written(lab, schedule=PRICES):
    assert await lab.schedules.put(schedule, origin="added")
    return await standing_of(lab, schedule.name)


async def standing_of(lab, name=PRICES.name) -> Standing:
    (found,) = [one for one in await lab.schedules.schedules() if one.schedule.name == name]
    return found


def fired(before: Standing, due: float = DUE) -> Standing:
    return msgspec.structs.replace(before, last_due=due, runs=before.runs + 1)


def opening(before: Standing, due: float = DUE) -> tuple[str, JobTerms]:
    name = before.schedule.name
    return name, JobTerms(schedule=name, due=due, spider=before.schedule.spider)


async def settled(lab, term, before) -> Settled:
    done = await lab.ticks.settle(term, before, fired(before), opening(before))
    assert done is not None
    return done


# -- what people do -----------------------------------------------------------------------------------------------


async def test_a_schedule_is_found_as_it_was_written_also_by_others(lab):
    lab.clock.advance(0.123457)
    bare = Schedule(name="a", spider="https://a.test/", trigger="every 6h")
    assert await lab.schedules.put(PRICES, origin="file")
    assert await lab.schedules.put(bare, origin="added")

    async with lab.again() as elsewhere:
        first, second = await elsewhere.schedules.schedules()

    assert (first.schedule, first.origin) == (bare, "added")
    assert (second.schedule, second.origin) == (PRICES, "file")
    assert second.created_at == lab.clock.now()
    assert (second.runs, second.last_due, second.last_job, second.paused) == (0, None, "", False)


async def test_a_second_schedule_of_that_name_is_refused_and_changes_nothing(lab):
    before = await written(lab)

    assert not await lab.schedules.put(msgspec.structs.replace(PRICES, trigger="every 1h"), origin="file")

    assert await lab.schedules.schedules() == [before]


async def test_a_schedule_that_is_replaced_keeps_what_it_has_come_to_and_loses_its_troubles(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    done = await settled(lab, term, before)
    troubled = msgspec.structs.replace(
        done.standing, skipped=2, failures=3, retry_at=DUE, trouble="the sitemap is away", waiting_due=DUE
    )
    await lab.ticks.settle(term, done.standing, troubled)
    await lab.schedules.pause(PRICES.name, True)
    changed = msgspec.structs.replace(PRICES, trigger="every 1h")

    assert await lab.schedules.put(changed, origin="file", replace=True)

    now = await standing_of(lab)
    assert (now.schedule, now.origin, now.created_at) == (changed, "file", before.created_at)
    assert (now.runs, now.last_due, now.last_job, now.skipped, now.waiting_due, now.paused) == (
        1, DUE, done.job.id, 2, DUE, True,
    )  # fmt: skip
    assert (now.failures, now.retry_at, now.trouble) == (0, None, "")
    assert (await lab.jobs.job(done.job.id)).state is JobState.RUNNING


async def test_to_write_again_what_is_there_changes_nothing(lab):
    before = await written(lab)

    assert await lab.schedules.put(PRICES, origin="added", replace=True)
    assert await lab.schedules.pause(PRICES.name, False)

    assert await lab.schedules.schedules() == [before]


async def test_a_schedule_is_paused_and_goes_on(lab):
    before = await written(lab)

    assert await lab.schedules.pause(PRICES.name, True)
    resting = await standing_of(lab)
    assert await lab.schedules.pause(PRICES.name, False)
    going = await standing_of(lab)

    assert resting == msgspec.structs.replace(before, paused=True, version=resting.version)
    assert going == msgspec.structs.replace(before, version=going.version)
    assert not await lab.schedules.pause("no such", True)


async def test_the_job_of_a_schedule_that_is_removed_goes_on(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    done = await settled(lab, term, before)
    await lab.frontier.add(done.job.id, [candidate("https://a.test/")])

    assert await lab.schedules.remove(PRICES.name)

    assert not await lab.schedules.remove(PRICES.name)
    assert await lab.schedules.schedules() == []
    assert len((await lab.frontier.lease(done.job.id, "w", 9)).leases) == 1
    late = fired(done.standing, DUE + 60)
    assert await lab.ticks.settle(term, done.standing, late, opening(before)) is None
    assert [job.id for job in await lab.jobs.jobs()] == [done.job.id]


async def test_everybody_may_write_at_the_same_time_and_nothing_is_lost(lab):
    await written(lab)
    names = [f"s{n}" for n in range(10)]
    async with lab.again() as elsewhere:
        answers = await asyncio.gather(
            *(
                one.schedules.put(Schedule(name=name, spider=who, trigger="every 1h"), origin="added")
                for name in names
                for one, who in ((lab, "here"), (elsewhere, "there"))
            ),
            *(one.schedules.pause(PRICES.name, True) for one in (lab, elsewhere)),
            lab.schedules.put(msgspec.structs.replace(PRICES, limit=7), origin="added", replace=True),
        )
        assert sum(answers) == len(names) + 3
        now = await standing_of(elsewhere)
    assert (now.paused, now.schedule.limit) == (True, 7)
    standings = await lab.schedules.schedules()
    assert [one.schedule.name for one in standings] == sorted([*names, PRICES.name])
    assert len({one.version for one in standings}) == len(standings)


# -- who leads ----------------------------------------------------------------------------------------------------


async def test_one_leads_at_a_time_and_goes_on_with_its_token(lab):
    async with lab.again() as elsewhere:
        terms = await asyncio.gather(
            *(one.ticks.lead(name, TERM) for name in ("a", "b", "c") for one in (lab, elsewhere))
        )
        leading = [term for term in terms if term is not None]
        assert len({(term.leader, term.token, term.until) for term in leading}) == 1
        (leader, token, until), *_ = map(msgspec.structs.astuple, leading)
        assert until == pytest.approx(lab.clock.now() + 5, abs=1e-6)

        lab.clock.advance(4)
        prolonged = await lab.ticks.lead(leader, TERM)

        assert (prolonged.leader, prolonged.token) == (leader, token)
        assert prolonged.until == pytest.approx(until + 4, abs=1e-6)
        lab.clock.advance(4)
        assert await elsewhere.ticks.lead("z", TERM) is None


async def test_the_next_one_leads_when_the_term_is_over_with_a_greater_token(lab):
    first = await lab.ticks.lead("one", TERM)
    lab.clock.advance(5.1)

    second = await lab.ticks.lead("two", TERM)

    assert second.token > first.token
    assert await lab.ticks.lead("one", TERM) is None
    lab.clock.advance(5.1)
    third = await lab.ticks.lead("one", TERM)
    assert third.token > second.token


async def test_whoever_resigns_is_followed_at_once(lab):
    first = await lab.ticks.lead("one", TERM)

    await lab.ticks.resign(first)

    second = await lab.ticks.lead("two", TERM)
    assert second.token > first.token
    await lab.ticks.resign(first)  # a term that is over
    assert await lab.ticks.lead("three", TERM) is None
    await lab.ticks.resign(second)
    third = await lab.ticks.lead("two", TERM)
    assert third.token > second.token
    with pytest.raises(LeaseLost):
        await settled(lab, second, await written(lab))


# -- ticks --------------------------------------------------------------------------------------------------------


async def test_a_tick_becomes_a_job_that_workers_can_work_on(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)

    done = await lab.ticks.settle(term, before, fired(before), opening(before))

    assert done.standing == await standing_of(lab)
    assert done.standing == msgspec.structs.replace(fired(before), last_job=done.job.id, version=done.standing.version)
    assert done.standing.version > before.version
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


async def test_a_tick_without_a_job_changes_the_standing_alone(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    skipped = msgspec.structs.replace(before, last_due=DUE, skipped=1, trouble="the run before goes on")

    done = await lab.ticks.settle(term, before, skipped)

    assert done.job is None
    assert done.standing == await standing_of(lab)
    assert done.standing == msgspec.structs.replace(skipped, version=done.standing.version)
    assert await lab.jobs.jobs() == []


async def test_a_run_that_still_goes_on_is_replaced(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    first = await settled(lab, term, before)
    await lab.frontier.add(first.job.id, [candidate(f"https://{site}.test/") for site in "abcd"])
    (lease,) = (await lab.frontier.lease(first.job.id, "w", 1)).leases

    second = await lab.ticks.settle(term, first.standing, fired(first.standing, DUE + 60), opening(before, DUE + 60))

    old, counts = await lab.jobs.job(first.job.id), await lab.jobs.counts(first.job.id)
    assert (old.state, old.ending) == (JobState.FINISHED, "replaced")
    assert (counts.open, counts.dropped) == (0, 4)
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(lease, UrlState.DONE)
    assert [job.id for job in await lab.jobs.running_jobs()] == [second.job.id]
    assert second.standing.last_job == second.job.id != first.job.id
    assert second.standing.runs == 2


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
        assert await elsewhere.schedules.schedules() == [done.standing]


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
        assert await lab.schedules.schedules() == [good.standing]


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

    (standing,) = await lab.schedules.schedules()
    assert (standing.last_due, standing.last_job, standing.runs) == (DUE, done.job.id, 1)
    assert [job.id for job in await lab.jobs.running_jobs()] == [done.job.id]


@pytest.mark.parametrize("lab", ["shards", "cluster"], indirect=True)
async def test_a_job_that_only_one_shard_knows_of_is_worked_on_in_all(lab):
    # given a worker that died while it told the shards of a new job, and another one that has just looked around
    before = await written(lab)
    await lab.frontier.lease((await lab.job("other")).id, "w", 1)
    done = await settled(lab, await lab.ticks.lead("one", TERM), before)
    number = (await lab.jobs.row(done.job.id)).number
    await lab.jobs._server.call("HSET", lab.jobs._keys.in_shard(0, f"{number}:meta"), "state", "running")

    await lab.frontier.add(done.job.id, [candidate(f"https://{site}.test/") for site in "abcdefgh"])

    assert len((await lab.frontier.lease(done.job.id, "w", 20)).leases) == 8


async def test_ticks_of_many_schedules_are_decided_together(lab):
    schedules = [Schedule(name=f"s{n:03}", spider="shop", trigger="every 1h") for n in range(200)]
    await asyncio.gather(*(lab.schedules.put(one, origin="file") for one in schedules))
    standings = await lab.schedules.schedules()
    assert [one.schedule for one in standings] == schedules
    term = await lab.ticks.lead("one", TERM)

    done = await asyncio.gather(*(settled(lab, term, standing) for standing in standings))

    assert await lab.schedules.schedules() == [one.standing for one in done]
    jobs = {job.id: job.schedule for job in await lab.jobs.running_jobs()}
    assert jobs == {one.standing.last_job: one.standing.schedule.name for one in done}
    assert len(jobs) == 200
