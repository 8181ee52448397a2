"""From a lease to an answer: the page is fetched by the cheapest way that lets it through.

What it does: one try after the other, each written into the log. A block climbs to a dearer rung at once, a dead
proxy is replaced by another; neither uses up a try of the page.
How it fails: FetchFailed or FetchRefused (the last try's), WayFailed (nothing can leave just now), TooEarly, Elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from ..errors import (
    AllExitsRest,
    Blocked,
    BudgetSpent,
    ConnectFailed,
    FetchFailed,
    FetchRefused,
    GossamerError,
    Misconfigured,
    NoWay,
    ProxyFailed,
    Walled,
    WayFailed,
)
from ..fetch.contract import Response
from ..fetch.fetcher import Disallowed, Fetched, Fetcher, Outcome, PageRequest
from ..fetch.way import Way
from ..model import events
from ..model.task import Task
from ..routing.blocks import Block, judge
from ..routing.router import Router
from ..routing.trip import Trip
from .attempt_log import AttemptLog
from .held_lease import HeldLease
from .pacer import Pacer

BANNING = ("forbidden", "challenge", "captcha")  # blocks that are about who comes, not about the page
ABOUT = 0.2  # sizes that differ by this share are the same
BY_STATUS = ("forbidden", "rate")  # blocks that the rules for retries know what to do with
SLOWING = (429, 503)  # statuses that ask for less, whatever else the page says
FOR_GOOD = ("shell", "login")  # blocks that the same route will give again and again


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer that the last try brought. `block` is set when it is no page and no rung was left."""

    outcome: Outcome
    block: Block | None = None


