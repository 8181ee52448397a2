"""What is particular to records in SQLite: tables that any tool can read, files that are not ours, a full disk."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, BadState, Permanent
from gossamer.store.contract import RecordQuery

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
        ("Book", "b1", '{"price":2}', "2027-01-15 08:00:00", "2027-01-15 08:01:00", 2)
    ]
    assert rows(path, "SELECT version, at, job, data FROM record_history ORDER BY version") == [
        (1, "2027-01-15 08:00:00", "books-1", '{"price":1}'),
        (2, "2027-01-15 08:01:00", "books-2", '{"price":2}'),
    ]
    assert rows(path, "SELECT at, job, outcome, status, latency_ms FROM attempt_list") == [
        ("2027-01-15 08:00:00.000", "books-1", "done", 200, 125.0),
        ("2027-01-15 08:01:00.500", "books-2", "done", 200, 125.0),
    ]
    assert rows(path, "SELECT url, fetched, archive_ref FROM visit_list") == [
        ("https://shop.example/b1", "2027-01-15 08:00:00", "2027-01-15/w-1.zst#0+9")
    ]
    assert rows(path, "SELECT fetched, length(fingerprint) FROM page_list") == [("2027-01-15 08:00:00", 32)]
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    assert rows(path, "PRAGMA foreign_key_check") == []


async def test_a_query_never_sorts_what_lies_behind_the_chunk(tmp_path: Path) -> None:
    from gossamer.backends.sqlite.records import _selection

    path = tmp_path / "records.db"
    async with open_sqlite_records(path, CLOCK):
        pass
    for query in (RecordQuery(), RecordQuery(type="Book", site="x"), RecordQuery(job="j", type="Book", since=1.0)):
        source, number, values = _selection(query)
        sql = f"EXPLAIN QUERY PLAN SELECT data FROM {source} AND {number} > 5 ORDER BY {number} LIMIT 9"
        with closing(sqlite3.connect(path)) as connection:
            plan = [row[3] for row in connection.execute(sql, values)]
        assert plan
        assert not any("TEMP B-TREE" in step for step in plan), plan
        assert all(step.startswith("SEARCH") for step in plan), plan


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
