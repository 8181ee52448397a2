"""`python -m bench.reparse`: archived pages parsed again, beside the crawl that fetched them.

A shop of 5,000 pages is crawled on all cores, at the pace that sites are asked with by default (reckoned, not waited
for) and as fast as the machine can. Then the archive is parsed again, on the same cores. The site's log must not grow
by a single request, and the records must be those of a fresh crawl.

Then the same pages are left to workers, first to one and then to two, each with its parser on a core of its own. Pages
per second are counted from the first page that was stored to the last, by the log of attempts: how long a worker takes
to start says nothing about how they share the work. With `--on fleet` Valkey, PostgreSQL and S3 (SeaweedFS) need the
same cores. Where workers fill all of them, the servers' CPU is subtracted: "without the servers" is pages over (wall -
their CPU / cores), what the workers would make if the servers were elsewhere. On SQLite two workers wait for each
other's commits.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gossamer.model.job import JobState
from gossamer.model.record import Attempt
from gossamer.project.open import Project, open_project
from gossamer.settings import Settings, load
from gossamer.store.contract import AttemptQuery
from gossamer.units import many

from .crawlers import GOSSAMER_TOML, Gossamer, gossamer
from .fleet import ACCESS_KEY, SECRET_KEY, Services, services
from .scale_costs import cpu_of_tree
from .server import CORES, ROOT, Server, started
from .table import table

T = TypeVar("T")

PAGES = 5000
PROMISED = 10.0  # times the speed of a crawl at the default pace
PROMISED_OF_TWO = 1.8  # times the speed of one worker


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
    """A reparse that was left to workers, from the time when all of them are at work: seconds of the clock, of all
    workers' CPU and of all servers' for each page."""

    workers: int
    wall: float
    cpu: float
    of_servers: float

    @property
    def rate(self) -> float:
        """Pages per second, had the servers run elsewhere. Where a core is left, they do so."""
        taken = self.of_servers / len(CORES) if self.workers >= len(CORES) else 0.0
        return 1 / (self.wall - taken)


async def shared(folder: Path, server: Server, workers: int, pages: int, fleet: Services | None) -> Shared:
    """Leave a reparse to that many workers, which are there before it is begun."""
    command = gossamer(folder, "worker", "--quiet", variables=_start(server))
    crew = [
        subprocess.Popen(command.arguments, cwd=folder, env=command.environment(), preexec_fn=_on_core(number))
        for number in range(workers)
    ]
    try:
        async with open_project(load(start=folder, environ={}), to_look=True) as project:
            state = project.state
            await _until(lambda: state.workers.workers(), lambda found: len(found) >= workers)
            await asyncio.to_thread(timed, folder, server, "reparse", "--detach")
            job = (await state.jobs.jobs())[0].id
            # By then every parser has started.
            await _until(lambda: state.jobs.counts(job), lambda counts: counts.done >= pages // 5)
            from_here, before, of_servers = time.time(), _cpu(crew), _cpu_of_servers(fleet)
            await _until(lambda: state.jobs.job(job), lambda found: found is None or found.state is JobState.FINISHED)
            cpu, of_servers = _cpu(crew) - before, _cpu_of_servers(fleet) - of_servers
            attempts = await _attempts(project, job)
    finally:
        for process in crew:
            process.terminate()
            process.wait()
    if len({one.url for one in attempts if one.outcome == "reparsed"}) != pages:
        raise SystemExit(f"{job} has not parsed all of {pages} pages.")
    stored = [one.at for one in attempts if one.at > from_here]
    return Shared(workers, (max(stored) - from_here) / len(stored), cpu / len(stored), of_servers / len(stored))


def _cpu(crew: list[subprocess.Popen[bytes]]) -> float:
    return sum(cpu_of_tree(process.pid) for process in crew)


def _cpu_of_servers(fleet: Services | None) -> float:
    return sum(map(cpu_of_tree, fleet.pids())) if fleet is not None else 0.0


async def _attempts(project: Project, job: str) -> list[Attempt]:
    found, cursor = list[Attempt](), None
    while True:
        page = await project.records.attempt_log(AttemptQuery(job=job), limit=1000, before=cursor)
        found += page.attempts
        if (cursor := page.next) is None:
            return found


async def _until(look: Callable[[], Awaitable[T]], reached: Callable[[T], bool]) -> None:
    deadline = time.monotonic() + 300
    while not reached(await look()):
        if time.monotonic() > deadline:
            raise SystemExit("Waited in vain.")
        await asyncio.sleep(0.2)


def _on_core(number: int) -> Any:  # Any: what Popen calls in the new process
    return lambda: os.sched_setaffinity(0, {CORES[number % len(CORES)]})


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
        fleet = stack.enter_context(services()) if chosen.on == "fleet" else None
        project(first, fleet.addresses() if fleet is not None else "")
        project(fresh)
        crawled = crawl(first, server)
        hits = server.ask("/__served")
        reparsed = timed(first, server, "reparse")
        asked = server.ask("/__served") - hits
        crawl(fresh, server)
        equal = records(first) == records(fresh)
        one, two = (asyncio.run(shared(first, server, workers, chosen.pages, fleet)) for workers in (1, 2))
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
    head = ("left to", "pages/s", "worker CPU ms", "servers' CPU ms", "pages/s without the servers", "x one")
    rows = [
        (f"{many(left.workers, 'worker')}", f"{1 / left.wall:,.0f}", f"{left.cpu * 1000:.2f}",
         f"{left.of_servers * 1000:.2f}", f"{left.rate:,.0f}", f"{left.rate / one.rate:.2f}")
        for left in (one, two)
    ]  # fmt: skip
    print(f"\n{table(head, rows)}")
    kept = equal and not asked and polite / reparsed >= PROMISED
    kept = kept and (len(CORES) < 2 or two.rate >= PROMISED_OF_TWO * one.rate)
    print(
        f"Promised: {PROMISED:.0f} times the speed of a polite crawl, no request, {PROMISED_OF_TWO} times with two "
        f"workers on two cores. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
