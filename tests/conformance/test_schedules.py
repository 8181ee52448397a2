"""What every book of schedules promises to people, and who leads. Each test runs on each backend."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from gossamer.errors import LeaseLost
from gossamer.model.job import JobState
from gossamer.model.schedule import Schedule
from tests.conformance.frontiers import Backends, candidate
from tests.conformance.schedule_books import DUE, PRICES, TERM, fired, opening, progress_of, settled, spoil, written


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


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
        done.progress, skipped=2, failures=3, retry_at=DUE, trouble="the sitemap is away", waiting_due=DUE
    )
    await lab.ticks.settle(term, done.progress, troubled)
    await lab.schedules.pause(PRICES.name, True)
    changed = msgspec.structs.replace(PRICES, trigger="every 1h")

    assert await lab.schedules.put(changed, origin="file", replace=True)

    now = await progress_of(lab)
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


async def test_who_leads_is_known_to_everybody_until_the_term_is_over(lab):
    assert await lab.schedules.leader() is None
    term = await lab.ticks.lead("one", TERM)

    async with lab.again() as elsewhere:
        assert await elsewhere.schedules.leader() == term
    lab.clock.advance(TERM.total_seconds())
    late = await lab.schedules.leader()
    again = await lab.ticks.lead("two", TERM)
    led = await lab.schedules.leader()
    await lab.ticks.resign(again)

    assert (late, led) == (None, again)
    assert await lab.schedules.leader() is None


async def test_a_schedule_is_paused_and_goes_on(lab):
    before = await written(lab)

    assert await lab.schedules.pause(PRICES.name, True)
    resting = await progress_of(lab)
    assert await lab.schedules.pause(PRICES.name, False)
    going = await progress_of(lab)

    assert resting == msgspec.structs.replace(before, paused=True, version=resting.version)
    assert going == msgspec.structs.replace(before, since=going.since, version=going.version)
    assert going.since == pytest.approx(lab.clock.now(), abs=1e-6)  # ticks count from then
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
    late = fired(done.progress, DUE + 60)
    assert await lab.ticks.settle(term, done.progress, late, opening(before)) is None
    assert [job.id for job in await lab.jobs.jobs()] == [done.job.id]


async def test_another_trigger_makes_ticks_count_from_then(lab):
    before = await written(lab)
    done = await settled(lab, await lab.ticks.lead("one", TERM), before)
    lab.clock.advance(60)

    await lab.schedules.put(msgspec.structs.replace(PRICES, limit=7), origin="added", replace=True)
    same = await progress_of(lab)
    await lab.schedules.put(msgspec.structs.replace(PRICES, trigger="every 1h"), origin="added", replace=True)
    other = await progress_of(lab)

    assert (same.created_at, same.since) == (before.created_at, None)
    assert other.created_at == other.since == pytest.approx(lab.clock.now(), abs=0.002)
    assert other.last_due == done.progress.last_due


async def test_a_schedule_that_cannot_be_read_hides_no_other_and_can_be_removed_or_replaced(lab):
    good = await written(lab)
    for name in ("b", "c"):
        await written(lab, Schedule(name=name, spider="shop", trigger="every 1h"))
        await spoil(lab, name, '"skip"', '"some other day"')

    assert await lab.schedules.schedules() == [good]
    b, c, found = await lab.schedules.everything()
    assert (b.name, c.name, found) == ("b", "c", good)
    assert "some other day" in b.why
    assert not await lab.schedules.put(Schedule(name="b", spider="shop", trigger="every 2h"), origin="added")
    assert not await lab.schedules.pause("b", True)

    assert await lab.schedules.remove("b")
    assert await lab.schedules.put(Schedule(name="c", spider="shop", trigger="every 2h"), origin="added", replace=True)

    assert [one.schedule.name for one in await lab.schedules.schedules()] == ["c", PRICES.name]


async def test_the_place_of_a_schedule_that_was_withdrawn_is_free(lab):
    before = await written(lab)
    term = await lab.ticks.lead("one", TERM)
    gone = msgspec.structs.replace(fired(before), withdrawn_at=lab.clock.now())
    await lab.ticks.settle(term, before, gone)

    assert await lab.schedules.put(PRICES, origin="added")

    now = await progress_of(lab)
    assert (now.withdrawn_at, now.runs, now.origin) == (None, 0, "added")


async def test_a_run_besides_the_ticks_is_counted_and_nobody_needs_to_lead(lab):
    before = await written(lab)
    after = msgspec.structs.replace(before, runs=1)

    done = await lab.schedules.begin(before, after, opening(before))

    assert done.progress == await progress_of(lab)
    assert (done.progress.runs, done.progress.last_job, done.progress.last_due) == (1, done.job.id, None)
    # and a second one only in its place
    again = msgspec.structs.replace(done.progress, runs=2)
    assert await lab.schedules.begin(done.progress, again, opening(before)) is None
    assert await lab.schedules.begin(before, after, opening(before), replaces=done.job.id) is None
    second = await lab.schedules.begin(done.progress, again, opening(before), replaces=done.job.id)
    assert [job.id for job in await lab.jobs.running_jobs()] == [second.job.id]
    assert (await lab.jobs.job(done.job.id)).ending == "replaced"


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
        now = await progress_of(elsewhere)
    assert (now.paused, now.schedule.limit) == (True, 7)
    schedules_now = await lab.schedules.schedules()
    assert [one.schedule.name for one in schedules_now] == sorted([*names, PRICES.name])
    assert len({one.version for one in schedules_now}) == len(schedules_now)


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


async def test_a_term_that_a_clock_ahead_has_written_is_over(lab):
    lab.clock.advance(86_400)
    first = await lab.ticks.lead("one", TERM)
    lab.clock.advance(-86_400)

    second = await lab.ticks.lead("two", TERM)

    assert second.token > first.token
    assert second.until == pytest.approx(lab.clock.now() + 5, abs=1e-6)
    with pytest.raises(LeaseLost):
        await settled(lab, first, await written(lab))
    assert await lab.ticks.lead("one", TERM) is None


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
