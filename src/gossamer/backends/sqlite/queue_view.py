"""Read access to the queue on SQLite, for people. Fulfils `QueueView`."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...clock import Clock
from ...frontier.contract import (
    Added,
    DeadFilter,
    DeadLetter,
    LaneLoad,
    LetterPlace,
    QueueLoad,
    SiteFacts,
    SiteLoad,
    UrlFate,
    UrlStory,
)
from ...frontier.learned_pace import LearnedPace
from ...frontier.queue_values import MOST_COUNTED
from ...model.task import NO_ROOM_FROM, REPLAYED_PRIORITY, Candidate, UrlState, options_of
from .cleanup import drop_rest
from .connection import Database
from .jobs import SqliteJobs
from .queue_rows import (
    IDENTITY,
    LETTERS,
    STATES_BY_LETTER,
    URL,
    WITH_URL,
    CountChanges,
    QueueRows,
    SharedRows,
    extras_of,
    identity,
)

CHUNK = 2_000
DUE_COUNTED = 2_000  # due waiting tasks counted per job
READY_LOOKED_AT = 100  # sites that could give a task now
LETTERS_AT_ONCE = 500  # fewer: each may have a long error

Values = tuple[str | int | float | bytes, ...]  # the values bound in a query

# The address of the page that a URL was found on.
_PARENT = "parent_start.text || parent.path"
_WITH_PARENT = """LEFT JOIN urls AS parent ON parent.number = urls.found_on
LEFT JOIN texts AS parent_start ON parent_start.number = parent.origin"""

_STORY = f"""
SELECT urls.number, jobs.id, {URL}, urls.state, urls.reason, urls.message, sites.name, name.text, urls.depth,
    urls.priority, urls.attempts, urls.max_attempts, urls.deliveries, urls.created_at, urls.changed_at, {_PARENT},
    iif(urls.due_at < {NO_ROOM_FROM}, urls.due_at, NULL), leases.worker, leases.until,
    max(sites.next_at, sites.rest_until),
    CASE WHEN sites.strikes > 0 THEN sites.away_since END,
    (SELECT other.id FROM jobs AS other JOIN queues ON queues.job = urls.job AND queues.site = urls.site
        AND queues.lane = coalesce(urls.fetcher, '') WHERE other.number = sites.latest AND sites.latest <> urls.job
        AND sites.in_flight > 0 AND queues.refused AND queues.state <> 'empty'),
    coalesce(urls.fetcher, ''),
    (SELECT count(*) FROM (SELECT 1 FROM urls AS other WHERE other.job = urls.job AND other.site = urls.site
        AND other.fetcher IS urls.fetcher AND other.state = 'q' AND (other.priority > urls.priority OR
        (other.priority = urls.priority AND (other.changed_at, other.number) < (urls.changed_at, urls.number)))
        LIMIT 100000)),
    urls.extras
FROM urls JOIN jobs ON jobs.number = urls.job JOIN sites ON sites.number = urls.site {WITH_URL}
JOIN texts AS name ON name.number = urls.kind LEFT JOIN leases ON leases.url = urls.number {_WITH_PARENT}
WHERE {IDENTITY}"""  # noqa: S608 - our own names

# Columns in the order of the fields of SiteLoad. Each count uses a covering index.
_LOADS = """
WITH loads AS (
    SELECT site, sum(queued) AS queued, sum(waiting) AS waiting, sum(leased) AS leased FROM (
        SELECT site, count(*) AS queued, 0 AS waiting, 0 AS leased FROM urls
            WHERE job = :job AND state = 'q' {site} GROUP BY site
        UNION ALL SELECT site, 0, count(*), 0 FROM urls WHERE job = :job AND state = 'w' {site} GROUP BY site
        UNION ALL SELECT site, 0, 0, count(*) FROM leases CROSS JOIN urls ON urls.number = leases.url
            WHERE job = :job {site} GROUP BY site)
    GROUP BY site ORDER BY sum(queued + waiting + leased) DESC LIMIT :limit)
