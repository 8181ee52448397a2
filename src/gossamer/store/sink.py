"""The sink: many journeys hand in one result each, few batches reach the archive and the record store.

Calls that arrive while a batch is being written form the next one; no timer is needed, because the write itself takes
long enough to gather the next batch. Raw pages are archived first, then records are saved with the references: a crash
in between leaves an unused copy, never a dangling reference.

With a spool, "stored" includes "durably on this machine's disk, to be stored later" (spool.py, spool_drain.py):
journeys go on while the archive or the store is unavailable. Spooled results are not yet in the store's facts about a
page; `holds` says so, and a visit in the meantime requests the page in full, which is harmless.
There is one sink per process, whatever the number of its jobs.

How it fails: if the archive or the store does not answer and there is no spool, or no room in it, every caller of the
batch gets that error, and nothing of it counts as kept. A store that denies access (a new password, a missing grant)
counts as unavailable: no result is to blame. A result that cannot be stored at all fails alone.
How it recovers: callers call `keep` again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Self

from ..clock import Clock, SystemClock
from ..errors import BackendUnavailable, GossamerError
from ..model.events import EventSink, NullSink, Trouble
from ..model.page import Snapshot
from ..model.record import PageResult
from .contract import Archive, RecordStore
from .erasure import store_batch
from .spool import Spool, SpoolFull
from .spool_drain import AWAY, Drain, archive_pages, as_unavailable
from .spool_notes import SpoolNotes
from .waiting import Waiting

MAX_BATCH = 64  # results per batch; later ones wait for the next
COMPANY = 0.002  # seconds that a result waits for others: archiving a batch and committing it costs two disk syncs
MAX_WAITING = 256  # results handed in and not yet stored; when full, `keep` waits, and with it its journey
DRAIN_WITHIN = timedelta(seconds=2)  # how long closing may take to empty the spool


class _PendingResult:
    """One result on its way, and its waiting caller."""

    __slots__ = ("done", "waiting")

    def __init__(self, waiting: Waiting, done: asyncio.Future[int]) -> None:
        self.waiting = waiting
        self.done = done


class Sink:
    """Gathers results and stores them. Use it inside `async with`, whose end stores what is still waiting.

    Without an archive, snapshots are not kept. Without a spool, callers get the error of an unavailable store.
    """

    def __init__(
        self,
        records: RecordStore,
        archive: Archive | None,
        *,
        spool: Spool | None = None,
        notes: SpoolNotes | None = None,
        events: EventSink | None = None,
        clock: Clock | None = None,
        quota: ArchiveQuota | None = None,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
        drain_within: timedelta = DRAIN_WITHIN,
    ) -> None:
        self._records = records
        self._archive = archive
        self._quota = quota
        self._spool = spool
        self._drain: Drain | None = None
        if spool is not None:
            self._drain = Drain(spool, records, archive, clock or SystemClock(), events or NullSink(), notes=notes)
        self._max_batch = max_batch
        self._drain_within = drain_within
        self._room = asyncio.Semaphore(max_waiting)
        self._waiting: deque[_PendingResult] = deque()
        self._arrived = asyncio.Event()
        self._open = False
        self._task: asyncio.Task[None] | None = None
        self._draining: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self._spool is not None and self._drain is not None:
            await self._stack.enter_async_context(self._spool)
            self._draining = asyncio.create_task(self._drain.run(), name="drain the spool")
        if self._quota is not None:
            await self._quota.measure()
            self._measuring = asyncio.create_task(self._quota.watch(), name="measure the archive")
        self._open = True
        self._task = asyncio.create_task(self._write_batches(), name="sink")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        self._arrived.set()
        if self._measuring is not None:
            self._measuring.cancel()
            await asyncio.gather(self._measuring, return_exceptions=True)
        if self._drain is not None:
            self._drain.hurry()
        try:
            if self._task is not None:
                await self._task
        finally:
            async with self._stack:  # the spool is closed last, whatever happens
                await self._end_draining()

    @property
    def away(self) -> bool:
        """True while results are spooled: the store is unavailable, or has just come back."""
        return self._drain is not None and self._drain.waiting

    @property
    def results(self) -> Counter[str]:
        """How many results are spooled, by job."""
        return self._spool.results if self._spool is not None else Counter()

    @property
    def spooled_bytes(self) -> int:
        """How many bytes are spooled."""
        return self._spool.size if self._spool is not None else 0

    @property
    def full(self) -> bool:
        """True if nothing should be fetched: the spool has no room for another result, or the archive has reached its
        limit."""
        return self.archive_full or self.spool_full

    @property
    def spool_full(self) -> bool:
        """True if the spool has no room for another result."""
        return self._spool is not None and self._spool.full

    @property
    def archive_full(self) -> bool:
        return self._quota is not None and self._quota.full

    @property
    def records_away(self) -> bool:
        """Does the record store itself not answer? Results may also be waiting for the archive."""
        return self._drain is not None and self._drain.records_away

    def records_failed(self) -> None:
        """Another caller got no answer from the record store."""
        if self._drain is not None:
            self._drain.records_failed()

    def holds(self, fingerprint: bytes) -> bool:
        """May a result of this page be spooled, so that the facts in the record store are outdated?"""
        return self._spool is not None and self._spool.holds(fingerprint)

    async def search_disk(self) -> None:
        """Look now, and not in a while, for what dead processes left in the spool folder of this machine."""
        if self._drain is not None:
            await self._drain.search()

    async def emptied(self) -> None:
        """Return when nothing is spooled, and the shared state says so."""
        while self._drain is not None and (self.away or not self._drain.emptied.is_set()):
            await self._drain.emptied.wait()
            await asyncio.sleep(0)  # it may be set although a folder was adopted a moment ago

    async def keep(self, result: PageResult, snapshot: Snapshot | None = None) -> int:
        """Store a result and its raw page; return how many of its records are new or changed.

        A snapshot needs `result.page`, which gets the reference to it. When this returns, all of it is safe: stored, or
        in the spool; then the number is unknown, and 0. If the caller is cancelled before its batch began, nothing is
        stored. Raises BackendUnavailable.
        """
        if snapshot is not None and result.page is None:
            raise ValueError("a snapshot without page facts: nothing would refer to the archived copy")
        async with self._room:
            if not self._open:
                raise BackendUnavailable("The sink is closed; nothing is stored any more.")
            waiting = Waiting(result=result, snapshot=snapshot if self._archive is not None else None)
            parcel = _PendingResult(waiting, asyncio.get_running_loop().create_future())
            self._waiting.append(parcel)
            self._arrived.set()
            return await parcel.done

    async def _write_batches(self) -> None:
        batch: list[_PendingResult] = []
        company = False  # if several came together the last time, waiting for more is worthwhile
        try:
            while True:
                if not self._waiting:
                    if not self._open:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                    await asyncio.sleep(COMPANY if company else 0)  # journeys that are ready by then join in
                    continue
                batch = self._next_batch()
                company = len(batch) > 1
                if batch:
                    await self._write(batch)
        finally:
            for parcel in (*batch, *self._waiting):
                if not parcel.done.done():
                    parcel.done.set_exception(BackendUnavailable("The sink was stopped before the result was stored."))
            self._waiting.clear()

    def _next_batch(self) -> list[_PendingResult]:
        taken = [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
        return [parcel for parcel in taken if not parcel.done.done()]

    async def _write(self, batch: list[_PendingResult]) -> None:
        results = [parcel.waiting for parcel in batch]
        if self.away:  # behind those that came before
            await self._spool_batch(batch, results, None)
            return
        try:
            results = await archive_pages(self._archive, results)
            if self._quota is not None:
                self._quota.wrote(one.result.page.archive_ref for one in results if one.result.page is not None)
            if self._drain is not None:
                counts = await self._drain.store(results)
            else:
                counts = await store_batch(self._records, self._archive, results)
        except AWAY as error:
            await self._spool_batch(batch, results, error)
        except Exception as error:
            if len(batch) == 1:
                _refuse(batch, error)
                return
            # One of them is to blame: store each alone, so that the others do not suffer.
            for parcel in batch:
                await self._write([parcel])
        else:
            _answer(batch, counts)

    async def _spool_batch(
        self, batch: list[_PendingResult], results: Sequence[Waiting], because: GossamerError | None
    ) -> None:
        """Spool the results, as far as they got: pages that are archived already are not spooled."""
        if self._drain is None:
            assert because is not None
            _refuse(batch, as_unavailable(because))
            return
        try:
            await self._drain.take(results, because)
        except SpoolFull as error:
            if len(batch) == 1:
                _refuse(batch, error)
                return
            for parcel, one in zip(batch, results, strict=True):  # the first ones may find room
                await self._spool_batch([parcel], [one], because)
        except Exception as error:
            _refuse(batch, error)
        else:
            _answer(batch, [0] * len(batch))

    async def _end_draining(self) -> None:
        """Try once more to empty the spool, then leave the rest to the next start."""
        if self._drain is None or self._draining is None:
            return
        self._draining.cancel()
        await asyncio.gather(self._draining, return_exceptions=True)
        with suppress(*AWAY, TimeoutError):  # what stays is reported below
            async with asyncio.timeout(self._drain_within.total_seconds()):
                await self._drain.finish()
        self._drain.tell_left()


def _answer(batch: Sequence[_PendingResult], counts: Sequence[int]) -> None:
    for parcel, count in zip(batch, counts, strict=True):
        if not parcel.done.done():
            parcel.done.set_result(count)


def _refuse(batch: Sequence[_PendingResult], error: Exception) -> None:
    for parcel in batch:
        if not parcel.done.done():
            parcel.done.set_exception(error)


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
