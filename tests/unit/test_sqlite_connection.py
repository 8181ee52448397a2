"""Writes that are committed together and still fail alone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.sqlite.connection import Database
from gossamer.backends.sqlite.state import APPLICATION_ID


async def test_a_value_that_cannot_be_stored_fails_its_own_write_only(tmp_path: Path) -> None:
    database = Database(
        tmp_path / "state.db",
        schema="state",
        application_id=APPLICATION_ID,
        durable=False,
        linger=timedelta(milliseconds=20),
        role="state",
    )
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
