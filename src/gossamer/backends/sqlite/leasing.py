"""Handing out work: which queue is next, what its site allows, which tasks it gives. Runs inside a transaction.

Cost does not grow with the queue: ready queues are read best first by index, sleeping ones are found by their
wake-up time, and queues that wait for a slot are not looked at until one is given back.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from ...frontier.contract import LeaseBatch
from ...frontier.politeness import HEAD_START, TermsFor, after_start, earliest_start
from ...model.task import Lease, Pace, Task
from .ledger import MICROSECONDS, JobRow, Ledger, Tally

ORPHAN_CHECK = timedelta(seconds=2)  # how often dead neighbours are looked for
RECLAIM_AT_ONCE = 500

_TASKS = """
SELECT number, url, fingerprint, kind, priority, depth, attempts, max_attempts, created_at, data, redirects,
    fetcher, proxy_pool, country, token, deliveries
FROM urls WHERE job = ? AND site = ? AND state = 'queued' ORDER BY priority DESC, turn LIMIT ?"""


class Counter:
    """The lease verb. `is_gone(worker)` tells for certain that a worker's process does not exist any more."""

    def __init__(
        self, ledger: Ledger, *, duration: timedelta, terms_for: TermsFor, is_gone: Callable[[str], bool]
    ) -> None:
        self._ledger = ledger
        self._duration = duration.total_seconds()
        self._terms_for = terms_for
        self._is_gone = is_gone
        self._orphans_checked = -math.inf

    def lease(self, connection: sqlite3.Connection, job: JobRow, worker: str, n: int, now: float) -> LeaseBatch:
        self._reclaim(connection, worker, now)
        state, sealed, queued, waiting, leased, used, terms = connection.execute(
            "SELECT state, sealed, queued, waiting, leased, done + unchanged + dead + leased - redirected, terms "
            "FROM jobs WHERE number = ?",
            (job.number,),
        ).fetchone()
        if terms != job.text:  # whoever opened the job again may have changed its limit
            job = self._ledger.renew(connection, job.id)
        if state != "running":
            return LeaseBatch(drained=True)
        room = n if job.terms.limit is None else min(n, job.terms.limit - used)
        if room <= 0:
            return LeaseBatch(drained=leased == 0, wait=None)
        if waiting:
            self._promote(connection, job, now)
        elif sealed and not queued and not leased:
            return LeaseBatch(drained=True)
        connection.execute(
            "UPDATE queues SET state = 'ready', wake_at = NULL WHERE job = ? AND state = 'sleeping' AND wake_at <= ?",
            (job.number, now),
        )
        connection.execute(
            "UPDATE queues SET state = 'ready', held_for = NULL WHERE state = 'held' AND held_for = ?", (worker,)
        )
        leases = self._serve_best(connection, job, worker, room, now)
        if leases:
            Tally(queued=-len(leases), leased=len(leases)).write(connection, job.number)
            return LeaseBatch(leases=tuple(leases))
        return LeaseBatch(wait=self._next_chance(connection, job, now))

    def _serve_best(self, connection: sqlite3.Connection, job: JobRow, worker: str, n: int, now: float) -> list[Lease]:
        leases: list[Lease] = []
        while len(leases) < n:
            wanted = n - len(leases)
            ready = connection.execute(
                "SELECT site, priority FROM queues WHERE job = ? AND state = 'ready' "
                "ORDER BY priority DESC, turn LIMIT ?",
                (job.number, wanted),
            ).fetchall()
            if not ready:
                break
            best = ready[0][1]
            tied = [site for site, priority in ready if priority == best]
            # A lone queue may give tasks below its best priority at once: nobody else could go before them.
            floor = best if len(ready) > 1 else None
            share = max(1, wanted // len(tied))
            for site in tied:
                wanted = n - len(leases)
                if wanted <= 0:
                    break
                leases += self._serve(connection, job, site, worker, min(share, wanted), floor, now)
        return leases

    def _serve(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        worker: str,
        n: int,
        floor: int | None,
        now: float,
    ) -> list[Lease]:
        """Take up to `n` tasks of one site if it allows; else put its queue where it will be woken from."""
        name, next_at, rest_until, asked, in_flight, holder = connection.execute(
            "SELECT name, next_at, rest_until, asked_interval, in_flight, holder FROM sites WHERE number = ?",
            (site,),
        ).fetchone()
        terms = self._terms_for(name)
        if rest_until > now:
            return self._sleep(connection, job, site, rest_until)
        if terms.concurrency is not None:
            n = min(n, terms.concurrency - in_flight)
            if n <= 0:
                return self._wait_for_slot(connection, job, site)
        interval, burst = terms.spacing(asked), terms.burst_under(asked)
        if interval is not None:
            if in_flight and holder != worker:
                return self._leave_to(connection, job, site, holder)
            turn = earliest_start(next_at, interval=interval, burst=burst) - HEAD_START.total_seconds()
            if turn > now:
                return self._sleep(connection, job, site, turn)
            n = min(n, burst)
            if interval > 0:
                n = min(n, int((now - turn) / interval) + 1)
        rows = connection.execute(_TASKS, (job.number, site, n + 1)).fetchall()
        taken = [row for row in rows[:n] if floor is None or row[4] >= floor]
        leases = []
        for row in taken:
            pace = None
            if interval is not None:
                next_at = after_start(next_at, start=now, interval=interval)
                pace = Pace(interval, burst, next_at - now)
            leases.append(self._lease_of(job, name, row, now, pace))
        connection.executemany(
            "UPDATE urls SET state = 'leased', token = ?, deliveries = deliveries + 1, worker = ?, lease_until = ?, "
            "changed_at = ? WHERE number = ?",
            [(lease.token, worker, lease.expires_at, now, lease.task.id) for lease in leases],
        )
        connection.execute(
            "UPDATE sites SET in_flight = in_flight + ?, next_at = ?, holder = ? WHERE number = ?",
            (len(leases), next_at, worker if interval is not None else None, site),
        )
        rest = rows[len(taken) :]
        connection.execute(
            "UPDATE queues SET state = ?, priority = ?, turn = ? WHERE job = ? AND site = ?",
            (
                "ready" if rest else "empty",
                rest[0][4] if rest else 0,
                int(now * MICROSECONDS),
                job.number,
                site,
            ),
        )
        return leases

    def _lease_of(self, job: JobRow, site: str, row: tuple[Any, ...], now: float, pace: Pace | None) -> Lease:
        # Any: the types of a row are those of the schema, which is STRICT.
        (number, url, fingerprint, kind, priority, depth, attempts, max_attempts, created_at, data, redirects,
         fetcher, proxy_pool, country, token, deliveries) = row  # fmt: skip
        task = Task(
            id=number,
            job=job.id,
            url=url,
            fingerprint=fingerprint,
            site=site,
            kind=kind,
            priority=priority,
            depth=depth,
            attempt=attempts,
            max_attempts=max_attempts,
            created_at=created_at,
            data=data,
            redirects=msgspec.json.decode(redirects, type=tuple[str, ...]) if redirects else (),
            fetcher=fetcher,
            proxy_pool=proxy_pool,
            country=country,
        )
        return Lease(
            task=task,
            token=token + 1,
            delivery=deliveries + 1,
            expires_at=now + self._duration,
            pace=pace,
        )

    def _sleep(self, connection: sqlite3.Connection, job: JobRow, site: int, until: float) -> list[Lease]:
        connection.execute(
            "UPDATE queues SET state = 'sleeping', wake_at = ? WHERE job = ? AND site = ?",
            (until, job.number, site),
        )
        return []

    def _wait_for_slot(self, connection: sqlite3.Connection, job: JobRow, site: int) -> list[Lease]:
        connection.execute("UPDATE queues SET state = 'full' WHERE job = ? AND site = ?", (job.number, site))
        return []

    def _leave_to(self, connection: sqlite3.Connection, job: JobRow, site: int, holder: str) -> list[Lease]:
        connection.execute(
            "UPDATE queues SET state = 'held', held_for = ? WHERE job = ? AND site = ?", (holder, job.number, site)
        )
        return []

    def _promote(self, connection: sqlite3.Connection, job: JobRow, now: float) -> None:
        """Tasks whose waiting time is over join their queue again, behind those of equal priority."""
        due = connection.execute(
            "SELECT number, site, priority FROM urls WHERE job = ? AND state = 'waiting' AND due_at <= ? "
            "ORDER BY due_at LIMIT ?",
            (job.number, now, RECLAIM_AT_ONCE),
        ).fetchall()
        if not due:
            return
        turn = int(now * MICROSECONDS)
        connection.executemany(
            "UPDATE urls SET state = 'queued', due_at = NULL, turn = ? WHERE number = ?",
            [(turn, number) for number, _, _ in due],
        )
        for _, site, priority in due:
            self._ledger.requeue(connection, job.number, site, priority, now)
        Tally(waiting=-len(due), queued=len(due)).write(connection, job.number)

    def _next_chance(self, connection: sqlite3.Connection, job: JobRow, now: float) -> timedelta | None:
        row = connection.execute(
            "SELECT min(at) FROM ("
            " SELECT min(wake_at) AS at FROM queues WHERE job = :job AND state = 'sleeping'"
            " UNION ALL SELECT min(due_at) FROM urls WHERE job = :job AND state = 'waiting'"
            " UNION ALL SELECT min(lease_until) FROM urls WHERE state = 'leased')",
            {"job": job.number},
        ).fetchone()
        return None if row[0] is None else timedelta(seconds=max(0.0, row[0] - now))

    def _reclaim(self, connection: sqlite3.Connection, worker: str, now: float) -> None:
        """Take back what expired, and what belongs to workers of this machine that are gone."""
        lapsed = connection.execute(
            "SELECT number FROM urls WHERE state = 'leased' AND lease_until <= ? LIMIT ?", (now, RECLAIM_AT_ONCE)
        ).fetchall()
        for (number,) in lapsed:
            self._take_back(connection, number, now, "stopped renewing its lease")
        if now - self._orphans_checked >= ORPHAN_CHECK.total_seconds():
            self._orphans_checked = now
            owners = connection.execute("SELECT DISTINCT worker FROM urls WHERE state = 'leased'").fetchall()
            for (owner,) in owners:
                if owner != worker and self._is_gone(owner):
                    orphans = connection.execute(
                        "SELECT number FROM urls WHERE state = 'leased' AND worker = ?", (owner,)
                    ).fetchall()
                    for (number,) in orphans:
                        self._take_back(connection, number, now, "died")

    def _take_back(self, connection: sqlite3.Connection, number: int, now: float, fate: str) -> None:
        job, job_id, site, name, asked, priority, deliveries, worker = connection.execute(
            "SELECT urls.job, jobs.id, urls.site, sites.name, sites.asked_interval, urls.priority, urls.deliveries, "
            "urls.worker FROM urls JOIN jobs ON jobs.number = urls.job JOIN sites ON sites.number = urls.site "
            "WHERE urls.number = ?",
            (number,),
        ).fetchone()
        terms = self._ledger.job(connection, job_id).terms
        tally = Tally(leased=-1)
        if deliveries >= terms.max_deliveries:
            message = f"{deliveries} workers in a row died or hung while they had this page."
            connection.execute(
                "UPDATE urls SET state = 'dead', reason = 'poison', message = ?, worker = NULL, lease_until = NULL, "
                "changed_at = ? WHERE number = ?",
                (message, now, number),
            )
            tally.dead += 1
        else:
            connection.execute(
                "UPDATE urls SET state = 'queued', turn = ?, worker = NULL, lease_until = NULL, changed_at = ? "
                "WHERE number = ?",
                (int(now * MICROSECONDS), now, number),
            )
            tally.queued += 1
            self._ledger.requeue(connection, job, site, priority, now)
        self._ledger.note(connection, number, now, f"{worker} {fate}; delivery {deliveries} of {terms.max_deliveries}")
        # The lost worker may have sent its request up to this very moment: the next one keeps its distance.
        interval = self._terms_for(name).spacing(asked)
        self._ledger.free_slot(connection, site, next_at=now + interval if interval is not None else 0.0)
        tally.write(connection, job)
