"""Learned routes and budgets, in the state file. Fulfils `RouteBook` and `BudgetBook`.

Each method is one write (see connection.py): processes that share the file take turns. As with the whole state, a power
cut may undo the last moments, and with them what was spent then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...routing.contract import MOST_PATTERNS, Bound, LearnedRoute
from ..budget_units import credits_in, days_before, units_allowed, units_to_give, units_to_take
from .connection import Database

_FIELDS = LearnedRoute.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM learned_routes "  # noqa: S608 - our own names
_WRITE = f"INSERT OR REPLACE INTO learned_routes ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"  # noqa: S608
_FORGET_FIRST = """
DELETE FROM learned_routes WHERE site = ? AND pattern IN (
    SELECT pattern FROM learned_routes WHERE site = ? ORDER BY since DESC, pattern LIMIT -1 OFFSET ?)"""
_SPENT = "SELECT spent FROM budgets WHERE name = ?"
_TAKE = """
INSERT INTO budgets (name, spent) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET spent = spent + excluded.spent"""


class SqliteRouteBook:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def learned(self, site: str) -> list[LearnedRoute]:
        rows = await self._database.read(
            lambda connection: connection.execute(_SELECT + "WHERE site = ? ORDER BY pattern", (site,)).fetchall()
        )
        return [_learned(row) for row in rows]

    async def learn(self, learned: LearnedRoute, *, instead_of: LearnedRoute | None) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            if _find(connection, learned.site, learned.pattern) != instead_of:
                return False
            connection.execute(_WRITE, msgspec.structs.astuple(learned))
            connection.execute(_FORGET_FIRST, (learned.site, learned.site, MOST_PATTERNS))
            return True

        return await self._database.write(write)

    async def learned_routes(self, limit: int = 1000) -> list[LearnedRoute]:
        sql = _SELECT + "ORDER BY since DESC, site, pattern LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, (limit,)).fetchall())
        return [_learned(row) for row in rows]

    async def forget(self, site: str | None = None) -> int:
        def write(connection: sqlite3.Connection) -> int:
            if site is not None:
                return int(connection.execute("DELETE FROM learned_routes WHERE site = ?", (site,)).rowcount > 0)
            (sites,) = connection.execute("SELECT count(DISTINCT site) FROM learned_routes").fetchone()
            connection.execute("DELETE FROM learned_routes")
            return int(sites)

        return await self._database.write(write)


class SqliteBudgetBook:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, credits: float, bounds: Sequence[Bound]) -> str | None:
        units = units_to_take(credits)
        allowed = [(bound.budget, units_allowed(bound.limit)) for bound in bounds]
        if not units or not allowed:
            return None

        def write(connection: sqlite3.Connection) -> str | None:
            for name, limit in allowed:
                found = connection.execute(_SPENT, (name,)).fetchone()
                if (found[0] if found else 0) + units > limit:
                    return name
            connection.executemany(_TAKE, [(name, units) for name in dict(allowed)])
            return None

        return await self._database.write(write)

    async def give_back(self, credits: float, budgets: Sequence[str]) -> None:
        units = units_to_give(credits)
        if not units or not budgets:
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE budgets SET spent = max(0, spent - ?) WHERE name = ?", [(units, name) for name in set(budgets)]
            )

        await self._database.write(write)

    async def spent(self) -> dict[str, float]:
        rows = await self._database.read(
            lambda connection: connection.execute("SELECT name, spent FROM budgets ORDER BY name").fetchall()
        )
        return {name: credits_in(units) for name, units in rows}

    async def forget_budgets(self, before: str) -> int:
        def write(connection: sqlite3.Connection) -> int:
            names = [name for (name,) in connection.execute("SELECT name FROM budgets")]
            old = days_before(names, before)
            connection.executemany("DELETE FROM budgets WHERE name = ?", [(name,) for name in old])
            return len(old)

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, site: str, pattern: str) -> LearnedRoute | None:
    row = connection.execute(_SELECT + "WHERE site = ? AND pattern = ?", (site, pattern)).fetchone()
    return _learned(row) if row is not None else None


def _learned(row: tuple[object, ...]) -> LearnedRoute:
    return msgspec.convert(dict(zip(_FIELDS, row, strict=True)), LearnedRoute)
