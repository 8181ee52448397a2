"""The transport contract: one method, `fetch`. HTTP, browser, proxies and managed APIs are all just transports.

How it fails: `FetchFailed` (a retry may help) or `FetchRefused` (it will not); a driver's own errors never escape.
A transport makes ONE request: it follows no redirect, reads no robots.txt, keeps no cookie.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from typing import Protocol

import msgspec

from ..model.page import Headers
from ..model.route import Proxy, Render
from ..model.session import Cookie

Bytes = int
_ODD_BYTE = re.compile("[\udc80-\udcff]")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on one request. Nothing that a server sends can exceed them."""

    connect: timedelta = timedelta(seconds=10)
    read: timedelta = timedelta(seconds=30)  # the longest pause between two reads
    total: timedelta = timedelta(seconds=120)
    total_from: str = "fetch.total_timeout"  # the setting that `total` comes from, for messages
    max_body: Bytes = 10 * 1024 * 1024  # after decompression; longer bodies are cut and marked
    max_header: Bytes = 64 * 1024


class Gate(Protocol):
    """Decides when one request may be sent to its site. A transport makes or takes its connection first, then enters
    the gate, and writes at once. `OpenRoute` closes the gate, so a transport need not report a failure. `is_out` says
    whether the request was sent, or may have been."""

    @property
    def is_out(self) -> bool: ...

    async def enter(self, address: str = "") -> None:
        """Return when the request may be written. `address` is the address of the site's server that was dialled; empty
        if it is unknown, as behind a proxy. If the request must not be sent, this raises, and nothing may be
        written."""

    def withdraw(self) -> None:
        """Nothing was written, because the connection was lost; the request will enter again."""

    def left(self, ago: float = 0.0) -> None:
        """The request was written at most `ago` seconds ago."""

    def close(self) -> None:
        """The fetch is over, however it ended; a request that entered may have been sent."""


class BodyReceiver(Protocol):
    """Takes a body piece by piece, so that a large file need not fit in memory. The transport asks it for each
    response; a body that it does not take is read into memory like that of a page."""

    @property
    def received(self) -> Bytes:
        """Bytes received for the current request."""

    def takes(self, status: int, headers: Headers) -> bool:
        """Will it take the body? Raises FetchRefused if the file must not be fetched at all."""

    async def write(self, data: bytes) -> None:
        """Take the next piece, decoded. An error raised here ends the fetch."""


class TransportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to send. `headers` already hold the user agent, cookies and validators.

    A request whose method is not safe (model/payload.py) is written at most once. An empty `body` is sent as such; None
    means no body. `chosen` are the names, in lower case, of headers that the user set and that no profile may replace.
    `gate` keeps the site's pace; None for a request that may be sent at any time. `proxy` is the proxy to go through; a
    transport that is given one never bypasses it. `profile`, `render` and `country` are for transports that support
    them. `into` may take the body instead of memory; a transport without support for it returns the body as usual, up
    to `limits.max_body`.
    """

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    method: str = "GET"
    body: bytes | None = None
    chosen: frozenset[str] = frozenset()
    limits: Limits = Limits()
    gate: Gate | None = None
    proxy: Proxy | None = None
    profile: str | None = None
    render: Render | None = None
    country: str | None = None
    into: BodyReceiver | None = None
    cookies: tuple[Cookie, ...] = ()  # all of the site, with their flags; for a browser, others send `headers`


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an extension says about the response that it returns."""

    wanted: bool = False  # the page goes to the callback, whatever its status; a redirect is not followed
    keeps_cookies: bool = True  # False: the cookies that it sets are not kept
    data_json: str = ""  # replaces the data of the request for the callback; "": as the spider attached it


NO_VERDICT = Verdict()


class Response(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the server sent. Any status is a response. `body` is decompressed; `cut` means that its end is missing."""

    url: str
    status: int
    headers: Headers
    body: bytes
    cut: bool = False
    wire_bytes: Bytes = 0
    seconds: float = 0.0
    address: str = ""  # the address that was dialled
    note: str = ""  # anything odd, such as "truncated gzip"
    unfinished: str = ""  # why a rendered page was read before it had finished loading
    cost: float | None = None  # credits, if the response itself states the cost
    screenshot: bytes = b""  # PNG, if one was requested
    cookies: tuple[Cookie, ...] = ()  # set or changed in a browser; an expired one was deleted
    taken: bool = False  # the receiver took the body, and `body` is empty
    packed: bytes = b""  # the body as gzip, if it was sent that way, complete and undamaged
    verdict: Verdict = NO_VERDICT


def storable(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Headers as text that a store accepts. Transports decode them with `surrogateescape`: a byte that is not UTF-8 is
    one odd character. In the target of a redirect it belongs to another charset, and is percent-encoded as browsers do
    it; elsewhere it becomes a replacement character."""

    def replaced(text: str) -> str:
        return _ODD_BYTE.sub("\ufffd", text)

    def percent_coded(text: str) -> str:
        return _ODD_BYTE.sub(lambda odd: f"%{ord(odd[0]) - 0xDC00:02X}", text)

    return tuple(
        (replaced(name), percent_coded(value) if name.lower() == "location" else replaced(value))
        for name, value in pairs
    )


class Transport(Protocol):
    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises FetchFailed or FetchRefused; RouteFailed when the route failed and not the site."""
