"""Who reads the source of a job, on SQLite. Fulfils `SeedBook`. Time is this machine's clock."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from datetime import timedelta

from ...clock import Clock
from ...frontier.contract import SeedFindings
from .connection import Database


class SqliteSeedBook:
    def __init__(self, database: Database, clock: Clock, *, is_gone: Callable[[str], bool]) -> None:
        self._database = database
        self._clock = clock
        self._is_gone = is_gone

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now, length = self._clock.now(), duration.total_seconds()
            found = connection.execute("SELECT sower, until FROM sowings WHERE job = ?", (job,)).fetchone()
            # An end that is further away than it can be was written while the clock was ahead.
            taken = found is not None and found[0] not in ("", worker) and now < found[1] <= now + length
            if taken and not self._is_gone(found[0]):
                return False
            connection.execute(
                "INSERT INTO sowings (job, sower, until) VALUES (?1, ?2, ?3) "
                "ON CONFLICT (job) DO UPDATE SET sower = ?2, until = ?3",
                (job, worker, now + length),
            )
            return True

        return await self._database.write(write)

    async def release(self, job: str, worker: str) -> None:
        await self._database.write(
            lambda c: (
                c.execute(
                    "UPDATE sowings SET sower = '', until = 0 WHERE job = ? AND sower = ?", (job, worker)
                ).rowcount
            )
        )

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        rows = [(job, site) for site in sites]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR IGNORE INTO sown_sites (job, site) VALUES (?, ?)", rows)
            if trouble:
                connection.execute(
                    "INSERT INTO sowings (job, trouble) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE "
                    "SET trouble = CASE WHEN trouble = '' THEN ?2 ELSE trouble END",
                    (job, trouble),
                )

        await self._database.write(write)

    async def findings(self, job: str) -> SeedFindings:
        def read(connection: sqlite3.Connection) -> SeedFindings:
            sites = connection.execute("SELECT site FROM sown_sites WHERE job = ?", (job,)).fetchall()
            row = connection.execute("SELECT trouble FROM sowings WHERE job = ?", (job,)).fetchone()
            return SeedFindings(frozenset(site for (site,) in sites), "" if row is None else row[0])

        return await self._database.read(read)
