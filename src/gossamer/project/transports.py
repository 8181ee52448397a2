"""The transports that the settings allow, and how the jobs of one process share them.

What it does: all jobs of a worker use the same connections and browsers, as long as their settings for them are equal.
So a single page costs no new handshake with a site that was just visited, and no start of a browser. Jobs whose
settings differ there (such as hosts that only one of them may reach) have their own transports.
How it fails: Misconfigured, MissingExtra. How it recovers: transports themselves replace broken connections and
browsers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Generic, Self, TypeVar

from ..clock import Clock
from ..errors import MissingExtra
from ..fetch.addresses import AddressGuard
from ..fetch.browser.chromium import is_there
from ..fetch.contract import Transport
from ..fetch.http import AiohttpTransport
from ..fetch.open_route import Opening, Transports
from ..model.route import BROWSER, HTTP, MANAGED, PROFILE
from ..settings import Settings
from ..terms import Routing
from .extensions import openings_of

T = TypeVar("T")

LINGER = timedelta(seconds=30)  # how long unused transports stay open: another page may be requested


def check_installed(settings: Settings, routing: Routing, serves: frozenset[str] | None) -> None:
    """Check that everything is installed for the routes that this worker serves. Raises MissingExtra."""
    used = used_transports(settings, routing, serves)
    if PROFILE in used and find_spec("wreq") is None:
        raise MissingExtra("A route needs TLS profiles: pip install 'gossamer[profiles]'.")
    if BROWSER in used:
        missing = is_there(settings.browser.executable)
        if missing is not None:
            raise MissingExtra(f"A route needs a browser. {missing}")


def used_transports(settings: Settings, routing: Routing, serves: frozenset[str] | None = None) -> set[str]:
    """The transports of the routes to any site, or of those that this worker serves."""
    rungs = {route for site in ("", *settings.domains) for route in routing.terms_for(site).ladder}
    return {route.transport for route in rungs if serves is None or route.name in serves or route.transport in serves}


def guard_of(settings: Settings) -> AddressGuard:
    fetch = settings.fetch
    return AddressGuard(fetch.allow_private, frozenset(fetch.allow_hosts), fetch.deny)


def transports_of(settings: Settings, clock: Clock) -> Transports:
    """Every transport that the settings allow, not opened yet. Raises Misconfigured."""
    openings: dict[str, Opening] = {
        HTTP: lambda: AiohttpTransport(guard_of(settings)),
        PROFILE: partial(_open_profile, settings),
        BROWSER: partial(_open_browser, settings),
        **openings_of(settings),
    }
    if settings.managed:
        from ..fetch.managed import ManagedTransport, describe  # rarely needed, and slow to import
    for name, table in settings.managed.items():
        vendor = describe(name, table, root=settings.root)
        openings[f"{MANAGED}/{name}"] = partial(ManagedTransport, vendor, guard_of(settings), clock)
    return Transports(openings, guard_of(settings).check_port)


def _open_profile(settings: Settings) -> AbstractAsyncContextManager[Transport]:
    from ..fetch.impersonate import WreqTransport

    return WreqTransport(guard_of(settings))


@asynccontextmanager
async def _open_browser(settings: Settings) -> AsyncIterator[Transport]:
    from ..fetch.browser.transport import BrowserTransport

    async with BrowserTransport(guard_of(settings), settings.browser) as browser:
        yield browser


@asynccontextmanager
async def open_transport(settings: Settings) -> AsyncIterator[Transport]:
    """The default transport, guarded."""
    async with AiohttpTransport(guard_of(settings)) as transport:
        yield transport


class _Opened(Generic[T]):
    """What was opened for these terms. `closing` closes it unless a job arrives first."""

    def __init__(self, terms: tuple[object, ...], opening: AbstractAsyncContextManager[T]) -> None:
        self.terms = terms
        self._stack = AsyncExitStack()
        self.value = asyncio.create_task(self._stack.enter_async_context(opening), name="open for jobs")
        self.users = 0
        self.closing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        await asyncio.gather(self.value, return_exceptions=True)
        await self._stack.aclose()


class Shared(Generic[T]):
    """What jobs with the same terms use together: opened for the first, closed `linger` after the last.

    Alive while entered; it must outlive the blocks of `of`."""

    def __init__(self, clock: Clock, linger: timedelta = LINGER) -> None:
        self._clock = clock
        self._linger = linger
        self._open: list[_Opened[T]] = []
        self._closing: set[asyncio.Task[None]] = set()  # what no job can get any more

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        while self._open:
            one = self._open.pop()
            if one.closing is not None:
                one.closing.cancel()
            await one.close()
        await asyncio.gather(*self._closing)

    @asynccontextmanager
    async def of(
        self, terms: tuple[object, ...], opening: Callable[[], AbstractAsyncContextManager[T]]
    ) -> AsyncIterator[T]:
        """The value for these terms. Raises what `opening` raises."""
        one = next((one for one in self._open if one.terms == terms), None)
        if one is None:
            one = _Opened(terms, opening())
            self._open.append(one)
        one.users += 1
        if one.closing is not None:
            one.closing.cancel()
            one.closing = None
        try:
            yield await asyncio.shield(one.value)
        finally:
            one.users -= 1
            if not one.users:
                one.closing = asyncio.create_task(self._close_later(one), name="close for jobs")

    async def _close_later(self, one: _Opened[T]) -> None:
        if not one.value.done() or one.value.exception() is None:  # what could not be opened is tried anew
            await self._clock.sleep(self._linger.total_seconds())
        self._open.remove(one)  # from here on a job gets another one
        assert one.closing is not None  # this task
        self._closing.add(one.closing)
        one.closing.add_done_callback(self._closing.discard)
        await one.close()


class SharedTransports(Shared[Transports]):
    """The transports of jobs with the same settings."""

    def for_settings(self, settings: Settings) -> AbstractAsyncContextManager[Transports]:
        """The transports for these settings. Raises Misconfigured."""
        return self.of(_terms(settings), lambda: transports_of(settings, self._clock))


def _terms(settings: Settings) -> tuple[object, ...]:
    """The settings that `transports_of` reads."""
    fetch = settings.fetch
    may_reach = (fetch.allow_private, fetch.allow_hosts, fetch.deny)
    return (*may_reach, settings.root, settings.browser, settings.managed, settings.transports)
