"""What a process shares with its supervisor: the black box, and what else it inherits. And what the processes of one
crawl share with each other: the crew.

What it does: the black box is a small piece of shared memory. The process notes in it which page's code is running;
after its death the supervisor reads it. How it fails: a process that inherited no box, or cannot open it, goes on
without one. How it recovers: nothing depends on the box; an empty box costs an explanation, not a page. This module
imports nothing of ours, so that the watching process stays small.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

PULSE_VARIABLE = "_GOSSAMER_PULSE"  # not GOSSAMER_..., which are settings
BOX_VARIABLE = "_GOSSAMER_BOX"

MARGIN = timedelta(seconds=10)  # of silence, beyond the time that the code of a page may take

_SIZE = 4096
_HEAD = struct.Struct("=d??")  # allowed seconds of silence (0: any), ended in order, began
_TEXT = struct.Struct("=H")
_PAGE, _FATE, _LONGEST = 64, 2112, 1900
_REPORT = 1 << 16  # bytes for the report of one process of a crew, including its length


class BlackBox:
    """Shared by a process and its supervisor. Notes are cut at 1,900 bytes."""

    def __init__(self, file: int) -> None:
        self.file = file
        self._memory = mmap.mmap(file, _SIZE)

    @classmethod
    def new(cls, fate: str = "") -> BlackBox:
        """An empty box for the next process. `fate` is what happened to the last one. Raises OSError."""
        import tempfile  # here: commands that only look have no box

        with tempfile.TemporaryFile() as file:
            file.truncate(_SIZE)
            box = cls(os.dup(file.fileno()))
        box._note(_FATE, fate.encode(errors="replace"))
        return box

    def close(self) -> None:
        self._memory.close()
        os.close(self.file)

    # -- by the process ----------------------------------------------------------------------------------------

    def enter(self, page: bytes) -> None:
        """The code for this page begins to run."""
        self._note(_PAGE, page)

    def leave(self) -> None:
        self._memory[_PAGE : _PAGE + 2] = b"\0\0"

    def begin(self, parse_timeout: timedelta) -> None:
        """Work begins: a silence longer than any page may take is a hang."""
        silence = parse_timeout + MARGIN
        self._memory[: _HEAD.size] = _HEAD.pack(silence.total_seconds(), False, True)

    def rest(self) -> None:
        """Any silence is allowed again."""
        self._memory[: _HEAD.size] = _HEAD.pack(0.0, False, self.began)

    def end(self) -> None:
        """The process ends in order: this is no crash."""
        self._memory[: _HEAD.size] = _HEAD.pack(0.0, True, self.began)

    # -- by the supervisor -------------------------------------------------------------------------------------

    @property
    def silence(self) -> float | None:
        """Seconds after which a silent process counts as hung; None while it may be silent."""
        return self._head()[0] or None

    @property
    def ended(self) -> bool:
        return self._head()[1]

    @property
    def began(self) -> bool:
        return self._head()[2]

    @property
    def page(self) -> str:
        """The page whose code did not finish; empty if all did."""
        return self._read(_PAGE)

    @property
    def fate(self) -> str:
        """What happened to the previous process; empty for the first one."""
        return self._read(_FATE)

    def _head(self) -> tuple[float, bool, bool]:
        silence, ended, began = _HEAD.unpack(self._memory[: _HEAD.size])
        return silence, ended, began

    def _note(self, place: int, text: bytes) -> None:
        text = text[:_LONGEST]
        self._memory[place : place + 2 + len(text)] = _TEXT.pack(len(text)) + text

    def _read(self, place: int) -> str:
        (length,) = _TEXT.unpack(self._memory[place : place + 2])
        return self._memory[place + 2 : place + 2 + min(length, _LONGEST)].decode(errors="replace")


class Crew:
    """What the processes of one `gossamer crawl --processes N` share: memory with the id of the job and the final
    report of each.

    The first one (rank 0) opens the job and speaks for all; the others help. A helper holds a lock as long as it lives,
    which the system releases at its death: by it the first one sees when the last helper is gone.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.rank = 0  # of this process
        self._file = os.memfd_create("crew")  # forked processes inherit it, executed programs do not

    @property
    def helps(self) -> bool:
        return self.rank > 0

    @property
    def job(self) -> str:
        """The id of the job that all work on; empty until the first one has opened it."""
        return self._read(0).decode()

    def begin(self, job: str) -> None:
        """Called by the first one: there is a job to help with."""
        self._write(0, job.encode())

    def join(self) -> None:
        """Called by a helper, before it begins."""
        fcntl.lockf(self._file, fcntl.LOCK_SH)

    def has_helpers(self) -> bool:
        """Called by the first one: is a helper still at work?"""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.lockf(self._file, fcntl.LOCK_UN)
        return False

    def report(self, words: bytes) -> None:
        """Called by a helper, at its end."""
        self._write(self.rank, words)

    def reports(self) -> list[bytes]:
        """The reports of helpers that finished. A killed one leaves none."""
        return [words for rank in range(1, self.size) if (words := self._read(rank))]

    def _write(self, place: int, words: bytes) -> None:
        os.pwrite(self._file, _TEXT.pack(len(words)) + words, place * _REPORT)

    def _read(self, place: int) -> bytes:
        written = os.pread(self._file, _REPORT, place * _REPORT)
        return written[2 : 2 + _TEXT.unpack(written[:2])[0]] if len(written) >= _TEXT.size else b""


class Parent:
    """What this process has inherited from its supervisor. There is one instance, as a process has one parent."""

    def __init__(self) -> None:
        self.box: BlackBox | None = None
        self.pulse: int | None = None  # our end of the supervisor's pipe, in a forked process
        self.crew: Crew | None = None  # the processes that share a crawl with this one

    def inherit_box(self) -> None:
        """Take the box that the supervisor passed to this program. Children of this process do not get it."""
        text = os.environ.pop(BOX_VARIABLE, "")
        with suppress(OSError, ValueError):
            if text:
                os.set_inheritable(int(text), False)
                self.box = BlackBox(int(text))

    @contextmanager
    def at_work(self, parse_timeout: timedelta) -> Iterator[None]:
        """Pages are worked on in this block, each for at most `parse_timeout`: a longer silence is a hang."""
        if self.box is not None:
            self.box.begin(parse_timeout)
        try:
            yield
        finally:
            if self.box is not None:
                self.box.rest()


PARENT = Parent()
