"""Where a spool's files are: the folder of one process with its lock, its segments, and the way through one of them."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from .spool_format import Damage, Entry, walk

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class Home:
    """The folder of one process, and its lock in our hands."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def make(cls, folder: Path) -> Home:
        host = _UNFIT.sub("-", socket.gethostname())[:60]
        while True:
            path = folder / f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
            path.mkdir(parents=True)
            # Somebody who starts now may take the fresh folder for a dead process's; then the next name is tried.
            with suppress(FileNotFoundError):
                home = cls._locked(path, os.O_CREAT)
                if home is not None:
                    sync_folder(folder)
                    return home

    @classmethod
    def adopt(cls, path: Path) -> Home | None:
        """The folder of a process that is dead; None when it lives, or another one adopts it."""
        try:
            return cls._locked(path, 0)
        except FileNotFoundError:
            with suppress(OSError):  # not empty: not ours
                path.rmdir()
            return None

    @classmethod
    def _locked(cls, path: Path, flags: int) -> Home | None:
        name = path / "lock"
        lock = os.open(name, os.O_RDWR | os.O_CLOEXEC | flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_ino == name.stat().st_ino:  # else it was emptied and deleted just now
                return cls(path, lock)
        except BlockingIOError:
            pass
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)
        return None

    def let_go(self) -> None:
        """Give the lock back; the folder goes when nothing is left in it."""
        with suppress(OSError):  # an empty folder that stays does no harm; whoever starts next removes it
            if {one.name for one in self.path.iterdir()} == {"lock"}:
                (self.path / "lock").unlink()
                self.path.rmdir()
        os.close(self._lock)


def something_waits(folder: Path) -> bool:
    """Do results of any process wait in this spool?"""
    return any(True for _ in folder.glob("*/*.spool")) if folder.is_dir() else False


class Segment:
    """A file with entries. `size` counts what was promised."""

    __slots__ = ("home", "mark", "path", "size")

    def __init__(self, path: Path, mark: bytes, size: int, home: Home) -> None:
        self.path = path
        self.mark = mark
        self.size = size
        self.home = home

    def bad_name(self, start: int | None = None) -> Path:
        """Where the entry that begins at `start` is set aside, or the whole file."""
        name = f"{self.home.path.name}-{self.path.stem}" + (f"-{start}" if start is not None else "")
        return self.home.path.parent / f"{name}.bad"


class Reader:
    """Goes through one segment. `keep`: something in it could not be copied, so the file itself must stay."""

    def __init__(self, segment: Segment, content: bytes) -> None:
        self.segment = segment
        self.content = content
        self.keep = False
        self._found: Iterator[Entry | Damage] = walk(content, segment.mark)
        self._ahead = next(self._found, None)

    @property
    def exhausted(self) -> bool:
        return self._ahead is None

    def advance(self) -> Entry | Damage | None:
        found, self._ahead = self._ahead, next(self._found, None) if self._ahead is not None else None
        return found


def write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_folder(folder: Path) -> None:
    """A new file survives a power cut only when the folder's list of names was written too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
