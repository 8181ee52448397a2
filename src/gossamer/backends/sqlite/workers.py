"""Heartbeats of workers, in the state file. Fulfils `WorkerBook`."""

from __future__ import annotations

import sqlite3

import msgspec

from ...frontier.contract import WorkerCard
from .connection import Database

_FIELDS = WorkerCard.__struct_fields__


class SqliteWorkers:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, card: WorkerCard) -> None:
        sql = f"INSERT OR REPLACE INTO workers ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"  # noqa: S608

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(sql, msgspec.structs.astuple(card))

        await self._database.write(write)

    async def sign_off(self, name: str) -> None:
        await self._database.write(lambda c: c.execute("DELETE FROM workers WHERE name = ?", (name,)).rowcount)

    async def workers(self) -> list[WorkerCard]:
        sql = f"SELECT {', '.join(_FIELDS)} FROM workers ORDER BY name"  # noqa: S608 - our own names
        rows = await self._database.read(lambda c: c.execute(sql).fetchall())
        return [WorkerCard(**dict(zip(_FIELDS, row, strict=True))) for row in rows]

    async def forget(self, before: float) -> int:
        return await self._database.write(
            lambda c: c.execute("DELETE FROM workers WHERE seen_at < ?", (before,)).rowcount
        )
