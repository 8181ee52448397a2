"""`make soak` (`python -m bench.soak`): workers on a long queue. Two questions, chosen by the first word.

memory: do memory, open files and threads of one worker stay flat? Its queue is filled before it starts, with URLs of 20
hosts; the worker is stopped when the time is over. The first quarter warms up (caches fill to their bounds); a straight
line through the rest must not rise.
pace: how much of the allowed rate do several workers reach on many hosts, to the last page, and does every host get its
share? The log of the site is the witness.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from tests.faults.commands import children_of
from tests.faults.fleet import FleetProject, WorkerProcess, workers
from tests.services.seaweed import ACCESS_KEY, SECRET_KEY
from tests.sites.grounds import page_path
from tests.sites.running import Park, park

from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Candidate
from gossamer.model.url import UrlRules
from gossamer.project.open import open_project
from gossamer.settings import load

from .fleet import services
from .table import table

MEMORY_HOSTS = 20
SAMPLE_SECONDS = 1.0
ALLOWED_MB = 200.0
ALLOWED_MB_PER_HOUR = 30.0
ALLOWED_FILES = 8  # more at the end than after warming up
PROMISED_SHARE = 0.98
ALLOWED_DEVIATION = 0.05
TOLERANCE = 0.005  # seconds by which a gap may be short
BATCH = 5000  # URLs that are added at once
SHOWN = 5  # hosts that deviate most


# -- the queue -----------------------------------------------------------------------------------------------------


def urls_of(site: Park, number: int) -> Iterator[tuple[str, str]]:
    """The first `number` pages, one of each host in turn, with their hosts."""
    for place in range(number):
        page, host = divmod(place, len(site.hosts))
        yield site.url(site.hosts[host], page_path(page)), site.hosts[host]


async def fill(project: FleetProject, number: int) -> None:
    """Begin the job of the park's spider, with this many URLs in its queue."""
    rules, urls = UrlRules(), urls_of(project.site, number)
    async with open_project(load(start=project.folder, environ={})) as system:
        job, _ = await system.state.jobs.open_job("park", JobTerms(max_queued=None), fresh=True)
        while some := list(islice(urls, BATCH)):
            candidates = [Candidate(url=url, fingerprint=rules.fingerprint(url), site=host) for url, host in some]
            await system.state.frontier.add(job.id, candidates)
        await system.state.jobs.seal_seeds(job.id)


# -- memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A worker at one instant: all of its processes, memory that they share counted once."""

    at: float
    memory_mb: float
    files: int
    threads: int


def look(pid: int, began: float) -> Sample:
    tree = [pid]
    for one in tree:
        tree += children_of(one)
    memory = files = threads = 0
    for one in tree:
        place = Path(f"/proc/{one}")
        facts = f"{(place / 'smaps_rollup').read_text()}{(place / 'status').read_text()}"
        values = {line.partition(":")[0]: line.partition(":")[2].split() for line in facts.splitlines()}
        memory += int(values["Pss"][0])
        threads += int(values["Threads"][0])
        files += len(os.listdir(place / "fd"))
    return Sample(time.monotonic() - began, memory / 1024, files, threads)


