"""The notes in the shared state that say which results wait in the spool of this process, one for each file.

What it does: a result is spooled, then noted, then its task is settled. So no task is settled while its result waits
unknown to other machines: while a note names a job, it is not ended, and none of its records is marked as gone.
How it fails: Transient, if the state does not answer; then the task must not be settled. How it recovers: the note is
always rewritten as a whole, so that a repeated or late write does no harm. If the process dies, its notes and its files
stay; the process that adopts a file writes its note from then on. A removed note that reappears in a state which
lost its last second is removed by any process of that disk: its file is not there any more.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection

from ..clock import Clock
from .contract import SpoolBook, SpoolNote
from .spool import Spool


class SpoolNotes:
    """Keeps the note of one spool. `worker` is the name of this process."""

    def __init__(self, book: SpoolBook, spool: Spool, clock: Clock, *, worker: str) -> None:
        self._book = book
        self._spool = spool
        self._clock = clock
        self._worker = worker
        self._named: frozenset[str] = frozenset()  # jobs in the note that is certainly stored
        self._lock = asyncio.Lock()  # so that writes are in the order of reads

    async def ensure(self, jobs: Collection[str]) -> None:
        """Return when the note names these jobs, whose results wait. Raises Transient."""
        async with self._lock:
            if not self._named.issuperset(jobs):
                await self._write()

    async def renew(self) -> None:
        """Update the note; remove it if nothing waits any more, and notes of this disk whose files are gone. Raises
        Transient."""
        async with self._lock:
            await self._write()
            if not (disk := await self._spool.disk()):
                return
            # The notes first, and then the files: a file is older than its note.
            ours = (socket.gethostname(), disk)
            noted = [note.name for note in await self._book.notes() if (note.host, note.disk) == ours]
            await self._book.take_away(await self._spool.missing(noted))

    async def _write(self) -> None:
        held, disk = self._spool.contents(), await self._spool.disk()
        self._named = frozenset()
        for file in held:
            if file.results:
                await self._book.note(
                    SpoolNote(
                        name=file.name,
                        host=socket.gethostname(),
                        folder=str(self._spool.folder.absolute()),
                        disk=disk,
                        worker=self._worker,
                        results=file.results,
                        bytes=file.bytes,
                        noted_at=self._clock.now(),
                    )
                )
        if done := [file.name for file in held if not file.results]:
            await self._book.take_away(done)
            await self._spool.unnoted(done)
        self._named = frozenset(job for file in held for job in file.results)
