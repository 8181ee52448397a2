"""What is said on one connection to a test proxy: HTTP or SOCKS5, and the bytes that are carried after that."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from .proxies import ProxyServer

CHUNK = 65536
_OWN = ("proxy-authorization", "proxy-connection", "connection", "keep-alive")  # between the client and the proxy


@dataclass(frozen=True)
class Conduct:
    """How a proxy behaves. The default is as it should."""

    refuse: bool = False
    status: int | None = None
    cut_after: int | None = None
    hang: bool = False
    close: bool = False


@dataclass
class Passage:
    """One request that was let through: a tunnel, or a GET with an absolute address."""

    connection: int  # the number of the client's connection
    username: str
    target: str  # host:port, as the client named it
    kind: str  # connect, get or socks5
    headers: dict[str, str] = field(default_factory=dict)  # what the proxy was told; names in lower case
    up: int = 0
    down: int = 0
    ended: bool = False


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _carry(
    proxy: ProxyServer, source: asyncio.StreamReader, sink: asyncio.StreamWriter, passage: Passage, *, up: bool
) -> None:
    """Bytes one way, counted, until one side ends or the proxy's conduct says so."""
    try:
        while data := await source.read(CHUNK):
            limit = proxy.conduct.cut_after
            if not up and limit is not None:
                data = data[: max(0, limit - passage.down)]
            if up:
                passage.up += len(data)
            else:
                passage.down += len(data)
            sink.write(data)
            await sink.drain()
            if not up and limit is not None and passage.down >= limit:
                return
    except OSError:
        return


async def _tunnel(
    proxy: ProxyServer,
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    site: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    passage: Passage,
) -> None:
    ways = [
        asyncio.ensure_future(_carry(proxy, client[0], site[1], passage, up=True)),
        asyncio.ensure_future(_carry(proxy, site[0], client[1], passage, up=False)),
    ]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(ways)
        passage.ended = True
        site[1].close()


