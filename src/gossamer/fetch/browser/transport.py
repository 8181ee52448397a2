"""The browser transport: renders pages with their scripts. Behind it are a pool of browsers and a guard proxy.

What it does: takes a seat in a browser and a pass at the guard proxy, has the page shown, and returns both.
How it fails: FetchFailed or FetchRefused like every transport; TimedOut and PageCrashed use up an attempt of the page,
BrowserFailed and ProxyFailed do not.
How it recovers: a page whose browser dies is shown once more in a new one; if a context does not close in time, its
browser is killed, so that no script goes on using the processor. If a page makes its browser use far too much memory,
the browser is killed and the page is not shown again.

Only the main document is paced: once its connection is open, its request waits in the guard proxy until it may be sent.
The page's other requests are not paced, but limited to MAX_REQUESTS, with lower limits for each foreign site
(guard_traffic.py), and the kinds in `browser.block` are not loaded at all.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Self

import msgspec

from ...errors import BrowserFailed, FetchRefused, GossamerError, Misconfigured, PageCrashed, TimedOut
from ...model.payload import SAFE_METHODS
from ...model.url import site_of
from ...settings.tables import Browser as BrowserSettings
from ..addresses import AddressGuard
from ..contract import Limits, Response, TransportRequest
from .browser_page import BrowserPage
from .guard import GuardProxy
from .main_frame import KINDS
from .page_actions import MAX_REQUESTS
from .pool import BrowserPool, BrowserProcess

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_UNSAFE_URL = re.compile(r"[^\x21-\x7e]")
_CLOSE_PATIENCE = 5.0  # seconds
_GONE_PATIENCE = 2.0  # seconds; the report of a death may come later than its effects
_BYTES_FACTOR = 10  # a page with all its resources may be ten times the limit of one body


class _BrowserGoneError(Exception):
    """The browser died during the visit."""


class BrowserTransport:
    """Open while entered. No browser runs before the first page. `tls` is for proxies that speak TLS.

    `flags` are passed to Chromium after our own: tests name their own certificates there.
    """

    def __init__(
        self,
        guard: AddressGuard,
        settings: BrowserSettings | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        flags: tuple[str, ...] = (),
    ) -> None:
        self._settings = settings or BrowserSettings()
        self._flags = flags
        self._gate = GuardProxy(guard, tls=tls)
        self._stack = AsyncExitStack()
        self._pool: BrowserPool | None = None

    async def __aenter__(self) -> Self:
        """Raises MissingExtra, Misconfigured."""
        _check(self._settings)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._gate)
            pool = BrowserPool(self._settings, self._gate.address, self._flags)
            self._pool = await stack.enter_async_context(pool)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._pool = None
        await self._stack.aclose()

    @property
    def pool(self) -> BrowserPool:
        if self._pool is None:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        return self._pool

    async def fetch(self, request: TransportRequest) -> Response:
        """Show the page and return what it became. Raises FetchFailed or FetchRefused."""
        if request.method not in METHODS:
            raise FetchRefused(f"The browser opens pages by {', '.join(METHODS)}, not by {request.method[:20]}.")
        if _UNSAFE_URL.search(request.url) or not request.url.startswith(("http://", "https://")):
            raise FetchRefused(f"{request.url[:200]!a} cannot be opened in a browser.")
        pool = self.pool
        for tries_left in (1, 0) if request.method in SAFE_METHODS else (0,):
            async with pool.seat() as process:
                try:
                    return await self._visit(process, request)
                except _BrowserGoneError as error:
                    # Alone in the browser, the page did that. Twice together with others, it may have, and must not
                    # repeat it forever.
                    if process.overfull and (process.overfull == 1 or not tries_left):
                        raise PageCrashed(
                            f"{request.url[:200]}: the browser used too much memory ({process.why_gone}; its bound is "
                            "half as much again as browser.recycle_memory)."
                        ) from error
                    if not tries_left:
                        raise BrowserFailed(
                            f"{request.url[:200]}: the browser was lost ({process.why_gone or error})."
                        ) from error
        raise AssertionError("unreachable")

    async def _visit(self, process: BrowserProcess, request: TransportRequest) -> Response:
        from playwright.async_api import Error

        limits = request.limits
        patience = min(limits.total, self._settings.page_timeout)
        started = time.perf_counter()
        gate_pass = self._gate.admit(
            request.proxy,
            gate=request.gate,
            max_bytes=limits.max_body * _BYTES_FACTOR,
            max_requests=MAX_REQUESTS,
            connect=limits.connect,
            home=site_of(request.url),
        )
        page = BrowserPage(
            process.browser,
            self._gate,
            gate_pass,
            request,
            self._settings.block,
            self._settings.settle.total_seconds(),
            patience.total_seconds(),
        )
        work = asyncio.create_task(page.run())
        gone = asyncio.create_task(process.gone.wait())
        try:
            ends_at = started + patience.total_seconds()
            while (left := ends_at + gate_pass.waited - time.perf_counter()) > 0:
                ends = (work, gone, gate_pass.kept_back)
                done, _ = await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if done:
                    break
            if gate_pass.kept_back.done():
                await gate_pass.kept_back
            if work.done():
                response = work.result()
                return msgspec.structs.replace(response, seconds=time.perf_counter() - started - gate_pass.waited)
            if gone.done():
                raise _BrowserGoneError(process.why_gone)
            raise await self._too_late(page, request.url, patience, limits)
        except (GossamerError, _BrowserGoneError):
            raise
        except Exception as error:
            # Errors of the site are translated where they are caught. So the browser is gone, or about to be.
            if not isinstance(error, Error) and not process.gone.is_set():
                raise
            try:
                async with asyncio.timeout(_GONE_PATIENCE):
                    await process.gone.wait()
            except TimeoutError:
                await process.kill("it lost a page")
            raise _BrowserGoneError(process.why_gone) from error
        finally:
            for task in (work, gone):
                task.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            await self._clear(process, page)
            await self._gate.dismiss(gate_pass)

    async def _clear(self, process: BrowserProcess, page: BrowserPage) -> None:
        """Close the page. If that fails, kill the browser."""
        if process.gone.is_set():
            await process.kill(process.why_gone)
        try:
            async with asyncio.timeout(_CLOSE_PATIENCE):
                await page.close()
        except TimeoutError:
            await process.kill("it did not close a page")
        except Exception:
            if not process.gone.is_set():  # a dead driver raises errors of undocumented types
                raise

    async def _too_late(self, page: BrowserPage, url: str, patience: timedelta, limits: Limits) -> TimedOut:
        setting = limits.total_from if limits.total <= self._settings.page_timeout else "browser.page_timeout"
        at = page.at
        why = await page.obstacle()
        still = f" It was still busy with: {at}{f' ({why})' if why else ''}." if at else ""
        return TimedOut(
            f"{url[:200]}: the page was not ready within {patience.total_seconds():g} s ({setting}).{still}"
        )


def _check(settings: BrowserSettings) -> None:
    for name in ("browsers", "contexts", "recycle_pages"):
        if getattr(settings, name) < 1:
            raise Misconfigured(f"Setting browser.{name}: must be 1 or more.")
    unknown = [kind for kind in settings.block if kind not in KINDS]
    if unknown:
        raise Misconfigured(f"Setting browser.block: {unknown[0]!r} is unknown. Use {', '.join(KINDS)}.")
