"""The folders of a spool: one per process, locked while it lives, containing segments (spool_files.py).

How it fails: OSError. How it recovers: a folder whose lock is free belongs to a dead process, and is adopted.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import zstandard

from .durable import sync_folder
from .spool_files import HEAD_BYTES, Damage, Entry, other_version, page_of, walk

_SEGMENT = re.compile(r"[0-9]{20}-([0-9a-f]{16})\.spool")
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class Home:
    """The folder of one process, with its lock held by us. `noted`: the shared state may have a note of it; then the
    folder stays, so that the process that adopts it removes the note."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.noted = False
        self._lock = lock

    @classmethod
    def make(cls, folder: Path) -> Home:
        host = _UNFIT.sub("-", socket.gethostname())[:60]
        while True:
            path = folder / f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
            path.mkdir(mode=0o700, parents=True)
            # A process that starts now may take the fresh folder for a dead one's; then the next name is tried.
            with suppress(FileNotFoundError):
                home = cls._locked(path, os.O_CREAT)
                if home is not None:
                    sync_folder(folder)
                    return home

    @classmethod
    def adopt(cls, path: Path) -> Home | None:
        """Adopt the folder of a dead process; None if the process lives, or another one adopts it."""
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
        """Release the lock; remove the folder if it is empty and not noted."""
        with suppress(OSError):  # an empty folder that stays does no harm; the next process that starts removes it
            if not self.noted and {one.name for one in self.path.iterdir()} == {"lock"}:
                (self.path / "lock").unlink()
                self.path.rmdir()
        os.close(self._lock)


def something_waits(folder: Path) -> bool:
    """Do results of any process wait in this spool?"""
    return any(True for _ in folder.glob("*/*.spool")) if folder.is_dir() else False


class Segment:
    """A file with entries. `size` counts the promised bytes, `results` the waiting ones, by job."""

    __slots__ = ("home", "mark", "path", "results", "size")

    def __init__(self, path: Path, mark: bytes, size: int, home: Home) -> None:
        self.path = path
        self.mark = mark
        self.size = size
        self.home = home
        self.results: Counter[str] = Counter()

    def pages(self) -> Iterator[tuple[str, bytes]]:
        """The job and the fingerprint of every readable result in the file."""
        with suppress(OSError):  # reported when this file is read
            for found in walk(self.path.read_bytes(), self.mark):
                if isinstance(found, Entry):
                    with suppress(ValueError, zstandard.ZstdError):  # as above
                        yield page_of(found.payload)

    def bad_name(self, start: int | None = None) -> Path:
        """Where the entry that begins at `start` is set aside, or the whole file."""
        name = f"{self.home.path.name}-{self.path.stem}" + (f"-{start}" if start is not None else "")
        return self.home.path.parent / f"{name}.bad"


class Reader:
    """Reads through one segment. `keep`: part of it could not be copied, so the file itself must stay."""

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


def segments_in(home: Home, notes: list[str]) -> list[Segment] | None:
    """The segments of a folder. None, and a message for people, if another version wrote one of them."""
    segments = []
    for path in home.path.iterdir():
        name = _SEGMENT.fullmatch(path.name)
        if name is None:
            continue
        with path.open("rb") as file:
            version = other_version(file.read(HEAD_BYTES))
            size = os.fstat(file.fileno()).st_size
        if version is not None:
            notes.append(f"{path} was left alone: another version of Gossamer wrote it (format {version}).")
            return None
        segments.append(Segment(path, bytes.fromhex(name[1]), size, home))
    return segments
