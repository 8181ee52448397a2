"""A copy of a SQLite file as it is at one moment, made while others write to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from .connection import translate


def copy_as_of_now(source: Path, target: Path, role: str) -> None:
    """Copy the file in one read transaction: writers go on meanwhile, and what they commit is not in it. Raises
    BackendUnavailable, BadState."""
    try:
        with (
            closing(sqlite3.connect(source, isolation_level=None)) as reader,
            closing(sqlite3.connect(target)) as writer,
        ):
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_master").fetchone()  # here the moment is fixed
            reader.backup(writer)
            reader.execute("COMMIT")
    except sqlite3.Error as error:
        raise translate(error, source, role) from error
