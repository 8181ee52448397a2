"""The hostile server itself: it reads requests honestly, keeps a log of them, and lets a path answer as badly as it
likes. The paths are in hostile_wire.py and hostile_pages.py, which register themselves here.

It is a plain asyncio server, since no HTTP library would agree to send most of this. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qs, unquote, urlsplit

from .stream_server import stream_server

PAGE = b"<!doctype html><html><head><title>Plain</title></head><body><p>Hello</p></body></html>"


@dataclass(frozen=True)
class Seen:
    """One request as it came over the wire."""

    at: float  # monotonic
    path: str  # with the query
    headers: dict[str, str]  # names in lower case
    raw: bytes


@dataclass
class HostileSite:
    """The running site. `robots` is what /robots.txt answers with; the default is 404."""

    port: int
    drip: timedelta
    scheme: str = "http"
    host: str = "127.0.0.1"
    log: list[Seen] = field(default_factory=list)
    robots: Reply | None = None
    connections: int = 0
    sent: int = 0  # body and header bytes handed to the sockets
    sent_for: Counter[str] = field(default_factory=Counter)  # the same, by path without its query
    shown: dict[str, Reply] = field(default_factory=dict)  # pages of this site alone

    def url(self, path: str, host: str | None = None) -> str:
        return f"{self.scheme}://{host or self.host}:{self.port}{path}"

    def seen(self, path: str) -> list[Seen]:
        """The requests for `path`, whatever their query."""
        return [entry for entry in self.log if entry.path.partition("?")[0] == path]

    def answer_robots(self, status: int, text: str | bytes = b"", *headers: str) -> None:
        """From now on /robots.txt answers like this."""
        body = text.encode() if isinstance(text, str) else text

        async def reply(call: Call) -> None:
            await call.send(head(status, *headers, length=len(body)) + body)

        self.robots = reply

    def show(self, path: str, text: str | bytes, *headers: str, status: int = 200, kind: str = "text/html") -> str:
        """From now on `path` answers like this, whatever its query; return its address."""
        body = text.encode() if isinstance(text, str) else text

        async def reply(call: Call) -> None:
            await whole(call, body, *headers, status=status, kind=kind)

        self.shown[path] = reply
        return self.url(path)


@dataclass
class Call:
    """One request in the hands of the path that answers it."""

    site: HostileSite
    seen: Seen
    writer: asyncio.StreamWriter
    query: dict[str, str]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        self.site.sent += len(data)
        self.site.sent_for[self.seen.path.partition("?")[0]] += len(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def hang_up(self) -> None:
        self.writer.close()


Reply = Callable[[Call], Awaitable[None]]
_PATHS: dict[str, Reply] = {}


def path(*names: str) -> Callable[[Reply], Reply]:
    def register(reply: Reply) -> Reply:
        for name in names:
            _PATHS[name] = reply
        return reply

    return register


def head(status: int, *lines: str, length: int | None = None, kind: str = "text/html; charset=utf-8") -> bytes:
    rows = [f"HTTP/1.1 {status} Whatever", f"Content-Type: {kind}", *lines]
    if length is not None:
        rows.append(f"Content-Length: {length}")
    return ("\r\n".join(rows) + "\r\n\r\n").encode("latin-1")


async def whole(call: Call, body: bytes, *lines: str, status: int = 200, kind: str = "text/html") -> None:
    await call.send(head(status, *lines, length=len(body), kind=kind) + body)


@path("/plain", "/")
async def plain(call: Call) -> None:
    await whole(call, PAGE, 'ETag: "one"')


async def _nothing_there(call: Call) -> None:
    await whole(call, b"not here", status=404)


@asynccontextmanager
async def hostile_site(
    *, drip: timedelta = timedelta(seconds=1), tls: ssl.SSLContext | None = None
) -> AsyncIterator[HostileSite]:
    """Serve on a free port of 127.0.0.1 until left; then every connection is cut."""
    site = HostileSite(port=0, drip=drip, scheme="https" if tls else "http")

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.connections += 1
        while await _answer_one(site, reader, writer):
            pass

    async with stream_server(converse, tls) as site.port:
        yield site


async def _answer_one(site: HostileSite, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    raw = await reader.readuntil(b"\r\n\r\n")
    lines = raw.decode("latin-1").split("\r\n")
    target = lines[0].split(" ")[1]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    seen = Seen(at=time.monotonic(), path=target, headers=headers, raw=raw)
    site.log.append(seen)
    parts = urlsplit(target)
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    call = Call(site, seen, writer, query)
    if parts.path == "/robots.txt":
        reply = site.robots or _nothing_there
    else:
        reply = site.shown.get(parts.path) or _PATHS.get(unquote(parts.path), _nothing_there)
    await reply(call)
    return not writer.is_closing()
