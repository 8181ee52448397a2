"""The spool: results that could not be stored yet wait here, on this machine's disk, in the order in which they came.

    <folder>/<host>-<pid>-<life>.spool          the results of one process, a SQLite database (spool_file.py)
    <folder>/<host>-<pid>-<life>-<number>.bad   a result that is damaged or cannot be stored, for a person
    <folder>/<host>-<pid>-<life>.bad            a whole file of which some part cannot be read

Each process writes into its own file, created with the first result that has to wait. A process that starts adopts the
files of dead ones: their lock is free. Stored results are deleted in large steps only; after a crash some are read and
stored again, which is harmless because saving the same result twice is the same as saving it once. Waiting results are
counted by job, for the notes in the shared state (spool_notes.py).

How it fails: `BackendUnavailable` when it or its disk is full; then nothing of the batch is in it. How it recovers:
SQLite takes back what was written half. Damage is set aside, and reading continues after it.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import secrets
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import repeat
from pathlib import Path
from typing import NamedTuple, Self

import zstandard

from ..errors import BackendUnavailable, Misconfigured
from ..process import limits as openfiles
from .durable import new_file, sync_folder
from .spool_file import NotOurs, SpoolFile
from .waiting import Waiting, pack, unpack

TRIM_BYTES = 4 * 1024 * 1024  # stored results are deleted when they take this much, or with their file
SPARE_BYTES = 4 * 1024 * 1024  # free space beyond a refused batch, before the disk counts as having room again
MOST_PAGES = 100_000  # remembered as having a result here; beyond that, every page may have one
BATCH_RESULTS = 64  # handed out at once ...
BATCH_BYTES = 8 * 1024 * 1024  # ... or fewer, if their pages are large


DISK = "disk"  # the file with the random name of the folder


class SpoolFull(BackendUnavailable):
    """There is no room for a batch, and nothing of it was added. A smaller one may find room."""


class FileContent(NamedTuple):
    """How many results of which job wait in a file."""

    name: str
    results: dict[str, int]
    bytes: int


class _Row(NamedTuple):
    """A result that was handed out, and its place. `waiting` is None if it cannot be read and was set aside."""

    file: SpoolFile
    number: int
    job: str
    size: int
    waiting: Waiting | None


class Spool:
    """Bounded, durable, first in first out. Use it inside `async with`, whose end leaves the rest on disk.

    `max_bytes` is for this process, including adopted files; None is unlimited. One task appends, one empties.
    `noted`: the shared state has a note of each file, and an empty file stays until `unnoted` is called for it.
    """

    def __init__(self, folder: Path, *, max_bytes: int | None, noted: bool = False) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._keeps_noted = noted
        self._lock = threading.Lock()  # guards all of it: a cancelled call goes on in its thread, beside the next one
        self._closed = True
        self._own: SpoolFile | None = None
        # Held by this process, including `_own`. Properties, which take no lock, read a copy of it.
        self._files: list[SpoolFile] = []
        self._lost: set[str] = set()  # names of files that could not be opened at all, until they are unnoted
        self._left_alone: set[str] = set()  # paths that are not ours, which are reported once
        self._pages: set[bytes] | None = set()  # whose results may wait; None: too many to remember
        self._refused: int | None = None  # bytes of the last batch that found no room
        self._last_number = 0
        self._batch: list[_Row] = []
        self._notes: list[str] = []

    @property
    def empty(self) -> bool:
        return not any(file.waits for file in list(self._files))

    @property
    def size(self) -> int:
        """How many bytes wait, on disk."""
        return sum(file.size for file in list(self._files) if file.waits)

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def results(self) -> Counter[str]:
        """How many results wait, by job."""
        total: Counter[str] = Counter()
        for file in list(self._files):
            total.update(file.results.copy())
        return +total

    @property
    def full(self) -> bool:
        """True after a batch found no room, until there is room for it."""
        if self._refused is None:
            return False
        within = self._max_bytes is None or self.size + self._refused <= self._max_bytes
        if self.empty or (within and self._disk_has_room(self._refused)):
            self._refused = None
        return self._refused is not None

    def holds(self, fingerprint: bytes) -> bool:
        """May a result of this page wait here? Sometimes True for a page whose results were stored since."""
        return not self.empty and (self._pages is None or fingerprint in self._pages)

    def contents(self) -> list[FileContent]:
        """What waits in each file of this process, for the notes in the shared state; also of files that are empty."""
        lost = [FileContent(name, {}, 0) for name in list(self._lost)]
        return lost + [FileContent(file.name, dict(+file.results.copy()), file.size) for file in list(self._files)]

    async def disk(self) -> str:
        """The random name of this folder; "" before its first result."""
        return await asyncio.to_thread(_read, self._folder / DISK)

    async def missing(self, names: Sequence[str]) -> list[str]:
        """Those names of which there is no file."""
        return await asyncio.to_thread(lambda: [name for name in names if not self._path(name).exists()])

    async def unnoted(self, names: Sequence[str]) -> None:
        """The shared state has no notes of these files any more: those in which nothing waits are deleted."""
        await asyncio.to_thread(self._unnote, frozenset(names))

    def take_notes(self) -> list[str]:
        """Messages for people: damage that was found since the last call."""
        notes, self._notes = self._notes, []
        return notes

    async def __aenter__(self) -> Self:
        """Open it, and adopt the files of dead processes. Raises Misconfigured."""
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
        """Release the files. What is left waits for the next process. Waits only for a write in progress."""
        with self._lock:
            self._closed = True
            self._batch = []
            for file in self._files:
                with suppress(OSError):  # an empty file that stays does no harm; the next process deletes it
                    if file.waits or file.noted:
                        file.close()
                    else:
                        file.delete()
            self._files.clear()
            self._own = None

    async def adopt(self) -> None:
        """Take over the files of processes that died since. Only while nothing waits here; a file that cannot be read
        is left for the next time."""
        if self.empty:
            with suppress(OSError):
                await asyncio.to_thread(self._adopt)

    async def append(self, waiting: Sequence[Waiting]) -> None:
        """Add results at the end, durably: all of them, or none. Raises BackendUnavailable if the spool or its disk is
        full."""
        if waiting:
            await asyncio.to_thread(self._append, waiting)

    async def next(self) -> list[Waiting]:
        """The oldest results, the same ones until `done` is called; none if the spool is empty."""
        if not self._batch:
            await asyncio.to_thread(self._fill)
        return [row.waiting for row in self._batch if row.waiting is not None]

    async def done(self) -> None:
        """The results of `next` are stored. Raises BackendUnavailable if their file cannot be deleted."""
        await asyncio.to_thread(self._done)

    async def set_aside(self, position: int, why: str) -> None:
        """The result at `position` in the last `next` can never be stored: set it aside for a person."""
        await asyncio.to_thread(self._set_aside, position, why)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.spool"

    # -- writing -------------------------------------------------------------------------------------------

    def _append(self, waiting: Sequence[Waiting]) -> None:
        packed = [(one.result.attempt.job, one.result.attempt.fingerprint, pack(one)) for one in waiting]
        with self._lock:
            if self._closed:
                raise BackendUnavailable(f"The spool {self._folder} is closed.")
            try:
                own = self._own_file()
                number = self._last_number = max(self._last_number, time.time_ns())
                others = sum(file.size for file in self._files if file.waits and file is not own)
                room = self._max_bytes - others if self._max_bytes is not None else None
                wanted = own.insert(((number + at, *row) for at, row in enumerate(packed, 1)), room)
            except (OSError, sqlite3.Error) as error:
                self._refused = sum(len(frame) for _, _, frame in packed)
                self._let_go_of_empty()
                raise self._unwritable(error) from error
            if wanted is not None:
                self._refused = wanted - own.size
                self._let_go_of_empty()
                raise SpoolFull(
                    f"The spool {self._folder} is full ({self.size} of {self._max_bytes} bytes): nothing is fetched "
                    f"until the store is back and has taken what waits. For more room, raise store.spool_limit in "
                    f"gossamer.toml."
                )
            self._last_number += len(packed)
            own.results.update(job for job, _, _ in packed)
            self._remember(page for _, page, _ in packed)

    def _own_file(self) -> SpoolFile:
        if self._own is None:
            if self._keeps_noted and not _read(name := self._folder / DISK):
                with new_file(name) as file:
                    file.write(secrets.token_hex(16).encode())
            self._own = SpoolFile.create(self._folder)
            self._own.noted = self._keeps_noted
            self._files.append(self._own)
        return self._own

    def _unwritable(self, error: Exception) -> BackendUnavailable:
        words = error.strerror if isinstance(error, OSError) else None
        return BackendUnavailable(
            f"The spool {self._folder} cannot be written ({words or error}). Free some space on its disk, or "
            f"set store.spool in gossamer.toml to another."
        )

    def _remember(self, fingerprints: Iterable[bytes]) -> None:
        if self._pages is not None:
            self._pages.update(fingerprints)
            if len(self._pages) > MOST_PAGES:
                self._pages = None

    def _disk_has_room(self, size: int) -> bool:
        with suppress(OSError):
            return shutil.disk_usage(self._folder).free > size + SPARE_BYTES
        return True

    # -- reading -------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        """Read the next batch, from all files in the order of their numbers."""
        with self._lock:
            while not self._batch:
                self._batch = self._read_batch()
                if not self._batch:  # what was counted and is not there could not be read
                    for file in self._files:
                        file.results.clear()
                    self._let_go_of_empty()
                    return
                if not any(row.waiting for row in self._batch):
                    self._finish_batch()

    def _read_batch(self) -> list[_Row]:
        batch: list[_Row] = []
        size = 0
        with ExitStack() as cursors:
            found = [
                zip(repeat(file), cursors.enter_context(closing(file.rows()))) for file in self._files if file.waits
            ]
            for file, (number, job, frame) in heapq.merge(*found, key=lambda one: one[1][0]):
                waiting = None
                try:
                    waiting = unpack(frame)
                    size += len(waiting.snapshot.body) if waiting.snapshot is not None else 0
                except (ValueError, zstandard.ZstdError) as error:
                    self._keep_bad(file, number, frame, f"it cannot be understood: {error}")
                batch.append(_Row(file, number, job, len(frame), waiting))
                if len(batch) >= BATCH_RESULTS or size >= BATCH_BYTES:
                    break
        return batch

    def _done(self) -> None:
        with self._lock:
            self._finish_batch()

    def _finish_batch(self) -> None:
        for row in self._batch:
            row.file.passed(row.number, row.job, row.size)
        self._batch = []
        for file in self._files:
            if file.waits and file.stored >= TRIM_BYTES:
                file.trim()
        self._let_go_of_empty()

    def _set_aside(self, position: int, why: str) -> None:
        with self._lock:
            row = [row for row in self._batch if row.waiting is not None][position]
            assert row.waiting is not None
            self._keep_bad(row.file, row.number, pack(row.waiting), why)

    def _keep_bad(self, file: SpoolFile, number: int, frame: bytes, why: str) -> None:
        path = file.path.with_name(f"{file.name}-{number}.bad")
        try:
            with path.open("wb") as bad:
                bad.write(frame)
                bad.flush()
                os.fsync(bad.fileno())
        except OSError:  # no room: then the whole file is renamed at its end, which needs none
            with suppress(OSError):
                path.unlink(missing_ok=True)
            file.keep = True
            path = file.bad_path
        self._notes.append(f"A spooled result was set aside in {path}: {why}.")

    def _let_go_of_empty(self) -> None:
        """Delete files in which nothing waits, unless the shared state may have notes of them."""
        for file in [file for file in self._files if not (file.waits or file.noted)]:
            if file.damage:
                self._notes.append(
                    f"{file.path} cannot be read in part ({file.damage}) and was set aside as {file.bad_path.name}."
                )
            try:
                file.delete()
            except OSError as error:
                raise BackendUnavailable(
                    f"{file.path} was emptied and cannot be deleted ({error.strerror or error}). "
                    f"Check the permissions of the spool folder."
                ) from error
            self._files.remove(file)
            if file is self._own:
                self._own = None
        if self.empty:
            self._pages = set()

    # -- notes and adoption --------------------------------------------------------------------------------

    def _unnote(self, names: frozenset[str]) -> None:
        with self._lock:
            self._lost -= names
            for file in self._files:
                file.noted = file.noted and (file.waits or file.name not in names)
            self._let_go_of_empty()

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        sync_folder(self._folder.parent)
        self._adopt()
        self._closed = False

    def _adopt(self) -> None:
        with self._lock:
            for entry in list(os.scandir(self._folder)):
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False) and any(path.glob("*.spool")):
                    self._leave_alone(path, "a version of Gossamer before 0.1.0 wrote it")
                elif entry.is_file(follow_symlinks=False) and path.suffix == ".spool":
                    self._adopt_file(path)
            for journal in self._folder.glob("*.spool-journal"):
                if not journal.with_suffix(".spool").exists():  # a process died between deleting the two
                    journal.unlink(missing_ok=True)
            self._let_go_of_empty()

    def _adopt_file(self, path: Path) -> None:
        if not os.access(path, os.R_OK | os.W_OK):
            self._leave_alone(path, "it belongs to another user")
            return
        try:
            file = SpoolFile.adopt(path)
        except NotOurs as error:
            self._leave_alone(path, str(error))
            return
        except sqlite3.OperationalError as error:  # the next time, perhaps
            self._leave_alone(path, f"it cannot be opened ({error})")
            return
        except sqlite3.DatabaseError as error:
            bad = path.with_suffix(".bad")
            path.rename(bad)
            self._notes.append(f"{path} cannot be read ({error}) and was set aside as {bad.name}.")
            if self._keeps_noted:
                self._lost.add(path.stem)
            return
        if file is not None:
            file.noted = self._keeps_noted
            self._remember(file.pages())
            self._files.append(file)

    def _leave_alone(self, path: Path, why: str) -> None:
        if str(path) not in self._left_alone:
            self._left_alone.add(str(path))
            self._notes.append(f"{path} was left alone: {why}.")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        return ""
