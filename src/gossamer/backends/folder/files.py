"""Files in a folder archive, each under the hash of its content.

    <root>/files/<ab>/<sha256>      the bytes as received; never changed, and either complete or absent

Two addresses with the same content share one file. Its modification time says when it was last stored or requested:
pruning uses that time.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

from ...errors import BackendUnavailable, GossamerError, Permanent
from ...store.contract import Segment
from ...store.durable import make_folder, new_file, sync_folder

PIECE = 1024 * 1024  # bytes read at once
KEEP_SIZE, PUNCH_HOLE = 1, 2  # of fallocate(2)
_HASH = re.compile(r"[0-9a-f]{64}")


class FolderFiles:
    """The part of `FolderArchive` that stores files."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put_file(self, path: Path, sha256: str) -> bool:
        try:
            return await asyncio.to_thread(self._put_file, path, self._place(sha256))
        except OSError as error:
            raise translate(error, self._root) from error

    async def erase_file(self, sha256: str) -> bool:
        try:
            await asyncio.to_thread(self._place(sha256).unlink)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise translate(error, self._root) from error
        return True

    async def has_file(self, sha256: str) -> bool:
        try:
            await asyncio.to_thread(os.utime, self._place(sha256))
        except FileNotFoundError:
            return False
        except OSError as error:
            raise translate(error, self._root) from error
        return True

    async def read_file(self, sha256: str) -> AsyncIterator[bytes]:
        try:
            with await asyncio.to_thread(open, self._place(sha256), "rb") as file:
                digest = hashlib.sha256()
                while piece := await asyncio.to_thread(file.read, PIECE):
                    digest.update(piece)
                    yield piece
        except FileNotFoundError:
            raise missing_file(sha256, self._root) from None
        except OSError as error:
            raise translate(error, self._root) from error
        if digest.hexdigest() != sha256:
            raise changed_file(sha256, self._root)

    async def files(self) -> AsyncIterator[Segment]:
        for folder in await asyncio.to_thread(self._file_folders):
            for name, size in await asyncio.to_thread(_files_in, folder):
                yield Segment(name, size)

    def _place(self, sha256: str) -> Path:
        if not _HASH.fullmatch(sha256):
            raise Permanent(f"{sha256[:80]!r} is not the hash of a file: 64 digits of 0-9 and a-f.")
        return self._root / "files" / sha256[:2] / sha256

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


def _files_in(folder: Path) -> list[tuple[str, int]]:
    return sorted((entry.name, entry.stat().st_size) for entry in os.scandir(folder) if _HASH.fullmatch(entry.name))


def held_by(found: os.stat_result) -> int:
    """How many bytes of the disk a file takes, without its holes."""
    return min(found.st_size, found.st_blocks * 512)


def make_hole(descriptor: int, offset: int, length: int) -> None:
    """Give this part of a file back to the disk; it reads as zeros. They are written where that cannot be done."""
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    place = (ctypes.c_int(PUNCH_HOLE | KEEP_SIZE), ctypes.c_int64(offset), ctypes.c_int64(length))
    if length and (fallocate is None or fallocate(descriptor, *place) != 0):
        for at in range(offset, offset + length, PIECE):
            os.pwrite(descriptor, bytes(min(PIECE, offset + length - at)), at)


def missing_file(sha256: str, place: object) -> Permanent:
    return Permanent(f"There is no file {sha256} in {place}: it was pruned, or the archive was moved.")


def changed_file(sha256: str, place: object) -> Permanent:
    return Permanent(
        f"The file {sha256} in {place} is not what its name says: the archive was changed, or the disk is failing."
    )


def translate(error: OSError, root: Path) -> GossamerError:
    return BackendUnavailable(
        f"The archive in {root} cannot be used ({error.strerror or error}). Free some space or check its permissions; "
        f"store.keep_pages = false in gossamer.toml crawls without an archive."
    )
