"""The only polite fetch loop: fetches a page, or a file of a source, by the cheapest route that gets through.

What it does: makes one attempt after the other and logs each. Every request is checked against robots.txt, paid for,
waits for the site's pace and leaves through the route's proxy. After a block the page climbs to a dearer route at once,
a dead proxy is replaced, and a request that failed on a stale connection is repeated when its turn comes; none of this
uses up an attempt of the page. A refusal that may be meant for the proxy (403, 429, a challenge) is tried through
others first, each in its turn. The differences between a leased page, a sitemap and `gossamer fetch` are arguments.
How it fails: FetchFailed or FetchRefused (of the last attempt), RouteFailed (no request can leave at the moment),
NoRoute (no route fits the request), RouteNotServed, and whatever `before_send` raises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import (
    AllProxiesRest,
    Blocked,
    BudgetSpent,
    ClientError,
    ConnectFailed,
    FetchFailed,
    FetchRefused,
    GossamerError,
    Misconfigured,
    NoRoute,
    ProxyFailed,
    ProxyRefused,
    RefusedByProxies,
    RouteFailed,
    StaleConnection,
    Walled,
)
from ..fetch.contract import Response
from ..fetch.fetcher import (
    AroundFetch,
    Disallowed,
    FetchedPage,
    Fetcher,
    NotModified,
    Outcome,
    PageRequest,
    Redirected,
    towards,
    without_login,
)
from ..fetch.robots import BeforeSend, Robots
from ..model import events
from ..model.payload import SAFE_METHODS
from ..model.task import DEFAULT_KIND, Task
from ..model.url import fingerprint, site_of
from ..routing.blocks import Block, judge, judge_redirect
from ..routing.router import PageRoute, Router
from ..settings import Settings
from ..terms import limits_of
from .attempt_log import AttemptLog
from .held_lease import HeldLease
from .unsafe_send import UnsafeSend

BANNING = ("forbidden", "challenge", "captcha")  # blocks that concern the visitor, or the page for everybody
REFUSED = (403, 429)  # statuses that say so, also where responses are not checked for blocks
ABOUT = 0.2  # sizes that differ by less than this share count as equal
NO_OTHER_ROUTE = "There is no other route to try it by: docs/routes.md says how to add one."
BY_STATUS = ("forbidden", "rate")  # blocks that the retry rules handle by status
SLOWING = (429, 503)  # statuses that ask for fewer requests, whatever the page says
FOR_GOOD = ("shell", "login")  # blocks that the same route will meet every time

Emit = Callable[..., None]
_NO_LEASE = nullcontext()


class FetchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the last attempt. `block` is set when the response is not the page and no dearer route is left.
    `refused_by` is how many proxies the site refused the page to, unless it is known to be forbidden to everybody.
    `is_only_route`: the ladder of the site has no other."""

    outcome: Outcome
    block: Block | None = None
    refused_by: int = 0
    is_only_route: bool = False

    def failure(self, url: str, status: int, by_status: GossamerError | None) -> GossamerError | None:
        """What the response means, where its status alone means `by_status`. A page that was refused to some proxies
        may come through others later."""
        by_block = failure_of_block(self.block, url, status) if self.block is not None else None
        failure = by_block or by_status
        if self.refused_by and isinstance(failure, ClientError):
            proxies = f"{self.refused_by} proxies" if self.refused_by > 1 else "the only proxy that is awake"
            failure = RefusedByProxies(f"{url} answered {status} to {proxies}.", status=status)
        if failure is not None and self.is_only_route and self.block is not None and self.block.kind in BANNING:
            failure.args = (f"{failure} {NO_OTHER_ROUTE}",)
        return failure


def _silent(kind: type[events.Event], /, **facts: Any) -> None:  # Any: the fields differ by event
    """For fetches that emit no events."""


async def _no_rest() -> None:
    """For fetches after which the site need not rest."""


