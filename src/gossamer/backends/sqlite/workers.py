"""Heartbeats of workers, in the state file. Fulfils `WorkerBook`."""

from __future__ import annotations

import sqlite3

import msgspec

from ...frontier.contract import WorkerCard
from ...model.job import JobPace
from .connection import Database

# A file is used by one machine, whose clock is the clock of the state.
_FIELDS = tuple(name for name in WorkerCard.__struct_fields__ if name != "clock_ahead")
_BEAT = f"""
INSERT INTO workers ({", ".join(_FIELDS)}) VALUES ({", ".join("?" * len(_FIELDS))})
ON CONFLICT (name) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _FIELDS)} RETURNING drains"""  # noqa: S608


_read_paces = msgspec.json.Decoder(dict[str, JobPace]).decode  # the last field of a card


def _schema_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


class SqliteWorkers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, card: WorkerCard) -> bool:
        await self.check_format()

        def write(connection: sqlite3.Connection) -> bool:
            *plain, paces = (getattr(card, name) for name in _FIELDS)
            return bool(connection.execute(_BEAT, (*plain, msgspec.json.encode(paces).decode())).fetchone()[0])

        return await self._database.write(write)

    async def check_format(self) -> None:
        self._database.check_schema(await self._database.read(_schema_of, quick=True))

    async def ask_to_drain(self, name: str) -> bool:
        sql = "UPDATE workers SET drains = 1 WHERE name = ?"
        return bool(await self._database.write(lambda c: c.execute(sql, (name,)).rowcount))

    async def sign_off(self, name: str) -> None:
        await self._database.write(lambda c: c.execute("DELETE FROM workers WHERE name = ?", (name,)).rowcount)

    async def workers(self) -> list[WorkerCard]:
        sql = f"SELECT {', '.join(_FIELDS)} FROM workers ORDER BY name"  # noqa: S608 - our own names
        rows = await self._database.read(lambda c: c.execute(sql).fetchall(), quick=True)
        return [WorkerCard(**dict(zip(_FIELDS, row[:-1], strict=False)), paces=_read_paces(row[-1])) for row in rows]

    async def forget(self, before: float) -> int:
        return await self._database.write(
            lambda c: c.execute("DELETE FROM workers WHERE seen_at < ?", (before,)).rowcount
        )
