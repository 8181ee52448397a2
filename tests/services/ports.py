"""Ports for servers of the tests, which may be killed and started again at the same one.

They lie below those that the system hands out by itself (32,768 and up on Linux): while such a server is down, no other
test's site and no connection of a client comes to sit on its port.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack

LOWEST, HIGHEST = 12_000, 22_000

_given: set[int] = set()  # a server that is about to start, or is down for a while, is not seen by looking


def free_port(*, bus: int = 0) -> int:
    """A port that nobody listens on. With `bus`, so is the one that many above it."""
    while True:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if port in _given:
            continue
        try:
            with ExitStack() as held:
                for each in {port, port + bus}:
                    held.enter_context(socket.socket()).bind(("127.0.0.1", each))
        except OSError:
            continue
        _given.add(port)
        return port