class Passage:
    """One page's way here. `emit` tells the monitor; `ease` gives the site a moment's rest, from all workers."""

    def __init__(
        self,
        task: Task,
        hold: HeldLease,
        log: AttemptLog,
        *,
        fetcher: Fetcher,
        router: Router,
        pacer: Pacer,
        emit: Callable[..., None],
        ease: Callable[[], Awaitable[None]],
        ignored: frozenset[int],
        detects: bool,
    ) -> None:
        self._task = task
        self._hold = hold
        self._log = log
        self._fetcher = fetcher
        self._router = router
        self._pacer = pacer
        self._emit = emit
        self._ease = ease
        self._ignored = ignored  # statuses whose pages the spider wants to see
        self._detects = detects
        self._small: int | None = None  # bytes of an answer that seemed to be too small

    async def make(self, visit: PageRequest) -> FetchResult:
        """Fetch the page."""
        try:
            trip = await self._router.begin(self._task)
        except Misconfigured as error:
            raise NoWay(str(error)) from error
        try:
            return await self._climb(trip, visit)
        finally:
            trip.over()

    async def _climb(self, trip: Trip, visit: PageRequest) -> FetchResult:
        while True:
            try:
                outcome = await self._try(trip, visit)
            except WayFailed as failure:
                await self._way_failed(trip, failure)
                continue
            response = None if isinstance(outcome, Disallowed) else outcome.response
            if response is None:
                return FetchResult(outcome=outcome)
            if self._may_be_the_proxys(response, trip) and trip.another_exit():
                words = f"status {response.status}, by the proxy or by the site"
                await self._log.keep(outcome="released", reason=ProxyFailed.reason, error=words)
                self._log.depart()
                continue
            block = self._judged(outcome, response, trip)
            if block is None:
                await trip.passed(response, teaches=self._small is None)
                return FetchResult(outcome=outcome)
            self._emit(events.Blocked, kind=block.kind, route=self._log.route, message=block.words)
            if block.kind == "rate" or not await trip.climb(block.kind):
                return FetchResult(outcome=outcome, block=block)
            await self._log.keep(outcome="blocked", reason=f"blocked-{block.kind}", error=block.words)
            self._log.depart()
            if response.status in SLOWING:
                await self._ease()

    async def _try(self, trip: Trip, visit: PageRequest) -> Outcome:
        """One try on the present rung; what it cost is in the log, however it ends."""
        response: Response | None = None
        try:
            with self._hold.travelling():
                way = await self._embark(trip)
                outcome = await self._fetcher.fetch(visit, trip.gate(self._gate), way)
            if not isinstance(outcome, Disallowed):
                response = outcome.response
                self._log.answered(response)
            return outcome
        except (FetchFailed, FetchRefused):
            self._log.gave_up()
            raise
        finally:
            await trip.settle_up(response)
            self._log.by(trip.route, trip.exit, trip.cost)
            if response is not None:
                self._emit(
                    events.Fetched,
                    status=response.status,
                    bytes=response.wire_bytes,
                    seconds=response.seconds,
                    route=trip.route.name,
                    cost=trip.cost,
                )

    async def _embark(self, trip: Trip) -> Way:
        try:
            return await trip.embark()
        except Misconfigured as error:
            raise NoWay(str(error)) from error

    async def _gate(self, asked: timedelta | None = None) -> Callable[[], None] | None:
        on_sent = await self._pacer.start(self._task.site, asked)
        self._hold.check()  # last of all: the process may have been stopped for minutes meanwhile
        return on_sent

    async def _way_failed(self, trip: Trip, failure: WayFailed) -> None:
        """Go on through another exit, or raise: the failure itself, or what it means when others get through."""
        failure.lane = trip.lane
        if isinstance(failure, AllExitsRest | BudgetSpent):
            raise failure
        route = trip.route
        if isinstance(failure, ProxyFailed):
            trip.failed(str(failure))
        if self._router.is_the_page(self._task.fingerprint, route):
            raise ConnectFailed(
                f"{self._task.url} cannot be had by route {route.name}, which works for others: {failure}",
                status=failure.status,
            ) from failure
        await self._note("released", failure)
        if not isinstance(failure, ProxyFailed) or not trip.another_exit():
            raise failure

    def _may_be_the_proxys(self, response: Response, trip: Trip) -> bool:
        """Without a tunnel a proxy answers in the site's place when it cannot reach it."""
        return response.status in (502, 504) and trip.exit is not None and response.url.startswith("http:")

    async def _note(self, outcome: str, failure: GossamerError) -> None:
        await self._log.keep(outcome=outcome, reason=failure.reason, error=str(failure))
        self._log.depart()

    def _judged(self, outcome: Outcome, response: Response, trip: Trip) -> Block | None:
        """Is what came the page? Through an exit, a block is also a mark against that exit."""
        if not isinstance(outcome, Fetched) or not self._detects:
            return None
        site, kind = self._task.site, self._task.kind
        block = judge(response, usual_size=self._router.usual_size(site, kind), rendered=trip.route.renders)
        if block is None or (block.kind in BY_STATUS and response.status in self._ignored):
            self._router.note_size(site, kind, len(response.body))
            return None
        if block.kind == "shrunk" and self._came_before(len(response.body), trip):
            # It came twice: the page is small, and that is all there is to it. So it teaches nothing about routes.
            self._router.note_size(site, kind, len(response.body))
            return None
        if block.kind in BANNING or response.status == 429:
            trip.banned(block.words, response)
        else:
            trip.served(response)  # whoever had come would have got the same
        return block

    def _came_before(self, size: int, trip: Trip) -> bool:
        before, self._small = self._small, size
        if before is None:
            return self._task.attempt > 0 and trip.is_top
        return abs(size - before) <= ABOUT * max(size, before)


def failure_of_block(block: Block, url: str, status: int) -> Blocked | Walled | None:
    """The error that a block means where no rung is left; None when the status says it as well."""
    if block.kind in BY_STATUS:
        return None
    if block.kind in FOR_GOOD:
        hint = "Give it a route that renders: route = 'browser'." if block.kind == "shell" else ""
        return Walled(f"{url} gave no page: {block.words} {hint}".strip(), kind=block.kind, status=status)
    return Blocked(f"{url} gave no page: {block.words}", kind=block.kind, status=status)
