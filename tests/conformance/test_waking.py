"""What every frontier promises when an admin changes what a site may get: sites that rest, pages that are woken."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.politeness import HEAD_START, REST_LOOK, SiteTerms
from gossamer.model.job import JobPoliteness
from gossamer.model.task import UrlState
from tests.conformance.frontiers import UNLIMITED, Backends, candidate

RESTS = SiteTerms(interval=None, concurrency=None, rests=True)
HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def with_pages(lab, name="test", site="a.test", **fields):
    job = (await lab.job(name)).id
    await lab.frontier.add(job, [candidate(f"https://{site}/{name}/{n}", **fields) for n in range(9)])
    return job


async def leased(lab, job, worker="w"):
    return len((await lab.frontier.lease(job, worker, 1)).leases)


async def test_a_site_that_rests_gives_nothing_to_any_job_until_it_may_and_others_go_on(lab):
    first, second = await with_pages(lab, "one"), await with_pages(lab, "two", fetcher="browser")
    await lab.frontier.add(first, [candidate("https://other.test/")])
    lab.terms["a.test"] = RESTS

    (lease,) = (await lab.frontier.lease(first, "w1", 5)).leases
    assert lease.task.site == "other.test"
    assert (await leased(lab, first), await leased(lab, second, "w2")) == (0, 0)
    lab.clock.advance(3600)
    assert await leased(lab, second, "w2") == 0

    lab.terms["a.test"] = UNLIMITED
    lab.clock.advance(REST_LOOK.total_seconds())
    assert (await leased(lab, first), await leased(lab, second)) == (1, 1)


async def test_pages_in_hand_are_finished_while_their_site_rests(lab):
    job = await with_pages(lab)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    lab.terms["a.test"] = RESTS

    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.jobs.counts(job)).done == 1


async def test_a_site_with_a_higher_rate_than_before_goes_on_when_it_is_woken(lab):
    lab.terms["a.test"] = SiteTerms(interval=HOUR, concurrency=4)
    first, second = await with_pages(lab, "one"), await with_pages(lab, "two")
    (lease,) = (await lab.frontier.lease(first, "w", 1)).leases
    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await leased(lab, first), await leased(lab, second)) == (0, 0)
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=1), concurrency=4)
    lab.clock.advance(2)
    assert await leased(lab, second) == 0

    await lab.waiting.wake_site("a.test", SECOND)
    await lab.waiting.wake_site("nobody.test", SECOND)

    assert await leased(lab, first) == 0
    lab.clock.advance(1)
    (lease,) = (await lab.frontier.lease(second, "w", 5)).leases
    assert lease.pace.interval == 1.0


async def test_a_woken_site_keeps_its_own_crawl_delay_and_the_rest_that_it_asked_for(lab):
    lab.terms["a.test"] = SiteTerms(interval=HOUR, concurrency=4)
    job = await with_pages(lab)
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=9), rest=timedelta(seconds=20))
    assert await leased(lab, job) == 0
    lab.terms["a.test"] = UNLIMITED

    await lab.waiting.wake_site("a.test", None)
    assert await leased(lab, job) == 0
    lab.clock.advance(21)
    (lease,) = (await lab.frontier.lease(job, "w", 5)).leases
    assert (lease.pace.interval, lease.pace.burst) == (9.0, 1)


async def test_what_was_set_by_hand_is_exceeded_by_no_job_and_a_slower_job_stays_slow(lab):
    lab.terms["a.test"] = SiteTerms(
        interval=timedelta(seconds=8), concurrency=2, named=("rate", "concurrency"), by_hand=("rate", "concurrency")
    )
    fast = (
        await lab.job("fast", politeness=JobPoliteness(rate="50/s", concurrency=9, given=("rate", "concurrency")))
    ).id
    slow = (await lab.job("slow", politeness=JobPoliteness(rate="1/m", given=("rate",)))).id
    await lab.frontier.add(fast, [candidate(f"https://a.test/fast/{n}") for n in range(9)])
    await lab.frontier.add(slow, [candidate(f"https://a.test/slow/{n}") for n in range(9)])

    (lease,) = (await lab.frontier.lease(fast, "w", 5)).leases
    assert lease.pace.interval == 8.0
    await lab.frontier.complete(lease, UrlState.DONE)
    lab.clock.advance(8)
    (lease,) = (await lab.frontier.lease(slow, "w", 5)).leases
    await lab.frontier.complete(lease, UrlState.DONE)
    lab.clock.advance(8)
    batch = await lab.frontier.lease(slow, "w", 5)
    assert (batch.leases, batch.wait) == ((), timedelta(seconds=52) - HEAD_START)


async def test_pages_that_wait_for_a_reason_that_is_gone_are_due_at_once_and_no_others(lab):
    jobs = [await with_pages(lab, name, site=site) for name, site in (("one", "a.test"), ("two", "b.test"))]
    for job in jobs:
        reasons = ("budget", "proxies", "http-500")
        for reason, lease in zip(reasons, (await lab.frontier.lease(job, "w", 3)).leases, strict=True):
            await lab.frontier.release(lease, HOUR, reason)
    paused = jobs[1]
    await lab.control.pause_job(paused, True)

    assert await lab.waiting.wake({"budget", "proxies"}) == 4
    assert await lab.waiting.wake({"budget"}) == 0
    (load,) = await lab.queue.sites(jobs[0], None)
    assert (load.waiting, (await lab.jobs.counts(jobs[0])).waiting) == (3, 3)
    assert len((await lab.frontier.lease(jobs[0], "w", 20)).leases) == 8
    assert (await lab.jobs.counts(jobs[0])).waiting == 1
    await lab.control.pause_job(paused, False)
    assert len((await lab.frontier.lease(paused, "w", 20)).leases) == 8


async def test_links_that_wait_for_room_are_not_woken(lab):
    job = (await lab.job("small", max_queued=3)).id
    await lab.frontier.add(job, [candidate("https://a.test/0")])
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.frontier.complete(
        lease, UrlState.DONE, discovered=[candidate(f"https://a.test/{n}") for n in range(1, 9)]
    )
    postponed = (await lab.jobs.counts(job)).postponed
    assert postponed

    assert await lab.waiting.wake({"no room", "budget"}) == 0
    assert (await lab.jobs.counts(job)).postponed == postponed
