"""From the spool into the store: the task that empties it, oldest first, as soon as the store is back.

One per process, whether it works on jobs or not. While the store is unavailable, only the oldest batch is retried, with
growing pauses. New results go behind it, into the spool, so that results are stored in the order in which they came.
While nothing waits, it looks for the spools of dead processes.

How it fails: a batch with a result that cannot be stored is stored one by one; the bad result is set aside in a file
and reported by an event. A store that denies access counts as unavailable until that is fixed. How it recovers:
whatever stops it, the results stay in the spool; saving them again is harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from ..clock import Backoff, Clock
from ..errors import BackendUnavailable, GossamerError, Misconfigured, Transient
from ..model.events import EventSink, Spooled, Trouble
from ..units import many
from .contract import Archive, RecordStore
from .erasure import store_batch
from .spool import Spool
from .spool_notes import SpoolNotes
from .waiting import Waiting

BACKOFF = Backoff(first=timedelta(milliseconds=250), longest=timedelta(seconds=5))
AWAY = (Transient, Misconfigured)  # the store does not answer, or denies access; no single result is to blame
LOOK = timedelta(seconds=10)  # between two searches for spools of dead processes, while nothing waits
RENEW = timedelta(seconds=5)  # between two writes of a note: a state that lost its last writes gets it back
INSIST = timedelta(seconds=60)  # how long writing a note is retried while the state does not answer
AWAY_FOR = timedelta(minutes=1)  # how long a record store counts as unavailable if it was not called since it failed


class Drain:
    """Spools what cannot be stored now, and stores it later. Its owner must run `run` as a task.

    Without `notes`, other processes do not learn what waits.
    """

    def __init__(
        self,
        spool: Spool,
        records: RecordStore,
        archive: Archive | None,
        clock: Clock,
        events: EventSink,
        *,
        notes: SpoolNotes | None = None,
    ) -> None:
        self._spool = spool
        self._records = records
        self._archive = archive
        self._clock = clock
        self._events = events
        self._notes = notes
        self._renewed_at = float("-inf")
        self._leaving = False
        self._records_failed = False  # at the last call, by any caller
        self._records_failed_at = float("-inf")
        self._trying = False  # a save is in progress
        self._arrived = asyncio.Event()
        self.emptied = asyncio.Event()  # nothing waits, and the shared state says so
        self._told = False  # that results wait
        self._told_full = False
        self._refusal = ""  # the last message of a store that denies access: reported once
        # The oldest batch after its pages were archived, so that they are not archived again while the store is
        # unavailable.
        self._archived: list[Waiting] | None = None

    @property
    def waiting(self) -> bool:
        """True while anything is in the spool: then new results go behind it."""
        return not self._spool.empty

    @property
    def records_away(self) -> bool:
        """Did the record store itself fail at its last call, not long ago? A call in progress may hang."""
        since = self._clock.monotonic() - self._records_failed_at
        return self._records_failed and (self._trying or since < AWAY_FOR.total_seconds())

    def records_failed(self, failed: bool = True) -> None:
        self._records_failed, self._records_failed_at = failed, self._clock.monotonic()

    async def take(self, results: Sequence[Waiting], because: GossamerError | None) -> None:
        """Spool results durably, and have that noted. Raises BackendUnavailable if there is no room, and Transient if
        the state does not accept the note: then the results may be in the spool, and their tasks must not be
        settled."""
        self.emptied.clear()
        try:
            await self._spool.append(results)
        except BackendUnavailable as full:
            self._arrived.set()
            self._tell_full(full)
            if because is None:
                raise
            # Both failed, and the store is what to look at first.
            raise type(full)(f"{because} {full}") from because
        self.emptied.clear()
        self._arrived.set()
        if because is not None:
            self._tell_away(because)
        self._tell_waiting("Results wait on disk until the store is back.")
        await self._note(frozenset(one.result.attempt.job for one in results))

    async def run(self) -> None:
        """Empty the spool whenever there is something in it. Ends only by cancellation."""
        self._tell_waiting("Results of an earlier run wait on disk; they are stored now.")
        pauses = BACKOFF.pauses()
        while True:
            try:
                await self._renew(False)
                if not await self._store_oldest():
                    self._tell_notes()
                    await self._rest()
                pauses = BACKOFF.pauses()
            except Exception as error:
                # Not only for an unavailable store: a bug of ours must not end the draining unseen either.
                self._tell_away(error)
                await self._clock.sleep(next(pauses).total_seconds())
            finally:
                self._tell_notes()

    async def finish(self) -> None:
        """Empty the spool now. Raises one of AWAY at the first failure."""
        try:
            while await self._store_oldest():
                pass
        finally:
            self._tell_notes()
            await self._renew(True)
        self._tell_stored()

    async def search(self) -> None:
        """Adopt now what dead processes left on this disk, and remove the notes of files that are gone."""
        await self._spool.adopt()
        if self.waiting:
            self.emptied.clear()
            self._arrived.set()
        await self._renew(True)

    def hurry(self) -> None:
        """The process is about to end: do not wait for a state that does not answer."""
        self._leaving = True

    def tell_left(self) -> None:
        """Report what stays behind, if anything does."""
        if self.waiting:
            message = (
                f"{many(self._spool.results.total(), 'result')} of {', '.join(sorted(self._spool.results))} stay in "
                f"{self._spool.folder}, because they could not be stored yet. The next worker that starts on this "
                f"machine stores them, and so does `gossamer spool drain`."
            )
            self._events.emit(Spooled(at=self._clock.now(), bytes=self._spool.size, message=message, left=True))

    async def store(self, batch: Sequence[Waiting]) -> list[int]:
        """Store results whose pages are archived. Raises what the record store raises."""
        self._trying = True
        try:
            counts = await store_batch(self._records, self._archive, batch)
        except AWAY:
            self.records_failed()
            raise
        finally:
            self._trying = False
        self.records_failed(False)
        return counts

    # -- notes in the shared state ---------------------------------------------------------------------------

    async def _note(self, jobs: frozenset[str]) -> None:
        """Make sure other machines know that results of these jobs wait. Retries for a while. Raises Transient."""
        if self._notes is None:
            return
        deadline, pauses, told = self._clock.monotonic() + INSIST.total_seconds(), BACKOFF.pauses(), False
        while True:
            try:
                await self._notes.ensure(jobs)
                return
            except Transient as error:
                if not told:
                    told = True
                    self._trouble("spool", f"{error} Results are on disk; their pages are settled once that is noted.")
                pause = next(pauses).total_seconds()
                if self._leaving or self._clock.monotonic() + pause > deadline:
                    raise
            await self._clock.sleep(pause)

    async def _renew(self, now: bool) -> bool:
        """Update the notes: if `now` is true, or if they are old. False if the state does not answer; the existing
        notes still say what waits."""
        late = self._clock.monotonic() - self._renewed_at >= RENEW.total_seconds()
        if self._notes is None or not (now or (late and self.waiting)):
            return True
        try:
            await self._notes.renew()
        except Transient:  # the caller that needs the state reports it; the next turn retries
            return False
        self._renewed_at = self._clock.monotonic()
        return True

    async def _rest(self) -> None:
        """Wait until something is spooled, or it is time to look for spools of dead processes."""
        self._arrived.clear()
        if not self._spool.empty:
            return
        known = await self._renew(True)
        if known and self._spool.empty:
            self._tell_stored()
            self.emptied.set()
        pause = LOOK if known else BACKOFF.longest
        due = asyncio.ensure_future(self._clock.sleep(pause.total_seconds()))
        arrived = asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait((due, arrived), return_when=asyncio.FIRST_COMPLETED)
        finally:
            due.cancel()
            arrived.cancel()
        if known and self._spool.empty:
            await self._spool.adopt()
            if self.waiting:
                self.emptied.clear()

    # -- storing ---------------------------------------------------------------------------------------------

    async def _store_oldest(self) -> bool:
        """Store the oldest batch; False if there is none. Raises one of AWAY, and then it is still there."""
        batch = await self._spool.next()
        if not batch:
            return False
        try:
            if self._archived is None:
                self._archived = await archive_pages(self._archive, batch)
            await self.store(self._archived)
        except AWAY:
            raise
        except Exception:
            await self._store_one_by_one(self._archived or batch)
        self._archived = None
        self._refusal = ""
        await self._spool.done()
        return True

    async def _store_one_by_one(self, batch: Sequence[Waiting]) -> None:
        """One of them is to blame: it is set aside, so that the others do not suffer."""
        for position, one in enumerate(batch):
            try:
                [archived] = await archive_pages(self._archive, [one])
                await self.store([archived])
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
            self._told = self._told_full = False
            self._events.emit(Spooled(at=self._clock.now(), bytes=0, message="All results that waited are stored."))

    def _tell_full(self, full: Transient) -> None:
        if self._spool.full and not self._told_full:
            self._told_full = True
            self._trouble("spool", str(full))

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
    """The error for callers, to whom a store that denies access is unavailable."""
    if isinstance(error, Transient):
        return error
    unavailable = BackendUnavailable(str(error))
    unavailable.__cause__ = error
    return unavailable


async def archive_pages(archive: Archive | None, batch: Sequence[Waiting]) -> list[Waiting]:
    """Archive the pages of a batch; return the same results with references instead of pages."""
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
