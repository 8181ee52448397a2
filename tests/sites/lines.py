"""The park's end of a connection: what came with the kernel's time of its arrival, plain or inside TLS.

The kernel stamps packets, not bytes: of what one read returns it tells when the last packet came, and packets that wait
for the reader may be joined. For HTTP/1.1 that is exact, since a client sends nothing between a request and its answer.
With HTTP/2 a park that waits for a core may see two requests in one read; then both have the time of the later one, and
look closer together than they were, never further apart.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
import time
from contextlib import suppress

MOST_READ = 64 * 1024
SO_TIMESTAMPNS = 35  # Linux; the module `socket` has no name for it


class Line:
    """One connection: reads with the kernel's time of arrival, writes without blocking."""

    server_name = ""  # that the client asked for in its TLS handshake
    is_http2 = False  # by the TLS handshake

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.peer = 0  # the other side's port
        with suppress(OSError):  # it has reset the connection already, and the first read tells
            self.peer = sock.getpeername()[1]
        self._unsent = b""
        self._loop = asyncio.get_running_loop()
        self.is_open = True

    def read(self) -> tuple[bytes, float] | None:
        """What has come, and when (wall clock); None when the other side has hung up."""
        try:
            data, notes, _, _ = self._sock.recvmsg(MOST_READ, 64)
        except BlockingIOError:
            return b"", 0.0
        except OSError:
            return None
        if not data:
            return None
        for level, kind, value in notes:
            if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                seconds, nanoseconds = struct.unpack("qq", value)
                return data, seconds + nanoseconds / 1e9
        return data, time.time()

    def write(self, data: bytes) -> None:
        if self._unsent:
            self._unsent += data
            return
        self._unsent = data
        self._flush()
        if self._unsent and self.is_open:
            self._loop.add_writer(self._sock, self._flush)

    def _flush(self) -> None:
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if not self._unsent:
            self._loop.remove_writer(self._sock)

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()


class TlsLine(Line):
    """The same inside TLS. The answer to the client's first word waits as long as a distant server would need."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext, delay: float) -> None:
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._delay: float | None = delay  # None when it is over
        self._is_safe = False

    def read(self) -> tuple[bytes, float] | None:
        came = super().read()
        if came is None:
            return None
        data, at = came
        self._incoming.write(data)
        if self._is_safe:
            return self._plain(at)
        if self._delay is None:
            return self._shake_hands(at)
        if data:
            self._loop.call_later(self._delay, self._begin, at)
            self._delay = float("inf")  # begun: what else comes only waits
        return b"", at

    def _begin(self, at: float) -> None:
        self._delay = None
        if self.is_open and self._shake_hands(at) is None:
            self.close()

    def _shake_hands(self, at: float) -> tuple[bytes, float] | None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            super().write(self._outgoing.read())
            return b"", at
        except ssl.SSLError:
            return None
        self._is_safe = True
        self.server_name = getattr(self._tls, "asked_for", None) or ""
        self.is_http2 = self._tls.selected_alpn_protocol() == "h2"
        super().write(self._outgoing.read())
        return self._plain(at)

    def _plain(self, at: float) -> tuple[bytes, float] | None:
        parts = []
        try:
            while part := self._tls.read(MOST_READ):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts), at
        except ssl.SSLError:
            return None
        return (b"".join(parts), at) if parts else None  # an empty read is the client's farewell

    def write(self, data: bytes) -> None:
        self._tls.write(data)
        super().write(self._outgoing.read())


def server_context(certificate: str, key: str, *, http2: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    context.sni_callback = lambda tls, name, _: setattr(tls, "asked_for", name)
    return context


def handshake_delay(between_ms: tuple[int, int]) -> float:
    return random.uniform(*between_ms) / 1000
