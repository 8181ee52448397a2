"""From a task to the cheapest route that lets its page through.

`Router` is shared by all pages of a job in one process. A `PageRoute` is the route of one page: which rung of the
ladder it is on, through which proxy it leaves, what it costs, and what its result teaches.

What it does: plans the rungs that a page may take (ladder.py decides), takes a proxy if the route has a pool, pays for
each request, and records the result, so that all workers profit.
How it fails: RouteFailed if no request can leave at the moment; Misconfigured if no route fits the task.
How it recovers: learned routes are in the shared state. While that does not answer, the last known ones count.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from datetime import timedelta
from typing import Protocol

import msgspec

from ..clock import Clock
from ..errors import AllProxiesRest, BackendUnavailable, NoRoute
from ..fetch.contract import Gate, Response
from ..fetch.cookies import CookieJar
from ..fetch.open_route import OpenRoute, Transports
from ..fetch.robots import BeforeSend
from ..model.route import DIRECT, Proxy, ProxyOutcome, Route
from ..model.task import LANE_ONLY, Task
from .budget import BudgetKeeper, Receipt
from .contract import LearnedRoute, RouteBook
from .ladder import (
    RoutePlan,
    RouteTerms,
    after_climb,
    after_comparison,
    after_probe,
    claim,
    handed_over,
    next_rung,
    plan,
    wants_probe,
    wished,
)
from .proxies.pools import LONGEST_WAIT, Pools
from .site_memory import SiteMemory, pattern_of, remember

LATE_TRIES = 2  # a page that failed this often begins a rung higher: silence may be a block too, but proves none
PROXIES_AT_MOST = 3  # proxies that may fail for one page, one after the other
PATIENT_RESTS = 5  # rests of all proxies for a site during which its pages use up no attempts: half an hour, usually


class SessionJars(Protocol):
    """The cookies of named sessions: the same for every route and every proxy."""

    def jar(self, session: str) -> CookieJar: ...

    def visitor(self, session: str) -> str:
        """The name under which the session's proxy is chosen."""


