"""What every queue promises about the loads of sites: open tasks by site, why some are not due, and facts of a site."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.away import AwayTerms, SiteFailure
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, candidate

NOW = timedelta(0)


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def with_pages(lab, **sites):
    job = (await lab.job()).id
    for site, count in sites.items():
        await lab.frontier.add(job, [candidate(f"https://{site}.test/{n}") for n in range(count)])
    return job


async def test_sites_are_listed_most_loaded_first_all_or_some_or_one(lab):
    job = await with_pages(lab, a=1, b=5, c=3)

    assert [(one.site, one.queued) for one in await lab.queue.sites(job, None)] == [
        ("b.test", 5), ("c.test", 3), ("a.test", 1),
    ]  # fmt: skip
    assert [one.site for one in await lab.queue.sites(job, 2)] == ["b.test", "c.test"]
    assert [(one.site, one.queued) for one in await lab.queue.sites(job, None, site="c.test")] == [("c.test", 3)]
    assert await lab.queue.sites(job, None, site="nobody.test") == []


async def test_a_load_counts_each_state_and_says_why_tasks_are_not_due(lab):
    job = await with_pages(lab, a=6)
    leases = (await lab.frontier.lease(job, "w", 5)).leases
    await lab.frontier.retry(leases[0], timedelta(minutes=1), "timeout")
    await lab.frontier.release(leases[1], timedelta(minutes=1), "budget")
    await lab.frontier.release(leases[2], timedelta(minutes=1), "budget")
    await lab.frontier.complete(leases[3], UrlState.DONE)

    (load,) = await lab.queue.sites(job)
    assert (load.queued, load.waiting, load.leased, load.reason) == (1, 3, 1, "budget")


async def test_a_job_that_was_refused_names_the_one_that_has_the_site(lab):
    lab.terms["a.test"] = SiteTerms(interval=None, concurrency=1)
    first = (await lab.job("one")).id
    second = (await lab.job("two")).id
    for job in (first, second):
        await lab.frontier.add(job, [candidate(f"https://a.test/{job}/{n}") for n in range(2)])
    assert len((await lab.frontier.lease(first, "w1", 1)).leases) == 1
    assert (await lab.frontier.lease(second, "w2", 1)).leases == ()

    assert [one.taken_by for one in await lab.queue.sites(second)] == [first]
    assert [one.taken_by for one in await lab.queue.sites(first)] == [None]


async def test_the_facts_of_a_site_are_those_that_workers_share(lab):
    assert await lab.queue.site("a.test") is None
    job = await with_pages(lab, a=3)
    lab.terms["a.test"] = SiteTerms(interval=timedelta(seconds=1), concurrency=4)
    (lease,) = (await lab.frontier.lease(job, "w1", 1)).leases
    now = lab.clock.now()
    await lab.frontier.slow_down("a.test", interval=timedelta(seconds=7), rest=timedelta(seconds=30), worker="w1")

    facts = await lab.queue.site("a.test")
    assert (facts.site, facts.in_flight, facts.holder, facts.asked_interval) == ("a.test", 1, "w1", 7.0)
    assert facts.rest_until == pytest.approx(now + 30)
    assert (facts.answered_at, facts.away_since) == (0.0, None)
    await lab.frontier.complete(lease, UrlState.DONE)
    assert (await lab.queue.site("a.test")).answered_at == pytest.approx(now)


async def test_a_site_that_is_away_says_since_when_and_why(lab):
    await with_pages(lab, a=1)
    terms = AwayTerms(base=timedelta(seconds=5), cap=timedelta(minutes=1), patience=timedelta(hours=1), probes=9)
    await lab.frontier.site_away("a.test", SiteFailure(host="a.test", reason="connect", never=False), terms)

    facts = await lab.queue.site("a.test")
    assert (facts.away_since, facts.away_reason) == (pytest.approx(lab.clock.now()), "connect")
