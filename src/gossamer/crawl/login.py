"""`login()` of a spider, run: its requests, paced, checked, routed and logged as those of pages.

It runs within the journey of the page that found its session logged out, or for a person (`gossamer sessions login`).
How it fails: a `LoginResult` with the reason; only the loss of a lease and our own backends pass through. A login that
takes too long is ended.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Unpack

import msgspec

from ..errors import BackendUnavailable, FetchRefused, InvalidUrl, LeaseLost, ParseFailed
from ..fetch.contract import Gate
from ..fetch.cookies import CookieJar
from ..fetch.fetcher import Disallowed, Fetched, NotModified, PageRequest, Redirected, towards
from ..fetch.sessions import MOST_HEADERS, header_place
from ..model.payload import SAFE_METHODS, BadPayload, headers_of
from ..model.session import KeptSession
from ..model.task import Request, Sending, Task
from ..model.url import parse_url, site_of, user_in, without_user
from ..parse.forms import Form, Press, Value
from ..parse.page import Page
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..process.signals import is_cancellation
from .attempt_log import AttemptLog
from .context import JobContext
from .fetch_page import Emit, PageFetch, failure_of_block
from .held_lease import HeldLease
from .pacer import TooEarly
from .page_facts import snapshot_of
from .sessions import LOGIN, LoginResult, RunLogin
from .unsafe_send import UnsafeSend

KIND = "login"  # of its requests, in the log
MOST_REQUESTS = 100  # of one login

GateFor = Callable[[str, timedelta | None], Awaitable[Gate]]  # site, crawl-delay


def logs_in(spider: Spider) -> bool:
    return type(spider).login is not Spider.login


def login_of(context: JobContext, *, gate_for: GateFor, emit: Emit, held: HeldLease | None = None) -> RunLogin | None:
    """What logs a session of this job in; None for a spider without login(), and in a replay."""
    if not logs_in(context.spider) or not context.sessions.may_log_in:
        return None

    async def run(name: str, kept: KeptSession) -> LoginResult:
        session = LoginSession(context, name, kept, gate_for=gate_for, emit=emit, held=held)
        limit = TimeLimit(context.sessions.terms.timeout, context.time_limit.box, "sessions.login_timeout")
        try:
            await limit.run(_called(context.spider, session), f"the login of session {name}")
            headers_of(session.headers)
            if sum(map(len, (*session.headers, *session.headers.values()))) > MOST_HEADERS:
                raise ParseFailed(f"login() has put more than {MOST_HEADERS} characters into session.headers.")
        except (KeyboardInterrupt, LeaseLost, BackendUnavailable):
            raise
        except BaseException as error:  # SystemExit in a spider must not end the worker
            if is_cancellation(error):
                raise
            return LoginResult(error=_words(error))
        return LoginResult(headers=dict(session.headers), sites=session.header_sites())

    return run


async def _called(spider: Spider, session: LoginSession) -> None:
    given: Any = spider.login(session)  # Any: whatever the user's method returns
    if isinstance(given, Awaitable):
        await given


def _words(error: BaseException) -> str:
    text = str(error) or "no message"
    return text if isinstance(error, FetchRefused | ParseFailed) else f"{type(error).__name__}: {text}"


class LoginSession:
    """Fulfils `parse.session.Session`."""

    def __init__(
        self,
        context: JobContext,
        name: str,
        kept: KeptSession,
        *,
        gate_for: GateFor,
        emit: Emit,
        held: HeldLease | None = None,
    ) -> None:
        self.name = name
        self.headers: dict[str, str] = {}
        self._places: set[str] = set()
        self._context = context
        self._gate_for = gate_for
        self._emit = emit
        self._held = held
        self._requests = 0

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    @property
    def cookies(self) -> Mapping[str, str]:
        return MappingProxyType({cookie.name: cookie.value for cookie in self._jar.all()})

    @property
    def _jar(self) -> CookieJar:
        return self._context.sessions.jar(self.name + LOGIN)

    def header_sites(self) -> tuple[str, ...]:
        """Where `headers` may go: to the sites of the crawl that login() asked itself, not to those that it was
        redirected to. Where it asked none of them, because the token came from elsewhere, to that of the page."""
        if not self._places and self._held is not None:
            return (header_place(self._held.lease.task.url),)
        return tuple(sorted(self._places))

    def _is_own(self, url: str) -> bool:
        """Does the address belong to the crawl?"""
        page = self._held.lease.task if self._held is not None else None
        return (page is not None and page.site == site_of(url)) or self._context.admission.covers(url)

    async def get(self, url: str, **sending: Unpack[Sending]) -> Page:
        return await self.fetch(Request(url=url, **sending))

    async def post(self, url: str, **sending: Unpack[Sending]) -> Page:
        sending["method"] = sending.get("method", "POST")
        return await self.fetch(Request(url=url, **sending))

    async def submit(
        self, form: Form, values: Mapping[str, Value] | None = None, *, press: Press = None, **fields: Any
    ) -> Page:
        return await self.fetch(form.request({**(values or {}), **fields}, press=press))

    async def fetch(self, request: Request) -> Page:
        """Make the request and those that its redirects ask for. Raises FetchFailed, FetchRefused."""
        try:
            url = parse_url(request.address()).partition("#")[0]
            how = msgspec.structs.replace(request.wishes(), session=self.name + LOGIN)
        except (BadPayload, InvalidUrl) as error:
            shown = without_user(request.url[:200])
            raise FetchRefused(f"A request of login() cannot be made: {shown} {error}") from error
        if (user := user_in(url)) is not None:  # addresses are logged
            url, how = without_user(url), msgspec.structs.replace(how, auth=how.auth or user)
        own = self._is_own(url)
        if own:
            self._places.add(header_place(url))
        task = self._task(url, request)
        made = await self._context.requests.made_for(task, how, None)
        if self.headers and own:
            named = {name.lower() for name, _ in made.headers}
            more = tuple(pair for pair in self.headers.items() if pair[0].lower() not in named)
            private = made.private | {name.lower() for name, _ in more}
            made = msgspec.structs.replace(made, headers=(*made.headers, *more), private=private)
        while True:
            task = msgspec.structs.replace(task, how=msgspec.json.encode(how).decode(), redirects=made.redirects)
            outcome = await self._paced(task, made)
            if isinstance(outcome, Redirected):
                made = towards(made, outcome)
                task = self._task(made.url, request)
                continue
            return Page(snapshot_of(task, outcome), spider=self._context.spider)

    def _task(self, url: str, request: Request) -> Task:
        context = self._context
        return Task(
            id=0,
            job=context.job,
            url=url,
            fingerprint=context.admission.fingerprint(url),
            site=site_of(url),
            kind=KIND,
            priority=0,
            depth=0,
            attempt=0,
            max_attempts=1,
            created_at=context.clock.now(),
            fetcher=request.fetcher or context.spider.fetcher,
            proxy_pool=request.proxy_pool or context.spider.proxy_pool,
            country=request.country,
        )

    async def _paced(self, task: Task, request: PageRequest) -> Fetched | NotModified | Redirected:
        """One request, when its site allows it."""
        while True:
            try:
                return await self._once(task, request)
            except TooEarly as early:
                await self._context.clock.sleep(early.wait.total_seconds())

    async def _once(self, task: Task, request: PageRequest) -> Fetched | NotModified | Redirected:
        self._requests += 1
        if self._requests > MOST_REQUESTS:
            raise FetchRefused(f"login() has made more than {MOST_REQUESTS} requests. Is there a loop?")
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
        fetch.logs_in = True
        try:
            result = await fetch.run(request)
        except TooEarly:
            raise
        except Exception as error:
            await log.keep(outcome="dead", reason=KIND, error=str(error))
            raise
        outcome = result.outcome
        if isinstance(outcome, Disallowed):
            await log.keep(outcome="dropped", reason="robots", error=outcome.rule)
            raise FetchRefused(
                f"robots.txt forbids {outcome.url}, which login() asks for. If you may fetch it all the same, set "
                f'robots = false in [domains."{task.site}"].'
            )
        failure = None
        if result.block is not None and result.block.kind != "login":
            failure = failure_of_block(result.block, task.url, outcome.response.status)
        if failure is not None:
            await log.keep(outcome="dead", reason=KIND, error=str(failure))
            raise failure
        await log.keep(outcome="redirected" if isinstance(outcome, Redirected) else "done", reason=KIND)
        return outcome
