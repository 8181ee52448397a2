"""One page in one browser context: opened, made ready, read, closed.

How it fails: FetchFailed or FetchRefused; Playwright's Error when the browser itself is gone, which the transport
recognises. How it recovers: closing the context removes everything of the page.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import ConnectionDropped, FetchRefused, PageCrashed
from ...model.page import Headers
from ...model.route import Render
from ...model.session import Cookie
from ...model.url import origin_of
from ..contract import Response, TransportRequest
from .browser_cookies import browser_cookie, cookie_changes
from .browser_errors import translated
from .guard import GuardProxy, Pass
from .main_frame import KINDS, MOST_MOVES, FrameAnswer, MainFrame, Pairs, with_port
from .page_actions import (
    MAX_REQUESTS,
    SCREEN,
    PageTraffic,
    action_words,
    make_ready,
    obstacle,
    read_page,
    stop_page,
    take_picture,
)

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, CDPSession, Dialog, Download, Page, Request

# Set by the browser itself: they must match each other and what scripts see.
_BROWSERS_OWN = frozenset({
    "accept", "accept-encoding", "accept-language", "connection", "content-length", "cookie", "expect", "host",
    "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "upgrade-insecure-requests", "user-agent",
})  # fmt: skip
_OF_THE_WIRE = frozenset({"connection", "content-encoding", "transfer-encoding"})
_OBSTACLE_PATIENCE = 2.0  # seconds
_NO_LONGER_TRUE = _OF_THE_WIRE | {"content-type", "content-length"}


class BrowserPage:
    """Call `run` once; then `close`, whatever happened."""

    def __init__(
        self,
        browser: Browser,
        gate: GuardProxy,
        gate_pass: Pass,
        request: TransportRequest,
        block: tuple[str, ...],
        settle: float,
        patience: float,
    ) -> None:
        self._browser = browser
        self._gate = gate
        self._pass = gate_pass
        self._request = request
        self._render = request.render or Render()
        self._block = block if self._render.block is None else self._render.block
        self._settle = settle
        self._patience = patience
        self._page: Page | None = None
        self._opening: asyncio.Task[BrowserContext] | None = None
        self._documents: MainFrame | None = None
        self._traffic: PageTraffic | None = None
        self._crashed = asyncio.Event()
        self._broken = asyncio.Event()
        self._stopped = asyncio.Event()  # it made too many requests or navigations
        self._how_broken = ""  # in the browser's words
        self._notes: list[str] = []
        self._unfinished = ""
        self._lent: list[tuple[str, str]] = []  # cookies for this page alone, name and value
        self._given: list[Cookie] = []  # cookies of the site that the browser accepted
        self._left: tuple[Cookie, ...] = ()  # cookies that the page has changed

    @property
    def at(self) -> str:
        """The spider's action or wait that is in progress."""
        return (
            action_words(self._traffic.action) if self._traffic is not None and self._traffic.action is not None else ""
        )

    async def obstacle(self) -> str:
        """What prevents the action, as far as the page can tell."""
        from playwright.async_api import Error

        if self._page is None or self._traffic is None or self._traffic.action is None:
            return ""
        try:
            async with asyncio.timeout(_OBSTACLE_PATIENCE):
                return await obstacle(self._page, self._traffic.action)
        except TimeoutError:
            return "a script keeps the page busy"
        except Error:
            return ""  # it is navigating right now

    async def run(self) -> Response:
        """Show the page and return the response. Raises FetchFailed, FetchRefused, Playwright's Error."""
        unknown = [kind for kind in self._block if kind not in KINDS]
        if unknown:
            raise FetchRefused(f"The browser cannot block {unknown[0]!r}; it knows {', '.join(KINDS)}.")
        page, session = await self._open()
        work = asyncio.create_task(self._work(page, session))
        crash = asyncio.create_task(self._crashed.wait())
        try:
            await asyncio.wait((work, crash), return_when=asyncio.FIRST_COMPLETED)
            if self._crashed.is_set():
                raise PageCrashed(
                    f"{self._request.url[:200]}: the page crashed. The usual cause is too much memory "
                    "(browser.page_memory)."
                )
            return await work
        finally:
            for task in (work, crash):
                task.cancel()
            await asyncio.gather(work, crash, return_exceptions=True)

    async def close(self) -> None:
        """Close the context with everything of the page, its processes included. Callers set the timeout, in case it
        hangs."""
        from playwright.async_api import Error

        if self._documents is not None:
            await self._documents.close()
        if self._opening is not None:
            with suppress(Error):  # the browser is gone, and the context with it
                await (await self._opening).close()

    async def _open(self) -> tuple[Page, CDPSession]:
        named = {name.lower(): value for name, value in self._request.headers}
        options: dict[str, Any] = {"user_agent": named["user-agent"]} if named.get("user-agent") else {}
        language = named.get("accept-language", "").partition(",")[0].partition(";")[0].strip()
        if language and language != "*":
            options["locale"] = language
        # A separate task: if the caller gives up while the context opens, it must still be closed.
        self._opening = asyncio.create_task(self._new_context(options))
        context = await asyncio.shield(self._opening)
        context.set_default_timeout(0)  # only the transport's clock counts
        await self._give_cookies(context, named.get("cookie", ""))
        page = self._page = await context.new_page()
        context.on("page", lambda other: self._dismiss(other))
        page.on("crash", lambda _: self._crashed.set())
        page.on("requestfailed", self._failed)
        page.on("dialog", lambda dialog: self._later(_answer(dialog)))
        session = await context.new_cdp_session(page)
        self._documents = MainFrame(
            session,
            self._pass,
            headers=tuple(
                pair
                for pair in self._request.headers
                if pair[0].lower() not in _BROWSERS_OWN and not pair[0].lower().startswith(("sec-", "proxy-"))
            ),
            method=self._request.method,
            body=self._request.body,
            block=self._block,
            max_body=self._request.limits.max_body,
            max_header=self._request.limits.max_header,
            max_moves=MOST_MOVES * (1 + sum(action.most for action in self._render.actions)),
            on_restless=lambda: self._later(self._stop(session)),
        )
        page.on("download", self._refuse_download)
        self._traffic = PageTraffic(self._pass, page, self._documents, lambda: self._too_many(page, session))
        await self._documents.open()
        return page, session

    async def _new_context(self, options: dict[str, Any]) -> BrowserContext:
        return await self._browser.new_context(
            proxy={"server": self._gate.address, "bypass": "<-loopback>"},
            accept_downloads=False,
            service_workers="block",  # useless in a context that lives for one page
            viewport=SCREEN,
            permissions=[],
            **options,
        )

    def _failed(self, request: Request) -> None:
        """The browser shows a partial document like a complete one; we must know the difference."""
        assert self._documents is not None
        latest = self._documents.latest
        if latest is None or request.url != latest.url or not request.is_navigation_request():
            return
        said = request.failure or ""
        if request.frame.parent_frame is not None or "ERR_ABORTED" in said:
            return
        if "ERR_HTTP_RESPONSE_CODE_FAILURE" in said:
            # An error status without a body, for which the browser shows its own error page.
            self._documents.catch(latest)
        else:
            self._how_broken = said
            self._broken.set()

    def _too_many(self, page: Page, session: CDPSession) -> None:
        """Events of a page that makes requests without end would keep the whole worker busy."""
        page.remove_listener("requestfailed", self._failed)
        self._later(self._stop(session))

    async def _stop(self, session: CDPSession) -> None:
        try:
            await stop_page(session)
        finally:
            self._stopped.set()

    def _refuse_download(self, download: Download) -> None:
        assert self._documents is not None
        self._documents.refused_download = download.url
        self._later(download.cancel())

    def _dismiss(self, other: Page) -> None:
        """Close a window that the page opened."""
        self._later(other.close())

    def _later(self, work: Any) -> None:  # Any: a coroutine with any result
        assert self._documents is not None
        self._documents.begin(work)

    async def _give_cookies(self, context: BrowserContext, line: str) -> None:
        """Add the site's cookies with all their flags; cookies found only in the Cookie header are for this page
        alone."""
        known = {(cookie.name, cookie.value) for cookie in self._request.cookies}
        for part in filter(None, (part.strip() for part in line.split(";"))):
            name, equals, value = part.partition("=")
            pair = (name, value) if equals else ("", part)
            if pair not in known:
                self._lent.append(pair)
        here = origin_of(self._request.url) + "/"
        lent = [{"name": name, "value": value, "url": here} for name, value in self._lent]
        if not lent and not self._request.cookies:
            return
        for cookie in (*map(browser_cookie, self._request.cookies), *lent):
            await self._give(context, cookie)
        # A cookie that the browser rejected must not count as deleted later.
        taken = {cookie.key for cookie in cookie_changes((), await context.cookies())}
        self._given = [cookie for cookie in self._request.cookies if cookie.key in taken]
        refused = len(self._request.cookies) + len(lent) - len(taken)
        if refused > 0:
            self._notes.append(f"the browser rejected {refused} of the cookies")

    async def _give(self, context: BrowserContext, cookie: Any) -> None:  # Any: the library does not export its type
        from playwright.async_api import Error

        try:
            await context.add_cookies([cookie])
        except Error:
            if not self._browser.is_connected():
                raise

    async def _work(self, page: Page, session: CDPSession) -> Response:
        from playwright.async_api import Error

        assert self._documents is not None
        assert self._traffic is not None
        work = asyncio.create_task(self._show(page, session))
        caught = self._documents.caught
        try:
            await asyncio.wait((work, caught), return_when=asyncio.FIRST_COMPLETED)
            if not caught.done() and isinstance(work.exception(), Error):
                # A navigation that we stopped fails as well; `caught` tells more.
                await self._documents.idle()
            if caught.done():
                return await self._raw(caught.result())
            return await work
        except Error as error:
            if self._crashed.is_set() or not self._browser.is_connected() or page.is_closed():
                raise
            raise translated(str(error), self._request.url, self._pass, self.at) from error
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _show(self, page: Page, session: CDPSession) -> Response:
        """Open the page, make it ready, read it."""
        assert self._documents is not None
        assert self._traffic is not None
        await page.goto(self._request.url, wait_until="commit", timeout=0)
        await self._ready(page)
        limit = self._request.limits.max_body
        url, text = await read_page(session, limit)
        shown = self._documents.answer_to(url)
        picture = await take_picture(page) if self._render.screenshot else b""
        if len(picture) > limit:
            self._notes.append(f"the screenshot has {len(picture)} bytes, more than {limit}, and was dropped")
            picture = b""
        body = text.encode("utf-8", "replace")
        if url.startswith("chrome-error:") or shown is None:
            to = self._documents.asked
            raise self._pass.trouble(with_port(to)) or ConnectionDropped(
                f"{self._request.url[:200]}: the page navigated to {to[:200]}, which could not be opened."
            )
        headers = await self._headers_of(shown)
        kept = tuple(pair for pair in headers if pair[0].lower() not in _NO_LONGER_TRUE)
        answer = msgspec.structs.replace(
            shown,
            url=url if url.startswith(("http:", "https:")) else shown.url,
            headers=(("Content-Type", "text/html; charset=utf-8"), *kept),
            body=body[:limit],
            cut=len(body) > limit or self._broken.is_set(),
        )
        return self._response(answer, picture)

    async def _ready(self, page: Page) -> None:
        """Wait until the page may be read. A document that broke off is never ready: the browser waits for its end."""
        assert self._traffic is not None
        ready = asyncio.create_task(make_ready(page, self._traffic, self._render, self._settle, self._patience))
        broken = asyncio.create_task(self._broken.wait())
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((ready, broken, stopped), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                self._unfinished = ready.result()
            elif self._stopped.is_set() and (self._render.wait_for or self._render.actions):
                raise PageCrashed(
                    f"{self._request.url[:200]}: the page was stopped before it was ready: {self._too_much()}."
                )
            if self._broken.is_set() and not self._pass.spent:  # else we broke it off ourselves
                raise translated(self._how_broken, self._request.url, self._pass)
        finally:
            for task in (ready, broken, stopped):
                task.cancel()
            await asyncio.gather(ready, broken, stopped, return_exceptions=True)

    async def _headers_of(self, answer: FrameAnswer) -> Pairs:
        assert self._documents is not None
        assert self._opening is not None
        headers = await self._documents.headers_of(answer)
        found = await (await self._opening).cookies()
        self._left = cookie_changes(self._given, found, lent=self._lent)
        if answer.url != self._request.url.partition("#")[0]:
            # The page navigated. Set-Cookie lines of another document would count as those of the requested one.
            return tuple(pair for pair in headers if pair[0].lower() != "set-cookie")
        return headers

    async def _raw(self, answer: FrameAnswer) -> Response:
        headers = await self._headers_of(answer)
        kept = tuple(pair for pair in headers if pair[0].lower() not in _OF_THE_WIRE)
        return self._response(msgspec.structs.replace(answer, headers=kept), b"")

    def _too_much(self) -> str:
        """Why the page was stopped."""
        assert self._documents is not None
        assert self._traffic is not None
        if self._documents.restless:
            return "it navigated again and again"
        asked = self._traffic.too_many or self._pass.requests > MAX_REQUESTS
        return f"more than {MAX_REQUESTS} requests" if asked else ""

    def _response(self, answer: FrameAnswer, picture: bytes) -> Response:
        assert self._documents is not None
        assert self._traffic is not None
        notes, unfinished = list(self._notes), self._unfinished
        if too_much := self._too_much():
            unfinished = too_much
        elif self._pass.spent:
            unfinished = f"more than {self._pass.max_bytes} bytes"
        notes.append(unfinished)
        if self._pass.overdone:
            notes.append(f"asked too much of {', '.join(self._pass.overdone[:5])}")
        if self._pass.refused:
            notes.append(f"refused: {', '.join(self._pass.refused[:5])}")
        if self._documents.refused_download:
            notes.append(f"refused the download of {self._documents.refused_download[:200]}")
        return Response(
            url=answer.url,
            status=answer.status,
            headers=Headers(answer.headers),
            body=answer.body or b"",
            cut=answer.cut,
            wire_bytes=self._pass.received,
            address=self._pass.address,
            note="; ".join(filter(None, notes)),
            unfinished=unfinished,
            screenshot=picture,
            cookies=self._left,
        )


async def _answer(dialog: Dialog) -> None:
    """Decline every dialog, except that a page that asks whether to leave it is left."""
    await (dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())
