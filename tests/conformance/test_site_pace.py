"""What every frontier promises about a site whose pace becomes known, or longer, while workers have leases of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.crawl.pacer import MAX_HOLD
from gossamer.frontier.politeness import HEAD_START, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate

NOW = timedelta(0)
DELAY = timedelta(seconds=4)


@pytest.fixture(params=Backends.UNSHARDED)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def with_pages(lab, count=9):
    job = (await lab.job()).id
    await lab.frontier.add(job, [candidate(f"https://a.test/{n}") for n in range(count)])
    return job


async def test_the_first_worker_that_tells_of_a_crawl_delay_holds_the_site(lab):
    # given two workers with leases of a site that had no pace
    job = await with_pages(lab)
    (mine,) = (await lab.frontier.lease(job, "w1", 1)).leases
    (other,) = (await lab.frontier.lease(job, "w2", 1)).leases
    assert mine.pace is None

    # when both find out about its crawl-delay
    assert await lab.frontier.slow_down("a.test", interval=DELAY, rest=NOW, worker="w1")
    assert not await lab.frontier.slow_down("a.test", interval=DELAY, rest=NOW, worker="w2")

    # then the first may send, and the other gets nothing more as long as the first has a lease
    assert await lab.frontier.slow_down("a.test", interval=DELAY, rest=NOW, worker="w1")
    await lab.frontier.release(other, NOW, "pace")
    assert (await lab.frontier.lease(job, "w2", 1)).leases == ()
    await lab.frontier.complete(mine, UrlState.DONE, paced_ahead=DELAY)
    batch = await lab.frontier.lease(job, "w2", 1)
    assert (batch.leases, batch.wait) == ((), DELAY - HEAD_START)


async def test_a_crawl_delay_of_a_site_without_leases_has_no_holder(lab):
    job = await with_pages(lab)

    assert await lab.frontier.slow_down("a.test", interval=DELAY, rest=NOW, worker="w1")

    assert len((await lab.frontier.lease(job, "w2", 1)).leases) == 1


async def test_after_a_dead_worker_the_next_request_keeps_the_crawl_delay_that_it_told(lab):
    # given a worker that was granted a page under a short interval, learned of a longer one, and died
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=0.5), concurrency=4)
    job = await with_pages(lab)
    assert len((await lab.frontier.lease(job, "w1", 1)).leases) == 1
    assert await lab.frontier.slow_down("a.test", interval=DELAY, rest=NOW, worker="w1")
    lab.gone.add("w1")
    lab.clock.advance(10)

    # when its page is taken back
    batch = await lab.frontier.lease(job, "w2", 1)

    # then the next request waits for the longer one
    assert (batch.leases, batch.wait) == ((), DELAY - HEAD_START)


async def test_a_request_without_a_lease_learns_which_pages_are_still_in_hand(lab):
    job = await with_pages(lab)
    (mine, other) = (await lab.frontier.lease(job, "w1", 2)).leases

    # nothing more is handed out, and those that were are counted until they are settled, lost or given back
    assert await lab.frontier.clear("a.test", timedelta(seconds=9)) == 2
    assert (await lab.frontier.lease(job, "w2", 1)).leases == ()
    await lab.frontier.complete(mine, UrlState.DONE)
    assert await lab.frontier.clear("a.test", timedelta(seconds=1)) == 1
    await lab.frontier.release(other, NOW, "pace")
    assert await lab.frontier.clear("a.test", timedelta(seconds=1)) == 0

    lab.clock.advance(8.9)  # the longest rest counts
    assert (await lab.frontier.lease(job, "w2", 1)).leases == ()
    lab.clock.advance(0.2)
    assert len((await lab.frontier.lease(job, "w2", 1)).leases) == 1


@pytest.mark.parametrize("how", ["erase", "cancel"])
async def test_a_page_that_is_taken_from_a_living_worker_leaves_time_for_the_request_that_its_pacer_holds(lab, how):
    # given a worker that was granted a page long ago, and may be about to send its request
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=0.5), concurrency=4)
    job = await with_pages(lab)
    other = (await lab.job("other")).id
    await lab.frontier.add(other, [candidate("https://a.test/other")])
    (lease,) = (await lab.frontier.lease(job, "w1", 1)).leases
    lab.clock.advance(10)

    # when the page is taken away
    if how == "erase":
        assert await lab.erasure.erase_urls([("a.test", lease.task.fingerprint)]) == 1
    else:
        assert await lab.control.cancel_job(job)
        await lab.history.clear_all()

    # then nobody gets the site before that request is out
    lab.clock.advance(MAX_HOLD.total_seconds() - 0.1)
    assert (await lab.frontier.lease(other, "w2", 1)).leases == ()
    lab.clock.advance(0.7)
    assert len((await lab.frontier.lease(other, "w2", 1)).leases) == 1
