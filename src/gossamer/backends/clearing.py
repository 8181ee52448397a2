"""What is cleared away in portions, beside the work of others: pages of jobs that were given up or forgotten.

What it does: one portion after the other, until nothing is left. Each is short, so that nobody waits long for it.
How it fails: BackendUnavailable ends it, for those who wait for its end; whoever does not wait is not told.
How it recovers: what is left is in the backend. Whoever looks there goes on with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from datetime import timedelta

LOOK = timedelta(seconds=2)  # how often a process looks whether somebody died over it


class Clearing:
    """`portion` clears away some of it, and returns False when there was nothing."""

    def __init__(self, portion: Callable[[], Awaitable[bool]]) -> None:
        self._portion = portion
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._left: Hashable = None

    def begin(self) -> None:
        """Clear away what there is now. Returns at once."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name="clearing")
            self._task.add_done_callback(_heed)

    async def finish(self) -> None:
        """Clear away what there is now, and return when it is gone. Raises BackendUnavailable."""
        self.begin()
        if self._task is not None:
            await asyncio.shield(self._task)  # others may wait for it as well

    def go_on(self, left: Hashable) -> None:
        """Begin when this much (None: nothing) was left at the look before as well: then nobody is at it."""
        if left is not None and left == self._left:
            self.begin()
        self._left = left

    async def close(self) -> None:
        """Leave the rest to others."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError, Exception):  # its errors were told to those who waited for it
                await self._task

    async def _work(self) -> None:
        while self._again:
            self._again = False
            while await self._portion():
                pass


def _heed(task: asyncio.Task[None]) -> None:
    """An error that nobody waited for is no news: the next look finds what is left."""
    if not task.cancelled():
        task.exception()
