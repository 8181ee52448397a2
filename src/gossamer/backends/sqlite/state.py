"""The state of a project in one SQLite file, and its small books: heartbeats of workers, the pace of
addresses, waking what waits, erasing URLs, robots.txt as last read. Shared by all processes, kept across restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from ...clock import Clock
from ...fetch.robots_shelf import RobotsEntry
from ...frontier.contract import DRAIN, RESTART, WorkerCard
from ...frontier.learned_pace import LearnedPace, longest
from ...frontier.politeness import TermsFor, after_start
from ...model.job import JobPace
from ...model.task import NO_ROOM_FROM, UrlState
from ...model.url import FINGERPRINT_VERSION
from ...store.erasure import REASON
from ..state import State, check_fingerprints
from ..worker_names import is_gone as process_is_gone
from .cleanup import PACER_DELAY
from .connection import Database
from .frontier import SqliteFrontier
from .jobs import SqliteJobs, SqliteSeedBook
from .lease_recovery import TOO_FAR
from .proxies import SqliteProxyBook
from .queue_rows import STATES_BY_LETTER, CountChanges, QueueRows, free_slots
from .queue_view import SqliteQueueView
from .routes import SqliteBudgetBook, SqliteRouteBook
from .schedules import SqliteSchedules
from .shelf import SqliteShelf
from .state_stream import SqliteStateStream

APPLICATION_ID = 0x67735374  # "gsSt"
LINGER = timedelta(milliseconds=1)  # settled pages and the lease that follows them share a commit


@asynccontextmanager
async def open_sqlite_state(
    path: Path,
    clock: Clock,
    *,
    lease_duration: timedelta,
    terms_for: TermsFor,
    is_gone: Callable[[str], bool] = process_is_gone,
) -> AsyncIterator[State]:
    """Open or create the file. Raises BadState if another program or a newer version made it."""
    # Not fsynced per commit: a power cut may undo the last settlements, so that work is repeated. The records of that
    # work are fsynced before, so nothing is lost.
    database = Database(path, schema="state", application_id=APPLICATION_ID, durable=False, linger=LINGER, role="state")

    jobs = SqliteJobs(database, clock)

    def frontier_with(terms_for: TermsFor) -> SqliteFrontier:
        return SqliteFrontier(
            database, clock, jobs, lease_duration=lease_duration, terms_for=terms_for, is_gone=is_gone
        )

    @contextmanager
    def frontier_for(terms_for: TermsFor) -> Iterator[SqliteFrontier]:
        frontier = frontier_with(terms_for)
        try:
            yield frontier
        finally:
            frontier.let_go()

    schedules = SqliteSchedules(database, clock, jobs)
    async with database:
        version = await database.read(_stored_version)
        if version is None:
            version = await database.write(_store_version)
        check_fingerprints(version, str(path), "set state to another path in gossamer.toml.")
        try:
            yield State(
                frontier=frontier_with(terms_for),
                frontier_for=frontier_for,
                queue=SqliteQueueView(database, clock, jobs),
                jobs=jobs,
                control=jobs,
                history=jobs,
                seeds=SqliteSeedBook(database, clock, is_gone=is_gone),
                schedules=schedules,
                ticks=schedules,
                robots=SqliteRobotsShelf(database),
                addresses=SqliteAddressBook(database, clock),
                waiting=SqliteWaking(database, clock),
                workers=SqliteWorkers(database),
                routes=SqliteRouteBook(database),
                budgets=SqliteBudgetBook(database),
                proxies=SqliteProxyBook(database, clock),
                shelf=SqliteShelf(database, clock),
                erasure=SqliteUrlErasure(database, clock),
                stream=SqliteStateStream(database, clock),
                clock=clock,
                durable=database.sync,
            )
        finally:
            await jobs.close()


def _stored_version(connection: sqlite3.Connection) -> int | None:
    """The version of the fingerprints in this file; None if it is not stored yet."""
    row = connection.execute("SELECT version FROM fingerprints").fetchone()
    return int(row[0]) if row is not None else None


def _store_version(connection: sqlite3.Connection) -> int:
    found = _stored_version(connection)
    if found is None:
        (knows_urls,) = connection.execute("SELECT EXISTS (SELECT 1 FROM urls)").fetchone()
        found = 1 if knows_urls else FINGERPRINT_VERSION
        connection.execute("INSERT INTO fingerprints (version) VALUES (?)", (found,))
    return found


class SqliteAddressBook:
    """The pace per address, for addresses that many sites share. Fulfils `AddressBook`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def take_turn(self, address: str, interval: timedelta, longest: timedelta) -> timedelta:
        def write(connection: sqlite3.Connection) -> timedelta:
            now = self._clock.now()
            connection.execute("DELETE FROM address_paces WHERE next_at <= ?", (now,))
            row = connection.execute("SELECT next_at FROM address_paces WHERE address = ?", (address,)).fetchone()
            next_at = row[0] if row is not None else now
            if next_at > now + TOO_FAR.total_seconds():
                next_at = now  # no reservation reaches so far: the clock was ahead
            wait = next_at - now
            if wait <= longest.total_seconds():
                after = after_start(next_at, start=now, interval=interval.total_seconds())
                connection.execute(
                    "INSERT OR REPLACE INTO address_paces (address, next_at) VALUES (?, ?)", (address, after)
                )
            return timedelta(seconds=wait)

        return await self._database.write(write)


