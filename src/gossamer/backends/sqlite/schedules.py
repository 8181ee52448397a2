"""Schedules on SQLite, for people and for the leading scheduler. Fulfils `ScheduleBook` and `TickBook`.

A tick and the job it begins are written in one transaction. Time is this machine's clock, which all processes on the
file share.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...errors import LeaseLost
from ...model.job import JobTerms
from ...model.schedule import Schedule, Settled, Standing, Term
from .connection import Database
from .jobs import begin_job

_read = msgspec.json.Decoder(Standing).decode


class SqliteSchedules:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def schedules(self) -> list[Standing]:
        rows = await self._database.read(lambda c: c.execute("SELECT standing FROM schedules ORDER BY name").fetchall())
        return [_read(text) for (text,) in rows]

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            known = _find(connection, schedule.name)
            if known is None:
                _write(connection, Standing(schedule=schedule, origin=origin, created_at=self._clock.now()))
            elif not replace:
                return False
            elif (known.schedule, known.origin) != (schedule, origin):
                _write(connection, known.rewritten(schedule, origin))
            return True

        return await self._database.write(write)

    async def remove(self, name: str) -> bool:
        removed = await self._database.write(
            lambda c: c.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount
        )
        return bool(removed)

    async def pause(self, name: str, paused: bool) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            known = _find(connection, name)
            if known is not None and known.paused != paused:
                _write(connection, msgspec.structs.replace(known, paused=paused))
            return known is not None

        return await self._database.write(write)

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        def write(connection: sqlite3.Connection) -> Term | None:
            now = self._clock.now()
            found = connection.execute(
                "UPDATE scheduling SET leader = :candidate, until = :until, "
                "token = token + (leader <> :candidate) WHERE leader = :candidate OR until <= :now RETURNING token",
                {"candidate": candidate, "until": now + duration.total_seconds(), "now": now},
            ).fetchone()
            return Term(candidate, found[0], now + duration.total_seconds()) if found is not None else None

        return await self._database.write(write)

    async def resign(self, term: Term) -> None:
        await self._database.write(
            lambda c: (
                c.execute(
                    "UPDATE scheduling SET leader = '', until = 0 WHERE leader = ? AND token = ?",
                    (term.leader, term.token),
                ).rowcount
            )
        )

    async def settle(
        self, term: Term, before: Standing, after: Standing, opening: tuple[str, JobTerms] | None = None
    ) -> Settled | None:
        def write(connection: sqlite3.Connection) -> Settled | None:
            now = self._clock.now()
            leads = connection.execute(
                "SELECT 1 FROM scheduling WHERE leader = ? AND token = ? AND until > ?", (term.leader, term.token, now)
            ).fetchone()
            if leads is None:
                raise LeaseLost(f"{term.leader} does not lead the schedulers any more; nothing was changed.")
            stored = connection.execute(
                "SELECT version FROM schedules WHERE name = ?", (before.schedule.name,)
            ).fetchone()
            if stored is None or stored[0] != before.version:
                return None
            if opening is None:
                return Settled(_write(connection, after))
            job = begin_job(connection, *opening, now)
            return Settled(_write(connection, msgspec.structs.replace(after, last_job=job.id)), job)

        return await self._database.write(write)


def _find(connection: sqlite3.Connection, name: str) -> Standing | None:
    row = connection.execute("SELECT standing FROM schedules WHERE name = ?", (name,)).fetchone()
    return _read(row[0]) if row is not None else None


def _write(connection: sqlite3.Connection, standing: Standing) -> Standing:
    (version,) = connection.execute("UPDATE scheduling SET changes = changes + 1 RETURNING changes").fetchone()
    written = msgspec.structs.replace(standing, version=version)
    connection.execute(
        "INSERT OR REPLACE INTO schedules (name, version, standing) VALUES (?, ?, ?)",
        (written.schedule.name, version, msgspec.json.encode(written).decode()),
    )
    return written
