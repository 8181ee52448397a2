"""Writes that are committed together and still fail alone; reads that nobody waits for any more."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.sqlite.connection import Database
from gossamer.backends.sqlite.state import APPLICATION_ID
from gossamer.errors import BackendUnavailable
from tests.patience import PATIENCE


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(
        tmp_path / "state.db",
        schema="state",
        application_id=APPLICATION_ID,
        durable=False,
        linger=timedelta(milliseconds=20),
        role="state",
    )


async def test_a_value_that_cannot_be_stored_fails_its_own_write_only(database: Database) -> None:
    values = [1, 10**30, "half \ud800", 2]

    def note(value: object) -> asyncio.Task[int]:
        return asyncio.ensure_future(
            database.write(
                lambda connection: (
                    connection.execute("INSERT INTO incidents (url, at, what) VALUES (1, 0, ?)", (value,)).rowcount
                )
            )
        )

    async with database:
        await database.write(lambda connection: connection.execute("PRAGMA foreign_keys = OFF").rowcount)
        outcomes = await asyncio.gather(*(note(value) for value in values), return_exceptions=True)
        kept = await database.read(
            lambda connection: [row[0] for row in connection.execute("SELECT what FROM incidents ORDER BY rowid")]
        )

    assert [type(outcome) for outcome in outcomes] == [int, OverflowError, UnicodeEncodeError, int]
    assert kept == ["1", "2"]
    with pytest.raises(Exception, match="closed"):
        await note(3)


async def test_a_read_that_nobody_waits_for_any_more_keeps_the_connection_to_its_end(database: Database) -> None:
    began, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def slowly(connection: sqlite3.Connection) -> None:
        began.set()
        assert go_on.wait(PATIENCE)
        seen.append(f"slow {connection.execute('SELECT count(*) FROM jobs').fetchone()[0]}")

    def quickly(connection: sqlite3.Connection) -> None:
        seen.append(f"quick {connection.execute('SELECT count(*) FROM jobs').fetchone()[0]}")

    async def close_and_read_no_more() -> None:
        async with database:
            asking = asyncio.create_task(database.read(slowly))
            await asyncio.to_thread(began.wait, PATIENCE)
            # when whoever asked is cancelled, and others ask
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            waiting = asyncio.create_task(database.read(quickly))
            await asyncio.sleep(0.05)
            assert not seen
            asyncio.get_running_loop().call_later(0.1, go_on.set)
        with pytest.raises(BackendUnavailable):
            await database.read(quickly)
        await asyncio.gather(waiting, return_exceptions=True)

    await close_and_read_no_more()
    # then the first has read all it wanted before the file was closed, and nobody read at the same time
    assert seen[0] == "slow 0"