class PageFetch:
    """The fetch of one page.

    `before_send` returns the gate of each request, which keeps the site's pace. `held` is the lease on the page; losing
    it ends the fetch. `emit` sends events to the monitor; `ease` makes all workers leave the site alone for a moment.
    `detects_blocks`: check responses for blocks. Pages with a status in `wanted_statuses` are wanted although it is an
    error. `once` watches over a request that must not be sent twice.
    """

    def __init__(
        self,
        task: Task,
        log: AttemptLog,
        *,
        fetcher: Fetcher,
        router: Router,
        before_send: BeforeSend,
        held: HeldLease | None = None,
        emit: Emit = _silent,
        ease: Callable[[], Awaitable[None]] = _no_rest,
        wanted_statuses: frozenset[int] = frozenset(),
        detects_blocks: bool = False,
        once: UnsafeSend | None = None,
    ) -> None:
        self.logs_in = False  # True: the page's session can log in, so a login wall is no reason to climb
        self._once = once
        self._task = task
        self._log = log
        self._fetcher = fetcher
        self._router = router
        self._before_send = before_send
        self._held = held
        self._emit = emit
        self._ease = ease
        self._wanted_statuses = wanted_statuses
        self._detects_blocks = detects_blocks
        self._repeated = False  # after a stale connection; done at most once
        self._is_file = False
        self._shows_page = True  # False for HEAD and OPTIONS
        self._refused = False  # the last response was a refusal that may be meant for the proxy
        self._forbidden = False  # ... but it is known to be meant for everybody
        self._small: int | None = None  # size in bytes of a response that seemed too small

    async def run(self, request: PageRequest) -> FetchResult:
        """Fetch the page."""
        self._is_file = request.into is not None
        self._shows_page = request.method not in ("HEAD", "OPTIONS")
        try:
            route = await self._router.begin(self._task)
        except Misconfigured as error:
            raise NoRoute(str(error)) from error
        answered = False
        try:
            while True:
                try:
                    outcome = await self._attempt(route, request)
                except RouteFailed as failure:
                    self._check_repeat(failure)
                    await self._go_on_after(failure, route)
                    continue
                except StaleConnection as failure:
                    if self._repeated:
                        raise
                    self._repeated = True
                    await self._log.keep(outcome="released", reason=failure.reason, error=str(failure))
                    self._log.begin_attempt()
                    continue
                except FetchFailed as failure:
                    self._check_repeat(failure)
                    await route.failed()
                    raise
                if isinstance(outcome, Disallowed):
                    return FetchResult(outcome=outcome)
                response = outcome.response
                if isinstance(outcome, Redirected) and (wall := self._login_wall(outcome)) is not None:
                    self._emit(events.Blocked, kind=wall.kind, route=self._log.route, message=wall.words)
                    return FetchResult(outcome=outcome, block=wall)  # no other route would be logged in
                if request.auth is not None and not answered and self._fetcher.may_answer(request, response):
                    answered = True  # only once: wrong credentials stay wrong
                    await self._log.keep(outcome="released", reason="login", error="the site asked for a digest login")
                    self._log.begin_attempt()
                    continue
                if self._once is not None and not self._once.repeats:
                    # The server has answered: another proxy or route would repeat the action.
                    block = self._block_in(outcome, response, route)
                    if block is None and not self._refused:
                        await route.passed(response)
                    return FetchResult(outcome=outcome, block=block, is_only_route=route.is_only)
                if _may_be_the_proxys(response, route) and route.another_proxy():
                    words = f"status {response.status}, by the proxy or by the site"
                    await self._log.keep(outcome="released", reason=ProxyFailed.reason, error=words)
                    self._log.begin_attempt()
                    continue
                block = self._block_in(outcome, response, route)
                if block is None and not self._refused:
                    await route.passed(response, teaches=self._small is None)
                    return FetchResult(outcome=outcome)
                refusal = block or Block("forbidden", f"status {response.status}", "")
                self._emit(events.Blocked, kind=refusal.kind, route=self._log.route, message=refusal.words)
                if self._refused and not self._forbidden and await route.next_proxy():
                    await self._log.keep(outcome="blocked", reason=f"blocked-{refusal.kind}", error=refusal.words)
                    self._log.begin_attempt()
                    if response.status == 429:
                        await self._ease()
                    continue
                if (
                    block is None
                    or block.kind == "rate"
                    or (self.logs_in and block.kind == "login")
                    or not await route.climb(block.kind)
                ):
                    if not self._refused or self._forbidden or not route.tries_proxies:
                        return FetchResult(outcome=outcome, block=block, is_only_route=route.is_only)
                    try:
                        await route.check_rest()
                    except RouteFailed:
                        await self._log.keep(outcome="blocked", reason=f"blocked-{refusal.kind}", error=refusal.words)
                        raise
                    refused_by, is_only = route.refused_by, route.is_only
                    return FetchResult(outcome=outcome, block=block, refused_by=refused_by, is_only_route=is_only)
                await self._log.keep(outcome="blocked", reason=f"blocked-{block.kind}", error=block.words)
                self._log.begin_attempt()
                if response.status in SLOWING:
                    await self._ease()
        finally:
            route.close()

    async def _attempt(self, route: PageRoute, request: PageRequest) -> Outcome:
        """Make one attempt by the current route; log its cost however it ends."""
        response: Response | None = None
        try:
            with self._held if self._held is not None else _NO_LEASE:
                try:
                    opened = await route.open()
                except Misconfigured as error:
                    raise NoRoute(str(error)) from error
                outcome = await self._fetcher.fetch(
                    request,
                    route.paid(self._before_send),
                    opened,
                    watch=self._once.watch if self._once is not None else None,
                    looking_up=self._held.keeping_turn if self._held is not None else None,
                )
            if not isinstance(outcome, Disallowed):
                response = outcome.response
                self._log.answered(response)
            return outcome
        except (FetchFailed, FetchRefused):
            self._log.not_answered()
            raise
        finally:
            await route.settle_cost(response)
            self._log.note_route(route.route, route.proxy, route.cost)
            if response is not None:
                self._emit(
                    events.Fetched,
                    status=response.status,
                    bytes=response.wire_bytes,
                    seconds=response.seconds,
                    route=route.route.name,
                    cost=route.cost,
                )

    def _check_repeat(self, failure: FetchFailed) -> None:
        """Raise Uncertain if the request may have arrived and must not be repeated."""
        if self._once is not None and (verdict := self._once.verdict(failure)) is not failure:
            raise verdict from failure

    async def _go_on_after(self, failure: RouteFailed, route: PageRoute) -> None:
        """Return if another proxy may be tried. Otherwise raise the failure, or ConnectFailed if the same route works
        for other pages."""
        failure.lane = route.lane
        if isinstance(failure, AllProxiesRest) and failure.refused and await route.climb("forbidden"):
            return  # the site refuses this rung
        if isinstance(failure, AllProxiesRest | BudgetSpent):
            raise failure
        if isinstance(failure, ProxyRefused):
            route.refused(str(failure), None, failure.status or 403)
            await self._log.keep(outcome="released", reason=failure.reason, error=str(failure))
            self._log.begin_attempt()
            if not await route.next_proxy():
                raise failure
            return
        if isinstance(failure, ProxyFailed):
            route.proxy_failed(str(failure))
        if self._router.memory.page_is_at_fault(self._task.fingerprint, route.route):
            of_page = ConnectFailed(
                f"{self._task.url} cannot be fetched by route {route.route.name}, which works for others: {failure}",
                status=failure.status,
            )
            of_page.is_not_the_sites_fault = True
            raise of_page from failure
        await self._log.keep(outcome="released", reason=failure.reason, error=str(failure))
        self._log.begin_attempt()
        if not isinstance(failure, ProxyFailed) or not route.another_proxy():
            raise failure

    def _login_wall(self, outcome: Redirected) -> Block | None:
        """Return the block if the redirect leads to a login page."""
        return judge_redirect(self._task.url, outcome.to) if self._detects_blocks else None

    def _block_in(self, outcome: Outcome, response: Response, route: PageRoute) -> Block | None:
        """Return the block if the response is not the page. Notes whether it is a refusal that may be meant for the
        proxy."""
        shown = self._shows_page and not response.taken
        self._refused = self._forbidden = False
        if not isinstance(outcome, FetchedPage) or response.verdict.wanted:
            return None
        if not self._detects_blocks or not shown:
            if route.proxy is not None and response.status in REFUSED and response.status not in self._wanted_statuses:
                self._note_refusal(f"status {response.status}", response, route)
            return None
        memory, site, kind = self._router.memory, self._task.site, self._task.kind
        usual = None if self._is_file else memory.usual_size(site, kind)
        block = judge(response, usual_size=usual, rendered=route.route.renders)
        if block is None or (block.kind in BY_STATUS and response.status in self._wanted_statuses):
            if not self._is_file:
                memory.note_size(site, kind, len(response.body))
            return None
        if block.kind == "shrunk" and self._came_before(len(response.body), route):
            # The same size came twice: the page really is small. That says nothing about the route.
            memory.note_size(site, kind, len(response.body))
            return None
        if block.kind in BANNING or response.status == 429:
            self._note_refusal(block.words, response, route)
        else:
            route.served(response)  # any visitor would have got the same response
        return block

    def _note_refusal(self, words: str, response: Response, route: PageRoute) -> None:
        self._refused = route.proxy is not None
        self._forbidden = route.refused(words, response, response.status)

    def _came_before(self, size: int, route: PageRoute) -> bool:
        before, self._small = self._small, size
        if before is None:
            return self._task.attempt > 0 and route.is_top
        return abs(size - before) <= ABOUT * max(size, before)


