"""A copy of a SQLite file as of one moment, made while others write to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from .connection import translate


def copy_as_of_now(source: Path, target: Path, role: str) -> None:
    """Copy the file in one read transaction: writers continue, and what they commit is not in the copy. Raises
    BackendUnavailable, BadState."""
    try:
        with (
            closing(sqlite3.connect(source, isolation_level=None)) as reader,
            closing(sqlite3.connect(target)) as writer,
        ):
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # this fixes the moment
            reader.backup(writer)
            reader.execute("COMMIT")
    except sqlite3.Error as error:
        raise translate(error, source, role) from error
