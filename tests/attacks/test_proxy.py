"""A proxy of a pool that turns hostile, before it has let us through to the site.

Tried here, by both transports that use proxies:

- answers to CONNECT without an end: a status line, headers, interim answers, the body of a 407
- a tunnel that says 200 and then speaks plain HTTP, or says that a body follows
- a redirect as the answer to CONNECT, which leads to a private address; cookies in that answer

Tried elsewhere: passwords that are quoted, other certificates, SOCKS5 replies (tests/unit/test_fetch_proxies.py,
tests/conformance/test_transport_proxies.py), and the same behind a browser (tests/browser/test_guard_proxy_proxies.py).

Not prevented: a proxy reads and writes what passes over plain HTTP, and sees which sites are visited over TLS. A route
with `transport = "profile"` reads a single line of a proxy's answer for as long as `fetch.connect_timeout` lasts,
however long it is, and keeps it in memory meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import FetchFailed, FetchRefused
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Response
from gossamer.model.route import Proxy
from tests.conformance.transports import LIMITS, Opener, get
from tests.conformance.transports import opened as opened
from tests.sites.hostile_server import hostile_site

SHOP = AddressGuard(allow_hosts=frozenset({"shop.example"}))
SHORT = msgspec.structs.replace(LIMITS, connect=timedelta(seconds=5), read=timedelta(seconds=5))
ENOUGH = 16 * 1024 * 1024  # bytes; what the sockets' own buffers hold is far less
CHUNK = b"x" * 65_536


class HostileProxy:
    """Answers every head with `begin`, then repeats `more` until the client hangs up or ENOUGH was said."""

    def __init__(self, begin: bytes, more: bytes) -> None:
        self._begin = begin
        self._more = more
        self.said = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self._begin)
            while self._more and self.said < ENOUGH:
                writer.write(self._more)
                await writer.drain()
                self.said += len(self._more)
            await writer.drain()
        writer.close()

    @property
    def proxy(self) -> Proxy:
        return Proxy(name="hostile", pool="test", scheme="http", host="127.0.0.1", port=self.port, allow_private=True)


@asynccontextmanager
async def a_hostile_proxy(begin: bytes, more: bytes = b"") -> AsyncIterator[HostileProxy]:
    proxy = HostileProxy(begin, more)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy


async def through(opened: Opener, proxy: HostileProxy) -> Response:
    async with opened(SHOP) as transport:
        return await get(transport, "https://shop.example/", proxy=proxy.proxy, limits=SHORT)


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 ", CHUNK),
    "one header": (b"HTTP/1.1 200 OK\r\nX-A: ", CHUNK),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n" * 8000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "the body of a 407": (b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic\r\n\r\n", CHUNK),
    "the body of a 200": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", CHUNK),
}


UNBOUNDED = (ENDLESS["a status line"][0], ENDLESS["one header"][0])  # of the library behind transport = "profile"


@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
async def test_an_answer_without_an_end_is_not_read_to_the_end(opened: Opener, begin: bytes, more: bytes) -> None:
    async with a_hostile_proxy(begin, more) as proxy:
        with pytest.raises((FetchFailed, FetchRefused)):
            await through(opened, proxy)
        if not (opened.kind == "wreq" and begin in UNBOUNDED):
            assert proxy.said < ENOUGH


async def test_a_tunnel_that_speaks_plain_http_brings_no_page(opened: Opener) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    for begin in (b"HTTP/1.1 200 OK\r\n\r\n" + page, page, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + page):
        async with a_hostile_proxy(begin) as proxy:
            with pytest.raises((FetchFailed, FetchRefused)):
                await through(opened, proxy)


@pytest.mark.parametrize("status", ["302 Found", "200 OK", "401 Unauthorized", "407 Proxy Authentication Required"])
async def test_an_answer_to_connect_leads_nowhere(opened: Opener, status: str) -> None:
    async with hostile_site() as canary:
        location = canary.url("/secret")
        head = f"HTTP/1.1 {status}\r\nLocation: {location}\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
        async with a_hostile_proxy(head.encode()) as proxy:
            with pytest.raises((FetchFailed, FetchRefused)):
                await through(opened, proxy)
        assert canary.connections == 0
