"""From a task to the cheapest way that works. `Router` is shared by all journeys of a job; a `Trip` (trip.py) is one.

What it does: plans the rungs a page may take (ladder.py decides), takes an exit where the route has a pool, pays
the toll, and tells the books how it went, so that all workers profit.
How it fails: WayFailed when nothing can leave just now; Misconfigured for a wish that nobody can fulfil.
How it recovers: what was learned lives in the shared state. When that is away, pages go by what was known last.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

import msgspec

from ..clock import Clock
from ..errors import BackendUnavailable
from ..fetch.cookies import CookieJar
from ..model.route import Exit, ExitOutcome, Route
from ..model.task import LANE_ONLY, Task
from .budget import BudgetKeeper
from .contract import RouteBook, Standing
from .ladder import Plan, Terms, claim, handed_over, plan, wants_probe, wished
from .transports import Transports
from .trip import Trip

FRESH = timedelta(seconds=3)  # how long what was read of a site's standing is trusted
SCOUT_WITHIN = timedelta(seconds=60)  # for so long others wait for what a climbing page finds
MEMORY = 20_000  # sites, pages and identities that are remembered at most, each
LATE_TRIES = 2  # a page that failed so often begins a rung higher: silence may be a block too
OURS_AT_MOST = 3  # failures of a way, for one page, before it is the page that is to blame
USUAL_AFTER = 20  # pages of a kind before their usual size is known


class Exits(Protocol):
    """The pools of proxies, as the router needs them. Fulfilled by routing/proxies/pools.py."""

    async def take(
        self,
        pool: str,
        *,
        site: str,
        fingerprint: bytes,
        attempt: int = 0,
        country: str | None = None,
        session: str | None = None,
        avoid: Collection[str] = (),
    ) -> Exit:
        """Raises AllExitsRest, Misconfigured, BackendUnavailable."""
        ...

    def report(
        self,
        exit_: Exit,
        outcome: ExitOutcome,
        *,
        seconds: float = 0.0,
        received: int = 0,
        tokens: float = 0.0,
        words: str = "",
        fingerprint: bytes | None = None,
    ) -> None:
        """Never waits."""
        ...


class Router:
    """One per job and process."""

    def __init__(
        self,
        *,
        terms_for: Callable[[str], Terms],
        routes: Mapping[str, Route],
        transports: Transports,
        exits: Exits,
        book: RouteBook,
        tolls: BudgetKeeper,
        clock: Clock,
        serves: frozenset[str] | None = None,
    ) -> None:
        self.terms_for = terms_for
        self.routes = routes
        self.transports = transports
        self.exits = exits
        self.tolls = tolls
        self.clock = clock
        self._book = book
        self._serves = serves
        self._standings: OrderedDict[str, tuple[float, Standing | None]] = OrderedDict()
        self._jars: OrderedDict[tuple[str, str, str], CookieJar] = OrderedDict()
        self._through: OrderedDict[tuple[str, str], int] = OrderedDict()  # (site, route) -> climbs past it since a pass
        self._scouts: dict[str, tuple[Trip, asyncio.Event]] = {}  # site -> the page that climbs, and its return
        self._passed_at: dict[str, float] = {}  # route -> when a page last got through
        self._ours: OrderedDict[bytes, tuple[int, float]] = OrderedDict()  # page -> failures of our own, since when
        self._sizes: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()

    async def begin(self, task: Task) -> Trip:
        """Plan the trip of a task. Raises Misconfigured for a wish that cannot be fulfilled, BackendUnavailable."""
        terms = self.terms_for(task.site)
        handed = task.fetcher is not None and task.fetcher.startswith(LANE_ONLY)
        fetcher = None if handed else task.fetcher
        if fetcher is not None or task.proxy_pool is not None:
            rungs = wished(terms.ladder, self.routes, fetcher=fetcher, pool=task.proxy_pool)
            unlearned = msgspec.structs.replace(terms, learns=False)
            return Trip(self, task, unlearned, Plan(rungs=rungs), None, wished=True)
        if len(terms.ladder) == 1:
            return Trip(self, task, terms, Plan(rungs=terms.ladder), None)
        if terms.learns:
            await self.wait_for_scout(task.site)
        now = self.clock.now()
        standing = await self.standing(task.site) if terms.learns else None
        probes = False
        if standing is not None and wants_probe(terms, standing, now):
            claimed = claim(terms, standing, now)
            probes = await self.learn(claimed, instead_of=standing)
            standing = claimed if probes else await self.standing(task.site)
        chosen = plan(terms, standing, may_probe=probes)
        if handed and task.fetcher is not None:
            chosen = handed_over(terms, chosen, task.fetcher.removeprefix(LANE_ONLY))
        trip = Trip(self, task, terms, chosen, standing)
        if handed:
            trip.climbed_before()
        if task.attempt >= LATE_TRIES and not chosen.probes:
            trip.begin_higher()
        return trip

    def serves(self, route: Route) -> bool:
        return self._serves is None or route.transport in self._serves or route.name in self._serves

    def jar_for(self, route: Route, exit: Exit | None, session: str | None) -> CookieJar:
        """The cookies of one identity: whoever comes from elsewhere, or looks different, is somebody else."""
        key = (route.name, exit.identity if exit is not None else "", session or "")
        jar = self._jars.get(key)
        if jar is None:
            jar = CookieJar(clock=self.clock)
        _put(self._jars, key, jar)
        return jar

    # -- one page finds out for all ------------------------------------------------------------------------------

    async def wait_for_scout(self, site: str, but: Trip | None = None) -> bool:
        """Where a page of the site is climbing just now, wait for what it finds. False when there is none."""
        scout = self._scouts.get(site)
        if scout is None or scout[0] is but:
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(SCOUT_WITHIN.total_seconds()):
                await scout[1].wait()
        return True

    def send_scout(self, site: str, trip: Trip) -> None:
        if site not in self._scouts:
            self._scouts[site] = (trip, asyncio.Event())

    def recall_scout(self, site: str, trip: Trip) -> None:
        scout = self._scouts.get(site)
        if scout is not None and scout[0] is trip:
            del self._scouts[site]
            scout[1].set()

    # -- what is known of a site ---------------------------------------------------------------------------------

    async def standing(self, site: str) -> Standing | None:
        """What was learned about the site; a few seconds old at most, older only while the state is away."""
        known = self._standings.get(site)
        now = self.clock.monotonic()
        if known is not None and now - known[0] < FRESH.total_seconds():
            return known[1]
        try:
            found = await self._book.standing(site)
        except BackendUnavailable:
            if known is None:
                raise
            return known[1]
        _put(self._standings, site, (now, found))
        return found

    async def learn(self, standing: Standing, *, instead_of: Standing | None) -> bool:
        won = await self._book.learn(standing, instead_of=instead_of)
        if won:
            _put(self._standings, standing.site, (self.clock.monotonic(), standing))
        else:
            self._standings.pop(standing.site, None)  # somebody else was faster: read it anew
        return won

    def note_pass(self, site: str, route: Route) -> None:
        self._passed_at[route.name] = self.clock.monotonic()
        _put(self._through, (site, route.name), 0)

    def was_let_through(self, site: str, route: Route) -> bool:
        """Did a page of the site get through by that route, as far as this process remembers?"""
        return (site, route.name) in self._through

    def is_proven(self, site: str, route: Route) -> bool:
        """A page climbed past `route`: is that enough to say that the site needs a dearer one? Where pages got through
        there before, it takes two: a single page may be an exception."""
        key = (site, route.name)
        climbs = self._through.get(key)
        if climbs is None:
            return True
        _put(self._through, key, climbs + 1)
        return climbs + 1 >= 2

    def is_the_page(self, fingerprint: bytes, route: Route) -> bool:
        """The way failed for this page again. True when it works for others: then it is not the way that is to blame,
        and the try counts."""
        count, since = self._ours.get(fingerprint, (0, self.clock.monotonic()))
        _put(self._ours, fingerprint, (count + 1, since))
        return count + 1 >= OURS_AT_MOST and self._passed_at.get(route.name, float("-inf")) >= since

    def usual_size(self, site: str, kind: str) -> int | None:
        count, mean = self._sizes.get((site, kind), (0, 0.0))
        return int(mean) if count >= USUAL_AFTER else None

    def note_size(self, site: str, kind: str, size: int) -> None:
        count, mean = self._sizes.get((site, kind), (0, 0.0))
        count += 1
        _put(self._sizes, (site, kind), (count, mean + (size - mean) / min(count, 50)))


def _put(memory: OrderedDict, key: object, value: object) -> None:  # type: ignore[type-arg]  # any kind of memory
    memory[key] = value
    memory.move_to_end(key)
    while len(memory) > MEMORY:
        memory.popitem(last=False)


def lanes_of(
    serves: frozenset[str] | None, routes: Mapping[str, Route], ladder: Sequence[Route]
) -> frozenset[str] | None:
    """The lanes from which a worker takes tasks that serves those routes or kinds of transport; None: from all.

    Tasks that leave the way to the router wait in the lane "": whoever serves the first rung begins with them.
    """
    if serves is None:
        return None
    lanes = {route.name for route in routes.values() if route.name in serves or route.transport in serves}
    lanes |= serves
    first = ladder[0]
    plain = first.name in serves or first.transport in serves
    return frozenset({*lanes, *(LANE_ONLY + lane for lane in lanes), *([""] if plain else [])})
