"""Taking addresses out of the queue, in every state."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gossamer.errors import LeaseLost
from gossamer.frontier.contract import DeadFilter
from gossamer.model.task import UrlState
from tests.conformance.frontiers import Backends, adds_up, candidate

URLS = [f"https://a.test/person/{name}" for name in ("queued", "waiting", "leased", "done", "dead", "other")]


@pytest.fixture(params=Backends.NAMES)
async def lab(request, tmp_path, backends):
    async with backends.open(request.param, tmp_path) as lab:
        yield lab


async def test_an_erased_address_is_nowhere_in_the_queue_and_the_counts_add_up(lab):
    # given a page in each state
    job = await lab.job()
    frontier = lab.frontier
    await frontier.add(job.id, [candidate(url, priority=-n) for n, url in enumerate(reversed(URLS))])
    leases = {lease.task.url: lease for lease in (await frontier.lease(job.id, "w", 5)).leases}
    assert set(leases) == set(URLS[1:])
    await frontier.retry(leases[URLS[1]], timedelta(hours=1), "http-503")
    await frontier.complete(leases[URLS[3]], UrlState.DONE)
    await frontier.bury(leases[URLS[4]], "parse", f"no price on {URLS[4]}")
    await frontier.complete(leases[URLS[5]], UrlState.DONE)

    # when all but one are erased
    wanted = [candidate(url) for url in URLS[:5]]
    assert await lab.erasure.erase_urls([(one.site, one.fingerprint) for one in wanted]) == 5

    # then only their hashes are left, and a worker that had one has lost it
    told = [(url, state.value, reason) async for url, state, reason in lab.queue.urls(job.id)]
    assert sorted(told) == [
        ("", "done", "erased"), *[("", "dropped", "erased")] * 4, (URLS[5], "done", ""),
    ]  # fmt: skip
    with pytest.raises(LeaseLost):
        await frontier.complete(leases[URLS[2]], UrlState.DONE)
    assert await lab.queue.dead(DeadFilter()) == []
    counts = await lab.jobs.counts(job.id)
    assert adds_up(counts)
    assert (counts.open, counts.dropped, counts.done) == (0, 4, 2)
    assert "person/dead" not in str([row async for batch in lab.stream.dump() for row in batch])

    # and the job neither waits for them nor takes them in again
    lab.clock.advance(7200)
    assert not (await frontier.lease(job.id, "w", 5)).leases
    added = await frontier.add(job.id, wanted)
    assert added.queued == 0
    assert added.duplicates == 5


async def test_erasing_twice_or_unknown_pages_changes_nothing(lab):
    job = await lab.job()
    await lab.frontier.add(job.id, [candidate(URLS[0]), candidate(URLS[5])])
    one = candidate(URLS[0])
    for _ in range(2):
        await lab.erasure.erase_urls([(one.site, one.fingerprint), ("b.test", b"0" * 16)])

    counts = await lab.jobs.counts(job.id)
    assert adds_up(counts)
    assert (counts.queued, counts.dropped) == (1, 1)
    assert [lease.task.url for lease in (await lab.frontier.lease(job.id, "w", 5)).leases] == [URLS[5]]
