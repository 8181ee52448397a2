"""robots.txt as it was last read, in the state file: shared by all processes, kept across restarts."""

from __future__ import annotations

import sqlite3

from ...fetch.robots import RobotsEntry
from .connection import Database


class SqliteRobotsShelf:
    """Fulfils `RobotsShelf`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, origin: str) -> RobotsEntry | None:
        row = await self._database.read(
            lambda c: c.execute(
                "SELECT status, body, fetched_at, expires_at FROM robots WHERE origin = ?", (origin,)
            ).fetchone()
        )
        if row is None:
            return None
        status, body, fetched_at, expires_at = row
        return RobotsEntry(origin=origin, status=status, text=body, fetched_at=fetched_at, expires_at=expires_at)

    async def put(self, entry: RobotsEntry) -> None:
        values = (entry.origin, entry.status, entry.text, entry.fetched_at, entry.expires_at)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO robots (origin, status, body, fetched_at, expires_at) VALUES (?, ?, ?, ?, ?)",
                values,
            )

        await self._database.write(write)
