"""The traffic through the guard proxy: `Pass`, the permission of one page to use it with a record of its traffic, and
the heads and bodies on one connection.

How it fails: OSError, EOFError, ValueError and SpentError, which all mean that this connection is over.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta

from ...errors import AddressRefused, BadResponse, ConnectionDropped, GossamerError, ProxyFailed
from ...model.route import Proxy
from ...model.url import site_of_host
from ..contract import Gate
from .guard_dialer import Line, refused_by

_MAX_TROUBLES = 100  # remembered per pass
# Limits for a page's traffic to any foreign site. What a tunnel carries is encrypted, but a request has a TLS record of
# its own: Chromium writes the frames of HTTP/2 one by one. So there are never more requests than records; those that
# are too short for a request are left out.
MAX_TUNNELS_ABROAD = 32
MAX_REQUESTS_ABROAD = 250
MAX_SENT_ABROAD = 256 * 1024  # bytes: some hundreds of requests


class ForeignSite:
    """A page's traffic to one foreign site, through one pass."""

    __slots__ = ("requests", "sent", "tunnels")

    def __init__(self) -> None:
        self.requests = 0
        self.tunnels = 0
        self.sent = 0

    @property
    def overdone(self) -> bool:
        return self.tunnels > MAX_TUNNELS_ABROAD or self.requests > MAX_REQUESTS_ABROAD or self.sent > MAX_SENT_ABROAD


AT_ONCE = 6  # concurrent plain requests of a page to one site
TUNNELS_AT_ONCE = 64  # more, since Chromium keeps idle ones; it opens 6 to one host

# Hosts that Chromium contacts on behalf of a page although the page does not ask for it, above all to classify form
# fields. That would reveal which pages are visited. Flags that disable it come and go with versions. Chromium's own
# requests have no pass, and the guard rejects them.
CALLS_HOME = frozenset(
    f"{name}.googleapis.com"
    for name in ("content-autofill", "optimizationguide-pa", "safebrowsing", "safebrowsinghttpgateway", "update")
) | {f"clients{number}.google.com" for number in range(1, 7)}


