"""What every frontier promises about the terms of a job: its own rate and concurrency bind its own requests, whichever
worker asks; its priority lets it go first at a site, and starves nobody."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.politeness import HEAD_START, SiteTerms
from gossamer.frontier.turns import ONE_IN
from gossamer.model.job import JobPoliteness
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, Backends, candidate
from tests.conformance.test_site_turns import Crowd

QUICK = SiteTerms(interval=timedelta(milliseconds=100), burst=1, concurrency=8)
OPEN = SiteTerms(interval=None, burst=1, concurrency=None)
SLOW = JobPoliteness(rate="1/s", given=("rate",))


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


def spaced(times, interval, burst=1):
    """No span of time has more requests than the rate allows."""
    for i in range(len(times)):
        for j in range(i, len(times)):
            span = times[j] - times[i] + HEAD_START.total_seconds()
            assert j - i + 1 <= burst + span / interval + 1e-6, times
    return times


@pytest.mark.long
@pytest.mark.parametrize("terms", [QUICK, OPEN], ids=["paced site", "unpaced site"])
async def test_a_job_with_its_own_rate_keeps_it_with_two_workers_and_holds_up_no_other_job(lab, terms):
    lab.terms["a.test"] = terms
    crowd = Crowd(lab, latency=0.03)
    slow, quick = await crowd.job("slow", politeness=SLOW), await crowd.job("quick", pages=4000)

    await crowd.spend(12, (slow, "w1", 1), (quick, "w2", 1), (slow, "w3", 1))

    assert 9 <= len(spaced(crowd.times(slow), 1.0)) <= 13
    if terms is QUICK:
        assert len(spaced(crowd.times(quick), 0.1)) >= 70
        spaced([at for at, _ in crowd.grants], 0.1)
    else:
        assert len(crowd.times(quick)) >= 700


async def test_two_jobs_with_a_rate_each_keep_both(lab):
    lab.terms["a.test"] = QUICK
    crowd = Crowd(lab, latency=0.03)
    one = await crowd.job("one", politeness=SLOW)
    two = await crowd.job("two", politeness=JobPoliteness(rate="2/s"))

    await crowd.spend(10, (one, "w1", 1), (two, "w2", 1))

    assert 8 <= len(spaced(crowd.times(one), 1.0)) <= 11
    assert 15 <= len(spaced(crowd.times(two), 0.5)) <= 21


async def test_a_job_keeps_its_rate_when_its_worker_is_lost(lab):
    lab.terms["a.test"] = OPEN
    crowd = Crowd(lab, latency=0.03)
    slow = await crowd.job("slow", politeness=JobPoliteness(rate="6/m"))
    assert await crowd.ask(slow, "w1") == 1
    crowd.in_progress.clear()
    lab.clock.advance(LEASE.total_seconds() + 1)
    lost = lab.clock.now()

    await crowd.spend(25, (slow, "w2", 1))

    # The lost worker may have sent its request at the last moment.
    assert crowd.times(slow)[1] >= lost + 10 - 2 * HEAD_START.total_seconds()
    spaced(crowd.times(slow), 10.0)


async def test_a_worker_that_sent_later_than_it_leased_is_waited_for(lab):
    lab.terms["a.test"] = OPEN
    job = await lab.job("slow", politeness=SLOW)
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(5)])
    (lease,) = (await lab.frontier.lease(job.id, "w1", 4)).leases
    assert lease.pace is not None
    assert (lease.pace.interval, lease.pace.gap) == (1.0, 1.0)
    lab.clock.advance(5)
    assert (await lab.frontier.lease(job.id, "w2", 4)).leases == ()  # the other has not sent its request yet

    # when it has left just now: the site is free, the job's own bucket is not
    await lab.frontier.complete(lease, UrlState.DONE, paced_ahead=timedelta(0))
    lab.clock.advance(0.5)
    assert (await lab.frontier.lease(job.id, "w2", 4)).leases == ()
    lab.clock.advance(0.5)
    assert len((await lab.frontier.lease(job.id, "w2", 4)).leases) == 1


async def test_a_job_with_fewer_requests_at_once_leaves_the_other_slots_to_others(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, burst=1, concurrency=6)
    crowd = Crowd(lab, latency=1.0)
    few = await crowd.job("few", politeness=JobPoliteness(concurrency=2))
    many = await crowd.job("many")

    assert await crowd.ask(few, "w1", 8) == 2
    assert await crowd.ask(few, "w2", 8) == 0
    assert await crowd.ask(many, "w3", 8) == 4
    lab.clock.advance(1.01)
    await crowd.settle()
    assert await crowd.ask(few, "w2", 8) == 2


async def test_a_job_that_may_only_tighten_makes_no_site_faster(lab):
    lab.terms["a.test"] = QUICK
    crowd = Crowd(lab, latency=0.01)
    fast = JobPoliteness(rate="unlimited", concurrency=99, given=("rate", "concurrency"))
    asked, ordered = (
        await crowd.job("asked", politeness=JobPoliteness(rate="50/s", given=("rate",), tightens=True)),
        await crowd.job("ordered", politeness=fast),
    )

    await crowd.spend(3, (asked, "w1", 1))
    spaced(crowd.times(asked), 0.1)
    assert await crowd.ask(ordered, "w2", 20) == 20


async def test_new_terms_hold_from_the_next_lease_on(lab):
    lab.terms["a.test"] = OPEN
    crowd = Crowd(lab, latency=0.01)
    job = await crowd.job("job")
    assert await crowd.ask(job, "w1", 4) == 4
    await lab.job("job", politeness=SLOW)  # resumed by another command
    lab.clock.advance(20)  # a worker trusts what it knows of a job for a few seconds
    await crowd.settle()
    crowd.grants.clear()

    async with lab.again() as later:
        crowd.lab = later
        await crowd.spend(4, (job, "w2", 1))

    assert 3 <= len(spaced(crowd.times(job), 1.0)) <= 5


@pytest.mark.long
@pytest.mark.parametrize(
    ("terms", "latency"),
    [
        (QUICK, 0.03),
        (SiteTerms(interval=timedelta(seconds=1), burst=1, concurrency=4), 0.2),
        (SiteTerms(interval=timedelta(milliseconds=500), burst=1, concurrency=8), 1.7),
        (SiteTerms(interval=None, burst=1, concurrency=1), 0.2),
        (SiteTerms(interval=None, burst=1, concurrency=4), 0.4),
    ],
    ids=["quick", "slow pace", "slow site", "one at a time", "four at a time"],
)
async def test_a_job_of_higher_priority_goes_first_and_the_other_has_its_share(lab, terms, latency):
    lab.terms["a.test"] = terms
    crowd = Crowd(lab, latency=latency)
    low = await crowd.job("low", pages=1500, priority=1)
    high = await crowd.job("high", pages=1500, priority=100)
    await crowd.spend(6, (low, "w1", 1))
    before = len(crowd.grants)

    await crowd.spend(60, (low, "w1", 1), (high, "w2", 2))

    order = [job for _, job in crowd.grants][before:]
    first = order.index(high)
    assert first <= (terms.concurrency or 1)  # not before pages that were in flight
    low_pages, high_pages = order[first:].count(low), order[first:].count(high)
    assert low_pages >= len(order[first:]) // (2 * ONE_IN)
    assert high_pages >= 5 * low_pages, (high_pages, low_pages)
    if terms.interval is not None:
        spaced([at for at, _ in crowd.grants], terms.interval.total_seconds())


@pytest.mark.long
async def test_jobs_of_lower_priority_have_the_site_when_the_first_has_nothing_to_do_or_is_gone(lab):
    lab.terms["a.test"] = QUICK
    crowd = Crowd(lab, latency=0.03)
    low, high = await crowd.job("low", priority=-3), await crowd.job("high", pages=20)
    other = await crowd.job("other")

    await crowd.spend(8, (low, "w1", 1), (high, "w2", 1))
    assert len(crowd.times(high)) == 20
    assert len(crowd.times(low)) >= 35

    await crowd.ask(other, "w3")  # comes once and never again
    crowd.grants.clear()
    await crowd.spend(5, (low, "w1", 1))
    assert len(crowd.times(low)) >= 35


@pytest.mark.long
async def test_three_priorities_all_move(lab):
    lab.terms["a.test"] = QUICK
    crowd = Crowd(lab, latency=0.03)
    jobs = [await crowd.job(f"p{n}", pages=2000, priority=n) for n in (1, 5, 9)]

    await crowd.spend(60, *((job, f"w{n}", 1) for n, job in enumerate(jobs)))

    low, middle, high = (len(crowd.times(job)) for job in jobs)
    assert high > 8 * max(low, middle)
    assert min(low, middle) >= 3, (low, middle, high)
