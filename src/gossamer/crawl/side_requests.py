"""Requests that the user's code makes itself while its page is being processed: those of `login()`, and downloads
inside a Scrapy project's `start()`, middlewares and callbacks. They are paced, checked, routed and logged like those of
pages, but never queued.

How it fails: FetchFailed and FetchRefused are raised in the code that made the request; a lost lease and failures of
our own backends pass through it. A page that is retried makes its requests again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta

import msgspec

from ..errors import FetchRefused, InvalidUrl
from ..fetch.contract import Gate
from ..fetch.fetcher import Disallowed, FetchedPage, NotModified, PageRequest, Redirected, towards
from ..model.payload import SAFE_METHODS, BadPayload
from ..model.route import FetchOptions
from ..model.task import Request, Task
from ..model.url import parse_url, site_of, without_user
from ..parse.page import Page
from ..parse.page_context import ask_here, asking_by
from .attempt_log import AttemptLog
from .context import JobContext
from .fetch_page import Emit, PageFetch, failure_of_block
from .held_lease import HeldLease
from .pacer import TooEarly
from .page_facts import snapshot_of
from .unsafe_send import UnsafeSend

KIND = "by the way"  # the reason of such requests in the log, except those of a login
MOST_REQUESTS = 1000  # per page
DEEPEST = 10  # requests that the code around a side request makes in turn

GateFor = Callable[[str, timedelta | None], Awaitable[Gate]]  # site, crawl-delay
BeforeSend = Callable[[timedelta | None, str | None], Awaitable[Gate]]  # crawl-delay, another site


class SideRequests:
    """The side requests of one page or one login, one at a time. `kind` is their reason in the log, `who` names the
    asking code in messages; at most `most` are allowed."""

    def __init__(
        self,
        context: JobContext,
        *,
        kind: str,
        who: str,
        most: int,
        gate_for: GateFor,
        emit: Emit,
        held: HeldLease | None = None,
        logs_in: bool = False,
    ) -> None:
        self._context = context
        self._kind = kind
        self._who = who
        self._most = most
        self._gate_for = gate_for
        self._emit = emit
        self._held = held
        self._logs_in = logs_in
        self._session: str | None = None
        self._requests = 0
        self._depth = 0
        self._turn = asyncio.Lock()

    def task(self, url: str, request: Request) -> Task:
        context = self._context
        return Task(
            id=0,
            job=context.job,
            url=url,
            fingerprint=context.admission.fingerprint(url),
            site=site_of(url),
            kind=self._kind,
            priority=0,
            depth=0,
            attempt=0,
            max_attempts=1,
            created_at=context.clock.now(),
            fetcher=request.fetcher or context.spider.fetcher,
            proxy_pool=request.proxy_pool or context.spider.proxy_pool,
            country=request.country,
            data=msgspec.json.encode(request.data).decode() if request.data else "",
        )

    async def answer(self, url: str, request: Request, how: FetchOptions, made: PageRequest) -> Page:
        """Make the request and follow its redirects. Raises FetchFailed, FetchRefused."""
        task = self.task(url, request)
        while True:
            task = msgspec.structs.replace(task, how=msgspec.json.encode(how).decode(), redirects=made.redirects)
            async with self._turn:
                outcome = await self._paced(task, made)
            if isinstance(outcome, Redirected):
                made = towards(made, outcome)
                task = self.task(made.url, request)
                continue
            return Page(snapshot_of(task, outcome), spider=self._context.spider)

    async def _paced(self, task: Task, request: PageRequest) -> FetchedPage | NotModified | Redirected:
        """Make one request when its site's pace allows it."""
        while True:
            try:
                return await self._once(task, request)
            except TooEarly as early:
                await self._context.clock.sleep(early.wait.total_seconds())

    async def _once(self, task: Task, request: PageRequest) -> FetchedPage | NotModified | Redirected:
        self._requests += 1
        if self._requests > self._most:
            raise FetchRefused(f"{self._who} has made more than {self._most:,} requests. Is there a loop?")
        context = self._context
        log = AttemptLog(
            task,
            context.clock,
            worker=context.worker,
            spider=context.spider.name,
            parser_version=context.parser_version,
            sink=context.sink,
        )

        async def before_send(asked: timedelta | None = None, elsewhere: str | None = None) -> Gate:
            return await self._gate_for(elsewhere or task.site, asked)

        fetch = PageFetch(
            task,
            log,
            fetcher=context.fetcher,
            router=context.router,
            before_send=before_send,
            held=self._held,
            emit=self._emit,
            detects_blocks=context.detects_blocks(task.site),
            once=None if request.method in SAFE_METHODS else UnsafeSend(None, repeats=False),
        )
        fetch.logs_in = self._logs_in
        try:
            with self._asking_deeper():
                result = await fetch.run(request)
        except TooEarly:
            raise
        except Exception as error:
            await log.keep(outcome="dead", reason=self._kind, error=str(error))
            raise
        outcome = result.outcome
        if isinstance(outcome, Disallowed):
            await log.keep(outcome="dropped", reason="robots", error=outcome.rule)
            raise FetchRefused(
                f"robots.txt forbids {outcome.url}, which {self._who} requests. If you have permission to fetch it, "
                f'set robots = false in [domains."{task.site}"].'
            )
        failure = None
        if result.block is not None and not (self._logs_in and result.block.kind == "login"):
            failure = failure_of_block(result.block, task.url, outcome.response.status)
        if failure is not None:
            await log.keep(outcome="dead", reason=self._kind, error=str(failure))
            raise failure
        await log.keep(outcome="redirected" if isinstance(outcome, Redirected) else "done", reason=self._kind)
        return outcome

    def _asking_deeper(self) -> AbstractContextManager[None]:
        """Middlewares around this request may make requests in turn, while it holds the turn of its own level."""
        if ask_here() is None:
            return nullcontext()
        deeper = SideRequests(
            self._context, kind=self._kind, who=self._who, most=self._most - self._requests, gate_for=self._gate_for,
            emit=self._emit, held=self._held,
        )  # fmt: skip
        deeper._depth = self._depth + 1
        if deeper._depth > DEEPEST:
            raise FetchRefused(f"{self._who} has made {DEEPEST} requests within each other. Is there a loop?")
        return deeper.asking(self._session)

    def asking(self, session: str | None) -> AbstractContextManager[None]:
        """A context in which code can make requests by this object, as the visitor of the session."""
        self._session = session

        async def ask(request: Request) -> Page:
            try:
                url = without_user(parse_url(request.address()).partition("#")[0])  # it may be a link of the page
                options = msgspec.structs.replace(request.options(), session=session)
            except (BadPayload, InvalidUrl) as error:
                shown = without_user(request.url[:200])
                raise FetchRefused(f"The request for {shown} cannot be made: {error}") from error
            made = await self._context.requests.made_for(self.task(url, request), options, None)
            return await self.answer(url, request, options, made)

        return asking_by(ask)


def allow_side_requests(
    context: JobContext, held: HeldLease, how: FetchOptions | None, before_send: BeforeSend, emit: Emit
) -> AbstractContextManager[None]:
    """A context in which the code of the page can make requests, if its spider may: as the same visitor."""
    if not context.spider._makes_side_requests:
        return nullcontext()

    async def gate(site: str, asked: timedelta | None) -> Gate:
        return await before_send(asked, site)

    side = SideRequests(context, kind=KIND, who="the spider", most=MOST_REQUESTS, gate_for=gate, emit=emit, held=held)
    return side.asking(how.session if how is not None else None)


def allow_requests_of_start(context: JobContext) -> AbstractContextManager[None]:
    """A context in which the code that makes the seeds can make requests, if its spider may."""
    if not context.spider._makes_side_requests:
        return nullcontext()

    async def gate(site: str, asked: timedelta | None) -> Gate:
        return await context.unleased_turns.gate(site, lambda: None)

    def silent(*given: object, **facts: object) -> None:
        """These events are about leased pages."""

    side = SideRequests(context, kind=KIND, who="the spider", most=MOST_REQUESTS, gate_for=gate, emit=silent)
    return side.asking(None)
