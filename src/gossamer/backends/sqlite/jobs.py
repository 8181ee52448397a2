"""Jobs on SQLite: opened once, found again, paused, cancelled, closed once. Fulfils `JobBook` and `JobControl`."""

from __future__ import annotations

import sqlite3
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...errors import Permanent
from ...model.job import Job, JobCounts, JobState, JobTerms, slug
from ..processes import is_gone
from .connection import Database

LAST_WORDS = timedelta(seconds=5)  # as long as a pacer holds a request at most

REPLACED, CANCELLED = "replaced", "cancelled"  # endings that drop what is open

_COLUMNS = "id, name, state, created_at, finished_at, terms, ending, paused"


Row = tuple[str, str, str, float, float | None, str, str, int]  # of these columns


class SqliteJobs:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def open_job(self, name: str, terms: JobTerms, *, fresh: bool) -> tuple[Job, bool]:
        def write(connection: sqlite3.Connection) -> tuple[Job, bool]:
            row = None if fresh else _unfinished(connection, name)
            if row is None:
                return begin_job(connection, name, terms, self._clock.now()), False
            renewed = terms.resumed(msgspec.json.decode(row[5], type=JobTerms))
            text = msgspec.json.encode(renewed).decode()
            connection.execute("UPDATE jobs SET terms = ? WHERE id = ?", (text, row[0]))
            return _job((*row[:5], text, *row[6:])), True

        return await self._database.write(write)

    async def seal_seeds(self, job: str) -> None:
        await self._database.write(lambda c: c.execute("UPDATE jobs SET sealed = 1 WHERE id = ?", (job,)).rowcount)

    async def is_sealed(self, job: str) -> bool:
        row = await self._database.read(lambda c: c.execute("SELECT sealed FROM jobs WHERE id = ?", (job,)).fetchone())
        return bool(row and row[0])

    async def close_job(self, job: str, ending: str) -> bool:
        return await self._database.write(lambda c: _close(c, job, ending, self._clock.now()))

    async def pause_job(self, job: str, paused: bool) -> bool:
        changed = await self._database.write(
            lambda c: (
                c.execute("UPDATE jobs SET paused = ? WHERE id = ? AND state = 'running'", (int(paused), job)).rowcount
            )
        )
        return bool(changed)

    async def cancel_job(self, job: str) -> bool:
        return await self._database.write(lambda c: _give_up(c, job, CANCELLED, self._clock.now()))

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

    async def terms(self, job: str) -> JobTerms:
        row = await self._database.read(lambda c: c.execute("SELECT terms FROM jobs WHERE id = ?", (job,)).fetchone())
        if row is None:
            raise Permanent(f"There is no job {job!r}. `gossamer status` lists the jobs.")
        return msgspec.json.decode(row[0], type=JobTerms)

    async def counts(self, job: str) -> JobCounts:
        names = ", ".join(JobCounts.__struct_fields__)
        row = await self._database.read(
            lambda c: c.execute(f"SELECT {names} FROM jobs WHERE id = ?", (job,)).fetchone()  # noqa: S608
        )
        return JobCounts(**dict(zip(JobCounts.__struct_fields__, row, strict=True))) if row else JobCounts()


def begin_job(connection: sqlite3.Connection, name: str, terms: JobTerms, now: float) -> Job:
    """A new job; an unfinished one of that name is replaced. Runs inside a transaction."""
    before = _unfinished(connection, name)
    if before is not None:
        _give_up(connection, before[0], REPLACED, now)
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()[0]
    job, text = f"{slug(name)}-{number}", msgspec.json.encode(terms).decode()
    connection.execute(
        "INSERT INTO jobs (number, id, name, state, created_at, terms) VALUES (?, ?, ?, 'running', ?, ?)",
        (number, job, name, now, text),
    )
    return _job((job, name, JobState.RUNNING, now, None, text, "", 0))


def drop_late(connection: sqlite3.Connection, job: int, now: float) -> bool:
    """What has just entered a job that was replaced or cancelled is dropped like the rest. Returns whether it was."""
    ending = connection.execute("SELECT ending FROM jobs WHERE number = ?", (job,)).fetchone()[0]
    if ending not in (REPLACED, CANCELLED):
        return False
    _drop_open(connection, job, ending, now)
    return True


def _unfinished(connection: sqlite3.Connection, name: str) -> Row | None:
    found: Row | None = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE name = ? AND state = 'running' ORDER BY number DESC",  # noqa: S608
        (name,),
    ).fetchone()
    return found


def _close(connection: sqlite3.Connection, job: str, ending: str, now: float) -> bool:
    # Somebody may have replayed a dead letter since the job was found empty: then it is not over.
    closed = connection.execute(
        "UPDATE jobs SET state = 'finished', ending = ?, finished_at = ?, paused = 0 WHERE id = ? "
        "AND state = 'running' AND (? = 'limit' OR queued + waiting + leased = 0)",
        (ending, now, job, ending),
    ).rowcount
    return bool(closed)


def _give_up(connection: sqlite3.Connection, job: str, ending: str, now: float) -> bool:
    """End a job that has not come to its end: what is open is dropped."""
    state = JobState.CANCELLED if ending == CANCELLED else JobState.FINISHED
    ended = connection.execute(
        "UPDATE jobs SET state = ?, ending = ?, finished_at = ?, paused = 0 WHERE id = ? AND state = 'running' "
        "RETURNING number",
        (state.value, ending, now, job),
    ).fetchone()
    if ended is None:
        return False
    _drop_open(connection, ended[0], ending, now)
    return True


def _job(row: Row) -> Job:
    job_id, name, state, created_at, finished_at, text, ending, paused = row
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
        paused=bool(paused),
        schedule=terms.schedule,
        due=terms.due,
        spider=terms.spider,
        windows=terms.windows,
    )


def _drop_open(connection: sqlite3.Connection, job: int, reason: str, now: float) -> None:
    """What a job that was given up still had to do will not be done: dropped, with the reason; slots are given back.

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