SELECT sites.name, loads.queued, loads.waiting, loads.leased, max(sites.next_at, sites.rest_until),
    CASE WHEN sites.strikes > 0 THEN sites.away_since END, sites.rest_until,
    coalesce((SELECT reason FROM urls WHERE job = :job AND site = loads.site AND state = 'w'
        GROUP BY reason ORDER BY count(*) DESC LIMIT 1), ''),
    (SELECT min(due_at) FROM urls WHERE job = :job AND site = loads.site AND state = 'w'),
    (SELECT other.id FROM jobs AS other WHERE other.number = sites.latest AND sites.latest <> :job
        AND sites.in_flight > 0 AND EXISTS (SELECT 1 FROM queues
            WHERE job = :job AND site = loads.site AND refused AND state <> 'empty')),
    sites.asked_interval, sites.learned_interval, sites.refused_at
FROM loads JOIN sites ON sites.number = loads.site
ORDER BY loads.queued + loads.waiting + loads.leased DESC"""

# The first task of each site that could be given now, and since when: its rate allows it, and the task is there.
_READY = """
SELECT lane, max(sites.next_at, sites.rest_until, (
    SELECT changed_at FROM urls WHERE job = :job AND site = some.site AND fetcher IS nullif(some.lane, '')
        AND state = 'q' ORDER BY priority DESC, changed_at LIMIT 1))
FROM (SELECT * FROM (SELECT site, lane FROM queues WHERE job = :job AND state = 'ready' LIMIT :some)
    UNION ALL SELECT * FROM (SELECT site, lane FROM queues WHERE job = :job AND state = 'sleeping' AND wake_at <= :now
        ORDER BY wake_at LIMIT :some)) AS some
JOIN sites ON sites.number = some.site"""

_HAS_LANES = "SELECT EXISTS (SELECT 1 FROM queues WHERE job = :job AND lane <> '')"
_LANES = """
SELECT fetcher, sum(state = 'q'), sum(state = 'w'), sum(state = 'l') FROM urls
WHERE job = :job AND state IN ('q', 'w', 'l') AND fetcher IS NOT NULL GROUP BY fetcher"""

# Columns in the order of the fields of SiteFacts; the last two are one.
_SITE = """
SELECT name, next_at, rest_until, asked_interval, in_flight, coalesce(holder, ''), answered_at,
    CASE WHEN strikes > 0 THEN away_since END, CASE WHEN strikes > 0 THEN away_reason ELSE '' END,
    learned_interval, refused_at, between_refusals
FROM sites WHERE name = ?"""

# Columns in the order of the fields of DeadLetter.
_LETTERS = f"""
SELECT urls.number, jobs.id, {URL}, sites.name, name.text, urls.reason, urls.message, urls.attempts,
    urls.deliveries, urls.changed_at, {_PARENT}, urls.fingerprint, urls.depth, urls.priority
FROM urls JOIN jobs ON jobs.number = urls.job JOIN sites ON sites.number = urls.site {WITH_URL}
JOIN texts AS name ON name.number = urls.kind {_WITH_PARENT}"""  # noqa: S608 - our own names

# Site, lane, and number of tasks: queued, leased, and waiting ones that are due.
_WORK = """
SELECT queues.site, queues.lane, (SELECT count(*) FROM (SELECT 1 FROM urls WHERE urls.job = queues.job
    AND urls.site = queues.site AND urls.fetcher IS nullif(queues.lane, '') AND urls.state = 'q' LIMIT :most)), 0
FROM queues JOIN jobs ON jobs.number = queues.job WHERE jobs.id = :job AND queues.state <> 'empty'
UNION ALL
SELECT site, coalesce(fetcher, ''), 0, count(*) FROM leases CROSS JOIN urls ON urls.number = leases.url
WHERE job = (SELECT number FROM jobs WHERE id = :job) GROUP BY site, fetcher
UNION ALL
SELECT site, coalesce(fetcher, ''), count(*), 0 FROM (SELECT site, fetcher FROM urls WHERE state = 'w'
    AND job = (SELECT number FROM jobs WHERE id = :job) AND due_at <= :now ORDER BY due_at LIMIT :due)
