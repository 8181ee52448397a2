"""What is particular to records in SQLite: tables that any tool can read, files that are not ours, a full disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.backends.records.queries import selection
from gossamer.backends.sqlite.record_sql import SQLITE, sqlite_spelling, sqlite_value
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, BadState, Misconfigured, Permanent
from gossamer.store.contract import RecordQuery, Retirement

from ..conformance.stores import NOW, book, page_of, result, tried
from .test_folder_archive import disk_ends_after

CLOCK = VirtualClock(NOW + 10_000)


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def test_any_tool_finds_readable_tables(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    async with open_sqlite_records(path, CLOCK) as store:
        await store.save([result(book(price=1), page=page_of(archive_ref="2027-01-15/w-1.zst#0+9"))])
        await store.save(
            [result(book(price=2, at=NOW + 60, job="books-2"), attempt=tried(at=NOW + 60.5, job="books-2"))]
        )
    assert rows(path, "SELECT type, key, data, first_seen, last_changed, version FROM record_list") == [
        ("Book", "b1", '{"price":2}', "2027-01-15T08:00:00.000Z", "2027-01-15T08:01:00.000Z", 2)
    ]
    assert rows(path, "SELECT version, at, job, data FROM record_history ORDER BY version") == [
        (1, "2027-01-15T08:00:00.000Z", "books-1", '{"price":1}'),
        (2, "2027-01-15T08:01:00.000Z", "books-2", '{"price":2}'),
    ]
    async with open_sqlite_records(path, CLOCK) as store:
        await store.save([result(attempt=tried(at=NOW + 90, job="books-3"))])
        await store.retire(Retirement(job="books-3", spider="books", at=NOW + 120))
    assert rows(path, "SELECT key, gone_since FROM record_list") == [("b1", "2027-01-15T08:02:00.000Z")]
    assert rows(path, "SELECT version, gone FROM record_history ORDER BY version") == [(1, 0), (2, 0), (3, 1)]
    assert rows(path, "SELECT at, job, outcome, status, latency_ms FROM attempt_list") == [
        ("2027-01-15T08:00:00.000Z", "books-1", "done", 200, 125.0),
        ("2027-01-15T08:01:00.500Z", "books-2", "done", 200, 125.0),
        ("2027-01-15T08:01:30.000Z", "books-3", "done", 200, 125.0),
    ]
    assert rows(path, "SELECT url, fetched, archive_ref FROM visit_list") == [
        ("https://shop.example/b1", "2027-01-15T08:00:00.000Z", "2027-01-15/w-1.zst#0+9")
    ]
    assert rows(path, "SELECT fetched, length(fingerprint) FROM page_list") == [("2027-01-15T08:00:00.000Z", 32)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "PRAGMA foreign_key_check") == []


WALKS = [
    RecordQuery(),
    RecordQuery(newest=True),
    RecordQuery(type="Book", site="x"),
    RecordQuery(job="j", type="Book", since=1.0, gone=False),
]
FEW = [
    RecordQuery(after="sqlite:s:5", upto="sqlite:s:9"),
    RecordQuery(after="sqlite:s:5", job="j"),
    RecordQuery(key="k"),
    RecordQuery(type="t", site="s", key="k"),
]


def plan(path: Path, sql: str, values: Sequence[object]) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [
            row[3]
            for row in connection.execute(f"EXPLAIN QUERY PLAN {sqlite_spelling(sql)}", list(map(sqlite_value, values)))
        ]


@pytest.fixture
async def empty(tmp_path: Path) -> Path:
    async with open_sqlite_records(tmp_path / "records.db", CLOCK):
        return tmp_path / "records.db"


@pytest.mark.parametrize("query", WALKS, ids=str)
async def test_a_query_never_sorts_what_lies_behind_the_chunk(empty: Path, query: RecordQuery) -> None:
    wanted = selection(SQLITE, query, "s", 9)
    steps = plan(empty, wanted.chunk("records.data", newest=query.newest), (*wanted.values, 5))
    assert steps
    assert not any("TEMP B-TREE" in step for step in steps), steps
    assert all(step.startswith("SEARCH") for step in steps), steps


@pytest.mark.parametrize("query", FEW, ids=str)
async def test_few_among_many_are_found_through_an_index(empty: Path, query: RecordQuery) -> None:
    wanted = selection(SQLITE, query, "s", 9)
    assert wanted.few is not None
    index = "sqlite_autoindex_records_1" if query.key is not None else "records_revision"
    for sql, values in ((wanted.few, wanted.few_values), wanted.count()):
        steps = plan(empty, sql, values)
        assert any(index in step for step in steps), steps
        # Pairs of type and site are walked by leaps; of the table itself nothing is scanned.
        assert not any(step.startswith("SCAN records") and "INDEX" not in step for step in steps), steps
    steps = plan(empty, wanted.picked("records.data"), (*wanted.values, [1]))
    assert not any(step.startswith("SCAN records") for step in steps), steps


async def test_a_query_that_means_more_than_fits_in_memory_walks_along_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.backends.records.queries.MOST_FOUND", 10)
    async with open_sqlite_records(tmp_path / "records.db", CLOCK) as store:
        mark = await store.cursor()
        await store.save([result(book(f"{n}")) for n in range(30)])
        for query in (RecordQuery(after=mark), RecordQuery(after=mark, job="books-1")):
            assert [record.key async for record in store.records(query)] == [f"{n}" for n in range(30)]


async def test_a_mark_of_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    async with (
        open_sqlite_records(tmp_path / "one.db", CLOCK) as one,
        open_sqlite_records(tmp_path / "two.db", CLOCK) as two,
    ):
        for store in (one, two):
            await store.save([result(book())])
        with pytest.raises(Misconfigured, match="another record store"):
            await two.count(RecordQuery(after=await one.cursor()))


async def test_a_row_that_somebody_spoilt_is_named(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    async with open_sqlite_records(path, CLOCK) as store:
        await store.save([result(book("b1"))])
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE records SET data = 'not json'")
            connection.commit()
        with pytest.raises(Permanent, match=r"Book 'b1' of shop\.example"):
            [record async for record in store.records(RecordQuery())]


async def test_a_file_that_is_not_sqlite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    path.write_bytes(b"Dear diary, " * 1000)
    with pytest.raises(BadState, match="records"):
        async with open_sqlite_records(path, CLOCK):
            pass
    assert path.read_bytes() == b"Dear diary, " * 1000


async def test_a_full_disk_stores_nothing_of_the_batch_and_work_goes_on_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    async with open_sqlite_records(path, CLOCK) as store:
        await store.save([result(book("before"))])
        room = path.with_name("records.db-wal").stat().st_size + 20_000
        big = [result(book(f"{n}", text="x" * 20_000)) for n in range(20)]
        with disk_ends_after(room), pytest.raises(BackendUnavailable, match="Free some space"):
            await store.save(big)
        assert await store.count(RecordQuery()) == 1
        assert await store.save(big) == [1] * 20
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
