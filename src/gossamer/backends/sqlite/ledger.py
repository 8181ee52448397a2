"""The rows behind the frontier and the small steps that several verbs share. Runs inside a transaction.

Every step keeps three things true: a job's counters equal the number of its rows in each state, a site's
`in_flight` equals its leased rows, and a queue is `ready` whenever it might have a task to give.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from ...errors import Permanent
from ...frontier.contract import Added, JobTerms
from ...model.task import Candidate, DropReason, UrlState

MICROSECONDS = 1_000_000
SITES_CACHED = 50_000

_INSERT_URL = """
INSERT OR IGNORE INTO urls (job, site, state, reason, priority, turn, depth, fingerprint, url, kind, found_on,
    created_at, changed_at, max_attempts, data, redirects, fetcher, proxy_pool, country)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""

_READMIT = """
UPDATE urls SET state = 'queued', reason = '', message = '', priority = ?, turn = ?, depth = ?, kind = ?, data = ?,
    attempts = 0, deliveries = 0, changed_at = ?, created_at = ?, redirects = ?
WHERE job = ? AND site = ? AND fingerprint = ? AND (
    (state IN ('done', 'unchanged', 'dead') AND (? OR created_at <= ?))
    OR (state = 'dropped' AND reason IN ('depth', 'full')))"""

_FEED_QUEUE = """
INSERT INTO queues (job, site, state, priority, turn, taken) VALUES (?, ?, 'ready', ?, ?, ?)
ON CONFLICT (job, site) DO UPDATE SET
    taken = taken + excluded.taken,
    priority = CASE state WHEN 'empty' THEN excluded.priority ELSE max(priority, excluded.priority) END,
    state = CASE state WHEN 'empty' THEN 'ready' ELSE state END"""

_TAKE_SHAPE = """
INSERT INTO shapes (job, site, shape, taken) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET taken = excluded.taken"""

_COUNT = """
UPDATE jobs SET discovered = discovered + ?, duplicates = duplicates + ?, queued = queued + ?,
    waiting = waiting + ?, leased = leased + ?, done = done + ?, unchanged = unchanged + ?, dropped = dropped + ?,
    dead = dead + ?, retries = retries + ?, redirected = redirected + ?
WHERE number = ?"""


class Tally(msgspec.Struct):
    """Changes of a job's counters, gathered during a verb and written once."""

    discovered: int = 0
    duplicates: int = 0
    queued: int = 0
    waiting: int = 0
    leased: int = 0
    done: int = 0
    unchanged: int = 0
    dropped: int = 0
    dead: int = 0
    retries: int = 0
    redirected: int = 0

    def move(self, before: str, after: str) -> None:
        setattr(self, before, getattr(self, before) - 1)
        setattr(self, after, getattr(self, after) + 1)

    def write(self, connection: sqlite3.Connection, job: int) -> None:
        connection.execute(_COUNT, (*msgspec.structs.astuple(self), job))


class JobRow(msgspec.Struct, frozen=True):
    number: int
    id: str
    terms: JobTerms
    text: str  # the terms as they are written


