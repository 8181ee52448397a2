"""One page on its way: which rung it is on, through which exit it leaves, what it pays, and what its fate teaches."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from ..errors import BackendUnavailable
from ..fetch.contract import Response
from ..fetch.robots import Gate
from ..fetch.way import Through, Way
from ..model.route import DIRECT, Exit, ExitOutcome, Route
from ..model.task import LANE_ONLY, Task
from .budget import Receipt
from .contract import Standing
from .ladder import Plan, Terms, after_climb, after_probe, next_rung

if TYPE_CHECKING:
    from .router import Router

EXITS_AT_MOST = 3  # tries through a pool in one visit, one after the other


class RouteNotServed(Exception):
    """This worker does not serve the route; the task belongs into that lane."""

    def __init__(self, lane: str) -> None:
        super().__init__(lane)
        self.lane = lane


class Trip:
    """One page on its way, rung by rung. `way` is the present one; `cost` what the present try has cost so far."""

    def __init__(
        self,
        router: Router,
        task: Task,
        terms: Terms,
        chosen: Plan,
        standing: Standing | None,
        *,
        wished: bool = False,
    ) -> None:
        self._router = router
        self._wished = wished  # the spider chose the rungs
        self._task = task
        self._terms = terms
        self._plan = chosen
        self._standing = standing
        self._place = 0
        self._blocked: list[tuple[Route, str]] = []  # rungs that were tried in vain, and why
        self._avoid: frozenset[str] = frozenset()  # exits that failed on this trip
        self._exits_tried = 0  # on the present rung; a pool may have one exit only, so names do not count
        self._receipts: list[Receipt] = []
        self._received: list[int] = []  # bytes that came for each receipt
        self._bytes = 0  # of the present try
        self.way: Way | None = None
        self.cost = 0.0

    @property
    def route(self) -> Route:
        return self._plan.rungs[self._place]

    @property
    def exit(self) -> Exit | None:
        return self.way.exit if self.way is not None else None

    async def embark(self) -> Way:
        """Make the way of the present rung. Raises Elsewhere, AllExitsRest, MissingExtra, Misconfigured."""
        router, route, task = self._router, self.route, self._task
        if not router.serves(route):
            raise RouteNotServed(LANE_ONLY + (route.name if route.name in router.routes else route.transport))
        self.cost, self._bytes = 0.0, 0
        transports = router.transports
        pages, robots = await transports.for_pages(route), await transports.for_robots(route)
        if route is DIRECT and not task.how:
            self.way = Way(page=pages, robots=robots, jar=router.jar_for(route, None, None), route=route)
            return self.way
        wishes = task.wishes()
        exit: Exit | None = None
        if route.pool is not None:
            exit = await router.exits.take(
                route.pool,
                site=task.site,
                fingerprint=task.fingerprint,
                attempt=task.attempt,
                country=task.country,
                session=wishes.session,
                avoid=self._avoid,
            )
        self.way = Way(
            page=Through(
                pages,
                exit=exit,
                profile=route.profile,
                render=wishes.render,
                country=task.country,
                meter=self._count,
            ),
            robots=Through(robots, exit=exit, country=task.country, meter=self._count),
            jar=router.jar_for(route, exit, wishes.session),
            route=route,
            exit=exit,
        )
        return self.way

    def gate(self, pace: Gate) -> Gate:
        """The gate of every request of the present try: the toll first, then the site's pace."""

        async def paid(asked: timedelta | None) -> Callable[[], None] | None:
            self._receipts.append(await self._router.tolls.pay(self._task.site, self.route))
            self._received.append(0)
            try:
                return await pace(asked)
            except BaseException:
                self._received.pop()
                await self._settle(self._receipts.pop(), None)
                raise

        return paid

    def _count(self, received: int) -> None:
        if self._received:
            self._received[-1] += received

    async def settle_up(self, response: Response | None) -> None:
        """The present try is over, well or not: what it cost is known now."""
        receipts, self._receipts = self._receipts, []
        received, self._received = self._received, []
        self._bytes = sum(received)
        for number, (receipt, size) in enumerate(zip(receipts, received, strict=True)):
            last = number == len(receipts) - 1
            told = response.cost if response is not None and last else None
            self.cost += await self._settle(receipt, size, told)

    async def _settle(self, receipt: Receipt, received: int | None, told: float | None = None) -> float:
        try:
            return await self._router.tolls.settle(receipt, received, told)
        except BackendUnavailable:
            # What was taken too much stays taken. A page that is here is worth more than a few tokens.
            return receipt.route.cost(received) if received is not None else 0.0

    # -- how it went -----------------------------------------------------------------------------------------------

    async def passed(self, response: Response, *, teaches: bool = True) -> None:
        """An answer came that is no block. Only a page teaches something: an error is one on every rung."""
        router, site, route = self._router, self._task.site, self.route
        self.served(response)
        if not teaches or not (response.status < 300 or response.status == 304):
            return
        router.note_pass(site, route)
        if self._terms.learns:
            try:
                await self._learn(router, site, route)
            except BackendUnavailable:
                return  # the next page will teach the same

    async def _learn(self, router: Router, site: str, route: Route) -> None:
        now = router.clock.now()
        if self._plan.probes and self._place == 0 and self._standing is not None:
            await router.learn(after_probe(self._terms, self._standing, route, now), instead_of=self._standing)
        elif self._blocked and router.is_proven(site, self._blocked[0][0]):
            reason = self._blocked[-1][1]
            risen = after_climb(self._terms, self._standing, site=site, route=route, reason=reason, now=now)
            if risen is not None:
                await router.learn(risen, instead_of=self._standing)

    @property
    def is_top(self) -> bool:
        return self._place == len(self._plan.rungs) - 1

    @property
    def lane(self) -> str | None:
        """Where the page should wait if it cannot go on just now: it need not be blocked below once more."""
        climbed = self._place > 0 and not self._wished and self.route.name in self._router.routes
        return LANE_ONLY + self.route.name if climbed else None

    def served(self, response: Response) -> None:
        """The exit, if there is one, did what it should."""
        self._report(ExitOutcome.OK, response)

    def banned(self, words: str, response: Response) -> None:
        """The site does not serve this visitor: his exit, if he has one, should rest.

        Where no page of the site ever got through by this route, and a dearer one is left, it is the kind of exit that
        the site does not like. Other sites may like it well: it is not held against this one.
        """
        disliked = not self.is_top and not self._router.was_let_through(self._task.site, self.route)
        self._report(ExitOutcome.OK if disliked else ExitOutcome.BANNED, response, words)

    def climbed_before(self) -> None:
        """Another worker, or an earlier trip, was blocked below the rung on which this one begins."""
        place = self._terms.place_of(self.route.name)
        if place:
            self._blocked.append((self._terms.ladder[place - 1], "blocked before"))

    def begin_higher(self) -> None:
        """Skip the first rung, for a page that failed there again and again. That it gets through proves nothing."""
        self._place = min(1, len(self._plan.rungs) - 1)

    async def climb(self, reason: str) -> bool:
        """The present rung does not do. True when there is a higher one that may help, and the trip is on it now.

        One page of a site climbs at a time; those that are blocked meanwhile wait, and go where it got through.
        """
        router, site = self._router, self._task.site
        self._blocked.append((self.route, reason))
        higher = next_rung(self._plan.rungs, self._place, reason)
        if higher is None:
            return False
        if self._terms.learns and await router.wait_for_scout(site, but=self):
            standing = await router.standing(site)
            names = [rung.name for rung in self._plan.rungs]
            if standing is not None and standing.route in names[higher:]:
                higher, self._standing = names.index(standing.route), standing
        if self._terms.learns:
            router.send_scout(site, self)
        self._place = higher
        self._avoid, self._exits_tried = frozenset(), 0
        return True

    def over(self) -> None:
        """The trip has ended, well or not."""
        self._router.recall_scout(self._task.site, self)

    def failed(self, words: str) -> None:
        """The exit refused, hung up or is not there."""
        self._report(ExitOutcome.FAILED, None, words)

    def another_exit(self) -> bool:
        """True when the same rung may be tried once more, through another exit if there is one."""
        if self.exit is None:
            return False
        self._avoid |= {self.exit.name}
        self._exits_tried += 1
        return self._exits_tried < EXITS_AT_MOST

    def _report(self, outcome: ExitOutcome, response: Response | None, words: str = "") -> None:
        exit = self.exit
        if exit is None:
            return
        self._router.exits.report(
            exit,
            outcome,
            seconds=response.seconds if response is not None else 0.0,
            received=max(self._bytes, response.wire_bytes if response is not None else 0),
            tokens=self.cost,
            words=words,
            fingerprint=self._task.fingerprint,
        )
