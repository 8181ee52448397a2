"""A state file that an older Gossamer wrote is brought up to date when it is opened, and nothing in it changes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.sqlite.connection import numbered_scripts, statements_of
from gossamer.backends.sqlite.state import APPLICATION_ID, open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.errors import BadState
from gossamer.frontier.politeness import SiteTerms
from gossamer.routing.contract import Bound, LearnedRoute

TERMS = SiteTerms(interval=None, burst=1, concurrency=None)


def written_by_version(version: int, file: Path) -> None:
    """The file as that version left it, with one job."""
    connection = sqlite3.connect(file)
    for _, script in numbered_scripts("state")[:version]:
        for statement in statements_of(script):
            connection.execute(statement)
    connection.execute(
        "INSERT INTO jobs (number, id, name, state, created_at, terms) "
        "VALUES (1, 'books-1', 'books', 'running', 5, '{}')"
    )
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


async def test_a_file_of_the_first_version_gets_the_books_about_routes(tmp_path):
    file = tmp_path / "state.db"
    written_by_version(1, file)

    async with open_sqlite_state(
        file, VirtualClock(), lease_duration=timedelta(seconds=30), terms_for=lambda _: TERMS
    ) as state:
        standing = LearnedRoute(site="shop.example", route="browser", since=1.0)
        assert await state.routes.learned_routes() == []
        assert await state.routes.learn(standing, instead_of=None)
        assert await state.budgets.take(0.5, [Bound("job/1", 1)]) is None

        assert [job.id for job in await state.jobs.jobs()] == ["books-1"]
        assert await state.routes.learned("shop.example") == [standing]

    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA user_version").fetchone() == (numbered_scripts("state")[-1][0],)
    connection.close()


async def opened_with_fingerprints(file: Path) -> list[str]:
    async with open_sqlite_state(
        file, VirtualClock(), lease_duration=timedelta(seconds=30), terms_for=lambda _: TERMS
    ) as state:
        return [job.id for job in await state.jobs.jobs()]


async def test_a_file_without_a_version_of_fingerprints_counts_as_version_1(tmp_path):
    file = tmp_path / "state.db"
    written_by_version(8, file)

    assert await opened_with_fingerprints(file) == ["books-1"]

    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version FROM fingerprints").fetchall() == [(1,)]


async def test_a_file_with_fingerprints_of_another_version_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "state.db"
    await opened_with_fingerprints(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE fingerprints SET version = 2")

    with pytest.raises(BadState, match=r"fingerprints of version 2.*set state to another path"):
        await opened_with_fingerprints(file)
