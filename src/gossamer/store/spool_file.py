"""One file of a spool: a SQLite database with one table, of one process, which holds its lock as long as it lives.

    <folder>/<host>-<pid>-<life>.spool             the results in the order of `n`, a time in nanoseconds
    <folder>/<host>-<pid>-<life>.spool-journal     of a write in progress; after a crash it undoes what was not promised

A rollback journal with synchronous=FULL: a commit is on the disk before it returns, and a flipped bit cannot hide later
commits, as it would in a write-ahead log. The lock is SQLite's own; the file of a dead process is free.

How it fails: OSError and sqlite3.Error. How it recovers: damaged parts are passed over, and the file is kept for a
person. Content that is not ours is refused before any of it is used: the schema is compared as text, so that a foreign
file brings no views or triggers.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from .durable import sync_folder

APPLICATION_ID, FORMAT = 0x6773706C, 2  # "gspl"; format 1 was never released
TABLE = (
    "CREATE TABLE results (n INTEGER PRIMARY KEY, job TEXT NOT NULL, page BLOB NOT NULL, frame BLOB NOT NULL) STRICT"
)
_PAGES = "SELECT n, job, page FROM results WHERE n > ? ORDER BY n"
_FRAMES = "SELECT n, job, frame FROM results WHERE n > ? ORDER BY n"
_FROM_THE_END = "SELECT n FROM results WHERE n > ? ORDER BY n DESC"
_FOREIGN = "it is not a spool file of Gossamer"
_BEFORE_ALL = -(2**63)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


class NotOurs(Exception):
    """The file is not a spool that this version wrote; its words say what it is."""


class SpoolFile:
    """A spool file whose lock we hold. `noted`: the shared state may have a note of it; then it stays when it is empty,
    so that whoever adopts it removes the note. `results` counts those that wait, by job."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.noted = False
        self.damage = ""  # why some part cannot be read
        self.keep = False  # something in it could not be set aside: the file itself is kept for a person
        self.results: Counter[str] = Counter()
        self.size = 0  # bytes of its pages that are in use
        self.stored = 0  # bytes of results that are stored and not deleted
        self._sql = connection
        self._passed = _BEFORE_ALL  # `n` of the last result that is stored

    @classmethod
    def create(cls, folder: Path) -> SpoolFile:
        host = _UNFIT.sub("-", socket.gethostname())[:60]
        while True:
            path = folder / f"{host}-{os.getpid()}-{secrets.token_hex(4)}.spool"
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            file = None
            try:
                file = cls._locked(path)
                # A process that starts now may take the fresh file for a dead one's; then the next name is tried.
                if file is None:
                    continue
                if path.exists():
                    sql = file._sql
                    sql.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    sql.execute(f"PRAGMA user_version = {FORMAT}")
                    sql.execute(TABLE)
                    sql.execute("COMMIT")
                    file.size = file._used()
                    sync_folder(folder)
                    return file
                file.close()
            except BaseException:
                with suppress(OSError):
                    path.unlink()
                if file is not None:
                    file.close()
                raise

    @classmethod
    def adopt(cls, path: Path) -> SpoolFile | None:
        """Adopt the file of a dead process; None if the process lives, another one adopts it, or it died before it
        had written anything. Raises NotOurs."""
        try:
            file = cls._locked(path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise NotOurs(_FOREIGN) from error
            raise
        if file is None:
            return None
        try:
            if not path.exists():  # emptied and deleted just now
                file.close()
                return None
            sql = file._sql
            if not path.stat().st_size:
                file.delete()
                return None
            marks = [sql.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if marks[0] != APPLICATION_ID:
                raise NotOurs(_FOREIGN)
            if marks[1] != FORMAT:
                raise NotOurs(f"another version of Gossamer wrote it (format {marks[1]})")
            if sql.execute("SELECT sql FROM sqlite_master").fetchall() != [(TABLE,)]:
                raise NotOurs(_FOREIGN)
            sql.execute("COMMIT")
            file.size = file._used()
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def _locked(cls, path: Path) -> SpoolFile | None:
        """The open file, in a transaction that locks it for as long as it is open; None if another process has it, or
        has just deleted it."""
        sql = None
        try:
            sql = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=rw", uri=True, timeout=0, isolation_level=None,
                check_same_thread=False,
            )  # fmt: skip
            for pragma in ("trusted_schema = OFF", "locking_mode = EXCLUSIVE", "synchronous = FULL",
                           "journal_mode = PERSIST", "secure_delete = OFF"):  # fmt: skip
                sql.execute(f"PRAGMA {pragma}")
            sql.execute("BEGIN EXCLUSIVE")
            return cls(path, sql)
        except sqlite3.DatabaseError as error:
            if sql is not None:
                sql.close()
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY or not path.exists():
                return None
            raise

    @property
    def name(self) -> str:
        """Its name in the shared state."""
        return self.path.stem

    @property
    def bad_path(self) -> Path:
        """Where the file is kept for a person."""
        return self.path.with_suffix(".bad")

    @property
    def waits(self) -> bool:
        return self.results.total() > 0

    def pages(self) -> Iterator[bytes]:
        """Count the results by job, and yield the fingerprints of their pages."""
        for _, job, page in self._rows(_PAGES):
            self.results[job] += 1
            yield page

    def rows(self) -> Generator[tuple[int, str, bytes], None, None]:
        """The results that wait, in order: number, job and frame."""
        return self._rows(_FRAMES)

    def _rows(self, sql: str) -> Generator[tuple[int, str, bytes], None, None]:
        after, behind = self._passed, None
        while True:
            try:
                for row in self._sql.execute(sql, (after,)):
                    after = row[0]
                    if [type(value) for value in row] != [int, str, bytes]:  # SQLite does not check what it reads
                        raise sqlite3.DataError("a row has values of other types")
                    yield row
                return
            except sqlite3.DatabaseError as error:
                self.damage = self.damage or str(error)
                behind, before = self._first_behind(after), behind
                if behind is None:
                    return
                after = behind if behind == before else behind - 1  # the second time, that row itself is damaged

    def _first_behind(self, after: int) -> int | None:
        """The first number behind the damaged part that begins after `after`, found from the end."""
        number = None
        with suppress(sqlite3.DatabaseError):
            for row in self._sql.execute(_FROM_THE_END, (after,)):
                number = int(row[0])
        return number

    def insert(self, rows: Iterable[tuple[int, str, bytes, bytes]], most: int | None) -> int | None:
        """Add results durably: number, job, page and frame. If the file would be larger than `most`, add nothing, and
        return the size that it would have."""
        try:
            self._sql.execute("BEGIN")
            self._sql.executemany("INSERT INTO results VALUES (?, ?, ?, ?)", rows)
            size = self._used()
            if most is not None and size > most:
                self._sql.execute("ROLLBACK")
                return size
            self._sql.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # SQLite may have done so itself
                self._sql.execute("ROLLBACK")
            raise
        self.size = size
        return None

    def passed(self, number: int, job: str, size: int) -> None:
        """The result of this number, the first one that waited, is stored or set aside."""
        self._passed = number
        self.results[job] -= 1
        self.stored += size

    def trim(self) -> None:
        """Delete what is stored. On a full disk it stays until the file is deleted, which needs no room."""
        self.stored = 0
        if not (self.keep or self.damage):
            with suppress(sqlite3.DatabaseError):
                self._sql.execute("DELETE FROM results WHERE n <= ?", (self._passed,))
                self.size = self._used()

    def delete(self) -> None:
        """Nothing waits here any more: delete the file, or keep it for a person if it is damaged."""
        if self.keep or self.damage:
            with suppress(FileNotFoundError):
                self.path.rename(self.bad_path)
        else:
            self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock. What waits stays for the next process."""
        self._sql.close()
        if not self.path.exists():
            with suppress(OSError):
                self.path.with_name(f"{self.path.name}-journal").unlink(missing_ok=True)

    def _used(self) -> int:
        pages, free, size = (
            self._sql.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)


def something_waits(folder: Path) -> bool:
    """Do results of any process wait in this spool?"""
    return any(True for _ in folder.glob("*.spool")) if folder.is_dir() else False
