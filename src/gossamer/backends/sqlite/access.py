"""Access over HTTP, in the state file. Fulfils `KeyBook`, `AnswerBook` and `AuditLog`."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from ...access.contract import LINES_KEPT, ApiKey, AuditLine, StoredAnswer
from ...clock import Clock
from .connection import Database

_KEY_FIELDS = ApiKey.__struct_fields__
KEYS = f"SELECT {', '.join(_KEY_FIELDS)} FROM api_keys"  # noqa: S608 - our own names
_LINE_FIELDS = AuditLine.__struct_fields__
_LINES = f"SELECT {', '.join(_LINE_FIELDS)} FROM audit"  # noqa: S608


class SqliteKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> bool:
        return await self._database.write(lambda connection: add_key(connection, key))

    async def key(self, id: str) -> ApiKey | None:
        row = await self._database.read(lambda c: c.execute(f"{KEYS} WHERE id = ?", (id,)).fetchone(), quick=True)
        return key_of(row) if row else None

    async def keys(self) -> list[ApiKey]:
        rows = await self._database.read(lambda c: c.execute(f"{KEYS} ORDER BY created_at, id").fetchall())
        return [key_of(row) for row in rows]

    async def revoke(self, id: str, at: float) -> bool:
        sql = "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL"
        return bool(await self._database.write(lambda c: c.execute(sql, (at, id)).rowcount))

    async def note_use(self, id: str, at: float) -> None:
        sql = "UPDATE api_keys SET used_at = ? WHERE id = ?"
        await self._database.write(lambda c: c.execute(sql, (at, id)).rowcount)


def add_key(connection: sqlite3.Connection, key: ApiKey) -> bool:
    """False if the id is taken."""
    sql = f"INSERT OR IGNORE INTO api_keys ({', '.join(_KEY_FIELDS)}) VALUES ({', '.join('?' * len(_KEY_FIELDS))})"  # noqa: S608
    values = msgspec.structs.asdict(key) | {"scopes": ",".join(key.scopes)}
    return bool(connection.execute(sql, tuple(values.values())).rowcount)


def key_of(row: tuple[Any, ...]) -> ApiKey:  # Any: the types of a row are those of the schema, which is STRICT
    fields = dict(zip(_KEY_FIELDS, row, strict=True))
    return ApiKey(**{**fields, "scopes": tuple(fields["scopes"].split(","))})


class SqliteAnswers:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, name: str, digest: str, seconds: float) -> StoredAnswer | None:
        def write(connection: sqlite3.Connection) -> StoredAnswer | None:
            now = self._clock.now()
            connection.execute("DELETE FROM answers WHERE until <= ?", (now,))
            known = connection.execute("SELECT digest, status, body FROM answers WHERE name = ?", (name,)).fetchone()
            if known is not None:
                return StoredAnswer(digest=known[0], status=known[1], body=known[2])
            connection.execute("INSERT INTO answers VALUES (?, ?, 0, x'', ?)", (name, digest, now + seconds))
            return None

        return await self._database.write(write)

    async def answer(self, name: str) -> StoredAnswer | None:
        sql, values = "SELECT digest, status, body FROM answers WHERE name = ? AND until > ?", (name, self._clock.now())
        known = await self._database.read(lambda c: c.execute(sql, values).fetchone(), quick=True)
        return StoredAnswer(digest=known[0], status=known[1], body=known[2]) if known else None

    async def keep(self, name: str, answer: StoredAnswer, seconds: float) -> None:
        row = (name, answer.digest, answer.status, answer.body, self._clock.now() + seconds)
        await self._database.write(
            lambda c: c.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?)", row).rowcount
        )

    async def release(self, name: str) -> None:
        await self._database.write(lambda c: c.execute("DELETE FROM answers WHERE name = ?", (name,)).rowcount)


class SqliteAudit:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, line: AuditLine) -> None:
        sql = f"INSERT INTO audit ({', '.join(_LINE_FIELDS)}) VALUES ({', '.join('?' * len(_LINE_FIELDS))})"  # noqa: S608

        def write(connection: sqlite3.Connection) -> None:
            number = connection.execute(sql, msgspec.structs.astuple(line)).lastrowid or 0
            connection.execute("DELETE FROM audit WHERE number <= ?", (number - LINES_KEPT,))

        await self._database.write(write)

    async def lines(self, limit: int, *, key: str | None = None) -> list[AuditLine]:
        sql = f"{_LINES} WHERE ?1 IS NULL OR key = ?1 ORDER BY number DESC LIMIT ?2"
        rows = await self._database.read(lambda c: c.execute(sql, (key, limit)).fetchall())
        return [AuditLine(**dict(zip(_LINE_FIELDS, row, strict=True))) for row in rows]
