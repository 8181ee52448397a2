"""What goes wrong on the wire: connections that break, drip or never end, headers that no parser should take."""

from __future__ import annotations

import asyncio

from .hostile_server import PAGE, Call, head, path, whole

# --- connections ----------------------------------------------------------------------------------------------


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
    await whole(call, PAGE, *(f"X-Wide-{i}: {'w' * 4000}" for i in range(40)))


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


ODD_ANSWERS = {  # that browsers read all the same: how each comes, in pieces
    "/junk-behind": [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789<!-- junk -->"],
    "/junk-behind-late": [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123", b"456789<!-- junk -->"],
    "/junk-behind-hints": [
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"0123456789x"
    ],
    "/blank-lines-before": [b"\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n01234", b"56789"],
    "/length-and-chunks": [
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", b"a\r\n0123456789\r\n0\r\n\r\n"
    ],
    "/length-twice": [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nContent-Length: 10\r\n\r\n01234", b"56789"],
    "/length-in-a-list": [b"HTTP/1.1 200 OK\r\nContent-Length: 10, 10\r\n\r\n0123456789"],
    "/lines-that-are-no-headers": [
        b"HTTP/1.1 200 OK\r\nX Y: 1\r\nno colon\r\n: 2\r\n", b"Content-", b"Length : 10\r\n\r\n01234", b"56789"
    ],
}  # fmt: skip


APART = 0.01  # seconds between two pieces, so that each comes by itself


@path(*ODD_ANSWERS)
async def _odd(call: Call) -> None:
    for piece in ODD_ANSWERS[call.seen.path]:
        await call.send(piece)
        await asyncio.sleep(APART)


@path("/moved-to-latin")
async def _moved_to_latin(call: Call) -> None:
    await call.send(b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9/\xc3\xa9\r\nContent-Length: 0\r\n\r\n")


@path("/header-bytes")
async def _header_bytes(call: Call) -> None:
    await call.send(b"HTTP/1.1 200 OK\r\nX-Odd: caf\xe9 \xc3\xa9\r\nContent-Length: 2\r\n\r\nok")
