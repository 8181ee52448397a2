"""How close together did requests reach a site? One crawl, judged by the site's log with the kernel's times.

A row says how pages are asked for and what goes wrong meanwhile. The sites are many and new: their first connections
are made while other requests wait. `measure` crawls them and reads from the log of the park, for each site, the gaps
between two requests of any kind; robots.txt, repeats and dropped requests count. Through a proxy the times are those at
which the proxy got the requests: when it passes them on is not the crawler's to say.

How it fails: a crawl that asks for nothing for PATIENCE, or a worker that gives up, fails with the worker's own words.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shlex
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from gossamer.fetch.browser.chromium import find_executable
from tests.faults.fleet import FleetProject, WorkerProcess, workers
from tests.patience import PATIENCE
from tests.services.stamped_proxy import StampedProxy, stamped_proxy
from tests.services.valkey import DURABLE, running_valkey
from tests.sites.running import Hit, Park, park

TOLERANCE = 0.005  # seconds
SLOW_HANDSHAKE = (50, 1000)  # milliseconds
LEASE = 3  # seconds, where workers are stopped for longer than that
PER_BLOW = 20  # requests between two kills or stops
LOOK = 0.1  # seconds between two looks at the crew
SPIDER = """
import os
from gossamer import Page, Spider

class Park(Spider):
    start_urls = [
        os.environ["PACE_URL"].format(host=host, page=page)
        for page in range(1, int(os.environ["PACE_PAGES"]) + 1)
        for host in range(int(os.environ["PACE_HOSTS"]))
    ]

    def parse(self, page: Page):
        return None
