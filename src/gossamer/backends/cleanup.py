"""Background cleanup: clears pages of replaced, cancelled and deleted jobs beside other work.

What it does: deletes one portion after the other, until nothing is left. Each portion is short, so that no other caller
waits long.
How it fails: BackendUnavailable ends it. Callers of `finish` and `resume` see the error; nobody else waits for it.
How it recovers: the remaining work is recorded in the backend. Every worker looks there from time to time and continues
the cleanup of a process that died.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any

MOMENT = timedelta(seconds=1)  # how long the caller that ends a job waits for its pages to be dropped
LOOK = timedelta(seconds=2)  # how often a process looks for unfinished cleanups of others


class BackgroundCleanup:
    """`portion` deletes one portion, and returns False if there was nothing to delete.

    `look` returns True if there is a cleanup that no process seems to work on. `ticks` measures durations.
    """

    def __init__(
        self, portion: Callable[[], Awaitable[bool]], look: Callable[[], Awaitable[bool]], ticks: Callable[[], float]
    ) -> None:
        self.portion = portion
        self._look = look
        self._ticks = ticks
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._looking: asyncio.Task[None] | None = None
        self._looked_at = -math.inf

    def begin(self) -> None:
        """Start deleting what is there now. Returns at once."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = _started(self._work(), "cleanup")

    async def finish(self) -> None:
        """Delete what is there now, and return when it is gone. Raises BackendUnavailable."""
        self.begin()
        if self._task is not None:
            await asyncio.shield(self._task)  # others may wait for it as well

    async def finish_soon(self) -> None:
        """Delete what is there now, and return when it is gone, or after MOMENT; the rest continues in the background.
        Raises BackendUnavailable."""
        self.begin()
        if self._task is not None:
            await asyncio.wait([self._task], timeout=MOMENT.total_seconds())
            if self._task.done():
                await self._task

    async def resume(self) -> None:
        """Continue the cleanup of a process that died. Looks for one at most every LOOK."""
        if self._ticks() - self._looked_at >= LOOK.total_seconds():
            self._looked_at = self._ticks()
            if await self._look():
                self.begin()

    def resume_soon(self) -> None:
        """`resume` in the background."""
        if self._looking is None or self._looking.done():
            self._looking = _started(self.resume(), "look for cleanup")

    async def close(self) -> None:
        """Stop, and leave the rest to other processes."""
        for task in (self._looking, self._task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):  # callers of `finish` have seen its error
                    await task

    async def _work(self) -> None:
        while self._again:
            self._again = False
            while await self.portion():
                pass


def _started(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_retrieve)
    return task


def _retrieve(task: asyncio.Task[None]) -> None:
    """Ignore an error that no caller waits for: the next look finds what is left."""
    if not task.cancelled():
        task.exception()