class SqliteRobotsShelf:
    """robots.txt as it was last read. Fulfils `RobotsShelf`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, origin: str) -> RobotsEntry | None:
        row = await self._database.read(
            lambda c: c.execute(
                "SELECT status, body, fetched_at, expires_at FROM robots WHERE origin = ?", (origin,)
            ).fetchone()
        )
        if row is None:
            return None
        status, body, fetched_at, expires_at = row
        return RobotsEntry(origin=origin, status=status, text=body, fetched_at=fetched_at, expires_at=expires_at)

    async def put(self, entry: RobotsEntry) -> None:
        values = (entry.origin, entry.status, entry.text, entry.fetched_at, entry.expires_at)

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR REPLACE INTO robots (origin, status, body, fetched_at, expires_at) VALUES (?, ?, ?, ?, ?)",
                values,
            )

        await self._database.write(write)


# A file is used by one machine, whose clock is the clock of the state.
_FIELDS = tuple(name for name in WorkerCard.__struct_fields__ if name != "clock_ahead")
_BEAT = f"""
INSERT INTO workers ({", ".join(_FIELDS)}) VALUES ({", ".join("?" * len(_FIELDS))})
ON CONFLICT (name) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _FIELDS)} RETURNING asked"""  # noqa: S608


_read_paces = msgspec.json.Decoder(dict[str, JobPace]).decode  # the last field of a card


def _schema_of(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


class SqliteWorkers:
    """Heartbeats of workers. Fulfils `WorkerBook`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def beat(self, card: WorkerCard) -> str:
        await self.check_format()

        def write(connection: sqlite3.Connection) -> str:
            *plain, paces = (getattr(card, name) for name in _FIELDS)
            return str(connection.execute(_BEAT, (*plain, msgspec.json.encode(paces).decode())).fetchone()[0])

        return await self._database.write(write)

    async def check_format(self) -> None:
        self._database.check_schema(await self._database.read(_schema_of, quick=True))

    async def ask_to_drain(self, name: str, *, restart: bool = False) -> bool:
        sql, asked = "UPDATE workers SET asked = ? WHERE name = ?", RESTART if restart else DRAIN
        return bool(await self._database.write(lambda c: c.execute(sql, (asked, name)).rowcount))

    async def sign_off(self, name: str) -> None:
        await self._database.write(lambda c: c.execute("DELETE FROM workers WHERE name = ?", (name,)).rowcount)

    async def workers(self) -> list[WorkerCard]:
        sql = f"SELECT {', '.join(_FIELDS)} FROM workers ORDER BY name"  # noqa: S608 - our own names
        rows = await self._database.read(lambda c: c.execute(sql).fetchall(), quick=True)
        return [WorkerCard(**dict(zip(_FIELDS, row[:-1], strict=False)), paces=_read_paces(row[-1])) for row in rows]

    async def forget(self, before: float) -> int:
        return await self._database.write(
            lambda c: c.execute("DELETE FROM workers WHERE seen_at < ?", (before,)).rowcount
        )


WOKEN_AT_ONCE = 2000  # pages in one transaction: workers wait for it

_PACE = "SELECT number, asked_interval, learned_interval, refused_at FROM sites WHERE name = ?"
_NEXT = "UPDATE sites SET next_at = min(next_at, ?) WHERE number = ?"
# The next lease looks at them again, and they sleep on if the site's pace requires it.
_WAKE_SITE = """
UPDATE queues SET wake_at = min(wake_at, ?)
WHERE state = 'sleeping' AND site = (SELECT number FROM sites WHERE name = ?)"""
_UNLEARN = """
UPDATE sites SET learned_interval = NULL, refused_at = 0, between_refusals = 0
WHERE name = ? AND learned_interval IS NOT NULL"""
_WAKE = """
UPDATE urls SET due_at = :now WHERE number IN (
    SELECT urls.number FROM jobs CROSS JOIN urls ON urls.job = jobs.number
    WHERE jobs.state = 'running' AND urls.state = 'w' AND due_at > :now AND due_at < :most
    AND reason IN (SELECT value FROM json_each(:reasons)) LIMIT :limit)"""


