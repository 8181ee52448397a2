"""One connection to the server: uvicorn's, closed when its client is too slow or has too many connections.

uvicorn waits for ever for the first request of a connection, for the rest of a request, for a body that no handler
reads, and for a client that does not read its response. A client that opens connections and dawdles could lock everyone
else out. How it recovers: the client connects again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEAD_SECONDS = 10.0  # for the whole head of a request, from the connect or from its first byte
MOST_HEAD = 64 * 1024  # bytes of the head of a request
PIECE = 16 * 1024  # bytes read at a time
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


class Requests(h11.Connection):
    """h11's parser, which refuses a request with both Content-Length and Transfer-Encoding: h11 would go by the chunks,
    a proxy in front by the length, and the bytes between the two would be a request that the proxy has not seen."""

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and len(LENGTHS & {name for name, _ in event.headers}) > 1:
            raise h11.RemoteProtocolError("A body with two lengths.")
        return event


class Connection(H11Protocol):
    """Between two requests uvicorn's own keep-alive timeout applies. `peers` counts the connections of each address;
    an address may have `most_of_a_peer` of them, or any number if None."""

    peers: ClassVar[Counter[str]] = Counter()
    most_of_a_peer: int | None = None

    _closing: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None
    _peer = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.conn = Requests(h11.SERVER, MOST_HEAD)
        self._peer = _network(self.client[0]) if self.client else ""
        self.peers[self._peer] += 1
        if self.most_of_a_peer is not None and self.peers[self._peer] > self.most_of_a_peer:
            transport.write(REFUSAL)
            transport.close()
        self._watch()

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

    def _leave(self) -> None:
        self._rest()
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
        if self.conn.their_state is not h11.IDLE:
            self._rest()  # the head is there
        elif self._closing is None and not self.transport.is_closing():
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _rest(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _taken(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def connections(most_of_a_peer: int | None) -> type[Connection]:
    """The connections of one server."""
    return type("Connection", (Connection,), {"peers": Counter(), "most_of_a_peer": most_of_a_peer})


def _network(address: str) -> str:
    """The address; for IPv6 its /64, because every client has at least one to itself."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return address if not isinstance(ip, IPv6Address) or ip.ipv4_mapped else ip.exploded[:19]
