"""What passes through the guard proxy: `Pass`, the right of one page to use it with what was carried for that page, and
the heads and bodies on one connection.

How it fails: OSError, EOFError, ValueError and SpentError, which all mean that this connection is over.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable
from datetime import timedelta

from ...errors import AddressRefused, BadResponse, ConnectionDropped, GossamerError, ProxyFailed
from ...model.route import Exit
from .guard_dialer import Line, refused_by

_MAX_TROUBLES = 100  # of one pass that are remembered


class Pass:
    """The right to use the guard proxy, what was done with it, and what went wrong. It shows no secret."""

    def __init__(
        self,
        exit: Exit | None,
        on_bytes: Callable[[int], None] | None,
        on_sent: Callable[[], None] | None,
        max_bytes: int | None,
        max_requests: int | None,
        connect: timedelta,
    ) -> None:
        self.username = secrets.token_hex(8)
        self.password = secrets.token_urlsafe(24)
        self.mark = secrets.token_hex(8)
        self.exit = exit
        self.connect = connect
        self.max_bytes = max_bytes
        self.max_requests = max_requests
        self.requests = 0  # tunnels count as one: nobody can look into them
        self.received = 0
        self.sent = 0
        self.spent = False  # nothing goes through any more
        self.address = ""  # that was dialled first
        self.lines: set[asyncio.Task[None]] = set()
        self._troubles: dict[str, GossamerError] = {}
        self._on_bytes = on_bytes
        self._on_sent = on_sent

    def trouble(self, authority: str) -> GossamerError | None:
        """What went wrong last on the way to `host:port`."""
        return self._troubles.get(_key(authority))

    @property
    def refused(self) -> list[str]:
        """Where it was not allowed to go, as `host:port`."""
        return [name for name, error in self._troubles.items() if isinstance(error, AddressRefused)]

    def note(self, authority: str, error: GossamerError) -> None:
        if len(self._troubles) < _MAX_TROUBLES:
            self._troubles[_key(authority)] = error

    def forgive(self, authority: str) -> None:
        self._troubles.pop(_key(authority), None)

    def asking(self) -> None:
        """Another request. Raises SpentError when there are no more."""
        self.requests += 1
        if self.max_requests is not None and self.requests > self.max_requests:
            self.spent = True
        if self.spent:
            raise SpentError

    def sending(self, size: int) -> None:
        if self._on_sent is not None:
            tell, self._on_sent = self._on_sent, None
            tell()
        self.sent += size
        self._check()

    def receiving(self, size: int) -> None:
        self.received += size
        if self._on_bytes is not None:
            self._on_bytes(size)
        self._check()

    def cut(self) -> None:
        """Nothing more goes through, and what is under way is broken off."""
        self.spent = True
        for line in tuple(self.lines):
            line.cancel()

    def _check(self) -> None:
        if self.max_bytes is not None and self.sent + self.received > self.max_bytes:
            self.spent = True
            raise SpentError

    def __repr__(self) -> str:
        return f"Pass({self.username!r}, exit={self.exit!r}, received={self.received})"


def _key(authority: str) -> str:
    """One word for one place: `Shop.example.:80` is shop.example:80."""
    host, colon, port = authority.lower().rpartition(":")
    return f"{host.rstrip('.')}{colon}{port}"


class SpentError(Exception):
    """The pass has no bytes left."""


MARK = "X-GuardProxy"  # in answers of our own: a word that only the holder of the pass knows
# Between two neighbours only; never handed on.
HOP_BY_HOP = frozenset({"proxy-authorization", "proxy-connection", "connection", "keep-alive", "te", "trailer"})
_CHUNK = 64 * 1024
_MAX_HEAD = 64 * 1024
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")

Pairs = list[tuple[str, str]]


async def send_body(holder: Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
    """The body of a request; then wait until the browser hangs up. More than that it may not say on this line."""
    while length > 0:
        piece = await reader.read(min(length, _CHUNK))
        if not piece:
            return
        length -= len(piece)
        holder.sending(len(piece))
        writer.write(piece)
        await writer.drain()
    await reader.read(1)


async def bring_answer(
    holder: Pass, authority: str, far: Line, writer: asyncio.StreamWriter, *, bodiless: bool
) -> None:
    """The answer to one request, to its end. `bodiless`: to a HEAD, which has none whatever its headers say."""
    raw = bytearray()
    while True:
        while (end := _END_OF_HEAD.search(raw)) is None:
            try:
                piece = await far.reader.read(_CHUNK)
            except ConnectionError:
                piece = b""  # a reset is another way of hanging up
            if not piece:
                if raw:
                    holder.note(authority, BadResponse(f"{authority}: what came back is not HTTP."))
                elif far.absolute and holder.exit is not None:
                    holder.note(authority, ProxyFailed(f"Proxy {holder.exit.address} hung up."))
                else:
                    holder.note(authority, ConnectionDropped(f"{authority}: the server closed the connection."))
                return
            holder.receiving(len(piece))
            raw += piece
            if len(raw) > _MAX_HEAD:
                holder.note(authority, BadResponse(f"{authority}: the headers are longer than {_MAX_HEAD} bytes."))
                return
        head, rest = bytes(raw[: end.start()]), bytes(raw[end.end() :])
        first, *lines = re.split(rb"\r?\n", head)
        status = first.partition(b" ")[2][:3]
        if not first.startswith(b"HTTP/") or not status.isdigit():
            holder.note(authority, BadResponse(f"{authority}: what came back is not HTTP."))
            return
        if far.absolute and holder.exit is not None and status == b"407":
            holder.note(authority, refused_by(holder.exit, 407))
            await answer(writer, 502, (MARK, holder.mark), keep=False)
            return
        if status.startswith(b"1"):
            raw = bytearray(rest)  # an interim answer is of no use to the browser
            continue
        named = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        left = 0 if bodiless or status in (b"204", b"304") else _length_of(named)
        kept = [line for line, (name, _) in zip(lines, named, strict=True) if name.decode("latin-1") not in HOP_BY_HOP]
        writer.write(b"\r\n".join([first, *kept, b"Connection: close", b"", rest]))
        await writer.drain()
        await _carry(far.reader, writer, holder.receiving, None if left is None else left - len(rest))
        return


def _length_of(headers: list[tuple[bytes, bytes]]) -> int | None:
    """How long the body is, when that can be told for sure; else its end is that of the connection."""
    given = {value for name, value in headers if name == b"content-length"}
    if len(given) != 1 or any(name == b"transfer-encoding" for name, _ in headers):
        return None
    (text,) = given
    return int(text) if text.isdigit() else None


async def both_ways(holder: Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, far: Line) -> None:
    up = asyncio.create_task(_carry(reader, far.writer, holder.sending))
    down = asyncio.create_task(_carry(far.reader, writer, holder.receiving))
    await first_of(up, down)


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: Callable[[int], None],
    length: int | None = None,
) -> None:
    """Bytes one way until their end, or until `length` of them were carried."""
    while (length is None or length > 0) and (piece := await reader.read(_CHUNK)):
        if length is not None:
            length -= len(piece)
        count(len(piece))
        writer.write(piece)
        await writer.drain()


async def first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of them ends, whichever way; the others are ended then."""
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_head(reader: asyncio.StreamReader) -> tuple[str, Pairs]:
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError("the head is too long") from error
    if len(raw) > _MAX_HEAD:
        raise ValueError("the head is too long")
    first, *lines = raw[:-4].decode("latin-1").split("\r\n")
    if first.count(" ") != 2:
        raise ValueError("not HTTP")
    pairs = [(name, value.strip()) for name, colon, value in (line.partition(":") for line in lines) if colon]
    return first, pairs


async def answer(writer: asyncio.StreamWriter, status: int, *headers: tuple[str, str], keep: bool) -> bool:
    """An answer of our own, without a body. Returns whether the connection can be used again."""
    words = {400: "Bad Request", 403: "Forbidden", 407: "Proxy Authentication Required", 411: "Length Required"}
    rows = [f"HTTP/1.1 {status} {words.get(status, 'Bad Gateway')}", "Content-Length: 0"]
    rows += [f"{name}: {value}" for name, value in headers]
    rows.append(f"Connection: {'keep-alive' if keep else 'close'}")
    writer.write(("\r\n".join(rows) + "\r\n\r\n").encode("ascii"))
    await writer.drain()
    return keep


def has_no_body(headers: Pairs) -> bool:
    names = {name.lower(): value for name, value in headers}
    return "transfer-encoding" not in names and names.get("content-length", "0") == "0"


def origin_form(target: str) -> str:
    rest = target.partition("://")[2].partition("#")[0]
    found = re.search(r"[/?]", rest)
    path = rest[found.start() :] if found else "/"
    return path if path.startswith("/") else f"/{path}"
