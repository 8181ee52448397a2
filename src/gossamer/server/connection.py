"""One connection to the server: uvicorn's, closed when its client is too slow or has too many connections.

uvicorn waits for ever for the first request of a connection, for the rest of a request, for a body that no handler
reads, and for a client that does not read its response. A client that opens connections and dawdles could lock everyone
else out. So half of all connections may be idle, without a whole request; for a new one beyond that, the oldest idle
connection is closed, of the client that has the most. How it recovers: the client connects again.

A request must be one that every parser reads alike, also that of a proxy in front; any other gets a 400 before it
reaches the application.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import ClassVar

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_SECONDS = 10.0  # for the whole head of a request, from the connect or from its first byte
MOST_HEAD = 64 * 1024  # bytes of the head of a request
PIECE = 16 * 1024  # bytes read at a time
_BLANK_LINE = re.compile(rb"\n\r?\n")
_WRONG_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n|\Z)|\n[ \t]")
_HOST = re.compile(rb"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?", re.ASCII)
LENGTHS = frozenset({b"content-length", b"transfer-encoding"})  # headers that say where a body ends
STALL_SECONDS = 30.0  # within which a client must read at least some of the response
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-type: application/json\r\n\r\n"
    b'{"success":false,"error":{"code":"connections","message":"Too many connections from your address. Close some, '
    b'or ask the owner of the server: server.connections_per_address.","details":{}}}'
)


class SocketConnection(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket. `lost` is called at its end."""

    lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.lost is not None:
            self.lost()


class StrictLines(ReceiveBuffer):
    """h11's buffer, which refuses a head in which a line ends with a bare LF or CR, or continues the line before: a
    proxy in front may see other lines there, and so other headers or another request."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        if self._data[:2] != b"\r\n":
            # From where h11 looks on: a long head that comes byte by byte is not read from its beginning each time.
            start = self._multiple_lines_search
            blank = _BLANK_LINE.search(self._data, start)
            if _WRONG_LINE.search(self._data, start, blank.end() if blank is not None else len(self._data)):
                raise h11.LocalProtocolError("A line that does not end as it should.")
        return super().maybe_extract_lines()


class Requests(h11.Connection):
    """h11's parser, stricter where others might read a request in another way: two lengths of a body (h11 would go by
    the chunks, a proxy by the length, and the bytes between the two would be a request that the proxy has not seen),
    chunks in HTTP/1.0, a whole URL as the target (which may name another host than Host), and a Host that is more than
    a name and a port."""

    def __init__(self) -> None:
        super().__init__(h11.SERVER, MOST_HEAD)
        self._receive_buffer = StrictLines()

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and (fault := _fault_of(event)):
            raise h11.RemoteProtocolError(fault)
        return event


def _fault_of(request: h11.Request) -> str:
    headers = dict(request.headers)
    if len(LENGTHS & headers.keys()) > 1:
        return "A body with two lengths."
    if b"transfer-encoding" in headers and request.http_version != b"1.1":
        return "Chunks before HTTP/1.1."
    if not request.target.startswith(b"/"):
        return "A target that is no path."
    if b"host" in headers and not _HOST.fullmatch(headers[b"host"]):
        return "A Host that is no name."
    return ""


class Connection(H11Protocol):
    """Between two requests uvicorn's own keep-alive timeout applies. `peers` counts the connections of each address, of
    which it may have `most_of_a_peer`, or any number if None; `idle` holds those without a whole request, the oldest
    first, of which there are at most `most_idle` in all."""

    peers: ClassVar[Counter[str]] = Counter()
    idle: ClassVar[defaultdict[str, dict[Connection, None]]] = defaultdict(dict)
    most_of_a_peer: int | None = None
    most_idle: int = 1000

    _closing: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _peer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = Requests()
        self._peer = _network(self.client[0]) if self.client else ""
        self.peers[self._peer] += 1
        if self.most_of_a_peer is not None and self.peers[self._peer] > self.most_of_a_peer:
            transport.write(REFUSAL)
            transport.close()
        self._watch()
        if sum(map(len, self.idle.values())) > self.most_idle:
            crowd = max(self.idle.values(), key=len)
            oldest = next(iter(crowd))
            oldest.transport.abort()
            oldest._count()

    def data_received(self, data: bytes) -> None:
        # h11 checks the length of a head only while it is incomplete, so it must not get a long one all at once.
        for start in range(0, len(data), PIECE):
            if self.transport.is_closing():
                return
            super().data_received(data[start : start + PIECE])
        if self.cycle is not None and self.cycle.response_complete and self.conn.their_state is h11.SEND_BODY:
            self.transport.close()  # it was answered; the rest of its body is not read
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        super().handle_websocket_upgrade(event)
        self._rest()
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, SocketConnection)
        protocol.lost = self._leave

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._count()

    def _leave(self) -> None:
        self._rest()
        self._count()
        self._taken()
        self.peers[self._peer] -= 1
        if not self.peers[self._peer]:
            del self.peers[self._peer]

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def _watch(self) -> None:
        self._count()
        if self.conn.their_state is not h11.IDLE:
            self._rest()  # the head is there
        elif self._closing is None and not self.transport.is_closing():
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _count(self) -> None:
        """Count the connection among the idle ones, or no longer. One that owes the rest of a body, which may never
        come, is idle too, whether it was answered or not."""
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY) and not self.transport.is_closing():
            self.idle[self._peer].setdefault(self)
        elif self._peer in self.idle:
            self.idle[self._peer].pop(self, None)
            if not self.idle[self._peer]:
                del self.idle[self._peer]

    def _rest(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def connections(most_of_a_peer: int | None, most_idle: int) -> type[Connection]:
    """The connections of one server."""
    limits = {"most_of_a_peer": most_of_a_peer, "most_idle": most_idle}
    return type("Connection", (Connection,), {"peers": Counter(), "idle": defaultdict(dict), **limits})


def _network(address: str) -> str:
    """The address; for IPv6 its /64, because every client has at least one to itself."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if not isinstance(ip, IPv6Address) or ip.ipv4_mapped else ip.exploded[:19]
