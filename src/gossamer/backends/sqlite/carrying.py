"""The state file as one side of a move. Fulfils `StateCarrier`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...clock import Clock
from ...frontier.carrying import (
    CarriedBudget,
    CarriedJob,
    CarriedPurse,
    CarriedRobots,
    CarriedSchedule,
    CarriedShape,
    CarriedSite,
    CarriedSown,
    CarriedStanding,
    CarriedUrl,
    StateItem,
    job_tally,
)
from ...frontier.contract import SeedFindings
from ...model.carrying import Mark
from ...model.task import UrlState
from ..standings import read_standing, readable
from .cargo import EXTRAS, STATES, carried_job, carried_url
from .connection import Database
from .ledger import MICROSECONDS, Ledger, Tally
from .leftovers import clear_some
from .marks import Rows, read_mark, stream, write_mark

AT_ONCE = 500
COUNTED_AT_ONCE = 10_000
_COUNTED = {
    "sites": "sites", "path shapes": "shapes", "incidents": "incidents", "learned routes": "standings",
    "purses": "purses", "schedules": "schedules",
}  # fmt: skip
_TABLES = (
    "incidents", "shapes", "queues", "urls", "sites", "robots", "workers", "standings", "purses", "schedules",
    "sowings", "sown_sites", "forgetting", "jobs",
)  # fmt: skip

_JOBS = f"""
SELECT number, id, name, state, sealed, paused, ending, created_at, finished_at, terms,
    {", ".join((*EXTRAS, *STATES))}
FROM jobs ORDER BY number"""  # noqa: S608 - our own names

_SCHEDULES = "SELECT name, standing FROM schedules ORDER BY name"
_SOWN_SITES = "SELECT job, site FROM sown_sites ORDER BY job, site"
_TROUBLES = "SELECT job, trouble FROM sowings WHERE trouble <> '' ORDER BY job"
_SITES = "SELECT name, next_at, rest_until, asked_interval, in_flight FROM sites ORDER BY number"
_ROBOTS = "SELECT origin, status, body, fetched_at, expires_at FROM robots ORDER BY origin"
_STANDINGS = "SELECT site, route, since, reason, blocks, recheck_at, patience FROM standings ORDER BY site"
_PURSES = "SELECT name, spent FROM purses ORDER BY name"
_BUDGETS = """
SELECT queues.job, sites.name, sum(queues.taken) FROM queues JOIN sites ON sites.number = queues.site WHERE taken > 0
GROUP BY queues.job, queues.site"""
_SHAPES = """
SELECT shapes.job, sites.name, shapes.shape, shapes.taken FROM shapes JOIN sites ON sites.number = shapes.site"""

_URLS = """
SELECT urls.number, urls.job, sites.name, urls.fingerprint, urls.url, urls.state, urls.reason, urls.message,
    urls.priority, urls.depth, urls.attempts, urls.deliveries, urls.max_attempts, urls.due_at, urls.created_at,
    urls.changed_at, urls.kind, urls.data, urls.redirects, urls.fetcher, urls.proxy_pool, urls.country,
    urls.how, parent.fingerprint, home.name
FROM urls JOIN sites ON sites.number = urls.site
LEFT JOIN urls AS parent ON parent.number = urls.found_on LEFT JOIN sites AS home ON home.number = parent.site
WHERE """
# Both go along an index: sorting would need room for everything.
_NOT_QUEUED = _URLS + "urls.state <> 'queued' ORDER BY urls.number"
_QUEUED = (
    _URLS + "urls.state = 'queued' "
    "ORDER BY urls.job, urls.site, urls.fetcher, urls.priority DESC, urls.turn, urls.number"
)
_STATES_OF_URLS = "SELECT job, state FROM urls NOT INDEXED"

_ADD_URL = """
INSERT OR IGNORE INTO urls (job, site, state, reason, message, priority, turn, depth, attempts, deliveries, due_at,
    fingerprint, url, kind, found_on, created_at, changed_at, max_attempts, data, redirects, fetcher, proxy_pool,
    country, how)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"""

_ADD_QUEUE = """
INSERT INTO queues (job, site, lane, state, turn, taken) VALUES (?, ?, '', 'empty', ?, ?)
ON CONFLICT (job, site, lane) DO UPDATE SET taken = excluded.taken"""

# Children that arrived before the page they were found on: resolved when all are in.
_ORPHANS = "CREATE TABLE IF NOT EXISTS move_orphans (url INTEGER PRIMARY KEY, site INTEGER, fingerprint BLOB) STRICT"
_ADOPT = """
UPDATE urls SET found_on = parent.number FROM move_orphans
JOIN urls AS child ON child.number = move_orphans.url
JOIN urls AS parent ON parent.job = child.job AND parent.site = move_orphans.site
    AND parent.fingerprint = move_orphans.fingerprint
