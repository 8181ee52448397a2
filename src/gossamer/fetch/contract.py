"""The one-verb seam of fetching. HTTP, browser, proxies and managed APIs are all just transports.

How it fails: a `FetchFailed` (may pass) or a `FetchRefused` (will not); no driver's own error comes through.
A transport makes ONE request: it follows no redirect, reads no robots.txt, keeps no cookie.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

import msgspec

from ..model.page import Headers
from ..model.route import Exit, Render
from ..model.session import Cookie

Bytes = int


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one request. Nothing that a server sends can exceed them."""

    connect: timedelta = timedelta(seconds=10)
    read: timedelta = timedelta(seconds=30)  # the longest silence
    total: timedelta = timedelta(seconds=120)
    total_from: str = "fetch.total_timeout"  # who says so, for messages
    max_body: Bytes = 10 * 1024 * 1024  # after decompression; longer bodies are cut and marked
    max_header: Bytes = 64 * 1024


class Gate(Protocol):
    """The turn of one request at its site. A transport makes or takes its connection first, then enters, and writes at
    once. `OpenRoute` closes the gate, so a transport need not tell of a failure. `is_out` tells whether the request
    has left, or may have."""

    @property
    def is_out(self) -> bool: ...

    async def enter(self, address: str = "") -> None:
        """Return when the request may be written. `address` is the one that the site's server was dialled at; none
        where it is not known, as behind a proxy. Raises what keeps it from leaving; then nothing may be written."""
        ...

    def withdraw(self) -> None:
        """Nothing was written, because the connection is gone; the request will enter again."""
        ...

    def left(self, ago: float = 0.0) -> None:
        """The request was written that many seconds ago at the latest."""
        ...

    def close(self) -> None:
        """The fetch is over, however it ended; a request that entered may have left."""
        ...


class BodyReceiver(Protocol):
    """Takes a body piece by piece, so that a large file needs no memory. It is asked for each response; one that it
    does not take is read as the body of a page is."""

    @property
    def received(self) -> Bytes:
        """Of the present request."""
        ...

    def takes(self, status: int, headers: Headers) -> bool:
        """Will it take the body? Raises FetchRefused for one that is not wanted at all."""
        ...

    async def write(self, data: bytes) -> None:
        """The next piece, decoded. Raises what ends the fetch."""
        ...


class TransportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `headers` already hold the user agent, cookies and validators.

    A request whose method is not safe (model/payload.py) is written at most once. `body` may be empty, which is sent;
    None is no body. `chosen` are the headers, in small letters, that the user wants as they are, whatever a profile
    says. `gate` keeps the site's pace; None for a request that may leave at any time.
    `exit` is the proxy to leave through; a transport that is given one never leaves any other way. `profile`,
    `render` and `country` are for the transports that know what to do with them. `into` may take the body in place of
    memory; a transport that does not know it gives the body as usual, up to `limits.max_body`.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "GET"
    body: bytes | None = None
    chosen: frozenset[str] = frozenset()
    limits: Limits = Limits()
    gate: Gate | None = None
    exit: Exit | None = None
    profile: str | None = None
    render: Render | None = None
    country: str | None = None
    into: BodyReceiver | None = None
    cookies: tuple[Cookie, ...] = ()  # for a browser: all of the site, with their flags; others go by `headers`


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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
    unfinished: str = ""  # why a rendered page was read before it was done
    cost: float | None = None  # tokens, where the answer itself tells
    screenshot: bytes = b""  # PNG, where one was asked for
    cookies: tuple[Cookie, ...] = ()  # that came or changed in a browser; those that have expired are gone
    taken: bool = False  # the body went to the receiver, and `body` is empty
    packed: bytes = b""  # the body as gzip, where it came so, whole and in good order


class Transport(Protocol):
    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises FetchFailed or FetchRefused; RouteFailed when the route failed and not the site."""
        ...