GROUP BY site, fetcher"""

_FATE = f"""
SELECT {URL}, urls.state, urls.reason, urls.message FROM jobs JOIN sites CROSS JOIN urls INDEXED BY urls_identity
    ON urls.job = jobs.number AND urls.site = sites.number {WITH_URL}
WHERE jobs.id = ? AND sites.name = ? AND substr(urls.fingerprint, 1, 4) = ? AND urls.fingerprint = ?"""  # noqa: S608

_OF_JOB = f"""
SELECT urls.number, {URL}, urls.state, urls.reason
FROM jobs CROSS JOIN urls NOT INDEXED ON urls.job = jobs.number {WITH_URL}
WHERE jobs.id = ? AND urls.number > ? AND (? IS NULL OR urls.state = ?) ORDER BY urls.number LIMIT ?"""  # noqa: S608

_RESOLVE = """
UPDATE urls SET state = 'd', reason = ?, message = '', deliveries = 0, changed_at = ?
WHERE number = ? AND job = ? AND fingerprint = ? AND state = 'x' AND changed_at = ?"""

_LIMITED = "SELECT number FROM jobs WHERE json_extract(terms, '$.limit') IS NOT NULL"

_REPLAYED = """json_set(terms, '$.replayed', json('true'),
        '$.first_ended', coalesce(json_extract(terms, '$.first_ended'), finished_at))"""
_RUN_AGAIN = f"""
UPDATE jobs SET state = 'running', ending = '', outcome = '', finished_at = NULL,
    terms = iif(state = 'running', terms, {_REPLAYED})
