"""`python -m bench.frontier [--on valkey] [--urls 10000000 --sites 100000]`: does a task cost the same in a queue of
1,000,000 as in one of 10,000, and do people get their answers as quickly?

Adds, leases and completes through the contract only, on SQLite or on a Valkey server that it starts, each size in a
process of its own so that its peak memory is its own. CPU includes the server's. "add at depth" is the price of the
last 10,000 additions, when the queue is as full as it gets; leasing and completing start from there. `status`, `why`
and `dead list` are what these commands ask for, with the project open. All of these, but not adding, are measured in
five rounds, of which the least counts: whoever else uses the machine, and its memory, only makes them dearer. "per
queued URL" is what the state grows by while the queue fills; "per known URL" what it holds of one that is done, from a
second job of which every URL is settled.

The small queues are measured before the large one and after it, and the mean counts, because a machine changes its
speed. Every task that is leased from the large queue is the first of its site. So leasing and completing is compared
with a small queue in which that is so as well; it is shown beside a queue of 100 sites, too, and not judged by that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop
from tests.services.valkey import DURABLE, ValkeyServer, running_valkey

from gossamer.backends.state import State
from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Candidate, UrlState
from gossamer.model.url import fingerprint
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, list_letters
from gossamer.project.dead_letters.story import story_of
from gossamer.project.jobs.status import project_status
from gossamer.project.open import Project, open_project
from gossamer.settings import load

from .server import ROOT, cpu_of
from .table import table


@dataclass
class Backend:
    """An open project, and what the server of its state (if it has one) has cost so far."""

    project: Project
    server_cpu: Callable[[], float]  # seconds
    memory: Callable[[], float]  # bytes in the server, or of the file


# Politeness would make the benchmark wait.
UNLIMITED = '[politeness]\nrate = "unlimited"\nconcurrency = 1000000\n'


@asynccontextmanager
async def open_sqlite(folder: Path) -> AsyncIterator[Backend]:
    (folder / "gossamer.toml").write_text(UNLIMITED, encoding="utf-8")
    async with open_project(load(start=folder)) as project:
        yield Backend(project, lambda: 0.0, lambda: float(_used_pages(folder / "gossamer-data" / "state.db")))


@asynccontextmanager
async def open_valkey(folder: Path) -> AsyncIterator[Backend]:
    # Rewriting the log in the background would be counted here or not, as it happens.
    options = (*DURABLE, "--auto-aof-rewrite-percentage", "0")
    with running_valkey(*options) as server:
        address = f'project = "bench"\nstate = "{server.address()}"\n'
        (folder / "gossamer.toml").write_text(address + UNLIMITED, encoding="utf-8")
        async with open_project(load(start=folder)) as project:
            yield Backend(project, lambda: cpu_of(server.pid), lambda: float(_used_memory(server)))


BACKENDS = {"sqlite": open_sqlite, "valkey": open_valkey}


def _used_pages(file: Path) -> int:
    """Bytes in pages of a file that hold something."""
    with closing(sqlite3.connect(file)) as connection:
        pages, free, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
    return int((pages - free) * size)


def _used_memory(server: ValkeyServer) -> int:
    return int(re.search(r"used_memory:(\d+)", server.say("INFO", "memory"))[1])


SMALL = (10_000, 100)
SMALL_OF_NEW_SITES = (10_000, 5_000)  # each is visited once
BATCH = 500
PRODUCERS = 2  # one packs its batch while the server takes that of the other
LEASES = 100
TAIL = 10_000
SETTLED = 5_000
ROUNDS = 5  # in which they are settled, and in which people look
BURIED = 500
KNOWN, KNOWN_FROM = 60_000, 20_000_000
LOOKS = 10  # at each view, in each round
ALLOWED_RATIO = 1.5
ALLOWED_MB = 200
ALLOWED_BYTES = {"sqlite": 120, "valkey": 200}  # for a known URL
SHAPE = "/catalogue/item-{n}.html"


@dataclass
class Meter:
    """Adds up the wall and CPU time of the blocks it times (all threads, and the server's), per task."""

    tasks: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    server_cpu: Callable[[], float] = lambda: 0.0

    @contextmanager
    def timing(self, tasks: int) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time() + self.server_cpu()
        yield
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() + self.server_cpu() - cpu
        self.tasks += tasks

    def prices(self) -> dict[str, float]:
        """Microseconds per task."""
        return {"wall": self.wall / self.tasks * 1e6, "cpu": self.cpu / self.tasks * 1e6}


def least(rounds: list[Meter]) -> dict[str, float]:
    """Of each price the least of all rounds."""
    prices = [one.prices() for one in rounds]
    return {clock: min(price[clock] for price in prices) for clock in prices[0]}


def candidate(n: int, sites: int, together: int = 5) -> Candidate:
    """One of `together` that are queued for their site at the same time."""
    site = f"site{n // together % sites}.example"
    url = f"https://{site}/catalogue/item-{n}.html"
    return Candidate(url=url, fingerprint=fingerprint(url), site=site, shape=SHAPE)


def candidates(start: int, sites: int, together: int) -> list[Candidate]:
    """One batch: five URLs of each of 100 sites, however many sites there are.

    So both sizes touch as many sites per batch, and what differs is the queue alone.
    """
    return [candidate(n, sites, together) for n in range(start, start + BATCH)]


async def measure(urls: int, sites: int, folder: Path, backend: str) -> dict[str, Any]:
    """Fill a queue, then lease and complete from it, and look at it, while it is full."""
    async with BACKENDS[backend](folder) as opened:
        queue, jobs = opened.project.state.frontier, opened.project.state.jobs
        every, deep, bury = (Meter(server_cpu=opened.server_cpu) for _ in range(3))
        settle = [Meter(server_cpu=opened.server_cpu) for _ in range(ROUNDS)]
        idle, empty = _peak_mb(), opened.memory()
        job, _ = await jobs.open_job("bench", JobTerms(max_urls_per_pattern=200_000, max_queued=None), fresh=True)
        for start in range(0, urls, BATCH * PRODUCERS):
            batches = [candidates(start + n * BATCH, sites, min(5, urls // sites)) for n in range(PRODUCERS)]
            fresh = BATCH * PRODUCERS
            with every.timing(fresh), deep.timing(fresh) if start >= urls - TAIL else Meter().timing(fresh):
                added = await asyncio.gather(*(queue.add(job.id, batch) for batch in batches))
            if sum(one.queued for one in added) != fresh:
                raise SystemExit(f"Not all of {fresh} new URLs were queued: {added}.")
        per_url = (opened.memory() - empty) / urls
        await jobs.seal_seeds(job.id)
        for turn in range(SETTLED // LEASES):
            with settle[turn * ROUNDS * LEASES // SETTLED].timing(LEASES):
                granted = await queue.lease(job.id, "bench/1/0", LEASES)
                await asyncio.gather(*(queue.complete(lease, UrlState.DONE) for lease in granted.leases))
            if len(granted.leases) != LEASES:
                raise SystemExit(f"Asked for {LEASES} leases of a full queue, got {len(granted.leases)}.")
        while bury.tasks < BURIED:
            with bury.timing(LEASES):
                granted = await queue.lease(job.id, "bench/1/0", LEASES)
                await asyncio.gather(*(queue.bury(lease, "http-500", "no luck") for lease in granted.leases))
        counts = await jobs.counts(job.id)
        if (counts.done, counts.dead, counts.queued) != (SETTLED, bury.tasks, urls - SETTLED - bury.tasks):
            raise SystemExit(f"The counts do not add up: {counts}.")
        views = await look(opened, urls, sites)
        peak = _peak_mb()
        known = await known_bytes(opened.project.state, opened.memory)
    return {
        "urls": urls,
        "sites": sites,
        "add": every.prices(),
        "add at depth": deep.prices(),
        "lease + complete": least(settle),
        **views,
        "idle MB": idle,
        "peak MB": peak,
        "bytes per queued URL": per_url,
        "bytes per known URL": known,
    }


async def look(opened: Backend, urls: int, sites: int) -> dict[str, dict[str, float]]:
    """What the commands of people ask for."""
    project = opened.project
    views: dict[str, Callable[[int], Awaitable[object]]] = {
        "status": lambda _: project_status(project, limit=20),
        "why": lambda n: story_of(project, candidate(n * (urls // (LOOKS * ROUNDS)), sites, min(5, urls // sites)).url),
        "dead list": lambda _: list_letters(project, DeadLetterChoice(), limit=50),
    }
    prices = {}
    for name, ask in views.items():
        rounds = [Meter(server_cpu=opened.server_cpu) for _ in range(ROUNDS)]
        for n in range(LOOKS * ROUNDS):
            with rounds[n // LOOKS].timing(1):
                await ask(n)
        prices[name] = least(rounds)
    return prices


async def known_bytes(state: State, memory: Callable[[], float]) -> float:
    """What the state holds of a URL that is done: it grows by so much with a job whose every URL is settled."""
    before = memory()
    job, _ = await state.jobs.open_job("known", JobTerms(max_urls_per_pattern=None), fresh=True)
    for start in range(0, KNOWN, BATCH):
        await state.frontier.add(job.id, [candidate(KNOWN_FROM + n, 100) for n in range(start, start + BATCH)])
        while (granted := await state.frontier.lease(job.id, "bench/1/0", LEASES)).leases:
            await asyncio.gather(*(state.frontier.complete(lease, UrlState.DONE) for lease in granted.leases))
    return (memory() - before) / KNOWN


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_own_process(urls: int, sites: int, backend: str) -> dict[str, Any]:
    """Measure one size in a fresh interpreter."""
    command = [sys.executable, "-m", "bench.frontier", "--on", backend, "--one", str(urls), str(sites)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"The run with {urls:,} URLs failed; see its error above.")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def mean(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of two runs of the same size."""
    return {
        name: mean(value, other[name]) if isinstance(value, dict) else (value + other[name]) / 2
        for name, value in one.items()
    }


def report(
    small: dict[str, Any], of_new_sites: dict[str, Any], large: dict[str, Any], bytes_allowed: int
) -> tuple[str, bool]:
    """The table, and whether the promise (factor 1.5 in CPU and wall time, 200 MB, bytes per known URL) was kept."""
    head = ("microseconds", f"{small['urls']:,.0f} URLs", f"{large['urls']:,} URLs", "ratio")
    rows, kept = [], large["peak MB"] < ALLOWED_MB
    for name in ("add", "add at depth", "lease + complete", "status", "why", "dead list"):
        beside = of_new_sites if name == "lease + complete" else small
        for clock in ("cpu", "wall"):
            few, many = beside[name][clock], large[name][clock]
            kept = kept and many <= few * ALLOWED_RATIO
            rows.append((f"{name}, {clock}", f"{few:.1f}", f"{many:.1f}", f"{many / few:.2f}"))
        if beside is of_new_sites:
            for clock in ("cpu", "wall"):
                few, many = small[name][clock], large[name][clock]
                known = f"  beside {small['sites']:.0f} known sites, {clock}"
                rows.append((known, f"{few:.1f}", f"{many:.1f}", f"{many / few:.2f}"))
    for name in ("idle MB", "peak MB", "bytes per queued URL", "bytes per known URL"):
        rows.append((name, f"{small[name]:.0f}", f"{large[name]:.0f}", f"{large[name] / max(1, small[name]):.2f}"))
    return table(head, rows), kept and large["bytes per known URL"] < bytes_allowed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frontier", description=__doc__)
    parser.add_argument("--on", choices=BACKENDS, default="sqlite", help="backend (default %(default)s)")
    parser.add_argument("--urls", type=int, default=1_000_000, help="in the large queue (default %(default)s)")
    parser.add_argument("--sites", type=int, default=10_000, help="they belong to (default %(default)s)")
    parser.add_argument("--one", nargs=2, type=int, metavar=("URLS", "SITES"), help="measure one size, print JSON")
    chosen = parser.parse_args()
    if chosen.one:
        with tempfile.TemporaryDirectory(prefix="bench-frontier-") as folder:
            print(json.dumps(uvloop.run(measure(*chosen.one, Path(folder), chosen.on))))
        return 0
    results = []
    for urls, sites in (SMALL, SMALL_OF_NEW_SITES, (chosen.urls, chosen.sites), SMALL_OF_NEW_SITES, SMALL):
        print(f"{urls:,} URLs over {sites:,} sites", file=sys.stderr, flush=True)
        results.append(in_own_process(urls, sites, chosen.on))
    small, of_new_sites, large, *after = results
    text, kept = report(mean(small, after[1]), mean(of_new_sites, after[0]), large, ALLOWED_BYTES[chosen.on])
    print(f"\n{text}")
    print(
        f"Promised: ratios of at most {ALLOWED_RATIO}, less than {ALLOWED_MB} MB, less than {ALLOWED_BYTES[chosen.on]} "
        f"bytes for a known URL. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