class Pass:
    """The permission to use the guard proxy, a record of its use, and its errors. It shows no secret."""

    def __init__(
        self,
        proxy: Proxy | None,
        on_bytes: Callable[[int], None] | None,
        gate: Gate | None,
        max_bytes: int | None,
        max_requests: int | None,
        connect: timedelta,
        home: str | None = None,
    ) -> None:
        self.username = secrets.token_hex(8)
        self.password = secrets.token_urlsafe(24)
        self.mark = secrets.token_hex(8)
        self.proxy = proxy
        self.connect = connect
        self.max_bytes = max_bytes
        self.max_requests = max_requests
        self.requests = 0  # a tunnel counts as one: its content is encrypted
        self.received = 0
        self.sent = 0
        self.spent = False  # nothing is forwarded any more
        self.address = ""  # the first one that was dialled
        self.lines: set[asyncio.Task[None]] = set()
        self._home = home
        self._abroad: dict[str, ForeignSite] = {}
        self._places: dict[tuple[str, bool], asyncio.Semaphore] = {}
        self._troubles: dict[str, GossamerError] = {}
        self._on_bytes = on_bytes
        self._gate = gate
        self._at_gate = asyncio.Lock()
        self._at_gate_since: float | None = None
        self._waited = 0.0
        # The error that prevented the first request; it is not reported anywhere else.
        self.kept_back: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def trouble(self, authority: str) -> GossamerError | None:
        """The last error on the way to `host:port`."""
        return self._troubles.get(_key(authority))

    @property
    def refused(self) -> list[str]:
        """The destinations that were refused, as `host:port`."""
        return [name for name, error in self._troubles.items() if isinstance(error, AddressRefused)]

    def note(self, authority: str, error: GossamerError) -> None:
        if len(self._troubles) < _MAX_TROUBLES:
            self._troubles[_key(authority)] = error

    def forgive(self, authority: str) -> None:
        self._troubles.pop(_key(authority), None)

    def place_at(self, host: str, *, tunnel: bool) -> AbstractAsyncContextManager[None]:
        """Limits the concurrent requests or tunnels of a page to the site of `host`, whatever names of the site they
        use."""
        if self._home is None:
            return nullcontext()
        places = asyncio.Semaphore(TUNNELS_AT_ONCE if tunnel else AT_ONCE)
        return self._places.setdefault((site_of_host(host), tunnel), places)

    def calls_home(self, host: str) -> bool:
        """Is this the browser itself contacting its vendor's servers?"""
        return host.lower() in CALLS_HOME and self._home is not None and site_of_host(host) != self._home

    @property
    def overdone(self) -> list[str]:
        """Foreign sites to which the page sent too much."""
        return [site for site, asked in self._abroad.items() if asked.overdone]

    def asking(self, host: str, *, tunnel: bool) -> ForeignSite | None:
        """Count another request or tunnel to `host`, and return the counter for the bytes sent there. Raises SpentError
        if the limit is reached, in all or for that site."""
        self.requests += 1
        if self.max_requests is not None and self.requests > self.max_requests:
            self.spent = True
        if self.spent:
            raise SpentError
        site = site_of_host(host)
        if self._home is None or site == self._home:
            return None
        abroad = self._abroad.setdefault(site, ForeignSite())
        if tunnel:
            abroad.tunnels += 1
        else:
            abroad.requests += 1
        if abroad.overdone:
            raise SpentError
        return abroad

    @property
    def waited(self) -> float:
        """Seconds that the first request has waited at its gate so far."""
        since = self._at_gate_since
        return self._waited + (time.perf_counter() - since if since is not None else 0.0)

    async def first_leaves(self, is_good: Callable[[], bool] = lambda: True) -> bool:
        """Return when a request may be written, which must follow at once. The first of the pass waits for its gate;
        False if the connection was lost meanwhile, and the request must come again. Raises SpentError."""
        if self._gate is None:
            return is_good()
        async with self._at_gate:
            gate = self._gate
            if gate is None:
                return is_good()
            began = self._at_gate_since = time.perf_counter()
            try:
                await gate.enter(self.address if self.proxy is None else "")
            except GossamerError as error:
                if not self.kept_back.done():
                    self.kept_back.set_exception(error)
                    self.kept_back.exception()  # retrieved, or asyncio would log a complaint
                self.cut()
                raise SpentError from error
            finally:
                self._at_gate_since = None
                self._waited += time.perf_counter() - began
            if not is_good():
                gate.withdraw()
                return False
            self._gate = None
            asyncio.get_running_loop().call_soon(gate.left)  # when the data written now has reached the kernel
            return True

    def sending(self, size: int, abroad: ForeignSite | None = None) -> None:
        self.sent += size
        self._check()
        if abroad is not None:
            abroad.sent += size
            if abroad.overdone:
                raise SpentError

    def receiving(self, size: int) -> None:
        self.received += size
        if self._on_bytes is not None:
            self._on_bytes(size)
        self._check()

    def cut(self) -> None:
        """Forward nothing more, and cancel open connections."""
        self.spent = True
        for line in tuple(self.lines):
            line.cancel()

    def _check(self) -> None:
        if self.max_bytes is not None and self.sent + self.received > self.max_bytes:
            self.spent = True
            raise SpentError

    def __repr__(self) -> str:
        return f"Pass({self.username!r}, proxy={self.proxy!r}, received={self.received})"


def _key(authority: str) -> str:
    """One spelling per destination: `Shop.example.:80` is shop.example:80."""
    host, colon, port = authority.lower().rpartition(":")
    return f"{host.rstrip('.')}{colon}{port}"


class SpentError(Exception):
    """The pass has reached one of its limits."""


MARK = "X-GuardProxy"  # in responses of the guard itself; its value is known only to the holder of the pass
# Hop-by-hop headers, never forwarded.
HOP_BY_HOP = frozenset({"proxy-authorization", "proxy-connection", "connection", "keep-alive", "te", "trailer"})
_CHUNK = 64 * 1024
_MAX_HEAD = 64 * 1024
_APPLICATION_DATA = 23
_TLS_RECORDS = (20, 21, 22, _APPLICATION_DATA)
_LONGEST_FINISHED = 69  # bytes: the last handshake record of TLS 1.3 looks like application data, but is shorter
# Bytes of a record with a frame of HTTP/2 that is no request: WINDOW_UPDATE, RST_STREAM, PING, PRIORITY_UPDATE, answers
# to SETTINGS. A request repeated a thousand times, whose headers are all in the table of the other side, has 48.
_LONGEST_CONTROL = 40
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")

Pairs = list[tuple[str, str]]


async def send_body(
    holder: Pass,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    length: int,
    abroad: ForeignSite | None = None,
) -> None:
    """Forward the body of a request; then wait until the browser hangs up. It may send nothing more on this
    connection."""
    while length > 0:
        piece = await reader.read(min(length, _CHUNK))
        if not piece:
            return
        length -= len(piece)
        holder.sending(len(piece), abroad)
        writer.write(piece)
        await writer.drain()
    await reader.read(1)


