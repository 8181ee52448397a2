"""The rows of the queue, and the steps on them that several methods share. Runs inside a transaction.

Every step preserves three invariants: a job's counters equal the number of its rows in each state, a site's `in_flight`
equals its leased rows, and a queue is `ready` whenever it might have a task to give.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from ...errors import Permanent
from ...frontier.contract import Added, JobTerms
from ...model.job import summed_stats
from ...model.task import NO_ROOM, NO_ROOM_DUE, Candidate, DropReason, UrlState

MICROSECONDS = 1_000_000
CACHED = 150_000  # sites, and texts that rows share: about 20 MB each
LONGEST_ORIGIN = 308  # characters of an address that are stored as a shared text

# How a row's state is stored. Only the SQL of this package uses the letters; everything else uses the words.
LETTERS = {
    UrlState.QUEUED: "q", UrlState.WAITING: "w", UrlState.LEASED: "l", UrlState.DONE: "d", UrlState.UNCHANGED: "u",
    UrlState.DROPPED: "o", UrlState.DEAD: "x",
}  # fmt: skip
STATES_BY_LETTER = {letter: state for state, letter in LETTERS.items()}

# The address of a URL is stored in two parts: the beginning is a text that many rows share.
URL = "start.text || urls.path"
WITH_URL = "JOIN texts AS start ON start.number = urls.origin"
IDENTITY = "urls.job = ? AND urls.site = ? AND substr(urls.fingerprint, 1, 4) = ? AND urls.fingerprint = ?"

# Columns of `urls` that come from a candidate.
_FIELDS = ("priority", "depth", "kind", "fetcher", "max_attempts", "extras")

_INSERT_URL = f"""
INSERT INTO urls (job, site, fingerprint, state, origin, path, reason, found_on, created_at, changed_at,
    {", ".join(_FIELDS)})
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?{", ?" * len(_FIELDS)})"""  # noqa: S608 - our own names

_KNOWN = f"SELECT number, state, reason, created_at FROM urls INDEXED BY urls_identity WHERE {IDENTITY}"  # noqa: S608

_READMIT = f"""
UPDATE urls SET state = 'q', reason = '', message = '', attempts = 0, deliveries = 0, created_at = ?, changed_at = ?,
    {", ".join(f"{name} = ?" for name in _FIELDS)} WHERE number = ?"""  # noqa: S608 - our own names

# A link for which the queue has no room.
_POSTPONE = "UPDATE urls SET state = 'w', reason = ?, due_at = ? WHERE number = ?"

_FEED_QUEUE = """
INSERT INTO queues (job, site, lane, state, priority, turn, taken) VALUES (?, ?, ?, 'ready', ?, ?, ?)
ON CONFLICT (job, site, lane) DO UPDATE SET
    taken = taken + excluded.taken,
    priority = CASE state WHEN 'empty' THEN excluded.priority ELSE max(priority, excluded.priority) END,
    state = CASE state WHEN 'empty' THEN 'ready' ELSE state END"""

_FREE = """
UPDATE sites SET in_flight = in_flight - ?4, next_at = max(next_at, ?1),
    holder = CASE WHEN in_flight <= ?4 THEN NULL ELSE holder END, answered_at = coalesce(?2, answered_at),
    strikes = iif(?2 IS NULL, strikes, 0), given_up_until = iif(?2 IS NULL, given_up_until, 0)
