"""A small HTTP/2 server, frame by frame: enough to answer GET, and to misbehave in the ways of HTTP/2.

    async with http2_site(certificate, key) as site:
        site.url("/"); site.connections; site.streams

`site.conduct` says what every request is answered with: "reset", "goaway", "nonsense", "many-headers", "wide-header",
"endless-headers", "half", or PAGE. The server does not unpack what it is sent, so it knows no paths.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .hostile_server import PAGE
from .stream_server import stream_server

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
OK = b"\x88"  # ":status: 200" of the static table


@dataclass
class Http2Site:
    port: int = 0
    conduct: str = ""
    connections: int = 0
    streams: list[tuple[int, int]] = field(default_factory=list)  # connection and stream of each request

    def url(self, path: str = "/") -> str:
        return f"https://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def http2_site(certificate: Path, key: Path) -> AsyncIterator[Http2Site]:
    """Serve on a free port of 127.0.0.1 until left."""
    site = Http2Site()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    tls.set_alpn_protocols(["h2"])

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        site.connections += 1
        await _converse(site, site.connections, reader, writer)

    async with stream_server(converse, tls) as site.port:
        yield site


async def _converse(site: Http2Site, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if await reader.readexactly(len(PREFACE)) != PREFACE:
        return
    writer.write(frame(SETTINGS))
    while True:
        head = await reader.readexactly(9)
        size, kind, flags, stream = int.from_bytes(head[:3], "big"), head[3], head[4], int.from_bytes(head[5:], "big")
        payload = await reader.readexactly(size)
        if kind == SETTINGS and not flags & ACK:
            writer.write(frame(SETTINGS, ACK))
        elif kind == PING and not flags & ACK:
            writer.write(frame(PING, ACK, payload=payload))
        elif kind == HEADERS:
            site.streams.append((number, stream))
            await _answer(site, stream, writer)


async def _answer(site: Http2Site, stream: int, writer: asyncio.StreamWriter) -> None:
    match site.conduct:
        case "reset":
            writer.write(frame(RESET, stream=stream, payload=(2).to_bytes(4, "big")))
        case "goaway":
            writer.write(frame(GOAWAY, payload=(0).to_bytes(4, "big") + (2).to_bytes(4, "big")))
        case "nonsense":
            writer.write(frame(DATA, payload=b"data on no stream"))
        case "many-headers":
            block = OK + b"".join(header(b"x-n%d" % n, b"value") for n in range(500))
            writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
        case "wide-header":
            block = OK + b"".join(header(b"x-w%d" % n, b"w" * 100) for n in range(100))
            writer.write(frame(HEADERS, END_HEADERS | END_STREAM, stream, block))
        case "endless-headers":
            writer.write(frame(HEADERS, END_STREAM, stream, OK))
            for _ in range(500):  # 5 MB
                writer.write(frame(CONTINUATION, 0, stream, header(b"x-more", b"w" * 100) * 100))
                await writer.drain()
                await asyncio.sleep(0)  # or we would not hear that the client is gone
        case "half":
            writer.write(frame(HEADERS, END_HEADERS, stream, OK))
            writer.write(frame(DATA, 0, stream, PAGE[:20]))
            await writer.drain()
            writer.close()
        case _:
            writer.write(frame(HEADERS, END_HEADERS, stream, OK + header(b"x-own", b"two")))
            writer.write(frame(DATA, END_STREAM, stream, PAGE))
    await writer.drain()


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def header(name: bytes, value: bytes) -> bytes:
    """A literal that is not to be remembered, unpacked."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
