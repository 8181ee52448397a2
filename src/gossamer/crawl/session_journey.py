"""The journey of a page or a file in a session: the steps before its request and after its response that other journeys
do not need.

    before  log the session in, if its spider can; add its headers to the request; keep the request's own cookies in the
            session, if the spider wants that
    after   write changed cookies to the state at once, for the whole fleet
    judge   a page that is logged out is fetched again after the next login, and uses up no attempt
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from ..errors import BackendUnavailable, GossamerError, LoginFailed, ParseFailed
from ..fetch.contract import Gate
from ..fetch.fetcher import FetchedPage, PageRequest, Redirected
from ..model import events
from ..model.page import Headers
from ..model.record import PageFacts
from ..parse.page import Page
from ..parse.spider import Spider
from ..routing.blocks import judge_redirect
from .context import JobContext
from .fetch_page import BANNING, FetchResult, PageFetch
from .file_journey import FileJourney
from .held_lease import HeldLease
from .journey import Journey
from .login import login_of
from .page_facts import snapshot_of
from .page_request import merged
from .sessions import SessionVisit

LOGGED_OUT = "logged out"  # the reason of a task that is fetched again after a login
UNAUTHORIZED = 401


class _InSession(Journey):
    def __init__(self, context: JobContext, held: HeldLease, known: PageFacts | None = None) -> None:
        super().__init__(context, held, known)
        self._session = (self._how.session if self._how is not None else None) or ""
        self._login = login_of(context, gate_for=self._gate_of_login, emit=self._emit, held=held)
        self._visit = SessionVisit(self._session, 1, 0)

    async def _gate_of_login(self, site: str, asked: timedelta | None) -> Gate:
        return await self._before_send(asked, site)

    # -- before and after the request ------------------------------------------------------------------------------

    async def _fetch(self) -> FetchResult:
        async with self._held.keeping_turn(self._task.site):  # other pages may wait for this login
            self._visit = await self._context.sessions.enter(self._session, self._login)
        result = None
        try:
            result = await super()._fetch()
            return result
        finally:
            await self._keep(result)

    async def _keep(self, result: FetchResult | None) -> None:
        context, block = self._context, result.block if result is not None else None
        try:
            await context.sessions.keep_cookies(self._session)
            if block is not None and block.kind in BANNING and context.spider.sessions:
                await context.sessions.was_blocked(self._visit, for_sure=block.kind != "forbidden")
        except BackendUnavailable as error:
            self._emit(events.Trouble, stage="session", message=f"{error} Cookies are written with the next page.")

    async def _request(self) -> PageRequest:
        request = await super()._request()
        if request.cookies and self._context.spider._keeps_own_cookies:
            lines = Headers([("set-cookie", f"{name}={value}") for name, value in request.cookies])
            self._context.sessions.jar(self._session).absorb(request.url, lines)
            request = msgspec.structs.replace(request, cookies=())
        headers = self._context.sessions.headers(self._session, self._task.url)
        if headers:
            request = msgspec.structs.replace(
                request,
                headers=merged(tuple(headers.items()), request.headers),
                private=request.private | {name.lower() for name in headers},
            )
        # A login page is mostly reached by a redirect: logged_out() must see it.
        return msgspec.structs.replace(request, follows=True) if self._login is not None else request

    def _page_fetch(self) -> PageFetch:
        fetch = super()._page_fetch()
        fetch.logs_in = self._login is not None
        return fetch

    # -- judge -------------------------------------------------------------------------------------------------------

    async def _settle(self, result: FetchResult) -> None:
        outcome, sessions = result.outcome, self._context.sessions
        if not isinstance(outcome, FetchedPage | Redirected):
            await super()._settle(result)
            return
        page = self._task.fingerprint.hex()
        try:
            logged_out = self._login is not None and await self._is_logged_out(result)
        except ParseFailed as failure:
            await self._fail(failure, failure.detail)
            return
        if logged_out:
            why = await self._held.settle(lambda: sessions.was_turned_away(self._visit, page))
            await self._turn_away(LoginFailed(f"{self._task.url}: {why}") if why else None)
            return
        block = result.block
        if self._login is not None and block is not None and block.kind == "login":
            block = None  # the spider has seen the response, and says that it is the page
        if block is None and outcome.response.status < 400:
            await self._held.settle(lambda: sessions.was_let_in(self._visit, page))
        await super()._settle(msgspec.structs.replace(result, block=block))

    async def _turn_away(self, failure: GossamerError | None) -> None:
        """Release the page, to be fetched after the next login; or give it up."""
        await self._site.answered()
        if failure is not None:
            await self._fail(failure)
            return
        if self._once is not None:  # a login wall answered the POST, which did not reach its target
            await self._once.withdraw()
            await self._held.settle(lambda: self._context.frontier.note_sent(self._lease, sent=False))
        await self._log.keep(outcome="released", reason=LOGGED_OUT, error=f"session {self._session} was logged out")
        await self._release(timedelta(0), LOGGED_OUT)

    async def _is_logged_out(self, result: FetchResult) -> bool:
        """Raises ParseFailed."""
        outcome, spider, task = result.outcome, self._context.spider, self._task
        assert isinstance(outcome, FetchedPage | Redirected)
        if isinstance(outcome, Redirected) and judge_redirect(task.url, outcome.to) is not None:
            return True
        response = outcome.response
        if type(spider).logged_out is Spider.logged_out:
            if response.status == UNAUTHORIZED or (result.block is not None and result.block.kind == "login"):
                return True
            return judge_redirect(task.url, response.url) is not None
        snapshot = snapshot_of(task, outcome)

        async def ask() -> bool:
            return bool(spider.logged_out(Page(snapshot, depth=task.depth, spider=spider)))

        try:
            return await self._context.time_limit.run(ask(), task.url)
        except ParseFailed:
            raise
        except Exception as error:  # of the spider's code
            brief = f"{type(error).__name__}: {error}"
            raise ParseFailed(f"{type(spider).__name__}.logged_out failed on {response.url}: {brief[:500]}") from error


class SessionJourney(_InSession):
    """One lease on a page of a session."""


class SessionFileJourney(_InSession, FileJourney):
    """One lease on a file of a session."""
