"""The pace per address, for addresses that many sites share, in the state file: one for all processes of the
machine."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

from ...clock import Clock
from ...frontier.politeness import after_start
from .connection import Database
from .lease_recovery import TOO_FAR


class SqliteAddressBook:
    """Fulfils `AddressBook`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        def write(connection: sqlite3.Connection) -> timedelta:
            now = self._clock.now()
            connection.execute("DELETE FROM address_paces WHERE next_at <= ?", (now,))
            row = connection.execute("SELECT next_at FROM address_paces WHERE address = ?", (address,)).fetchone()
            next_at = row[0] if row is not None else now
            if next_at > now + TOO_FAR.total_seconds():
                next_at = now  # no reservation reaches so far: the clock was ahead
            wait = next_at - now
            if wait <= longest.total_seconds():
                after = after_start(next_at, start=now, interval=interval.total_seconds())
                connection.execute(
                    "INSERT OR REPLACE INTO address_paces (address, next_at) VALUES (?, ?)", (address, after)
                )
            return timedelta(seconds=wait)

        return await self._database.write(write)