WHERE urls.number = move_orphans.url"""


class SqliteStateCarrier:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._ledger = Ledger()
        database.on_rollback.append(self._ledger.forget)

    async def mark(self) -> Mark | None:
        return await read_mark(self._database)

    async def set_mark(self, mark: Mark | None) -> None:
        await write_mark(self._database, mark)

    async def time(self) -> float:
        return self._clock.now()

    async def holders(self) -> list[str]:
        rows = await self._rows(
            "SELECT worker FROM urls WHERE state = 'leased' AND lease_until > ?1 "
            "UNION SELECT leader FROM scheduling WHERE until > ?1",
            (self._clock.now(),),
        )
        return [name for (name,) in rows]

    async def tally(self) -> dict[str, int]:
        await self._clear_leftovers()
        counts: dict[str, int] = {}
        states = await self._states()
        jobs = await self._jobs(states)
        for job in jobs:
            extras = {name: getattr(job, name) for name in EXTRAS}
            forgotten = {f"{state} without a row": count for state, count in job.forgotten.items()}
            counts |= job_tally(job.id, states.get(job.number, {}), {**extras, **forgotten})
        for name, table in _COUNTED.items():
            counts[name] = (await self._rows(f"SELECT count(*) FROM {table}"))[0][0]  # noqa: S608 - our own names
        return {name: count for name, count in {"jobs": len(jobs), **counts}.items() if count}

    async def pour(self) -> AsyncIterator[Sequence[StateItem]]:
        await self._clear_leftovers()
        yield await self._jobs(await self._states())
        async for rows in stream(self._database, _SCHEDULES, (), AT_ONCE):
            yield [CarriedSchedule(readable(read_standing(name, text))) for name, text in rows]
        async for rows in stream(self._database, _SOWN_SITES, (), AT_ONCE):
            yield [CarriedSown(job, SeedFindings(frozenset((site,)))) for job, site in rows]
        async for rows in stream(self._database, _TROUBLES, (), AT_ONCE):
            yield [CarriedSown(job, SeedFindings(trouble=trouble)) for job, trouble in rows]
        async for rows in stream(self._database, _SITES, (), AT_ONCE):
            yield [
                CarriedSite(name=name, next_at=next_at, rest_until=rest, asked_interval=asked, in_hand=in_hand)
                for name, next_at, rest, asked, in_hand in rows
            ]
        async for rows in stream(self._database, _ROBOTS, (), AT_ONCE):
            yield [
                CarriedRobots(origin=origin, status=status, text=text, fetched_at=fetched_at, expires_at=expires_at)
                for origin, status, text, fetched_at, expires_at in rows
            ]
        async for rows in stream(self._database, _STANDINGS, (), AT_ONCE):
            yield [CarriedStanding(**dict(zip(CarriedStanding.__struct_fields__, row, strict=True))) for row in rows]
        async for rows in stream(self._database, _PURSES, (), AT_ONCE):
            yield [CarriedPurse(name=name, spent=spent) for name, spent in rows]
        async for rows in stream(self._database, _BUDGETS, (), AT_ONCE):
            yield [CarriedBudget(job=job, site=site, taken=taken) for job, site, taken in rows]
        async for rows in stream(self._database, _SHAPES, (), AT_ONCE):
            yield [CarriedShape(job=job, site=site, shape=shape, taken=taken) for job, site, shape, taken in rows]
        for sql in (_NOT_QUEUED, _QUEUED):
            async for rows in stream(self._database, sql, (), AT_ONCE):
                incidents = await self._incidents([row[0] for row in rows])
                yield [carried_url(row, incidents.get(row[0], ())) for row in rows]

    async def fill(self, batch: Sequence[StateItem]) -> None:
        await self._database.write(lambda connection: self._fill(connection, batch))

    async def settle(self) -> None:
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
            self._ledger.forget()

        await self._database.write(write)

    # -- reading -----------------------------------------------------------------------------------------------

    async def _rows(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _clear_leftovers(self) -> None:
        """Jobs that were forgotten are not carried, and their pages are not counted."""
        while await self._database.write(lambda connection: clear_some(connection, self._clock.now())):
            pass

    async def _jobs(self, states: dict[int, dict[str, int]]) -> list[CarriedJob]:
        return [carried_job(row, states.get(row[0], {})) for row in await self._rows(_JOBS)]

    async def _states(self) -> dict[int, dict[str, int]]:
        """How many URLs each job has in each state. Counted here: GROUP BY would sort all of them in memory."""
        counted: Counter[tuple[int, str]] = Counter()
        async for rows in stream(self._database, _STATES_OF_URLS, (), COUNTED_AT_ONCE):
            counted.update(rows)
        states: dict[int, dict[str, int]] = {}
        for (job, state), count in counted.items():
            states.setdefault(job, {})[state] = count
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

    def _fill(self, connection: sqlite3.Connection, batch: Sequence[StateItem]) -> None:
        connection.execute(_ORPHANS)
        turn = int(self._clock.now() * MICROSECONDS)
        tallies: dict[int, Tally] = {}
        fed: dict[tuple[int, int, str], int] = {}  # job, site and lane -> the best priority that was queued
        for item in batch:
            if isinstance(item, CarriedUrl):
                self._add_url(connection, item, turn, tallies.setdefault(item.job, Tally()), fed)
            else:
                self._add(connection, item, turn)
        for (job, site, lane), priority in fed.items():
            self._ledger.requeue(connection, job, site, lane, priority, self._clock.now())
        for job, tally in tallies.items():
            tally.write(connection, job)

    def _add(self, connection: sqlite3.Connection, item: StateItem, turn: int) -> None:
        match item:
            case CarriedJob():
                forgotten = {name: count for name, count in item.forgotten.items() if name in STATES}
                names = ("number", "id", "name", "state", "sealed", "paused", "ending", "created_at", "finished_at",
                         "terms", *EXTRAS, *forgotten)  # fmt: skip
                extras = [getattr(item, name) for name in EXTRAS]
                connection.execute(
                    f"INSERT OR IGNORE INTO jobs ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})",  # noqa: S608
                    (item.number, item.id, item.name, item.state, int(item.sealed), int(item.paused), item.ending,
                     item.created_at, item.finished_at, msgspec.json.encode(item.terms).decode(), *extras,
                     *forgotten.values()),
                )  # fmt: skip
            case CarriedSchedule(standing):
                connection.execute(
                    "INSERT OR IGNORE INTO schedules (name, version, standing) VALUES (?, ?, ?)",
                    (standing.schedule.name, standing.version, msgspec.json.encode(standing).decode()),
                )
                connection.execute("UPDATE scheduling SET changes = max(changes, ?)", (standing.version,))
            case CarriedSown(job, sown):
                connection.executemany(
                    "INSERT OR IGNORE INTO sown_sites (job, site) VALUES (?, ?)", [(job, site) for site in sown.sites]
                )
                if sown.trouble:
                    connection.execute(
                        "INSERT OR IGNORE INTO sowings (job, trouble) VALUES (?, ?)", (job, sown.trouble)
                    )
            case CarriedSite():
                connection.execute(
                    "UPDATE sites SET next_at = ?, rest_until = ?, asked_interval = ? WHERE number = ?",
                    (item.next_at, item.rest_until, item.asked_interval, self._ledger.site(connection, item.name)),
                )
            case CarriedRobots():
                connection.execute(
                    "INSERT OR REPLACE INTO robots (origin, status, body, fetched_at, expires_at) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (item.origin, item.status, item.text, item.fetched_at, item.expires_at),
                )
            case CarriedStanding():
                connection.execute(
                    "INSERT OR IGNORE INTO standings (site, route, since, reason, blocks, recheck_at, patience) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    msgspec.structs.astuple(item),
                )
            case CarriedPurse():
                connection.execute("INSERT OR IGNORE INTO purses (name, spent) VALUES (?, ?)", (item.name, item.spent))
            case CarriedBudget():
                site = self._ledger.site(connection, item.site)
                connection.execute(_ADD_QUEUE, (item.job, site, turn, item.taken))
            case CarriedShape():
                site = self._ledger.site(connection, item.site)
                connection.execute(
                    "INSERT OR REPLACE INTO shapes (job, site, shape, taken) VALUES (?, ?, ?, ?)",
                    (item.job, site, item.shape, item.taken),
                )

    def _add_url(
        self,
        connection: sqlite3.Connection,
        url: CarriedUrl,
        turn: int,
        tally: Tally,
        fed: dict[tuple[int, int, str], int],
    ) -> None:
        site = self._ledger.site(connection, url.site)
        home = self._ledger.site(connection, url.parent_site or url.site)
        parent = None
        if url.parent is not None:
            parent = connection.execute(
                "SELECT number FROM urls WHERE job = ? AND site = ? AND fingerprint = ?", (url.job, home, url.parent)
            ).fetchone()
        added = connection.execute(
            _ADD_URL,
            (url.job, site, url.state.value, url.reason, url.message, url.priority, turn, url.depth, url.attempts,
             url.deliveries, url.due_at, url.fingerprint, url.url, url.kind, parent[0] if parent else None,
             url.created_at, url.changed_at, url.max_attempts, url.data,
             msgspec.json.encode(url.redirects).decode() if url.redirects else "", url.fetcher or None,
             url.proxy_pool, url.country, url.how),
        ).fetchone()  # fmt: skip
        if added is None:
            return
        setattr(tally, url.state.value, getattr(tally, url.state.value) + 1)
        if url.state is UrlState.QUEUED:
            which = (url.job, site, url.fetcher or "")
            fed[which] = max(url.priority, fed.get(which, url.priority))
        if url.parent is not None and parent is None:
            connection.execute("INSERT INTO move_orphans VALUES (?, ?, ?)", (added[0], home, url.parent))
        for at, what in url.incidents:
            self._ledger.note(connection, added[0], at, what)
