"""A way: how one visit leaves this machine. A route with its exit taken, its cookies at hand, its wishes told."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ..model.route import DIRECT, Exit, Render, Route
from .contract import Response, Transport, TransportRequest
from .cookies import CookieJar


class Through:
    """A transport that sends every exchange through the same exit, with the same profile and wishes.

    `meter` is told how many bytes each answer had on the wire.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        exit: Exit | None = None,
        profile: str | None = None,
        render: Render | None = None,
        country: str | None = None,
        meter: Callable[[int], None] | None = None,
    ) -> None:
        self._transport = transport
        self._meter = meter
        self._exit = exit
        self._profile = profile
        self._render = render
        self._country = country

    async def fetch(self, exchange: TransportRequest) -> Response:
        response = await self._transport.fetch(
            msgspec.structs.replace(
                exchange, exit=self._exit, profile=self._profile, render=self._render, country=self._country
            )
        )
        if self._meter is not None:
            self._meter(response.wire_bytes)
        return response


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """`page` brings pages and `robots` brings robots.txt, both through the same exit and at the same identity's risk:
    a site that must not see this machine does not see it for robots.txt either. `jar` is that identity's own."""

    page: Transport
    robots: Transport
    jar: CookieJar
    route: Route = DIRECT
    exit: Exit | None = None
