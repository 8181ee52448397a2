"""What a page costs on each part of a fleet, measured for bench.scale on servers that are started here.

`verbs` asks a Valkey alone, verb by verb, and again all of them mixed. `crawled` crawls the site of bench.run on
Valkey, PostgreSQL and S3 (SeaweedFS), twice: what both sizes have in common is the start, the rest is what a page
costs. CPU is that of the processes, so that it hardly matters who else is on the machine.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.services.seaweed import ACCESS_KEY, SECRET_KEY
from tests.services.valkey import DURABLE, running_valkey

from gossamer.backends.redis.state import open_redis_state
from gossamer.clock import ServerClock, SystemClock
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import Candidate, UrlState
from gossamer.model.url import fingerprint
from gossamer.project.open import open_project
from gossamer.settings import load

from .crawlers import GOSSAMER_TOML
from .fleet import Services, crawl, services
from .frontier import _used_memory, known_bytes
from .measure import Reaper
from .server import cpu_of, started

TASKS = 12_000
ROUNDS = 3
BATCH = 64  # tasks that are leased, and settled, at once
LINKS = 3  # new links of a page in the mixed run
SITES = 400
IN_FLIGHT = 448  # pages of a worker, as the played day needs: the more, the larger are batches, and the cheaper a page
OPTIONS = (*DURABLE, "--auto-aof-rewrite-percentage", "0")


@dataclass(frozen=True)
class VerbCosts:
    """Seconds of a shard's CPU for one task, by verb; bytes of its memory; the mixed run as foretold and measured."""

    add: float
    lease: float
    complete: float
    queued_bytes: float
    known_bytes: float
    mixed_foretold: float
    mixed_measured: float


@dataclass(frozen=True)
class PageCosts:
    """What one fetched page costs: seconds of CPU, bytes, objects."""

    worker_cpu: float
    shard_cpu: float
    database_cpu: float
    wal_bytes: float
    database_bytes: float
    archive_bytes: float
    archive_objects: float


def candidate(n: int) -> Candidate:
    site = f"site{n % SITES}.example"
    url = f"https://{site}/catalogue/item-{n}.html"
    return Candidate(url=url, fingerprint=fingerprint(url), site=site, shape="/catalogue/item-{n}.html")


async def verbs() -> VerbCosts:
    """Verb by verb on one server, then all of them mixed on another; in turns, because others use the machine as well.
    The least of each counts: they can only make it dearer."""
    alone, mixed = [], []
    for _ in range(ROUNDS):
        alone.append(await _alone())
        mixed.append(await _mixed())
    add, lease, complete = (min(costs) for costs in zip(*(one[:3] for one in alone), strict=True))
    measured, pages, links = min(mixed)
    foretold = add * (links + BATCH) / pages + lease + complete
    with running_valkey(*OPTIONS) as server:
        async with _state(server.address()) as state:
            known = await known_bytes(state, lambda: float(_used_memory(server)))
    return VerbCosts(add, lease, complete, alone[0][3], known, foretold, measured)


async def _alone() -> tuple[float, float, float, float]:
    """Server CPU of a task that is added, leased, completed; bytes of one that is queued."""
    with running_valkey(*OPTIONS) as server:
        async with _state(server.address()) as state:
            job, _ = await state.jobs.open_job("verbs", JobTerms(max_urls_per_pattern=None), fresh=True)
            began, empty = cpu_of(server.pid), _used_memory(server)
            for start in range(0, TASKS, BATCH):
                await state.frontier.add(job.id, [candidate(n) for n in range(start, start + BATCH)])
            settled, full = cpu_of(server.pid), _used_memory(server)
            adding, leasing, settling, count = settled - began, 0.0, 0.0, 0
            while batch := (await state.frontier.lease(job.id, f"bench/{count % 7}/0", BATCH)).leases:
                leased = cpu_of(server.pid)
                await asyncio.gather(*(state.frontier.complete(one, UrlState.DONE) for one in batch))
                leasing, settled, before = leasing + leased - settled, cpu_of(server.pid), leased
                settling, count = settling + settled - before, count + len(batch)
    return adding / count, leasing / count, settling / count, (full - empty) / count