async def _end(tasks: Sequence[asyncio.Future[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, OSError, EOFError, asyncio.LimitOverrunError):
            await task


# --- HTTP -----------------------------------------------------------------------------------------------------


async def serve_http(
    proxy: ProxyServer, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Requests one after the other; a tunnel is the last. Raises OSError, EOFError."""
    site: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    site_name, passage = "", None
    carrying: list[asyncio.Future[None]] = []
    head = asyncio.ensure_future(_head(reader))
    try:
        while True:
            # The site may end the connection while we wait for the client's next request; then we do, too.
            waiting: list[asyncio.Future[Any]] = [head, *carrying]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if not head.done():
                return
            method, asked, version, headers = head.result()
            username, password = _credentials(headers.get("proxy-authorization", ""))
            if proxy.conduct.hang:
                await _for_ever()
            if not proxy.admits(username, password):
                await _say(writer, 407, 'Proxy-Authenticate: Basic realm="test"')
                return
            if proxy.conduct.status is not None:
                await _say(writer, proxy.conduct.status)
                return
            host, port = _target(method, asked)
            if passage is not None:
                passage.ended = True
            passage = Passage(number, username, f"{host}:{port}", "connect" if method == "CONNECT" else "get", headers)
            proxy.passages.append(passage)
            if site is None or site_name != passage.target or method == "CONNECT":
                await _end(carrying)
                if site is not None:
                    site[1].close()
                try:
                    site, site_name = await proxy.dial(host, port, username), passage.target
                except OSError:
                    await _say(writer, 502)
                    return
                carrying = []
            else:
                await _end(carrying)
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await writer.drain()
                await _tunnel(proxy, (reader, writer), site, passage)
                return
            sent = _forwarded(method, asked, version, headers)
            if length := int(headers.get("content-length", "0")):
                sent += await reader.readexactly(length)
            passage.up += len(sent)
            site[1].write(sent)
            carrying = [asyncio.ensure_future(_carry(proxy, site[0], writer, passage, up=False))]
            head = asyncio.ensure_future(_head(reader))
    finally:
        await _end([head, *carrying])
        if passage is not None:
            passage.ended = True
        if site is not None:
            site[1].close()


async def _head(reader: asyncio.StreamReader) -> tuple[str, str, str, dict[str, str]]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.rstrip("\r\n").split("\r\n")
    method, asked, version = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    return method, asked, version, {name.strip().lower(): value.strip() for name, _, value in pairs}


def _target(method: str, asked: str) -> tuple[str, int]:
    parts = urlsplit(f"//{asked}" if method == "CONNECT" else asked)
    return parts.hostname or "", parts.port or 80


def _forwarded(method: str, asked: str, version: str, headers: dict[str, str]) -> bytes:
    """The request as the site gets it, without what was meant for the proxy."""
    path = asked.split("/", 3)[3] if asked.count("/") > 2 else ""
    lines = [f"{name}: {value}" for name, value in headers.items() if name not in _OWN]
    return "\r\n".join([f"{method} /{path} {version}", *lines, "", ""]).encode("latin-1")


def _credentials(header: str) -> tuple[str, str]:
    kind, _, packed = header.partition(" ")
    if kind.lower() != "basic":
        return "", ""
    try:
        name, _, password = base64.b64decode(packed).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return name, password


async def _say(writer: asyncio.StreamWriter, status: int, *lines: str) -> None:
    rows = [f"HTTP/1.1 {status} Test", "Content-Length: 0", "Connection: close", *lines, "", ""]
    writer.write("\r\n".join(rows).encode())
    await writer.drain()


# --- SOCKS5 ---------------------------------------------------------------------------------------------------

_NO_PASSWORD, _PASSWORD, _NOTHING_FITS = 0, 2, 0xFF
_DONE, _FAILED, _UNREACHABLE, _REFUSED, _UNKNOWN_VERB = 0, 1, 4, 5, 7


async def serve_socks(
    proxy: ProxyServer, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """RFC 1928 with the passwords of RFC 1929. Raises OSError, EOFError."""
    version, count = await reader.readexactly(2)
    offered = await reader.readexactly(count)
    if version != 5:
        return
    if proxy.conduct.hang:
        await _for_ever()
    wanted = _PASSWORD if proxy.asks_for_password else _NO_PASSWORD
    if wanted not in offered:
        proxy.refused.append("")
        writer.write(bytes([5, _NOTHING_FITS]))
        await writer.drain()
        return
    writer.write(bytes([5, wanted]))
    username = ""
    if wanted == _PASSWORD:
        await reader.readexactly(1)
        username = (await _counted(reader)).decode()
        password = (await _counted(reader)).decode()
        good = proxy.admits(username, password)
        writer.write(bytes([1, 0 if good else 1]))
        if not good:
            await writer.drain()
            return
    _, verb, _, kind = await reader.readexactly(4)
    match kind:
        case 1:
            host = ".".join(str(byte) for byte in await reader.readexactly(4))
        case 3:
            host = (await _counted(reader)).decode()
        case _:
            packed = (await reader.readexactly(16)).hex()
            host = ":".join(packed[at : at + 4].lstrip("0") or "0" for at in range(0, 32, 4))
            host = "::1" if host == "0:0:0:0:0:0:0:1" else host
    port = int.from_bytes(await reader.readexactly(2), "big")
    if verb != 1:
        await _reply(writer, _UNKNOWN_VERB)
        return
    if proxy.conduct.status is not None:
        # What is no status of HTTP is a word of SOCKS5.
        await _reply(writer, proxy.conduct.status if proxy.conduct.status < 100 else _UNREACHABLE)
        return
    passage = Passage(number, username, f"{host}:{port}", "socks5")
    proxy.passages.append(passage)
    try:
        site = await proxy.dial(host, port)
    except OSError:
        passage.ended = True
        await _reply(writer, _REFUSED)
        return
    await _reply(writer, _DONE)
    await _tunnel(proxy, (reader, writer), site, passage)


async def _counted(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly((await reader.readexactly(1))[0])


async def _reply(writer: asyncio.StreamWriter, word: int) -> None:
    writer.write(bytes([5, word, 0, 1, 127, 0, 0, 1, 0, 0]))
    await writer.drain()
