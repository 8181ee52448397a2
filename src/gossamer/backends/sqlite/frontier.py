"""The frontier on SQLite: the worker's methods. queue_rows.py has the steps that they share, leasing.py the lease."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...errors import FrontierFull, LeaseLost
from ...frontier.away import AwayNote, AwayTerms, AwayVerdict, SiteFailure, after_failure
from ...frontier.contract import NO_STATS, SENT, Added, LeaseBatch, LeftTurn, NextTurn, redirect_reason
from ...frontier.learned_pace import LearnedPace, after_refusal
from ...frontier.politeness import TermsFor
from ...model.task import Candidate, Lease, UrlState
from .connection import Database
from .jobs import SqliteJobs, given_up
from .leasing import SqliteTaskDispatcher
from .queue_rows import LETTERS, CountChanges, QueueRows, SharedRows, free_slots
from .turns import end_turns, next_turn, owed_turns

MESSAGE_LENGTH = 4000  # characters kept of an error
_END_LEASE = "DELETE FROM leases WHERE url = ? AND token = ? AND until > ?"
_COMPLETE = """
UPDATE urls SET state = ?, reason = ?, message = '', attempts = ?, deliveries = 0, changed_at = ? WHERE number = ?"""
_HOLD = """
UPDATE sites SET holder = CASE WHEN in_flight > 0 THEN coalesce(holder, ?) ELSE holder END WHERE number = ?
RETURNING holder"""
_CLEAR = "UPDATE sites SET rest_until = max(rest_until, ?) WHERE number = ?"
_AWAY = """
SELECT away_host, away_reason, away_since, strikes, given_up_until, answered_at, rest_until, asked_interval
FROM sites WHERE number = ?"""
_GONE = """
UPDATE sites SET away_host = ?, away_reason = ?, away_since = ?, strikes = ?, given_up_until = ?, answered_at = ?,
    rest_until = max(rest_until, ?) WHERE number = ?"""
_PACE = """
SELECT asked_interval, learned_interval, refused_at, between_refusals, rest_until FROM sites WHERE number = ?"""
_LEARN = """
UPDATE sites SET learned_interval = ?, refused_at = ?, between_refusals = ?, rest_until = max(rest_until, ?)
WHERE number = ?"""
_ANSWERED = "UPDATE sites SET answered_at = ?, strikes = 0, given_up_until = 0 WHERE number = ?"

_NOTHING_ADDED = Added()


class SqliteFrontier:
    """Fulfils `Frontier`. Time is this machine's clock, which all processes on the file share."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        jobs: SqliteJobs,
        *,
        lease_duration: timedelta,
        terms_for: TermsFor,
        is_gone: Callable[[str], bool],
    ) -> None:
        self._database = database
        self._clock = clock
        self._jobs = jobs
        self._rows = QueueRows()
        self._dispatcher = SqliteTaskDispatcher(
            self._rows, duration=lease_duration, terms_for=terms_for, is_gone=is_gone
        )
        self._lease_seconds = lease_duration.total_seconds()
        self._terms_for = terms_for
        self._shared = SharedRows()  # for the pages completed in one transaction
        database.on_rollback += (self._rows.forget, self._shared.forget)
        database.left_over.append(self._shared.write)

    def let_go(self) -> None:
        """Called when this frontier is no longer used; the file stays open for others."""
        self._database.on_rollback.remove(self._rows.forget)
        self._database.on_rollback.remove(self._shared.forget)
        self._database.left_over.remove(self._shared.write)

    async def add(self, job: str, candidates: Sequence[Candidate]) -> Added:
        def write(connection: sqlite3.Connection) -> Added:
            row = self._rows.job(connection, job)
            bound = row.terms.max_queued
            if bound is not None:
                depth = connection.execute(
                    "SELECT queued + waiting FROM jobs WHERE number = ?", (row.number,)
                ).fetchone()[0]
                if depth + len(candidates) > bound:
                    raise FrontierFull(
                        f"The queue of {job} holds {depth} URLs; {len(candidates)} more would pass its bound of "
                        f"{bound} (crawl.max_queued). Add fewer at once, or wait until some are done."
                    )
            shared, now = SharedRows(), self._clock.now()
            late = given_up(connection, row.number)
            added = self._rows.admit(connection, row, candidates, found_on=None, now=now, shared=shared, given_up=late)
            shared.write(connection)
            return added

        return await self._database.write(write)

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        def write(connection: sqlite3.Connection) -> LeaseBatch:
            row = self._rows.job(connection, job)
            return self._dispatcher.lease(connection, row, worker, n, lanes, self._clock.now())

        await self._jobs.cleanup.resume()
        return await self._database.write(write)

    async def left(self, turns: Sequence[LeftTurn]) -> None:
        await self._database.write(lambda connection: end_turns(connection, turns, self._clock.now()))

    async def next_turn(self, lease: Lease, number: int) -> NextTurn:
        def write(connection: sqlite3.Connection) -> NextTurn:
            job = self._rows.job(connection, lease.task.job)
            terms = self._terms_for(lease.task.site).under(job.terms.politeness)
            return next_turn(connection, lease, number, terms, self._clock.now())

        return await self._database.write(write)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        def write(connection: sqlite3.Connection) -> list[Lease]:
            now = self._clock.now()
            lost = []
            for lease in leases:
                renewed = connection.execute(
                    "UPDATE leases SET until = ? WHERE url = ? AND token = ? AND until > ?",
                    (now + self._lease_seconds, lease.task.id, lease.token, now),
                ).rowcount
                if not renewed:
                    lost.append(lease)
            return lost

        return await self._database.write(write)

    async def note_sent(self, lease: Lease, *, sent: bool = True) -> None:
        def write(connection: sqlite3.Connection) -> None:
            noted = connection.execute(
                "UPDATE urls SET reason = ? FROM leases "
                "WHERE number = ? AND leases.url = number AND leases.token = ? AND leases.until > ?",
                (SENT if sent else "", lease.task.id, lease.token, self._clock.now()),
            ).rowcount
            if not noted:
                raise _lost(lease)

        await self._database.write(write)

    async def complete(
        self,
        lease: Lease,
        state: UrlState,
        reason: str = "",
        discovered: Sequence[Candidate] = (),
        *,
        redirect: str | None = None,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        stored_reason = reason if redirect is None else redirect_reason(redirect)

        def write(connection: sqlite3.Connection) -> Added:
            now, task, shared = self._clock.now(), lease.task, self._shared
            if not connection.execute(_END_LEASE, (task.id, lease.token, now)).rowcount:
                raise _lost(lease)
            connection.execute(_COMPLETE, (LETTERS[state], stored_reason, task.attempt + 1, now, task.id))
            job, site = self._rows.job(connection, task.job), self._rows.site(connection, task.site)
            answered_at = now if state is not UrlState.DROPPED else None
            shared.free_slot(site, next_at=now + paced_ahead.total_seconds(), answered_at=answered_at)
            keep_own_pace(connection, lease, job.number, site, now + paced_ahead.total_seconds())
            counts = shared.counts_of(job.number)
            counts["leased"] -= 1
            if state is UrlState.DROPPED:
                counts.drop(stored_reason)
            else:
                counts[state.value] += 1
            counts["discovered"] += duplicates
            counts["duplicates"] += duplicates
            if redirect is not None:
                counts["redirected"] += 1
            if stats:
                self._rows.add_stats(connection, job.number, stats)
            if not discovered:
                return _NOTHING_ADDED
            return self._rows.admit(connection, job, discovered, found_on=task.id, now=now, shared=shared)

        return await self._database.write(write, folds=True)

    async def retry(
        self, lease: Lease, delay: timedelta, reason: str, *, paced_ahead: timedelta = timedelta(0)
    ) -> None:
        await self._postpone(lease, delay, reason, paced_ahead, used_up=True)

    async def release(
        self,
        lease: Lease,
        delay: timedelta,
        reason: str,
        *,
        paced_ahead: timedelta = timedelta(0),
        lane: str | None = None,
    ) -> None:
        await self._postpone(lease, delay, reason, paced_ahead, used_up=False, lane=lane)

    async def _postpone(
        self,
        lease: Lease,
        delay: timedelta,
        reason: str,
        paced_ahead: timedelta,
        *,
        used_up: bool,
        lane: str | None = None,
    ) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            # An attempt with a response proves that the page does not kill its worker: deliveries start anew.
            job = self._settle(
                connection, lease, now, paced_ahead,
                state=LETTERS[UrlState.WAITING], reason=reason, due_at=now + delay.total_seconds(),
                attempts=lease.task.attempt + used_up, deliveries=0 if used_up else lease.delivery - 1,
                fetcher=lease.task.fetcher if lane is None else lane or None, keeps_note=not used_up,
            )  # fmt: skip
            CountChanges(leased=-1, waiting=1, retries=int(used_up)).write(connection, job)

        await self._database.write(write)

    async def bury(
        self,
        lease: Lease,
        reason: str,
        message: str,
        discovered: Sequence[Candidate] = (),
        *,
        duplicates: int = 0,
        paced_ahead: timedelta = timedelta(0),
        stats: Mapping[str, int] = NO_STATS,
    ) -> Added:
        def write(connection: sqlite3.Connection) -> Added:
            now = self._clock.now()
            job = self._settle(
                connection, lease, now, paced_ahead,
                state=LETTERS[UrlState.DEAD], reason=reason, message=message[:MESSAGE_LENGTH],
                attempts=lease.task.attempt + 1,
            )  # fmt: skip
            shared, added = SharedRows(), _NOTHING_ADDED
            shared.counts_of(job).update(leased=-1, dead=1, discovered=duplicates, duplicates=duplicates)
            if discovered:
                row = self._rows.job(connection, lease.task.job)
                added = self._rows.admit(connection, row, discovered, found_on=lease.task.id, now=now, shared=shared)
            shared.write(connection)
            if stats:
                self._rows.add_stats(connection, job, stats)
            return added

        return await self._database.write(write)

    async def slow_down(self, site: str, *, interval: timedelta | None, rest: timedelta, worker: str = "") -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            now = self._clock.now()
            number = self._rows.site(connection, site)
            connection.execute(
                "UPDATE sites SET rest_until = max(rest_until, ?), asked_interval = coalesce(?, asked_interval) "
                "WHERE number = ?",
                (
                    now + rest.total_seconds() if rest else 0.0,
                    interval.total_seconds() if interval is not None else None,
                    number,
                ),
            )
            if interval is None or not worker:
                return True
            (holder,) = connection.execute(_HOLD, (worker, number)).fetchone()
            return holder in (worker, None)

        return await self._database.write(write)

    async def clear(self, site: str, rest: timedelta) -> int:
        def write(connection: sqlite3.Connection) -> int:
            until, number = self._clock.now() + rest.total_seconds(), self._rows.site(connection, site)
            connection.execute(_CLEAR, (until, number))
            return owed_turns(connection, number)

        return await self._database.write(write)

    async def too_often(self, site: str, *, rest: timedelta, worker: str = "") -> timedelta | None:
        def write(connection: sqlite3.Connection) -> float | None:
            now, number = self._clock.now(), self._rows.site(connection, site)
            asked, *known, rest_until = connection.execute(_PACE, (number,)).fetchone()
            own = self._terms_for(site).spacing(asked)
            learned = after_refusal(
                LearnedPace(interval=known[0], refused_at=known[1], between=known[2]),
                own=own, now=now, rest_until=rest_until,
            )  # fmt: skip
            until = now + rest.total_seconds() if rest else 0.0
            connection.execute(_LEARN, (learned.interval, learned.refused_at, learned.between, until, number))
            if worker and learned.interval is not None:
                connection.execute(_HOLD, (worker, number))
            return learned.now(now)

        found = await self._database.write(write)
        return timedelta(seconds=found) if found is not None else None

    async def site_away(self, site: str, failure: SiteFailure, terms: AwayTerms) -> AwayVerdict:
        def write(connection: sqlite3.Connection) -> AwayVerdict:
            now, number = self._clock.now(), self._rows.site(connection, site)
            *known, rest_until, asked = connection.execute(_AWAY, (number,)).fetchone()
            note, verdict = after_failure(
                AwayNote(**dict(zip(AwayNote.__struct_fields__, known, strict=True))),
                failure,
                terms,
                now=now,
                rest_until=rest_until,
                interval=self._terms_for(site).spacing(asked) or 0.0,
            )
            rest = now + verdict.pause.total_seconds() if verdict.pause else 0.0
            connection.execute(_GONE, (*msgspec.structs.astuple(note), rest, number))
            return verdict

        return await self._database.write(write)

    async def site_back(self, site: str) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_ANSWERED, (self._clock.now(), self._rows.site(connection, site)))

        await self._database.write(write)

    def _settle(
        self,
        connection: sqlite3.Connection,
        lease: Lease,
        now: float,
        paced_ahead: timedelta,
        keeps_note: bool = False,
        **columns: str | float | None,
    ) -> int:
        """Write the result of a leased URL that is not done, and free its slot. Returns the number of the job. Raises
        LeaseLost before anything is changed."""
        if not connection.execute(_END_LEASE, (lease.task.id, lease.token, now)).rowcount:
            raise _lost(lease)
        changed = {**columns, "changed_at": now}
        names = ", ".join(f"{name} = ?" for name in changed)
        if keeps_note:
            names = names.replace("reason = ?", f"reason = iif(reason = '{SENT}', reason, ?)")
        job, site = connection.execute(
            f"UPDATE urls SET {names} WHERE number = ? RETURNING job, site",  # noqa: S608 - our own names
            (*changed.values(), lease.task.id),
        ).fetchone()
        free_slots(connection, site, next_at=now + paced_ahead.total_seconds())
        keep_own_pace(connection, lease, job, site, now + paced_ahead.total_seconds())
        return int(job)


def keep_own_pace(connection: sqlite3.Connection, lease: Lease, job: int, site: int, next_at: float) -> None:
    """Note how far the job's own bucket at the site is drawn, if it has one; `next_at` is that of the site."""
    if lease.pace is not None and lease.pace.gap:
        connection.execute(
            "UPDATE job_paces SET next_at = max(next_at, ?) WHERE job = ? AND site = ?",
            (next_at + lease.pace.gap, job, site),
        )


def _lost(lease: Lease) -> LeaseLost:
    return LeaseLost(f"The lease on {lease.task.url} has expired or was given to another worker; nothing was changed.")
