"""`python -m bench.scale`: a billion pages a day from two million sites, by simulation: what bends first, its price.

What a page costs is measured here (scale_costs.py), the day is played by the frontier's own functions (scale_model.py),
and before anything is foretold the model must foretell what really happens at small sizes, within 15 %: a crawl of
sites with different paces on this machine, the real queue in virtual time with a worker that dies, and the CPU of a
shard under a mix of verbs of which each was measured alone. Prices, the limits of services and the sizes of machines
are assumptions: they stand in Assumed, and can be given in a file. Everything that is drawn by chance has a seed.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import ceil
from pathlib import Path

from tests.faults.crawlers import SPIDER
from tests.sites.running import ROOT, park

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.frontier.contract import JobTerms
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.task import Candidate, Lease, UrlState
from gossamer.model.url import fingerprint

from .scale_costs import PageCosts, VerbCosts, crawled, verbs
from .scale_model import DAY, Fleet, Played, SiteClass, play, web
from .table import table

SITES, PAGES = 2_000_000, 1e9
WITHIN = 0.15
BUSY = 0.7  # the share of its strength that a machine is meant to use


@dataclass(frozen=True)
class Assumed:
    """What is not measured: prices in dollars, limits of services as their vendors state them, sizes of machines."""

    core_hour: float = 0.04
    gigabyte_memory_hour: float = 0.005
    gigabyte_month: float = 0.023  # of the archive
    database_gigabyte_month: float = 0.10
    puts_per_million: float = 5.0
    cores: int = 16  # of one machine
    memory_gigabytes: float = 64.0
    database_wal: float = 100e6  # bytes a second that one PostgreSQL server writes and ships to a replica
    archive_puts: float = 3500.0  # a second, for one prefix of a bucket
    lookups: float = 20_000.0  # a second, of one resolver
    rtt: tuple[float, ...] = (0.002, 0.08, 0.15)  # from three regions to the shards
    worker_deaths: float = 1.0  # of each, in a day
    shard_restarts: float = 1.0


# -- checks against what really happens ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Check:
    what: str
    foretold: float
    measured: float

    @property
    def off(self) -> float:
        return abs(self.foretold - self.measured) / self.measured


def check_crawl(pages: int = 24) -> list[Check]:
    """A real crawl of five sites with different paces: seconds from the first request to the last, by their own log."""
    intervals = {f"site{n}.localhost": interval for n, interval in enumerate((0.1, 0.2, 0.3, 0.4, 0.5))}
    rates = "".join(f'[domains."{site}"]\nrate = "{1 / interval:g}/s"\n' for site, interval in intervals.items())
    with (
        park(hosts=len(intervals), pages=pages, latency_ms=50, body_bytes=1500, links=5) as site,
        tempfile.TemporaryDirectory(prefix="bench-scale-") as name,
    ):
        folder = Path(name)
        (folder / "spiders").mkdir()
        (folder / "spiders" / "park.py").write_text(SPIDER, encoding="utf-8")
        (folder / "gossamer.toml").write_text(f"[fetch]\nallow_private = true\n{rates}", encoding="utf-8")
        environment = {**os.environ, "PARK_SEEDS": json.dumps(site.seeds()), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "gossamer", "crawl", "park", "--quiet"]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=300)
        times = defaultdict(list)
        for hit in site.hits():
            times[hit.host].append(hit.at)
    checks = []
    for host, interval in intervals.items():
        kind = SiteClass(1, pages, interval, 0.05, failing=0.0)
        fleet = Fleet(shards=1, workers=1, shard_cpu=0.0, worker_cpu=0.002, slots=32)
        foretold = play([kind], fleet, seconds=600, spread=False).last - kind.latency
        checks.append(Check(f"crawl, {1 / interval:.3g} pages/s", foretold, max(times[host]) - min(times[host])))
    return checks


LEASE, DIES_AT = 60.0, 20.0  # seconds
SLOTS, TICK = 64, 0.02
LONG_TAIL = [SiteClass(40, 5, 0.5, 0.4, 0.0), SiteClass(8, 30, 2.0, 0.6, 0.0), SiteClass(2, 200, 0.5, 0.4, 0.0)]


async def check_queue(folder: Path, *, dies: bool) -> list[Check]:
    """The real queue in virtual time: sites of three sizes, and a worker that may die with all that it has in progress
    when another takes its place."""
    clock = VirtualClock()
    intervals = {f"s{n}-{place}.example": kind for n, kind in enumerate(LONG_TAIL) for place in range(kind.sites)}
    terms = {name: SiteTerms(interval=timedelta(seconds=kind.interval)) for name, kind in intervals.items()}
    async with open_sqlite_state(
        folder / f"state-{dies}.db", clock, lease_duration=timedelta(seconds=LEASE), terms_for=terms.__getitem__
    ) as state:
        job, _ = await state.jobs.open_job("check", JobTerms(), fresh=True)
        urls = [(f"https://{name}/{n}", name) for name, kind in intervals.items() for n in range(round(kind.pages))]
        await state.frontier.add(
            job.id, [Candidate(url=url, fingerprint=fingerprint(url), site=name) for url, name in urls]
        )
        await state.jobs.seal_seeds(job.id)
        began, in_progress, number = clock.now(), list[tuple[float, int, Lease]](), 0
        worker, done = "first/1/1", list[float]()
        while len(done) < len(urls):
            if dies and worker == "first/1/1" and clock.now() - began >= DIES_AT:
                worker, in_progress = "second/1/1", []
            for lease in (await state.frontier.lease(job.id, worker, SLOTS)).leases:
                number += 1
                heapq.heappush(in_progress, (clock.now() + intervals[lease.task.site].latency, number, lease))
            clock.advance(TICK)
            settling = []
            while in_progress and in_progress[0][0] <= clock.now():
                settling.append(heapq.heappop(in_progress)[2])
            await asyncio.gather(*(state.frontier.complete(lease, UrlState.DONE) for lease in settling))
            done += [clock.now() - began] * len(settling)
    dead = (DIES_AT,) if dies else ()
    fleet = Fleet(shards=1, workers=1, shard_cpu=0.0, worker_cpu=0.0, slots=SLOTS, lease=LEASE, dies_at=dead)
    played = play(LONG_TAIL, fleet, seconds=3600, spread=False)
    words = "queue, a worker dies" if dies else "queue"
    return [
        Check(f"{words}: seconds until the last page", played.last, max(done)),
        Check(f"{words}: pages fetched, repeated ones too", played.tries, number),
    ]


def checked(costs: VerbCosts) -> list[Check]:
    with tempfile.TemporaryDirectory(prefix="bench-scale-") as folder:
        queue = [one for dies in (False, True) for one in asyncio.run(check_queue(Path(folder), dies=dies))]
    shard = Check("shard, a mix of verbs: us of CPU a page", costs.mixed_foretold * 1e6, costs.mixed_measured * 1e6)
    return [*check_crawl(), *queue, shard]


# -- the horizon -----------------------------------------------------------------------------------------------------


def fleet_for(page: PageCosts, assumed: Assumed, tries: float, held: float) -> Fleet:
    """As many shards and worker processes (one core each) as tries a second and seconds in flight need."""
    rtt = 3 * sum(assumed.rtt) / len(assumed.rtt)  # lease, store, settle
    workers = max(1, ceil(tries * page.worker_cpu / BUSY))
    return Fleet(
        shards=max(1, ceil(tries * page.shard_cpu / BUSY)),
        workers=workers,
        shard_cpu=page.shard_cpu,
        worker_cpu=page.worker_cpu,
        slots=ceil(tries * (held + rtt) / workers / BUSY / 32) * 32,
        rtt=rtt,
        worker_deaths=assumed.worker_deaths,
        shard_restarts=assumed.shard_restarts,
    )


def bends(page: PageCosts, verb: VerbCosts, assumed: Assumed, day: Played) -> list[tuple[str, ...]]:
    """By resource: what a second of the day asks of it, what one unit of it gives, and the pages a day at which one
    unit is full; the lowest first."""
    tries, pages = day.tries / DAY, day.pages / DAY
    memory = assumed.memory_gigabytes * 1e9
    regions = len(assumed.rtt)
    asks = [
        ("one worker process: CPU", pages * page.worker_cpu, 1.0, "cores"),
        ("one shard: CPU", tries * page.shard_cpu, 1.0, "cores"),
        ("one shard: memory, all URLs of the day known exactly", day.pages * verb.known_bytes, memory, "bytes"),
        ("one shard: memory, a Bloom filter (1.8 bytes a URL)", day.pages * 1.8, memory, "bytes"),
        ("one PostgreSQL: bytes of its log", pages * page.wal_bytes, assumed.database_wal, "bytes/s"),
        ("one PostgreSQL: CPU", pages * page.database_cpu, float(assumed.cores), "cores"),
        ("one S3 prefix: requests", pages * page.archive_objects, assumed.archive_puts, "PUT/s"),
        (f"one resolver in each of {regions} regions", day.lookups / DAY / regions, assumed.lookups, "lookups/s"),
    ]
    rows = sorted(((given / asked * day.pages, what, asked, given, unit) for what, asked, given, unit in asks))
    return [
        (what, f"{asked:,.3g} {unit}", f"{given:,.3g}", f"{full / 1e6:,.0f} M", f"{asked / given:,.2f}")
        for full, what, asked, given, unit in rows
    ]


def price(page: PageCosts, verb: VerbCosts, assumed: Assumed, day: Played, fleet: Fleet) -> list[tuple[str, ...]]:
    """By resource: how much of it, and dollars for a day and for a million pages."""
    core = 24.0 * assumed.core_hour
    full = max(page.wal_bytes / assumed.database_wal, page.database_cpu / assumed.cores)
    databases = ceil(day.pages / DAY * full / BUSY)
    known, puts = day.pages * verb.known_bytes / 1e9, day.pages * page.archive_objects / 1e6
    rows, raw = day.pages * page.database_bytes / 1e9, day.pages * page.archive_bytes / 1e9
    machines = f"{ceil(fleet.workers / assumed.cores)} of {assumed.cores} cores"
    found = [
        ("workers", machines, fleet.workers * core),
        ("shards, CPU", f"{fleet.shards} cores", fleet.shards * core),
        ("shards, memory (exact)", f"{known:,.0f} GB", known * 24.0 * assumed.gigabyte_memory_hour),
        ("PostgreSQL, CPU", f"{databases} of {assumed.cores} cores", databases * assumed.cores * core),
        ("PostgreSQL, disk for a month", f"{rows:,.0f} GB", rows * assumed.database_gigabyte_month),
        ("S3, requests", f"{puts:,.0f} M", puts * assumed.puts_per_million),
        ("S3, space for a month", f"{raw / 1e3:,.1f} TB", raw * assumed.gigabyte_month),
    ]
    found.append(("in all", "", sum(dollars for *_, dollars in found)))
    return [(what, how, f"{dollars:,.0f}", f"{dollars / day.pages * 1e6:.3f}") for what, how, dollars in found]


def tell(page: PageCosts, verb: VerbCosts, assumed: Assumed, pages: float, sites: int, seed: int) -> None:
    classes = web(sites, pages)
    wanted = sum(one.sites * one.pages for one in classes)
    reached = sum(one.sites * one.reachable() for one in classes)
    held = sum(one.sites * one.reachable() * one.latency for one in classes) / reached
    fleet = fleet_for(page, assumed, pages / DAY * 1.1, held)
    day = play(classes, fleet, seed=seed)
    print(f"\n{sites:,} sites in {len(classes)} classes want {wanted / 1e6:,.0f} M pages a day.", end=" ")
    print(f"Their paces allow {reached / 1e6:,.0f} M.")
    print(f"{fleet.shards} shards, {fleet.workers} worker processes of {fleet.slots} pages in flight, three regions:")
    print(f"  {day.pages / 1e6:,.0f} M pages came, in {day.tries / 1e6:,.0f} M tries ({day.events:,} events);")
    print(f"  {day.dead / 1e6:,.3f} M were given up, {day.again:,.0f} fetched twice because a worker died;")
    print(f"  {(day.pages + day.dead) / reached:.1%} of what the paces allow, the busiest hour", end=" ")
    print(f"{max(day.hours) / 3600:,.0f} pages/s, a shard busy for {max(day.shard_busy) / DAY:.0%} of the day.")
    less = replace(fleet, shards=max(1, fleet.shards // 2), workers=max(1, fleet.workers // 2))
    print(f"Half of the shards and workers: {play(classes, less, seed=seed).pages / 1e6:,.0f} M pages.")
    cached = play(classes, replace(fleet, resolvers=len(assumed.rtt)), seed=seed).lookups / DAY
    print(f"Lookups of names: {day.lookups / DAY:,.0f} a second; with one cache for each region {cached:,.0f}.\n")
    head = ("one unit", "is asked for", "gives", "is full at pages a day", "units")
    print(table(head, bends(page, verb, assumed, day)))
    print()
    print(table(("resource", "how much", "dollars a day", "a million pages"), price(page, verb, assumed, day, fleet)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--sites", type=int, default=SITES)
    parser.add_argument("--pages", type=float, default=PAGES, help="a day")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--assumed", type=Path, help="a JSON file with other prices and limits")
    chosen = parser.parse_args()
    assumed = Assumed(**json.loads(chosen.assumed.read_text())) if chosen.assumed else Assumed()
    verb = asyncio.run(verbs())
    page = crawled()
    print("Measured, for a page: " + ", ".join(f"{name} {value:.3g}" for name, value in asdict(page).items()))
    print("Measured, for a task: " + ", ".join(f"{name} {value:.3g}" for name, value in asdict(verb).items()))
    checks = checked(verb)
    rows = [(one.what, f"{one.foretold:.1f}", f"{one.measured:.1f}", f"{one.off:.1%}") for one in checks]
    print(f"\n{table(('check', 'foretold', 'measured', 'off by'), rows)}")
    kept = all(one.off <= WITHIN for one in checks)
    print(f"Promised: within {WITHIN:.0%}. {'Kept.' if kept else 'NOT KEPT.'}")
    tell(page, verb, assumed, chosen.pages, chosen.sites, chosen.seed)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