class Ledger:
    """Steps on the state file, with the few look-ups that never change kept in memory."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobRow] = {}
        self._sites: dict[str, int] = {}

    def forget(self) -> None:
        """A transaction was undone: what was read in it may not exist."""
        self._jobs.clear()
        self._sites.clear()

    def job(self, connection: sqlite3.Connection, job: str) -> JobRow:
        """The job's number and terms. Raises Permanent for an unknown job."""
        found = self._jobs.get(job)
        if found is None:
            row = connection.execute("SELECT number, terms FROM jobs WHERE id = ?", (job,)).fetchone()
            if row is None:
                raise Permanent(f"There is no job {job!r}. `gossamer status` lists the jobs.")
            found = JobRow(row[0], job, msgspec.json.decode(row[1], type=JobTerms), row[1])
            self._jobs[job] = found
        return found

    def renew(self, connection: sqlite3.Connection, job: str) -> JobRow:
        """Read the job's terms anew."""
        self._jobs.pop(job, None)
        return self.job(connection, job)

    def site(self, connection: sqlite3.Connection, name: str) -> int:
        """The site's number; a new site gets a row."""
        number = self._sites.get(name)
        if number is None:
            row = connection.execute("SELECT number FROM sites WHERE name = ?", (name,)).fetchone()
            if row is None:
                row = connection.execute("INSERT INTO sites (name) VALUES (?) RETURNING number", (name,)).fetchone()
            number = int(row[0])
            if len(self._sites) >= SITES_CACHED:
                self._sites.clear()
            self._sites[name] = number
        return number

    def admit(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        candidates: Sequence[Candidate],
        *,
        found_on: int | None,
        now: float,
        tally: Tally,
    ) -> Added:
        """Enter candidates: each becomes queued, or dropped with a reason, or is counted as a duplicate."""
        terms = job.terms
        room = self._room(connection, job) if candidates else None
        turn = int(now * MICROSECONDS)
        queued = duplicates = dropped = 0
        fed: dict[int, tuple[int, int]] = {}  # site -> (best priority, how many)
        shapes: dict[tuple[int, str], int] = {}  # (site, shape) -> taken so far
        for candidate in candidates:
            site = self.site(connection, candidate.site)
            reason = candidate.dropped
            if reason is None and room is not None and queued >= room:
                reason = DropReason.FULL
            state = UrlState.QUEUED if reason is None else UrlState.DROPPED
            entered = connection.execute(
                _INSERT_URL,
                (
                    job.number, site, state.value, reason.value if reason else "", candidate.priority, turn,
                    candidate.depth, candidate.fingerprint, candidate.url, candidate.kind, found_on, now, now,
                    candidate.max_attempts or terms.max_attempts, candidate.data,
                    msgspec.json.encode(candidate.redirects).decode() if candidate.redirects else "",
                    candidate.fetcher, candidate.proxy_pool, candidate.country,
                ),
            ).rowcount  # fmt: skip
            if not entered:
                if reason is None and self._readmit(connection, job, site, candidate, now, tally):
                    queued += 1
                    fed[site] = _better(fed.get(site), candidate.priority, 0)
                duplicates += 1
                continue
            if reason is None and self._over_budget(connection, job, site, candidate, fed, shapes):
                connection.execute(
                    "UPDATE urls SET state = 'dropped', reason = 'trap' WHERE job = ? AND site = ? AND fingerprint = ?",
                    (job.number, site, candidate.fingerprint),
                )
                reason = DropReason.TRAP
            if reason is not None:
                dropped += 1
                continue
            queued += 1
            fed[site] = _better(fed.get(site), candidate.priority, 1)
        for site, (priority, count) in fed.items():
            connection.execute(_FEED_QUEUE, (job.number, site, priority, turn, count))
        connection.executemany(_TAKE_SHAPE, [(job.number, *which, taken) for which, taken in shapes.items()])
        tally.discovered += len(candidates)
        tally.duplicates += duplicates
        tally.queued += queued
        tally.dropped += dropped
        return Added(queued=queued, duplicates=duplicates, dropped=dropped)

    def _readmit(
        self, connection: sqlite3.Connection, job: JobRow, site: int, candidate: Candidate, now: float, tally: Tally
    ) -> bool:
        """A known URL may enter again: by force, after the dedup window, or with a shorter path to it."""
        window = job.terms.dedup_window
        before = now - window.total_seconds() if window is not None else -1.0
        row = connection.execute(
            "SELECT state FROM urls WHERE job = ? AND site = ? AND fingerprint = ?",
            (job.number, site, candidate.fingerprint),
        ).fetchone()
        if row is None or UrlState(row[0]).open:
            return False
        changed = connection.execute(
            _READMIT,
            (
                candidate.priority, int(now * MICROSECONDS), candidate.depth, candidate.kind, candidate.data, now,
                now, msgspec.json.encode(candidate.redirects).decode() if candidate.redirects else "",
                job.number, site, candidate.fingerprint, candidate.force, before,
            ),
        ).rowcount  # fmt: skip
        if not changed:
            return False
        # It was counted in its old state; the caller counts it as queued.
        setattr(tally, row[0], getattr(tally, row[0]) - 1)
        return True

    def _room(self, connection: sqlite3.Connection, job: JobRow) -> int | None:
        if job.terms.max_queued is None:
            return None
        row = connection.execute("SELECT queued + waiting FROM jobs WHERE number = ?", (job.number,)).fetchone()
        return max(0, job.terms.max_queued - int(row[0]))

    def _over_budget(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        candidate: Candidate,
        fed: dict[int, tuple[int, int]],
        shapes: dict[tuple[int, str], int],
    ) -> bool:
        terms = job.terms
        if candidate.force:
            return False
        if terms.max_urls_per_site is not None:
            row = connection.execute(
                "SELECT taken FROM queues WHERE job = ? AND site = ?", (job.number, site)
            ).fetchone()
            taken = (row[0] if row else 0) + fed.get(site, (0, 0))[1]
            if taken >= terms.max_urls_per_site:
                return True
        if terms.max_urls_per_pattern is None:
            return False
        which = (site, candidate.shape)
        taken = shapes.get(which)
        if taken is None:
            row = connection.execute(
                "SELECT taken FROM shapes WHERE job = ? AND site = ? AND shape = ?", (job.number, *which)
            ).fetchone()
            taken = row[0] if row else 0
        if taken >= terms.max_urls_per_pattern:
            return True
        shapes[which] = taken + 1
        return False

    def free_slot(self, connection: sqlite3.Connection, site: int, *, next_at: float, rest_until: float = 0.0) -> None:
        """A lease of the site has ended: give its slot back, and wake the queues that waited for one."""
        connection.execute(
            "UPDATE sites SET in_flight = in_flight - 1, next_at = max(next_at, ?), rest_until = max(rest_until, ?), "
            "holder = CASE WHEN in_flight <= 1 THEN NULL ELSE holder END WHERE number = ?",
            (next_at, rest_until, site),
        )
        connection.execute(
            "UPDATE queues SET state = 'ready', held_for = NULL WHERE site = ? AND state IN ('full', 'held')", (site,)
        )

    def requeue(self, connection: sqlite3.Connection, job: int, site: int, priority: int, now: float) -> None:
        """A task of the site is queued again: its queue has work."""
        connection.execute(_FEED_QUEUE, (job, site, priority, int(now * MICROSECONDS), 0))

    def note(self, connection: sqlite3.Connection, url: int, now: float, what: str) -> None:
        connection.execute("INSERT INTO incidents (url, at, what) VALUES (?, ?, ?)", (url, now, what))


def _better(known: tuple[int, int] | None, priority: int, count: int) -> tuple[int, int]:
    if known is None:
        return priority, count
    return max(known[0], priority), known[1] + count
