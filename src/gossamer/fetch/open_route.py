"""Routes that are ready for requests: the transports of one worker, each opened on first use, and the route of one page
with its proxy chosen, its cookies and its options.

Every page passes through here, so functions that only delegate are not coroutines: each coroutine would be re-entered
whenever the page's task resumes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any, Self

import msgspec

from ..model.route import BROWSER, DIRECT, HTTP, MANAGED, PROFILE, Proxy, Render, Route
from .contract import BodyReceiver, Gate, Limits, Response, Transport, TransportRequest
from .cookies import CookieJar

Pairs = tuple[tuple[str, str], ...]
Opening = Callable[[], AbstractAsyncContextManager[Transport]]


class Transports:
    """The transports of one worker. `openings` are keyed by kind of transport, and by `managed/NAME` for each vendor.
    Open while entered.

    Opening a transport that is not installed raises MissingExtra, each time it is requested. `check_url` is called
    before each request, and raises FetchRefused for a URL that must not be requested.
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
        """The transport that fetches pages on the route. Raises MissingExtra, Misconfigured."""
        return self._get(_key(route))

    def for_robots(self, route: Route) -> Awaitable[Transport]:
        """The transport that fetches robots.txt on the route: never a browser. A user's own transport fetches it
        itself."""
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
    """Implements `Transport`, with `check_url` before each request."""

    def __init__(self, transport: Transport, check_url: Callable[[str], None]) -> None:
        self._transport = transport
        self._check_url = check_url

    def fetch(self, request: TransportRequest) -> Coroutine[Any, Any, Response]:
        self._check_url(request.url)
        return self._transport.fetch(request)


def _key(route: Route) -> str:
    return f"{MANAGED}/{route.vendor}" if route.transport == MANAGED else route.transport


class OpenRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One route for one page. Pages and robots.txt use the same proxy: a site that must not see this machine does not
    see it for robots.txt either. `jar` holds the cookies of the identity that the site sees; `meter` is called with the
    bytes of each response on the wire."""

    transport: Transport
    robots_transport: Transport  # robots.txt needs no browser
    jar: CookieJar
    route: Route = DIRECT
    proxy: Proxy | None = None
    others_left: bool = False  # other proxies may be tried if the site refuses this one
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
        """Make one request for a page, or for a file that is written to the receiver `into`. Raises what
        `Transport.fetch` raises."""
        request = TransportRequest(
            url=url,
            headers=headers,
            method=method,
            body=body,
            chosen=chosen,
            limits=limits,
            gate=gate,
            proxy=self.proxy,
            profile=self.route.profile,
            render=self.render,
            country=self.country,
            into=into,
            cookies=self.jar.of_site(url) if self.route.transport == BROWSER else (),
        )
        return self._fetch(self.transport, request)

    def fetch_robots(self, url: str, headers: Pairs, limits: Limits, gate: Gate | None) -> Awaitable[Response]:
        """Make one request for a robots.txt: without rendering or a profile."""
        request = TransportRequest(
            url=url, headers=headers, limits=limits, gate=gate, proxy=self.proxy, country=self.country
        )
        return self._fetch(self.robots_transport, request)

    async def _fetch(self, transport: Transport, request: TransportRequest) -> Response:
        try:
            response = await transport.fetch(request)
        except BaseException:
            if self.meter is not None and request.into is not None:
                self.meter(request.into.received)  # a partial file costs its partial bytes
            raise
        finally:
            if request.gate is not None:
                request.gate.close()
        if self.meter is not None:
            self.meter(response.wire_bytes)
        return response
