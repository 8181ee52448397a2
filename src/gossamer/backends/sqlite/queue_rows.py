"""The rows of the queue, and the steps on them that several verbs share. Runs inside a transaction.

Every step keeps three things true: a job's counters equal the number of its rows in each state, a site's
`in_flight` equals its leased rows, and a queue is `ready` whenever it might have a task to give.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ...errors import Permanent
from ...frontier.contract import Added, JobTerms
from ...model.job import summed_stats
from ...model.task import Candidate, DropReason, UrlState

MICROSECONDS = 1_000_000
SITES_CACHED = 50_000

# Columns of `urls` that are named after fields of Candidate.
_FIELDS = (
    "priority", "depth", "kind", "data", "redirects", "fetcher", "proxy_pool", "country", "how", "max_attempts",
)  # fmt: skip

_INSERT_URL = f"""
INSERT OR IGNORE INTO urls (job, site, state, reason, turn, fingerprint, url, found_on, created_at, changed_at,
    {", ".join(_FIELDS)})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?{", ?" * len(_FIELDS)})"""  # noqa: S608 - our own names

_READMIT = f"""
UPDATE urls SET state = 'queued', reason = '', message = '', attempts = 0, deliveries = 0, turn = ?, created_at = ?,
    changed_at = ?, {", ".join(f"{name} = ?" for name in _FIELDS)}
WHERE job = ? AND site = ? AND fingerprint = ? AND (
    (state IN ('done', 'unchanged', 'dead') AND (? OR created_at <= ?))
    OR (state = 'dropped' AND reason IN ('depth', 'full')))"""  # noqa: S608 - our own names

_FEED_QUEUE = """
INSERT INTO queues (job, site, lane, state, priority, turn, taken) VALUES (?, ?, ?, 'ready', ?, ?, ?)
ON CONFLICT (job, site, lane) DO UPDATE SET
    taken = taken + excluded.taken,
    priority = CASE state WHEN 'empty' THEN excluded.priority ELSE max(priority, excluded.priority) END,
    state = CASE state WHEN 'empty' THEN 'ready' ELSE state END"""

_TAKE_SHAPE = """
INSERT INTO shapes (job, site, shape, taken) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET taken = excluded.taken"""


class CountChanges(Counter[str]):
    """Changes of a job's counters, which are columns of `jobs`: gathered during a verb and written once."""

    def move(self, before: str, after: str) -> None:
        self[before] -= 1
        self[after] += 1

    def write(self, connection: sqlite3.Connection, job: int) -> None:
        changed = sorted((name, change) for name, change in self.items() if change)
        if changed:
            columns = ", ".join(f"{name} = {name} + ?" for name, _ in changed)
            values = (*(change for _, change in changed), job)
            connection.execute(f"UPDATE jobs SET {columns} WHERE number = ?", values)  # noqa: S608 - our own names


class JobRow(msgspec.Struct, frozen=True):
    number: int
    id: str
    terms: JobTerms
    text: str  # the terms as they are stored


