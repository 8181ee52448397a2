"""The mark that a move leaves in a SQLite file (model/carrying.py), and reading a table in batches.

The table `move_mark` is there only in files that a move has touched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...model.carrying import Mark
from .connection import Database

Rows = list[tuple[Any, ...]]  # Any: the types of a row are those of the schema, which is STRICT

_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'move_mark'"


async def read_mark(database: Database) -> Mark | None:
    def read(connection: sqlite3.Connection) -> Mark | None:
        if connection.execute(_IS_THERE).fetchone() is None:
            return None
        row = connection.execute("SELECT mark FROM move_mark").fetchone()
        return msgspec.json.decode(row[0], type=Mark) if row is not None else None

    return await database.read(read)


async def write_mark(database: Database, mark: Mark | None) -> None:
    def write(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE IF NOT EXISTS move_mark (mark TEXT NOT NULL) STRICT")
        connection.execute("DELETE FROM move_mark")
        if mark is not None:
            connection.execute("INSERT INTO move_mark (mark) VALUES (?)", (msgspec.json.encode(mark).decode(),))

    await database.write(write)


async def stream(database: Database, sql: str, values: Sequence[Any], at_once: int) -> AsyncIterator[Rows]:
    """The rows of a query, some at a time; all of one moment, whatever is written meanwhile."""
    cursor = await database.read(lambda connection: connection.execute(sql, values))
    try:
        while rows := await database.read(lambda _: cursor.fetchmany(at_once)):
            yield rows
    finally:
        await database.read(lambda _: cursor.close())