def _may_be_the_proxys(response: Response, route: PageRoute) -> bool:
    """A proxy without a tunnel answers in the site's place when it cannot reach the site."""
    return response.status in (502, 504) and route.proxy is not None and response.url.startswith("http:")


def failure_of_block(block: Block, url: str, status: int) -> Blocked | Walled | None:
    """The error for a block when no dearer route is left; None if the retry rules handle the status."""
    if block.kind in BY_STATUS:
        return None
    if block.kind in FOR_GOOD:
        hint = "Give it a route that renders: route = 'browser'." if block.kind == "shell" else ""
        return Walled(f"{url} gave no page: {block.words} {hint}".strip(), kind=block.kind, status=status)
    return Blocked(f"{url} gave no page: {block.words}", kind=block.kind, status=status)


def fetcher_of(
    settings: Settings,
    robots: Robots | None,
    obeys_robots: Callable[[str], bool],
    clock: Clock,
    *,
    max_body: int | None = None,
    around: AroundFetch | None = None,
) -> Fetcher:
    """A fetcher with the limits of the settings; `max_body`, if given, replaces theirs."""
    limits = limits_of(settings)
    return Fetcher(
        robots,
        obeys_robots,
        user_agent=settings.fetch.user_agent,
        limits=limits if max_body is None else msgspec.structs.replace(limits, max_body=max_body),
        max_redirects=settings.fetch.max_redirects,
        clock=clock,
        around=around,
    )