class RouteNotServed(Exception):
    """This worker does not serve the route; the task belongs in that lane."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.lane = lane


class Router:
    """One per job and process. Without `proxies`, routes through a pool cannot be used; without a `book`, nothing is
    learned; without a `budget`, nothing is paid. `for_files`: files are fetched, which need no browser."""

    def __init__(
        self,
        *,
        terms_for: Callable[[str], RouteTerms],
        routes: Mapping[str, Route],
        transports: Transports,
        clock: Clock,
        proxies: Pools | None = None,
        book: RouteBook | None = None,
        budget: BudgetKeeper | None = None,
        serves: frozenset[str] | None = None,
        for_files: bool = False,
        sessions: SessionJars | None = None,
    ) -> None:
        self.terms_for = terms_for
        self.routes = routes
        self.transports = transports
        self.proxies = proxies
        self.budget = budget
        self.clock = clock
        self.memory = SiteMemory(book, clock)
        self.for_files = for_files
        self.sessions = sessions
        self._serves = serves
        self._jars: OrderedDict[tuple[str, str, str], CookieJar] = OrderedDict()

    def beside(self, budget: BudgetKeeper) -> Router:
        """The router of one more job: what was learned about sites is shared, cookies are not."""
        other = copy(self)
        other.budget = budget
        other._jars = OrderedDict()
        return other

    async def begin(self, task: Task) -> PageRoute:
        """Plan the route of a task. Raises Misconfigured if no route fits, BackendUnavailable."""
        terms = self.terms_for(task.site)
        handed = task.fetcher is not None and task.fetcher.startswith(LANE_ONLY)
        fetcher = None if handed else task.fetcher
        if fetcher is not None or task.proxy_pool is not None:
            rungs = wished(terms.ladder, self.routes, fetcher=fetcher, pool=task.proxy_pool)
            unlearned = msgspec.structs.replace(terms, learns=False)
            return PageRoute(self, task, unlearned, RoutePlan(rungs=rungs), None, wished=True)
        if len(terms.ladder) == 1:
            return PageRoute(self, task, terms, RoutePlan(rungs=terms.ladder), None)
        memory, pattern = self.memory, pattern_of(task.url)
        if terms.learns:
            await memory.wait_for_climb(pattern)
        now = self.clock.now()
        learned = await memory.learned(task.site, pattern) if terms.learns else None
        probes = False
        if learned is not None and wants_probe(terms, learned, now):
            claimed = claim(terms, learned, now)
            probes = await memory.learn(claimed, instead_of=learned)
            learned = claimed if probes else await memory.learned(task.site, pattern)
        chosen = plan(terms, learned, may_probe=probes)
        if handed and task.fetcher is not None:
            chosen = handed_over(terms, chosen, task.fetcher.removeprefix(LANE_ONLY))
        page = PageRoute(self, task, terms, chosen, learned, pattern=pattern)
        if handed and task.attempt < LATE_TRIES:
            page.climbed_before()
        if task.attempt >= LATE_TRIES and not chosen.probes:
            page.begin_higher()
        return page

    def visitor(self, session: str | None) -> str | None:
        """The name under which the proxy of a session is chosen."""
        return session if session is None or self.sessions is None else self.sessions.visitor(session)

    def serves(self, route: Route) -> bool:
        return self._serves is None or route.transport in self._serves or route.name in self._serves

    def jar_for(self, route: Route, proxy: Proxy | None, session: str | None, apart: str = "") -> CookieJar:
        """The cookies of one identity: a visitor with another proxy or another look is a different one, unless it has a
        name. Requests that are kept `apart` are separate visitors."""
        if session is not None and self.sessions is not None:
            return self.sessions.jar(session)
        key = (route.name, proxy.identity if proxy is not None else "", session or apart)
        jar = self._jars.get(key)
        if jar is None:
            jar = CookieJar(clock=self.clock)
        remember(self._jars, key, jar)
        return jar


class PageRoute:
    """One page's route over the ladder, rung by rung. `cost` is what the current attempt has cost so far."""

    def __init__(
        self,
        router: Router,
        task: Task,
        terms: RouteTerms,
        chosen: RoutePlan,
        learned: LearnedRoute | None,
        *,
        wished: bool = False,
        pattern: str = "",
    ) -> None:
        self._pattern = pattern  # of similar pages; "": the ladder has one rung, and nothing is learned
        self._router = router
        self._memory = router.memory
        self._wished = wished  # the spider chose the rungs
        self._task = task
        self._terms = terms
        self._plan = chosen
        self._learned = learned
        self._take_rung(0)
        self._blocked: list[tuple[Route, str]] = []  # rungs that were blocked, and why
        self._avoid: frozenset[str] = frozenset()  # proxies that failed for this page
        self._proxies_tried = 0  # on the current rung; a pool may have only one proxy, so names do not count
        self._refused: list[Proxy] = []  # proxies through which the site refused the page, on the current rung
        self._next_proxy: Proxy | None = None  # for the next attempt, if it was taken already
        self._receipts: list[Receipt] = []
        self._received: list[int] = []  # bytes received for each receipt
        self._gates: list[Gate | None] = []  # of the request for each receipt
        self._bytes = 0  # of the current attempt
        self.proxy: Proxy | None = None  # of the current attempt
        self.cost = 0.0

    def _take_rung(self, place: int) -> None:
        self._place = place
        self.route: Route = self._plan.rungs[place]  # the current rung

    @property
    def is_top(self) -> bool:
        return self._place == len(self._plan.rungs) - 1

    @property
    def is_only(self) -> bool:
        """Whether there is one route to the site."""
        return len(self._terms.ladder) == 1

    @property
    def lane(self) -> str | None:
        """Where the page should wait if it cannot go on now, so that it is not blocked below once more."""
        climbed = self._place > 0 and not self._wished and self.route.name in self._router.routes
        return LANE_ONLY + self.route.name if climbed else None

    async def open(self) -> OpenRoute:
        """Prepare the current rung for requests. Raises RouteNotServed, AllProxiesRest, MissingExtra, Misconfigured,
        NoRoute."""
        router, route, task = self._router, self.route, self._task
        if not router.serves(route):
            raise RouteNotServed(LANE_ONLY + (route.name if route.name in router.routes else route.transport))
        self.cost, self._bytes, self.proxy = 0.0, 0, None
        robots = await router.transports.for_robots(route)
        pages = robots if router.for_files else await router.transports.for_pages(route)
        if route is DIRECT and not task.how:
            return OpenRoute(
                transport=pages, robots_transport=robots, jar=router.jar_for(route, None, None), route=route
            )
        options = task.options()
        if route.pool is not None:
            if router.proxies is None:
                raise NoRoute(f"{task.site} is reached through proxy pool {route.pool}, which is not available here.")
            taken, self._next_proxy = self._next_proxy, None
            self.proxy = taken or await self._take_proxy(router.proxies, route.pool)
        return OpenRoute(
            transport=pages,
            robots_transport=robots,
            jar=router.jar_for(route, self.proxy, options.session, options.apart),
            route=route,
            proxy=self.proxy,
            others_left=self._may_try_another(),
            render=options.render,
            country=task.country,
            meter=self._count,
        )

    async def _take_proxy(self, proxies: Pools, pool: str, *, untried: bool = False) -> Proxy:
        task = self._task
        return await proxies.take(
            pool,
            site=task.site,
            fingerprint=task.fingerprint,
            attempt=task.attempt,
            country=task.country,
            session=self._router.visitor(task.options().session if task.how else None),
            avoid=self._avoid,
            untried=untried,
        )

    def _may_try_another(self) -> bool:
        """May the page go on through another proxy of this rung, if the site refuses the current one?"""
        proxies = self._router.proxies
        if self.proxy is None or proxies is None or len(self._refused) + 1 >= self._terms.max_proxies:
            return False
        return proxies.has_others(self.proxy, self._task.site, self._avoid)

    # -- what it costs ---------------------------------------------------------------------------------------------

    def paid(self, before_send: BeforeSend) -> BeforeSend:
        """Wraps `before_send` for the current attempt: the credits are taken first, then the request gets its gate."""
        budget = self._router.budget
        if budget is None:
            return before_send

        async def pay_first(asked: timedelta | None, elsewhere: str | None = None) -> Gate | None:
            self._receipts.append(await budget.pay(self._task.site, self.route))
            self._received.append(0)
            try:
                gate = await before_send(asked, elsewhere)
            except BaseException:
                self._received.pop()
                await self._settle(budget, self._receipts.pop(), None)
                raise
            self._gates.append(gate)
            return gate

        return pay_first

    def _count(self, received: int) -> None:
        if self._received:
            self._received[-1] += received

    async def settle_cost(self, response: Response | None) -> None:
        """The current attempt is over, well or not: settle its cost."""
        receipts, self._receipts = self._receipts, []
        received, self._received = self._received, []
        gates, self._gates = self._gates, []
        self._bytes = sum(received)
        budget = self._router.budget
        if budget is None:
            return
        for number, (receipt, size, gate) in enumerate(zip(receipts, received, gates, strict=True)):
            last = number == len(receipts) - 1
            charged = response.cost if response is not None and last else None
            left = gate is None or gate.is_out  # a request that never passed its gate costs nothing
            self.cost += await self._settle(budget, receipt, size if left else None, charged)

    async def _settle(
        self, budget: BudgetKeeper, receipt: Receipt, received: int | None, charged: float | None = None
    ) -> float:
        try:
            return await budget.settle(receipt, received, charged)
        except BackendUnavailable:
            # Credits taken in excess stay taken. The page is worth more than a few credits.
            return receipt.route.cost(received) if received is not None else 0.0

    # -- how it went -----------------------------------------------------------------------------------------------

    async def passed(self, response: Response, *, teaches: bool = True) -> None:
        """A response came that is no block. Only a page teaches something: an error is the same on every rung."""
        self.served(response)
        if response.status < 400 or response.status in (404, 410):
            self._ban_refused()
        if not teaches or not (response.status < 300 or response.status == 304):
            if response.status >= 500:
                await self.failed()
            return
        self._memory.note_pass(self._task.site, self._pattern, self.route)
        if self._terms.learns:
            try:
                await self._learn()
            except BackendUnavailable:
                return  # the next page will teach the same

    async def _learn(self) -> None:
        memory, site, route, now = self._memory, self._task.site, self.route, self._router.clock.now()
        if self._is_learned():
            await self._compare()
        elif self._plan.probes and self._place == 0 and self._learned is not None:
            await memory.learn(after_probe(self._terms, self._learned, route, now), instead_of=self._learned)
        elif self._blocked and memory.is_proven(self._pattern, self._blocked[0][0]):
            if memory.does_no_better(self._pattern, route, self._blocked[0][0]):
                return
            risen = after_climb(
                self._terms, self._learned, site=site, route=route, reason=self._blocked[-1][1], now=now,
                pattern=self._pattern,
            )  # fmt: skip
            if risen is None:
                return
            own = self._learned if self._learned is not None and self._learned.pattern == self._pattern else None
            if await memory.learn(risen, instead_of=own):
                await memory.generalise(risen, self._terms.ladder[: self._terms.place_of(route.name)])

    def _is_learned(self) -> bool:
        """Is the page on the rung that was learned for it, without having been refused below?"""
        return self._learned is not None and self.route.name == self._learned.route and not self._blocked

    async def _compare(self) -> None:
        """Give up what was learned if it does no better than the rung below, which costs less."""
        terms, memory, learned, now = self._terms, self._memory, self._learned, self._router.clock.now()
        place = terms.place_of(self.route.name)
        if learned is None or not place:
            return
        cheaper, own = terms.ladder[place - 1], learned if learned.pattern == self._pattern else None
        if memory.does_no_better(self._pattern, self.route, cheaper):
            await memory.learn(after_comparison(terms, learned, cheaper, now, self._pattern), instead_of=own)
        elif memory.is_doubtful(self._pattern, self.route, cheaper) and learned.recheck_at > now:
            await memory.learn(msgspec.structs.replace(learned, recheck_at=now), instead_of=learned)

    async def failed(self) -> None:
        """The site failed, or nothing came. That teaches nothing about who is welcome, but it counts when routes are
        compared."""
        self._memory.note_failure(self._pattern, self.route)
        if self._terms.learns and self._is_learned():
            with suppress(BackendUnavailable):
                await self._compare()

    def served(self, response: Response) -> None:
        """The proxy, if there is one, worked."""
        self._report(ProxyOutcome.OK, response)

    def refused(self, words: str, response: Response | None, status: int) -> bool:
        """The site refuses this visitor, or this page to everybody. True if it is known to be the page, because proxies
        that it was refused to serve others.

        A refusal alone is not held against the proxy. It rests for this site when the page gets through another, when
        several pages in a row are refused to it, or when it asked too often.
        """
        proxies, task = self._router.proxies, self._task
        if self.proxy is None or proxies is None:
            return False
        if proxies.is_the_pages_fault(self.proxy, task.site, task.fingerprint):
            self._report(ProxyOutcome.OK, response)
            return True
        self._report(ProxyOutcome.BANNED if status == 429 else ProxyOutcome.REFUSED, response, words)
        self._refused.append(self.proxy)
        return False

    def _ban_refused(self) -> None:
        """The page got through the current proxy: the ones that it was refused to before are to blame."""
        proxies, refused = self._router.proxies, self._refused
        self._refused = []
        for one in refused if proxies is not None else ():
            assert proxies is not None
            if self.proxy is not None and one.name != self.proxy.name:
                words = f"{self._task.site} served a page to another proxy that it refused to this one"
                proxies.report(one, ProxyOutcome.BANNED, site=self._task.site, times=0, words=words)

    def proxy_failed(self, words: str) -> None:
        """The proxy refused, hung up or is unreachable."""
        self._report(ProxyOutcome.FAILED, None, words)

    def _report(self, outcome: ProxyOutcome, response: Response | None, words: str = "") -> None:
        proxies = self._router.proxies
        if self.proxy is None or proxies is None:
            return
        proxies.report(
            self.proxy,
            outcome,
            site=self._task.site,
            seconds=response.seconds if response is not None else 0.0,
            received=max(self._bytes, response.wire_bytes if response is not None else 0),
            credits=self.cost,
            words=words,
            fingerprint=self._task.fingerprint,
        )

    # -- the next attempt ------------------------------------------------------------------------------------------

    def climbed_before(self) -> None:
        """Another worker, or an earlier attempt, was blocked below the rung on which this page begins."""
        place = self._terms.place_of(self.route.name)
        if place:
            self._blocked.append((self._terms.ladder[place - 1], "blocked before"))

    def begin_higher(self) -> None:
        """Skip the first rung, for a page that failed there repeatedly. Getting through then proves nothing."""
        self._take_rung(min(1, len(self._plan.rungs) - 1))

    async def climb(self, reason: str) -> bool:
        """The current rung is blocked. True if a higher one may help, and the page is on it now.

        One page of a pattern climbs at a time; others that are blocked meanwhile wait, and go where it got through.
        """
        memory, site = self._memory, self._task.site
        memory.note_refusal(self._pattern, self.route)
        if self._terms.learns and self._is_learned():
            with suppress(BackendUnavailable):
                await self._compare()
        self._blocked.append((self.route, reason))
        higher = next_rung(self._plan.rungs, self._place, reason)
        if higher is None:
            return False
        if self._terms.learns and await memory.wait_for_climb(self._pattern, but=self):
            learned = await memory.learned(site, self._pattern)
            names = [rung.name for rung in self._plan.rungs]
            if learned is not None and learned.route in names[higher:]:
                higher, self._learned = names.index(learned.route), learned
        if self._terms.learns:
            memory.begin_climb(self._pattern, self)
        self._take_rung(higher)
        self._avoid, self._proxies_tried, self._refused = frozenset(), 0, []
        return True

    def another_proxy(self) -> bool:
        """True if the same rung may be tried once more, through another proxy if there is one."""
        if self.proxy is None:
            return False
        self._avoid |= {self.proxy.name}
        self._proxies_tried += 1
        return self._proxies_tried < PROXIES_AT_MOST

    async def next_proxy(self) -> bool:
        """The site refused the page to the current proxy. True if it may be tried through another, which is taken."""
        proxies, route = self._router.proxies, self.route
        if self.proxy is None or proxies is None or route.pool is None or len(self._refused) >= self._terms.max_proxies:
            return False
        self._avoid |= {self.proxy.name}
        try:
            self._next_proxy = await self._take_proxy(proxies, route.pool, untried=True)
        except AllProxiesRest:
            return False
        return True

    @property
    def tries_proxies(self) -> bool:
        """False if the first refusal decides."""
        return self._terms.max_proxies > 1

    @property
    def refused_by(self) -> int:
        """How many proxies of the current rung the site refused the page to, in this visit."""
        return len(self._refused)

    async def check_rest(self) -> None:
        """Raise AllProxiesRest if every proxy of the current rung rests for the site by now: then the site refuses us,
        and not this page. The page waits longer than the proxies, so that others are tried first. Not for ever: after
        PATIENT_RESTS its attempts count again."""
        proxies, pool, site = self._router.proxies, self.route.pool, self._task.site
        rest = await proxies.rest_at(pool, site) if proxies is not None and pool is not None else None
        if rest is not None and rest.strikes <= PATIENT_RESTS:
            wait = min(timedelta(seconds=2 * max(0.0, rest.until - self._router.clock.now())), 2 * LONGEST_WAIT)
            failure = AllProxiesRest(f"{site} refuses every proxy of pool {pool}.", wait=wait)
            failure.refused, failure.lane = True, self.lane
            raise failure

    def close(self) -> None:
        """The page needs no more attempts for now: pages that waited for its result go on."""
        self._memory.end_climb(self._pattern, self)


def lanes_of(
    serves: frozenset[str] | None, routes: Mapping[str, Route], ladder: Sequence[Route]
) -> frozenset[str] | None:
    """The lanes from which a worker that serves those routes or kinds of transport takes tasks; None: from all.

    Tasks that leave the route to the router wait in the lane "": a worker that serves the first rung begins with them.
    """
    if serves is None:
        return None
    lanes = {route.name for route in routes.values() if route.name in serves or route.transport in serves}
    lanes |= serves
    first = ladder[0]
    plain = first.name in serves or first.transport in serves
    return frozenset({*lanes, *(LANE_ONLY + lane for lane in lanes), *([""] if plain else [])})
