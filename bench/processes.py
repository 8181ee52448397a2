"""`python -m bench.processes`: what do N processes on one SQLite project bring, and where does its single writer bend?

Two tables. The first crawls the site of bench.run with `gossamer crawl --processes N` on all cores. The site runs on
them too; where the processes fill all cores, its CPU is subtracted: "pages/s without the site" is pages over (wall -
the site's CPU / cores), what the crawl would make if the site were elsewhere. The second leaves out everything but
the queue: N processes lease, and complete pages with 60 links of which nearly all are known, as fast as they can.
That is the most that one file takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import SystemClock
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import Candidate, UrlState
from gossamer.model.url import fingerprint

from . import site
from .crawlers import GOSSAMER_TOML
from .measure import judge
from .server import CORES, ROOT, Server, started
from .table import table

WANTED = 1.7  # times one process, by two on two cores
IN_PROGRESS = 32  # pages that one process has at once
QUEUED = 100_000
NEW_LINKS = 1  # of 60, that a page of a large crawl still brings


@dataclass(frozen=True)
class Crawl:
    processes: int
    pages: int
    wall: float
    cpu: float
    site_cpu: float
    faults: tuple[str, ...]

    @property
    def rate(self) -> float:
        """Pages per second, had the site run elsewhere. Where a core is left, it does so."""
        taken = self.site_cpu / len(CORES) if self.processes >= len(CORES) else 0.0
        return self.pages / (self.wall - taken)


def crawl(processes: int, server: Server, pages: int, seed: int) -> Crawl:
    server.ask("/__reset")
    with tempfile.TemporaryDirectory(prefix="bench-processes-") as name:
        folder = Path(name)
        (folder / "gossamer.toml").write_text(GOSSAMER_TOML.replace("concurrency = 32", "concurrency = 128"))
        spider = f"{ROOT / 'bench' / 'gossamer_peer.py'}:Shop"
        words = [sys.executable, "-m", "gossamer", "crawl", spider, "--quiet", "--rate", "unlimited", "--concurrency",
                 str(IN_PROGRESS), "--processes", str(processes)]  # fmt: skip
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "BENCH_START": f"http://127.0.0.1:{server.port}/",
        }
        before, of_site, began = _children_cpu(), server.cpu(), time.perf_counter()
        subprocess.run(words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, check=True)
        wall, cpu, of_site = time.perf_counter() - began, _children_cpu() - before, server.cpu() - of_site
        hits = server.ask("/__hits")
        truth = site.truth(pages, seed)
        exported = subprocess.run(
            [sys.executable, "-m", "gossamer", "export", "--format", "jsonl"],
            cwd=folder, env=environ, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    verdict = judge(hits, map(json.loads, exported.splitlines()), truth)
    return Crawl(processes, pages, wall, cpu, of_site, verdict.faults)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# -- the queue alone -----------------------------------------------------------------------------------------------


async def _settle(file: Path, seconds: float, rank: int) -> tuple[int, float]:
    """Lease and complete until the time is over; how many pages, and with how much CPU."""
    unlimited = SiteTerms(interval=None, concurrency=None)
    chance, done = random.Random(rank), 0
    known = [_candidate(chance.randrange(QUEUED)) for _ in range(2_000)]
    async with open_sqlite_state(
        file, SystemClock(), lease_duration=timedelta(minutes=5), terms_for=lambda _: unlimited
    ) as state:
        job = (await state.jobs.running_jobs())[0].id
        ends, cpu = time.perf_counter() + seconds, time.process_time()
        while time.perf_counter() < ends:
            granted = await state.frontier.lease(job, f"bench/{os.getpid()}/{rank}", IN_PROGRESS)
            await asyncio.gather(
                *(
                    state.frontier.complete(lease, UrlState.DONE, discovered=_links(chance, known))
                    for lease in granted.leases
                )
            )
            done += len(granted.leases)
        return done, time.process_time() - cpu


def _links(chance: random.Random, known: list[Candidate]) -> list[Candidate]:
    start = chance.randrange(len(known) - site.LINKS)
    old = known[start : start + site.LINKS - NEW_LINKS]
    return old + [_candidate(chance.randrange(1 << 40) + QUEUED) for _ in range(NEW_LINKS)]


def _candidate(n: int) -> Candidate:
    url = f"https://site{n % 100}.example/catalogue/item-{n}.html"
    return Candidate(url=url, fingerprint=fingerprint(url), site=f"site{n % 100}.example", shape="/catalogue/item-{n}")


async def _fill(file: Path) -> None:
    unlimited = SiteTerms(interval=None, concurrency=None)
    async with open_sqlite_state(
        file, SystemClock(), lease_duration=timedelta(minutes=5), terms_for=lambda _: unlimited
    ) as state:
        job, _ = await state.jobs.open_job("bench", JobTerms(max_urls_per_pattern=None), fresh=True)
        for start in range(0, QUEUED, 1000):
            await state.frontier.add(job.id, [_candidate(n) for n in range(start, start + 1000)])
        await state.jobs.seal_seeds(job.id)


def _settle_in_process(file: Path, seconds: float, rank: int) -> tuple[int, float]:
    return asyncio.run(_settle(file, seconds, rank))


def settle(processes: int, seconds: float) -> tuple[float, float]:
    """Pages per second and CPU microseconds per page of so many processes on one file."""
    with tempfile.TemporaryDirectory(prefix="bench-processes-") as name:
        file = Path(name) / "state.db"
        asyncio.run(_fill(file))
        with get_context("spawn").Pool(processes) as pool:
            found = pool.starmap(_settle_in_process, [(file, seconds, rank) for rank in range(processes)])
    done = sum(pages for pages, _ in found)
    return done / seconds, sum(cpu for _, cpu in found) / done * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--pages", type=int, default=15_000)
    parser.add_argument("--seed", type=int, default=site.SEED)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--writers", type=int, nargs="*", default=[1, 2, 4, 8, 16])
    chosen = parser.parse_args()
    best: dict[int, Crawl] = {}
    faults: list[str] = []
    with started("bench.site", "--pages", str(chosen.pages), "--seed", str(chosen.seed)) as server:
        for _ in range(chosen.rounds):
            for processes in chosen.processes:
                done = crawl(processes, server, chosen.pages, chosen.seed)
                print(f"{processes}: {done.wall:.2f} s, {done.cpu:.2f} s of CPU", file=sys.stderr, flush=True)
                faults += done.faults
                best[processes] = max(best.get(processes, done), done, key=lambda one: one.rate)
    one = best[chosen.processes[0]]
    head = ("processes", "wall s", "pages/s", "CPU s", "site's CPU s", "pages/s without the site", "x one")
    rows = [
        (str(n), f"{b.wall:.2f}", f"{b.pages / b.wall:.0f}", f"{b.cpu:.2f}", f"{b.site_cpu:.2f}", f"{b.rate:.0f}",
         f"{b.rate / one.rate:.2f}")
        for n, b in best.items()
    ]  # fmt: skip
    print(f"\n{chosen.pages} pages, {len(CORES)} cores, {IN_PROGRESS} pages in flight in each process")
    print(table(head, rows))
    print("".join(f"{fault}\n" for fault in faults) or "Every page was fetched once, every record is right.")
    if chosen.writers:
        print("\nThe queue alone, lease and complete with 60 links:")
        found = [(n, *settle(n, 5.0)) for n in chosen.writers]
        print(
            table(("processes", "pages/s", "CPU us per page"), [(str(n), f"{r:.0f}", f"{c:.0f}") for n, r, c in found])
        )
    kept = not faults and (len(CORES) < 2 or max(b.rate for b in best.values()) >= WANTED * one.rate)
    print(f"Promised: {WANTED} times one process on two cores. {'Kept.' if kept else 'NOT KEPT.'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
