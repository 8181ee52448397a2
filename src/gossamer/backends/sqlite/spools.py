"""Notes of results that wait on the disks of workers, in the state file. Fulfils `SpoolBook`."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...store.contract import SpoolNote
from .connection import Database

_ENTER = "INSERT OR REPLACE INTO spools (name, note) VALUES (?, ?)"


class SqliteSpools:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, note: SpoolNote) -> None:
        await self._database.write(lambda connection: _enter(connection, note))

    async def give_up(self, name: str) -> SpoolNote | None:
        def write(connection: sqlite3.Connection) -> SpoolNote | None:
            row = connection.execute("SELECT note FROM spools WHERE name = ?", (name,)).fetchone()
            if row is None:
                return None
            note = msgspec.structs.replace(_read(row[0]), given_up=True)
            _enter(connection, note)
            return note

        return await self._database.write(write)

    async def take_away(self, names: Sequence[str]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("DELETE FROM spools WHERE name = ?", [(name,) for name in names])

        await self._database.write(write)

    async def notes(self) -> list[SpoolNote]:
        sql = "SELECT note FROM spools ORDER BY name"  # few: one for each process with results on its disk
        rows = await self._database.read(lambda c: c.execute(sql).fetchall(), quick=True)
        return [_read(text) for (text,) in rows]


def _enter(connection: sqlite3.Connection, note: SpoolNote) -> None:
    connection.execute(_ENTER, (note.name, msgspec.json.encode(note).decode()))


def _read(text: str) -> SpoolNote:
    return msgspec.json.decode(text, type=SpoolNote)
