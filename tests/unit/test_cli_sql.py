"""`gossamer sql`, as a person uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock

from ..conformance.stores import NOW, book, result


@pytest.fixture
async def project(tmp_path: Path) -> Path:
    (tmp_path / "gossamer.toml").touch()
    async with open_sqlite_records(tmp_path / "gossamer-data" / "records.db", VirtualClock(NOW + 10)) as store:
        await store.save([result(book(f"{n}", title="=1+1" if n == 0 else f"t{n}\x1b[31m", price=n)) for n in range(3)])
    return tmp_path


def gossamer(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gossamer", "sql", *words], cwd=folder, capture_output=True, text=True)


async def test_rows_are_shown_and_what_is_beyond_the_limit_is_said(project: Path) -> None:
    done = gossamer(project, "SELECT title, price FROM book ORDER BY price;", "--limit", "2")
    assert done.stdout.split() == ["title", "price", "=1+1", "0", "t1\\x1b[31m", "1"]
    assert "The first 2 rows; there are more" in done.stderr


async def test_csv_is_safe_for_spreadsheets_and_json_has_objects(project: Path) -> None:
    assert gossamer(project, "SELECT title FROM book WHERE price = 0", "--csv").stdout.split() == ["title", "'=1+1"]
    done = gossamer(project, "SELECT price, _first_seen FROM book WHERE price = 1", "--json")
    assert json.loads(done.stdout) == [{"price": 1, "_first_seen": "2027-01-15T08:00:00.000Z"}]


async def test_a_misspelt_name_is_answered_with_the_one_that_may_be_meant(project: Path) -> None:
    for query, meant in (("SELECT titel FROM book", "title"), ("SELECT * FROM books_history", "book_history")):
        done = gossamer(project, query)
        assert done.returncode != 0
        assert f"Did you mean {meant}?" in done.stderr
        assert "Traceback" not in done.stderr


async def test_without_a_query_the_views_and_their_columns_are_listed(project: Path) -> None:
    views = json.loads(gossamer(project, "--json").stdout)
    assert [(view["view"], view["history"], view["changes"]) for view in views] == [
        ("book", "book_history", "book_changes")
    ]
    assert {"name": "price", "holds": "number"} in views[0]["columns"]
    assert "book_changes" in gossamer(project).stdout


async def test_nothing_can_be_written(project: Path) -> None:
    done = gossamer(project, "DELETE FROM records")
    assert done.returncode != 0
    assert "Only reading is possible here" in done.stderr
    assert gossamer(project, "SELECT count(*) AS n FROM book", "--csv").stdout.split() == ["n", "3"]
