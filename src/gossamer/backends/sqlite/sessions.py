"""Sessions, in the state file. Fulfils `SessionBook`; fetch/sessions.py has the rules."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...clock import Clock
from ...fetch.sessions import MOST_SESSIONS, Change, changed
from ...model.session import KeptSession
from .connection import Database

SESSIONS = "SELECT session FROM sessions ORDER BY name"
_WRITE = "INSERT OR REPLACE INTO sessions (name, used_at, session) VALUES (?, ?, ?)"
_CROWD_OUT = """
DELETE FROM sessions WHERE name IN (SELECT name FROM sessions ORDER BY used_at DESC, name LIMIT -1 OFFSET ?)"""

read_session = msgspec.msgpack.Decoder(KeptSession).decode


class SqliteSessions:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def session(self, name: str) -> KeptSession | None:
        return await self._database.read(lambda connection: _find(connection, name))

    async def sessions(self) -> list[KeptSession]:
        rows = await self._database.read(lambda connection: connection.execute(SESSIONS).fetchall())
        return [read_session(row[0]) for row in rows]

    async def change(self, name: str, change: Change) -> KeptSession:
        def write(connection: sqlite3.Connection) -> KeptSession:
            known = _find(connection, name)
            before = known or KeptSession(name=name)
            new = changed(before, change, self._clock.now())
            if new is not before:
                write_session(connection, new)
                if known is None:
                    connection.execute(_CROWD_OUT, (MOST_SESSIONS,))
            return new

        return await self._database.write(write)

    async def forget(self, names: Sequence[str]) -> int:
        def write(connection: sqlite3.Connection) -> int:
            return sum(connection.execute("DELETE FROM sessions WHERE name = ?", (name,)).rowcount for name in names)

        return await self._database.write(write)

    async def forget_unused(self, since: float) -> int:
        sql = "DELETE FROM sessions WHERE used_at < ?"
        return await self._database.write(lambda connection: connection.execute(sql, (since,)).rowcount)


def _find(connection: sqlite3.Connection, name: str) -> KeptSession | None:
    row = connection.execute("SELECT session FROM sessions WHERE name = ?", (name,)).fetchone()
    return read_session(row[0]) if row is not None else None


def write_session(connection: sqlite3.Connection, session: KeptSession) -> None:
    connection.execute(_WRITE, (session.name, session.used_at, msgspec.msgpack.encode(session)))
