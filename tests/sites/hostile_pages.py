"""What goes wrong in an answer that is proper HTTP: bodies that explode or lie, redirects that lead nowhere or in
circles, wishes that nobody could grant."""

from __future__ import annotations

import asyncio
import gzip
import time
import zlib
from collections.abc import Iterable
from email.utils import formatdate

import brotli
import zstandard

from .hostile_server import PAGE, Call, head, path, plain, whole

BOMB_SIZE = 64 * 1024 * 1024

# --- bodies -----------------------------------------------------------------------------------------------------


@path("/empty")
async def _empty(call: Call) -> None:
    await whole(call, b"")


@path("/empty-gzip")
async def _empty_gzip(call: Call) -> None:
    await whole(call, b"", "Content-Encoding: gzip")


@path("/binary-as-html")
async def _binary_as_html(call: Call) -> None:
    await whole(call, bytes(range(256)) * 16)


@path("/wrong-charset")
async def _wrong_charset(call: Call) -> None:
    await whole(call, "<p>café – 日本</p>".encode(), kind="text/html; charset=iso-8859-99")


@path("/nested")
async def _nested(call: Call) -> None:
    """`?deep=...`: so many divs, each in the one before."""
    deep = int(call.query.get("deep", "1000000"))
    await whole(call, b"<title>Deep</title>" + b"<div>" * deep + b"bottom" + b"</div>" * deep)


@path("/packed")
async def _packed(call: Call) -> None:
    """`?with=gzip,br`: the plain page in these layers."""
    names = [name for name in call.query.get("with", "gzip").split(",") if name]
    await whole(call, pack(PAGE, names), f"Content-Encoding: {', '.join(names)}")


@path("/bomb")
async def _bomb(call: Call) -> None:
    names = call.query.get("with", "gzip").split(",")
    packed = await asyncio.to_thread(bomb, names)  # who asks may run in the same loop
    await whole(call, packed, f"Content-Encoding: {', '.join(names)}")


@path("/hundredfold")
async def _hundredfold(call: Call) -> None:
    await whole(call, PAGE, f"Content-Encoding: {', '.join(['gzip'] * 100)}")


@path("/truncated")
async def _truncated(call: Call) -> None:
    name = call.query.get("with", "gzip")
    packed = pack(noise(60_000), [name])
    await whole(call, packed[: len(packed) // 2], f"Content-Encoding: {name}")


@path("/damaged-gzip")
async def _damaged_gzip(call: Call) -> None:
    """All of the page is there, only its checksum is wrong."""
    await whole(call, gzip.compress(PAGE)[:-8] + b"\0" * 8, "Content-Encoding: gzip")


@path("/lying-label")
async def _lying_label(call: Call) -> None:
    await whole(call, PAGE, f"Content-Encoding: {call.query.get('with', 'gzip')}")


@path("/junk-label")
async def _junk_label(call: Call) -> None:
    await whole(call, b"\x00\x01\x02\xfe" * 100, f"Content-Encoding: {call.query.get('with', 'gzip')}")


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


def bomb(names: Iterable[str]) -> bytes:
    """BOMB_SIZE zeros, packed; made once. Takes a second: where a clock runs, call this before."""
    layers = tuple(names)
    if layers not in _bombs:
        _bombs[layers] = pack(bytes(BOMB_SIZE), layers)
    return _bombs[layers]


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
        await whole(call, PAGE)
    else:
        await _to(call, "/bounce-cookie")


@path("/cookie-wall", "/bounce-cookie")
async def _cookie_wall(call: Call) -> None:
    if call.seen.path == "/cookie-wall" and "let-me-in" in call.seen.headers.get("cookie", ""):
        await whole(call, PAGE)
    else:
        await _to(call, "/cookie-wall" if call.seen.path == "/cookie-wall" else "/bounce", "Set-Cookie: let-me-in=1")


@path("/cookie")
async def _cookie(call: Call) -> None:
    await whole(call, PAGE, f"Set-Cookie: {call.query.get('set', 'a=1')}")


# --- what the server wishes ----------------------------------------------------------------------------------------


@path("/conditional")
async def _conditional(call: Call) -> None:
    if call.seen.headers.get("if-none-match") == '"one"':
        await call.send(b'HTTP/1.1 304 Not Modified\r\nETag: "one"\r\n\r\n')
    else:
        await plain(call)


@path("/always-304")
async def _always_304(call: Call) -> None:
    await call.send(b"HTTP/1.1 304 Not Modified\r\n\r\n")


@path("/retry-after")
async def _retry_after(call: Call) -> None:
    wish = call.query.get("wish", "5")
    if wish == "date":
        wish = formatdate(time.time() + 120, usegmt=True)
    await whole(call, b"later", f"Retry-After: {wish}", status=int(call.query.get("status", "503")))


@path("/status")
async def _status(call: Call) -> None:
    await whole(call, PAGE, status=int(call.query.get("code", "500")))


async def huge_robots(call: Call) -> None:
    """500 MB of rules, streamed for as long as somebody reads."""
    await call.send(head(200, length=500_000_000, kind="text/plain") + b"User-agent: *\nDisallow: /secret\n")
    sent = 0
    while sent < 500_000_000 and not call.writer.is_closing():
        await call.send(b"Disallow: /other\n" * 4000)
        sent += 68_000
