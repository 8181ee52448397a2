"""The state file as a stream of rows. Fulfils `StateStream`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from ...clock import Clock
from ...frontier.contract import SeedFindings
from ...frontier.state_rows import (
    COUNTERS,
    STATES,
    DumpedBudget,
    DumpedJob,
    DumpedRobots,
    DumpedRoute,
    DumpedRow,
    DumpedSchedule,
    DumpedSeeds,
    DumpedShape,
    DumpedSite,
    DumpedSpending,
    DumpedUrl,
    StateRow,
    count_shelf,
    dump_shelf,
    job_counts,
    stats_counted,
)
from ...model.job import JobTerms
from ...model.task import NO_ROOM_FROM, UrlState
from ..schedule_rows import decode_schedule, readable
from .cleanup import clear_some
from .connection import Database
from .queue_rows import (
    IDENTITY,
    LETTERS,
    MICROSECONDS,
    STATES_BY_LETTER,
    URL,
    WITH_URL,
    CountChanges,
    Extras,
    QueueRows,
    extras_of,
    extras_text,
    identity,
    split_url,
)
from .shelf import SqliteShelf
from .stream import SqliteStream

BATCH = 500  # rows in memory
COUNTED = 10_000  # rows in memory while counting, which needs only two columns
_COUNTED = {
    "sites": "sites", "path shapes": "shapes", "incidents": "incidents", "learned routes": "learned_routes",
    "budgets": "budgets", "schedules": "schedules",
}  # fmt: skip
Columns = tuple[Any, ...]  # Any: the types of a row are those of the schema, which is STRICT
_TABLES = (
    "incidents", "shapes", "queues", "leases", "urls", "texts", "sites", "robots", "workers", "learned_routes",
    "budgets", "schedules", "seed_leases", "seed_sites", "forgetting", "jobs", "address_paces", "shelf",
)  # fmt: skip


def _fields(kind: type[StateRow]) -> Callable[..., StateRow]:
    """A row of that kind from columns in the order of its fields."""
    return lambda *columns: kind(**dict(zip(kind.__struct_fields__, columns, strict=True)))


_JOB_FIELDS = tuple(name for name in DumpedJob.__struct_fields__ if name != "forgotten")
_JOBS = f"SELECT {', '.join((*_JOB_FIELDS, *STATES))} FROM jobs ORDER BY number"  # noqa: S608 - our own names

# The queries of small tables, and how their columns become rows.
_SMALL: tuple[tuple[str, Callable[..., StateRow]], ...] = (
    (
        "SELECT name, progress FROM schedules ORDER BY name",
        lambda name, text: DumpedSchedule(readable(decode_schedule(name, text))),
    ),
    (
        "SELECT job, site FROM seed_sites ORDER BY job, site",
        lambda job, site: DumpedSeeds(job, SeedFindings(frozenset((site,)))),
    ),
    (
        "SELECT job, trouble FROM seed_leases WHERE trouble <> '' ORDER BY job",
        lambda job, trouble: DumpedSeeds(job, SeedFindings(trouble=trouble)),
    ),
    (
        "SELECT name, next_at, rest_until, asked_interval, in_flight, learned_interval, refused_at, between_refusals "
        "FROM sites "
        "ORDER BY number",
        _fields(DumpedSite),
    ),
    ("SELECT origin, status, body, fetched_at, expires_at FROM robots ORDER BY origin", _fields(DumpedRobots)),
    (
        f"SELECT {', '.join(DumpedRoute.__struct_fields__)} FROM learned_routes ORDER BY site, pattern",  # noqa: S608
        _fields(DumpedRoute),
    ),
    ("SELECT name, spent FROM budgets ORDER BY name", _fields(DumpedSpending)),
    (
        "SELECT queues.job, sites.name, sum(queues.taken) FROM queues JOIN sites ON sites.number = queues.site "
        "WHERE taken > 0 GROUP BY queues.job, queues.site",
        _fields(DumpedBudget),
    ),
    (
        "SELECT shapes.job, sites.name, shapes.shape, shapes.taken FROM shapes "
        "JOIN sites ON sites.number = shapes.site",
        _fields(DumpedShape),
    ),
)

# The fields of a DumpedUrl as its columns have them, except parents and incidents.
_ELSEWHERE = ("job", "site", "url", "kind", "parent", "parent_site", "incidents", *Extras.__struct_fields__)
_URL_FIELDS = tuple(name for name in DumpedUrl.__struct_fields__ if name not in _ELSEWHERE)
_URLS = f"""
SELECT urls.number, urls.job, sites.name, {URL}, name.text, parent.fingerprint, home.name, urls.extras,
    {", ".join(f"urls.{name}" for name in _URL_FIELDS)}
