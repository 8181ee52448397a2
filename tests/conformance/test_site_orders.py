"""What every frontier promises about orders of operators: a site is slowed down or rests, on all workers at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.contract import SiteOrder
from gossamer.frontier.politeness import HEAD_START, SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate

NOW = timedelta(0)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def with_pages(lab, name="test", **fields):
    job = (await lab.job(name)).id
    await lab.frontier.add(job, [candidate(f"https://a.test/{name}/{n}", **fields) for n in range(9)])
    return job


def order(lab, site="a.test", *, rest=None, interval=None, by="ann"):
    until = None if rest is None else lab.clock.now() + rest
    return SiteOrder(site=site, at=lab.clock.now(), by=by, interval=interval, rest_until=until)


async def leased(lab, job, worker="w"):
    return len((await lab.frontier.lease(job, worker, 1)).leases)


async def test_orders_come_back_as_they_were_given_by_site(lab):
    slow, rest = order(lab, "b.test", interval=2.5), order(lab, "a.test", rest=60, by="")
    await lab.orders.give(slow)
    await lab.orders.give(rest)

    assert await lab.orders.orders() == [rest, slow]
    assert await lab.orders.withdraw("b.test")
    assert not await lab.orders.withdraw("b.test")
    assert await lab.orders.orders() == [rest]


async def test_a_site_that_rests_by_order_gives_nothing_to_any_worker_or_job_until_then(lab):
    first, second = await with_pages(lab, "one"), await with_pages(lab, "two")
    await lab.frontier.add(first, [candidate("https://other.test/")])
    await lab.orders.give(order(lab, rest=60))

    (lease,) = (await lab.frontier.lease(first, "w1", 5)).leases
    assert lease.task.site == "other.test"
    assert await leased(lab, second, "w2") == 0
    lab.clock.advance(59)
    assert await leased(lab, second, "w2") == 0
    lab.clock.advance(2)
    assert await leased(lab, second, "w2") == 1


async def test_a_rest_that_is_withdrawn_ends_at_once_for_all_jobs_and_lanes(lab):
    first, second = await with_pages(lab, "one"), await with_pages(lab, "two", fetcher="browser")
    await lab.orders.give(order(lab, rest=3600))
    assert (await leased(lab, first), await leased(lab, second)) == (0, 0)

    await lab.orders.withdraw("a.test")

    assert (await leased(lab, first), await leased(lab, second)) == (1, 1)


async def test_a_rest_that_is_shortened_ends_when_the_new_one_does(lab):
    job = await with_pages(lab)
    await lab.orders.give(order(lab, rest=3600))
    assert await leased(lab, job) == 0

    await lab.orders.give(order(lab, rest=10))
    assert await leased(lab, job) == 0
    lab.clock.advance(11)
    assert await leased(lab, job) == 1


async def test_pages_in_hand_are_finished_while_their_site_rests(lab):
    job = await with_pages(lab)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    await lab.orders.give(order(lab, rest=60))

    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.jobs.counts(job)).done == 1


@pytest.mark.parametrize("own", [None, timedelta(seconds=1)], ids=["unlimited", "one a second"])
async def test_a_site_that_was_slowed_down_keeps_the_longer_interval(lab, own):
    lab.terms["a.test"] = SiteTerms(interval=own, burst=3, concurrency=4)
    job = await with_pages(lab)
    await lab.orders.give(order(lab, interval=8.0))

    (lease,) = (await lab.frontier.lease(job, "w", 5)).leases
    assert (lease.pace.interval, lease.pace.burst) == (8.0, 1)
    await lab.frontier.complete(lease, UrlState.DONE, paced_ahead=timedelta(seconds=8))
    batch = await lab.frontier.lease(job, "w", 5)
    assert (batch.leases, batch.wait) == ((), timedelta(seconds=8) - HEAD_START)


async def test_an_order_never_makes_a_site_faster_than_its_settings_or_its_crawl_delay(lab):
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=5), concurrency=4)
    job = await with_pages(lab)
    await lab.orders.give(order(lab, interval=1.0))
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    assert lease.pace.interval == 5.0
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=9), rest=NOW)
    await lab.frontier.complete(lease, UrlState.DONE)
    lab.clock.advance(30)

    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    assert lease.pace.interval == 9.0


async def test_a_withdrawn_interval_leaves_the_rest_that_the_site_asked_for(lab):
    job = await with_pages(lab)
    await lab.orders.give(order(lab, interval=8.0))
    await lab.frontier.slow_down("a.test", interval=None, rest=timedelta(seconds=20))
    await lab.orders.withdraw("a.test")

    assert await leased(lab, job) == 0
    lab.clock.advance(21)
    (lease,) = (await lab.frontier.lease(job, "w", 1)).leases
    assert lease.pace is None


async def test_after_a_dead_worker_the_next_request_keeps_the_ordered_interval(lab):
    job = await with_pages(lab)
    assert await leased(lab, job, "w1") == 1
    await lab.orders.give(order(lab, interval=40.0))
    lab.gone.add("w1")
    lab.clock.advance(10)

    batch = await lab.frontier.lease(job, "w2", 1)
    assert (batch.leases, batch.wait) == ((), timedelta(seconds=40) - HEAD_START)


async def test_orders_that_are_over_are_cleared_away_with_the_next_one(lab):
    await lab.orders.give(order(lab, "a.test", rest=5))
    lab.clock.advance(6)
    await lab.orders.give(order(lab, "b.test", rest=5))

    assert [one.site for one in await lab.orders.orders()] == ["b.test"]
