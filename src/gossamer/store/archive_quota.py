"""The size limit of the archive. While it is reached, nothing is fetched; nothing is deleted automatically.

How it works: the files of the archive are listed when a sink begins, and then periodically; pages that this process
writes in between are counted at once, those of others at the next listing. So a fleet may exceed the limit by what its
workers have in hand and wrote since the last listing.
How it fails: if the archive cannot be listed, the last size counts. How it recovers: `gossamer prune`, or a higher
limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from ..clock import Clock
from ..errors import GossamerError
from ..model.events import EventSink, Trouble
from .contract import Archive

LOOK = timedelta(minutes=1)  # between two listings
SPARING = 100  # and this many times as long as a listing takes


class ArchiveQuota:
    def __init__(self, archive: Archive, limit: int, clock: Clock, events: EventSink) -> None:
        self._archive = archive
        self._limit = limit
        self._clock = clock
        self._events = events
        self._size = 0
        self._written = 0  # since the last listing began
        self._told = False

    @property
    def full(self) -> bool:
        return self._size + self._written >= self._limit

    def wrote(self, refs: Iterable[str]) -> None:
        """Count pages that this process has written."""
        self._written += sum(int(length) for length in (ref.rpartition("+")[2] for ref in refs) if length.isdecimal())
        self._tell()

    async def measure(self) -> None:
        """List the archive once."""
        before = self._written
        try:
            self._size = await self._archive.size()
        except GossamerError as error:
            self._events.emit(Trouble(at=self._clock.now(), stage="archive", message=f"Its size is unknown: {error}"))
            return
        self._written -= before
        self._tell()

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            began = self._clock.monotonic()
            await self.measure()
            took = self._clock.monotonic() - began
            await self._clock.sleep(max(LOOK.total_seconds(), SPARING * took))

    def _tell(self) -> None:
        if self.full and not self._told:
            words = (
                f"The archive holds {self._size + self._written:,} bytes, and store.archive_limit allows "
                f"{self._limit:,}. Nothing is fetched until there is room: `gossamer prune --pages 30d`, or a higher "
                "limit."
            )
            self._events.emit(Trouble(at=self._clock.now(), stage="archive", message=words))
        self._told = self.full
