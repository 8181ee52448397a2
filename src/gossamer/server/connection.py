"""One connection to the server: as uvicorn has it, and closed when the head of a request does not come in time.

uvicorn waits for ever for the first request of a connection, and for the rest of one that has begun; so whoever opens
connections and is silent could keep everybody else out. How it recovers: the client connects again.
"""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the whole head of a request, from the connection or its first byte on


class Connection(H11Protocol):
    """Between two requests of a connection the time of uvicorn holds."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._rest()  # the head is there
        elif self._closing is None and not self.transport.is_closing():
            self._closing = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _rest(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None