FROM urls JOIN sites ON sites.number = urls.site {WITH_URL} JOIN texts AS name ON name.number = urls.kind
LEFT JOIN urls AS parent ON parent.number = urls.found_on LEFT JOIN sites AS home ON home.number = parent.site
WHERE """  # noqa: S608 - our own names
# Both use an index: sorting would need room for everything.
_NOT_QUEUED = _URLS + "urls.state <> 'q' ORDER BY urls.number"
_QUEUED = (
    _URLS + "urls.state = 'q' "
    "ORDER BY urls.job, urls.site, urls.fetcher, urls.priority DESC, urls.changed_at, urls.number"
)
_STATES_OF_URLS = "SELECT job, state FROM urls NOT INDEXED"

_FIND = f"SELECT number FROM urls WHERE {IDENTITY}"  # noqa: S608 - our own names
_ADD_URL = f"""
INSERT INTO urls (job, site, found_on, origin, path, kind, extras, {", ".join(_URL_FIELDS)})
VALUES ({", ".join("?" * (7 + len(_URL_FIELDS)))}) RETURNING number"""  # noqa: S608 - our own names

_ADD_QUEUE = """
INSERT INTO queues (job, site, lane, state, turn, taken) VALUES (?, ?, '', 'empty', ?, ?)
ON CONFLICT (job, site, lane) DO UPDATE SET taken = excluded.taken"""

# Children that arrived before their parent page: resolved when all are in.
_ORPHANS = "CREATE TABLE IF NOT EXISTS move_orphans (url INTEGER PRIMARY KEY, site INTEGER, fingerprint BLOB) STRICT"
_ADOPT = """
UPDATE urls SET found_on = parent.number FROM move_orphans
JOIN urls AS child ON child.number = move_orphans.url
JOIN urls AS parent ON parent.job = child.job AND parent.site = move_orphans.site
    AND substr(parent.fingerprint, 1, 4) = substr(move_orphans.fingerprint, 1, 4)
    AND parent.fingerprint = move_orphans.fingerprint
