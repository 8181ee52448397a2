"""A web server that misbehaves, byte by byte: every path of it is wrong in its own way.

    async with hostile_site() as site:
        site.url("/endless"); site.log; site.seen("/endless")

It is a plain asyncio server, since no HTTP library would agree to send most of this. It listens on loopback only.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import struct
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit

import brotli
import zstandard

PAGE = b"<!doctype html><html><head><title>Plain</title></head><body><p>Hello</p></body></html>"
BOMB_SIZE = 64 * 1024 * 1024


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


async def _whole(call: Call, body: bytes, *lines: str, status: int = 200, kind: str = "text/html") -> None:
    await call.send(head(status, *lines, length=len(body), kind=kind) + body)


# --- connections ----------------------------------------------------------------------------------------------


@path("/plain", "/")
async def _plain(call: Call) -> None:
    await _whole(call, PAGE, 'ETag: "one"')


@path("/reset-before-headers")
async def _reset_before_headers(call: Call) -> None:
    call.reset()


@path("/close-before-headers")
async def _close_before_headers(call: Call) -> None:
    call.hang_up()


@path("/reset-mid-body")
async def _reset_mid_body(call: Call) -> None:
    await call.send(head(200, length=100_000) + PAGE)
    call.reset()


@path("/short-body")
async def _short_body(call: Call) -> None:
    await call.send(head(200, length=100_000) + PAGE)
    call.hang_up()


@path("/silence")
async def _silence(call: Call) -> None:
    await asyncio.Event().wait()


@path("/drip")
async def _drip(call: Call) -> None:
    await call.send(head(200, length=1_000_000))
    while True:
        await call.send(b"x")
        await asyncio.sleep(call.site.drip.total_seconds())


@path("/drip-headers")
async def _drip_headers(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        await call.send(b"x")
        await asyncio.sleep(call.site.drip.total_seconds())


@path("/endless")
async def _endless(call: Call) -> None:
    await call.send(head(200, "Connection: close"))
    await _for_ever(call, b"<p>more</p>" * 1000)


@path("/endless-chunked")
async def _endless_chunked(call: Call) -> None:
    await call.send(head(200, "Transfer-Encoding: chunked"))
    await _for_ever(call, b"2000\r\n" + b"y" * 0x2000 + b"\r\n")


@path("/endless-gzip")
async def _endless_gzip(call: Call) -> None:
    """Stored blocks of no length: input for ever, output never."""
    await call.send(head(200, "Content-Encoding: gzip", "Connection: close") + b"\x1f\x8b\x08\0\0\0\0\0\0\xff")
    await _for_ever(call, b"\x00\x00\x00\xff\xff" * 2000)


@path("/endless-informational")
async def _endless_informational(call: Call) -> None:
    await _for_ever(call, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


async def _for_ever(call: Call, data: bytes) -> None:
    while not call.writer.is_closing():
        await call.send(data)


# --- headers ----------------------------------------------------------------------------------------------------


@path("/huge-header")
async def _huge_header(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nX-Huge: ")
    for _ in range(1600):  # 100 MB
        await call.send(b"a" * 65_536)
    await call.send(b"\r\nContent-Length: 0\r\n\r\n")


@path("/huge-status-line")
async def _huge_status_line(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 ")
    for _ in range(1600):
        await call.send(b"O" * 65_536)


@path("/many-headers")
async def _many_headers(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\n")
    for i in range(100_000):
        await call.send(b"X-Number-%d: value\r\n" % i)
    await call.send(b"Content-Length: 0\r\n\r\n")


@path("/wide-headers")
async def _wide_headers(call: Call) -> None:
    """Each line is short enough, and there are few: only their sum is too much."""
    await _whole(call, PAGE, *(f"X-Wide-{i}: {'w' * 4000}" for i in range(40)))


@path("/garbage")
async def _garbage(call: Call) -> None:
    await call.send(b"\x00\xff\x17 this is not HTTP \r\n\r\n")
    call.hang_up()


@path("/http09")
async def _http09(call: Call) -> None:
    await call.send(b"<html>no status line at all</html>")
    call.hang_up()


@path("/bad-chunked")
async def _bad_chunked(call: Call) -> None:
    await call.send(head(200, "Transfer-Encoding: chunked") + b"ZZZ\r\nthis is no chunk size\r\n0\r\n\r\n")


@path("/bad-chunked-late")
async def _bad_chunked_late(call: Call) -> None:
    """The first chunk is fine, and the client has taken it before the bad one comes."""
    await call.send(head(200, "Transfer-Encoding: chunked") + b"5\r\nhello\r\n")
    await asyncio.sleep(call.site.drip.total_seconds())
    await call.send(b"ZZZ\r\nthis is no chunk size\r\n0\r\n\r\n")


@path("/short-chunked")
async def _short_chunked(call: Call) -> None:
    await call.send(head(200, "Transfer-Encoding: chunked") + b"1000\r\nonly this")
    call.hang_up()


@path("/two-lengths")
async def _two_lengths(call: Call) -> None:
    await call.send(head(200, "Content-Length: 5", length=50) + b"hello")
    call.hang_up()


@path("/header-bytes")
async def _header_bytes(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nX-Odd: caf\xe9 \xc3\xa9\r\nContent-Length: 2\r\n\r\nok")


# --- bodies -----------------------------------------------------------------------------------------------------


@path("/empty")
async def _empty(call: Call) -> None:
    await _whole(call, b"")


@path("/empty-gzip")
async def _empty_gzip(call: Call) -> None:
    await _whole(call, b"", "Content-Encoding: gzip")


@path("/binary-as-html")
async def _binary_as_html(call: Call) -> None:
    await _whole(call, bytes(range(256)) * 16)


@path("/wrong-charset")
async def _wrong_charset(call: Call) -> None:
    await _whole(call, "<p>café – 日本</p>".encode(), kind="text/html; charset=iso-8859-99")


@path("/packed")
async def _packed(call: Call) -> None:
    """`?with=gzip,br`: the plain page in these layers."""
    names = [name for name in call.query.get("with", "gzip").split(",") if name]
    await _whole(call, pack(PAGE, names), f"Content-Encoding: {', '.join(names)}")


@path("/bomb")
async def _bomb(call: Call) -> None:
    names = call.query.get("with", "gzip").split(",")
    await _whole(call, bomb(tuple(names)), f"Content-Encoding: {', '.join(names)}")


@path("/hundredfold")
async def _hundredfold(call: Call) -> None:
    await _whole(call, PAGE, f"Content-Encoding: {', '.join(['gzip'] * 100)}")


@path("/truncated")
async def _truncated(call: Call) -> None:
    name = call.query.get("with", "gzip")
    packed = pack(noise(60_000), [name])
    await _whole(call, packed[: len(packed) // 2], f"Content-Encoding: {name}")


@path("/damaged-gzip")
async def _damaged_gzip(call: Call) -> None:
    """All of the page is there, only its checksum is wrong."""
    await _whole(call, gzip.compress(PAGE)[:-8] + b"\0" * 8, "Content-Encoding: gzip")


@path("/lying-label")
async def _lying_label(call: Call) -> None:
    await _whole(call, PAGE, f"Content-Encoding: {call.query.get('with', 'gzip')}")


@path("/junk-label")
async def _junk_label(call: Call) -> None:
    await _whole(call, b"\x00\x01\x02\xfe" * 100, f"Content-Encoding: {call.query.get('with', 'gzip')}")


def noise(size: int) -> bytes:
    """Text that does not pack to nothing."""
    return b" ".join(b"%x" % (i * 2654435761 % 2**32) for i in range(size // 8))[:size]


def pack(data: bytes, names: Iterable[str]) -> bytes:
    for name in names:
        match name:
            case "gzip":
                data = gzip.compress(data, 6)
            case "deflate":
                data = zlib.compress(data)
            case "raw-deflate":
                packer = zlib.compressobj(wbits=-15)
                data = packer.compress(data) + packer.flush()
            case "br":
                data = brotli.compress(data, quality=5)
            case "zstd":
                data = zstandard.compress(data)
            case _:
                raise ValueError(name)
    return data


_bombs: dict[tuple[str, ...], bytes] = {}


def bomb(names: tuple[str, ...], size: int = BOMB_SIZE) -> bytes:
    """`size` zeros, packed; made once."""
    if names not in _bombs:
        _bombs[names] = pack(bytes(size), names)
    return _bombs[names]


# --- redirects and cookies -----------------------------------------------------------------------------------------


async def _to(call: Call, location: str, *lines: str, status: int = 302) -> None:
    await call.send(head(status, f"Location: {location}", *lines, length=0))


@path("/redirect")
async def _redirect(call: Call) -> None:
    """`?to=...&status=...`, and `&cookie=a=b` to set one on the way."""
    cookie = call.query.get("cookie")
    lines = [f"Set-Cookie: {cookie}"] if cookie else []
    await _to(call, call.query["to"], *lines, status=int(call.query.get("status", "302")))


@path("/redirect-nowhere")
async def _redirect_nowhere(call: Call) -> None:
    await call.send(head(302, length=len(PAGE)) + PAGE)


@path("/loop")
async def _loop(call: Call) -> None:
    await _to(call, "/loop")


@path("/counting-loop")
async def _counting_loop(call: Call) -> None:
    """Sets another cookie each time and never lets one in."""
    await _to(call, "/counting-loop", f"Set-Cookie: n={len(call.site.log)}")


@path("/bounce")
async def _bounce(call: Call) -> None:
    """Lets in only who comes back with the cookie."""
    if "let-me-in" in call.seen.headers.get("cookie", ""):
        await _whole(call, PAGE)
    else:
        await _to(call, "/bounce-cookie")


@path("/cookie-wall", "/bounce-cookie")
async def _cookie_wall(call: Call) -> None:
    if call.seen.path == "/cookie-wall" and "let-me-in" in call.seen.headers.get("cookie", ""):
        await _whole(call, PAGE)
    else:
        await _to(call, "/cookie-wall" if call.seen.path == "/cookie-wall" else "/bounce", "Set-Cookie: let-me-in=1")


@path("/cookie")
async def _cookie(call: Call) -> None:
    await _whole(call, PAGE, f"Set-Cookie: {call.query.get('set', 'a=1')}")


# --- what the server wishes ---------------------------------------------------------------------------------------


@path("/conditional")
async def _conditional(call: Call) -> None:
    if call.seen.headers.get("if-none-match") == '"one"':
        await call.send(b'HTTP/1.1 304 Not Modified\r\nETag: "one"\r\n\r\n')
    else:
        await _plain(call)


@path("/always-304")
async def _always_304(call: Call) -> None:
    await call.send(b"HTTP/1.1 304 Not Modified\r\n\r\n")


@path("/retry-after")
async def _retry_after(call: Call) -> None:
    wish = call.query.get("wish", "5")
    if wish == "date":
        wish = formatdate(time.time() + 120, usegmt=True)
    await _whole(call, b"later", f"Retry-After: {wish}", status=int(call.query.get("status", "503")))


@path("/status")
async def _status(call: Call) -> None:
    await _whole(call, PAGE, status=int(call.query.get("code", "500")))


async def huge_robots(call: Call) -> None:
    """500 MB of rules, streamed for as long as somebody reads."""
    await call.send(head(200, length=500_000_000, kind="text/plain") + b"User-agent: *\nDisallow: /secret\n")
    sent = 0
    while sent < 500_000_000 and not call.writer.is_closing():
        await call.send(b"Disallow: /other\n" * 4000)
        sent += 68_000


# --- the server ---------------------------------------------------------------------------------------------------


async def _nothing_there(call: Call) -> None:
    await _whole(call, b"not here", status=404)


@asynccontextmanager
async def hostile_site(
    *, drip: timedelta = timedelta(seconds=1), tls: ssl.SSLContext | None = None
) -> AsyncIterator[HostileSite]:
    """Serve on a free port of 127.0.0.1 until left; then every connection is cut."""
    site = HostileSite(port=0, drip=drip, scheme="https" if tls else "http")
    at_work: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        site.connections += 1
        try:
            while await _answer_one(site, reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            at_work.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in tuple(at_work):
            task.cancel()
        while at_work:
            await asyncio.wait(tuple(at_work))
        with suppress(asyncio.CancelledError):
            await server.wait_closed()


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
        reply = _PATHS.get(unquote(parts.path), _nothing_there)
    await reply(call)
    return not writer.is_closing()
