"""Jobs on SQLite: opened once, found again, closed once. Fulfils `JobBook`."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...frontier.contract import JobTerms
from ...model.job import Job, JobCounts, JobState, slug
from ..processes import is_gone
from .connection import Database

LAST_WORDS = timedelta(seconds=5)  # as long as a pacer holds a request at most

_COLUMNS = "id, name, state, created_at, finished_at, terms, ending"


class SqliteJobs:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def open_job(self, name: str, terms: JobTerms, *, fresh: bool) -> tuple[Job, bool]:
        def write(connection: sqlite3.Connection) -> tuple[Job, bool]:
            now = self._clock.now()
            row = connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE name = ? AND state = 'running' ORDER BY number DESC",  # noqa: S608
                (name,),
            ).fetchone()
            if row is not None and not fresh:
                # The limit belongs to the command that runs now; the rest stays as the job began.
                found = _job(row)
                kept = msgspec.json.decode(row[5], type=JobTerms)
                renewed = msgspec.structs.replace(terms, dedup_window=kept.dedup_window)
                connection.execute(
                    "UPDATE jobs SET terms = ? WHERE id = ?", (msgspec.json.encode(renewed).decode(), found.id)
                )
                return msgspec.structs.replace(found, limit=terms.limit, depth=terms.depth), True
            if row is not None:
                self._close(connection, row[0], "replaced", now, drop_open=True)
            number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()[0]
            job_id = f"{slug(name)}-{number}"
            connection.execute(
                "INSERT INTO jobs (number, id, name, state, created_at, terms) VALUES (?, ?, ?, 'running', ?, ?)",
                (number, job_id, name, now, msgspec.json.encode(terms).decode()),
            )
            return Job(
                id=job_id, name=name, state=JobState.RUNNING, created_at=now, limit=terms.limit, depth=terms.depth
            ), False

        return await self._database.write(write)

    async def seal_seeds(self, job: str) -> None:
        await self._database.write(lambda c: c.execute("UPDATE jobs SET sealed = 1 WHERE id = ?", (job,)).rowcount)

    async def is_sealed(self, job: str) -> bool:
        row = await self._database.read(lambda c: c.execute("SELECT sealed FROM jobs WHERE id = ?", (job,)).fetchone())
        return bool(row and row[0])

    async def close_job(self, job: str, ending: str) -> bool:
        return await self._database.write(lambda c: self._close(c, job, ending, self._clock.now(), drop_open=False))

    def _close(self, connection: sqlite3.Connection, job: str, ending: str, now: float, *, drop_open: bool) -> bool:
        # Somebody may have replayed a dead letter since the job was found empty: then it is not over.
        closed = connection.execute(
            "UPDATE jobs SET state = 'finished', ending = ?, finished_at = ? WHERE id = ? AND state = 'running' "
            "AND (? OR ? = 'limit' OR queued + waiting + leased = 0) RETURNING number",
            (ending, now, job, drop_open, ending),
        ).fetchone()
        if closed is None:
            return False
        if drop_open:
            _drop_open(connection, closed[0], ending, now)
        return True

    async def job(self, job: str) -> Job | None:
        row = await self._database.read(
            lambda c: c.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job,)).fetchone()  # noqa: S608
        )
        return _job(row) if row else None

    async def jobs(self) -> list[Job]:
        rows = await self._database.read(
            lambda c: c.execute(f"SELECT {_COLUMNS} FROM jobs ORDER BY number DESC").fetchall()  # noqa: S608
        )
        return [_job(row) for row in rows]

    async def running_jobs(self) -> list[Job]:
        rows = await self._database.read(
            lambda c: c.execute(
                f"SELECT {_COLUMNS} FROM jobs INDEXED BY jobs_running WHERE state = 'running' ORDER BY number"  # noqa: S608
            ).fetchall()
        )
        return [_job(row) for row in rows]

    async def counts(self, job: str) -> JobCounts:
        names = ", ".join(JobCounts.__struct_fields__)
        row = await self._database.read(
            lambda c: c.execute(f"SELECT {names} FROM jobs WHERE id = ?", (job,)).fetchone()  # noqa: S608
        )
        return JobCounts(**dict(zip(JobCounts.__struct_fields__, row, strict=True))) if row else JobCounts()


def _job(row: tuple[str, str, str, float, float | None, str, str]) -> Job:
    job_id, name, state, created_at, finished_at, text, ending = row
    terms = msgspec.json.decode(text, type=JobTerms)
    return Job(
        id=job_id,
        name=name,
        state=JobState(state),
        created_at=created_at,
        finished_at=finished_at,
        limit=terms.limit,
        depth=terms.depth,
        ending=ending,
    )


def _drop_open(connection: sqlite3.Connection, job: int, reason: str, now: float) -> None:
    """What a replaced job still had to do will not be done: dropped, with the reason; slots are given back.

    A worker that lives may send what it has in hand for some moments yet: its paced sites are left alone for so long.
    """
    workers = connection.execute("SELECT DISTINCT worker FROM urls WHERE job = ? AND state = 'leased'", (job,))
    alive = [worker for (worker,) in workers if not is_gone(worker)]
    connection.execute(
        "UPDATE sites SET in_flight = in_flight - held.n, holder = NULL, "
        "rest_until = CASE WHEN holder IS NULL THEN rest_until ELSE max(rest_until, ?) END FROM "
        "(SELECT site, count(*) AS n FROM urls WHERE job = ? AND state = 'leased' GROUP BY site) AS held "
        "WHERE sites.number = held.site",
        (now + LAST_WORDS.total_seconds() if alive else 0.0, job),
    )
    connection.execute(
        "UPDATE queues SET state = 'ready' WHERE state IN ('full', 'held') AND site IN "
        "(SELECT site FROM urls WHERE job = ? AND state = 'leased')",
        (job,),
    )
    connection.execute(
        "UPDATE urls SET state = 'dropped', reason = ?, worker = NULL, lease_until = NULL, due_at = NULL, "
        "changed_at = ? WHERE job = ? AND state IN ('queued', 'waiting', 'leased')",
        (reason, now, job),
    )
    connection.execute("DELETE FROM queues WHERE job = ?", (job,))
    connection.execute(
        "UPDATE jobs SET dropped = dropped + queued + waiting + leased, queued = 0, waiting = 0, leased = 0 "
        "WHERE number = ?",
        (job,),
    )