WHERE urls.number = move_orphans.url"""


class SqliteStateStream(SqliteStream[StateRow]):
    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database)
        self._clock = clock
        self._shelf = SqliteShelf(database, clock)
        self._queue_rows = QueueRows()
        database.on_rollback.append(self._queue_rows.forget)

    async def time(self) -> float:
        return self._clock.now()

    async def holders(self) -> list[str]:
        rows = await self._rows(
            "SELECT worker FROM leases WHERE until > ?1 UNION SELECT leader FROM scheduling WHERE until > ?1",
            (self._clock.now(),),
        )
        return [name for (name,) in rows]

    async def counts(self) -> dict[str, int]:
        await self._clear_leftovers()
        counts: dict[str, int] = {}
        states = await self._states()
        jobs = await self._jobs(states)
        for job in jobs:
            counters = {name: getattr(job, name) for name in COUNTERS} | stats_counted(job.stats, job.drops)
            forgotten = {f"{state} without a row": count for state, count in job.forgotten.items()}
            counts |= job_counts(job.id, states.get(job.number, {}), {**counters, **forgotten})
        counts |= await self._count(_COUNTED) | await count_shelf(self._shelf)
        return {name: count for name, count in {"jobs": len(jobs), **counts}.items() if count}

    async def dump(self) -> AsyncGenerator[Sequence[StateRow]]:
        await self._clear_leftovers()
        async with aclosing(super().dump()) as batches:
            async for batch in batches:
                yield batch

    async def _dump(self) -> AsyncIterator[Sequence[StateRow]]:
        yield await self._jobs(await self._states())
        async for some in dump_shelf(self._shelf):
            yield some
        for sql, row_of in _SMALL:
            async for rows in self._batches(sql, BATCH):
                yield [row_of(*row) for row in rows]
        for sql in (_NOT_QUEUED, _QUEUED):
            async for rows in self._batches(sql, BATCH):
                incidents = await self._incidents([row[0] for row in rows])
                yield [_url(row, incidents.get(row[0], ())) for row in rows]

    async def load(self, batch: Sequence[StateRow]) -> None:
        for row in batch:
            if isinstance(row, DumpedRow):
                await self._shelf.commit([row.put()])
        await self._database.write(lambda connection: self._load(connection, batch))

    async def finish(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.execute(_ORPHANS)
            connection.execute(_ADOPT)
            connection.execute("DROP TABLE move_orphans")

        await self._database.write(write)

    async def clear(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for table in _TABLES:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            connection.execute("UPDATE scheduling SET leader = '', until = 0, changes = 0")
            connection.execute("DROP TABLE IF EXISTS move_orphans")
            self._queue_rows.forget()

        await self._database.write(write)

    # -- reading -----------------------------------------------------------------------------------------------

    async def _clear_leftovers(self) -> None:
        """Delete what is left of removed jobs, so that it is neither dumped nor counted."""
        while await self._database.write(lambda connection: clear_some(connection, self._clock.now())):
            pass

    async def _jobs(self, states: dict[int, dict[str, int]]) -> list[DumpedJob]:
        return [_job(row, states.get(row[0], {})) for row in await self._rows(_JOBS)]

    async def _states(self) -> dict[int, dict[str, int]]:
        """How many URLs each job has in each state. Counted here: GROUP BY would sort all of them in memory."""
        counted: Counter[tuple[int, str]] = Counter()
        async for rows in self._batches(_STATES_OF_URLS, COUNTED):
            counted.update(rows)
        states: dict[int, dict[str, int]] = {}
        for (job, state), count in counted.items():
            states.setdefault(job, {})[STATES_BY_LETTER[state].value] = count
        return states

    async def _incidents(self, urls: list[int]) -> dict[int, tuple[tuple[float, str], ...]]:
        rows = await self._rows(
            "SELECT url, at, what FROM incidents WHERE url IN (SELECT value FROM json_each(?)) ORDER BY at, rowid",
            (msgspec.json.encode(urls).decode(),),
        )
        found: dict[int, tuple[tuple[float, str], ...]] = {}
        for url, at, what in rows:
            found[url] = (*found.get(url, ()), (at, what))
        return found

    # -- writing, inside a transaction ---------------------------------------------------------------------------

    def _load(self, connection: sqlite3.Connection, batch: Sequence[StateRow]) -> None:
        connection.execute(_ORPHANS)
        turn = int(self._clock.now() * MICROSECONDS)
        changes: dict[int, CountChanges] = {}
        fed: dict[tuple[int, int, str], int] = {}  # job, site and lane -> the best queued priority
        for item in batch:
            if isinstance(item, DumpedUrl):
                self._add_url(connection, item, changes.setdefault(item.job, CountChanges()), fed)
            else:
                self._add(connection, item, turn)
        for (job, site, lane), priority in fed.items():
            self._queue_rows.requeue(connection, job, site, lane, priority, self._clock.now())
        for job, counts in changes.items():
            counts.write(connection, job)

    def _add(self, connection: sqlite3.Connection, item: StateRow, turn: int) -> None:
        match item:
            case DumpedJob():
                columns = {name: getattr(item, name) for name in _JOB_FIELDS}
                columns |= {"sealed": int(item.sealed), "paused": int(item.paused)}
                columns["terms"] = msgspec.json.encode(item.terms).decode()
                columns |= {name: msgspec.json.encode(getattr(item, name)).decode() for name in ("stats", "drops")}
                columns |= {name: count for name, count in item.forgotten.items() if name in STATES}
                connection.execute(
                    f"INSERT OR IGNORE INTO jobs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",  # noqa: S608
                    tuple(columns.values()),
                )
            case DumpedSchedule(progress):
                connection.execute(
                    "INSERT OR IGNORE INTO schedules (name, version, progress) VALUES (?, ?, ?)",
                    (progress.schedule.name, progress.version, msgspec.json.encode(progress).decode()),
                )
                connection.execute("UPDATE scheduling SET changes = max(changes, ?)", (progress.version,))
            case DumpedSeeds(job, sown):
                connection.executemany(
                    "INSERT OR IGNORE INTO seed_sites (job, site) VALUES (?, ?)", [(job, site) for site in sown.sites]
                )
                if sown.trouble:
                    connection.execute(
                        "INSERT OR IGNORE INTO seed_leases (job, trouble) VALUES (?, ?)", (job, sown.trouble)
                    )
            case DumpedSite():
                connection.execute(
                    "UPDATE sites SET next_at = ?, rest_until = ?, asked_interval = ?, learned_interval = ?, "
                    "refused_at = ?, between_refusals = ? WHERE number = ?",
                    (
                        item.next_at,
                        item.rest_until,
                        item.asked_interval,
                        item.learned_interval,
                        item.refused_at,
                        item.between_refusals,
                        self._queue_rows.site(connection, item.name),
                    ),
                )
            case DumpedRobots():
                connection.execute(
                    "INSERT OR REPLACE INTO robots (origin, status, body, fetched_at, expires_at) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (item.origin, item.status, item.text, item.fetched_at, item.expires_at),
                )
            case DumpedRoute():
                connection.execute(
                    "INSERT OR IGNORE INTO learned_routes (site, route, since, reason, blocks, recheck_at, patience, "
                    "pattern) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    msgspec.structs.astuple(item),
                )
            case DumpedSpending():
                connection.execute("INSERT OR IGNORE INTO budgets (name, spent) VALUES (?, ?)", (item.name, item.spent))
            case DumpedBudget():
                site = self._queue_rows.site(connection, item.site)
                connection.execute(_ADD_QUEUE, (item.job, site, turn, item.taken))
            case DumpedShape():
                site = self._queue_rows.site(connection, item.site)
                connection.execute(
                    "INSERT OR REPLACE INTO shapes (job, site, shape, taken) VALUES (?, ?, ?, ?)",
                    (item.job, site, item.shape, item.taken),
                )

    def _add_url(
        self,
        connection: sqlite3.Connection,
        url: DumpedUrl,
        counts: CountChanges,
        fed: dict[tuple[int, int, str], int],
    ) -> None:
        site = self._queue_rows.site(connection, url.site)
        home = self._queue_rows.site(connection, url.parent_site or url.site)
        if connection.execute(_FIND, identity(url.job, site, url.fingerprint)).fetchone():
            return
        parent = None
        if url.parent is not None:
            parent = connection.execute(_FIND, identity(url.job, home, url.parent)).fetchone()
        columns = {name: getattr(url, name) for name in _URL_FIELDS}
        columns |= {"state": LETTERS[url.state], "fetcher": url.fetcher or None}
        origin, path = split_url(url.url)
        start, kind = self._queue_rows.text(connection, origin), self._queue_rows.text(connection, url.kind)
        extras = extras_text(Extras(url.data, url.redirects, url.proxy_pool, url.country, url.how))
        found_on = parent[0] if parent else None
        added = connection.execute(
            _ADD_URL, (url.job, site, found_on, start, path, kind, extras, *columns.values())
        ).fetchone()
        counts[url.state.value] += 1
        counts["postponed"] += url.due_at is not None and url.due_at >= NO_ROOM_FROM
        if url.state is UrlState.QUEUED:
            which = (url.job, site, url.fetcher or "")
            fed[which] = max(url.priority, fed.get(which, url.priority))
        if url.parent is not None and parent is None:
            connection.execute("INSERT INTO move_orphans VALUES (?, ?, ?)", (added[0], home, url.parent))
        for at, what in url.incidents:
            self._queue_rows.note(connection, added[0], at, what)


# -- rows of tables into rows of the stream ----------------------------------------------------------------------


def _job(row: Columns, states: dict[str, int]) -> DumpedJob:
    """`states` is the number of the job's URLs in each state."""
    columns = dict(zip((*_JOB_FIELDS, *STATES), row, strict=True))
    counted = {state: columns.pop(state) for state in STATES}
    columns |= {"sealed": bool(columns["sealed"]), "paused": bool(columns["paused"])}
    columns["terms"] = msgspec.json.decode(columns["terms"], type=JobTerms)
    columns |= {name: msgspec.json.decode(columns[name], type=dict[str, int]) for name in ("stats", "drops")}
    forgotten = {name: count - states.get(name, 0) for name, count in counted.items() if count != states.get(name, 0)}
    return DumpedJob(**columns, forgotten=forgotten)


def _url(row: Columns, incidents: tuple[tuple[float, str], ...]) -> DumpedUrl:
    _, job, site, url, kind, parent, parent_site, extras, *rest = row
    columns = dict(zip(_URL_FIELDS, rest, strict=True)) | msgspec.structs.asdict(extras_of(extras))
    state = STATES_BY_LETTER[columns["state"]]
    columns["state"] = UrlState.QUEUED if state is UrlState.LEASED else state
    columns["due_at"] = columns["due_at"] if state is UrlState.WAITING else None
    return DumpedUrl(
        **columns, job=job, site=site, url=url, kind=kind, parent=parent, parent_site=parent_site, incidents=incidents
    )
