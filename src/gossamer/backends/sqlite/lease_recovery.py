"""Recovery of leases that will not be settled: expired leases, and leases of workers that died.

Runs inside a transaction. The task returns to the queue of its lane, unless it was delivered too often.

The machine's clock may have been ahead and then been set back. A lease from that time would be valid for too long: a
lease that ends later than any lease can is taken from its holder. Tasks waiting since that time wait from now on.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from datetime import timedelta

from ...frontier.politeness import TermsFor
from .queue_rows import CountChanges, QueueRows, free_slots

ORPHAN_CHECK = timedelta(seconds=2)  # how often workers of this machine are checked
RECLAIM_AT_ONCE = 500
TOO_FAR = timedelta(hours=1)  # times further ahead than this were written while the clock was ahead

_LAPSED = """
SELECT url FROM leases WHERE until <= :now UNION ALL SELECT url FROM leases WHERE until > :longest LIMIT :most"""

_WAIT_FROM_NOW = """
UPDATE urls SET due_at = :now + max(0.0, due_at - changed_at), changed_at = :now
WHERE state = 'w' AND due_at > :far AND changed_at > :far"""


class LeaseRecovery:
    """`is_gone(worker)` is True if the worker's process certainly no longer exists. `duration` is that of our own
    leases; other workers may have settings with a longer one."""

    def __init__(
        self, queue_rows: QueueRows, *, duration: float, terms_for: TermsFor, is_gone: Callable[[str], bool]
    ) -> None:
        self._rows = queue_rows
        self._longest = max(2 * duration, TOO_FAR.total_seconds())
        self._latest = math.inf  # the time of the last look; at first every time is earlier
        self._terms_for = terms_for
        self._is_gone = is_gone
        self._orphans_checked = -math.inf

    def recover(self, connection: sqlite3.Connection, worker: str, now: float) -> None:
        """Take back expired leases, and leases of dead workers of this machine."""
        if now < self._latest:
            self._forget_wrong_times(connection, now)
        self._latest = now
        lapsed = connection.execute(
            _LAPSED, {"now": now, "longest": now + self._longest, "most": RECLAIM_AT_ONCE}
        ).fetchall()
        for (number,) in lapsed:
            self._take_back(connection, number, now, "stopped renewing its lease")
        if not 0 <= now - self._orphans_checked < ORPHAN_CHECK.total_seconds():
            self._orphans_checked = now
            owners = connection.execute("SELECT DISTINCT worker FROM leases").fetchall()
            for (owner,) in owners:
                if owner != worker and self._is_gone(owner):
                    orphans = connection.execute("SELECT url FROM leases WHERE worker = ?", (owner,)).fetchall()
                    for (number,) in orphans:
                        self._take_back(connection, number, now, "died")

    def _forget_wrong_times(self, connection: sqlite3.Connection, now: float) -> None:
        """The clock was set back, perhaps before this process started. Rare, because it reads every waiting task."""
        far = now + TOO_FAR.total_seconds()
        connection.execute(_WAIT_FROM_NOW, {"now": now, "far": far})
        connection.execute(
            "UPDATE queues SET state = 'ready', wake_at = NULL WHERE state = 'sleeping' AND wake_at > ?", (far,)
        )

    def _take_back(self, connection: sqlite3.Connection, number: int, now: float, fate: str) -> None:
        job, job_id, site, name, asked, lane, priority, deliveries, worker = connection.execute(
            "SELECT urls.job, jobs.id, urls.site, sites.name, "
            "nullif(max(coalesce(asked_interval, -1), coalesce(learned_interval, -1)), -1), "
            "urls.fetcher, urls.priority, urls.deliveries, leases.worker FROM leases "
            "JOIN urls ON urls.number = leases.url JOIN jobs ON jobs.number = urls.job "
            "JOIN sites ON sites.number = urls.site WHERE leases.url = ?",
            (number,),
        ).fetchone()
        connection.execute("DELETE FROM leases WHERE url = ?", (number,))
        terms = self._rows.job(connection, job_id).terms
        counts = CountChanges(leased=-1)
        # Delivered once more after that, the worker buries it and calls the spider's errback; unless that worker dies
        # too.
        if deliveries > terms.max_deliveries:
            message = f"{deliveries} workers in a row died or hung while they had this page."
            connection.execute(
                "UPDATE urls SET state = 'x', reason = 'poison', message = ?, changed_at = ? WHERE number = ?",
                (message, now, number),
            )
            counts["dead"] += 1
        else:
            connection.execute("UPDATE urls SET state = 'q', changed_at = ? WHERE number = ?", (now, number))
            counts["queued"] += 1
            self._rows.requeue(connection, job, site, lane, priority, now)
        self._rows.note(connection, number, now, f"{worker} {fate}; delivery {deliveries} of {terms.max_deliveries}")
        # The lost worker may have sent its request just now: the next request keeps its distance.
        interval = self._terms_for(name).spacing(asked)
        free_slots(connection, site, next_at=now + interval if interval is not None else 0.0)
        connection.execute(
            "UPDATE job_paces SET next_at = max(next_at, ? + interval) WHERE job = ? AND site = ?", (now, job, site)
        )
        counts.write(connection, job)
