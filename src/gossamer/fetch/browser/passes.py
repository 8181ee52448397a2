"""The right to use the gatehouse: who holds it, what was carried for it, and what went wrong on the way."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import timedelta

from ...errors import AddressRefused, GossamerError
from ...model.route import Exit

_MAX_TROUBLES = 100  # of one pass that are remembered


class Pass:
    """The right to use the gatehouse, what was done with it, and what went wrong. It shows no secret."""

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
