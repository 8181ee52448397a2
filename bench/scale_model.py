"""The model of bench.scale: a day of a fleet as discrete events, decided by the frontier's own pure functions.

A site is one token bucket (frontier/politeness.py): its next request starts when `earliest_start` says so, and each
moves the bucket on by `after_start`. A page that fails is tried again or given up as `decide` says (frontier/retry.py),
and a site that asks for a rest gets it. Leases of a worker that dies come back when they end, and the site is held
until then. A shard that restarts hands out nothing for a while. Shards, workers and their slots are servers with a
queue: what a page costs there was measured, and a page that finds a server busy starts later.

Two million sites would take too long one by one. Sites of one size and one pace are a class, of which a few are played,
and each stands for its share of the class. What it asks of the servers is taken that many times. Pages of a site that
are due within TURN of each other are one event; each of them still takes its own turn of the bucket.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

from gossamer.errors import GossamerError, RateLimited, ServerFailed, TimedOut
from gossamer.frontier.politeness import after_start, earliest_start
from gossamer.frontier.retry import GiveUp, RetryTerms, decide

DAY = 86_400.0
TURN = 60.0  # seconds of one site in one event, at most
PATIENCE = 1.0  # seconds that a page may find its servers busy; else its site comes again later
PLAYED = 12_000  # pages of one class that are played, about
ATTEMPTS = 4
RETRY = RetryTerms()
FAILURES: tuple[tuple[float, GossamerError], ...] = (  # what fails, each with the share of all failures up to it
    (0.6, ServerFailed("503", status=503)),
    (0.9, TimedOut("read")),
    (1.0, RateLimited("429", status=429, retry_after=timedelta(seconds=30))),
)


@dataclass(frozen=True)
class SiteClass:
    """Sites of one size and one pace. `latency` is how long a page takes to come, `failing` the share of tries that
    fail, `concurrency` how many requests a site takes at once."""

    sites: int
    pages: float  # of each
    interval: float  # seconds between two requests
    latency: float
    failing: float = 0.02
    concurrency: int = 4

    @property
    def spacing(self) -> float:
        """Seconds between two pages of a site: its pace, or how long its pages take, whichever is longer."""
        return max(self.interval, self.latency / self.concurrency)

    def reachable(self, seconds: float = DAY) -> float:
        """Pages of one site that its pace allows."""
        return min(self.pages, seconds / self.spacing)


@dataclass(frozen=True)
class Fleet:
    """What works. `shard_cpu` and `worker_cpu` are seconds for each page; `slots` are pages in flight of one worker;
    `rtt` is what lease, store and settlement of a page wait for the network, on average over the regions."""

    shards: int
    workers: int
    shard_cpu: float
    worker_cpu: float
    slots: int = 64
    rtt: float = 0.0
    lease: float = 60.0
    worker_deaths: float = 0.0  # of each, in a day
    dies_at: tuple[float, ...] = ()  # and these, one worker each
    shard_restarts: float = 0.0
    outage: float = 30.0  # of a shard that restarts: 10 seconds, and 20 until leases are certain (decision 0020)
    resolvers: int = 0  # caches of DNS; 0: one for each worker
    dns_ttl: float = 60.0


@dataclass
class Played:
    """What came of it. All counts are of the whole fleet, not of the sites that were played."""

    seconds: float
    hours: list[float] = field(default_factory=list)  # pages that came, by hour
    tries: float = 0.0
    dead: float = 0.0
    again: float = 0.0  # pages that were fetched a second time because a worker died
    left: float = 0.0  # pages that were not reached in time
    lookups: float = 0.0
    shard_busy: list[float] = field(default_factory=list)  # seconds of CPU
    worker_busy: float = 0.0
    slot_seconds: float = 0.0
    last: float = 0.0  # when the last page came
    events: int = 0

    @property
    def pages(self) -> float:
        return sum(self.hours)


class _Site:
    __slots__ = ("again", "kind", "left", "shard", "tat", "weight")

    def __init__(self, kind: SiteClass, weight: float, shard: int) -> None:
        self.kind = kind
        self.weight = weight
        self.shard = shard
        self.left = round(kind.pages)
        self.tat = 0.0
        self.again: list[tuple[float, int]] = []  # when a failed page is due, and its next attempt


def play(
    classes: Sequence[SiteClass], fleet: Fleet, *, seconds: float = DAY, seed: int = 1, spread: bool = True
) -> Played:
    """Play the classes against the fleet. With `spread`, each site begins at a time at which it can still be done in
    time; else all begin at once."""
    return _Play(fleet, seconds, seed).run(classes, spread)


class _Play:
    def __init__(self, fleet: Fleet, seconds: float, seed: int) -> None:
        self._fleet = fleet
        self._seconds = seconds
        self._chance = random.Random(seed)
        hours = int(seconds // 3600) + 1
        self._found = Played(seconds=seconds, hours=[0.0] * hours, shard_busy=[0.0] * fleet.shards)
        self._shard_free = [0.0] * fleet.shards
        self._workers_free = self._slots_free = 0.0
        restarts = [
            (self._chance.uniform(0, seconds), shard)
            for shard in range(fleet.shards)
            for _ in range(round(fleet.shard_restarts * seconds / DAY))
        ]
        self._restarts = sorted(restarts, reverse=True)
        died = round(fleet.worker_deaths * fleet.workers * seconds / DAY)
        self._deaths = sorted([*fleet.dies_at, *(self._chance.uniform(0, seconds) for _ in range(died))])

    def run(self, classes: Sequence[SiteClass], spread: bool) -> Played:
        queue: list[tuple[float, int, _Site]] = []
        order = count()
        for kind in classes:
            played = max(1, min(kind.sites, round(PLAYED / max(1.0, kind.pages))))
            slack = max(0.0, self._seconds - kind.reachable(self._seconds) * kind.spacing * 1.05)
            for _ in range(played):
                site = _Site(kind, kind.sites / played, self._chance.randrange(self._fleet.shards))
                begin = self._chance.uniform(0.0, slack) if spread else 0.0
                queue.append((begin, next(order), site))
        heapq.heapify(queue)
        while queue:
            now, _, site = heapq.heappop(queue)
            if now >= self._seconds:
                self._found.left += site.weight * (site.left + len(site.again))
                continue
            while self._restarts and self._restarts[-1][0] <= now:
                at, shard = self._restarts.pop()
                self._shard_free[shard] = max(self._shard_free[shard], at + self._fleet.outage)
            follows = self._turn(site, now)
            if follows is not None:
                heapq.heappush(queue, (follows, next(order), site))
        return self._found

    def _turn(self, site: _Site, now: float) -> float | None:
        """The pages of a site that are due now; when it is to be looked at again, None when it is done."""
        kind, found = site.kind, self._found
        found.events += 1
        room = max(1, int(TURN / kind.spacing))
        due: list[tuple[float, int]] = []
        while site.again and site.again[0][0] <= now and len(due) < room:
            due.append(heapq.heappop(site.again))
        fresh = min(site.left, room - len(due))
        if not due and not fresh:
            return max(now, site.again[0][0]) if site.again else None
        begin = self._served(site, now, len(due) + fresh)
        if begin > now + PATIENCE:  # no server was free: it comes again when one is
            for one in due:
                heapq.heappush(site.again, one)
            return begin
        site.left -= fresh
        return self._fetch(site, begin, [attempt for _, attempt in due] + [1] * fresh)

    def _fetch(self, site: _Site, begin: float, attempts: list[int]) -> float | None:
        kind, found, fleet = site.kind, self._found, self._fleet
        rest, start, lost = 0.0, begin, False
        in_progress = kind.latency + fleet.rtt
        for place, attempt in enumerate(attempts):
            start = max(begin, earliest_start(site.tat, interval=kind.spacing, burst=1))
            site.tat = after_start(site.tat, start=start, interval=kind.spacing)
            found.tries += site.weight
            if self._dies(start, in_progress):
                found.again += site.weight
                for one in attempts[place:]:  # a paced site is held by the worker that died
                    heapq.heappush(site.again, (start + fleet.lease, one))
                lost = True
                break
            if self._chance.random() < kind.failing:
                rest = max(rest, self._failed(site, start, attempt))
            else:
                found.hours[min(int(start // 3600), len(found.hours) - 1)] += site.weight
                found.last = max(found.last, start + kind.latency)
        self._resolve(site, len(attempts), site.tat - begin)
        follows = max(earliest_start(site.tat, interval=kind.spacing, burst=1), start + rest)
        if lost:
            follows = max(follows, start + fleet.lease)
        if site.left <= 0:
            return max(follows, site.again[0][0]) if site.again else None
        return follows

    def _dies(self, start: float, in_progress: float) -> bool:
        """Does the worker that has a page in progress from `start` on die before it is settled?"""
        place = bisect_left(self._deaths, start)
        near = place < len(self._deaths) and self._deaths[place] < start + in_progress
        return near and self._chance.random() < 1 / self._fleet.workers

    def _failed(self, site: _Site, at: float, attempt: int) -> float:
        """Note the failure; seconds for which the site wants to be left alone."""
        which = self._chance.random()
        failure = next(one for upto, one in FAILURES if which < upto)
        decision = decide(failure, attempt=attempt, max_attempts=ATTEMPTS, terms=RETRY, jitter=self._chance.random())
        if isinstance(decision, GiveUp):
            self._found.dead += site.weight
        else:
            heapq.heappush(site.again, (at + decision.delay.total_seconds(), attempt + 1))
        return decision.rest.total_seconds()

    def _served(self, site: _Site, now: float, pages: int) -> float:
        """When the shard, the workers and their slots have time for these pages. Each is one server with a queue."""
        fleet, found = self._fleet, self._found
        begin = max(now, self._shard_free[site.shard], self._workers_free, self._slots_free)
        if begin > now + PATIENCE:
            return begin
        tries = pages * site.weight
        whose = range(fleet.shards) if site.weight > 1 else (site.shard,)  # those that it stands for are everywhere
        work = tries * fleet.shard_cpu / len(whose)
        for shard in whose:
            self._shard_free[shard] = max(self._shard_free[shard], now) + work
            found.shard_busy[shard] += work
        self._workers_free = max(self._workers_free, now) + tries * fleet.worker_cpu / fleet.workers
        found.worker_busy += tries * fleet.worker_cpu
        held = tries * (site.kind.latency + fleet.rtt + fleet.worker_cpu)
        self._slots_free = max(self._slots_free, now) + held / (fleet.workers * fleet.slots)
        found.slot_seconds += held
        return begin

    def _resolve(self, site: _Site, pages: int, span: float) -> None:
        """Names that are looked up: each cache that asks for the site forgets it after the TTL."""
        caches = self._fleet.resolvers or self._fleet.workers
        windows = max(1.0, span / self._fleet.dns_ttl)
        met = caches * (1 - (1 - 1 / caches) ** (pages / windows))
        self._found.lookups += site.weight * windows * met


def web(sites: int, pages: float, *, exponent: float = 0.9) -> list[SiteClass]:
    """The sites of a day: sizes fall with the rank as rank^-exponent, paces differ, and `pages` of them are those that
    the sites' paces allow. What is wanted beyond that is in the sizes, too."""
    paces = ((0.62, 0.5, 0.4, 0.02), (0.20, 2.0, 0.6, 0.02), (0.10, 0.1, 0.2, 0.01), (0.08, 10.0, 3.0, 0.08))
    ranks: list[tuple[int, float]] = []  # how many sites, and their size as a part of the largest
    first = 1
    while first <= sites:
        after = min(sites + 1, max(first + 1, int(first * 1.6)))
        middle = (first + after - 1) / 2
        ranks.append((after - first, middle**-exponent))
        first = after

    def scaled(largest: float) -> list[SiteClass]:
        found = []
        for place, (many, share) in enumerate(ranks):
            for part, interval, latency, failing in paces:
                own = many * part
                whole = int(own) + (random.Random(f"{place}/{interval}").random() < own % 1)
                if whole:
                    found.append(SiteClass(whole, max(1.0, largest * share), interval, latency, failing))
        return found

    low, high = 1.0, 1e12
    for _ in range(60):
        middle = (low + high) / 2
        reached = sum(one.sites * one.reachable() for one in scaled(middle))
        low, high = (middle, high) if reached < pages else (low, middle)
    return scaled(high)
