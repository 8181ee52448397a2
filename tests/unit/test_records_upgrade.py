"""Records that an older Gossamer wrote: SQLite brings them up to date itself, PostgreSQL after `gossamer migrate`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg

from gossamer.backends.postgres.connection import migrate_database
from gossamer.backends.postgres.migrations import known_migrations
from gossamer.backends.postgres.records import open_postgres_records
from gossamer.backends.postgres.stored_text import identity_of
from gossamer.backends.sqlite.connection import numbered_scripts, statements_of
from gossamer.backends.sqlite.records import APPLICATION_ID, open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.store.contract import RecordQuery, Records, Retirement, VisitQuery
from gossamer.store.record_rows import ATTEMPT_FIELDS, VISIT_FIELDS

from ..conformance.stores import NOW, all_of, book, fingerprint_of, page_of, result, tried, visit
from ..services.postgres import PostgresServer, schema_of
from .commandline import ProjectFolder
from .commandline import project as project

CLOCK = VirtualClock(NOW + 10_000)
LISTING = "https://shop.example/list"
PAGES = [(1, LISTING, "books-1"), (2, "https://shop.example/new", "unknown-1")]
RECORDS = [(1, "changed", 2, 2), (2, "left", 1, 1), (3, "same", 1, 1)]  # number, key, price, version

PAGE_COLUMNS = (
    "number, fingerprint, url, job, fetched_at, status, etag, last_modified, archive_ref, body_hash, parser, links"
)
RECORD_COLUMNS = (
    "number, type, site, key, url, job, spider, content_hash, first_seen, last_changed, last_checked, version, page"
)


def page_rows() -> list[tuple[object, ...]]:
    return [
        (number, fingerprint_of(url), url, job, NOW, 200, "", "", f"copy {number}", b"", "v1", b"")
        for number, url, job in PAGES
    ]


def record_rows() -> list[tuple[object, ...]]:
    return [
        (number, "Book", "shop.example", key, f"https://shop.example/{key}", "books-1", "books",
         book(price=price).content_hash, NOW, NOW + version - 1, NOW + 1, version, 1)
        for number, key, price, version in RECORDS
    ]  # fmt: skip


async def they_live_on(store: Records) -> None:
    """Old records are read, changed, compared and retired as if they had always been here."""
    # they are read
    old = await all_of(store)
    assert [(r.key, r.data, r.version, r.gone_since, r.schema) for r in old] == [
        ("changed", {"price": 2}, 2, None, ""),
        ("left", {"price": 1}, 1, None, ""),
        ("same", {"price": 1}, 1, None, ""),
    ]
    history = await store.history("Book", "shop.example", "changed")
    assert [(v.version, json.loads(v.data), v.gone) for v in history] == [
        (1, {"price": 1}, False),
        (2, {"price": 2}, False),
    ]
    assert [record.key for record in await all_of(store, RecordQuery(job="books-1"))] == ["changed", "left", "same"]
    assert [record.key for record in await all_of(store, RecordQuery(key="same"))] == ["same"]
    # whose their pages are is known by their jobs
    assert [one.archive_ref async for one in store.archived(VisitQuery(spider="books"))] == ["copy 1"]
    assert len([one async for one in store.archived(VisitQuery())]) == 2
    facts = await store.facts([fingerprint_of(url) for _, url, _ in PAGES])
    assert [facts[fingerprint_of(url)].spider for _, url, _ in PAGES] == ["books", ""]

    # they are changed, and whoever follows the changes is told
    mark = await store.cursor()
    assert await store.count(RecordQuery(after=mark)) == 0
    assert await store.count(RecordQuery(upto=mark)) == 3
    seen = visit(LISTING, book("changed", price=3), book("same", price=1), book("new"), at=NOW + 9, job="books-2")
    assert await store.save([seen]) == [2]
    # they are compared: what the old job saw exactly is not known any more
    assert {one.key: (one.kind, one.before) async for one in store.differences("books-1", "books-2")} == {
        "left": ("gone", None),
        "new": ("added", None),
    }
    # they are retired
    assert await store.retire(Retirement(job="books-2", spider="books", at=NOW + 20)) == 1
    assert [record.key for record in await all_of(store, RecordQuery(gone=True))] == ["left"]
    assert [record.key for record in await all_of(store, RecordQuery(after=mark))] == ["changed", "left", "new"]
    assert await store.scores() == []
    assert await store.schemas() == []


async def test_a_file_of_the_first_version_is_brought_up_to_date_by_opening_it(tmp_path: Path) -> None:
    path = tmp_path / "records.db"
    (number, script), *_ = numbered_scripts("records")
    with closing(sqlite3.connect(path)) as file:
        for statement in statements_of(script):
            file.execute(statement)
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute(f"PRAGMA user_version = {number}")
        places = ", ".join("?" * 12)
        file.executemany(f"INSERT INTO pages ({PAGE_COLUMNS}) VALUES ({places})", page_rows())
        for row, (_, _, price, _) in zip(record_rows(), RECORDS, strict=True):
            data = json.dumps({"price": price}, separators=(",", ":"))
            file.execute(f"INSERT INTO records ({RECORD_COLUMNS}, data) VALUES ({places}, ?, ?)", (*row, data))
            file.execute("INSERT INTO sightings (job, record) VALUES ('books-1', ?)", (row[0],))
        file.execute("INSERT INTO superseded VALUES (1, 1, ?, 'books-1', '{\"price\":1}')", (NOW,))
        for page, url, job in PAGES:
            file.execute("INSERT INTO visits VALUES (?, ?, ?, ?, 200, ?, x'')", (page, NOW, url, job, f"copy {page}"))
        file.commit()

    async with open_sqlite_records(path, CLOCK) as store:
        await they_live_on(store)
    async with open_sqlite_records(path, CLOCK) as store:
        assert await store.count(RecordQuery(gone=False)) == 3
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT key, gone_since FROM record_list WHERE gone_since IS NOT NULL").fetchall() == [
            ("left", "2027-01-15 08:00:20")
        ]
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_attempts_and_visits_of_version_6_are_read_and_known_as_before(tmp_path: Path) -> None:
    """Rows of later versions do not repeat the address of their page, nor the name of their worker."""
    path, url = tmp_path / "records.db", "https://shop.example/b1"
    page = page_of(url, archive_ref="copy", body_hash=b"1" * 16, spider="books")
    old = result(page=page, attempt=tried(url))
    with closing(sqlite3.connect(path)) as file:
        for number, script in numbered_scripts("records"):
            if number <= 6:
                for statement in statements_of(script):
                    file.execute(statement)
        file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        file.execute("PRAGMA user_version = 6")
        file.execute(
            "INSERT INTO pages (number, fingerprint, url, job, fetched_at, status, archive_ref, body_hash, spider) "
            "VALUES (1, ?, ?, 'books-1', ?, 200, 'copy', ?, 'books')",
            (page.fingerprint, url, NOW, page.body_hash),
        )
        for table, fields, row in (("attempts", ATTEMPT_FIELDS, old.attempt), ("visits", VISIT_FIELDS, page)):
            values = (1, *(getattr(row, name) for name in fields))
            file.execute(f"INSERT INTO {table} (page, {', '.join(fields)}) VALUES ({places_of(values)})", values)
        file.commit()

    async with open_sqlite_records(path, CLOCK) as store:
        await store.save([old])  # from a spool: it is known
        new = result(page=page_of(url, at=NOW + 1, archive_ref="new"), attempt=tried(url, at=NOW + 1))
        await store.save([new])
        assert await store.attempts(page.fingerprint) == [old.attempt, new.attempt]
        assert [one.archive_ref for one in await store.visits(page.fingerprint)] == ["copy", "new"]
    with closing(sqlite3.connect(path)) as file:
        rows = file.execute("SELECT worker, url, job FROM attempts ORDER BY at").fetchall()
        assert rows == [("host/1/1", url, "books-1")] * 2
        assert file.execute("SELECT url, archive_ref FROM visit_list").fetchall() == [(url, "copy"), (url, "new")]


def places_of(values: tuple[object, ...]) -> str:
    return ", ".join("?" * len(values))


async def fill_old_tables(address: str, schema: str) -> None:
    await migrate_database(address, schema=schema, migrations=known_migrations()[:1])
    tables = await asyncpg.connect(address, server_settings={"search_path": schema})
    places = ", ".join(f"${n}" for n in range(1, 13))
    await tables.executemany(f"INSERT INTO pages ({PAGE_COLUMNS}) VALUES ({places})", page_rows())
    for row, (_, key, price, _) in zip(record_rows(), RECORDS, strict=True):
        source = json.dumps({"price": price}, separators=(",", ":"))
        await tables.execute(
            f"INSERT INTO records ({RECORD_COLUMNS}, identity, source, data) "
            f"VALUES ({places}, $13, $14, $15::text, $15::text::jsonb)",
            *row, identity_of("Book", "shop.example", key), source,
        )  # fmt: skip
        await tables.execute("INSERT INTO sightings (job, record) VALUES ('books-1', $1)", row[0])
    await tables.execute("SELECT setval('record_numbers', 3), setval(pg_get_serial_sequence('pages', 'number'), 2)")
    await tables.execute("""INSERT INTO superseded VALUES (1, 1, $1, 'books-1', '{"price":1}', '{"price":1}')""", NOW)
    for page, url, job in PAGES:
        await tables.execute(
            "INSERT INTO visits VALUES ($1, $2, $3, $4, 200, $5, '')", page, NOW, url, job, f"copy {page}"
        )
    await tables.close()


def test_tables_of_the_first_version_are_brought_up_to_date_by_migrate(
    project: ProjectFolder, postgres: PostgresServer, tmp_path: Path
) -> None:
    schema = schema_of(tmp_path)
    asyncio.run(fill_old_tables(postgres.address(), schema))
    project.write("gossamer.toml", f'records = "{postgres.address()}?schema={schema}"')

    refused = project.run("export", "-o", "x.jsonl")
    migrated = project.run("migrate")

    assert refused.code == 1
    assert "gossamer migrate" in refused.err
    assert (migrated.code, migrated.lines[0]) == (0, "records  applied records-002")

    async def look() -> None:
        async with open_postgres_records(postgres.address(), CLOCK, schema=schema) as store:
            await they_live_on(store)

    asyncio.run(look())
