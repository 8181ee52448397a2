"""Routes that are ready for requests: the transports of one worker, each opened when the first page asks for it, and
the route of one page with its exit taken, its cookies and the page's wishes at hand.

Every page passes through here, and what only hands on is no coroutine of its own: each would be entered anew whenever
the page goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self

import msgspec

from ..model.route import BROWSER, DIRECT, HTTP, MANAGED, PROFILE, Exit, Render, Route
from .contract import BodyReceiver, Gate, Limits, Response, Transport, TransportRequest
from .cookies import CookieJar

Pairs = tuple[tuple[str, str], ...]
Opening = Callable[[], AbstractAsyncContextManager[Transport]]


class Transports:
    """`openings` are by kind of transport, and `managed/NAME` for each vendor. Alive while entered.

    Opening one that is not installed raises MissingExtra, whenever it is asked for. `check_url` is asked before each
    request, and raises FetchRefused for an address that may not be asked for.
    """

    def __init__(self, openings: Mapping[str, Opening], check_url: Callable[[str], None] = lambda url: None) -> None:
        self._openings = openings
        self._check_url = check_url
        self._open: dict[str, Transport] = {}
        self._stack = AsyncExitStack()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def for_pages(self, route: Route) -> Awaitable[Transport]:
        """What fetches pages on that route. Raises MissingExtra, Misconfigured."""
        return self._get(_key(route))

    def for_robots(self, route: Route) -> Awaitable[Transport]:
        """What fetches robots.txt there: a browser is not needed for it. A transport of the user's own brings it."""
        return self._get(HTTP if route.transport in (PROFILE, BROWSER) else _key(route))

    async def _get(self, key: str) -> Transport:
        found = self._open.get(key)
        if found is not None:
            return found
        async with self._turn:
            found = self._open.get(key)
            if found is None:
                opened = await self._stack.enter_async_context(self._openings[key]())
                found = self._open[key] = _Checked(opened, self._check_url)
        return found


class _Checked:
    """Fulfils `Transport`."""

    def __init__(self, transport: Transport, check_url: Callable[[str], None]) -> None:
        self._transport = transport
        self._check_url = check_url

    def fetch(self, request: TransportRequest) -> Coroutine[Any, Any, Response]:
        self._check_url(request.url)
        return self._transport.fetch(request)


def _key(route: Route) -> str:
    return f"{MANAGED}/{route.vendor}" if route.transport == MANAGED else route.transport


class OpenRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One route for one page. Pages and robots.txt leave through the same exit: a site that must not see this machine
    does not see it for robots.txt either. `jar` holds the cookies of the identity that the site sees; `meter` is called
    with the bytes that each response had on the wire."""

    transport: Transport
    robots_transport: Transport  # a browser is not needed for robots.txt
    jar: CookieJar
    route: Route = DIRECT
    exit: Exit | None = None
    render: Render | None = None
    country: str | None = None
    meter: Callable[[int], None] | None = None

    def fetch_page(
        self,
        url: str,
        headers: Pairs,
        limits: Limits,
        gate: Gate | None,
        into: BodyReceiver | None = None,
        *,
        method: str = "GET",
        body: bytes | None = None,
        chosen: frozenset[str] = frozenset(),
    ) -> Awaitable[Response]:
        """Make one request for a page, or for a file that goes `into` a receiver. Raises what `Transport.fetch`
        raises."""
        request = TransportRequest(
            url=url,
            headers=headers,
            method=method,
            body=body,
            chosen=chosen,
            limits=limits,
            gate=gate,
            exit=self.exit,
            profile=self.route.profile,
            render=self.render,
            country=self.country,
            into=into,
            cookies=self.jar.of_site(url) if self.route.transport == BROWSER else (),
        )
        return self._fetch(self.transport, request)

    def fetch_robots(self, url: str, headers: Pairs, limits: Limits, gate: Gate | None) -> Awaitable[Response]:
        """Make one request for a robots.txt: neither rendered nor with a profile."""
        request = TransportRequest(
            url=url, headers=headers, limits=limits, gate=gate, exit=self.exit, country=self.country
        )
        return self._fetch(self.robots_transport, request)

    async def _fetch(self, transport: Transport, request: TransportRequest) -> Response:
        try:
            response = await transport.fetch(request)
        except BaseException:
            if self.meter is not None and request.into is not None:
                self.meter(request.into.received)  # a file that broke off half-way is paid for half-way
            raise
        finally:
            if request.gate is not None:
                request.gate.close()
        if self.meter is not None:
            self.meter(response.wire_bytes)
        return response
