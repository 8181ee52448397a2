"""Operators' orders for sites, in the state file. Fulfils `SiteOrders`; leasing.py obeys them."""

from __future__ import annotations

import sqlite3

import msgspec

from ...clock import Clock
from ...frontier.contract import SiteOrder
from .connection import Database

_FIELDS = SiteOrder.__struct_fields__
ORDERS = f"SELECT {', '.join(_FIELDS)} FROM site_orders ORDER BY site"  # noqa: S608 - our own names
_GIVE = f"INSERT OR REPLACE INTO site_orders ({', '.join(_FIELDS)}) VALUES (?, ?, ?, ?, ?)"  # noqa: S608

# The next lease looks at them again, and they sleep on if the site's own pace requires it.
_WAKE = """
UPDATE queues SET wake_at = min(wake_at, ?)
WHERE state = 'sleeping' AND site = (SELECT number FROM sites WHERE name = ?)"""
_UNLEARN = "UPDATE sites SET learned_interval = NULL, refused_at = 0 WHERE name = ? AND learned_interval IS NOT NULL"
_OVER = "DELETE FROM site_orders WHERE interval IS NULL AND coalesce(rest_until, 0) <= ?"


class SqliteSiteOrders:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def give(self, order: SiteOrder) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_OVER, (self._clock.now(),))
            enter_order(connection, order)
            connection.execute(_WAKE, (self._clock.now(), order.site))

        await self._database.write(write)

    async def withdraw(self, site: str) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            connection.execute(_WAKE, (self._clock.now(), site))
            learned = connection.execute(_UNLEARN, (site,)).rowcount
            return bool(connection.execute("DELETE FROM site_orders WHERE site = ?", (site,)).rowcount + learned)

        return await self._database.write(write)

    async def orders(self) -> list[SiteOrder]:
        rows = await self._database.read(lambda c: c.execute(ORDERS).fetchall())
        return [SiteOrder(**dict(zip(_FIELDS, row, strict=True))) for row in rows]


def enter_order(connection: sqlite3.Connection, order: SiteOrder) -> None:
    connection.execute(_GIVE, msgspec.structs.astuple(order))
