"""`python -m bench.frontier [--on valkey]`: does a task cost the same in a queue of 1,000,000 as in one of 10,000?

Adds, leases and completes through the contract only, on SQLite or on a Valkey server that it starts, each size in a
process of its own so that its peak memory is its own. CPU includes the server's. "add at depth" is the price of the
last 10,000 additions, when the queue is as full as it gets; leasing and completing start from there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop
from tests.services.valkey import ValkeyServer, running_valkey

from gossamer.backends.redis.state import open_redis_state
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import ServerClock, SystemClock
from gossamer.frontier.contract import Frontier, JobBook, JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import Candidate, UrlState
from gossamer.model.url import fingerprint

from .server import ROOT
from .table import table


@dataclass
class Backend:
    """An open frontier, and what its server (if it has one) has cost so far."""

    frontier: Frontier
    jobs: JobBook
    server_cpu: Callable[[], float]  # seconds
    memory: Callable[[], float]  # bytes in the server, or of the file


UNLIMITED = SiteTerms(interval=None, concurrency=None)  # politeness would make the benchmark wait


@asynccontextmanager
async def open_sqlite(folder: Path) -> AsyncIterator[Backend]:
    path = folder / "state.db"
    async with open_sqlite_state(
        path, SystemClock(), lease_duration=timedelta(minutes=1), terms_for=lambda site: UNLIMITED
    ) as state:
        yield Backend(state.frontier, state.jobs, lambda: 0.0, lambda: float(path.stat().st_size))


@asynccontextmanager
async def open_valkey(folder: Path) -> AsyncIterator[Backend]:
    # Rewriting the log in the background would be counted here or not, as it happens.
    options = ("--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0")
    with running_valkey(*options) as server:
        async with open_redis_state(
            server.address(),
            ServerClock(SystemClock()),
            project="bench",
            lease_duration=timedelta(minutes=1),
            terms_for=lambda site: UNLIMITED,
        ) as state:
            yield Backend(state.frontier, state.jobs, lambda: _cpu_of(server.pid), lambda: float(_used_memory(server)))


BACKENDS = {"sqlite": open_sqlite, "valkey": open_valkey}


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _used_memory(server: ValkeyServer) -> int:
    return int(re.search(r"used_memory:(\d+)", server.say("INFO", "memory"))[1])


SIZES = ((10_000, 100), (1_000_000, 10_000))
BATCH = 500
LEASES = 100
TAIL = 10_000
SETTLED = 5_000
ALLOWED_RATIO = 1.5
ALLOWED_MB = 200
SHAPE = "/catalogue/item-{n}.html"


@dataclass
class Meter:
    """Adds up the wall and CPU time (all threads) of the blocks it times, per task."""

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


def candidates(start: int, sites: int) -> list[Candidate]:
    """One batch: five URLs of each of 100 sites, however many sites there are.

    So both sizes touch as many sites per batch, and what differs is the queue alone.
    """
    batch = []
    for n in range(start, start + BATCH):
        site = f"site{n // 5 % sites}.example"
        url = f"https://{site}/catalogue/item-{n}.html"
        batch.append(Candidate(url=url, fingerprint=fingerprint(url), site=site, shape=SHAPE))
    return batch


async def measure(urls: int, sites: int, folder: Path, backend: str) -> dict[str, Any]:
    """Fill a queue, then lease and complete from it while it is full."""
    async with BACKENDS[backend](folder) as opened:
        queue, jobs = opened.frontier, opened.jobs
        every, deep, settle = (Meter(server_cpu=opened.server_cpu) for _ in range(3))
        idle, empty = _peak_mb(), opened.memory()
        job, _ = await jobs.open_job("bench", JobTerms(max_urls_per_pattern=200_000), fresh=True)
        for start in range(0, urls, BATCH):
            batch = candidates(start, sites)
            with every.timing(BATCH), deep.timing(BATCH) if start >= urls - TAIL else Meter().timing(BATCH):
                added = await queue.add(job.id, batch)
            if added.queued != BATCH:
                raise SystemExit(f"Of {BATCH} new URLs only {added.queued} were queued: {added}.")
        per_url = (opened.memory() - empty) / urls
        await jobs.seal_seeds(job.id)
        while settle.tasks < SETTLED:
            with settle.timing(LEASES):
                granted = await queue.lease(job.id, "bench/1/0", LEASES)
                await asyncio.gather(*(queue.complete(lease, UrlState.DONE) for lease in granted.leases))
            if len(granted.leases) != LEASES:
                raise SystemExit(f"Asked for {LEASES} leases of a full queue, got {len(granted.leases)}.")
        counts = await jobs.counts(job.id)
        if (counts.done, counts.queued) != (settle.tasks, urls - settle.tasks):
            raise SystemExit(f"The counts do not add up: {counts}.")
        peak = _peak_mb()
    return {
        "urls": urls,
        "sites": sites,
        "add": every.prices(),
        "add at depth": deep.prices(),
        "lease + complete": settle.prices(),
        "idle MB": idle,
        "peak MB": peak,
        "bytes per URL": per_url,
    }


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


def report(small: dict[str, Any], large: dict[str, Any]) -> tuple[str, bool]:
    """The table, and whether the promise (factor 1.5 in CPU and wall time, 200 MB) was kept."""
    head = ("microseconds per task", f"{small['urls']:,} URLs", f"{large['urls']:,} URLs", "ratio")
    rows, kept = [], large["peak MB"] < ALLOWED_MB
    for name in ("add", "add at depth", "lease + complete"):
        for clock in ("cpu", "wall"):
            few, many = small[name][clock], large[name][clock]
            kept = kept and many <= few * ALLOWED_RATIO
            rows.append((f"{name}, {clock}", f"{few:.1f}", f"{many:.1f}", f"{many / few:.2f}"))
    for name in ("idle MB", "peak MB", "bytes per URL"):
        rows.append((name, f"{small[name]:.0f}", f"{large[name]:.0f}", f"{large[name] / max(1, small[name]):.2f}"))
    return table(head, rows), kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.frontier", description=__doc__)
    parser.add_argument("--on", choices=BACKENDS, default="sqlite", help="backend (default %(default)s)")
    parser.add_argument("--one", nargs=2, type=int, metavar=("URLS", "SITES"), help="measure one size, print JSON")
    chosen = parser.parse_args()
    if chosen.one:
        with tempfile.TemporaryDirectory(prefix="bench-frontier-") as folder:
            print(json.dumps(uvloop.run(measure(*chosen.one, Path(folder), chosen.on))))
        return 0
    results = []
    for urls, sites in SIZES:
        print(f"{urls:,} URLs over {sites:,} sites", file=sys.stderr, flush=True)
        results.append(in_own_process(urls, sites, chosen.on))
    text, kept = report(*results)
    print(f"\n{text}")
    print(f"Promised: ratios of at most {ALLOWED_RATIO}, less than {ALLOWED_MB} MB. {'Kept.' if kept else 'NOT KEPT.'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
