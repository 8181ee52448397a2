"""The spool: results that could not be stored yet wait here, on this machine's disk, in the order in which they came.

    <folder>/<host>-<pid>-<life>/lock                           held as long as the process lives
    <folder>/<host>-<pid>-<life>/<nanoseconds>-<mark>.spool     segments (spool_files.py)
    <folder>/<host>-<pid>-<life>-<segment>-<offset>.bad         what was damaged or cannot be stored, for a person

Each process writes into a folder of its own, made with the first result that has to wait. A process that starts
adopts the folders of those that died: their lock is free. Nothing notes how far a segment was emptied; after a crash
it is read again from its start, which is harmless because saving the same result twice is saving it once.

How it fails: `BackendUnavailable` when it is full or its disk is; then nothing of the batch is in it. How it recovers:
what was half written is cut off, and after a crash it is a torn tail that is passed over. Damage in the middle is set
aside, and the rest goes on.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import zstandard

from ..errors import BackendUnavailable, Misconfigured
from ..process import limits as openfiles
from .spool_files import (
    ENTRY_BYTES,
    HEAD_BYTES,
    Damage,
    Entry,
    Home,
    Reader,
    Segment,
    Waiting,
    frame,
    head,
    other_version,
    pack,
    sync_folder,
    unpack,
    write_all,
)

SEGMENT_BYTES = 4 * 1024 * 1024  # a longer segment is followed by the next; it is the most that is read at once
BATCH_RESULTS = 64  # handed out at once ...
BATCH_BYTES = 8 * 1024 * 1024  # ... or fewer, when their pages are large

_SEGMENT = re.compile(r"[0-9]{20}-([0-9a-f]{16})\.spool")


class Spool:
    """Bounded, durable, first in first out. Alive between `async with` and its end, which leaves the rest on disk.

    `max_bytes` holds for this process, adopted folders included; None is unlimited. One task appends, one empties.
    """

    def __init__(self, folder: Path, *, max_bytes: int | None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        # Two locks, the first one taken first: a call that was cancelled goes on in its thread, beside the next one.
        self._reading = threading.Lock()  # guards the reader and its batch
        self._lock = threading.Lock()  # guards the rest
        self._closed = True
        self._own: Home | None = None
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

    def take_notes(self) -> list[str]:
        """What a person should know: damage that was found since the last call."""
        notes, self._notes = self._notes, []
        return notes

    async def __aenter__(self) -> Self:
        """Open, and adopt what dead processes left. Raises Misconfigured."""
        try:
            await asyncio.to_thread(self._adopt)
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
        """Let go. What is left waits for the next process. Does not wait for anything but a write under way."""
        with self._reading, self._lock:
            self._closed = True
            self._seal()
            self._reader = None
            self._batch = []
            homes = {segment.home for segment in self._segments} | ({self._own} if self._own is not None else set())
            for home in homes:
                home.let_go()
            self._segments.clear()
            self._own = None

    async def append(self, waiting: Sequence[Waiting]) -> None:
        """Add results at the end, durably. Raises BackendUnavailable when the spool or its disk is full.

        Then they count as not added, though a disk that filled up half-way may hold the first of them.
        """
        if waiting:
            await asyncio.to_thread(self._append, waiting)

    async def next(self) -> list[Waiting]:
        """The oldest results, the same ones until `done` is called; none when the spool is empty."""
        if not self._batch:
            await asyncio.to_thread(self._fill)
        return [waiting for waiting, _ in self._batch]

    async def done(self) -> None:
        """What `next` gave is stored. Raises BackendUnavailable when its file cannot be deleted."""
        await asyncio.to_thread(self._done)

    async def set_aside(self, position: int, why: str) -> None:
        """The result at `position` of what `next` gave can never be stored: keep it for a person."""
        await asyncio.to_thread(self._set_aside, position, why)

    # -- writing -------------------------------------------------------------------------------------------

    def _append(self, waiting: Sequence[Waiting]) -> None:
        parts = list(_parts([pack(one) for one in waiting]))
        size = sum(HEAD_BYTES + sum(map(len, part)) + ENTRY_BYTES * len(part) for part in parts)
        with self._lock:
            if self._closed:
                raise BackendUnavailable(f"The spool {self._folder} is closed.")
            if self._max_bytes is not None and self._size + size > self._max_bytes:
                raise BackendUnavailable(
                    f"The spool {self._folder} is full ({self._size} of {self._max_bytes} bytes): work pauses until "
                    f"the store is back and takes what waits. store.spool_limit in gossamer.toml gives it more room."
                )
            try:
                for part in parts:
                    self._append_part(part)
            except OSError as error:
                self._cut_back()
                raise BackendUnavailable(
                    f"The spool {self._folder} cannot be written ({error.strerror or error}). Free some space on its "
                    f"disk, or set store.spool in gossamer.toml to another."
                ) from error

    def _append_part(self, payloads: Sequence[bytes]) -> None:
        segment, descriptor = self._last_segment()
        content = b"".join(frame(segment.mark, payload) for payload in payloads)
        write_all(descriptor, content)
        os.fsync(descriptor)
        segment.size += len(content)
        self._size += len(content)

    def _last_segment(self) -> tuple[Segment, int]:
        """The segment that is written to; the next one when there is none, or it is long enough."""
        if self._writing is not None and self._segments[-1].size >= SEGMENT_BYTES:
            self._seal()
        if self._writing is None:
            if self._own is None:
                self._own = Home.make(self._folder)
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
        """After a failed write: the segment ends with what was promised, and is not written to again."""
        if self._writing is None:
            return
        segment = self._segments[-1]
        with suppress(OSError):  # then a torn tail stays, which is passed over when it is read
            os.ftruncate(self._writing, segment.size)
        self._seal()
        if segment.size <= HEAD_BYTES:  # it holds nothing
            self._segments.pop()
            self._size -= segment.size
            with suppress(OSError):  # an empty segment does no harm
                segment.path.unlink()

    def _seal(self) -> None:
        if self._writing is not None:
            with suppress(OSError):  # what counts was synced before
                os.close(self._writing)
            self._writing = None

    # -- reading -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read the next batch. Segments that hold nothing any more are deleted on the way."""
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
            self._batch = []
            if self._reader is not None and self._reader.exhausted:
                self._finish_segment()

    def _open_reader(self) -> bool:
        """Begin with the oldest segment, which nobody appends to from here on; False when there is none."""
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
            assert self._reader is not None  # `next` gave something
            entry = self._batch[position][1]
            self._keep_bad(self._reader, entry.start, entry.end, why)

    def _keep_bad(self, reader: Reader, start: int, end: int, why: str) -> None:
        path = reader.segment.bad_name(start)
        try:
            with path.open("wb") as file:
                file.write(reader.content[start:end])
                file.flush()
                os.fsync(file.fileno())
        except OSError:  # no room: then the whole segment is renamed at its end, which takes none
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
            home = segment.home
            if home is not self._own and not any(one.home is home for one in self._segments):
                home.let_go()

    # -- adopting ------------------------------------------------------------------------------------------

    def _adopt(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        found: list[Segment] = []
        for entry in os.scandir(self._folder):
            if not entry.is_dir(follow_symlinks=False):
                continue
            try:
                home = Home.adopt(Path(entry.path))
            except PermissionError:
                self._notes.append(f"{entry.path} was left alone: it belongs to another user.")
                continue
            if home is None:
                continue
            segments = self._segments_in(home)
            if not segments:
                home.let_go()
            found += segments
        # Names begin with the time: what waits longest goes first, whichever process left it.
        found.sort(key=lambda segment: segment.path.name)
        self._segments.extend(found)
        self._size = sum(segment.size for segment in found)
        self._closed = False

    def _segments_in(self, home: Home) -> list[Segment]:
        segments = []
        for path in home.path.iterdir():
            name = _SEGMENT.fullmatch(path.name)
            if name is None:
                continue
            with path.open("rb") as file:
                version = other_version(file.read(HEAD_BYTES))
                size = os.fstat(file.fileno()).st_size
            if version is not None:
                self._notes.append(f"{path} was left alone: it is of version {version}, which another Gossamer wrote.")
                continue
            segments.append(Segment(path, bytes.fromhex(name[1]), size, home))
        return segments


def _parts(payloads: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The same payloads, in parts that do not make a segment much longer than it should be."""
    part: list[bytes] = []
    size = 0
    for payload in payloads:
        part.append(payload)
        size += len(payload)
        if size >= SEGMENT_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