async def fetch_unqueued(
    request: PageRequest,
    *,
    fetcher: Callable[[str], Fetcher],
    router: Router,
    before_send: Callable[[str], BeforeSend],
    clock: Clock,
    redirected: Callable[[Redirected], None] | None = None,
) -> FetchedPage | NotModified | Disallowed:
    """Fetch a URL outside the queue: a file of a source, or a page for `gossamer fetch`. Attempts are not logged and
    blocks not detected. Redirects are followed; each is checked and paced like the first request.

    `fetcher` is called with the URL and `before_send` with the site of each request; `redirected` with every redirect.
    """
    request = without_login(request)
    while True:
        task = unqueued_task(request.url)
        log = AttemptLog(task, clock)
        fetch = PageFetch(
            task,
            log,
            fetcher=fetcher(request.url),
            router=router,
            before_send=before_send(task.site),
            once=None if request.method in SAFE_METHODS else UnsafeSend(None, repeats=False),
        )
        outcome = (await fetch.run(request)).outcome
        if not isinstance(outcome, Redirected):
            return outcome
        if redirected is not None:
            redirected(outcome)
        request = towards(request, outcome)


def unqueued_task(url: str) -> Task:
    """A task for a fetch outside the queue."""
    return Task(
        id=0,
        job="",
        url=url,
        fingerprint=fingerprint(url),
        site=site_of(url),
        kind=DEFAULT_KIND,
        priority=0,
        depth=0,
        attempt=0,
        max_attempts=1,
        created_at=0.0,
    )
