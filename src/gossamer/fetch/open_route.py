"""A route that is ready for requests: its transports open, its exit taken, cookies and the page's wishes at hand."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..model.route import DIRECT, Exit, Render, Route
from .contract import Limits, Response, Transport, TransportRequest
from .cookies import CookieJar

Pairs = tuple[tuple[str, str], ...]
OnSent = Callable[[], None] | None


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

    async def fetch_page(self, url: str, headers: Pairs, limits: Limits, on_sent: OnSent) -> Response:
        """Make one request for a page. Raises what `Transport.fetch` raises."""
        request = TransportRequest(
            url=url,
            headers=headers,
            limits=limits,
            on_sent=on_sent,
            exit=self.exit,
            profile=self.route.profile,
            render=self.render,
            country=self.country,
        )
        response = await self.transport.fetch(request)
        if self.meter is not None:
            self.meter(response.wire_bytes)
        return response

    async def fetch_robots(self, url: str, headers: Pairs, limits: Limits, on_sent: OnSent) -> Response:
        """Make one request for a robots.txt: neither rendered nor with a profile."""
        request = TransportRequest(
            url=url, headers=headers, limits=limits, on_sent=on_sent, exit=self.exit, country=self.country
        )
        response = await self.robots_transport.fetch(request)
        if self.meter is not None:
            self.meter(response.wire_bytes)
        return response