WHERE number = ?"""  # noqa: S608 - our own words

# A job with the ending "limit" had open tasks that were not to be done.
_REVIVE = f"""
UPDATE jobs SET state = 'running', ending = '', outcome = '', finished_at = NULL, terms = {_REPLAYED}
WHERE number = ? AND state <> 'running' AND ending <> 'limit'
    AND (? IS NULL OR done + unchanged + dead + leased - redirected < ?)"""  # noqa: S608 - our own words


class SqliteQueueView:
    def __init__(self, database: Database, clock: Clock, jobs: SqliteJobs) -> None:
        self._database = database
        self._clock = clock
        self._jobs = jobs

    async def story(self, site: str, fingerprint: bytes) -> list[UrlStory]:
        def read(connection: sqlite3.Connection) -> list[UrlStory]:
            stories: list[UrlStory] = []
            known = connection.execute("SELECT number FROM sites WHERE name = ?", (site,)).fetchone()
            if known is None:
                return stories
            for (job,) in connection.execute("SELECT number FROM jobs ORDER BY number DESC").fetchall():
                row = connection.execute(_STORY, identity(job, known[0], fingerprint)).fetchone()
                if row is not None:
                    stories.append(_story(connection, row))
            return stories

        return await self._database.read(read)

    async def dead(self, which: DeadFilter, limit: int = 100, *, before: LetterPlace | None = None) -> list[DeadLetter]:
        where, values = _where(which)
        if before is not None:  # numbers are unique among all jobs here
            where, values = f"{where} AND (urls.changed_at, urls.number) < (?, ?)", (*values, before.died_at, before.id)
        order = "ORDER BY urls.changed_at DESC, urls.number DESC LIMIT ?"
        return await self._letters(f"{_LETTERS} WHERE {where} {order}", (*values, limit))

    async def letters(self, which: DeadFilter) -> AsyncIterator[DeadLetter]:
        where, values = _where(which)
        # From the latest back: pages that die meanwhile are skipped, and letters that leave move no others.
        sql = (
            f"{_LETTERS} WHERE {where} AND urls.job = ? AND (urls.changed_at, urls.number) < (?, ?) "
            "ORDER BY urls.changed_at DESC, urls.number DESC LIMIT ?"
        )
        jobs = await self._database.read(
            lambda c: c.execute(
                "SELECT number FROM jobs WHERE ?1 IS NULL OR id = ?1 ORDER BY number DESC", (which.job,)
            ).fetchall()
        )
        for (job,) in jobs:
            before: tuple[float, int] = (math.inf, 0)
            while page := await self._letters(sql, (*values, job, *before, LETTERS_AT_ONCE)):
                for letter in page:
                    yield letter
                before = (page[-1].died_at, page[-1].id)

    async def _letters(self, sql: str, values: Values) -> list[DeadLetter]:
        names = DeadLetter.__struct_fields__
        rows = await self._database.read(lambda c: c.execute(sql, values).fetchall())
        return [DeadLetter(**dict(zip(names, row, strict=True))) for row in rows]

    async def dead_reasons(self, which: DeadFilter) -> dict[str, int]:
        return await self._dead_by("urls.reason", which, -1)

    async def dead_sites(self, which: DeadFilter, limit: int) -> dict[str, int]:
        return await self._dead_by("sites.name", which, limit)

    async def _dead_by(self, column: str, which: DeadFilter, limit: int) -> dict[str, int]:
        where, values = _where(which)
        sql = (
            f"SELECT {column}, count(*) FROM urls JOIN jobs ON jobs.number = urls.job "  # noqa: S608 - our own words
            f"JOIN sites ON sites.number = urls.site {WITH_URL} WHERE {where} "
            f"GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {limit:d}"
        )
        return dict(await self._database.read(lambda c: c.execute(sql, values).fetchall()))

    async def replay(self, which: DeadFilter) -> int:
        where, values = _where(which)

        def write(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            queue_rows = QueueRows()
            letters = _select(connection, where, values)
            changes: dict[int, CountChanges] = {}
            for job in {job for _, job, *_ in letters}:
                drop_rest(connection, job, now)  # otherwise the job would run again with dropped pages
            limited = {number for (number,) in connection.execute(_LIMITED)}
            for number, job, site, lane, priority in letters:
                if job in limited:  # they go first: otherwise other pages would use up the limit
                    priority = REPLAYED_PRIORITY
                connection.execute(
                    "UPDATE urls SET state = 'q', reason = '', message = '', attempts = 0, deliveries = 0, "
                    "priority = ?, changed_at = ? WHERE number = ?",
                    (priority, now, number),
                )
                queue_rows.requeue(connection, job, site, lane, priority, now)
                connection.execute("UPDATE sites SET given_up_until = 0 WHERE number = ?", (site,))
                queue_rows.note(connection, number, now, "replayed from the dead letters")
                changes.setdefault(job, CountChanges()).move("dead", "queued")
            for job, counts in changes.items():
                counts.write(connection, job)
                connection.execute(_RUN_AGAIN, (job,))
            return len(letters)

        await self._jobs.clear_all()  # in portions, so that little is left for the transaction below
        return await self._database.write(write)

    async def resolve(
        self, letter: DeadLetter, discovered: Sequence[Candidate] = (), *, duplicates: int = 0, reason: str = ""
    ) -> Added | None:
        links = [one for one in discovered if one.fingerprint != letter.fingerprint]
        to_itself = len(discovered) - len(links)

        def write(connection: sqlite3.Connection) -> Added | None:
            now = self._clock.now()
            queue_rows = QueueRows()
            job = queue_rows.job(connection, letter.job)
            resolved = connection.execute(
                _RESOLVE, (reason, now, letter.id, job.number, letter.fingerprint, letter.died_at)
            ).rowcount
            if not resolved:
                return None
            queue_rows.note(connection, letter.id, now, f"resolved from the dead letters ({letter.reason})")
            shared = SharedRows()
            counts = shared.counts_of(job.number)
            counts.update(discovered=duplicates + to_itself, duplicates=duplicates + to_itself)
            counts.move("dead", "done")
            drop_rest(connection, job.number, now)
            added = queue_rows.admit(connection, job, links, found_on=letter.id, now=now, shared=shared)
            shared.write(connection)
            if added.queued:
                connection.execute(_REVIVE, (job.number, job.terms.limit, job.terms.limit))
            return msgspec.structs.replace(added, duplicates=added.duplicates + to_itself)

        return await self._database.write(write)

    async def purge(self, which: DeadFilter) -> int:
        where, values = _where(which)

        def write(connection: sqlite3.Connection) -> int:
            now = self._clock.now()
            letters = _select(connection, where, values)
            changes: dict[int, CountChanges] = {}
            for number, job, *_ in letters:
                connection.execute(
                    "UPDATE urls SET state = 'o', reason = 'purged: ' || reason, changed_at = ? WHERE number = ?",
                    (now, number),
                )
                counts = changes.setdefault(job, CountChanges())
                counts["dead"] -= 1
                counts.drop("purged")
            for job, changed in changes.items():
                changed.write(connection, job)
            return len(letters)

        return await self._database.write(write)

    async def fate(self, job: str, site: str, fingerprint: bytes) -> UrlFate | None:
        values = (job, site, fingerprint[:4], fingerprint)
        row = await self._database.read(lambda c: c.execute(_FATE, values).fetchone(), quick=True)
        return UrlFate(url=row[0], state=STATES_BY_LETTER[row[1]], reason=row[2], message=row[3]) if row else None

    async def sites(self, job: str, limit: int | None = 20, *, site: str | None = None) -> list[SiteLoad]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            known = connection.execute("SELECT number FROM jobs WHERE id = ?", (job,)).fetchone()
            values = {"job": known[0] if known else -1, "limit": -1 if limit is None else limit, "site": site}
            one = "" if site is None else "AND site = (SELECT number FROM sites WHERE name = :site)"
            return connection.execute(_LOADS.format(site=one), values).fetchall()

        return [
            SiteLoad(
                site=name, queued=queued, waiting=waiting, leased=leased, next_at=next_at, away_since=away_since,
                rest_until=rest_until, reason=reason, due_at=due_at, taken_by=taken_by, asked=asked,
                learned=LearnedPace(interval=interval, refused_at=at),
            )
            for name, queued, waiting, leased, next_at, away_since, rest_until, reason, due_at, taken_by, asked,
                interval, at in await self._database.read(read)
        ]  # fmt: skip

    async def lanes(self, job: str) -> list[LaneLoad]:
        counts, now = await self._jobs.counts(job), self._clock.now()

        def read(connection: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]] | None:
            known = connection.execute("SELECT number FROM jobs WHERE id = ?", (job,)).fetchone()
            if known is None:
                return None
            values = {"job": known[0], "now": now, "some": READY_LOOKED_AT}
            others = connection.execute(_HAS_LANES, values).fetchone()[0]
            return (
                connection.execute(_LANES, values).fetchall() if others else [],
                connection.execute(_READY, values).fetchall(),
            )

        found = await self._database.read(read)
        if found is None:
            return []
        others, ready = found
        since: dict[str, float] = {}
        for lane, at in ready:
            if at is not None and at <= now:
                since[lane] = min(at, since.get(lane, at))
        rest = [count - sum(row[place] for row in others) for place, count in
                enumerate((counts.queued, counts.waiting, counts.leased), 1)]  # fmt: skip
        return [
            LaneLoad(lane=lane, queued=queued, waiting=waiting, leased=leased, ready_since=since.get(lane))
            for lane, queued, waiting, leased in (("", *(max(0, one) for one in rest)), *sorted(others))
        ]

    async def site(self, name: str) -> SiteFacts | None:
        row = await self._database.read(lambda c: c.execute(_SITE, (name,)).fetchone())
        if row is None:
            return None
        *facts, interval, refused_at, between = row
        learned = LearnedPace(interval=interval, refused_at=refused_at, between=between)
        return SiteFacts(**dict(zip(SiteFacts.__struct_fields__, (*facts, learned), strict=True)))

    async def loads(self, job: str, now: float) -> list[QueueLoad]:
        def read(connection: sqlite3.Connection) -> list[QueueLoad]:
            sums: dict[tuple[int, str], tuple[int, int]] = {}
            values = {"job": job, "now": now, "most": MOST_COUNTED, "due": DUE_COUNTED}
            for site, lane, ready, leased in connection.execute(_WORK, values):
                before = sums.get((site, lane), (0, 0))
                sums[site, lane] = (before[0] + ready, before[1] + leased)
            politeness = (
                "SELECT name, rest_until, strikes, asked_interval, learned_interval, refused_at FROM sites "
                "WHERE number = ?"
            )
            loads = []
            for (site, lane), (ready, leased) in sums.items():
                name, rest_until, strikes, asked, interval, at = connection.execute(politeness, (site,)).fetchone()
                learned = LearnedPace(interval=interval, refused_at=at)
                loads.append(
                    QueueLoad(
                        site=name, lane=lane, ready=min(ready, MOST_COUNTED), leased=leased, rest_until=rest_until,
                        asked=asked, learned=learned.now(now), away=strikes > 0,
                    )
                )  # fmt: skip
            return loads

        return await self._database.read(read)

    async def urls(self, job: str, state: UrlState | None = None) -> AsyncIterator[tuple[str, UrlState, str]]:
        last, letter = 0, LETTERS[state] if state is not None else None
        while True:
            rows = await self._database.read(
                lambda c, after=last: c.execute(  # type: ignore[misc]  # the default binds the cursor of this turn
                    _OF_JOB, (job, after, letter, letter, CHUNK)
                ).fetchall()
            )
            for number, url, found, reason in rows:
                last = number
                yield url, STATES_BY_LETTER[found], reason
            if len(rows) < CHUNK:
                return


def _story(connection: sqlite3.Connection, row: tuple[Any, ...]) -> UrlStory:
    number, *values = row
    names = [name for name in UrlStory.__struct_fields__ if name != "incidents"]
    fields = dict(zip(names, values, strict=True))
    fields["state"] = STATES_BY_LETTER[str(fields["state"])]
    fields["session"] = options_of(extras_of(fields["session"]).how).session
    if fields["state"] is not UrlState.QUEUED:
        fields["ahead_of_it"] = None
    incidents = connection.execute("SELECT at, what FROM incidents WHERE url = ? ORDER BY at", (number,)).fetchall()
    return UrlStory(**fields, incidents=tuple(incidents))  # column order is field order


def _where(which: DeadFilter) -> tuple[str, Values]:
    """The filter as SQL conditions, which are constants, and their bound values."""
    parts: list[str] = ["urls.state = 'x'"]
    values: list[str | int | bytes] = []
    conditions: tuple[tuple[str, str | int | bytes | None], ...] = (
        ("urls.number = ?", which.id),
        ("jobs.id = ?", which.job),
        (f"{URL} = ?", which.url),
        ("(urls.reason = ? OR substr(urls.reason, 1, length(?) + 1) = ? || '-')", which.reason),  # no wildcards
        ("sites.name = ?", which.site),
        ("urls.fingerprint = ?", which.fingerprint),
        ("instr(urls.message, ?) > 0", which.message),
        ("urls.number IN (SELECT value FROM json_each(?))", None if which.among is None else str(sorted(which.among))),
    )
    for condition, value in conditions:
        if value is not None:
            parts.append(condition)
            values += [value] * condition.count("?")
    return " AND ".join(parts), tuple(values)


def _select(connection: sqlite3.Connection, where: str, values: Values) -> list[tuple[int, int, int, str | None, int]]:
    return connection.execute(
        "SELECT urls.number, urls.job, urls.site, urls.fetcher, urls.priority FROM urls "  # noqa: S608 - our own words
        f"JOIN jobs ON jobs.number = urls.job JOIN sites ON sites.number = urls.site {WITH_URL} WHERE {where}",
        values,
    ).fetchall()
