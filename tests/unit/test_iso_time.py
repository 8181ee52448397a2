"""The text of a time is the same in exports and in the views of SQLite."""

from __future__ import annotations

import sqlite3

from hypothesis import example, given
from hypothesis import strategies as st

from gossamer.clock import iso_time

VIEW = "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', ?, 'unixepoch')"  # as in sqlite/schema/records-001.sql


@given(st.floats(0, 4e9))
@example(1_795_118_399.9156)
@example(1_795_118_399.9996)
def test_a_time_has_one_text(seconds: float) -> None:
    with sqlite3.connect(":memory:") as database:
        assert iso_time(seconds) == database.execute(VIEW, (seconds,)).fetchone()[0]
