"""Jobs on Redis stand in the book and in every shard: what holds when a worker dies between the two."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.backends.redis.leasing import LeaseRequest
from gossamer.backends.redis.rows import EVERY_LANE
from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import DeadFilter
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.job import JobState
from gossamer.model.task import UrlState
from tests.conformance.frontiers import candidate, redis_lab

SLOW = SiteTerms(interval=timedelta(seconds=10), burst=1, concurrency=1)


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
async def lab(request, valkey):
    async with redis_lab(valkey.address(), shards=request.param) as lab:
        yield lab


async def break_off(server, name, step):
    """Do the step with a line that breaks before the command or script of that name is sent."""
    run, call = server.run, server.call

    async def broken_run(script, *rest):
        if script == name:
            raise BackendUnavailable("The line broke.")
        return await run(script, *rest)

    async def broken_call(*command):
        if command[0] == name:
            raise BackendUnavailable("The line broke.")
        return await call(*command)

    server.run, server.call = broken_run, broken_call
    try:
        with pytest.raises(BackendUnavailable):
            await step
    finally:
        server.run, server.call = run, call


async def test_a_job_whose_opener_died_early_is_not_taken_for_finished(lab):
    # given a job that the book knows and no shard
    await break_off(lab.jobs.server, "HSET", lab.job())
    [job] = await lab.jobs.running_jobs()

    # when another worker asks for work
    first = await lab.frontier.lease(job.id, "w", 1)

    # then it finds the shards mended
    assert not first.drained
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    assert len((await lab.frontier.lease(job.id, "w", 1)).leases) == 1


async def test_a_job_that_is_opened_again_is_told_to_its_shards_again(lab):
    await break_off(lab.jobs.server, "HSET", lab.job())
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    assert len((await lab.frontier.lease(job.id, "w", 1)).leases) == 1


async def test_the_shards_of_a_new_job_know_it_before_the_old_one_is_cleared(lab):
    await lab.job()
    await break_off(lab.jobs.server, "drop_open", lab.job(fresh=True))
    [new] = await lab.jobs.running_jobs()
    batch = await lab.frontier.dispatcher.look(await lab.frontier.job(new.id), LeaseRequest("w", EVERY_LANE), 1, [])
    assert {look.state for look in batch} == {"running"}


async def test_a_seal_that_broke_off_is_put_on_again(lab):
    job = await lab.job()
    await break_off(lab.jobs.server, "HSET", lab.jobs.seal_seeds(job.id))
    assert not await lab.jobs.is_sealed(job.id)

    await lab.jobs.seal_seeds(job.id)

    assert await lab.jobs.is_sealed(job.id)
    assert (await lab.frontier.lease(job.id, "w", 1)).drained


async def test_a_seal_that_only_the_book_knows_reaches_the_shards_when_the_job_is_opened(lab):
    job = await lab.job()
    await lab.jobs.change(job.id, "seal")
    assert not (await lab.frontier.lease(job.id, "w", 1)).drained

    await lab.job()

    assert (await lab.frontier.lease(job.id, "w", 1)).drained


@pytest.mark.parametrize("mended_by", ["the next opening", "a worker's look around"])
async def test_slots_of_a_replaced_job_come_back_though_its_replacer_died(lab, mended_by):
    # given a site whose only slot is held by a job that was replaced, by somebody who died over it
    lab.terms["a.test"] = SLOW
    old = await lab.job()
    other = await lab.job("other")
    await lab.frontier.add(old.id, [candidate("https://a.test/1")])
    await lab.frontier.add(other.id, [candidate("https://a.test/2")])
    assert (await lab.frontier.lease(old.id, "dead", 1)).leases
    await break_off(lab.jobs.server, "drop_open", lab.job(fresh=True))

    # when somebody opens a job, or only asks for work
    if mended_by == "the next opening":
        await lab.job("third")
    lab.clock.advance(11)
    await lab.frontier.lease(other.id, "w", 1)
    lab.clock.advance(11)

    # then the slot is free and the old job has nothing open
    counts = await lab.jobs.counts(old.id)
    assert (counts.open, counts.dropped) == (0, 1)
    assert (await lab.jobs.counts(other.id)).leased or (await lab.frontier.lease(other.id, "w", 1)).leases


async def test_a_site_keeps_its_distance_when_the_job_that_held_it_is_replaced(lab):
    # given a request that was sent eight seconds after its lease was given
    lab.terms["a.test"] = SLOW
    old = await lab.job()
    await lab.frontier.add(old.id, [candidate("https://a.test/1")])
    assert (await lab.frontier.lease(old.id, "w", 1)).leases
    lab.clock.advance(8)

    # when the job is replaced
    new = await lab.job(fresh=True)
    await lab.frontier.add(new.id, [candidate("https://a.test/1")])

    # then the next request is ten seconds away, not two
    lab.clock.advance(3)
    assert not (await lab.frontier.lease(new.id, "w", 1)).leases
    lab.clock.advance(8)
    assert (await lab.frontier.lease(new.id, "w", 1)).leases


async def test_a_job_that_is_closed_while_its_letters_are_replayed_runs_on(lab):
    # given a job that ended with a dead letter
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    await lab.jobs.seal_seeds(job.id)
    [lease] = (await lab.frontier.lease(job.id, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.jobs.close_job(job.id, "done")

    # when a worker finds it open and empty, before the letter is back
    run = lab.jobs.server.run

    async def with_a_worker_between(script, *rest):
        if script == "revive":
            assert (await lab.frontier.lease(job.id, "w", 1)).drained
            assert await lab.jobs.close_job(job.id, "done")
        return await run(script, *rest)

    lab.jobs.server.run = with_a_worker_between
    assert await lab.queue.replay(DeadFilter()) == 1
    lab.jobs.server.run = run

    # then it runs, and the letter is handed out
    assert (await lab.jobs.job(job.id)).state is JobState.RUNNING
    assert (await lab.frontier.lease(job.id, "w", 1)).leases


async def test_a_job_that_is_given_up_again_while_it_is_cleared_is_cleared_again(lab):
    # given a cancelled job with a dead letter, and one who has just dropped what was open of it
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate("https://a.test/1"), candidate("https://a.test/2")])
    [lease] = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.bury(lease, "http-404", "gone")
    await lab.jobs.change(job, "cancel", "cancelled")
    run = lab.jobs.server.run

    # when the letter is replayed, and the job cancelled by somebody who dies at once, before it is called cleared
    async def with_others_between(script, keys, *rest):
        if "cleared" in rest:
            lab.jobs.server.run = run
            async with lab.again() as other:
                assert await other.queue.replay(DeadFilter()) == 1
                lab.clock.advance(1)
                assert await other.jobs.change(job, "cancel", "cancelled")
        return await run(script, keys, *rest)

    lab.jobs.server.run = with_others_between
    await lab.jobs.clear_all()

    # then what came back is dropped as well
    counts = await lab.jobs.counts(job)
    assert (counts.open, counts.dropped) == (0, 2)


async def test_leases_of_a_dead_worker_count_by_the_terms_of_their_own_job(lab):
    strict, patient = await lab.job("strict", max_deliveries=1), await lab.job("patient", max_deliveries=5)
    await lab.frontier.add(patient.id, [candidate("https://a.test/")])
    for worker in ("dead", "dead, too"):  # twice is too often for the strict one
        assert (await lab.frontier.lease(patient.id, worker, 1)).leases
        lab.gone.add(worker)
        lab.clock.advance(3)

    await lab.frontier.lease(strict.id, "w", 1)

    counts = await lab.jobs.counts(patient.id)
    assert (counts.queued, counts.dead) == (1, 0)


async def test_the_names_of_holders_come_and_go_with_their_leases(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://s{n}.test/") for n in range(6)])

    async def holders():
        found = {}
        for shard in range(lab.jobs.keys.shards):
            names = await lab.jobs.server.call("HGETALL", lab.jobs.keys.in_shard(shard, "1:holders"))
            pairs = names.items() if isinstance(names, dict) else zip(names[::2], names[1::2], strict=True)
            for name, count in pairs:
                found[name.decode()] = found.get(name.decode(), 0) + int(count)
        return found

    mine = (await lab.frontier.lease(job.id, "mine", 4)).leases
    await lab.frontier.lease(job.id, "theirs", 2)
    assert await holders() == {"mine": 4, "theirs": 2}

    await lab.frontier.complete(mine[0], UrlState.DONE)
    await lab.frontier.retry(mine[1], timedelta(0), "timeout")
    await lab.frontier.release(mine[2], timedelta(0), "stopping")
    await lab.frontier.bury(mine[3], "http-404", "gone")
    assert await holders() == {"theirs": 2}

    lab.gone.add("theirs")
    lab.clock.advance(3)
    again = (await lab.frontier.lease(job.id, "mine", 9)).leases
    assert len(again) == 4
    assert await holders() == {"mine": 4}

    await lab.job(fresh=True)
    assert await holders() == {}
