"""`python -m bench.api`: 200 clients at the HTTP API, with a crawl beside them.

`gossamer up` on the laptop default, and on Valkey and PostgreSQL, started here on free ports. Each client asks, waits
for half a second to a second and a half, and asks again: pages of a quick site, jobs, pages of records, lists, figures.
Some of the pages are of a site that allows five requests a second. A crawl with a pace of its own runs alone, then
beside the clients, then alone again.

Promised: no answer of 500 or more; the crawl keeps 80 % of its speed; the site's log has no two requests closer than
its pace allows. The clients share the cores with all they ask: the CPU seconds of the server are given apart.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import aiohttp
from tests.faults.commands import Command, CommandProject, children_of, until
from tests.services.postgres import running_postgres
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.running import Park, park

from .table import table

PROMISED_SHARE = 0.80
PACE = 5.0  # requests a second that the slow site allows
TOLERANCE = 0.005  # seconds
QUICK, SLOW = "site0.localhost", "site1.localhost"
KEYS = 10
WORKERS = 2
_TICKS = os.sysconf("SC_CLK_TCK")

SETTINGS = """{addresses}
[server]
port = {port}
rate = "unlimited"
open_jobs = 10000
connections_per_address = 1000
[politeness]
rate = "unlimited"
[lease]
duration = "5s"
[domains."site1.localhost"]
rate = "5/s"
burst = 1
[domains."site2.localhost"]
rate = "20/s"
burst = 1
"""


@dataclass
class Served:
    """A project with `gossamer up`, a site and keys."""

    project: CommandProject
    up: Command
    site: Park
    port: int
    keys: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def processes(self) -> dict[str, list[int]]:
        """The children of `up` by their verbs."""
        found: dict[str, list[int]] = defaultdict(list)
        for pid in children_of(self.up.pid):
            with suppress(OSError, IndexError, ValueError):  # it is gone, or is not yet the program that it will be
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                found[words[words.index(b"gossamer") + 1].decode()].append(pid)
        return found


@contextmanager
def served(on: str, *, pages: int, hosts: int = 3, latency_ms: int = 0, keys: int = KEYS) -> Iterator[Served]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="api-")))
        site = stack.enter_context(park(pages=pages, hosts=hosts, latency_ms=latency_ms))
        addresses = ""
        if on == "fleet":
            valkey = stack.enter_context(running_valkey(*DURABLE))
            postgres = stack.enter_context(running_postgres())
            name = f"api-{uuid4().hex[:12]}"
            addresses = f'project = "{name}"\nstate = "{valkey.address()}"\nrecords = "{postgres.address()}"\n'
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        project = CommandProject(folder / "p", [site.url(hosts - 1)], SETTINGS.format(addresses=addresses, port=port))
        stack.callback(project.close)
        allowed = ", ".join(f'"{host}"' for host in (*site.hosts, "receiver.localhost"))
        with (project.folder / "gossamer.toml").open("a") as file:
            file.write(f"allow_hosts = [{allowed}]\n")
        made = [
            json.loads(project.done("keys", "add", f"client{n}", "--scopes", "scrape,jobs,records,metrics", "--json"))
            for n in range(keys)
        ]
        up = project.run("up", "--quiet", "--workers", str(WORKERS))
        opened = Served(project, up, site, port, [one["key"] for one in made])
        until(lambda: _is_ready(port), up)
        yield opened
        up.signal(15)
        up.ended()


def _is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return b" 200 " in connection.recv(100)
    except OSError:
        return False


# -- what it costs -------------------------------------------------------------------------------------------------


def cpu_of(pids: list[int]) -> float:
    """CPU seconds of these processes so far."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(words[11]) + int(words[12])
    return total / _TICKS


