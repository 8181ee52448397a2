"""Health of proxies, in the state file. Fulfils `ProxyBook`; routing/proxies/health.py judges the reports."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...clock import Clock
from ...model.route import ProxyOutcome
from ...routing.proxies.contract import ProxyAtSite, ProxyHealth, ProxyReport, Renewal, RestTerms
from ...routing.proxies.health import FORGOTTEN, KEPT_AT_SITE, REMEMBERED, RENEWED, after, after_at_site
from .connection import Database

_FIELDS = ProxyHealth.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM proxies WHERE pool = ? "  # noqa: S608 - our own names
_WRITE = f"INSERT OR REPLACE INTO proxies (pool, {', '.join(_FIELDS)}) VALUES (?{', ?' * len(_FIELDS)})"  # noqa: S608
_AT_SITE = ProxyAtSite.__struct_fields__
_SELECT_AT_SITE = f"SELECT {', '.join(_AT_SITE)} FROM proxy_sites WHERE pool = ? "  # noqa: S608
_WRITE_AT_SITE = f"INSERT OR REPLACE INTO proxy_sites (pool, {', '.join(_AT_SITE)}) VALUES (?{', ?' * len(_AT_SITE)})"  # noqa: S608
_FORGET_AT_SITE = "DELETE FROM proxy_sites WHERE pool = ? AND changed_at < ?"
_USE = "INSERT OR REPLACE INTO proxy_uses (fingerprint, name, forget_at) VALUES (?, ?, ?)"
_RENEW = "INSERT OR REPLACE INTO proxy_sessions (pool, session, generation, changed_at) VALUES (?, ?, ?, ?)"
_RENEWED = "SELECT generation FROM proxy_sessions WHERE pool = ? AND session = ?"
_RENEWALS = """
SELECT session, generation, changed_at FROM proxy_sessions WHERE pool = ? AND changed_at >= ? ORDER BY session"""


class SqliteProxyBook:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def report(self, pool: str, reports: Sequence[ProxyReport], terms: RestTerms) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            connection.execute("DELETE FROM proxies WHERE pool = ? AND changed_at < ?", (pool, now - FORGOTTEN))
            connection.execute(_FORGET_AT_SITE, (pool, now - max(KEPT_AT_SITE, terms.max_cooldown)))
            changed: dict[str, ProxyHealth] = {}
            at_sites: dict[tuple[str, str], ProxyAtSite] = {}
            for report in reports:
                health = changed.get(report.proxy) or _find(connection, pool, report.proxy)
                changed[report.proxy] = after(health, report, terms, now)
                if report.site:
                    key = (report.proxy, report.site)
                    known = at_sites.get(key) or _find_at_site(connection, pool, report)
                    if known is not None:
                        at_sites[key] = after_at_site(known, report, terms, now)
            connection.executemany(_WRITE, [(pool, *msgspec.structs.astuple(one)) for one in changed.values()])
            connection.executemany(_WRITE_AT_SITE, [(pool, *msgspec.structs.astuple(o)) for o in at_sites.values()])

        await self._database.write(write)

    async def health(self, pool: str, since: float = 0.0) -> list[ProxyHealth]:
        sql = _SELECT + "AND changed_at >= ? ORDER BY name"
        rows = await self._database.read(lambda connection: connection.execute(sql, (pool, since)).fetchall())
        return [_health(row) for row in rows]

    async def at_sites(self, pool: str, since: float = 0.0) -> list[ProxyAtSite]:
        sql = _SELECT_AT_SITE + "AND changed_at >= ? ORDER BY site, name"
        rows = await self._database.read(lambda connection: connection.execute(sql, (pool, since)).fetchall())
        return [_at_site(row) for row in rows]

    async def remember(self, uses: Sequence[tuple[bytes, str]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            connection.execute("DELETE FROM proxy_uses WHERE forget_at <= ?", (now,))
            connection.executemany(_USE, [(fingerprint, name, now + REMEMBERED) for fingerprint, name in uses])

        await self._database.write(write)

    async def used(self, fingerprint: bytes) -> tuple[str, ...]:
        sql = "SELECT name FROM proxy_uses WHERE fingerprint = ? AND forget_at > ? ORDER BY name"
        values = (fingerprint, self._clock.now())
        rows = await self._database.read(lambda connection: connection.execute(sql, values).fetchall())
        return tuple(name for (name,) in rows)

    async def renew(self, pool: str, session: str, seen: int) -> int:
        def write(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            connection.execute("DELETE FROM proxy_sessions WHERE changed_at < ?", (now - RENEWED,))
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
                connection.execute("DELETE FROM proxy_sites")
                return connection.execute("DELETE FROM proxies").rowcount
            connection.execute("DELETE FROM proxy_sites WHERE pool = ?", (pool,))
            return connection.execute("DELETE FROM proxies WHERE pool = ?", (pool,)).rowcount

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, pool: str, name: str) -> ProxyHealth:
    row = connection.execute(_SELECT + "AND name = ?", (pool, name)).fetchone()
    return _health(row) if row is not None else ProxyHealth(name=name)


def _health(row: Sequence[object]) -> ProxyHealth:
    return ProxyHealth(**dict(zip(_FIELDS, row, strict=True)))  # type: ignore[arg-type]  # the table is STRICT


def _find_at_site(connection: sqlite3.Connection, pool: str, report: ProxyReport) -> ProxyAtSite | None:
    """How the proxy fares at the site; None for a success at a site that has not refused it."""
    values = (pool, report.site, report.proxy)
    row = connection.execute(_SELECT_AT_SITE + "AND site = ? AND name = ?", values).fetchone()
    if row is not None:
        return _at_site(row)
    return None if report.outcome is ProxyOutcome.OK else ProxyAtSite(name=report.proxy, site=report.site)


def _at_site(row: Sequence[object]) -> ProxyAtSite:
    return ProxyAtSite(**dict(zip(_AT_SITE, row, strict=True)))  # type: ignore[arg-type]  # the table is STRICT
