"""A cluster gets another node while a project lives: shards go there, and the work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from redis.crc import key_slot

from gossamer.backends.redis.keys import Keyspace
from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Lease, UrlState
from tests.conformance.frontiers import Lab, candidate, redis_lab
from tests.patience import until
from tests.services.valkey import ValkeyServer, running_cluster

SHARDS, SITES, PAGES = 8, 40, 400


async def moved(nodes: list[ValkeyServer], slots: list[int]) -> None:
    """Have the first node give these slots to the second one, and wait until it has."""
    target = nodes[1].say("CLUSTER", "MYID").split("\r\n")[1]
    ranges = [word for slot in slots for word in (str(slot), str(slot))]
    answer = nodes[0].say("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", *ranges, "NODE", target)
    assert answer.startswith("+OK"), answer
    await until(lambda: "success" in nodes[0].say("CLUSTER", "GETSLOTMIGRATIONS"))


async def work(lab: Lab, job: str, worker: str, until: asyncio.Event, done: list[str]) -> None:
    while not until.is_set():
        done += await settled(lab, (await lab.frontier.lease(job, worker, 3)).leases)


async def settled(lab: Lab, leases: Sequence[Lease]) -> list[str]:
    for lease in leases:
        await lab.frontier.complete(lease, UrlState.DONE)
    return [lease.task.url for lease in leases]


@pytest.mark.long
async def test_shards_go_to_a_new_node_while_work_goes_on() -> None:
    with running_cluster(2, spare=1) as nodes:
        async with redis_lab(nodes[0].address(), shards=SHARDS, project="growing") as lab:
            job, _ = await lab.jobs.open_job("books", JobTerms(), fresh=True)
            pages = [candidate(f"https://site{n % SITES}.test/{n}") for n in range(PAGES)]
            await lab.frontier.add(job.id, pages)
            await lab.jobs.seal_seeds(job.id)
            in_progress = (await lab.frontier.lease(job.id, "before/1/0", SITES)).leases
            places = Keyspace("growing", SHARDS)
            slots = sorted(key_slot(places.in_shard(shard, "shard").encode()) for shard in range(0, SHARDS, 2))
            assert {places.shard_of(lease.task.site) % 2 for lease in in_progress} == {0, 1}  # of both halves

            done: list[str] = []
            over = asyncio.Event()
            busy = [asyncio.create_task(work(lab, job.id, f"w/{n}/0", over, done)) for n in range(12)]
            await moved(nodes, slots)
            over.set()
            await asyncio.gather(*busy)

            done += await settled(lab, in_progress)  # what the old node handed out is settled on the new one
            for _ in range(PAGES):
                batch = await lab.frontier.lease(job.id, "after/1/0", 50)
                done += await settled(lab, batch.leases)
                if batch.drained:
                    break
                if not batch.leases:  # shards that were moved rest for a while, as after a restart
                    lab.clock.advance(5)

            assert sorted(done) == sorted(page.url for page in pages)
            counts = await lab.jobs.counts(job.id)
            assert (counts.done, counts.discovered, counts.open) == (PAGES, PAGES, 0)
            assert all(int(nodes[1].say("CLUSTER", "COUNTKEYSINSLOT", str(slot)).strip(":\r\n")) > 0 for slot in slots)