class QueueRows:
    """Steps on the rows, with a cache of the few look-ups that never change."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobRow] = {}
        self._sites: dict[str, int] = {}

    def forget(self) -> None:
        """Called after a rollback: cached rows may not exist."""
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
        """Read the job's terms again."""
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
        counts: CountChanges,
        given_up: str = "",
    ) -> Added:
        """Enter candidates: each becomes queued, or dropped with a reason, or is counted as a duplicate.

        `given_up` is the reason why no candidate may be queued any more.
        """
        terms = job.terms
        room = self._room(connection, job) if candidates else None
        turn = int(now * MICROSECONDS)
        queued = duplicates = dropped = 0
        fed: dict[tuple[int, str | None], tuple[int, int]] = {}  # (site, lane) -> (best priority, how many)
        taken: dict[int, int] = {}  # site -> taken so far, where there is a budget
        shapes: dict[tuple[int, str], int] = {}  # (site, shape) -> taken so far
        for candidate in candidates:
            site = self.site(connection, candidate.site)
            reason = candidate.dropped.value if candidate.dropped else given_up
            if not reason and room is not None and queued >= room:
                reason = DropReason.FULL.value
            state, why = (UrlState.DROPPED, reason) if reason else (UrlState.QUEUED, "")
            entered = connection.execute(
                _INSERT_URL,
                (
                    job.number, site, state.value, why, turn, candidate.fingerprint, candidate.url, found_on, now, now,
                    *_values(candidate, terms),
                ),
            ).rowcount  # fmt: skip
            which = (site, candidate.fetcher)
            if not entered:
                if not reason and self._readmit(connection, job, site, candidate, now, counts):
                    queued += 1
                    fed[which] = _better(fed.get(which), candidate.priority, 0)
                duplicates += 1
                continue
            if not reason and self._over_budget(connection, job, site, candidate, taken, shapes):
                connection.execute(
                    "UPDATE urls SET state = 'dropped', reason = 'trap' WHERE job = ? AND site = ? AND fingerprint = ?",
                    (job.number, site, candidate.fingerprint),
                )
                reason = DropReason.TRAP.value
            if reason:
                dropped += 1
                continue
            queued += 1
            fed[which] = _better(fed.get(which), candidate.priority, 1)
            if site in taken:
                taken[site] += 1
        for (site, lane), (priority, count) in fed.items():
            connection.execute(_FEED_QUEUE, (job.number, site, lane or "", priority, turn, count))
        connection.executemany(_TAKE_SHAPE, [(job.number, *which, taken) for which, taken in shapes.items()])
        counts.update(discovered=len(candidates), duplicates=duplicates, queued=queued, dropped=dropped)
        return Added(queued=queued, duplicates=duplicates, dropped=dropped)

    def _readmit(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        candidate: Candidate,
        now: float,
        counts: CountChanges,
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
                int(now * MICROSECONDS), now, now, *_values(candidate, job.terms), job.number, site,
                candidate.fingerprint, candidate.force, before,
            ),
        ).rowcount  # fmt: skip
        if not changed:
            return False
        # It was counted in its old state; the caller counts it as queued.
        counts[row[0]] -= 1
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
        taken: dict[int, int],
        shapes: dict[tuple[int, str], int],
    ) -> bool:
        """Has the job reached its budget for the site, or for paths of this shape?"""
        terms = job.terms
        if candidate.force:
            return False
        if terms.max_urls_per_site is not None:
            if site not in taken:
                taken[site] = connection.execute(
                    "SELECT coalesce(sum(taken), 0) FROM queues WHERE job = ? AND site = ?", (job.number, site)
                ).fetchone()[0]
            if taken[site] >= terms.max_urls_per_site:
                return True
        if terms.max_urls_per_pattern is not None:
            which = (site, candidate.shape)
            of_shape = shapes.get(which)
            if of_shape is None:
                row = connection.execute(
                    "SELECT taken FROM shapes WHERE job = ? AND site = ? AND shape = ?", (job.number, *which)
                ).fetchone()
                of_shape = row[0] if row else 0
            if of_shape >= terms.max_urls_per_pattern:
                return True
            shapes[which] = of_shape + 1
        return False

    def free_slot(
        self, connection: sqlite3.Connection, site: int, *, next_at: float, answered_at: float | None = None
    ) -> None:
        """Free the slot of a lease that has ended, and wake the queues that wait for one. `answered_at`: the site is
        there."""
        connection.execute(
            "UPDATE sites SET in_flight = in_flight - 1, next_at = max(next_at, ?1), "
            "holder = CASE WHEN in_flight <= 1 THEN NULL ELSE holder END, answered_at = coalesce(?2, answered_at), "
            "strikes = iif(?2 IS NULL, strikes, 0), given_up_until = iif(?2 IS NULL, given_up_until, 0) "
            "WHERE number = ?3",
            (next_at, answered_at, site),
        )
        connection.execute(
            "UPDATE queues SET state = 'ready', held_for = NULL WHERE site = ? AND state IN ('full', 'held')", (site,)
        )

    def requeue(
        self, connection: sqlite3.Connection, job: int, site: int, lane: str | None, priority: int, now: float
    ) -> None:
        """Wake the queue of a task that is queued again."""
        connection.execute(_FEED_QUEUE, (job, site, lane or "", priority, int(now * MICROSECONDS), 0))

    def add_stats(self, connection: sqlite3.Connection, job: int, stats: Mapping[str, int]) -> None:
        """Add to what the spider of the job counts."""
        (text,) = connection.execute("SELECT stats FROM jobs WHERE number = ?", (job,)).fetchone()
        sums = summed_stats(msgspec.json.decode(text, type=dict[str, int]), stats)
        connection.execute("UPDATE jobs SET stats = ? WHERE number = ?", (msgspec.json.encode(sums).decode(), job))

    def note(self, connection: sqlite3.Connection, url: int, now: float, what: str) -> None:
        connection.execute("INSERT INTO incidents (url, at, what) VALUES (?, ?, ?)", (url, now, what))


def _values(candidate: Candidate, terms: JobTerms) -> tuple[str | int | None, ...]:
    """The values of `_FIELDS`."""
    return (
        candidate.priority, candidate.depth, candidate.kind, candidate.data,
        msgspec.json.encode(candidate.redirects).decode() if candidate.redirects else "",
        candidate.fetcher or None, candidate.proxy_pool, candidate.country, candidate.how,
        candidate.max_attempts or terms.max_attempts,
    )  # fmt: skip


def _better(known: tuple[int, int] | None, priority: int, count: int) -> tuple[int, int]:
    if known is None:
        return priority, count
    return max(known[0], priority), known[1] + count
