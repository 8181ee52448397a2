"""Schedules on SQLite, for people and for the leading scheduler. Fulfils `ScheduleBook` and `TickBook`.

A tick and the job that it starts are written in one transaction. Time is this machine's clock, which all processes on
the file share.
"""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...errors import LeaseLost
from ...model.job import JobTerms
from ...model.schedule import Schedule, ScheduleProgress, Settled, Term, UnreadableSchedule
from ..schedule_rows import decode_schedule, is_free
from .connection import Database
from .jobs import SqliteJobs, begin_job


class SqliteSchedules:
    def __init__(self, database: Database, clock: Clock, jobs: SqliteJobs) -> None:
        self._database = database
        self._clock = clock
        self._jobs = jobs

    async def schedules(self) -> list[ScheduleProgress]:
        return [one for one in await self.everything() if isinstance(one, ScheduleProgress)]

    async def everything(self) -> list[ScheduleProgress | UnreadableSchedule]:
        rows = await self._database.read(
            lambda c: c.execute("SELECT name, progress FROM schedules ORDER BY name").fetchall()
        )
        return [decode_schedule(name, text) for name, text in rows]

    async def put(self, schedule: Schedule, *, origin: str, replace: bool = False) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            known, now = _find(connection, schedule.name), self._clock.now()
            if is_free(known, replace=replace):
                _write(connection, ScheduleProgress(schedule=schedule, origin=origin, created_at=now))
            elif not isinstance(known, ScheduleProgress) or not replace:
                return False
            elif (known.schedule, known.origin, known.withdrawn_at) != (schedule, origin, None):
                _write(connection, known.rewritten(schedule, origin, now))
            return True

        return await self._database.write(write)

    async def remove(self, name: str) -> bool:
        return await self._database.write(lambda c: _remove(c, name))

    async def pause(self, name: str, paused: bool) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            known = _find(connection, name)
            if not isinstance(known, ScheduleProgress):
                return False
            if known.paused != paused:
                _write(connection, known.rested(paused, self._clock.now()))
            return True

        return await self._database.write(write)

    async def begin(
        self, before: ScheduleProgress, after: ScheduleProgress, opening: tuple[str, JobTerms], *, replaces: str = ""
    ) -> Settled | None:
        settled = await self._database.write(
            lambda c: _settle(c, before, after, opening, replaces=replaces, now=self._clock.now())
        )
        if replaces:
            await self._jobs.clear_all()
        return settled

    async def leader(self) -> Term | None:
        now = self._clock.now()
        found = await self._database.read(
            lambda c: c.execute("SELECT leader, token, until FROM scheduling WHERE until > ?", (now,)).fetchone()
        )
        return Term(*found) if found is not None else None

    async def lead(self, candidate: str, duration: timedelta) -> Term | None:
        def write(connection: sqlite3.Connection) -> Term | None:
            now = self._clock.now()
            found = connection.execute(
                "UPDATE scheduling SET leader = :candidate, until = :until, "
                "token = token + (leader <> :candidate) WHERE leader = :candidate OR until <= :now OR until > :until "
                "RETURNING token",
                {"candidate": candidate, "until": now + duration.total_seconds(), "now": now},
            ).fetchone()
            return Term(candidate, found[0], now + duration.total_seconds()) if found is not None else None

        term = await self._database.write(write)
        self._jobs.cleanup.resume_soon()  # in the background: a term that is returned late is partly over
        return term

    async def resign(self, term: Term) -> None:
        await self._database.write(
            lambda c: (
                c.execute(
                    "UPDATE scheduling SET leader = '', until = 0 WHERE leader = ? AND token = ?",
                    (term.leader, term.token),
                ).rowcount
            )
        )

    async def changes(self) -> int:
        (count,) = await self._database.read(lambda c: c.execute("SELECT changes FROM scheduling").fetchone())
        return int(count)

    async def settle(
        self,
        term: Term,
        before: ScheduleProgress | None,
        after: ScheduleProgress,
        opening: tuple[str, JobTerms] | None = None,
        *,
        replaces: str = "",
    ) -> Settled | None:
        def write(connection: sqlite3.Connection) -> Settled | None:
            now = self._clock.now()
            demand_lead(connection, term, now)
            return _settle(connection, before, after, opening, replaces=replaces, now=now)

        settled = await self._database.write(write)
        if opening is not None:
            self._jobs.cleanup.begin()  # in the background: the replaced job may be big, and other ticks are due
        return settled

    async def forget(self, term: Term, progress: ScheduleProgress) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            demand_lead(connection, term, self._clock.now())
            return _is_as(connection, progress, progress.schedule.name) and _remove(connection, progress.schedule.name)

        return await self._database.write(write)


def demand_lead(connection: sqlite3.Connection, term: Term, now: float) -> None:
    """Raises LeaseLost if the term is over."""
    leads = connection.execute(
        "SELECT 1 FROM scheduling WHERE leader = ? AND token = ? AND until > ?", (term.leader, term.token, now)
    ).fetchone()
    if leads is None:
        raise LeaseLost(f"{term.leader} does not lead the schedulers any more; nothing was changed.")


def _settle(
    connection: sqlite3.Connection,
    before: ScheduleProgress | None,
    after: ScheduleProgress,
    opening: tuple[str, JobTerms] | None,
    *,
    replaces: str,
    now: float,
) -> Settled | None:
    if not _is_as(connection, before, after.schedule.name):
        return None
    if opening is None:
        return Settled(_write(connection, after))
    going = connection.execute(
        "SELECT id FROM jobs WHERE name = ? AND state = 'running' ORDER BY number DESC", (opening[0],)
    ).fetchone()
    if going is not None and going[0] != replaces:
        return None
    job = begin_job(connection, *opening, now)
    return Settled(_write(connection, msgspec.structs.replace(after, last_job=job.id)), job)


def _is_as(connection: sqlite3.Connection, before: ScheduleProgress | None, name: str) -> bool:
    """Whether the schedule is still as it was before. With None: whether there is still no schedule of that name."""
    stored = connection.execute("SELECT version FROM schedules WHERE name = ?", (name,)).fetchone()
    return bool(stored == (None if before is None else (before.version,)))


def _find(connection: sqlite3.Connection, name: str) -> ScheduleProgress | UnreadableSchedule | None:
    row = connection.execute("SELECT progress FROM schedules WHERE name = ?", (name,)).fetchone()
    return decode_schedule(name, row[0]) if row is not None else None


def _remove(connection: sqlite3.Connection, name: str) -> bool:
    removed = connection.execute("DELETE FROM schedules WHERE name = ?", (name,)).rowcount
    if removed:
        connection.execute("UPDATE scheduling SET changes = changes + 1")
    return bool(removed)


def _write(connection: sqlite3.Connection, progress: ScheduleProgress) -> ScheduleProgress:
    (version,) = connection.execute("UPDATE scheduling SET changes = changes + 1 RETURNING changes").fetchone()
    written = msgspec.structs.replace(progress, version=version)
    connection.execute(
        "INSERT OR REPLACE INTO schedules (name, version, progress) VALUES (?, ?, ?)",
        (written.schedule.name, version, msgspec.json.encode(written).decode()),
    )
    return written
