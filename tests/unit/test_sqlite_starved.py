"""A worker that is starved: another one gives back slots of a site and takes them again in the same transaction."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.backends.sqlite.leasing import STARVED_AFTER, STARVED_FOR, STARVED_LOOK
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import candidate, sqlite_lab

SLOTS = 6


@pytest.fixture
async def lab(tmp_path):
    async with sqlite_lab(tmp_path) as lab:
        lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=SLOTS)
        yield lab


class Site:
    """Workers at one site. `hands` are the leases of each."""

    def __init__(self, lab, job):
        self.lab, self.job = lab, job
        self.hands = {}

    async def ask(self, worker, lanes=None):
        batch = await self.lab.frontier.lease(self.job, worker, 32, lanes)
        self.hands.setdefault(worker, []).extend(batch.leases)
        return batch

    async def work(self, worker):
        """Settle a page and ask for another, as a busy worker does: nobody comes in between."""
        await self.lab.frontier.complete(self.hands[worker].pop(0), UrlState.DONE)
        await self.ask(worker)

    def holds(self, *workers):
        return [len(self.hands[worker]) for worker in workers]


@pytest.fixture
async def site(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(300)])
    return Site(lab, job.id)


async def test_slots_are_shared_evenly_with_a_worker_that_has_got_nothing(lab, site):
    await site.ask("busy")
    for _ in range(20):
        await site.ask("late")
        await site.work("busy")
    assert site.holds("busy", "late") == [SLOTS, 0]  # no time has passed

    lab.clock.advance(STARVED_AFTER)
    batch = await site.ask("late")
    assert batch.wait == STARVED_LOOK
    for _ in range(SLOTS):
        if len(site.hands["busy"]) > SLOTS // 2:
            await site.work("busy")
    assert site.holds("busy", "late") == [SLOTS // 2, 0]
    await site.ask("late")
    assert site.holds("busy", "late") == [SLOTS // 2, SLOTS // 2]

    # both go on with what they have
    for _ in range(20):
        await site.work("busy")
        await site.work("late")
    assert site.holds("busy", "late") == [SLOTS // 2, SLOTS // 2]


async def test_a_third_worker_gets_its_share_of_both(lab, site):
    await site.ask("busy")
    await site.ask("late")
    await site.ask("later")
    for late in ("late", "later"):
        lab.clock.advance(STARVED_AFTER)
        await site.ask(late)
        for other in ("busy", "late"):
            for _ in range(len(site.hands[other])):
                await site.work(other)
        await site.ask(late)
    assert site.holds("busy", "late", "later") == [2, 2, 2]


async def test_a_worker_that_does_not_come_back_is_waited_for_only_for_a_moment(lab, site):
    await site.ask("busy")
    await site.ask("late")
    lab.clock.advance(STARVED_AFTER)
    await site.ask("late")
    for _ in range(SLOTS // 2):
        await site.work("busy")
    assert site.holds("busy") == [SLOTS // 2]
    lab.clock.advance(STARVED_FOR)
    await site.ask("busy")
    assert site.holds("busy") == [SLOTS]


async def test_a_single_slot_stays_with_the_worker_that_has_it(lab, site):
    """Who else had it would gain nothing for the site, and it would stand still at every change of hands."""
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=1)
    await site.ask("busy")
    await site.ask("late")
    for _ in range(10):
        lab.clock.advance(STARVED_AFTER)
        await site.ask("late")
        await site.work("busy")
    assert site.holds("busy", "late") == [1, 0]


async def test_a_worker_without_work_of_its_kind_is_not_starved(lab, site):
    await site.ask("busy")
    await site.ask("browsers", lanes=frozenset({"browser"}))
    lab.clock.advance(STARVED_AFTER)
    batch = await site.ask("browsers", lanes=frozenset({"browser"}))
    assert batch.wait is None or batch.wait > timedelta(seconds=1)
    await site.work("busy")
    assert site.holds("busy") == [SLOTS]


async def test_other_sites_are_served_while_one_is_left_to_a_starved_worker(lab, site):
    await site.ask("busy")
    await site.ask("late")
    lab.clock.advance(STARVED_AFTER)
    await site.ask("late")
    await lab.frontier.add(site.job, [candidate(f"https://b.test/{n}") for n in range(3)])
    await site.work("busy")
    sites = [lease.task.site for lease in site.hands["busy"]]
    assert (sites.count("a.test"), sites.count("b.test")) == (SLOTS - 1, 3)