WHERE number = ?3"""

_TAKE_SHAPE = """
INSERT INTO shapes (job, site, shape, taken) VALUES (?, ?, ?, ?)
ON CONFLICT DO UPDATE SET taken = excluded.taken"""


class CountChanges(Counter[str]):
    """Changes of a job's counters, which are columns of `jobs`: gathered during a call and written once. `drops` are
    the changes of dropped URLs by reason."""

    def __init__(self, drops: Mapping[str, int] | None = None, /, **counts: int) -> None:
        super().__init__(counts)
        self.drops: Counter[str] = Counter(drops or {})

    def move(self, before: str, after: str) -> None:
        self[before] -= 1
        self[after] += 1

    def drop(self, reason: str, change: int = 1) -> None:
        """Count a dropped URL, or one less."""
        self["dropped"] += change
        self.drops[reason] += change

    def write(self, connection: sqlite3.Connection, job: int) -> None:
        if any(self.drops.values()):
            (text,) = connection.execute("SELECT drops FROM jobs WHERE number = ?", (job,)).fetchone()
            sums = Counter(msgspec.json.decode(text, type=dict[str, int]))
            sums.update(self.drops)
            known = {reason: count for reason, count in sorted(sums.items()) if count}
            connection.execute("UPDATE jobs SET drops = ? WHERE number = ?", (msgspec.json.encode(known).decode(), job))
        changed = sorted((name, change) for name, change in self.items() if change)
        if changed:
            columns = ", ".join(f"{name} = {name} + ?" for name, _ in changed)
            values = (*(change for _, change in changed), job)
            connection.execute(f"UPDATE jobs SET {columns} WHERE number = ?", values)  # noqa: S608 - our own names


class SharedRows:
    """Changes of rows that many pages share: the counters of their job, the slots of their site, its queues. Gathered
    during the settlements of a transaction and written once, so that a page costs only its own row."""

    def __init__(self) -> None:
        self.counts: dict[int, CountChanges] = {}  # by job
        self.fed: dict[tuple[int, int, str], tuple[int, int, int]] = {}  # (job, site, lane) -> priority, turn, how many
        self.taken: dict[tuple[int, int], int] = {}  # (job, site) -> taken so far, if there is a budget
        self.shapes: dict[tuple[int, int, str], int] = {}  # (job, site, shape) -> taken so far
        self.depths: dict[int, int] = {}  # job -> queued and waiting, as stored
        self._freed: dict[int, tuple[int, float, float | None]] = {}  # site -> slots, next_at, answered_at

    def forget(self) -> None:
        """Called after a rollback, and when everything is written."""
        for changes in (self.counts, self.fed, self.taken, self.shapes, self.depths, self._freed):
            changes.clear()

    def counts_of(self, job: int) -> CountChanges:
        found = self.counts.get(job)
        if found is None:
            found = self.counts[job] = CountChanges()
        return found

    def free_slot(self, site: int, *, next_at: float, answered_at: float | None) -> None:
        slots, latest, answered = self._freed.get(site, (0, 0.0, None))
        self._freed[site] = (slots + 1, max(latest, next_at), answered if answered_at is None else answered_at)

    def feed(self, job: int, site: int, lane: str | None, priority: int, turn: int, count: int) -> None:
        which = (job, site, lane or "")
        known = self.fed.get(which)
        if known is not None:
            priority, turn, count = max(known[0], priority), known[1], known[2] + count
        self.fed[which] = (priority, turn, count)

    def write(self, connection: sqlite3.Connection) -> None:
        for site, (slots, next_at, answered_at) in self._freed.items():
            free_slots(connection, site, slots, next_at=next_at, answered_at=answered_at)
        if self.fed:
            connection.executemany(_FEED_QUEUE, [(*which, *what) for which, what in self.fed.items()])
        if self.shapes:
            connection.executemany(_TAKE_SHAPE, [(*which, taken) for which, taken in self.shapes.items()])
        for job, counts in self.counts.items():
            counts.write(connection, job)
        self.forget()


def free_slots(
    connection: sqlite3.Connection, site: int, slots: int = 1, *, next_at: float, answered_at: float | None = None
) -> None:
    """Free the slots of leases that have ended, and wake the queues that wait for one. `answered_at`: the site
    responded."""
    connection.execute(_FREE, (next_at, answered_at, site, slots))
    connection.execute(
        "UPDATE queues SET state = 'ready', held_for = NULL WHERE site = ? AND state IN ('full', 'held')", (site,)
    )


class JobRow(msgspec.Struct, frozen=True):
    """A job as it is cached: its terms without the source, which lists all pages of a batch."""

    number: int
    id: str
    terms: JobTerms
    mark: int = 0  # the hash of the terms as stored


class Extras(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a task that few tasks have, stored as JSON in one column."""

    data: str = ""
    redirects: tuple[str, ...] = ()
    proxy_pool: str | None = None
    country: str | None = None
    how: str = ""


NO_EXTRAS = Extras()
_read_extras = msgspec.json.Decoder(Extras).decode


def extras_text(extras: Extras) -> str | None:
    return msgspec.json.encode(extras).decode() if extras != NO_EXTRAS else None


def extras_of(text: str | None) -> Extras:
    return _read_extras(text) if text else NO_EXTRAS


def split_url(url: str) -> tuple[str, str]:
    """The origin of a URL, and the rest. A text that is not a URL has no origin."""
    end = url.find("/", 8, LONGEST_ORIGIN)
    return (url[:end], url[end:]) if end > 0 and url.startswith("http") else ("", url)


