"""The formats of SQLite files: those of the previous one are migrated when they are opened, those from before the first
release are refused."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.sqlite import connection
from gossamer.backends.sqlite.connection import UNRELEASED, numbered_scripts
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.errors import BadState
from gossamer.frontier.politeness import SiteTerms

TERMS = SiteTerms(interval=None, burst=1, concurrency=None)
NEXT = {"records": "ALTER TABLE records ADD COLUMN colour TEXT;", "state": "ALTER TABLE jobs ADD COLUMN colour TEXT;"}
FILES = pytest.mark.parametrize("name", ["records", "state"])


@asynccontextmanager
async def opened(name: str, path: Path) -> AsyncIterator[None]:
    if name == "records":
        async with open_sqlite_records(path, VirtualClock()):
            yield
    else:
        lease = timedelta(seconds=30)
        async with open_sqlite_state(path, VirtualClock(), lease_duration=lease, terms_for=lambda _: TERMS):
            yield


def columns(name: str, path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as file:
        return [row[1] for row in file.execute(f"PRAGMA table_info({'records' if name == 'records' else 'jobs'})")]


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as file:
        return int(file.execute("PRAGMA user_version").fetchone()[0])


def one_more_format(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    monkeypatch.setattr(connection, "numbered_scripts", lambda name: [*numbered_scripts(name), (2, script)])


@FILES
async def test_a_file_of_the_first_format_is_migrated_to_the_next_and_keeps_its_rows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.db"
    async with opened(name, path):
        pass
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE TABLE kept (word TEXT)")
        file.execute("INSERT INTO kept VALUES ('here')")
    assert version(path) == 1

    one_more_format(monkeypatch, NEXT[name])
    for _ in range(2):  # the second opening finds nothing to do
        async with opened(name, path):
            pass

    assert (version(path), "colour" in columns(name, path)) == (2, True)
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT word FROM kept").fetchall() == [("here",)]


@FILES
async def test_a_migration_that_fails_changes_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.db"
    async with opened(name, path):
        pass
    one_more_format(monkeypatch, f"{NEXT[name]}\nSELECT missing FROM nowhere;")
    with pytest.raises(Exception, match="nowhere"):
        async with opened(name, path):
            pass
    assert (version(path), "colour" in columns(name, path)) == (1, False)


@FILES
@pytest.mark.parametrize("application_id", UNRELEASED)
async def test_a_file_from_before_the_first_release_is_refused_and_left_alone(
    name: str, application_id: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE jobs (number INTEGER PRIMARY KEY)")
        file.execute(f"PRAGMA application_id = {application_id}")
        file.execute("PRAGMA user_version = 7")
    before = path.read_bytes()

    with pytest.raises(BadState, match=rf"before 0\.1\.0.*Export what you need.*set {name} to another path"):
        async with opened(name, path):
            pass
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*) FROM sqlite_master").fetchone() == (1,)
    assert version(path) == 7
    assert len(path.read_bytes()) == len(before)


@FILES
async def test_a_file_of_a_build_before_the_first_release_with_the_same_number_is_refused_and_left_alone(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.db"
    async with opened(name, path):
        pass
    with closing(sqlite3.connect(path)) as file:  # a column that is no more
        file.execute(f"ALTER TABLE {'seen_by' if name == 'records' else 'workers'} ADD COLUMN colour TEXT")

    with pytest.raises(BadState, match=rf"before 0\.1\.0.*Export what you need.*set {name} to another path"):
        async with opened(name, path):
            pass

    assert version(path) == 1


@FILES
async def test_a_file_with_objects_of_its_user_is_opened(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file.db"
    async with opened(name, path):
        pass
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("CREATE VIEW mine AS SELECT 1")

    async with opened(name, path):
        pass
