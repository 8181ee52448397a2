"""JSON Lines of a crawl that are written while it goes on: `-o items.jsonl` for `tail -f`, `-o -` for a pipe.

What it does: writes each record that the job sees when it is stored; at the end, the rest. The file of an earlier
crawl is replaced when the first record comes; a crawl that goes on begins the file anew with what its job has seen, so
that nothing is missing and nothing is there twice.
How it fails: a file that cannot be written is left alone, and the export at the end says why. How it recovers: where a
record changed after it was written, or somebody else wrote to the file, the whole file is replaced at the end.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from ...clock import Clock
from ...errors import Transient
from ...model.record import StoredRecord
from ...store.contract import RecordQuery
from ...store.export import FileDestination, StandardOutput, TableShape, format_of
from ...store.export.destination import ByteStream, Destination
from ...store.export.text_formats import LinesWriter
from .files import JoinedRecords

LOOK = timedelta(seconds=1)
CHUNK = 256  # records written at once, off the event loop


def is_live(place: Destination) -> bool:
    """Whether a crawl writes there as it goes: JSON Lines, not compressed, to a file or to standard output."""
    if not isinstance(place, FileDestination | StandardOutput):
        return False
    form = format_of(place.name, None)
    return form.format == "jsonl" and not form.compression


class SeenNumbers:
    """Numbers of records, one bit for each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def __contains__(self, number: int) -> bool:
        place = number >> 3
        return place < len(self._bits) and bool(self._bits[place] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        place = number >> 3
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1 - len(self._bits)))
        self._bits[place] |= 1 << (number & 7)


class LiveLines:
    """The lines of one job at one place. Leaving the block closes the file."""

    def __init__(
        self,
        place: Destination,
        source: JoinedRecords,
        cursor: Callable[[], Awaitable[str]],
        job: str,
        clock: Clock,
        shape: TableShape,
    ) -> None:
        self._cursor = cursor
        self._place = place
        self._source = source
        self._job = job
        self._clock = clock
        self._shape = shape
        self._path: Path | None = place.path if isinstance(place, FileDestination) else None
        self._stream: ByteStream | None = None
        self._file: BinaryIO | None = None
        self._after: str | None = None
        self._written = SeenNumbers()
        self._again = 0  # records that changed after they were written
        self._size = 0
        self._failed = False
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Write what comes until cancelled."""
        while not self._failed:
            await self.step()
            await self._clock.sleep(LOOK.total_seconds())

    async def step(self) -> None:
        """Write what is new."""
        async with self._turn:
            try:
                upto = await self._cursor()
                if upto != self._after:
                    await self._write(RecordQuery(job=self._job, gone=False, after=self._after, upto=upto))
                    self._after = upto
            except Transient:  # the next look tries again
                pass
            except OSError:
                self._failed = True

    async def finish(self) -> bool:
        """Write the rest. False: the file is to be replaced as a whole."""
        await self.step()
        if self._failed:
            return False
        async with self._turn:
            if self._again and self._path is not None:
                return False
            try:
                await self._write(RecordQuery(job=self._job, gone=False), only_new=True)
                if self._file is not None and self._path is not None:
                    await asyncio.to_thread(os.fsync, self._file.fileno())
                    there, ours = self._path.stat(), os.fstat(self._file.fileno())
                    return there.st_size == self._size and there.st_ino == ours.st_ino
            except BrokenPipeError:
                return self._path is None  # the reader has what it wanted
            except OSError:
                return False
        return self._stream is not None

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):
                self._file.close()

    async def _write(self, query: RecordQuery, *, only_new: bool = False) -> None:
        chunk: list[StoredRecord] = []
        async for record in self._source.records(query):
            known = record.number in self._written
            if known and only_new:
                continue
            self._again += known
            chunk.append(record)
            if len(chunk) >= CHUNK:
                await self._put(chunk)
                chunk = []
        if chunk:
            await self._put(chunk)

    async def _put(self, records: Sequence[StoredRecord]) -> None:
        if self._stream is None:
            self._stream = await asyncio.to_thread(self._opened)

        def work() -> None:
            assert self._stream is not None
            counting = _Counting(self._stream)
            writer = LinesWriter(counting, self._shape)
            for record in records:
                writer.take(record)
            writer.finish()
            counting.flush()
            self._size += counting.size

        await asyncio.to_thread(work)
        for record in records:
            self._written.add(record.number)

    def _opened(self) -> ByteStream:
        if self._path is None:
            return StandardOutput.stream()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._path.open("wb")
        return self._file


class _Counting:
    """Passes bytes on, and counts them."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.size = 0

    def write(self, data: bytes, /) -> None:
        self._stream.write(data)
        self.size += len(data)

    def flush(self) -> None:
        self._stream.flush()
