"""What every backend tells about the work of a job: by site and lane, with what holds each site back."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.frontier.away import AwayTerms, SiteFailure
from gossamer.frontier.queue_values import MOST_COUNTED, QueueLoad
from gossamer.model.task import UrlState

from .frontiers import LEASE, Backends, candidate


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as opened:
        yield opened


async def loads_of(lab, job) -> dict[tuple[str, str], QueueLoad]:
    found = await lab.queue.loads(job.id, lab.clock.now())
    assert len({(one.site, one.lane) for one in found}) == len(found)
    return {(one.site, one.lane): one for one in found}


async def test_ready_and_leased_tasks_are_counted_by_site_and_lane(lab):
    job, other = await lab.job("a"), await lab.job("b")
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(3)])
    await lab.frontier.add(job.id, [candidate("https://a.test/shown", fetcher="browser"), candidate("https://b.test/")])
    await lab.frontier.add(other.id, [candidate("https://z.test/")])
    await lab.frontier.lease(job.id, "w", 2, frozenset({""}))

    found = await loads_of(lab, job)

    assert set(found) == {("a.test", ""), ("a.test", "browser"), ("b.test", "")}
    plain = [found["a.test", ""], found["b.test", ""]]
    assert (sum(one.ready for one in plain), sum(one.leased for one in plain)) == (2, 2)
    assert (found["a.test", "browser"].ready, found["a.test", "browser"].leased) == (1, 0)


async def test_what_is_settled_or_waits_for_its_time_is_no_work(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1"), candidate("https://b.test/1")])
    for lease in (await lab.frontier.lease(job.id, "w", 2)).leases:
        if lease.task.site == "a.test":
            await lab.frontier.complete(lease, UrlState.DONE)
        else:
            await lab.frontier.retry(lease, timedelta(seconds=30), "timeout")
    assert await loads_of(lab, job) == {}

    # A task that is due is work, also while no worker asks: else nobody would ever be started for it.
    lab.clock.advance(31)
    assert {which: one.ready for which, one in (await loads_of(lab, job)).items()} == {("b.test", ""): 1}


async def test_a_lease_that_has_expired_is_work(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate("https://a.test/1")])
    await lab.frontier.lease(job.id, "w", 1)
    lab.clock.advance(10 * LEASE.total_seconds())

    found = (await loads_of(lab, job))["a.test", ""]
    assert found.ready + found.leased == 1


async def test_a_long_queue_is_counted_up_to_a_bound(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(f"https://a.test/{n}") for n in range(MOST_COUNTED + 50)])

    assert (await loads_of(lab, job))["a.test", ""].ready == MOST_COUNTED


async def test_what_holds_a_site_back_is_told(lab):
    job = await lab.job()
    sites = ("slow.test", "away.test", "free.test")
    await lab.frontier.add(job.id, [candidate(f"https://{site}/{n}") for site in sites for n in range(2)])
    now = lab.clock.now()
    await lab.frontier.slow_down("slow.test", interval=timedelta(seconds=7), rest=timedelta(seconds=60))
    refused = SiteFailure(host="away.test", reason="connect", never=False)
    terms = AwayTerms(base=timedelta(seconds=1), cap=timedelta(minutes=1), patience=timedelta(minutes=10), probes=4)
    await lab.frontier.site_away("away.test", refused, terms)

    found = await loads_of(lab, job)

    slow, away, free = (found[site, ""] for site in sites)
    (at_slow,) = [one for one in await lab.queue.sites(job.id) if one.site == "slow.test"]
    assert at_slow.asked == 7.0
    assert (slow.asked, slow.learned, slow.rest_until, slow.away) == (7.0, None, now + 60, False)
    assert away.away
    assert (free.asked, free.away) == (None, False)
    assert free.rest_until <= now
