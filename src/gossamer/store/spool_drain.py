"""From the spool into the store: the task that empties it, oldest first, as soon as the store is back.

While the store is away it is tried with growing pauses, by the oldest batch itself; nothing else asks it. What comes
in meanwhile goes behind, into the spool, so that results are stored in the order in which they came.

How it fails: a batch with something in it that cannot be stored is tried one by one; who is to blame is set aside in a
file and told by an event. A store that refuses us as a whole is away like one that does not answer, until somebody has
mended that. How it recovers: whatever stops it, the results stay in the spool; saving them again is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ..clock import Backoff, Clock
from ..errors import BackendUnavailable, GossamerError, Misconfigured, Transient
from ..model.events import EventSink, Spooled, Trouble
from .contract import Archive, RecordStore
from .spool import Spool
from .spool_files import Waiting

BACKOFF = Backoff(first=timedelta(milliseconds=250), longest=timedelta(seconds=5))
AWAY = (Transient, Misconfigured)  # the store does not answer, or refuses us; no single result is to blame


class Drain:
    """Takes in what cannot be stored now, and stores it later. Needs somebody who runs `run` as a task."""

    def __init__(
        self, spool: Spool, records: RecordStore, archive: Archive | None, clock: Clock, events: EventSink
    ) -> None:
        self._spool = spool
        self._records = records
        self._archive = archive
        self._clock = clock
        self._events = events
        self._arrived = asyncio.Event()
        self._told = False  # that results wait
        self._refusal = ""  # what a store that refuses us said last: it is told once
        # The oldest batch after its pages were archived: a store that stays away does not make them be archived twice.
        self._archived: list[Waiting] | None = None

    @property
    def waiting(self) -> bool:
        """True while anything is in the spool: then new results go behind it."""
        return not self._spool.empty

    async def take(self, results: Sequence[Waiting], because: GossamerError | None) -> None:
        """Spool results durably. Raises BackendUnavailable when there is no room."""
        try:
            await self._spool.append(results)
        except Transient as full:
            if because is None:
                raise
            # Both are wrong, and the store is what to look at first.
            raise BackendUnavailable(f"{because} {full}") from because
        self._arrived.set()
        if because is not None:
            self._tell_away(because)
        self._tell_waiting("Results wait on disk until the store is back.")

    async def run(self) -> None:
        """Empty the spool whenever there is something in it. Ends by cancellation only."""
        self._tell_waiting("Results of an earlier run wait on disk; they are stored now.")
        pauses = BACKOFF.pauses()
        while True:
            try:
                stored = await self._store_oldest()
                pauses = BACKOFF.pauses()
            except Exception as error:
                # Not only a store that is away: a defect of ours must not end the draining unseen either.
                self._tell_away(error)
                await self._clock.sleep(next(pauses).total_seconds())
                continue
            finally:
                self._tell_notes()
            if not stored:
                await self._rest()

    async def finish(self) -> None:
        """Empty the spool now. Raises one of AWAY at the first sign of it."""
        try:
            while await self._store_oldest():
                pass
        finally:
            self._tell_notes()
        self._tell_stored()

    def leave(self) -> None:
        """Say what stays behind, if anything does."""
        if self.waiting:
            message = "Results stay on disk, because the store is away. The next start stores them."
            self._events.emit(Spooled(at=self._clock.now(), bytes=self._spool.size, message=message))

    async def _rest(self) -> None:
        """Until something is spooled."""
        self._tell_stored()
        self._arrived.clear()
        if self._spool.empty:
            await self._arrived.wait()

    async def _store_oldest(self) -> bool:
        """Store the oldest batch; False when there is none. Raises one of AWAY, and then it is still there."""
        batch = await self._spool.next()
        if not batch:
            return False
        try:
            if self._archived is None:
                self._archived = await archive_pages(self._archive, batch)
            await self._records.save([one.result for one in self._archived])
        except AWAY:
            raise
        except Exception:
            await self._store_one_by_one(self._archived or batch)
        self._archived = None
        self._refusal = ""
        await self._spool.done()
        return True

    async def _store_one_by_one(self, batch: Sequence[Waiting]) -> None:
        """One of them is to blame: it is set aside, so that the others do not suffer for it."""
        for position, one in enumerate(batch):
            try:
                [archived] = await archive_pages(self._archive, [one])
                await self._records.save([archived.result])
            except AWAY:
                raise
            except Exception as error:
                await self._spool.set_aside(position, f"it cannot be stored: {type(error).__name__}: {error}")

    def _tell_waiting(self, message: str) -> None:
        if self.waiting and not self._told:
            self._told = True
            self._events.emit(Spooled(at=self._clock.now(), bytes=self._spool.size, message=message))

    def _tell_stored(self) -> None:
        if self._told and not self.waiting:
            self._told = False
            self._events.emit(Spooled(at=self._clock.now(), bytes=0, message="All results that waited are stored."))

    def _tell_notes(self) -> None:
        for note in self._spool.take_notes():
            self._trouble("spool", note)

    def _tell_away(self, error: Exception) -> None:
        words = str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
        if isinstance(error, Misconfigured):
            if words == self._refusal:
                return
            self._refusal = words
        self._trouble("store", words)

    def _trouble(self, stage: str, message: str) -> None:
        self._events.emit(Trouble(at=self._clock.now(), stage=stage, message=message))


def as_unavailable(error: GossamerError) -> Transient:
    """The same for callers, to whom a store that refuses us is one that is away."""
    if isinstance(error, Transient):
        return error
    unavailable = BackendUnavailable(str(error))
    unavailable.__cause__ = error
    return unavailable


async def archive_pages(archive: Archive | None, batch: Sequence[Waiting]) -> list[Waiting]:
    """Archive the pages of a batch; the same results come back with their references and without the pages."""
    done = [Waiting(result=one.result) for one in batch]
    pages = [(at, one.snapshot) for at, one in enumerate(batch) if one.snapshot is not None]
    if archive is None or not pages:
        return done
    refs = await archive.put([snapshot for _, snapshot in pages])
    for (at, _), ref in zip(pages, refs, strict=True):
        facts = done[at].result.page
        assert facts is not None  # checked in `Sink.keep`
        page = msgspec.structs.replace(facts, archive_ref=ref)
        done[at] = Waiting(result=msgspec.structs.replace(done[at].result, page=page))
    return done
