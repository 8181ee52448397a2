"""Runs a spider's `login()`: its requests are paced, checked, routed and logged like those of pages.

It runs inside the journey of the page that found its session logged out, or for `gossamer sessions login`.
How it fails: a `LoginResult` with the reason; only a lost lease and failures of our own backends are raised. A login
that takes too long is stopped.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from types import MappingProxyType
from typing import Any, Unpack

import msgspec

from ..errors import BackendUnavailable, FetchRefused, InvalidUrl, LeaseLost, ParseFailed
from ..fetch.cookies import CookieJar
from ..fetch.sessions import MOST_HEADERS, header_place
from ..model.payload import BadPayload, headers_of
from ..model.session import KeptSession
from ..model.task import Request, Sending
from ..model.url import parse_url, site_of, user_in, without_user
from ..parse.forms import Form, Press, Value
from ..parse.page import Page
from ..parse.spider import Spider
from ..parse.timelimit import TimeLimit
from ..process.signals import is_cancellation
from .context import JobContext
from .fetch_page import Emit
from .held_lease import HeldLease
from .sessions import LOGIN, LoginResult, RunLogin
from .side_requests import GateFor, SideRequests

KIND = "login"  # the kind of its requests in the log
MOST_REQUESTS = 100  # per login


def logs_in(spider: Spider) -> bool:
    return type(spider).login is not Spider.login


def login_of(context: JobContext, *, gate_for: GateFor, emit: Emit, held: HeldLease | None = None) -> RunLogin | None:
    """The function that logs in a session of this job; None for a spider without login(), and in a replay."""
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
        except BaseException as error:  # SystemExit in the spider's code must not end the worker
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
        self._held = held
        self._side = SideRequests(
            context, kind=KIND, who="login()", most=MOST_REQUESTS, gate_for=gate_for, emit=emit, held=held, logs_in=True
        )

    def __repr__(self) -> str:
        return f"Session({self.name!r})"

    @property
    def cookies(self) -> Mapping[str, str]:
        return MappingProxyType({cookie.name: cookie.value for cookie in self._jar.all()})

    @property
    def _jar(self) -> CookieJar:
        return self._context.sessions.jar(self.name + LOGIN)

    def header_sites(self) -> tuple[str, ...]:
        """The sites that may receive `headers`: those of the crawl that login() itself requested, not redirect targets.
        If it requested none of them, because the token came from elsewhere, the site of the page."""
        if not self._places and self._held is not None:
            return (header_place(self._held.lease.task.url),)
        return tuple(sorted(self._places))

    def _is_own(self, url: str) -> bool:
        """Does the URL belong to the crawl?"""
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
        """Make the request and follow its redirects. Raises FetchFailed, FetchRefused."""
        try:
            url = parse_url(request.address()).partition("#")[0]
            how = msgspec.structs.replace(request.options(), session=self.name + LOGIN)
        except (BadPayload, InvalidUrl) as error:
            shown = without_user(request.url[:200])
            raise FetchRefused(f"A request of login() cannot be made: {shown} {error}") from error
        if (user := user_in(url)) is not None:  # URLs are logged
            url, how = without_user(url), msgspec.structs.replace(how, auth=how.auth or user)
        own = self._is_own(url)
        if own:
            self._places.add(header_place(url))
        made = await self._context.requests.made_for(self._side.task(url, request), how, None)
        if self.headers and own:
            named = {name.lower() for name, _ in made.headers}
            more = tuple(pair for pair in self.headers.items() if pair[0].lower() not in named)
            private = made.private | {name.lower() for name, _ in more}
            made = msgspec.structs.replace(made, headers=(*made.headers, *more), private=private)
        return await self._side.answer(url, request, how, made)
