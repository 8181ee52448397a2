"""What the streams of both SQLite files share: the mark of a move, and reading everything as of one moment, in batches
(model/stream.py).

The table `move_mark` exists only in files that a move or a restore has touched.
"""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Generic

import msgspec

from ...errors import BackendUnavailable
from ...model.stream import MoveMark, Row
from .connection import Database

Rows = list[tuple[Any, ...]]  # Any: the types of a row are those of the schema, which is STRICT

_IS_THERE = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'move_mark'"


class SqliteStream(ABC, Generic[Row]):
    """The half of a `RowStream` that does not depend on the tables."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def dump(self) -> AsyncGenerator[Sequence[Row]]:
        """In one read transaction: others go on writing, and their journal grows until it ends."""
        await self._database.read(_begin)
        try:
            async for batch in self._dump():
                yield batch
        finally:
            await self._database.read(lambda connection: connection.execute("COMMIT"))

    @abstractmethod
    def _dump(self) -> AsyncIterator[Sequence[Row]]: ...

    async def mark(self) -> MoveMark | None:
        def read(connection: sqlite3.Connection) -> MoveMark | None:
            if connection.execute(_IS_THERE).fetchone() is None:
                return None
            row = connection.execute("SELECT mark FROM move_mark").fetchone()
            return msgspec.json.decode(row[0], type=MoveMark) if row is not None else None

        return await self._database.read(read)

    async def set_mark(self, mark: MoveMark | None) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("CREATE TABLE IF NOT EXISTS move_mark (mark TEXT NOT NULL) STRICT")
            connection.execute("DELETE FROM move_mark")
            if mark is not None:
                connection.execute("INSERT INTO move_mark (mark) VALUES (?)", (msgspec.json.encode(mark).decode(),))

        await self._database.write(write)

    async def _rows(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _batches(self, sql: str, size: int) -> AsyncIterator[Rows]:
        """The rows of a query, `size` at a time."""
        cursor = await self._database.read(lambda connection: connection.execute(sql))
        try:
            while rows := await self._database.read(lambda _: cursor.fetchmany(size)):
                yield rows
        finally:
            with suppress(BackendUnavailable):  # nobody wants the rest, and the file is closed
                await self._database.read(lambda _: cursor.close())

    async def _count(self, tables: dict[str, str]) -> dict[str, int]:
        """The number of rows of each table, by the name of its content."""
        return {
            name: (await self._rows(f"SELECT count(*) FROM {table}"))[0][0]  # noqa: S608 - our own names
            for name, table in tables.items()
        }


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # this fixes the moment
