"""Jobs on SQLite: opened once, looked up, paused, cancelled, closed once, deleted. Fulfils `JobBook`, `JobControl` and
`JobHistory`; also `SeedBook`, the lease to read the source of a job.

A replaced or cancelled job ends in one short step. Its open pages are dropped in portions (cleanup.py), by this process
or, if it dies meanwhile, by one that looks later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import msgspec

from ...clock import Clock
from ...errors import Permanent
from ...frontier.contract import SeedFindings
from ...model.job import COUNTERS, Job, JobCounts, JobState, JobTerms, number_of, outcome_text, slug, stopped_terms
from ...model.outcome import JobOutcome
from ...model.task import Candidate
from ..cleanup import BackgroundCleanup
from .cleanup import CANCELLED, REPLACED, clear_some, drop_first, forget, remaining
from .connection import Database
from .queue_rows import JobRow, QueueRows, SharedRows

LONGEST_KEPT = 16 * 1024  # characters of the terms of a job that is kept in memory: those of a batch hold its pages
QUICK = 100  # jobs read at once, or their counts
MOST_NUMBER = 2**63 - 1
_OWNER = "coalesce(json_extract(terms, '$.owner'), '')"  # as in the index jobs_owned
_COLUMNS = "id, name, state, created_at, finished_at, terms, ending, paused, outcome, start"


Row = tuple[str, str, str, float, float | None, str, str, int, str, str]  # of these columns


class SqliteJobs:
    def __init__(self, database: Database, clock: Clock) -> None:
        self.database = database
        self._clock = clock
        self.cleanup = BackgroundCleanup(self._clear_some, self._look, clock.monotonic)
        self._left: tuple[int, int] | None = None
        self._running = 0  # jobs, when they were last read
        self._rows = QueueRows()
        database.on_rollback.append(self._rows.forget)

    async def open_job(
        self, name: str, terms: JobTerms, *, fresh: bool, seeds: Sequence[Candidate] = ()
    ) -> tuple[Job, bool]:
        def write(connection: sqlite3.Connection) -> tuple[Job, bool]:
            row = None if fresh else _unfinished(connection, name)
            if row is None:
                job = begin_job(connection, name, terms, self._clock.now())
                if seeds:
                    self._enter(connection, job, terms, seeds)
                return job, False
            renewed = terms.resumed(msgspec.json.decode(row[5], type=JobTerms))
            text = msgspec.json.encode(renewed).decode()
            connection.execute("UPDATE jobs SET terms = ? WHERE id = ?", (text, row[0]))
            return _job((*row[:5], text, *row[6:])), True

        opened = await self.database.write(write)
        if fresh:
            await self.cleanup.finish()
        return opened

    def _enter(self, connection: sqlite3.Connection, job: Job, terms: JobTerms, seeds: Sequence[Candidate]) -> None:
        """Enter all seeds of a new job, and seal it."""
        shared, row = SharedRows(), JobRow(number_of(job.id), job.id, terms)
        self._rows.admit(connection, row, seeds, found_on=None, now=job.created_at, shared=shared)
        shared.write(connection)
        connection.execute("UPDATE jobs SET sealed = 1 WHERE number = ?", (row.number,))

    async def seal_seeds(self, job: str, start: str = "") -> None:
        sql = "UPDATE jobs SET sealed = 1, start = iif(start = '', ?, start) WHERE id = ?"
        await self.database.write(lambda c: c.execute(sql, (start, job)).rowcount)

    async def is_sealed(self, job: str) -> bool:
        sql = "SELECT sealed FROM jobs WHERE id = ?"
        row = await self.database.read(lambda c: c.execute(sql, (job,)).fetchone(), quick=True)
        return bool(row and row[0])

    async def close_job(self, job: str, ending: str, outcome: JobOutcome | None = None) -> bool:
        text = outcome_text(outcome)
        return await self.database.write(lambda c: _close(c, job, ending, text, self._clock.now()))

    async def pause_job(self, job: str, paused: bool) -> bool:
        changed = await self.database.write(
            lambda c: (
                c.execute("UPDATE jobs SET paused = ? WHERE id = ? AND state = 'running'", (int(paused), job)).rowcount
            )
        )
        return bool(changed)

    async def settle_again(self, job: str, outcome: JobOutcome) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            sql = "UPDATE jobs SET outcome = ? WHERE id = ? AND state = 'finished'"
            return bool(connection.execute(sql, (outcome_text(outcome), job)).rowcount)

        return await self.database.write(write)

    async def cancel_job(self, job: str) -> bool:
        cancelled = await self.database.write(lambda c: _give_up(c, job, CANCELLED, self._clock.now()))
        await self.cleanup.finish_soon()
        return cancelled

    async def end_soon(self, job: str, reason: str) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            row = connection.execute(
                "SELECT terms, done + unchanged + dead + leased - redirected FROM jobs "
                "WHERE id = ? AND state = 'running'",
                (job,),
            ).fetchone()
            if row is None:
                return False
            terms = stopped_terms(msgspec.json.decode(row[0], type=JobTerms), row[1], reason)
            connection.execute("UPDATE jobs SET terms = ? WHERE id = ?", (msgspec.json.encode(terms).decode(), job))
            return True

        return await self.database.write(write)

    async def job(self, job: str) -> Job | None:
        row = await self.database.read(
            lambda c: c.execute(f"SELECT {_COLUMNS} FROM jobs WHERE id = ?", (job,)).fetchone(),  # noqa: S608
            quick=True,
        )
        return _job(row) if row else None

    async def jobs(self) -> list[Job]:
        rows = await self.database.read(
            lambda c: c.execute(f"SELECT {_COLUMNS} FROM jobs ORDER BY number DESC").fetchall()  # noqa: S608
        )
        return [_job(row) for row in rows]

    async def page(self, limit: int, *, owners: Collection[str] | None = None, after: str | None = None) -> list[Job]:
        before = number_of(after) if after is not None else MOST_NUMBER
        # Each owner separately: along the index of owners, however many jobs others have.
        sql = f"SELECT number, {_COLUMNS} FROM jobs WHERE {{whose}} number < ? ORDER BY number DESC LIMIT ?"  # noqa: S608
        each: list[tuple[str, tuple[str | int, ...]]] = [(sql.format(whose=""), (before, limit))]
        if owners is not None:
            each = [(sql.format(whose=f"{_OWNER} = ? AND"), (owner, before, limit)) for owner in owners]

        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return [row for sql, values in each for row in connection.execute(sql, values)]

        rows = sorted(await self.database.read(read, quick=limit <= QUICK), reverse=True)
        return [_job(row[1:]) for row in rows[:limit]]

    async def owners(self, jobs: Sequence[str]) -> dict[str, str]:
        sql = f"SELECT id, {_OWNER} FROM jobs WHERE id = ?"  # noqa: S608 - our own words

        def read(connection: sqlite3.Connection) -> dict[str, str]:
            return dict(row for job in jobs for row in connection.execute(sql, (job,)))

        return await self.database.read(read, quick=len(jobs) <= QUICK)

    async def newest_jobs(self, name: str, limit: int, *, skip: int = 0) -> list[Job]:
        rows = await self.database.read(
            lambda c: c.execute(
                f"SELECT {_COLUMNS} FROM jobs INDEXED BY jobs_named WHERE name = ? "  # noqa: S608
                "ORDER BY number DESC LIMIT ? OFFSET ?",
                (name, limit, skip),
            ).fetchall(),
            quick=limit <= QUICK,
        )
        return [_job(row) for row in rows]

    async def forget_jobs(self, jobs: Sequence[str]) -> int:
        forgotten = await self.database.write(lambda c: sum(forget(c, job) for job in jobs))
        if forgotten:
            self.cleanup.begin()
        return forgotten

    async def running_jobs(self) -> list[Job]:
        rows = await self.database.read(
            lambda c: c.execute(
                f"SELECT {_COLUMNS} FROM jobs INDEXED BY jobs_running WHERE state = 'running' ORDER BY number"  # noqa: S608
            ).fetchall(),
            quick=self._running <= QUICK,
        )
        self._running = len(rows)
        return [_job(row) for row in rows]

    async def newest_number(self) -> int:
        sql = "SELECT coalesce(max(number), 0) FROM jobs"
        return int(await self.database.read(lambda c: c.execute(sql).fetchone()[0], quick=True))

    async def terms(self, job: str) -> JobTerms:
        sql = "SELECT terms FROM jobs WHERE id = ?"
        row = await self.database.read(lambda c: c.execute(sql, (job,)).fetchone(), quick=True)
        if row is None:
            raise Permanent(f"There is no job {job!r}. `gossamer status` lists the jobs.")
        return msgspec.json.decode(row[0], type=JobTerms)

    async def counts(self, job: str) -> JobCounts:
        found = await self.counts_of([job])
        return found[job][0] if found else JobCounts()

    async def counts_of(self, jobs: Sequence[str]) -> dict[str, tuple[JobCounts, bool]]:
        columns = ", ".join(("id", "sealed", "stats", "drops", *COUNTERS))
        sql = f"SELECT {columns} FROM jobs WHERE id = ?"  # noqa: S608 - our own names

        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return [row for job in jobs for row in connection.execute(sql, (job,))]

        return {
            id: (
                JobCounts(
                    **dict(zip(COUNTERS, counts, strict=True)),
                    stats=msgspec.json.decode(stats, type=dict[str, int]),
                    drops=msgspec.json.decode(drops, type=dict[str, int]),
                ),
                bool(sealed),
            )
            for id, sealed, stats, drops, *counts in await self.database.read(read, quick=len(jobs) <= QUICK)
        }

    # -- cleanup, used by other parts of this backend, too ------------------------------------------------------

    async def clear_all(self) -> None:
        """Run the cleanup to its end. Raises BackendUnavailable."""
        await self.cleanup.finish()

    async def close(self) -> None:
        await self.cleanup.close()

    async def _look(self) -> bool:
        """True if just as much was left at the last look: then no process is working on it."""
        before, self._left = self._left, await self.database.read(remaining)
        return self._left is not None and self._left == before

    async def _clear_some(self) -> bool:
        return await self.database.write(lambda c: clear_some(c, self._clock.now()))


def begin_job(connection: sqlite3.Connection, name: str, terms: JobTerms, now: float) -> Job:
    """Start a job; it replaces an unfinished job of that name. Runs inside a transaction."""
    before = _unfinished(connection, name)
    if before is not None:
        _give_up(connection, before[0], REPLACED, now)
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM jobs").fetchone()[0]
    job, text = f"{slug(name)}-{number}", msgspec.json.encode(terms).decode()
    connection.execute(
        "INSERT INTO jobs (number, id, name, state, created_at, terms) VALUES (?, ?, ?, 'running', ?, ?)",
        (number, job, name, now, text),
    )
    return _job((job, name, JobState.RUNNING, now, None, text, "", 0, "", ""))


def given_up(connection: sqlite3.Connection, job: int) -> str:
    """The ending of a replaced or cancelled job, which no URL may enter any more; "" for other jobs."""
    row = connection.execute("SELECT ending FROM jobs WHERE number = ?", (job,)).fetchone()
    return row[0] if row is not None and row[0] in (REPLACED, CANCELLED) else ""


def _unfinished(connection: sqlite3.Connection, name: str) -> Row | None:
    found: Row | None = connection.execute(
        f"SELECT {_COLUMNS} FROM jobs WHERE name = ? AND state = 'running' ORDER BY number DESC",  # noqa: S608
        (name,),
    ).fetchone()
    return found


def _close(connection: sqlite3.Connection, job: str, ending: str, outcome: str, now: float) -> bool:
    # A dead letter may have been replayed since the job was found empty: then it is not over.
    closed = connection.execute(
        "UPDATE jobs SET state = 'finished', ending = ?, outcome = ?, finished_at = ?, paused = 0 WHERE id = ? "
        "AND state = 'running' AND (? = 'limit' OR queued + waiting + leased = 0)",
        (ending, outcome, now, job, ending),
    ).rowcount
    return bool(closed)


def _give_up(connection: sqlite3.Connection, job: str, ending: str, now: float) -> bool:
    """End an unfinished job. Its leased pages are dropped now, its other open pages in portions."""
    state = JobState.CANCELLED if ending == CANCELLED else JobState.FINISHED
    ended = connection.execute(
        "UPDATE jobs SET state = ?, ending = ?, finished_at = ?, paused = 0 WHERE id = ? AND state = 'running' "
        "RETURNING number",
        (state.value, ending, now, job),
    ).fetchone()
    if ended is None:
        return False
    drop_first(connection, ended[0], ending, now)
    return True


def _job(row: Row) -> Job:
    terms = row[5]
    return _kept_job(row) if len(terms) <= LONGEST_KEPT else _read_job(row)


def _read_job(row: Row) -> Job:
    job_id, name, state, created_at, finished_at, text, ending, paused, outcome, start = row
    return Job.under(
        msgspec.json.decode(text, type=JobTerms),
        id=job_id,
        name=name,
        state=JobState(state),
        created_at=created_at,
        finished_at=finished_at,
        ending=ending,
        outcome=outcome,
        paused=bool(paused),
        start=start,
    )


_kept_job = lru_cache(maxsize=1024)(_read_job)  # the jobs at work are read many times a second


class SqliteSeedBook:
    def __init__(self, database: Database, clock: Clock, *, is_gone: Callable[[str], bool]) -> None:
        self._database = database
        self._clock = clock
        self._is_gone = is_gone

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now, length = self._clock.now(), duration.total_seconds()
            if self._holder(connection, job, length) not in (None, worker):
                return False
            connection.execute(
                "INSERT INTO seed_leases (job, worker, until, length) VALUES (?1, ?2, ?3, ?4) "
                "ON CONFLICT (job) DO UPDATE SET worker = ?2, until = ?3, length = ?4",
                (job, worker, now + length, length),
            )
            return True

        return await self._database.write(write)

    async def holder(self, job: str) -> str | None:
        return await self._database.read(lambda connection: self._holder(connection, job))

    def _holder(self, connection: sqlite3.Connection, job: str, length: float = 0.0) -> str | None:
        """`length` is that of a lease whose row does not tell."""
        now = self._clock.now()
        found = connection.execute("SELECT worker, until, length FROM seed_leases WHERE job = ?", (job,)).fetchone()
        # An end further ahead than the lease's length was written while the clock was ahead.
        if found is None or not found[0] or not now < found[1] <= now + (found[2] or length) or self._is_gone(found[0]):
            return None
        return str(found[0])

    async def release(self, job: str, worker: str) -> None:
        await self._database.write(
            lambda c: (
                c.execute(
                    "UPDATE seed_leases SET worker = '', until = 0 WHERE job = ? AND worker = ?", (job, worker)
                ).rowcount
            )
        )

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        rows = [(job, site) for site in sites]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR IGNORE INTO seed_sites (job, site) VALUES (?, ?)", rows)
            if trouble:
                connection.execute(
                    "INSERT INTO seed_leases (job, trouble) VALUES (?1, ?2) ON CONFLICT (job) DO UPDATE "
                    "SET trouble = CASE WHEN trouble = '' THEN ?2 ELSE trouble END",
                    (job, trouble),
                )

        await self._database.write(write)

    async def findings(self, job: str) -> SeedFindings:
        def read(connection: sqlite3.Connection, most: int = -1) -> SeedFindings:
            sites = connection.execute("SELECT site FROM seed_sites WHERE job = ? LIMIT ?", (job, most)).fetchall()
            row = connection.execute("SELECT trouble FROM seed_leases WHERE job = ?", (job,)).fetchone()
            return SeedFindings(frozenset(site for (site,) in sites), "" if row is None else row[0])

        found = await self._database.read(lambda connection: read(connection, QUICK + 1), quick=True)
        return found if len(found.sites) <= QUICK else await self._database.read(read)
