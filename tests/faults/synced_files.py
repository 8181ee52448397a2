"""What a power cut would leave of SQLite files: the traced writes of a program, up to the last sync before a moment.

A program runs under strace, which logs every write to its files with its bytes, and every sync. Replaying the log up to
a line gives the files as the disk certainly has them at that moment: what was written and not synced is left out.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_CALLS = "pwrite64,ftruncate,fdatasync,fsync,unlink,unlinkat,write,writev,sendto,sendmsg"
_LINE = re.compile(r"(?P<pid>\d+) +(?:<\.\.\. (?P<resumed>\w+) resumed>|(?P<name>\w+)\()(?P<rest>.*)")
_FILE = re.compile(r"\d+<(?P<path>[^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


def strace(log: Path) -> list[str]:
    """The words before a command that is to be traced."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed: apt-get install strace")
    return [program, "-f", "-qq", "-y", "-xx", "-s", "200000", "-e", f"trace={_CALLS}", "-o", str(log)]


class Moment(NamedTuple):
    """Data that left the program, and the files as a power cut would leave them just before that."""

    data: bytes
    disk: Disk


class Disk:
    """The bytes of each file that are synced, and those that are only written."""

    def __init__(self, before: dict[str, bytes]) -> None:
        self._written = {path: bytearray(content) for path, content in before.items()}
        self._synced = dict(before)

    def write(self, path: str, data: bytes, at: int) -> None:
        held = self._written.setdefault(path, bytearray())
        held.extend(bytes(max(0, at + len(data) - len(held))))
        held[at : at + len(data)] = data

    def truncate(self, path: str, size: int) -> None:
        del self._written.setdefault(path, bytearray())[size:]

    def content(self, path: str) -> bytes:
        return bytes(self._written.get(path, b""))

    def keep(self, path: str, content: bytes) -> None:
        self._synced[path] = content

    def remove(self, path: str) -> None:
        self._written.pop(path, None)
        self._synced.pop(path, None)

    def rows(self, database: Path, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the database says after the power cut."""
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / database.name
            for end in ("", "-wal", "-journal"):
                content = self._synced.get(f"{database}{end}")
                if content is not None:
                    Path(f"{copy}{end}").write_bytes(content)
            with closing(sqlite3.connect(copy)) as connection:
                try:
                    return connection.execute(sql, values).fetchall()
                except sqlite3.OperationalError:  # its tables are not on the disk
                    return []


def moments(log: Path, before: dict[str, bytes] | None = None) -> Iterator[Moment]:
    """Every piece of data that the program sent or printed, with the disk at that moment. `before`: the content of the
    files that there were before it began."""
    disk = Disk(before or {})
    waiting: dict[str, tuple[str, str, bytes]] = {}  # by thread: the call that has begun
    for line in log.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        pid, rest = found["pid"], found["rest"]
        if found["resumed"] is not None:
            name, before, content = waiting.pop(pid, ("", "", b""))
            yield from _done(disk, name, before + rest, content)
            continue
        name, path = found["name"], path_in(rest)
        if name in ("write", "writev", "sendto", "sendmsg"):
            # It counts from its beginning: the data may be out before the call returns.
            yield Moment(b"".join(map(_bytes, _TEXT.findall(rest))), disk)
            continue
        content = disk.content(path)  # a sync covers what was written before it began
        if rest.endswith("<unfinished ...>"):
            waiting[pid] = (name, rest.removesuffix("<unfinished ...>"), content)
        else:
            yield from _done(disk, name, rest, content)


def _done(disk: Disk, name: str, rest: str, content: bytes) -> Iterator[Moment]:
    path = path_in(rest)
    if not rest.rstrip().rpartition("= ")[2].isdigit():
        return  # it failed
    if name == "pwrite64":
        at = re.search(r", (\d+)\s*\)\s*= \d+\s*$", rest)
        assert at is not None, rest[-80:]
        disk.write(path, _bytes(_TEXT.findall(rest)[0]), int(at[1]))
    elif name == "ftruncate":
        size = re.search(r", (\d+)\s*\)\s*= 0\s*$", rest)
        assert size is not None
        disk.truncate(path, int(size[1]))
    elif name in ("fdatasync", "fsync"):
        disk.keep(path, content)
    elif name in ("unlink", "unlinkat"):
        disk.remove(_bytes(_TEXT.findall(rest)[-1]).decode())
    yield from ()


def path_in(rest: str) -> str:
    found = _FILE.match(rest)
    text = found["path"] if found is not None else ""
    return _bytes(text).decode(errors="replace") if "\\x" in text else text


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
