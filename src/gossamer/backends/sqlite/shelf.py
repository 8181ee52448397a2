"""The shelf in the state file: one table. Fulfils `Shelf`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

from ...clock import Clock
from ...model.schedule import Term
from ...model.shelf import ABSENT, Change, DropRow, Put, ShelfRow, Trim
from .connection import Database
from .schedules import demand_lead

STAMP = 8  # bytes
BATCH = 500  # rows in memory
_COLUMNS = ("key", "value", "stamp", "at", "until")
_ROW = "SELECT key, value, stamp, at, until FROM shelf WHERE kind = ?1 AND (until IS NULL OR until > ?2)"
_NEXT = f"{_ROW} AND key {{0}} ?3 ORDER BY key LIMIT ?4"
_CHOSEN = "at > ?3 AND at <= ?4 AND substr(key, 1, length(?5)) = ?5"
_TIMED = f"{_ROW} AND {_CHOSEN} ORDER BY at {{0}}, key {{0}} LIMIT ?6"
# Rows that are not chosen cost only a look at the index.
_GROUPED = f"""
SELECT key, value, stamp, at, until FROM shelf WHERE kind = ?1 AND key IN (SELECT key FROM (
    SELECT key, at, row_number() OVER (PARTITION BY substr(key, 1, ?7) ORDER BY at {{0}}, key {{0}}) AS place
    FROM shelf WHERE kind = ?1 AND (until IS NULL OR until > ?2) AND {_CHOSEN}
) WHERE place <= ?8 ORDER BY at {{0}}, key {{0}} LIMIT ?6) ORDER BY at {{0}}, key {{0}}"""  # noqa: S608 - our own words
_TRIM = """
DELETE FROM shelf WHERE kind = ?1 AND key IN
    (SELECT key FROM shelf WHERE kind = ?1 AND at IS NOT NULL ORDER BY at DESC, key DESC LIMIT -1 OFFSET ?2)"""


class SqliteShelf:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def get(self, kind: str, key: str) -> ShelfRow | None:
        found = await self._select(f"{_ROW} AND key = ?3", kind, self._clock.now(), key)
        return found[0] if found else None

    async def rows(self, kind: str) -> AsyncIterator[ShelfRow]:
        later, last = ">=", ""
        while batch := await self._select(_NEXT.format(later), kind, self._clock.now(), last, BATCH):
            for row in batch:
                yield row
            later, last = ">", batch[-1].key

    async def timed(
        self,
        kind: str,
        *,
        after: float | None = None,
        until: float | None = None,
        limit: int,
        newest: bool = False,
        prefix: str = "",
        each: int | None = None,
        group: int = 0,
    ) -> list[ShelfRow]:
        earliest = float("-inf") if after is None else after
        latest = float("inf") if until is None else until
        values = (kind, self._clock.now(), earliest, latest, prefix, limit)
        order = "DESC" if newest else "ASC"
        if each is None:
            return await self._select(_TIMED.format(order), *values)
        return await self._select(_GROUPED.format(order), *values, group, each)

    async def count(self, kind: str) -> int:
        sql = "SELECT count(*) FROM shelf WHERE kind = ?"
        return int((await self._database.read(lambda c: c.execute(sql, (kind,)).fetchone()))[0])

    async def time(self) -> float:
        return self._clock.now()

    async def commit(self, changes: Sequence[Change], term: Term | None = None) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now = self._clock.now()
            if term is not None:
                demand_lead(connection, term, now)
            for change in changes:
                if not isinstance(change, Trim) and not _is_as_expected(connection, change, now):
                    return False
            for kind in {change.kind for change in changes}:
                connection.execute("DELETE FROM shelf WHERE kind = ? AND until <= ?", (kind, now))
            for change in changes:
                _make(connection, change)
            return True

        return await self._database.write(write)

    async def _select(self, sql: str, *values: Any) -> list[ShelfRow]:  # Any: what SQLite stores
        rows = await self._database.read(lambda connection: connection.execute(sql, values).fetchall(), quick=True)
        return [
            ShelfRow(key=key, value=value, stamp=stamp, at=at, until=until) for key, value, stamp, at, until in rows
        ]


def _is_as_expected(connection: sqlite3.Connection, change: Put | DropRow, now: float) -> bool:
    if change.expects is None:
        return True
    row = connection.execute(f"{_ROW} AND key = ?3", (change.kind, now, change.key)).fetchone()
    return (row[2] if row is not None else ABSENT) == change.expects


def _make(connection: sqlite3.Connection, change: Change) -> None:
    match change:
        case Put():
            row = (change.kind, change.key, change.value, os.urandom(STAMP), change.at, change.until)
            connection.execute(
                "INSERT OR REPLACE INTO shelf (kind, key, value, stamp, at, until) VALUES (?, ?, ?, ?, ?, ?)", row
            )
        case DropRow():
            connection.execute("DELETE FROM shelf WHERE kind = ? AND key = ?", (change.kind, change.key))
        case Trim():
            connection.execute(_TRIM, (change.kind, change.keep))
