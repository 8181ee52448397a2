"""A Valkey server that comes back without its last writes: what workers then get, and when."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from gossamer.backends.redis.leasing import AFTER_RESTART
from gossamer.errors import BackendUnavailable
from gossamer.frontier.politeness import HEAD_START, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, candidate, redis_lab
from tests.services.valkey import running_valkey

CALM = timedelta(seconds=min(AFTER_RESTART, LEASE.total_seconds()))
INTERVAL = timedelta(seconds=2)


class Cut:
    """A server that keeps what it had when `save` was called, and forgets what came after when the power fails."""

    def __init__(self, server, lab):
        self.server = server
        self.lab = lab

    def save(self):
        assert "OK" in self.server.say("SAVE")

    def power_fails(self):
        self.server.kill()
        self.server.start()

    async def job(self, pages=4):
        job = (await self.lab.job()).id
        await self.lab.frontier.add(job, [candidate(f"https://a.test/{n}") for n in range(pages)])
        return job


@pytest.fixture
async def cut():
    with running_valkey() as server:
        async with redis_lab(server.address()) as lab:
            yield Cut(server, lab)


async def ask(lab, job, worker, n=1):
    """Ask until the server answers again: connections to the one that died fail once."""
    while True:
        with suppress(BackendUnavailable):
            return await lab.frontier.lease(job, worker, n)


async def test_a_site_whose_last_grant_was_forgotten_gets_its_interval_and_no_second_holder(cut):
    # given a worker with a page in progress that the state forgets
    lab = cut.lab
    lab.terms["a.test"] = SiteTerms(interval=INTERVAL, burst=1, concurrency=4)
    job = await cut.job()
    await lab.frontier.lease(job, "w3", 0)
    cut.save()
    (lease,) = (await lab.frontier.lease(job, "w1", 1)).leases
    cut.power_fails()

    # when another worker asks, then it gets nothing before the first must have heard that its lease is lost
    batch = await ask(lab, job, "w2")
    assert (batch.leases, batch.wait) == ((), CALM)
    assert await lab.frontier.renew([lease]) == [lease]

    # and then one interval later
    lab.clock.advance(CALM.total_seconds())
    batch = await lab.frontier.lease(job, "w2", 1)
    assert (batch.leases, batch.wait) == ((), INTERVAL - HEAD_START)
    lab.clock.advance(INTERVAL.total_seconds())
    (again,) = (await lab.frontier.lease(job, "w2", 1)).leases
    assert again.task.url == lease.task.url


async def test_slots_are_not_given_twice_after_the_state_went_back(cut):
    lab = cut.lab
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=2)
    job = await cut.job()
    (known,) = (await lab.frontier.lease(job, "w1", 1)).leases
    cut.save()
    (forgotten,) = (await lab.frontier.lease(job, "w1", 1)).leases
    cut.power_fails()

    assert (await ask(lab, job, "w2", 4)).leases == ()
    assert await lab.frontier.renew([known, forgotten]) == [forgotten]
    lab.clock.advance(CALM.total_seconds())

    assert len((await lab.frontier.lease(job, "w2", 4)).leases) == 1  # the other slot is that of `known`


async def test_what_is_in_hand_can_be_settled_at_once_after_a_restart(cut):
    lab = cut.lab
    job = await cut.job(pages=1)
    await lab.jobs.seal_seeds(job)
    (lease,) = (await lab.frontier.lease(job, "w1", 1)).leases
    cut.save()
    cut.power_fails()
    assert not (await ask(lab, job, "w2")).drained

    await lab.frontier.complete(lease, UrlState.DONE)

    assert (await lab.frontier.lease(job, "w2", 1)).drained


async def test_a_worker_hears_that_the_state_may_have_forgotten_what_it_knew(cut):
    lab = cut.lab
    job = await cut.job()
    before = (await lab.frontier.lease(job, "w1", 1)).epoch
    assert (await lab.frontier.lease(job, "w1", 1)).epoch == before
    cut.save()
    cut.power_fails()

    assert (await ask(lab, job, "w1")).epoch != before


async def test_a_clock_that_was_ahead_when_the_server_came_back_holds_nothing_up_for_long(cut):
    lab = cut.lab
    job = await cut.job()
    await lab.frontier.lease(job, "w1", 0)
    cut.save()
    cut.power_fails()
    lab.clock.advance(86_400)
    assert (await ask(lab, job, "w1")).leases == ()
    lab.clock.advance(-86_400)

    assert (await lab.frontier.lease(job, "w1", 1)).wait == CALM
    lab.clock.advance(CALM.total_seconds() + 1)

    assert len((await lab.frontier.lease(job, "w1", 1)).leases) == 1
