"""Health of proxy exits, in the state file. Fulfils `ExitBook`; routing/proxies/health.py judges the reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...clock import Clock
from ...routing.proxies.contract import ExitHealth, ExitReport, Renewal, RestTerms
from ...routing.proxies.health import FORGOTTEN, REMEMBERED, RENEWED, after
from .connection import Database

_FIELDS = ExitHealth.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM exits WHERE pool = ? "  # noqa: S608 - our own names
_WRITE = f"INSERT OR REPLACE INTO exits (pool, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"  # noqa: S608
_USE = "INSERT OR REPLACE INTO exit_uses (fingerprint, name, forget_at) VALUES (?, ?, ?)"
_RENEW = "INSERT OR REPLACE INTO exit_sessions (pool, session, generation, changed_at) VALUES (?, ?, ?, ?)"
_RENEWED = "SELECT generation FROM exit_sessions WHERE pool = ? AND session = ?"
_RENEWALS = """
SELECT session, generation, changed_at FROM exit_sessions WHERE pool = ? AND changed_at >= ? ORDER BY session"""


class SqliteExitBook:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def report(self, pool: str, reports: Sequence[ExitReport], terms: RestTerms) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            connection.execute("DELETE FROM exits WHERE pool = ? AND changed_at < ?", (pool, now - FORGOTTEN))
            changed: dict[str, ExitHealth] = {}
            for report in reports:
                health = changed.get(report.exit) or _find(connection, pool, report.exit)
                changed[report.exit] = after(health, report, terms, now)
            connection.executemany(_WRITE, [(pool, *msgspec.structs.astuple(one)) for one in changed.values()])

        await self._database.write(write)

    async def health(self, pool: str, since: float = 0.0) -> list[ExitHealth]:
        sql = _SELECT + "AND changed_at >= ? ORDER BY name"
        rows = await self._database.read(lambda connection: connection.execute(sql, (pool, since)).fetchall())
        return [_health(row) for row in rows]

    async def remember(self, uses: Sequence[tuple[bytes, str]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            connection.execute("DELETE FROM exit_uses WHERE forget_at <= ?", (now,))
            connection.executemany(_USE, [(fingerprint, name, now + REMEMBERED) for fingerprint, name in uses])

        await self._database.write(write)

    async def used(self, fingerprint: bytes) -> tuple[str, ...]:
        sql = "SELECT name FROM exit_uses WHERE fingerprint = ? AND forget_at > ? ORDER BY name"
        values = (fingerprint, self._clock.now())
        rows = await self._database.read(lambda connection: connection.execute(sql, values).fetchall())
        return tuple(name for (name,) in rows)

    async def renew(self, pool: str, session: str, seen: int) -> int:
        def write(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            connection.execute("DELETE FROM exit_sessions WHERE changed_at < ?", (now - RENEWED,))
            found = connection.execute(_RENEWED, (pool, session)).fetchone()
            if found is not None and found[0] > seen:
                return int(found[0])
            connection.execute(_RENEW, (pool, session, seen + 1, now))
            return seen + 1

        return await self._database.write(write)

    async def renewals(self, pool: str, since: float = 0.0) -> list[Renewal]:
        since = max(since, self._clock.now() - RENEWED)
        rows = await self._database.read(lambda connection: connection.execute(_RENEWALS, (pool, since)).fetchall())
        return [
            Renewal(session=session, generation=generation, changed_at=changed_at)
            for session, generation, changed_at in rows
        ]

    async def reset(self, pool: str | None = None) -> int:
        def write(connection: sqlite3.Connection) -> int:
            if pool is None:
                return connection.execute("DELETE FROM exits").rowcount
            return connection.execute("DELETE FROM exits WHERE pool = ?", (pool,)).rowcount

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, pool: str, name: str) -> ExitHealth:
    row = connection.execute(_SELECT + "AND name = ?", (pool, name)).fetchone()
    return _health(row) if row is not None else ExitHealth(name=name)


def _health(row: Sequence[object]) -> ExitHealth:
    return ExitHealth(**dict(zip(_FIELDS, row, strict=True)))  # type: ignore[arg-type]  # the table is STRICT