async def _mixed() -> tuple[float, int, int]:
    """Server CPU of a page, pages and links of a run in which pages are leased, settled and give links."""
    with running_valkey(*OPTIONS) as server:
        async with _state(server.address()) as state:
            job, _ = await state.jobs.open_job("mixed", JobTerms(max_urls_per_pattern=None), fresh=True)
            began, number, pages, links = cpu_of(server.pid), BATCH, 0, 0
            await state.frontier.add(job.id, [candidate(n) for n in range(BATCH)])
            while batch := (await state.frontier.lease(job.id, f"bench/{pages % 7}/0", BATCH)).leases:
                settling = []
                for lease in batch:
                    found = [candidate(n) for n in range(number, number + LINKS)] if number < TASKS else []
                    number, links = number + len(found), links + len(found)
                    settling.append(state.frontier.complete(lease, UrlState.DONE, discovered=found))
                await asyncio.gather(*settling)
                pages += len(batch)
            return (cpu_of(server.pid) - began) / pages, pages, links


def _state(address: str) -> AsyncIterator[object]:
    return open_redis_state(
        address,
        ServerClock(SystemClock()),
        project="bench",
        lease_duration=timedelta(minutes=5),
        terms_for=lambda site: SiteTerms(interval=None, concurrency=None),
    )


# -- whole pages -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Bill:
    worker: float
    shard: float
    database: float
    wal: float
    rows: float
    archive: float
    objects: float


def crawled(few: int = 300, many: int = 1200) -> PageCosts:
    """The price of a page between two sizes of the same crawl."""
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    with services() as fleet:
        small, large = (_crawl(fleet, pages) for pages in (few, many))
    each = [(getattr(large, name) - getattr(small, name)) / (many - few) for name in _Bill.__annotations__]
    return PageCosts(*each)


def _crawl(fleet: Services, pages: int) -> _Bill:
    with (
        started("bench.site", "--pages", str(pages), "--seed", "20") as server,
        tempfile.TemporaryDirectory(prefix="bench-scale-") as folder,
    ):
        before = _database(fleet)
        shard = cpu_of(fleet.valkey.pid)
        command = crawl(Path(folder), fleet.addresses() + GOSSAMER_TOML, f"http://127.0.0.1:{server.port}/", IN_FLIGHT)
        process = subprocess.Popen(
            command.arguments, cwd=folder, env=command.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        end = Reaper(process.pid)
        end.reaped.wait()
        process.returncode = end.status
        if end.status:
            raise SystemExit(f"The crawl of {pages} pages ended with {end.status}.")
        served = server.ask("/__served")
        if served < pages:
            raise SystemExit(f"The crawl of {pages} pages fetched {served}.")
        after = _database(fleet)
        archive, objects = asyncio.run(_archive(Path(folder)))
        return _Bill(
            end.usage.ru_utime + end.usage.ru_stime,
            cpu_of(fleet.valkey.pid) - shard,
            *(late - early for early, late in zip(before, after, strict=True)),
            archive,
            objects,
        )


def _database(fleet: Services) -> tuple[float, float, float]:
    """CPU seconds of PostgreSQL with all its processes, bytes of its log and of its tables, so far."""
    wal, size = fleet.postgres.sql(
        "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn", "SELECT sum(pg_database_size(oid)) FROM pg_database"
    )
    return cpu_of_tree(fleet.postgres.pid), float(wal), float(size)


def cpu_of_tree(pid: int) -> float:
    """Of a process, its children that live, and those that it has outlived."""
    total = 0.0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if file.parent.name == str(pid):
            total += sum(map(int, fields[11:15]))
        elif fields[1] == str(pid):
            total += sum(map(int, fields[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


async def _archive(folder: Path) -> tuple[float, float]:
    async with open_project(load(start=folder, environ={})) as project:
        sizes = [one.size async for one in project.archive.segments()]  # type: ignore[attr-defined]
    return float(sum(sizes)), float(len(sizes))