"""


@dataclass(frozen=True)
class Row:
    """How pages are asked for, and what goes wrong meanwhile."""

    name: str
    tls: bool = True
    slow: bool = True  # handshakes and answers that take their time
    http2: bool = False
    route: str = "direct"  # or "proxy" (CONNECT), "profile", "browser"
    processes: int = 1
    valkey: bool = False
    drops: bool = False
    kills: bool = False
    stops: bool = False
    answer_ms: int = 0  # at least so long takes every answer: longer than the interval, and workers share a site
    interval: float = 0.5  # seconds
    weight: float = 1.0  # share of the gaps that are asked for: a browser shows few pages a second

    @property
    def is_fast(self) -> bool:
        """Nothing but the pace holds this crawl up."""
        is_quick = not (self.slow and self.tls) and not self.answer_ms
        return self.processes == 1 and is_quick and not (self.drops or self.kills or self.stops)


ROWS = (
    Row("http", tls=False),
    Row("https, quick handshakes", slow=False),
    Row("https"),
    Row("https, Valkey", valkey=True),
    Row("https, CONNECT proxy", route="proxy"),
    Row("profile, quick handshakes", route="profile", slow=False),
    Row("profile, HTTP/1.1", route="profile"),
    Row("profile, HTTP/2", route="profile", http2=True),
    Row("browser, HTTP/1.1", route="browser", interval=1.0, weight=0.1),
    Row("browser, HTTP/2", route="browser", http2=True, interval=1.0, weight=0.1),
    Row("https, dropped", drops=True),
    Row("profile, dropped", route="profile", drops=True),
    Row("profile, HTTP/2, dropped", route="profile", http2=True, drops=True),
    Row("browser, dropped", route="browser", drops=True, interval=1.0, weight=0.1),
    Row("http, 16 processes", tls=False, processes=16),
    Row("https, 16 processes", processes=16),
    Row("https, 16 processes, Valkey", processes=16, valkey=True),
    Row("https, 16, killed", processes=16, kills=True),
    Row("https, 16, Valkey, killed", processes=16, valkey=True, kills=True),
    Row("https, 16, stopped", processes=16, stops=True),
    Row("https, 16, Valkey, stopped", processes=16, valkey=True, stops=True),
    Row("https, 16, Valkey, all of it", processes=16, valkey=True, drops=True, kills=True, stops=True),
    Row(
        "http, slow pages, 4, all of it",
        tls=False,
        answer_ms=700,
        processes=4,
        drops=True,
        kills=True,
        stops=True,
        interval=0.25,
    ),
    Row(
        "http, slow pages, 4, Valkey, all of it",
        tls=False,
        answer_ms=700,
        processes=4,
        valkey=True,
        drops=True,
        kills=True,
        stops=True,
        interval=0.25,
    ),
)


@dataclass(frozen=True)
class Paced:
    """What the log says. `short` are the gaps that are shorter than the interval by more than TOLERANCE."""

    row: Row
    gaps: int
    smallest: float
    short: tuple[str, ...]  # each in words
    share: float  # of the allowed rate that was reached
    missing: int  # pages that the site was never asked for
    faults: int  # kills, stops and dropped requests
    short_beyond: int = 0  # gaps that are too short at the site, though they were none at the proxy before it

    @property
    def is_kept(self) -> bool:
        return not self.short and not self.missing


def measure(row: Row, folder: Path, gaps: int, chance: random.Random) -> Paced:
    """Crawl as many new sites as make `gaps` gaps; what came of it."""
    wanted = max(20, round(gaps * row.weight))
    hosts = max(4, min(100, wanted // 10)) if row.route != "browser" else 2
    pages = max(2, -(-wanted // hosts))  # and robots.txt, so that the gaps are as many as the pages
    plan = {"hosts": hosts, "pages": pages + 1, "tls": row.tls, "http2": row.http2}
    plan["robots"] = "User-agent: *\nDisallow:"
    plan["drop_every"] = 20 if row.drops else None
    plan["drop_new"] = row.route == "browser"  # which shows each page on connections of its own
    plan["latency_ms"] = row.answer_ms
    if row.tls and row.slow:
        # Several connections to each site, and a new one now and then.
        plan |= {"handshake_ms": SLOW_HANDSHAKE, "latency_ms": 700, "close_every": 5}
    with ExitStack() as stack:
        site = stack.enter_context(park(**plan))
        _go_first(site.pid)
        proxy = stack.enter_context(stamped_proxy()) if row.route == "proxy" else None
        project = stack.enter_context(_project(row, folder, site, pages, proxy))
        with workers() as crew:
            crew += project.crew(row.processes)
            blows = _blow(row, project, crew, hosts * pages, chance)
        hits = site.hits(robots=True)
        paced = judge(row, hits, hosts * pages, blows)
        if proxy is None:
            return paced
        return replace(judge(row, proxy.as_sent(hits), hosts * pages, blows), short_beyond=len(paced.short))


def judge(row: Row, hits: list[Hit], pages: int, blows: int) -> Paced:
    by_host: dict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        by_host[hit.host].append(hit)
    gaps: list[float] = []
    short = []
    allowed = taken = 0.0
    for host, seen in by_host.items():
        seen.sort(key=lambda hit: hit.at)
        for before, after in pairwise(seen):
            gap = after.at - before.at
            gaps.append(gap)
            if gap < row.interval - TOLERANCE:
                short.append(f"{host} {gap * 1000:.1f} ms: {_told(before)}, then {_told(after)}")
        allowed += (len(seen) - 1) * row.interval
        taken += seen[-1].at - seen[0].at
    asked = [(hit.host, hit.path) for hit in hits if hit.path != "/robots.txt"]
    fetched = len(asked) if row.http2 else len(set(asked))  # of HTTP/2 the paths are not known
    return Paced(
        row=row,
        gaps=len(gaps),
        smallest=min(gaps, default=0.0),
        short=tuple(short),
        share=allowed / taken if taken else 0.0,
        missing=max(0, pages - fetched),
        faults=blows + sum(hit.status == 0 for hit in hits),
    )


def _told(hit: Hit) -> str:
    return f"{hit.path or 'a stream'} on connection {hit.connection}{'' if hit.status else ' (dropped)'}"


@contextmanager
def _project(row: Row, folder: Path, site: Park, pages: int, proxy: StampedProxy | None) -> Iterator[FleetProject]:
    with ExitStack() as stack:
        state = "sqlite:///gossamer-data/state.db"
        if row.valkey:
            server = stack.enter_context(running_valkey(*DURABLE))
            state = server.address()
        settings = "[store]\nkeep_pages = false\n"
        if row.kills or row.stops:
            settings += f'[lease]\nduration = "{LEASE}s"\nmax_deliveries = 100\n'
        if row.drops:
            settings += "[retry]\nmax_attempts = 20\n"
        if proxy is not None:
            settings += f'[proxies.gate]\nurls = ["{proxy.address}"]\nallow_private = true\n'
            settings += '[routes.gate]\npool = "gate"\n[router]\nladder = ["gate"]\n'
        elif row.route == "profile":
            settings += '[routes.profile]\ntransport = "profile"\nprofile = "chrome"\n[router]\nladder = ["profile"]\n'
        elif row.route == "browser":
            settings += f'[browser]\nexecutable = "{_browser(folder, site)}"\nsettle = "50ms"\n'
            settings += '[router]\nladder = ["browser"]\n'
        yield FleetProject(
            folder,
            site,
            state=state,
            records="sqlite:///gossamer-data/records.db",
            concurrency=max(32, 3 * len(site.hosts)) if row.processes == 1 else 8,  # slow sites hold up no others
            settings=settings,
            politeness=f'rate = "{1 / row.interval:g}/s"\nconcurrency = 4',
            spider=SPIDER,
            environment={
                "PACE_HOSTS": str(len(site.hosts)),
                "PACE_PAGES": str(pages),
                "PACE_URL": site.url("site{host}.localhost", "/page/{page}"),
            },
        )


def _browser(folder: Path, site: Park) -> Path:
    """The browser's program with one more flag: it believes the park's certificate."""
    assert site.certificate is not None
    key = subprocess.run(
        ["openssl", "x509", "-in", site.certificate, "-pubkey", "-noout"], check=True, capture_output=True
    ).stdout
    public = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "der"], input=key, check=True, capture_output=True
    ).stdout
    mark = base64.b64encode(hashlib.sha256(public).digest()).decode()
    program = folder / "browser"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.quote(find_executable() or "")} --ignore-certificate-errors-spki-list={mark} "$@"\n'
    )
    program.chmod(0o755)
    return program


def _blow(row: Row, project: FleetProject, crew: list[WorkerProcess], pages: int, chance: random.Random) -> int:
    """Kill and stop workers until four fifths of the pages were asked for; return when all have ended: how often.

    A blow falls when the site has got PER_BLOW more requests, so that workers come to work between two of them, and on
    one of the older half, which is at work.
    """
    asleep: dict[WorkerProcess, float] = {}  # when it may go on
    strike_at, blows = PER_BLOW, 0
    asked, asked_at = 0, time.monotonic()
    while any(worker.code is None for worker in crew):
        assert time.monotonic() < asked_at + PATIENCE, f"{row.name}: waited in vain. {crew[0].said()}"
        time.sleep(LOOK)
        for worker, wakes in list(asleep.items()):
            if time.monotonic() >= wakes:
                worker.signal(signal.SIGCONT)
                del asleep[worker]
        before, asked = asked, project.site.count()
        if asked > before:
            asked_at = time.monotonic()
        if not (row.kills or row.stops) or not strike_at <= asked <= pages * 0.8:
            continue
        awake = [worker for worker in crew if worker.code is None and worker not in asleep]
        if len(awake) <= len(crew) / 2:
            continue
        strike_at, blows = asked + PER_BLOW, blows + 1
        victim = chance.choice(awake[: len(awake) // 2])
        if row.stops and (not row.kills or chance.random() < 0.5):
            victim.signal(signal.SIGSTOP)
            # past its leases, or for a moment in which others go on
            asleep[victim] = time.monotonic() + chance.choice((0.3, LEASE + 2.0))
        else:
            victim.kill()
            crew.remove(victim)
            crew.append(project.start())
    for worker in crew:
        assert worker.code == 0, f"{row.name}: exit code {worker.code}. {worker.said()}"
    return blows


def _go_first(pid: int) -> None:
    """Let the witness have a core as soon as it wants one, where we may say so."""
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, pid, -10)
