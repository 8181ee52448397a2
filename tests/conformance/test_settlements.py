"""What is settled together with a page: the links in place of a dead letter, and what the spider counted."""

from __future__ import annotations

import asyncio

import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import DeadFilter
from gossamer.model.job import MOST_STATS, OTHER_STATS
from gossamer.model.task import UrlState
from tests.conformance.frontiers import LEASE, Backends, candidate


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def leased(lab, *urls):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(url) for url in urls])
    batch = await lab.frontier.lease(job.id, "w", len(urls))
    return job, sorted(batch.leases, key=lambda lease: lease.task.url)


async def test_a_dead_letter_and_what_takes_its_place_are_one_step(lab):
    job, (lease,) = await leased(lab, "https://a.test/gone")
    links = [candidate("https://a.test/copy"), candidate("https://b.test/copy"), candidate("https://a.test/gone")]

    added = await lab.frontier.bury(lease, "http-404", "gone", links, duplicates=2, stats={"gone": 1})

    assert (added.queued, added.duplicates) == (2, 1)
    counts = await lab.jobs.counts(job.id)
    assert (counts.dead, counts.queued, counts.duplicates, counts.discovered) == (1, 2, 3, 6)
    assert counts.stats == {"gone": 1}
    assert [letter.url for letter in await lab.queue.dead(DeadFilter())] == ["https://a.test/gone"]
    again = await lab.frontier.lease(job.id, "w", 9)
    assert {one.task.url for one in again.leases} == {"https://a.test/copy", "https://b.test/copy"}
    (story,) = await lab.queue.story(links[0].site, links[0].fingerprint)
    assert story.found_on == "https://a.test/gone"


async def test_a_link_that_comes_several_times_at_once_is_queued_once(lab):
    job, leases = await leased(lab, "https://a.test/1", "https://a.test/2")
    links = [candidate("https://a.test/copy")] * 2

    await asyncio.gather(*(lab.frontier.complete(lease, UrlState.DONE, "", links) for lease in leases))
    added = await lab.frontier.add(job.id, [candidate("https://a.test/seed")] * 2)

    assert (added.queued, added.duplicates) == (1, 1)
    counts = await lab.jobs.counts(job.id)
    assert (counts.queued, counts.duplicates, counts.discovered) == (2, 4, 8)
    again = await lab.frontier.lease(job.id, "w", 9)
    assert sorted(one.task.url for one in again.leases) == ["https://a.test/copy", "https://a.test/seed"]


async def test_a_page_that_is_wanted_again_while_it_is_settled_is_queued_again(lab):
    job, (lease, other) = await leased(lab, "https://a.test/1", "https://a.test/2")
    wish = candidate("https://a.test/1", force=True)

    await asyncio.gather(
        lab.frontier.complete(lease, UrlState.DONE), lab.frontier.complete(other, UrlState.DONE, "", [wish])
    )

    assert [one.task.url for one in (await lab.frontier.lease(job.id, "w", 9)).leases] == ["https://a.test/1"]
    counts = await lab.jobs.counts(job.id)
    assert (counts.done, counts.leased, counts.duplicates) == (1, 1, 1)


async def test_a_lost_lease_adds_neither_links_nor_counts(lab):
    job, (lease, other) = await leased(lab, "https://a.test/1", "https://a.test/2")
    lab.clock.advance(LEASE.total_seconds() + 1)
    links = [candidate("https://a.test/copy"), candidate("https://b.test/copy")]

    with pytest.raises(LeaseLost):
        await lab.frontier.bury(lease, "http-404", "gone", links, stats={"gone": 1})
    with pytest.raises(LeaseLost):
        await lab.frontier.complete(other, UrlState.DONE, stats={"seen": 1})

    counts = await lab.jobs.counts(job.id)
    assert (counts.dead, counts.discovered, counts.stats) == (0, 2, {})


async def test_counts_of_a_spider_are_summed_over_pages_sites_and_workers(lab):
    urls = [f"https://{site}.test/{n}" for site in "abc" for n in range(10)]
    job, leases = await leased(lab, *urls)

    await asyncio.gather(
        *(
            lab.frontier.complete(lease, UrlState.DONE, stats={"pages": 1, "ß €": 10**12, "less": -2})
            for lease in leases
        )
    )

    counts = await lab.jobs.counts(job.id)
    assert counts.stats == {"pages": 30, "ß €": 30 * 10**12, "less": -60}
    async with lab.again() as other:
        assert (await other.jobs.counts(job.id)).stats == counts.stats


async def test_names_beyond_the_bound_are_counted_together(lab):
    job, leases = await leased(lab, *(f"https://a.test/{n}" for n in range(3)))
    for page, lease in enumerate(leases):
        names = {f"name {n}": 1 for n in range(page * 60, page * 60 + 60)}
        await lab.frontier.complete(lease, UrlState.DONE, stats=names)

    stats = (await lab.jobs.counts(job.id)).stats
    assert len(stats) == MOST_STATS + 1
    assert (sum(stats.values()), stats[OTHER_STATS]) == (180, 80)


async def test_counts_move_with_their_job(lab, tmp_path, backends):
    job, (lease,) = await leased(lab, "https://a.test/1")
    await lab.frontier.complete(lease, UrlState.DONE, stats={"pages": 7})
    (tmp_path / "elsewhere").mkdir()
    for name in Backends.NAMES:
        async with backends.open(name, tmp_path / "elsewhere") as there:
            async for batch in lab.stream.dump():
                await there.stream.load(batch)
            await there.stream.finish()
            assert (await there.jobs.counts(job.id)).stats == {"pages": 7}
            assert await there.stream.counts() == await lab.stream.counts()
            await there.stream.clear()


async def test_dead_letters_are_chosen_by_their_ids_in_a_job(lab):
    job, leases = await leased(lab, *(f"https://{host}.test/{n}" for host in "ab" for n in range(3)))
    for lease in leases:
        await lab.frontier.bury(lease, "timeout", "slow")
    letters = await lab.queue.dead(DeadFilter())
    some = {one.id for one in letters if one.url.endswith("/1")}
    which = DeadFilter(job=job.id, among=frozenset(some))

    assert {one.id for one in await lab.queue.dead(which)} == some
    assert await lab.queue.dead_reasons(which) == {"timeout": 2}
    assert await lab.queue.dead(DeadFilter(job=job.id, among=frozenset())) == []
    assert await lab.queue.replay(which) == 2
    assert (await lab.jobs.counts(job.id)).dead == 4
    assert await lab.queue.purge(which) == 0
