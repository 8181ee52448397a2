"""Finds out when the kernel last sent data on a connection that belongs to a driver.

wreq makes its connections in its own thread and does not report when it sends a request; it does report the local end
of the connection that answered. The kernel knows the rest (Linux: TCP_INFO), to a few milliseconds.
How it fails: None, if the connection is gone or the system does not report the time.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

_FILES = "/proc/self/fd"
_LAST_DATA_SENT = 44  # offset in the kernel's struct tcp_info: milliseconds, 32 bits
_MOST_KEPT = 4096
TICK = 0.004  # seconds; the resolution of the kernel is this or finer


class SentTimes:
    """Finds the connections of this process by their local end, `127.0.0.1:49546` or `[::1]:49546`."""

    def __init__(self) -> None:
        self._files: dict[str, int] = {}  # local end -> file descriptor, when last seen

    def seconds_since_known(self, end: str) -> float | None:
        """As `seconds_since`, for a connection that was looked up before."""
        file = self._files.get(end)
        return _look(file, end) if file is not None else None

    def seconds_since(self, end: str) -> float | None:
        """How many seconds ago data was last sent."""
        ago = self.seconds_since_known(end)
        if ago is not None:
            return ago
        if len(self._files) >= _MOST_KEPT:
            self._files.clear()
        self._files.pop(end, None)
        with suppress(OSError):
            for name in os.listdir(_FILES):
                ago = _look(int(name), end)
                if ago is not None:
                    self._files[end] = int(name)
                    return ago
        return None


def _look(file: int, end: str) -> float | None:
    try:
        borrowed = socket.socket(fileno=file)
    except OSError:
        return None  # no socket, or closed
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6) or borrowed.type != socket.SOCK_STREAM:
            return None
        host, port = borrowed.getsockname()[:2]
        if end != (f"[{host}]:{port}" if borrowed.family == socket.AF_INET6 else f"{host}:{port}"):
            return None
        borrowed.getpeername()  # raises if not connected: a listening server has the same address
        told = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_SENT + 4)
        milliseconds: int = struct.unpack_from("I", told, _LAST_DATA_SENT)[0]
        return milliseconds / 1000
    except (OSError, struct.error):
        return None
    finally:
        borrowed.detach()  # leaves the descriptor open: it is not ours
