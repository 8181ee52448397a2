"""The sink: many journeys hand in one result each, few batches reach the archive and the record store.

Calls that arrive while a batch is being written make up the next one; nobody waits for a timer, because the
write itself takes long enough to gather the next batch. Raw pages are archived first, then records are saved with
the references: a crash between the two leaves an unused copy, never a reference to nothing.

How it fails: when the archive or the store does not answer, every caller of the batch gets that error, and nothing
of it was saved. A result that cannot be stored at all fails alone. How it recovers: callers call `keep` again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Self

import msgspec

from ..errors import BackendUnavailable, Transient
from ..model.page import Snapshot
from ..model.record import PageResult
from .contract import Archive, RecordStore

MAX_BATCH = 64  # results per batch; later ones wait for the next
MAX_WAITING = 256  # results handed in and not yet stored; when full, `keep` waits, and with it the journey that called


class _Parcel:
    """One result on its way, and the caller who waits for it."""

    __slots__ = ("done", "result", "snapshot")

    def __init__(self, result: PageResult, snapshot: Snapshot | None, done: asyncio.Future[int]) -> None:
        self.result = result
        self.snapshot = snapshot
        self.done = done


class Sink:
    """Gathers results and stores them. Alive between `async with` and its end, which stores what is still waiting.

    Without an archive, snapshots are not kept.
    """

    def __init__(
        self,
        records: RecordStore,
        archive: Archive | None,
        *,
        max_batch: int = MAX_BATCH,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._records = records
        self._archive = archive
        self._max_batch = max_batch
        self._room = asyncio.Semaphore(max_waiting)
        self._waiting: deque[_Parcel] = deque()
        self._arrived = asyncio.Event()
        self._open = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._open = True
        self._task = asyncio.create_task(self._write_batches(), name="sink")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._open = False
        self._arrived.set()
        if self._task is not None:
            await self._task

    async def keep(self, result: PageResult, snapshot: Snapshot | None = None) -> int:
        """Store a result and its raw page; return how many of its records were new or changed.

        A snapshot needs `result.page`, which gets the reference to it. When this returns, all of it is safe.
        A caller who is cancelled before its batch began leaves nothing behind. Raises BackendUnavailable.
        """
        if snapshot is not None and result.page is None:
            raise ValueError("a snapshot without page facts: nothing would refer to the archived copy")
        async with self._room:
            if not self._open:
                raise BackendUnavailable("The sink is closed; nothing is stored any more.")
            parcel = _Parcel(result, snapshot, asyncio.get_running_loop().create_future())
            self._waiting.append(parcel)
            self._arrived.set()
            return await parcel.done

    async def _write_batches(self) -> None:
        batch: list[_Parcel] = []
        try:
            while True:
                if not self._waiting:
                    if not self._open:
                        return
                    self._arrived.clear()
                    await self._arrived.wait()
                    await asyncio.sleep(0)  # journeys that are ready in this turn of the loop join in
                    continue
                batch = self._next_batch()
                if batch:
                    await self._write(batch)
        finally:
            for parcel in (*batch, *self._waiting):
                if not parcel.done.done():
                    parcel.done.set_exception(BackendUnavailable("The sink was stopped before the result was stored."))
            self._waiting.clear()

    def _next_batch(self) -> list[_Parcel]:
        taken = [self._waiting.popleft() for _ in range(min(self._max_batch, len(self._waiting)))]
        return [parcel for parcel in taken if not parcel.done.done()]

    async def _write(self, batch: list[_Parcel]) -> None:
        try:
            results = await self._archived(batch)
            counts = await self._records.save(results)
        except Exception as error:
            if isinstance(error, Transient) or len(batch) == 1:
                _refuse(batch, error)
            else:
                # One of them is to blame: each is tried alone, so that the others do not suffer for it.
                for parcel in batch:
                    await self._write([parcel])
            return
        for parcel, count in zip(batch, counts, strict=True):
            if not parcel.done.done():
                parcel.done.set_result(count)

    async def _archived(self, batch: Sequence[_Parcel]) -> list[PageResult]:
        """Archive the pages of a batch and note their references in the results."""
        results = [parcel.result for parcel in batch]
        if self._archive is None:
            return results
        pages = [(at, parcel.snapshot) for at, parcel in enumerate(batch) if parcel.snapshot is not None]
        if pages:
            refs = await self._archive.put([snapshot for _, snapshot in pages])
            for (at, _), ref in zip(pages, refs, strict=True):
                facts = results[at].page
                assert facts is not None  # checked in `keep`
                page = msgspec.structs.replace(facts, archive_ref=ref)
                results[at] = msgspec.structs.replace(results[at], page=page)
        return results


def _refuse(batch: Sequence[_Parcel], error: Exception) -> None:
    for parcel in batch:
        if not parcel.done.done():
            parcel.done.set_exception(error)
