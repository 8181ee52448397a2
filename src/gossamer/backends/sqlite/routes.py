"""What was learned about sites, and what was spent, in the state file. Fulfils `RouteBook` and `BudgetBook`.

A verb that changes something is one write (see connection.py): processes that share the file take turns. As all of the
state, the last moments before a power cut may be undone, and with them what was spent then.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...routing.contract import Bound, Standing
from ..tokens import days_before, tokens_in, units_allowed, units_to_give, units_to_take
from .connection import Database

_FIELDS = Standing.__struct_fields__
_SELECT = f"SELECT {', '.join(_FIELDS)} FROM standings "  # noqa: S608 - our own names
_WRITE = f"INSERT OR REPLACE INTO standings ({', '.join(_FIELDS)}) VALUES ({', '.join('?' * len(_FIELDS))})"  # noqa: S608
_SPENT = "SELECT spent FROM purses WHERE name = ?"
_TAKE = """
INSERT INTO purses (name, spent) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET spent = spent + excluded.spent"""


class SqliteRouteBook:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def standing(self, site: str) -> Standing | None:
        return await self._database.read(lambda connection: _find(connection, site))

    async def learn(self, standing: Standing, *, instead_of: Standing | None) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            if _find(connection, standing.site) != instead_of:
                return False
            connection.execute(_WRITE, msgspec.structs.astuple(standing))
            return True

        return await self._database.write(write)

    async def standings(self, limit: int = 1000) -> list[Standing]:
        sql = _SELECT + "ORDER BY since DESC, site LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, (limit,)).fetchall())
        return [_standing(row) for row in rows]

    async def forget(self, site: str | None = None) -> int:
        def write(connection: sqlite3.Connection) -> int:
            if site is None:
                return connection.execute("DELETE FROM standings").rowcount
            return connection.execute("DELETE FROM standings WHERE site = ?", (site,)).rowcount

        return await self._database.write(write)


class SqliteBudgetBook:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def take(self, tokens: float, bounds: Sequence[Bound]) -> str | None:
        units = units_to_take(tokens)
        allowed = [(bound.purse, units_allowed(bound.limit)) for bound in bounds]
        if not units or not allowed:
            return None

        def write(connection: sqlite3.Connection) -> str | None:
            for purse, limit in allowed:
                found = connection.execute(_SPENT, (purse,)).fetchone()
                if (found[0] if found else 0) + units > limit:
                    return purse
            connection.executemany(_TAKE, [(purse, units) for purse in dict(allowed)])
            return None

        return await self._database.write(write)

    async def give_back(self, tokens: float, purses: Sequence[str]) -> None:
        units = units_to_give(tokens)
        if not units or not purses:
            return

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(
                "UPDATE purses SET spent = max(0, spent - ?) WHERE name = ?", [(units, name) for name in set(purses)]
            )

        await self._database.write(write)

    async def spent(self) -> dict[str, float]:
        rows = await self._database.read(
            lambda connection: connection.execute("SELECT name, spent FROM purses ORDER BY name").fetchall()
        )
        return {name: tokens_in(units) for name, units in rows}

    async def forget_budgets(self, before: str) -> int:
        def write(connection: sqlite3.Connection) -> int:
            names = [name for (name,) in connection.execute("SELECT name FROM purses")]
            old = days_before(names, before)
            connection.executemany("DELETE FROM purses WHERE name = ?", [(name,) for name in old])
            return len(old)

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, site: str) -> Standing | None:
    row = connection.execute(_SELECT + "WHERE site = ?", (site,)).fetchone()
    return _standing(row) if row is not None else None


def _standing(row: tuple[object, ...]) -> Standing:
    return msgspec.convert(dict(zip(_FIELDS, row, strict=True)), Standing)
