"""`python -m bench.reparse`: archived pages parsed again, beside the crawl that fetched them.

A shop of 5,000 pages is crawled on all cores, at the pace that sites are asked with by default (reckoned, not waited
for) and as fast as the machine can. Then the archive is parsed again, on the same cores. The site's log must not grow
by a single request, and the records must be those of a fresh crawl.

Then the same pages are left to workers, first to one and then to two, each with its parser on a core of its own. Pages
per second are counted from the first page that was stored to the last, by the log of attempts: how long a worker takes
to start says nothing about how they share the work. With `--on fleet` Valkey, PostgreSQL and S3 need the same cores, so
that the clock says little; what a page costs a worker must not grow when there are two. On SQLite two workers wait for
each other's commits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.frontier.contract import WorkerCard
from gossamer.model.job import Job, JobState
from gossamer.model.record import Attempt
from gossamer.project.open import open_project
from gossamer.settings import Settings, load
from gossamer.store.contract import AttemptQuery

from .crawlers import GOSSAMER_TOML, Gossamer, gossamer
from .fleet import ACCESS_KEY, SECRET_KEY, services
from .scale_costs import cpu_of_tree
from .server import ROOT, Server, started
from .table import table

PAGES = 5000
PROMISED = 10.0  # times the speed of a crawl at the default pace
PROMISED_OF_TWO = 1.8  # times the speed of one worker, by the CPU that a page costs


def _start(server: Server) -> dict[str, str]:
    """What the spider needs in order to load."""
    return {"BENCH_START": f"http://127.0.0.1:{server.port}/"}


def timed(folder: Path, server: Server, *arguments: str) -> float:
    """Wall seconds of a gossamer command."""
    command = gossamer(folder, *arguments, variables=_start(server))
    began = time.monotonic()
    done = subprocess.run(command.arguments, cwd=folder, env=command.environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"gossamer {' '.join(arguments)} failed: {done.stderr[-500:]}")
    return time.monotonic() - began


def project(folder: Path, addresses: str = "") -> None:
    (folder / "gossamer.toml").write_text(addresses + GOSSAMER_TOML, encoding="utf-8")
    (folder / "spiders").mkdir()
    spider = (ROOT / "bench" / "gossamer_peer.py").read_text(encoding="utf-8")
    (folder / "spiders" / "shop.py").write_text(spider, encoding="utf-8")


def crawl(folder: Path, server: Server) -> float:
    return timed(folder, server, "crawl", "shop", "--rate", "unlimited", "--concurrency", "32", "--quiet")


def records(folder: Path) -> list[Any]:
    found = []
    for record in Gossamer().records(folder):
        del record["_meta"]
        found.append(record)
    return sorted(found, key=lambda record: str(record["url"]))


@dataclass(frozen=True)
class Shared:
    """A reparse that was left to workers: pages per second, and CPU milliseconds of all of them for each page, when all
    of them are at work."""

    pages_per_second: float
    milliseconds: float


def shared(folder: Path, server: Server, workers: int, pages: int) -> Shared:
    """Leave a reparse to that many workers, which are there before it is begun."""
    command = gossamer(folder, "worker", "--quiet", variables=_start(server))
    crew = [
        subprocess.Popen(command.arguments, cwd=folder, env=command.environment(), preexec_fn=_on_core(number))
        for number in range(workers)
    ]
    try:
        _wait(lambda: len(asyncio.run(_look(folder)).workers) >= workers)
        timed(folder, server, "reparse", "--detach")
        _wait(lambda: asyncio.run(_look(folder)).done >= pages // 5)  # by then every parser has started
        early, before = asyncio.run(_look(folder)).done, sum(cpu_of_tree(process.pid) for process in crew)
        _wait(lambda: asyncio.run(_look(folder)).job.state is JobState.FINISHED)
        cpu = sum(cpu_of_tree(process.pid) for process in crew) - before
    finally:
        for process in crew:
            process.terminate()
            process.wait()
    seen = asyncio.run(_look(folder, attempts=True))
    stored = [one.at for one in seen.attempts if one.outcome == "reparsed"]
    if len({one.url for one in seen.attempts}) != pages:
        raise SystemExit(f"{seen.job.id} has parsed {len(stored)} of {pages} pages.")
    return Shared(pages / (max(stored) - min(stored)), cpu / (pages - early) * 1000)


@dataclass(frozen=True)
class Seen:
    workers: list[WorkerCard]
    job: Job  # the newest
    done: int
    attempts: list[Attempt]


async def _look(folder: Path, *, attempts: bool = False) -> Seen:
    async with open_project(load(start=folder, environ={}), to_look=True) as project:
        job = (await project.state.jobs.jobs())[0]
        found, cursor = list[Attempt](), None
        while attempts:
            page = await project.records.attempt_log(AttemptQuery(job=job.id), limit=1000, before=cursor)
            found += page.attempts
            if (cursor := page.next) is None:
                break
        done = (await project.state.jobs.counts(job.id)).done
        return Seen(await project.state.workers.workers(), job, done, found)


def _wait(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit("Waited in vain.")
        time.sleep(0.2)


def _on_core(number: int) -> Any:  # Any: what Popen calls in the new process
    cores = sorted(os.sched_getaffinity(0))
    return lambda: os.sched_setaffinity(0, {cores[number % len(cores)]})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.reparse", description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--on", choices=("sqlite", "fleet"), default="sqlite", help="where the pages are kept")
    chosen = parser.parse_args()
    os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
    with (
        ExitStack() as stack,
        started("bench.site", "--pages", str(chosen.pages), "--seed", "1") as server,
        tempfile.TemporaryDirectory(prefix="bench-reparse-") as one,
        tempfile.TemporaryDirectory(prefix="bench-fresh-") as other,
    ):
        first, fresh = Path(one), Path(other)
        addresses = stack.enter_context(services()).addresses() if chosen.on == "fleet" else ""
        project(first, addresses)
        project(fresh)
        crawled = crawl(first, server)
        hits = server.ask("/__served")
        reparsed = timed(first, server, "reparse")
        asked = server.ask("/__served") - hits
        crawl(fresh, server)
        equal = records(first) == records(fresh)
        one, two = (shared(first, server, workers, chosen.pages) for workers in (1, 2))
    polite = chosen.pages * Settings().politeness.rate.interval.total_seconds()
    rows = [
        (what, f"{seconds:,.1f}", f"{chosen.pages / seconds:,.0f}", f"{seconds / reparsed:,.1f}")
        for what, seconds in (
            ("crawl at the default pace (reckoned)", polite),
            ("crawl as fast as the machine can", crawled),
            ("parsed again", reparsed),
        )
    ]
    print(table(("", "seconds", "pages/s", "times as long"), rows))
    print(f"Requests while parsing again: {asked}. Records {'equal' if equal else 'NOT EQUAL'} to a fresh crawl's.")
    faster = two.pages_per_second / one.pages_per_second
    for name, found in (("one worker", one), ("two workers", two)):
        print(f"Left to {name}: {found.pages_per_second:,.0f} pages/s, {found.milliseconds:.2f} ms of CPU a page.")
    by_cpu = 2 * one.milliseconds / two.milliseconds
    print(f"Two workers are {faster:.2f} times as fast as one; {by_cpu:.2f} times by the CPU that a page costs them.")
    kept = equal and not asked and polite / reparsed >= PROMISED and by_cpu >= PROMISED_OF_TWO
    print(
        f"Promised: {PROMISED:.0f} times the speed of a polite crawl, no request, {PROMISED_OF_TWO} times with two "
        f"workers by CPU. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
