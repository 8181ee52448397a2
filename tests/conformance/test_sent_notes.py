"""What is noted of a request that must not be sent twice. Each test runs against each backend."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import DeadFilter
from tests.conformance.frontiers import LEASE, Backends, candidate

NOW = timedelta(0)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def one_lease(lab, job, worker="w"):
    lab.clock.advance(1)
    (lease,) = (await lab.frontier.lease(job.id, worker, 1)).leases
    return lease


async def noted(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/")])
    lease = await one_lease(lab, job)
    assert not lease.sent
    await lab.frontier.note_sent(lease)
    return job, lease


async def test_a_note_outlives_the_worker_that_made_it(lab):
    job, _ = await noted(lab)

    for _ in range(2):  # also when the next one dies before it could do anything
        lab.clock.advance(LEASE.total_seconds() + 1)
        assert (await one_lease(lab, job, "w2")).sent


async def test_a_task_that_is_given_back_keeps_its_note_until_it_is_taken_back(lab):
    job, lease = await noted(lab)
    await lab.frontier.release(lease, NOW, "the worker stopped")

    again = await one_lease(lab, job)
    assert again.sent
    await lab.frontier.note_sent(again, sent=False)
    await lab.frontier.release(again, NOW, "proxy", lane="browser")

    assert not (await one_lease(lab, job)).sent


@pytest.mark.parametrize("settled", ["retry", "bury"])
async def test_who_decides_about_the_task_clears_its_note(lab, settled):
    job, lease = await noted(lab)
    if settled == "retry":
        await lab.frontier.retry(lease, NOW, "http-503")
    else:
        await lab.frontier.bury(lease, "uncertain", "who knows")
        assert await lab.queue.replay(DeadFilter(reason="uncertain")) == 1

    assert not (await one_lease(lab, job)).sent


async def test_nothing_is_noted_under_a_lost_lease(lab):
    job, lease = await noted(lab)
    lab.clock.advance(LEASE.total_seconds() + 1)
    with pytest.raises(LeaseLost):
        await lab.frontier.note_sent(lease, sent=False)

    other = await one_lease(lab, job, "w2")
    with pytest.raises(LeaseLost):
        await lab.frontier.note_sent(lease, sent=False)
    assert other.sent
