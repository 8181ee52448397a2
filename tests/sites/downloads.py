"""A site with files to download: large ones without a disk, answered by Range or not, cut off on the way, changed
meanwhile. Its log is the witness."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256

import msgspec

BLOCK = 1024 * 1024
_RANGE = re.compile(r"bytes=(\d+)-")


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    at: float
    path: str
    headers: dict[str, str]
    status: int

    @property
    def begins(self) -> int:
        found = _RANGE.fullmatch(self.headers.get("range", ""))
        return int(found[1]) if found else 0


class Content(msgspec.Struct, kw_only=True):
    """What is at one address. `cut` ends each connection after that many bytes; `stall` stops it there for ever."""

    body: bytes = b""
    size: int | None = None  # made up, in place of `body`
    seed: int = 0
    type: str = "application/octet-stream"
    etag: str = '"v1"'
    ranges: bool = True
    careless: bool = False  # about If-Range
    cut: int | None = None
    stall: int | None = None
    headers: dict[str, str] = {}
    status: int = 200

    def __post_init__(self) -> None:
        if self.size is None:
            self.size = len(self.body)

    def pieces(self, begin: int = 0) -> Iterator[bytes]:
        assert self.size is not None
        if self.body:
            yield self.body[begin:]
            return
        block = random.Random(self.seed).randbytes(BLOCK)
        while begin < self.size:
            number, offset = divmod(begin, BLOCK)
            piece = (number.to_bytes(8, "big") + block[8:])[offset : offset + self.size - begin]
            begin += len(piece)
            yield piece

    @property
    def sha256(self) -> str:
        digest = sha256()
        for piece in self.pieces():
            digest.update(piece)
        return digest.hexdigest()


class DownloadSite:
    def __init__(self) -> None:
        self.shown: dict[str, Content] = {}
        self.log: list[Asked] = []
        self.port = 0
        self.stalled = asyncio.Event()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def show(self, path: str, html: str) -> str:
        self.shown[path] = Content(body=html.encode(), type="text/html; charset=utf-8", etag="")
        return self.url(path)

    def asked(self, path: str) -> list[Asked]:
        return [one for one in self.log if one.path == path]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._answer(reader, writer):
                pass
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        path = lines[0].split()[1]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        content = self.shown.get(path, Content(body=b"gone", type="text/plain", status=404, etag=""))
        assert content.size is not None
        begin, status = 0, content.status
        asked = _RANGE.fullmatch(headers.get("range", ""))
        if content.etag and headers.get("if-none-match") == content.etag:
            status = 304
        elif content.ranges and asked and (content.careless or headers.get("if-range", content.etag) == content.etag):
            begin = int(asked[1])
            status = 206 if begin < content.size else 416
        self.log.append(Asked(at=time.monotonic(), path=path, headers=headers, status=status))
        told = {"Content-Type": content.type, "Content-Length": str(content.size - begin), **content.headers}
        if content.etag:
            told["ETag"] = content.etag
        if status == 206:
            told["Content-Range"] = f"bytes {begin}-{content.size - 1}/{content.size}"
        if status in (304, 416):
            told["Content-Length"] = "0"
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        writer.write(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode())
        if status in (304, 416):
            return True
        sent = 0
        for piece in content.pieces(begin):
            if content.stall is not None and begin + sent >= content.stall:
                self.stalled.set()
                await asyncio.Event().wait()
            if content.cut is not None and sent + len(piece) > content.cut:
                writer.write(piece[: content.cut - sent])
                await writer.drain()
                writer.transport.close()
                return False
            writer.write(piece)
            sent += len(piece)
            await writer.drain()
        return True


@asynccontextmanager
async def download_site() -> AsyncIterator[DownloadSite]:
    site = DownloadSite()
    site.shown["/robots.txt"] = Content(body=b"User-agent: *\nAllow: /", type="text/plain", etag="")
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
