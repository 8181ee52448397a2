"""The spool: results that could not be stored yet wait here, on this machine's disk, in the order in which they came.

    <folder>/<host>-<pid>-<life>/lock                           held as long as the process lives
    <folder>/<host>-<pid>-<life>/<nanoseconds>-<mark>.spool     segments (spool_files.py)
    <folder>/<host>-<pid>-<life>-<segment>-<offset>.bad         what is damaged or cannot be stored, for a person

Each process writes into its own folder, created with the first result that has to wait. A process that starts adopts
the folders of dead ones: their lock is free. How far a segment was emptied is not recorded; after a crash it is read
again from its start, which is harmless because saving the same result twice is the same as saving it once. Waiting
results are counted by job, for the notes in the shared state (spool_notes.py).

How it fails: `BackendUnavailable` when it or its disk is full; then nothing of the batch is in it. How it recovers: a
partial write is cut off, and after a crash it is a torn tail that is skipped. Damage in the middle is set aside, and
reading continues after it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import zstandard

from ..errors import BackendUnavailable, Misconfigured
from ..process import limits as openfiles
from .durable import sync_folder
from .spool_files import ENTRY_BYTES, HEAD_BYTES, Damage, Entry, Waiting, frame, head, pack, parts_of, unpack
from .spool_homes import Home, Reader, Segment, segments_in, write_all

SEGMENT_BYTES = 4 * 1024 * 1024  # a longer segment is followed by the next; it is the most that is read at once
MOST_PAGES = 100_000  # remembered as having a result here; beyond that, every page may have one
BATCH_RESULTS = 64  # handed out at once ...
BATCH_BYTES = 8 * 1024 * 1024  # ... or fewer, if their pages are large


class SpoolFull(BackendUnavailable):
    """There is no room for a batch, and nothing of it was added. A smaller one may find room."""


class Spool:
    """Bounded, durable, first in first out. Use it inside `async with`, whose end leaves the rest on disk.

    `max_bytes` is for this process, including adopted folders; None is unlimited. One task appends, one empties.
    `noted`: the shared state has notes of the folders, and each folder stays until `unnoted` is called for it.
    """

    def __init__(self, folder: Path, *, max_bytes: int | None, noted: bool = False) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._keeps_noted = noted
        # Two locks, always taken in this order: a cancelled call goes on in its thread, beside the next one.
        self._reading = threading.Lock()  # guards the reader and its batch
        self._lock = threading.Lock()  # guards the rest
        self._closed = True
        self._own: Home | None = None
        self._homes: set[Home] = set()  # held by this process, including `_own`
        self._pages: set[bytes] | None = set()  # whose results may wait; None: too many to remember
        self._refused: int | None = None  # bytes of the last batch that found no room
        self._segments: deque[Segment] = deque()  # oldest first; the last one may still be written to
        self._writing: int | None = None  # descriptor of the last segment, while it may grow
        self._size = 0
        self._last_name = 0
        self._reader: Reader | None = None
        self._batch: list[tuple[Waiting, Entry]] = []
        self._notes: list[str] = []

    @property
    def empty(self) -> bool:
        return not self._segments

    @property
    def size(self) -> int:
        """How many bytes wait, on disk."""
        return self._size

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def results(self) -> Counter[str]:
        """How many results wait, by job."""
        total: Counter[str] = Counter()
        for segment in list(self._segments):
            total.update(segment.results.copy())
        return +total

    @property
    def full(self) -> bool:
        """True after a batch found no room, until there is room for it."""
        if self._refused is None:
            return False
        within = self._max_bytes is None or self._size + self._refused <= self._max_bytes
        if self.empty or (within and self._disk_has_room(self._refused)):
            self._refused = None
        return self._refused is not None

    def holds(self, fingerprint: bytes) -> bool:
        """May a result of this page wait here? Sometimes True for a page whose results were stored since."""
        return not self.empty and (self._pages is None or fingerprint in self._pages)

    @property
    def adopted(self) -> list[str]:
        """Names of adopted folders that the shared state may have notes of."""
        return [home.path.name for home in list(self._homes) if home.noted and home is not self._own]

    @property
    def own(self) -> str:
        """The name of our own folder, if the shared state may have a note of it; else ""."""
        return self._own.path.name if self._own is not None and self._own.noted else ""

    async def claim(self) -> str:
        """The name under which this spool can be noted: a folder that stays until `unnoted`. Raises BackendUnavailable
        if its disk has no room for one."""
        try:
            return await asyncio.to_thread(self._claim)
        except OSError as error:
            raise self._unwritable(error) from error

    async def unnoted(self, names: Sequence[str]) -> None:
        """The shared state has no notes of these folders any more."""
        await asyncio.to_thread(self._unnote, frozenset(names))

    def take_notes(self) -> list[str]:
        """Messages for people: damage that was found since the last call."""
        notes, self._notes = self._notes, []
        return notes

    async def __aenter__(self) -> Self:
        """Open it, and adopt the folders of dead processes. Raises Misconfigured."""
        try:
            await asyncio.to_thread(self._open)
        except OSError as error:
            if openfiles.were_used_up(error):
                raise BackendUnavailable(openfiles.remedy()) from error
            raise Misconfigured(
                f"The spool folder {self._folder} cannot be used ({error.strerror or error}). "
                f"Set store.spool in gossamer.toml to a folder on a local disk that you may write to."
            ) from error
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the folders. What is left waits for the next process. Waits only for a write in progress."""
        with self._reading, self._lock:
            self._closed = True
            self._seal()
            self._reader = None
            self._batch = []
            for home in self._homes:
                home.let_go()
            self._homes.clear()
            self._segments.clear()
            self._own = None

    async def adopt(self) -> None:
        """Take over the folders of processes that died since. Only while nothing waits here; a folder that cannot be
        read is left for the next time."""
        if self.empty:
            with suppress(OSError):
                await asyncio.to_thread(self._adopt)

    async def append(self, waiting: Sequence[Waiting]) -> None:
        """Add results at the end, durably. Raises BackendUnavailable if the spool or its disk is full.

        Then they count as not added, though a disk that filled up half-way may hold the first of them.
        """
        if waiting:
            await asyncio.to_thread(self._append, waiting)

    async def next(self) -> list[Waiting]:
        """The oldest results, the same ones until `done` is called; none if the spool is empty."""
        if not self._batch:
            await asyncio.to_thread(self._fill)
        return [waiting for waiting, _ in self._batch]

    async def done(self) -> None:
        """The results of `next` are stored. Raises BackendUnavailable if their file cannot be deleted."""
        await asyncio.to_thread(self._done)

    async def set_aside(self, position: int, why: str) -> None:
        """The result at `position` in the last `next` can never be stored: set it aside for a person."""
        await asyncio.to_thread(self._set_aside, position, why)

    # -- writing -------------------------------------------------------------------------------------------

    def _append(self, waiting: Sequence[Waiting]) -> None:
        parts = list(parts_of([(one.result.attempt.job, pack(one)) for one in waiting], SEGMENT_BYTES))
        size = sum(HEAD_BYTES + sum(ENTRY_BYTES + len(payload) for _, payload in part) for part in parts)
        with self._lock:
            if self._closed:
                raise BackendUnavailable(f"The spool {self._folder} is closed.")
            if self._max_bytes is not None and self._size + size > self._max_bytes:
                self._refused = size
                raise SpoolFull(
                    f"The spool {self._folder} is full ({self._size} of {self._max_bytes} bytes): nothing is fetched "
                    f"until the store is back and has taken what waits. For more room, raise store.spool_limit in "
                    f"gossamer.toml."
                )
            try:
                for part in parts:
                    self._append_part(part)
                self._remember(one.result.attempt.fingerprint for one in waiting)
            except OSError as error:
                self._refused = size
                self._cut_back()
                raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> BackendUnavailable:
        return BackendUnavailable(
            f"The spool {self._folder} cannot be written ({error.strerror or error}). Free some space on its disk, or "
            f"set store.spool in gossamer.toml to another."
        )

    def _append_part(self, part: Sequence[tuple[str, bytes]]) -> None:
        segment, descriptor = self._last_segment()
        content = b"".join(frame(segment.mark, payload) for _, payload in part)
        write_all(descriptor, content)
        os.fsync(descriptor)
        segment.size += len(content)
        segment.results.update(job for job, _ in part)
        self._size += len(content)

    def _last_segment(self) -> tuple[Segment, int]:
        """The segment to write to; a new one if there is none, or it is long enough."""
        if self._writing is not None and self._segments[-1].size >= SEGMENT_BYTES:
            self._seal()
        if self._writing is None:
            self._own = self._own or self._make_home()
            self._last_name = max(self._last_name + 1, time.time_ns())
            mark = secrets.token_bytes(8)
            path = self._own.path / f"{self._last_name:020d}-{mark.hex()}.spool"
            self._writing = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            segment = Segment(path, mark, 0, self._own)
            self._segments.append(segment)
            write_all(self._writing, head())
            sync_folder(self._own.path)
            segment.size = HEAD_BYTES
            self._size += HEAD_BYTES
        return self._segments[-1], self._writing

    def _cut_back(self) -> None:
        """After a failed write: truncate the segment to what was promised, and do not write to it again."""
        if self._writing is None:
            return
        segment = self._segments[-1]
        with suppress(OSError):  # then a torn tail stays, which is skipped when it is read
            os.ftruncate(self._writing, segment.size)
        self._seal()
        if segment.size <= HEAD_BYTES:  # it holds nothing
            self._segments.pop()
            self._size -= segment.size
            with suppress(OSError):  # an empty segment does no harm
                segment.path.unlink()

    def _seal(self) -> None:
        if self._writing is not None:
            with suppress(OSError):  # everything promised was synced before
                os.close(self._writing)
            self._writing = None

    def _make_home(self) -> Home:
        home = Home.make(self._folder)
        self._homes.add(home)
        return home

    def _remember(self, fingerprints: Iterable[bytes]) -> None:
        if self._pages is not None:
            self._pages.update(fingerprints)
            if len(self._pages) > MOST_PAGES:
                self._pages = None

    def _disk_has_room(self, size: int) -> bool:
        with suppress(OSError):
            return shutil.disk_usage(self._folder).free > size + SEGMENT_BYTES
        return True

    # -- reading -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read the next batch. Empty segments are deleted on the way."""
        with self._reading:
            while not self._batch:
                if self._reader is None and not self._open_reader():
                    return
                assert self._reader is not None
                self._batch = self._read_batch(self._reader)
                if not self._batch:
                    self._finish_segment()

    def _done(self) -> None:
        with self._reading:
            if self._reader is not None:
                self._reader.segment.results.subtract(waiting.result.attempt.job for waiting, _ in self._batch)
            self._batch = []
            if self._reader is not None and self._reader.exhausted:
                self._finish_segment()

    def _open_reader(self) -> bool:
        """Open the oldest segment, which is not appended to from here on; False if there is none."""
        while True:
            with self._lock:
                if not self._segments:
                    return False
                segment = self._segments[0]
                if len(self._segments) == 1:
                    self._seal()
            try:
                self._reader = Reader(segment, segment.path.read_bytes())
                return True
            except OSError as error:
                self._notes.append(f"{segment.path} cannot be read ({error.strerror or error}) and was set aside.")
                self._remove(segment, keep=True)

    def _read_batch(self, reader: Reader) -> list[tuple[Waiting, Entry]]:
        batch: list[tuple[Waiting, Entry]] = []
        size = 0
        while len(batch) < BATCH_RESULTS and size < BATCH_BYTES:
            found = reader.advance()
            if found is None:
                break
            if isinstance(found, Damage):
                self._keep_bad(reader, found.start, found.end, "it is damaged")
                continue
            try:
                waiting = unpack(found.payload)
            except (ValueError, zstandard.ZstdError) as error:
                self._keep_bad(reader, found.start, found.end, f"it cannot be understood: {error}")
                continue
            batch.append((waiting, found))
            size += len(waiting.snapshot.body) if waiting.snapshot is not None else 0
        return batch

    def _set_aside(self, position: int, why: str) -> None:
        with self._reading:
            assert self._reader is not None  # `next` returned something
            entry = self._batch[position][1]
            self._keep_bad(self._reader, entry.start, entry.end, why)

    def _keep_bad(self, reader: Reader, start: int, end: int, why: str) -> None:
        path = reader.segment.bad_name(start)
        try:
            with path.open("wb") as file:
                file.write(reader.content[start:end])
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # no room: then the whole segment is renamed at its end, which needs none
            with suppress(OSError):
                path.unlink(missing_ok=True)
            reader.keep = True
            path = reader.segment.bad_name()
        self._notes.append(f"A spooled result was set aside in {path}: {why}.")

    def _finish_segment(self) -> None:
        assert self._reader is not None
        self._remove(self._reader.segment, keep=self._reader.keep)
        self._reader = None

    def _remove(self, segment: Segment, *, keep: bool) -> None:
        with self._lock:
            try:
                if keep:
                    with suppress(FileNotFoundError):
                        segment.path.rename(segment.bad_name())
                else:
                    segment.path.unlink(missing_ok=True)
            except OSError as error:
                raise BackendUnavailable(
                    f"{segment.path} was emptied and cannot be deleted ({error.strerror or error}). "
                    f"Check the permissions of the spool folder."
                ) from error
            self._segments.popleft()
            self._size -= segment.size
            if not self._segments:
                self._pages = set()
            self._leave_empty_homes()

    def _leave_empty_homes(self) -> None:
        """Release folders of dead processes that are empty, unless the shared state may have notes of them."""
        used = {segment.home for segment in self._segments}
        for home in [home for home in self._homes - used if home is not self._own and not home.noted]:
            self._homes.discard(home)
            home.let_go()

    # -- notes and adoption --------------------------------------------------------------------------------

    def _claim(self) -> str:
        with self._lock:
            self._own = self._own or self._make_home()
            self._own.noted = True
            return self._own.path.name

    def _unnote(self, names: frozenset[str]) -> None:
        with self._lock:
            for home in self._homes:
                home.noted = home.noted and home.path.name not in names
            self._leave_empty_homes()

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        self._adopt()
        self._closed = False

    def _adopt(self) -> None:
        adopted: dict[Home, list[Segment]] = {}
        try:
            for entry in os.scandir(self._folder):
                if entry.is_dir(follow_symlinks=False):
                    self._adopt_home(Path(entry.path), adopted)
            # Names begin with the time: what has waited longest goes first, whichever process left it.
            found = sorted((one for some in adopted.values() for one in some), key=lambda segment: segment.path.name)
            for segment in found:
                for job, fingerprint in segment.pages():
                    segment.results[job] += 1
                    self._remember((fingerprint,))
        except BaseException:
            for home in adopted:
                home.let_go()
            raise
        with self._lock:  # before what is written meanwhile
            self._homes.update(adopted)
            self._segments.extendleft(reversed(found))
            self._size += sum(segment.size for segment in found)

    def _adopt_home(self, path: Path, adopted: dict[Home, list[Segment]]) -> None:
        try:
            home = Home.adopt(path)
        except PermissionError:
            self._notes.append(f"{path} was left alone: it belongs to another user.")
            return
        if home is None:
            return
        home.noted = self._keeps_noted
        segments = segments_in(home, self._notes)
        if segments is None or not (segments or home.noted):
            home.let_go()
        else:
            adopted[home] = segments