async def bring_answer(
    holder: Pass, authority: str, far: Line, writer: asyncio.StreamWriter, *, bodiless: bool
) -> None:
    """Forward the whole response to one request. `bodiless`: the response to a HEAD, which has no body whatever its
    headers say."""
    raw = bytearray()
    while True:
        while (end := _END_OF_HEAD.search(raw)) is None:
            try:
                piece = await far.reader.read(_CHUNK)
            except ConnectionError:
                piece = b""  # treat a reset like a normal close
            if not piece:
                if raw:
                    holder.note(authority, BadResponse(f"{authority}: what came back is not HTTP."))
                elif far.absolute and holder.proxy is not None:
                    holder.note(authority, ProxyFailed(f"Proxy {holder.proxy.address} hung up."))
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
        if far.absolute and holder.proxy is not None and status == b"407":
            holder.note(authority, refused_by(holder.proxy, 407))
            await answer(writer, 502, (MARK, holder.mark), keep=False)
            return
        if status.startswith(b"1"):
            raw = bytearray(rest)  # the browser does not need an interim response
            continue
        named = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        left = 0 if bodiless or status in (b"204", b"304") else _length_of(named)
        kept = [line for line, (name, _) in zip(lines, named, strict=True) if name.decode("latin-1") not in HOP_BY_HOP]
        writer.write(b"\r\n".join([first, *kept, b"Connection: close", b"", rest]))
        await writer.drain()
        await _carry(far.reader, writer, holder.receiving, None if left is None else left - len(rest))
        return


def _length_of(headers: list[tuple[bytes, bytes]]) -> int | None:
    """The length of the body if it is certain; else the body ends with the connection."""
    given = {value for name, value in headers if name == b"content-length"}
    if len(given) != 1 or any(name == b"transfer-encoding" for name, _ in headers):
        return None
    (text,) = given
    return int(text) if text.isdigit() else None


class TunnelRequests:
    """Finds the requests in a client's side of a tunnel: after the TLS handshake, if there is one."""

    def __init__(self) -> None:
        self._head = b""  # the header of a TLS record, as far as received
        self._left = 0  # bytes of the record still to come
        self._finished = False  # the client has finished the handshake
        self._begun = False  # the first request was found
        self._plain = False  # this is not TLS

    def found(self, piece: bytes) -> tuple[int | None, int]:
        """The position of the first request, if it begins in this piece, and the number of records that begin in the
        piece and may be a request."""
        at, first, count = 0, None, 0
        while at < len(piece) and not self._plain:
            if self._left:
                step = min(self._left, len(piece) - at)
                at, self._left = at + step, self._left - step
                continue
            more = piece[at : at + 5 - len(self._head)]
            self._head, at = self._head + more, at + len(more)
            if self._head[0] not in _TLS_RECORDS:
                self._plain = True
                first = None if self._begun else 0
                break
            if len(self._head) < 5:
                break
            kind, self._left, self._head = self._head[0], int.from_bytes(self._head[3:5], "big"), b""
            if kind != _APPLICATION_DATA:
                continue
            if not self._finished and self._left <= _LONGEST_FINISHED:
                self._finished = True
                continue
            self._finished = True
            count += self._left > _LONGEST_CONTROL
            if not self._begun:
                self._begun, first = True, max(0, at - 5)
        return first, count


async def both_ways(
    holder: Pass,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    far: Line,
    abroad: ForeignSite | None = None,
) -> None:
    up = asyncio.create_task(_carry_up(holder, reader, far.writer, abroad))
    down = asyncio.create_task(_carry(far.reader, writer, holder.receiving))
    await first_of(up, down)


async def _carry_up(
    holder: Pass, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, abroad: ForeignSite | None
) -> None:
    """Forward what the browser sends. The handshake passes freely; the first request waits for its gate."""
    requests = TunnelRequests()
    while piece := await reader.read(_CHUNK):
        at, count = requests.found(piece)
        if abroad is not None:
            abroad.requests += count
        holder.sending(len(piece), abroad)
        if at is not None:
            writer.write(piece[:at])
            await holder.first_leaves()
            writer.write(piece[at:])
        else:
            writer.write(piece)
        await writer.drain()


async def _carry(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: Callable[[int], None],
    length: int | None = None,
) -> None:
    """Forward bytes one way until the end, or until `length` of them were forwarded."""
    while (length is None or length > 0) and (piece := await reader.read(_CHUNK)):
        if length is not None:
            length -= len(piece)
        count(len(piece))
        writer.write(piece)
        await writer.drain()


async def first_of(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of the tasks ends, in any way; then cancel the others."""
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
    """Send a response of the guard itself, without a body. Return whether the connection can be reused."""
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
