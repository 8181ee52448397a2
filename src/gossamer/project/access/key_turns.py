"""Turns at something scarce, shared fairly between keys: who may use one of a few places now, and who waits.

What it does: a key uses at most `each` of the places at once. When a place is free, it goes to the key that has waited
longest since its last turn, not to the oldest request: however many requests one key has in line, another key waits
for one turn of each key before it. How it fails: KeyBusy and ServerBusy, if the line of the key, or of all keys, is
full. How it recovers: the client asks again later.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ...errors import Transient


class KeyBusy(Transient):
    """So many answers of this key are waiting to be computed that it gets no more into the line."""

    reason = "at-once"


class ServerBusy(Transient):
    """So many answers of all keys are waiting to be computed that none is added to the line."""

    reason = "busy"


class KeyTurns:
    """`waiting_each` and `waiting` bound the line of one key, and of all; None: unlimited."""

    def __init__(self, places: int, each: int, *, waiting_each: int | None = None, waiting: int | None = None) -> None:
        self._free = places
        self._each = each
        self._waiting_each = waiting_each
        self._waiting = waiting
        self._held: Counter[str] = Counter()  # places in use, by key
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next key first

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[None]:
        """Wait for a place and use it. Raises KeyBusy, ServerBusy."""
        await self._take(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _take(self, key: str) -> None:
        line = self._lines.get(key, ())
        if self._waiting_each is not None and len(line) >= self._waiting_each:
            raise KeyBusy(f"{len(line)} pages of your key are waiting to be read. Ask again when some are answered.")
        if self._waiting is not None and sum(map(len, self._lines.values())) >= self._waiting:
            raise ServerBusy("Too many pages are waiting to be read. Ask again in a few seconds.")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, deque()).append(place)
        self._serve()
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it had the place already
                self._give_back(key)
            elif place in self._lines.get(key, ()):
                self._take_out(key, place)
            raise

    def _give_back(self, key: str) -> None:
        self._free += 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._serve()

    def _take_out(self, key: str, place: asyncio.Future[None]) -> None:
        line = self._lines[key]
        line.remove(place)
        if not line:
            del self._lines[key]

    def _serve(self) -> None:
        """Give free places to the keys whose turn it is."""
        while self._free:
            key = next((one for one in self._lines if self._held[one] < self._each), None)
            if key is None:
                return
            place = self._lines[key][0]
            if not place.done():  # otherwise whoever waited has just gone away
                self._lines.move_to_end(key)
                self._free -= 1
                self._held[key] += 1
                place.set_result(None)
            self._take_out(key, place)
