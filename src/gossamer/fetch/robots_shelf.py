"""robots.txt as it was last read: the response as a value, where it is kept, and whose turn it is to ask.

Apart from robots.py, which asks and reads: whoever only opens a project loads no decoder and no parser.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Protocol

import msgspec

PATIENCE = timedelta(seconds=30)  # the longest wait for another page's request, which a closed window may delay


class RobotsEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One response for robots.txt. `text` is empty if there is no file (4xx: all is allowed)."""

    origin: str
    status: int
    text: str
    fetched_at: float
    expires_at: float


class RobotsShelf(Protocol):
    """Keeps responses beyond the life of the process. Fails with BackendUnavailable."""

    async def get(self, origin: str) -> RobotsEntry | None:
        """The newest response of the origin, however old."""

    async def put(self, entry: RobotsEntry) -> None:
        """Store the response, replacing any older one."""


class MemoryShelf:
    """A shelf that ends with the process; beyond `max_entries` or `max_size` (characters in all) the oldest response is
    dropped."""

    def __init__(self, max_entries: int = 10_000, max_size: int = 32 * 1024 * 1024) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._size = 0
        self._entries: OrderedDict[str, RobotsEntry] = OrderedDict()

    async def get(self, origin: str) -> RobotsEntry | None:
        return self._entries.get(origin)

    async def put(self, entry: RobotsEntry) -> None:
        before = self._entries.pop(entry.origin, None)
        self._size += len(entry.text) - (len(before.text) if before is not None else 0)
        self._entries[entry.origin] = entry
        while len(self._entries) > self._max_entries or self._size > self._max_size:
            self._size -= len(self._entries.popitem(last=False)[1].text)


class OriginTurns:
    """Per origin, one task at a time requests robots.txt, and the others wait for its response. Shared by one
    process."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def of(self, origin: str) -> AsyncIterator[None]:
        """Enter in turn, or out of turn after PATIENCE. The lock is dropped when nobody waits for it any more."""
        lock, wanting = self._open.setdefault(origin, (asyncio.Lock(), []))
        wanting.append(None)
        async with AsyncExitStack() as stack:
            stack.callback(self._leave, origin, wanting)
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE.total_seconds()):
                    await stack.enter_async_context(lock)
            yield

    def _leave(self, origin: str, wanting: list[None]) -> None:
        wanting.pop()
        if not wanting:
            self._open.pop(origin, None)
