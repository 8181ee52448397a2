"""The one-verb seam of fetching. HTTP, browser, proxies and managed APIs are all just transports.

How it fails: a `FetchFailed` (may pass) or a `FetchRefused` (will not); no driver's own error comes through.
A transport makes ONE request: it follows no redirect, reads no robots.txt, keeps no cookie.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from ..model.page import Headers
from ..model.route import Exit, Render

Bytes = int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one request. Nothing that a server sends can exceed them."""

    connect: timedelta = timedelta(seconds=10)
    read: timedelta = timedelta(seconds=30)  # the longest silence
    total: timedelta = timedelta(seconds=120)
    max_body: Bytes = 10 * 1024 * 1024  # after decompression; longer bodies are cut and marked
    max_header: Bytes = 64 * 1024


class TransportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `headers` already hold the user agent, cookies and validators.

    `on_sent` is called when the request leaves, which may be long after the call: a connection comes first.
    `exit` is the proxy to leave through; a transport that is given one never leaves any other way. `profile`,
    `render` and `country` are for the transports that know what to do with them.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "GET"
    limits: Limits = Limits()
    on_sent: Callable[[], None] | None = None
    exit: Exit | None = None
    profile: str | None = None
    render: Render | None = None
    country: str | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What came back. Any status is a response. `body` is decompressed; `cut` tells that its end is missing."""

    url: str
    status: int
    headers: Headers
    body: bytes
    cut: bool = False
    wire_bytes: Bytes = 0
    seconds: float = 0.0
    address: str = ""  # the address that was dialled
    note: str = ""  # what was odd: "truncated gzip", say
    cost: float | None = None  # tokens, where the answer itself tells
    screenshot: bytes = b""  # PNG, where one was asked for


class Transport(Protocol):
    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises FetchFailed or FetchRefused; RouteFailed when the route failed and not the site."""
        ...
