"""The outbox of callbacks, in the state file. Fulfils `CallbackBook`."""

from __future__ import annotations

import sqlite3

import msgspec

from ...access.contract import CALLBACKS_KEPT, RECEIVER, Callback, CallbackSecret, CallbackState
from .connection import Database

Secrets = tuple[CallbackSecret, ...]
_TOO_OLD = (
    "DELETE FROM callbacks WHERE ended_at <= "
    "(SELECT ended_at FROM callbacks WHERE ended_at IS NOT NULL ORDER BY ended_at DESC LIMIT 1 OFFSET ?)"
)


# Rows that are not chosen cost only a look at the index.
_IN_TURN = """
WHERE id IN (SELECT id FROM (
    SELECT id, next_at, row_number() OVER (PARTITION BY substr(id, 1, ?) ORDER BY next_at, id) AS place
    FROM callbacks WHERE next_at > 0 AND next_at <= ?
) WHERE place <= ? ORDER BY next_at, id LIMIT ?) ORDER BY next_at, id"""


class SqliteCallbacks:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def enter(self, callback: Callback) -> bool:
        return await self._database.write(lambda connection: enter_callback(connection, callback))

    async def keep(self, callback: Callback) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO callbacks VALUES (?, ?, ?, ?)", _row(callback))
            if not callback.state.open:
                connection.execute(_TOO_OLD, (CALLBACKS_KEPT,))

        await self._database.write(write)

    async def callback(self, id: str) -> Callback | None:
        found = await self._some("WHERE id = ?", id)
        return found[0] if found else None

    async def waiting(self, limit: int) -> list[Callback]:
        return await self._some("WHERE next_at = 0 LIMIT ?", limit)

    async def due(self, until: float, limit: int, each: int | None = None) -> list[Callback]:
        if each is not None:
            return await self._some(_IN_TURN, RECEIVER, until, each, limit)
        return await self._some("WHERE next_at > 0 AND next_at <= ? ORDER BY next_at, id LIMIT ?", until, limit)

    async def ended(self, limit: int) -> list[Callback]:
        return await self._some("WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT ?", limit)

    async def pending(self) -> int:
        sql = "SELECT count(*) FROM callbacks WHERE next_at IS NOT NULL"
        return int((await self._database.read(lambda c: c.execute(sql).fetchone()))[0])

    async def _some(self, condition: str, *values: str | float) -> list[Callback]:
        sql = f"SELECT callback FROM callbacks {condition}"  # noqa: S608 - our own words
        rows = await self._database.read(lambda c: c.execute(sql, values).fetchall())
        return [read_callback(text) for (text,) in rows]

    async def secrets(self, owner: str) -> Secrets:
        sql = "SELECT secrets FROM callback_secrets WHERE owner = ?"
        row = await self._database.read(lambda c: c.execute(sql, (owner,)).fetchone())
        return read_secrets(row[0]) if row else ()

    async def enter_secrets(self, owner: str, secrets: Secrets) -> bool:
        return await self._database.write(lambda connection: enter_secrets(connection, owner, secrets))

    async def keep_secrets(self, owner: str, secrets: Secrets) -> None:
        row = (owner, _text(secrets))
        sql = "INSERT OR REPLACE INTO callback_secrets VALUES (?, ?)"
        await self._database.write(lambda connection: connection.execute(sql, row).rowcount)


def enter_callback(connection: sqlite3.Connection, callback: Callback) -> bool:
    """False if there is one with that id."""
    return bool(connection.execute("INSERT OR IGNORE INTO callbacks VALUES (?, ?, ?, ?)", _row(callback)).rowcount)


def enter_secrets(connection: sqlite3.Connection, owner: str, secrets: Secrets) -> bool:
    """False if the owner has some."""
    row = (owner, _text(secrets))
    return bool(connection.execute("INSERT OR IGNORE INTO callback_secrets VALUES (?, ?)", row).rowcount)


def read_callback(text: str) -> Callback:
    return msgspec.json.decode(text, type=Callback)


def read_secrets(text: str) -> Secrets:
    return msgspec.json.decode(text, type=Secrets)


def _row(callback: Callback) -> tuple[str, float | None, float | None, str]:
    waits = callback.state is CallbackState.WAITING
    next_at = (0.0 if waits else callback.next_at) if callback.state.open else None
    return callback.id, next_at, callback.ended_at, _text(callback)


def _text(value: Callback | Secrets) -> str:
    return msgspec.json.encode(value).decode()