def identity(job: int, site: int, fingerprint: bytes) -> tuple[int, int, bytes, bytes]:
    """The values of `IDENTITY`."""
    return job, site, fingerprint[:4], fingerprint


class QueueRows:
    """Steps on the rows, with a cache of the few look-ups that never change."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobRow] = {}
        self._sites: dict[str, int] = {}
        self._texts: dict[str, int] = {}

    def forget(self) -> None:
        """Called after a rollback: cached rows may not exist."""
        self._jobs.clear()
        self._sites.clear()
        self._texts.clear()

    def job(self, connection: sqlite3.Connection, job: str) -> JobRow:
        """The job's number and terms. Raises Permanent for an unknown job."""
        found = self._jobs.get(job)
        if found is None:
            row = connection.execute("SELECT number, terms FROM jobs WHERE id = ?", (job,)).fetchone()
            if row is None:
                raise Permanent(f"There is no job {job!r}. `gossamer status` lists the jobs.")
            terms = msgspec.structs.replace(msgspec.json.decode(row[1], type=JobTerms), source="")
            found = JobRow(row[0], job, terms, hash(row[1]))
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
            number = _remember(self._sites, name, row[0])
        return number

    def text(self, connection: sqlite3.Connection, text: str) -> int:
        """The number of a text that many rows share; a new text gets a row."""
        number = self._texts.get(text)
        if number is None:
            row = connection.execute("SELECT number FROM texts WHERE text = ?", (text,)).fetchone()
            if row is None:
                row = connection.execute("INSERT INTO texts (text) VALUES (?) RETURNING number", (text,)).fetchone()
            number = _remember(self._texts, text, row[0])
        return number

    def admit(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        candidates: Sequence[Candidate],
        *,
        found_on: int | None,
        now: float,
        shared: SharedRows,
        given_up: str = "",
    ) -> Added:
        """Enter candidates: each is queued, dropped with a reason, or counted as a duplicate. Those beyond the bound
        wait for room. The changes to the job and its queues are left in `shared`.

        `given_up` is the reason why no candidate may be queued any more.
        """
        terms = job.terms
        room = self._room(connection, job, shared) if candidates else None
        turn = int(now * MICROSECONDS)
        queued = postponed = duplicates = dropped = 0
        counts = shared.counts_of(job.number)
        for candidate in candidates:
            site, fingerprint = self.site(connection, candidate.site), candidate.fingerprint
            reason = candidate.dropped.value if candidate.dropped else given_up
            has_room = room is None or queued < room
            known = connection.execute(_KNOWN, (job.number, site, fingerprint[:4], fingerprint)).fetchone()
            if known is not None:
                if not reason and self._readmit(connection, job, known, candidate, now, shared):
                    if has_room:
                        queued += 1
                    else:
                        connection.execute(_POSTPONE, (NO_ROOM, NO_ROOM_DUE - candidate.priority, known[0]))
                        postponed += 1
                    shared.feed(job.number, site, candidate.fetcher, candidate.priority, turn, 0)
                duplicates += 1
                continue
            reason = reason or self._limit(connection, job, site, candidate, shared)
            origin, path = split_url(candidate.url)
            inserted = connection.execute(
                _INSERT_URL,
                (
                    job.number, site, fingerprint, "o" if reason else "q", self.text(connection, origin), path, reason,
                    found_on, now, now, *self._values(connection, candidate, terms),
                ),
            )  # fmt: skip
            if reason:
                dropped += 1
                counts.drop(reason)
                continue
            if has_room:
                queued += 1
            else:
                connection.execute(_POSTPONE, (NO_ROOM, NO_ROOM_DUE - candidate.priority, inserted.lastrowid))
                postponed += 1
            shared.feed(job.number, site, candidate.fetcher, candidate.priority, turn, 1)
            if (job.number, site) in shared.taken:
                shared.taken[job.number, site] += 1
        counts["discovered"] += len(candidates)
        counts["duplicates"] += duplicates
        counts["queued"] += queued
        if postponed:
            counts["waiting"] += postponed
            counts["postponed"] += postponed
        return Added(queued=queued + postponed, duplicates=duplicates, dropped=dropped)

    def _readmit(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        known: tuple[int, str, str, float],
        candidate: Candidate,
        now: float,
        shared: SharedRows,
    ) -> bool:
        """Whether a known URL may enter again: by force, after the dedup window, or with a shorter path to it."""
        number, letter, reason, created_at = known
        state, window = STATES_BY_LETTER[letter], job.terms.dedup_window
        if state is UrlState.DROPPED:
            if reason != DropReason.DEPTH.value:
                return False
        elif state.open or not (candidate.force or (window is not None and created_at <= now - window.total_seconds())):
            return False
        values = self._values(connection, candidate, job.terms)
        connection.execute(_READMIT, (now, now, *values, number))
        # It was counted in its old state; the caller counts it as queued.
        counts = shared.counts_of(job.number)
        if state is UrlState.DROPPED:
            counts.drop(reason, -1)
        else:
            counts[state.value] -= 1
        return True

    def _room(self, connection: sqlite3.Connection, job: JobRow, shared: SharedRows) -> int | None:
        if job.terms.max_queued is None:
            return None
        depth = shared.depths.get(job.number)
        if depth is None:
            sql = "SELECT queued + waiting - postponed FROM jobs WHERE number = ?"
            depth = shared.depths[job.number] = int(connection.execute(sql, (job.number,)).fetchone()[0])
        counts = shared.counts_of(job.number)
        return max(0, job.terms.max_queued - depth - counts["queued"] - counts["waiting"] + counts["postponed"])

    def _limit(
        self,
        connection: sqlite3.Connection,
        job: JobRow,
        site: int,
        candidate: Candidate,
        shared: SharedRows,
    ) -> str:
        """The limit of URLs that the candidate exceeds, "" if none. A URL that a person named exceeds none, and does
        not use up the limit of its pattern."""
        terms = job.terms
        if candidate.force or candidate.named:
            return ""
        if terms.max_urls_per_site is not None:
            taken = shared.taken.get((job.number, site))
            if taken is None:
                taken = connection.execute(
                    "SELECT coalesce(sum(taken), 0) FROM queues WHERE job = ? AND site = ?", (job.number, site)
                ).fetchone()[0]
                taken += sum(what[2] for which, what in shared.fed.items() if which[:2] == (job.number, site))
                shared.taken[job.number, site] = taken
            if taken >= terms.max_urls_per_site:
                return DropReason.SITE_LIMIT.value
        if terms.max_urls_per_pattern is not None:
            which = (job.number, site, candidate.shape)
            of_shape = shared.shapes.get(which)
            if of_shape is None:
                row = connection.execute(
                    "SELECT taken FROM shapes WHERE job = ? AND site = ? AND shape = ?", which
                ).fetchone()
                of_shape = row[0] if row else 0
            if of_shape >= terms.max_urls_per_pattern:
                return DropReason.PATTERN_LIMIT.value
            shared.shapes[which] = of_shape + 1
        return ""

    def requeue(
        self, connection: sqlite3.Connection, job: int, site: int, lane: str | None, priority: int, now: float
    ) -> None:
        """Wake the queue of a task that is queued again."""
        connection.execute(_FEED_QUEUE, (job, site, lane or "", priority, int(now * MICROSECONDS), 0))

    def add_stats(self, connection: sqlite3.Connection, job: int, stats: Mapping[str, int]) -> None:
        """Add to the counters of the job's spider."""
        (text,) = connection.execute("SELECT stats FROM jobs WHERE number = ?", (job,)).fetchone()
        sums = summed_stats(msgspec.json.decode(text, type=dict[str, int]), stats)
        connection.execute("UPDATE jobs SET stats = ? WHERE number = ?", (msgspec.json.encode(sums).decode(), job))

    def _values(self, connection: sqlite3.Connection, one: Candidate, terms: JobTerms) -> tuple[str | int | None, ...]:
        """The values of `_FIELDS`."""
        extras = None
        if one.data or one.how or one.redirects or one.proxy_pool is not None or one.country is not None:
            extras = extras_text(Extras(one.data, one.redirects, one.proxy_pool, one.country, one.how))
        kind = self.text(connection, one.kind)
        return one.priority, one.depth, kind, one.fetcher or None, one.max_attempts or terms.max_attempts, extras

    def note(self, connection: sqlite3.Connection, url: int, now: float, what: str) -> None:
        connection.execute("INSERT INTO incidents (url, at, what) VALUES (?, ?, ?)", (url, now, what))


def _remember(cache: dict[str, int], name: str, number: int) -> int:
    if len(cache) >= CACHED:
        cache.clear()
    cache[name] = number
    return number
