"""Health of proxy exits, in the state file. Fulfils `ExitBook`; routing/proxies/health.py judges the reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...clock import Clock
from ...model.route import ExitOutcome
from ...routing.proxies.contract import ExitAtSite, ExitHealth, ExitReport, Renewal, RestTerms
from ...routing.proxies.health import FORGOTTEN, KEPT_AT_SITE, REMEMBERED, RENEWED, after, after_at_site
from .connection import Database

_FIELDS = ExitHealth.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM exits WHERE pool = ? "  # noqa: S608 - our own names
_WRITE = f"INSERT OR REPLACE INTO exits (pool, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"  # noqa: S608
_AT_SITE = ExitAtSite.__struct_fields__
_SELECT_AT_SITE = f"SELECT {', '.join(_AT_SITE)} FROM exit_sites WHERE pool = ? "  # noqa: S608
_WRITE_AT_SITE = f"INSERT OR REPLACE INTO exit_sites (pool, {', '.join(_AT_SITE)}) VALUES (?{', ?' * len(_AT_SITE)})"  # noqa: S608
_FORGET_AT_SITE = "DELETE FROM exit_sites WHERE pool = ? AND changed_at < ?"
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
            connection.execute(_FORGET_AT_SITE, (pool, now - max(KEPT_AT_SITE, terms.max_cooldown)))
            changed: dict[str, ExitHealth] = {}
            at_sites: dict[tuple[str, str], ExitAtSite] = {}
            for report in reports:
                health = changed.get(report.exit) or _find(connection, pool, report.exit)
                changed[report.exit] = after(health, report, terms, now)
                if report.site:
                    key = (report.exit, report.site)
                    known = at_sites.get(key) or _find_at_site(connection, pool, report)
                    if known is not None:
                        at_sites[key] = after_at_site(known, report, terms, now)
            connection.executemany(_WRITE, [(pool, *msgspec.structs.astuple(one)) for one in changed.values()])
            connection.executemany(_WRITE_AT_SITE, [(pool, *msgspec.structs.astuple(o)) for o in at_sites.values()])

        await self._database.write(write)

    async def health(self, pool: str, since: float = 0.0) -> list[ExitHealth]:
        sql = _SELECT + "AND changed_at >= ? ORDER BY name"
        rows = await self._database.read(lambda connection: connection.execute(sql, (pool, since)).fetchall())
        return [_health(row) for row in rows]

    async def at_sites(self, pool: str, since: float = 0.0) -> list[ExitAtSite]:
        sql = _SELECT_AT_SITE + "AND changed_at >= ? ORDER BY site, name"
        rows = await self._database.read(lambda connection: connection.execute(sql, (pool, since)).fetchall())
        return [_at_site(row) for row in rows]

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
                connection.execute("DELETE FROM exit_sites")
                return connection.execute("DELETE FROM exits").rowcount
            connection.execute("DELETE FROM exit_sites WHERE pool = ?", (pool,))
            return connection.execute("DELETE FROM exits WHERE pool = ?", (pool,)).rowcount

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, pool: str, name: str) -> ExitHealth:
    row = connection.execute(_SELECT + "AND name = ?", (pool, name)).fetchone()
    return _health(row) if row is not None else ExitHealth(name=name)


def _health(row: Sequence[object]) -> ExitHealth:
    return ExitHealth(**dict(zip(_FIELDS, row, strict=True)))  # type: ignore[arg-type]  # the table is STRICT


def _find_at_site(connection: sqlite3.Connection, pool: str, report: ExitReport) -> ExitAtSite | None:
    """How the exit fares at the site; None for a success at a site that has not refused it."""
    values = (pool, report.site, report.exit)
    row = connection.execute(_SELECT_AT_SITE + "AND site = ? AND name = ?", values).fetchone()
    if row is not None:
        return _at_site(row)
    return None if report.outcome is ExitOutcome.OK else ExitAtSite(name=report.exit, site=report.site)


def _at_site(row: Sequence[object]) -> ExitAtSite:
    return ExitAtSite(**dict(zip(_AT_SITE, row, strict=True)))  # type: ignore[arg-type]  # the table is STRICT
