"""A SQLite file that a power cut puts back to an earlier moment."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


class SqliteFile:
    """`remember` how the file is, and `put_back` what was remembered, when no process has it open."""

    def __init__(self, file: Path) -> None:
        self._file, self._copy = file, file.with_suffix(".copy")

    def remember(self) -> None:
        with closing(sqlite3.connect(self._file)) as here, closing(sqlite3.connect(self._copy)) as copy:
            here.backup(copy)

    def put_back(self) -> None:
        for left in (f"{self._file}-wal", f"{self._file}-shm"):
            Path(left).unlink(missing_ok=True)
        self._copy.replace(self._file)
