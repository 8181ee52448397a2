"""The state of a project in one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

from ...clock import Clock
from ...frontier.politeness import TermsFor
from ...model.url import FINGERPRINT_VERSION
from ..state import State, check_fingerprints
from ..worker_names import is_gone as process_is_gone
from .address_book import SqliteAddressBook
from .connection import Database
from .exits import SqliteExitBook
from .frontier import SqliteFrontier
from .jobs import SqliteJobs, SqliteSeedBook
from .queue_view import SqliteQueueView
from .robots import SqliteRobotsShelf
from .routes import SqliteBudgetBook, SqliteRouteBook
from .schedules import SqliteSchedules
from .shelf import SqliteShelf
from .site_orders import SqliteSiteOrders
from .state_stream import SqliteStateStream
from .workers import SqliteWorkers

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
                orders=SqliteSiteOrders(database, clock),
                workers=SqliteWorkers(database),
                routes=SqliteRouteBook(database),
                budgets=SqliteBudgetBook(database),
                exits=SqliteExitBook(database, clock),
                shelf=SqliteShelf(database, clock),
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