def slope(pairs: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through the points, by least squares."""
    mean_x = sum(x for x, _ in pairs) / len(pairs)
    mean_y = sum(y for _, y in pairs) / len(pairs)
    below = sum((x - mean_x) ** 2 for x, _ in pairs)
    return sum((x - mean_x) * (y - mean_y) for x, y in pairs) / below if below else 0.0


def sample(worker: WorkerProcess, minutes: float) -> list[Sample]:
    """Look at the worker until the time is over. Fails when it ends by itself."""
    began = time.monotonic()
    samples: list[Sample] = []
    while time.monotonic() - began < minutes * 60:
        time.sleep(SAMPLE_SECONDS)
        if worker.code is not None:
            raise SystemExit(f"The worker ended with {worker.code}: {worker.said()}")
        samples.append(look(worker.pid, began))
    worker.signal(signal.SIGTERM)
    worker.wait()
    return samples


def judge_memory(samples: list[Sample]) -> bool:
    late = samples[len(samples) // 4 :]
    per_hour = slope([(one.at, one.memory_mb) for one in late]) * 3600
    more_files, most = late[-1].files - late[0].files, max(one.memory_mb for one in samples)
    rows = []
    for name, field in (("memory MB", "memory_mb"), ("open files", "files"), ("threads", "threads")):
        values = [getattr(one, field) for one in late]
        rows.append((name, *(f"{value:.0f}" for value in (values[0], max(values), values[-1]))))
    print(table(("", "after warming up", "most", "at the end"), rows))
    kept = per_hour <= ALLOWED_MB_PER_HOUR and more_files <= ALLOWED_FILES and most <= ALLOWED_MB
    print(
        f"Memory: at most {most:.0f} MB, {per_hour:+.1f} MB per hour. Allowed: {ALLOWED_MB:.0f} MB, "
        f"{ALLOWED_MB_PER_HOUR:+.0f} MB per hour. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return kept


# -- pace ----------------------------------------------------------------------------------------------------------


def judge_pace(site: Park, number: int, interval: float) -> bool:
    """By the log: each host from its first request to its last, and the crawl from the first of all to the last."""
    times: dict[str, list[float]] = defaultdict(list)
    pages = set()
    for hit in site.hits(robots=True):
        times[hit.host].append(hit.at)
        pages.add((hit.host, hit.path))
    missing = number - len({page for page in pages if page[1] != "/robots.txt"})
    shares, gaps = {}, []
    for host, seen in times.items():
        seen.sort()
        gaps += [later - earlier for earlier, later in pairwise(seen)]
        shares[host] = (len(seen) - 1) * interval / (seen[-1] - seen[0])
    share = len(gaps) * interval / sum(seen[-1] - seen[0] for seen in times.values())
    began, ended = min(seen[0] for seen in times.values()), max(seen[-1] for seen in times.values())
    whole = len(gaps) * interval / len(times) / (ended - began)
    deviation = {host: one / share - 1 for host, one in shares.items()}
    worst = sorted(deviation, key=lambda host: -abs(deviation[host]))[:SHOWN]
    late = max(seen[0] for seen in times.values()) - began
    ordered = sorted(gaps)
    rows = [
        ("of the allowed rate, host by host", f"{share:.2%}"),
        ("of the allowed rate, first request of all to last", f"{whole:.2%}"),
        ("the host that began last, after s", f"{late:.1f}"),
        ("hosts off by more than 5 %", str(sum(abs(one) > ALLOWED_DEVIATION for one in deviation.values()))),
        *((f"off most: {host}", f"{deviation[host]:+.2%}") for host in worst),
        ("gaps too short", str(sum(gap < interval - TOLERANCE for gap in gaps))),
        *((f"gap, {part:.0%} are shorter, ms", f"{ordered[int(part * len(ordered)) - 1] * 1000:.1f}")
          for part in (0.5, 0.9, 0.99, 1.0)),
        ("pages missing", str(missing)),
    ]  # fmt: skip
    print(table(("", f"{len(times)} hosts"), rows))
    short = any(gap < interval - TOLERANCE for gap in gaps)
    even = all(abs(one) <= ALLOWED_DEVIATION for one in deviation.values())
    kept = share >= PROMISED_SHARE and even and not short and not missing
    print(
        f"Promised: {PROMISED_SHARE:.0%} of the allowed rate, every host within {ALLOWED_DEVIATION:.0%} of its share, "
        f"no gap too short, no page missing. {'Kept.' if kept else 'NOT KEPT.'}"
    )
    return kept


# -- the command ---------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("what", choices=("memory", "pace"), nargs="?", default="memory")
    parser.add_argument("--urls", type=int, help="in the queue (default 10,000,000; for pace 50,000)")
    parser.add_argument("--minutes", type=float, default=15.0, help="memory: how long (default %(default)s)")
    parser.add_argument("--hosts", type=int, help=f"of the site (default {MEMORY_HOSTS}; for pace 500)")
    parser.add_argument("--workers", type=int, default=8, help="pace: processes (default %(default)s)")
    parser.add_argument("--interval", type=float, default=1.0, help="pace: seconds between requests to a host")
    parser.add_argument("--on", choices=("embedded", "fleet"), default="fleet", help="backends (default %(default)s)")
    parser.add_argument("--keep-pages", action="store_true", help="archive raw pages too: takes gigabytes of disk")
    chosen = parser.parse_args()
    for_memory = chosen.what == "memory"
    urls = chosen.urls or (10_000_000 if for_memory else 50_000)
    hosts = chosen.hosts or (MEMORY_HOSTS if for_memory else 500)
    rate = "unlimited" if for_memory else f"{1 / chosen.interval:g}/s"
    with ExitStack() as stack:
        body = 3000 if for_memory else 1500
        site = stack.enter_context(park(hosts=hosts, pages=-(-urls // hosts), body_bytes=body, links=10))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-soak-")))
        addresses = {"state": "sqlite:///gossamer-data/state.db", "records": "sqlite:///gossamer-data/records.db"}
        if chosen.on == "fleet":
            os.environ.update(AWS_ACCESS_KEY_ID=ACCESS_KEY, AWS_SECRET_ACCESS_KEY=SECRET_KEY)
            servers = stack.enter_context(services())
            addresses = {
                "state": servers.valkey.address(), "records": servers.postgres.address(),
                "archive": servers.s3.address("soak"),
            }  # fmt: skip
        project = FleetProject(
            folder, site, **addresses, concurrency=32 if for_memory else max(16, 3 * hosts // chosen.workers),
            politeness=f'rate = "{rate}"\nconcurrency = 4',
            settings=f"[store]\nkeep_pages = {str(chosen.keep_pages).lower()}\n",
        )  # fmt: skip
        began = time.monotonic()
        asyncio.run(fill(project, urls))
        print(f"{urls:,} URLs of {hosts} hosts queued in {time.monotonic() - began:.0f} s", flush=True)
        if for_memory:
            with workers(project.start(command=("worker",))) as crew:
                samples = sample(crew[0], chosen.minutes)
            print(f"{site.count():,} pages in {samples[-1].at:.0f} s on {chosen.on} backends")
            return 0 if judge_memory(samples) else 1
        with workers(*(project.start() for _ in range(chosen.workers))) as crew:
            for worker in crew:
                if worker.wait(24 * 3600) != 0:
                    raise SystemExit(f"A worker ended with {worker.code}: {worker.said()}")
        return 0 if judge_pace(site, urls, chosen.interval) else 1


if __name__ == "__main__":
    sys.exit(main())
