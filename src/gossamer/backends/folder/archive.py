"""Raw pages in a folder; fulfils `WholeArchive`.

The names are those of store/page_format.py. Only one process appends to a segment, which is never changed afterwards;
`zstdcat` shows it. A file that a spider asked for is either complete or absent; its modification time says when it was
last stored or requested: pruning uses that time.

How it fails: `BackendUnavailable` if the disk is full or failing; a partial write is cut off or, after a crash, left as
a tail that no reference names. How it recovers: the next write starts a new segment.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from ...clock import Clock, SystemClock
from ...errors import BackendUnavailable, GossamerError, Misconfigured, Permanent
from ...model.file import is_hash
from ...model.page import Snapshot
from ...store import page_format
from ...store.contract import Segment
from ...store.durable import make_folder, new_file, sync_folder

SEGMENT_BYTES = 64 * 1024 * 1024  # a longer segment is closed and the next one started
PIECE = 1024 * 1024  # bytes of a file read at once
KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
HOLE_BYTES = 4096  # the least that a disk gives back
PENDING_BYTES = 4 * 1024 * 1024  # compressed pages are written when this much has accumulated

_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class FolderArchive:
    """Pages stored below `root`. Alive while entered.

    `writer` identifies this process; two processes of the same name never share a segment. `durable` fsyncs every
    batch, so that stored pages survive a power cut. Without it a killed process loses nothing, but a power cut may lose
    the last pages.
    """

    def __init__(
        self,
        root: Path,
        *,
        level: int,
        writer: str,
        durable: bool = True,
        clock: Clock | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        pending_bytes: int = PENDING_BYTES,
    ) -> None:
        self._root = root
        self._writer = page_format.name_of_writer(writer)
        self._durable = durable
        self._segment_bytes = segment_bytes
        self._pending_bytes = pending_bytes
        self._clock = clock or SystemClock()
        self._packer = page_format.PagePacker(level)
        self._lock = threading.Lock()  # one appender at a time, even if a caller was cancelled half-way
        self._segment: _Segment | None = None
        self._count = 0
        self._alive = False

    async def __aenter__(self) -> Self:
        try:
            await asyncio.to_thread(make_folder, self._root)
        except OSError as error:
            raise Misconfigured(
                f"The archive folder {self._root} cannot be created ({error.strerror}). "
                f"Set archive = 'folder:///...' to a place you may write to."
            ) from error
        self._alive = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._alive = False
        await asyncio.to_thread(self._close)

    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        if not self._alive:
            raise BackendUnavailable(f"The archive {self._root} is closed.")
        return await asyncio.to_thread(self._put, snapshots) if snapshots else []

    async def get(self, ref: str) -> Snapshot:
        return await asyncio.to_thread(self._get, ref)

    async def get_many(self, refs: Sequence[str]) -> list[Snapshot | Permanent]:
        return await asyncio.to_thread(lambda: [self._get_or_why(ref) for ref in refs])

    def _get_or_why(self, ref: str) -> Snapshot | Permanent:
        try:
            return self._get(ref)
        except Permanent as error:
            return error

    async def erase(self, refs: Sequence[str]) -> int:
        try:
            return await asyncio.to_thread(self._erase, refs)
        except OSError as error:
            raise _translate(error, self._root) from error

    async def drop(self, refs: Sequence[str]) -> int:
        try:
            return await asyncio.to_thread(self._drop, refs)
        except OSError as error:
            raise _translate(error, self._root) from error

    async def prune(self, older_than: timedelta) -> int:
        return await asyncio.to_thread(self._prune, self._clock.now() - older_than.total_seconds())

    async def size(self) -> int:
        return await asyncio.to_thread(self._size)

    async def segments(self) -> AsyncIterator[Segment]:
        for day in await asyncio.to_thread(self._days):
            for segment in await asyncio.to_thread(self._of_day, day):
                yield segment

    async def read_segment(self, name: str) -> bytes:
        try:
            return await asyncio.to_thread((self._root / name).read_bytes)
        except FileNotFoundError:
            raise Permanent(f"There is no file {name} in {self._root}: it was pruned meanwhile.") from None
        except OSError as error:
            raise _translate(error, self._root) from error

    async def write_segment(self, name: str, content: bytes) -> None:
        if not page_format.SEGMENT.fullmatch(name):
            raise Permanent(f"{name[:200]!r} is not the name of an archive file.")
        try:
            await asyncio.to_thread(self._write_segment, self._root / name, content)
        except OSError as error:
            raise _translate(error, self._root) from error

    def _put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        refs: list[str] = []
        with self._lock:
            try:
                day = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%d")
                for snapshot in snapshots:
                    frame = self._packer.frame(snapshot)
                    refs.append(self._segment_for(day).add(frame))
                if self._segment is not None:
                    self._segment.settle(self._durable)
            except OSError as error:
                self._abandon()
                raise _translate(error, self._root) from error
            except BaseException:
                self._abandon()
                raise
        return refs

    def _segment_for(self, day: str) -> _Segment:
        segment = self._segment
        if segment is not None and (segment.day != day or segment.length >= self._segment_bytes):
            segment.settle(self._durable)
            segment.close()
            segment = self._segment = None
        if segment is None:
            segment = self._segment = self._begin_segment(day)
        return segment

    def _begin_segment(self, day: str) -> _Segment:
        folder = self._root / day
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            self._count += 1
            name = f"{self._writer}-{self._count}.zst"
            try:
                descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:  # an earlier process of that name; its file may end in a torn page
                continue
            if self._durable:
                sync_folder(folder)
                sync_folder(self._root)
            return _Segment(day, name, descriptor, self._pending_bytes)

    def _abandon(self) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.cut_back()
            segment.close()

    def _close(self) -> None:
        with self._lock:
            if self._segment is not None:
                self._segment.close()
                self._segment = None

    def _get(self, ref: str) -> Snapshot:
        name, offset, length = page_format.place_of(ref)
        try:
            with (self._root / name).open("rb") as file:
                if offset + length > os.fstat(file.fileno()).st_size:
                    raise Permanent(f"The archived page {ref} lies beyond the end of its file, which is truncated.")
                file.seek(offset)
                frame = file.read(length)
        except FileNotFoundError:
            raise page_format.missing_page(ref, self._root) from None
        except OSError as error:
            raise _translate(error, self._root) from error
        return page_format.read_page(frame, ref)

    def _erase(self, refs: Sequence[str]) -> int:
        """Overwritten in place: whoever appends to the file meanwhile does so at its end."""
        erased = 0
        for name, places in page_format.places_by_segment(refs).items():
            with suppress(FileNotFoundError), (self._root / name).open("r+b") as file:
                size = os.fstat(file.fileno()).st_size
                for offset, length in places:
                    if offset + length <= size:
                        file.seek(offset)
                        file.write(page_format.blank_frame(length))
                        erased += 1
                file.flush()
                os.fsync(file.fileno())
        return erased

    def _drop(self, refs: Sequence[str]) -> int:
        """The file keeps its length and other pages their places; where pages were is a hole that takes no room."""
        freed = 0
        for name, places in page_format.places_by_segment(refs).items():
            with suppress(FileNotFoundError), (self._root / name).open("r+b") as file:
                before = _held_by(os.fstat(file.fileno()))
                for offset, length in page_format.joined(places, os.fstat(file.fileno()).st_size):
                    file.seek(offset)
                    file.write(page_format.blank_frame(length)[: page_format.BLANK_HEAD])
                    file.flush()
                    _make_hole(file.fileno(), offset + page_format.BLANK_HEAD, length - page_format.BLANK_HEAD)
                os.fsync(file.fileno())
                freed += before - _held_by(os.fstat(file.fileno()))
        return freed

    def _size(self) -> int:
        size = 0
        for folder, _, names in os.walk(self._root):
            for name in names:
                with suppress(OSError):  # pruned meanwhile
                    size += _held_by(os.lstat(os.path.join(folder, name)))
        return size

    def _days(self) -> list[str]:
        try:
            return sorted(entry.name for entry in os.scandir(self._root) if _DAY.fullmatch(entry.name))
        except OSError as error:
            raise _translate(error, self._root) from error

    def _of_day(self, day: str) -> list[Segment]:
        try:
            files = [entry for entry in os.scandir(self._root / day) if entry.name.endswith(".zst")]
            return sorted(Segment(f"{day}/{file.name}", file.stat().st_size) for file in files)
        except OSError as error:
            raise _translate(error, self._root) from error

    def _write_segment(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with new_file(path) as file:
            for at in range(0, len(content), HOLE_BYTES):  # where pages were dropped stays a hole
                piece = content[at : at + HOLE_BYTES]
                file.seek(len(piece), os.SEEK_CUR) if not any(piece) else file.write(piece)
            file.truncate(len(content))
        sync_folder(path.parent)
        sync_folder(self._root)

    def _prune(self, cutoff: float) -> int:
        freed = 0
        try:
            for entry in sorted(os.scandir(self._root), key=lambda entry: entry.name):
                ours = _DAY.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
                if ours and page_format.day_ended_before(entry.name, cutoff):
                    freed += sum(_held_by(file.stat()) for file in os.scandir(entry.path))
                    shutil.rmtree(entry.path)
            return freed + self._prune_files(cutoff)
        except OSError as error:
            raise _translate(error, self._root) from error

    # -- files that spiders asked for ------------------------------------------------------------------------------

    async def put_file(self, path: Path, sha256: str) -> bool:
        try:
            return await asyncio.to_thread(self._put_file, path, self._file(sha256))
        except OSError as error:
            raise _translate(error, self._root) from error

    async def erase_file(self, sha256: str) -> bool:
        try:
            await asyncio.to_thread(self._file(sha256).unlink)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _translate(error, self._root) from error
        return True

    async def has_file(self, sha256: str) -> bool:
        try:
            await asyncio.to_thread(os.utime, self._file(sha256))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _translate(error, self._root) from error
        return True

    async def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        try:
            with await asyncio.to_thread(open, self._file(sha256), "rb") as file:
                digest = hashlib.sha256()
                while piece := await asyncio.to_thread(file.read, PIECE):
                    digest.update(piece)
                    yield piece
        except FileNotFoundError:
            raise page_format.missing_file(sha256, self._root) from None
        except OSError as error:
            raise _translate(error, self._root) from error
        if digest.hexdigest() != sha256:
            raise Permanent(
                f"The file {sha256} in {self._root} is not what its name says: the archive was changed, or the disk is "
                f"failing."
            )

    async def files(self) -> AsyncIterator[Segment]:
        for folder in await asyncio.to_thread(self._file_folders):
            for name, size in await asyncio.to_thread(_files_in, folder):
                yield Segment(name, size)

    def _file(self, sha256: str) -> Path:
        return self._root / page_format.name_of_file(sha256)

    def _put_file(self, path: Path, place: Path) -> bool:
        if place.exists():
            os.utime(place)
            return False
        make_folder(place.parent)
        try:
            path.replace(place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with open(path, "rb") as source, new_file(place) as target:  # the part was on another disk
                shutil.copyfileobj(source, target, PIECE)
        sync_folder(place.parent)
        return True

    def _file_folders(self) -> list[Path]:
        try:
            return sorted(Path(entry.path) for entry in os.scandir(self._root / "files") if entry.is_dir())
        except FileNotFoundError:
            return []

    def _prune_files(self, cutoff: float) -> int:
        freed = 0
        for folder in self._file_folders():
            for entry in os.scandir(folder):
                found = entry.stat()
                if found.st_mtime < cutoff:
                    freed += found.st_size
                    os.unlink(entry.path)
        return freed


class _Segment:
    """A file that is being appended to. `length` counts everything added, written or not."""

    def __init__(self, day: str, name: str, descriptor: int, most_pending: int) -> None:
        self.day = day
        self.length = 0
        self._name = name
        self._descriptor = descriptor
        self._most_pending = most_pending
        self._settled = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def add(self, frame: bytes) -> str:
        ref = f"{self.day}/{self._name}#{self.length}+{len(frame)}"
        self.length += len(frame)
        self._pending.append(frame)
        self._pending_bytes += len(frame)
        if self._pending_bytes >= self._most_pending:
            self._write_out()
        return ref

    def settle(self, durable: bool) -> None:
        """Write everything added so far to the file."""
        self._write_out()
        if durable and self._settled < self.length:
            os.fsync(self._descriptor)
        self._settled = self.length

    def _write_out(self) -> None:
        rest = memoryview(b"".join(self._pending))
        self._pending, self._pending_bytes = [], 0
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def cut_back(self) -> None:
        """Drop what the failed batch left, so that the file ends with a whole page."""
        with suppress(OSError):  # then a torn tail stays, which no reference names
            os.ftruncate(self._descriptor, self._settled)

    def close(self) -> None:
        with suppress(OSError):  # everything that counts was settled before
            os.close(self._descriptor)


def _held_by(found: os.stat_result) -> int:
    """How many bytes of the disk a file takes, without its holes."""
    return min(found.st_size, found.st_blocks * 512)


def _make_hole(descriptor: int, offset: int, length: int) -> None:
    """Give this part of a file back to the disk; it reads as zeros. They are written where that cannot be done."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    place = (ctypes.c_int(PUNCH_HOLE | KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length))
    if length and (fallocate is None or fallocate(descriptor, *place) != 0):
        for at in range(offset, offset + length, PIECE):
            os.pwrite(descriptor, bytes(min(PIECE, offset + length - at)), at)


def _files_in(folder: Path) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(folder) if is_hash(entry.name))


def _translate(error: OSError, root: Path) -> GossamerError:
    return BackendUnavailable(
        f"The archive in {root} cannot be used ({error.strerror or error}). Free some space or check its permissions; "
        f"store.keep_pages = false in gossamer.toml crawls without an archive."
    )