class SqliteWaking:
    """Wakes what waits. Fulfils `Waking`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def wake_site(self, site: str, interval: timedelta | None) -> None:
        def write(connection: sqlite3.Connection) -> None:
            now = self._clock.now()
            for number, asked, learned, refused_at in connection.execute(_PACE, (site,)).fetchall():
                ours = interval.total_seconds() if interval is not None else None
                taught = LearnedPace(interval=learned, refused_at=refused_at).now(now)
                connection.execute(_NEXT, (now + (longest(ours, asked, taught) or 0.0), number))
            connection.execute(_WAKE_SITE, (now, site))

        await self._database.write(write)

    async def forget_pace(self, site: str) -> bool:
        def write(connection: sqlite3.Connection) -> bool:
            connection.execute(_WAKE_SITE, (self._clock.now(), site))
            return bool(connection.execute(_UNLEARN, (site,)).rowcount)

        return await self._database.write(write)

    async def wake(self, reasons: Collection[str]) -> int:
        values = {
            "most": NO_ROOM_FROM,
            "reasons": msgspec.json.encode(sorted(reasons)).decode(),
            "limit": WOKEN_AT_ONCE,
        }
        woken, more = 0, True
        while more:
            values["now"] = self._clock.now()
            count = await self._database.write(lambda c: c.execute(_WAKE, values).rowcount)
            woken, more = woken + count, count == WOKEN_AT_ONCE
        return woken


URLS_AT_ONCE = 200  # pages in one transaction

_ROWS = """
SELECT urls.number, urls.job, urls.state, urls.due_at FROM jobs CROSS JOIN urls INDEXED BY urls_identity
    ON urls.job = jobs.number AND urls.site = ? AND substr(urls.fingerprint, 1, 4) = ? AND urls.fingerprint = ?"""
# Its worker may still send the request that its pacer holds.
_LEAVE_ALONE = "UPDATE sites SET rest_until = max(rest_until, ?) WHERE number = ? AND holder IS NOT NULL"
_ERASE = """
UPDATE urls SET state = ?, reason = iif(state = 'o', reason, ?), message = '', origin = ?, path = '', extras = NULL,
    due_at = NULL WHERE number = ?"""
_OPEN = (UrlState.QUEUED, UrlState.WAITING, UrlState.LEASED, UrlState.DEAD)


class SqliteUrlErasure:
    """Takes the URLs of pages out of all jobs; the rows stay, so that counts add up. Fulfils `UrlErasure`."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def erase_urls(self, pages: Sequence[tuple[str, bytes]]) -> int:
        erased = 0
        for start in range(0, len(pages), URLS_AT_ONCE):
            some = pages[start : start + URLS_AT_ONCE]
            erased += await self._database.write(lambda connection, some=some: self._erase(connection, some))  # type: ignore[misc]
        return erased

    async def compact(self) -> str:
        return await self._database.compact()

    def _erase(self, connection: sqlite3.Connection, pages: Sequence[tuple[str, bytes]]) -> int:
        now, erased = self._clock.now(), 0
        nothing = QueueRows().text(connection, "")
        changes: dict[int, CountChanges] = {}
        for site, fingerprint in pages:
            known = connection.execute("SELECT number FROM sites WHERE name = ?", (site,)).fetchone()
            rows = connection.execute(_ROWS, (known[0], fingerprint[:4], fingerprint)).fetchall() if known else []
            for number, job, letter, due_at in rows:
                state = STATES_BY_LETTER[letter]
                counts = changes.setdefault(job, CountChanges())
                if state is UrlState.LEASED:  # its worker finds that it has lost the lease
                    connection.execute("DELETE FROM leases WHERE url = ?", (number,))
                    connection.execute(_LEAVE_ALONE, (now + PACER_DELAY.total_seconds(), known[0]))
                    free_slots(connection, known[0], next_at=now)
                if state in _OPEN:
                    counts[state.value] -= 1
                    counts.drop(REASON)
                    counts["postponed"] -= state is UrlState.WAITING and due_at >= NO_ROOM_FROM
                connection.execute(_ERASE, ("o" if state in _OPEN else letter, REASON, nothing, number))
                connection.execute("DELETE FROM incidents WHERE url = ?", (number,))
                erased += 1
        for job, counts in changes.items():
            counts.write(connection, job)
        return erased