def rss_of(pids: list[int]) -> float:
    """MB of these processes."""
    pages = 0
    for pid in pids:
        with suppress(OSError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# -- the clients ---------------------------------------------------------------------------------------------------


@dataclass
class Answers:
    """What the clients saw: seconds by kind of call, and how often each status came."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    jobs: list[str] = field(default_factory=list)


async def client(at: Served, key: str, answers: Answers, until_: float, chance: random.Random, pages: int) -> None:
    jobs: list[str] = []
    async with aiohttp.ClientSession(at.url, headers={"x-api-key": key}) as http:
        await asyncio.sleep(chance.random())
        while time.monotonic() < until_:
            what = chance.random()
            if what < 0.05 or not jobs:
                host = 1 if chance.random() < 0.2 else 0
                body = {"url": at.site.url(host, f"/page/{chance.randrange(1, pages)}"), "formats": ["metadata"]}
                found = await _ask(http, answers, "scrape async", "POST", "/api/v1/scrape/async", body)
                if found is not None:
                    jobs.append(found["job_id"])
            elif what < 0.15:
                body = {"url": at.site.url(0, f"/page/{chance.randrange(1, pages)}"), "formats": ["metadata"]}
                await _ask(http, answers, "scrape", "POST", "/api/v1/scrape", {**body, "timeout": 60})
            elif what < 0.55:
                await _ask(http, answers, "job", "GET", f"/api/v1/jobs/{chance.choice(jobs)}")
            elif what < 0.80:
                await _ask(http, answers, "records", "GET", "/api/v1/records?limit=50")
            elif what < 0.90:
                await _ask(http, answers, "jobs", "GET", "/api/v1/jobs?limit=20")
            else:
                await _ask(http, answers, "metrics", "GET", "/metrics")
            await asyncio.sleep(0.5 + chance.random())
    answers.jobs += jobs


async def _ask(
    http: aiohttp.ClientSession, answers: Answers, kind: str, method: str, path: str, body: object = None
) -> dict[str, str] | None:
    began = time.monotonic()
    try:
        async with http.request(method, path, json=body, timeout=aiohttp.ClientTimeout(total=120)) as answer:
            content = await answer.read()
            status = answer.status
    except (aiohttp.ClientError, TimeoutError):
        status, content = 0, b""
    answers.seconds[kind].append(time.monotonic() - began)
    answers.statuses[kind, status] += 1
    return json.loads(content) if kind == "scrape async" and status == 202 else None


async def load(at: Served, clients: int, seconds: float, pages: int) -> Answers:
    answers, ends = Answers(), time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for number in range(clients):
            key, chance = at.keys[number % len(at.keys)], random.Random(number)
            group.create_task(client(at, key, answers, ends, chance, pages))
    return answers


# -- the trial -----------------------------------------------------------------------------------------------------


def speed(site: Park, since: float, until_: float) -> float:
    """Pages a second of the crawl, by the site's log."""
    hits = [hit for hit in site.hits(host=2) if since <= hit.at < until_]
    return len(hits) / (until_ - since)


def trial(on: str, clients: int, seconds: float, pages: int) -> bool:
    with served(on, pages=pages) as at:
        at.project.run("crawl", "park", "--quiet", "--limit", "100000")  # ends with the project
        until(lambda: len(at.site.hits(host=2)) > 20, at.up)
        began = time.monotonic()
        time.sleep(seconds / 3)
        alone = speed(at.site, began, time.monotonic())
        there = at.processes()
        before, cpu = rss_of(there["serve"]), {verb: cpu_of(pids) for verb, pids in there.items()}
        began = time.monotonic()
        answers = asyncio.run(load(at, clients, seconds, pages))
        ended = time.monotonic()
        during = rss_of(there["serve"])
        spent = {verb: cpu_of(pids) - cpu[verb] for verb, pids in there.items()}
        beside = speed(at.site, began, began + seconds)
        quiet = time.monotonic()
        time.sleep(10)
        after = rss_of(there["serve"])
        alone = max(alone, speed(at.site, quiet, time.monotonic()))  # whatever disturbed the first measurement
        replaced = at.processes()["serve"] != there["serve"]
        close = [
            later.at - earlier.at
            for earlier, later in pairwise(sorted(at.site.hits(host=1), key=lambda hit: hit.at))
            if later.at - earlier.at < 1 / PACE - TOLERANCE
        ]
        slow = len(at.site.hits(host=1))
        said = at.up.said()

    rows = []
    for kind in ("job", "jobs", "records", "metrics", "scrape", "scrape async"):
        took = sorted(answers.seconds[kind])
        if not took:
            continue
        told = ", ".join(
            f"{status}: {count:,}" for (one, status), count in sorted(answers.statuses.items()) if one == kind
        )
        p50, p99 = statistics.median(took), took[min(len(took) - 1, int(len(took) * 0.99))]
        rows.append([kind, f"{len(took):,}", f"{p50 * 1000:,.0f}", f"{p99 * 1000:,.0f}", told])
    total, wall = sum(map(len, answers.seconds.values())), ended - began
    print(f"\n{on}: {clients} clients, {seconds:g} s, {total / wall:,.0f} calls/s, load {os.getloadavg()[0]:.1f}")
    print(table(["call", "count", "p50 ms", "p99 ms", "statuses"], rows))
    busy = ", ".join(f"{verb} {used:.1f}" for verb, used in sorted(spent.items()))
    print(f"CPU seconds while they asked: {busy}; {spent['serve'] * 1000 / total:.2f} ms of the server for each call")
    print(f"memory of the server: {before:.0f} MB before, {during:.0f} during, {after:.0f} after")
    print(f"the crawl beside: {alone:.1f} pages/s alone, {beside:.1f} beside them, {beside / alone:.0%}")
    print(f"the site with {PACE:g}/s: {slow:,} requests, {len(close)} of them too early")
    broken = []
    failures = {key: count for key, count in answers.statuses.items() if key[1] >= 500 or key[1] == 0}
    if failures:
        broken.append(f"answers of 500 and more, or none: {failures}")
    if beside < PROMISED_SHARE * alone:
        broken.append(f"the crawl kept {beside / alone:.0%} of its speed")
    if close:
        broken.append(f"{len(close)} requests came too early, by up to {1 / PACE - min(close):.3f} s")
    if replaced or "Traceback" in said:
        broken.append("the server did not live through it")
    print("Not kept: " + "; ".join(broken) if broken else "All kept.")
    return not broken


def prices(on: str, jobs: int, pages: int, times: int = 300) -> None:
    """What a call of each kind costs the server: CPU milliseconds, with that many jobs and pages in the project."""
    with served(on, pages=pages) as at:
        kept = at.project.run("crawl", "park", "--quiet", "--limit", str(jobs))
        answers = Answers()
        asyncio.run(_fill(at, answers, jobs, pages))
        kept.ended()
        rows = []
        for kind, path in (
            ("version", "/api/v1/version"),
            ("job", f"/api/v1/jobs/{answers.jobs[0]}"),
            ("jobs", "/api/v1/jobs?limit=20"),
            ("jobs by status", "/api/v1/jobs?limit=20&status=failed"),
            ("records", "/api/v1/records?limit=50"),
            ("metrics", "/metrics"),
        ):
            before = cpu_of(at.processes()["serve"])
            asyncio.run(_repeat(at, answers, kind, path, times))
            spent = (cpu_of(at.processes()["serve"]) - before) / times
            bad = sum(n for (one, status), n in answers.statuses.items() if one == kind and status != 200)
            rows.append([kind, f"{spent * 1000:.2f}", f"{1 / spent:,.0f}" if spent else "-", str(bad)])
    print(f"\n{on}: {jobs:,} jobs, load {os.getloadavg()[0]:.1f}")
    print(table(["call", "CPU ms", "calls for a CPU second", "not 200"], rows))


def scrapes(on: str, count: int, at_once: int) -> None:
    """What a page that its client waits for costs all processes, and how long it takes."""
    with served(on, pages=count + 100) as at:
        asyncio.run(_scrape(at, range(count, count + 60), at_once))  # what is made once
        there = at.processes()
        there["readers"] = [child for pid in (*there["serve"], *there["worker"]) for child in children_of(pid)]
        before = {verb: cpu_of(there[verb]) for verb in ("serve", "worker", "readers")}
        answers = asyncio.run(_scrape(at, range(count), at_once))
        spent = {verb: (cpu_of(there[verb]) - used) * 1000 / count for verb, used in before.items()}
    took = sorted(answers.seconds["scrape"])
    p50, p99 = statistics.median(took) * 1000, took[int(len(took) * 0.99) - 1] * 1000
    parts = ", ".join(f"{verb} {used:.2f}" for verb, used in spent.items())
    bad = sum(n for (_, status), n in answers.statuses.items() if status != 200)
    print(f"\n{on}: {count:,} pages, {at_once} at once, load {os.getloadavg()[0]:.1f}")
    print(f"CPU ms for a page: {sum(spent.values()):.2f} ({parts}); p50 {p50:.0f} ms, p99 {p99:.0f} ms; not 200: {bad}")


async def _scrape(at: Served, pages: Iterable[int], at_once: int) -> Answers:
    answers, left = Answers(), iter(pages)
    async with aiohttp.ClientSession(at.url, headers={"x-api-key": at.keys[0]}) as http:

        async def client() -> None:
            for number in left:
                body = {"url": at.site.url(0, f"/page/{number + 1}"), "formats": ["html", "links"], "timeout": 60}
                await _ask(http, answers, "scrape", "POST", "/api/v1/scrape", body)

        await asyncio.gather(*(client() for _ in range(at_once)))
    return answers


async def _fill(at: Served, answers: Answers, jobs: int, pages: int) -> None:
    """Scrape that many pages, each a job of its own, and wait for the last."""
    async with aiohttp.ClientSession(at.url, headers={"x-api-key": at.keys[0]}) as http:
        for number in range(jobs):
            body = {"url": at.site.url(0, f"/page/{1 + number % (pages - 1)}?n={number}"), "formats": ["metadata"]}
            found = await _ask(http, answers, "scrape async", "POST", "/api/v1/scrape/async", body)
            if found is not None:
                answers.jobs.append(found["job_id"])
        while True:
            async with http.get(f"/api/v1/jobs/{answers.jobs[-1]}") as answer:
                if (await answer.json())["status"] not in ("queued", "running"):
                    return
            await asyncio.sleep(0.5)


async def _repeat(at: Served, answers: Answers, kind: str, path: str, times: int) -> None:
    async with aiohttp.ClientSession(at.url, headers={"x-api-key": at.keys[0]}) as http:
        for _ in range(times // 10):
            await asyncio.gather(*(_ask(http, answers, kind, "GET", path) for _ in range(10)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--on", choices=("laptop", "fleet", "both"), default="both")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--pages", type=int, default=5000)
    parser.add_argument("--scrapes", type=int, metavar="PAGES", help="instead: what a page that is waited for costs")
    parser.add_argument("--at-once", type=int, default=1, help="clients that wait for pages")
    parser.add_argument("--prices", type=int, metavar="JOBS", help="instead: what each kind of call costs the server")
    given = parser.parse_args()
    kinds = ("laptop", "fleet") if given.on == "both" else (given.on,)
    if given.scrapes:
        for on in kinds:
            scrapes(on, given.scrapes, given.at_once)
        return 0
    if given.prices:
        for on in kinds:
            prices(on, given.prices, given.pages)
        return 0
    kept = [trial(on, given.clients, given.seconds, given.pages) for on in kinds]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
