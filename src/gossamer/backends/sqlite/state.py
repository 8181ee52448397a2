"""Opening the state file: everything of the frontier that lives in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import msgspec

from ...clock import Clock
from ...frontier.contract import FrontierFor
from ...frontier.politeness import TermsFor
from ..processes import is_gone as process_is_gone
from .connection import Database
from .desk import SqliteDesk
from .exits import SqliteExits
from .frontier import SqliteFrontier
from .jobs import SqliteJobs
from .robots import SqliteRobotsShelf
from .routes import SqliteBudgetBook, SqliteRouteBook
from .schedules import SqliteSchedules
from .sowing import SqliteSowings
from .workers import SqliteWorkers

APPLICATION_ID = 0x676F7373  # "goss"
LINGER = timedelta(milliseconds=2)


class SqliteState(msgspec.Struct, frozen=True):
    """The parts of one open state file."""

    database: Database
    frontier: SqliteFrontier
    jobs: SqliteJobs
    desk: SqliteDesk
    robots: SqliteRobotsShelf
    workers: SqliteWorkers
    routes: SqliteRouteBook
    purse: SqliteBudgetBook
    exits: SqliteExits
    schedules: SqliteSchedules
    sowings: SqliteSowings
    frontier_for: FrontierFor


@asynccontextmanager
async def open_sqlite_state(
    path: Path,
    clock: Clock,
    *,
    lease_duration: timedelta,
    terms_for: TermsFor,
    is_gone: Callable[[str], bool] = process_is_gone,
) -> AsyncIterator[SqliteState]:
    """Open or make the file. Raises BadState when it is not ours."""
    # Not fsynced per commit: a power cut may undo the last settlements, so that work is repeated. The records
    # of that work are fsynced before, so that nothing is lost.
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

    async with database:
        try:
            yield SqliteState(
                database,
                frontier_with(terms_for),
                jobs,
                SqliteDesk(database, clock, jobs),
                SqliteRobotsShelf(database),
                SqliteWorkers(database),
                SqliteRouteBook(database),
                SqliteBudgetBook(database),
                SqliteExits(database, clock),
                SqliteSchedules(database, clock, jobs),
                SqliteSowings(database, clock, is_gone=is_gone),
                frontier_for,
            )
        finally:
            await jobs.close()
