"""Files that are on their way: what has come of each, on this machine's disk, until all of it is in the archive.

    <folder>/<job>-<fingerprint>.part      the bytes so far; locked by the process that fetches them
    <folder>/<job>-<fingerprint>.json      which version of the file they are of, and in which life of the machine they
                                           were written

A part outlives its process: whoever gets the task next on this machine goes on from where it ended. It does not outlive
a restart of the machine, after which nobody knows which of its bytes have reached the disk. A worker that has lost its
lease may still hold the lock; then the new one begins a part of its own, which nobody goes on with.

How it fails: DiskFull. How it recovers: the part stays as it is; what nobody asked for in MAX_AGE is deleted.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import re
import secrets
import shutil
import threading
import time
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import msgspec

from ..errors import DiskFull

MAX_AGE = timedelta(days=7)
BUFFER = 1024 * 1024  # bytes that gather before they are written, off the event loop
SPARE = 64 * 1024 * 1024  # of the disk, which no file may take
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class PartHead(msgspec.Struct, frozen=True, kw_only=True):
    """The version of the file that a part is of. `total` is its size, where the server told."""

    etag: str = ""
    last_modified: str = ""
    total: int | None = None
    type: str = ""  # Content-Type
    disposition: str = ""
    boot: str = ""


class FinishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came whole. `head` are its first bytes."""

    path: Path
    sha256: str
    size: int
    head: bytes


class PartFolder:
    """The parts below one folder, which is made when the first file is asked for."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def open(self, job: str, fingerprint: bytes) -> Part:
        """The part of that file: what there is of it, or an empty one. Blocks. Raises DiskFull."""
        try:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._sweep()
            path = self._root / f"{_UNFIT.sub('-', job)[:80]}-{fingerprint.hex()}.part"
            descriptor = _locked(path)
            if descriptor is None:
                path = path.with_name(f"{path.stem}-{secrets.token_hex(4)}.part")
                descriptor = _locked(path)
            assert descriptor is not None
            return Part(path, descriptor)
        except OSError as error:
            raise disk_error(error, self._root) from error

    def _sweep(self) -> None:
        if self._swept:
            return
        self._swept = True
        old = time.time() - MAX_AGE.total_seconds()
        for entry in os.scandir(self._root):
            if entry.name.endswith((".part", ".json")) and entry.stat().st_mtime < old:
                with suppress(OSError):
                    os.unlink(entry.path)


class Part:
    """One file on its way. `size` counts what came, written or not."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._beside = path.with_suffix(".json")
        self._pending = bytearray()
        self._turn = threading.Lock()  # a write may still be under way when the one who asked for it was cancelled
        self._closed = False
        self.head = _read_head(self._beside)
        self.size = os.fstat(descriptor).st_size
        if (
            self.head is None
            or self.head.boot != _boot()
            or (self.head.total is not None and self.size > self.head.total)
        ):
            self.restart()

    @property
    def complete(self) -> bool:
        return self.head is not None and self.head.total is not None and self.size == self.head.total

    @property
    def first_bytes(self) -> bytes:
        return os.pread(self._descriptor, 512, 0) or bytes(self._pending[:512])

    def restart(self) -> None:
        """Forget what came."""
        self._pending.clear()
        self.head, self.size = None, 0
        with suppress(FileNotFoundError):
            self._beside.unlink()
        os.ftruncate(self._descriptor, 0)

    def begin(self, head: PartHead) -> None:
        """What comes next is of that version of the file. Raises DiskFull where it has no room."""
        self.head = msgspec.structs.replace(head, boot=_boot())
        if head.total is not None:
            free = shutil.disk_usage(self._path.parent).free
            if head.total - self.size + SPARE > free:
                raise _full(f"{(head.total - self.size) / 1e6:,.0f} MB are to come, and {free / 1e6:,.0f} MB are free",
                            self._path.parent)  # fmt: skip
        try:
            draft = self._beside.with_suffix(".draft")
            draft.write_bytes(msgspec.json.encode(self.head))
            draft.replace(self._beside)
        except OSError as error:
            raise disk_error(error, self._path.parent) from error

    async def write(self, data: bytes) -> None:
        """Raises DiskFull."""
        self._pending += data
        self.size += len(data)
        if len(self._pending) >= BUFFER:
            await asyncio.to_thread(self.flush)

    def flush(self) -> None:
        """Write out what has gathered. Blocks. Raises DiskFull."""
        with self._turn:
            if self._closed:
                return
            rest, self._pending = memoryview(self._pending), bytearray()
            at = self.size - len(rest)
            try:
                while rest:
                    written = os.pwrite(self._descriptor, rest, at)
                    rest, at = rest[written:], at + written
            except OSError as error:
                self.size = at
                raise disk_error(error, self._path.parent) from error

    def finish(self) -> FinishedFile:
        """All of it is here: written, and safe on the disk. Blocks. Raises DiskFull."""
        self.flush()
        digest = sha256()
        try:
            os.fsync(self._descriptor)
            with open(self._path, "rb") as file:
                head = file.read(512)
                file.seek(0)
                while block := file.read(BUFFER):
                    digest.update(block)
        except OSError as error:
            raise disk_error(error, self._path.parent) from error
        return FinishedFile(path=self._path, sha256=digest.hexdigest(), size=self.size, head=head)

    def close(self) -> None:
        """Leave the part to whoever goes on with it. Blocks."""
        with suppress(DiskFull):  # what could not be written is fetched again
            self.flush()
        with self._turn:
            if not self._closed:
                self._closed = True
                if self.size == 0:
                    self.remove()
                os.close(self._descriptor)

    def remove(self) -> None:
        """The archive has the file, or nobody wants it."""
        for path in (self._path, self._beside):
            with suppress(FileNotFoundError):
                path.unlink()


def _locked(path: Path) -> int | None:
    """The open file, locked; None where another process has it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except FileNotFoundError:
            pass  # removed by the one who had it
        os.close(descriptor)


def _read_head(path: Path) -> PartHead | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=PartHead)
    except (OSError, msgspec.MsgspecError):
        return None


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def disk_error(error: OSError, folder: Path) -> DiskFull:
    return _full(error.strerror or str(error), folder)


def _full(words: str, folder: Path) -> DiskFull:
    return DiskFull(f"No room for a file in {folder} ({words}). Free some space, or set files.parts to another disk.")
