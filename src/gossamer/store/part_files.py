"""Part files: downloads in progress, on this machine's disk, until the whole file is in the archive.

    <folder>/<job>-<fingerprint>.part      the bytes so far; locked by the process that fetches them
    <folder>/<job>-<fingerprint>.json      the version of the file, and the boot of the machine in which they were
                                           written

A part outlives its process: the next worker with the task on this machine continues where it ended. It does not outlive
a restart of the machine, after which it is unknown which of its bytes have reached the disk. A worker that has lost its
lease may still hold the lock; then the new one begins a separate part, which is not continued later.

How it fails: DiskFull. How it recovers: the part stays as it is; parts not used for MAX_AGE are deleted.
"""

from __future__ import annotations

import asyncio
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
BUFFER = 1024 * 1024  # bytes gathered before they are written, off the event loop
SPARE = 64 * 1024 * 1024  # of the disk, which no file may use
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class PartHead(msgspec.Struct, frozen=True, kw_only=True):
    """The version of the file that a part belongs to. `total` is its size, if the server stated it."""

    etag: str = ""
    last_modified: str = ""
    total: int | None = None
    type: str = ""  # Content-Type
    disposition: str = ""
    boot: str = ""


class FinishedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A complete file. `head` are its first bytes."""

    path: Path
    sha256: str
    size: int
    head: bytes


class PartFolder:
    """The part files in one folder, which is created for the first file."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._swept = False

    def open(self, job: str, fingerprint: bytes) -> Part:
        """The part of that file: an existing one, or an empty one. Blocks. Raises DiskFull."""
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
    """One file in progress. `size` counts what came, written or not."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        self._beside = path.with_suffix(".json")
        self._pending = bytearray()
        self._turn = threading.Lock()  # a write may still be running after its caller was cancelled
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
        """Discard what came."""
        self._pending.clear()
        self.head, self.size = None, 0
        with suppress(FileNotFoundError):
            self._beside.unlink()
        os.ftruncate(self._descriptor, 0)

    def begin(self, head: PartHead) -> None:
        """Begin a new version of the file. Raises DiskFull if there is no room for it."""
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
        """Write out the buffer. Blocks. Raises DiskFull."""
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
        """The file is complete: write and sync all of it. Blocks. Raises DiskFull."""
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
        """Leave the part to the next attempt. Blocks."""
        with suppress(DiskFull):  # what could not be written is fetched again
            self.flush()
        with self._turn:
            if not self._closed:
                self._closed = True
                if self.size == 0:
                    self.remove()
                os.close(self._descriptor)

    def remove(self) -> None:
        """The archive has the file, or it is not wanted any more."""
        for path in (self._path, self._beside):
            with suppress(FileNotFoundError):
                path.unlink()


def _locked(path: Path) -> int | None:
    """The open file, locked; None if another process has it."""
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
            pass  # removed by the process that had it
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
