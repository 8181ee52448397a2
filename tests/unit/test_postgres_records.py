"""What is particular to records in PostgreSQL: tables for SQL, JSONB, plans, texts that it cannot hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import msgspec
import pytest

from gossamer.backends.postgres.connection import (
    PLAN_FOR_LOOKUPS,
    PostgresDatabase,
    PostgresTransaction,
    open_database,
    with_schema,
)
from gossamer.backends.postgres.figures import Count, Sheet
from gossamer.backends.postgres.record_batch import PostgresBatch
from gossamer.backends.postgres.record_sql import POSTGRES
from gossamer.backends.postgres.records import PostgresRecords
from gossamer.backends.postgres.stored_text import queryable, read, to_stored
from gossamer.backends.records.queries import selection
from gossamer.backends.records.writes import save_results
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, Misconfigured, Permanent
from gossamer.store.contract import RecordQuery, Retirement, SentNote

from ..conformance.stores import NOW, book, page_of, result, visit
from ..services.postgres import PostgresServer, schema_of
from .test_postgres_errors import waiting_backend

CLOCK = VirtualClock(NOW + 10_000)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return schema_of(tmp_path)


@pytest.fixture
async def database(postgres: PostgresServer, schema: str):
    async with open_database(postgres.address(), schema=schema) as opened:
        yield opened


@pytest.fixture
def store(database: PostgresDatabase) -> PostgresRecords:
    return PostgresRecords(database, CLOCK)


@pytest.fixture
async def tables(postgres: PostgresServer, schema: str):
    """A connection of somebody who reads the tables with SQL."""
    connection = await asyncpg.connect(postgres.address(), server_settings={"search_path": schema})
    yield connection
    await connection.close()


@pytest.mark.parametrize(("configured", "used"), [("off", "on"), ("local", "local"), ("on", "on")])
async def test_the_note_of_a_request_that_may_be_out_waits_for_the_disk(
    postgres: PostgresServer, schema: str, store: PostgresRecords, tables, configured: str, used: str
) -> None:
    # given a user for whom commits do not wait for the disk, and a table that says how the notes were written
    user = f"hasty_{configured}_{schema}"[:60]
    await tables.execute(f"CREATE ROLE {user} LOGIN SUPERUSER; ALTER ROLE {user} SET synchronous_commit = {configured}")
    await tables.execute(f"""
        CREATE TABLE commits (how text);
        CREATE FUNCTION note_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO {schema}.commits VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$;
        CREATE TRIGGER noted AFTER INSERT ON sent_notes FOR EACH ROW EXECUTE FUNCTION note_commit()""")
    try:
        async with open_database(postgres.address(user=user), schema=schema) as hasty:
            note = SentNote(job="a-1", fingerprint=b"1" * 16, owner="me", at=NOW)
            assert await PostgresRecords(hasty, CLOCK).note_sent(note, replaces_before=0.0)

        # then this note did
        assert await tables.fetch("SELECT how FROM commits") == [(used,)]
    finally:
        await tables.execute(f"DROP ROLE {user}")


async def test_records_and_their_history_can_be_asked_in_sql(store: PostgresRecords, tables) -> None:
    await store.save([result(book("a", title="Emma", price=12.5)), result(book("b", title="Dune", price=9))])
    await store.save([result(book("a", title="Emma", price=10, at=NOW + 60))])
    cheap = await tables.fetch("SELECT key, data ->> 'title' FROM records WHERE (data ->> 'price')::numeric <= 10")
    assert sorted(map(tuple, cheap)) == [("a", "Emma"), ("b", "Dune")]
    assert await tables.fetchval("""SELECT key FROM records WHERE data @> '{"title": "Dune"}'""") == "b"
    assert await tables.fetchval("SELECT data -> 'price' FROM superseded WHERE version = 1") == "12.5"
    assert await tables.fetchval("SELECT to_timestamp(last_changed)::text FROM records WHERE key = 'a'")


@pytest.mark.parametrize(
    ("source", "queryable"),
    [
        ('{"b":1,"a":[2]}', {"b": 1, "a": [2]}),
        ('{"nul":"a\\u0000b"}', {"nul": "a\ufffdb"}),
        ('{"half":"\\ud800","pair":"\\ud83d\\ude00"}', {"half": "\ufffd", "pair": "😀"}),
        ('{"told":"\\\\u0000"}', {"told": "\\u0000"}),
        ('{"n":NaN,"m":1}', {"n": None, "m": 1}),
        ('{"n":1e200000}', None),
        ("not json", None),
    ],
)
async def test_jsonb_holds_what_it_can_and_the_text_is_kept_exactly(
    store: PostgresRecords, tables, source: str, queryable: object
) -> None:
    odd = msgspec.structs.replace(book("odd"), data=source)
    assert await store.save([result(odd), result(book("even", n=1))]) == [1, 1]
    rows = {row["key"]: row for row in await tables.fetch("SELECT key, source, data FROM records")}
    assert rows["odd"]["source"] == source
    assert (None if rows["odd"]["data"] is None else json.loads(rows["odd"]["data"])) == queryable
    assert json.loads(rows["even"]["data"]) == {"n": 1}


@pytest.mark.parametrize("text", ["", "plain", "\0", "a\0b\0", "\ufdd0", "\ufdd00", "\0\ufdd01\0", "é\ufffe😀"])
def test_what_is_stored_is_read_back(text: str) -> None:
    assert "\0" not in to_stored(text)
    assert read(to_stored(text)) == text


async def test_a_row_that_somebody_spoilt_is_named(store: PostgresRecords, tables) -> None:
    await store.save([result(book("b1"))])
    await tables.execute("UPDATE records SET source = 'not json'")
    with pytest.raises(Permanent, match=r"Book 'b1' of shop\.example"):
        [record async for record in store.records(RecordQuery())]


async def test_a_number_that_no_column_holds_fails_that_save_alone(store: PostgresRecords) -> None:
    bad = result(book("bad"))
    bad = msgspec.structs.replace(bad, attempt=msgspec.structs.replace(bad.attempt, bytes=1 << 70))
    with pytest.raises(Permanent, match="cannot hold a value"):
        await store.save([bad])
    assert await store.save([result(book("good"))]) == [1]
    assert await store.count(RecordQuery()) == 1


async def plan(tables, schema: str, sql: str, values: Sequence[object]) -> str:
    async with tables.transaction():
        await tables.execute(PLAN_FOR_LOOKUPS)
        return "\n".join(row[0] for row in await tables.fetch(with_schema(f"EXPLAIN {sql}", schema), *values))


@pytest.mark.parametrize(
    "query", [RecordQuery(), RecordQuery(newest=True), RecordQuery(type="Book", site="x"), RecordQuery(job="books-1")]
)
async def test_a_chunk_is_found_without_sorting_what_lies_behind_it(
    store: PostgresRecords, tables, schema: str, query: RecordQuery
) -> None:
    await store.save([result(book(f"{n}")) for n in range(3000)])
    await tables.execute("ANALYZE records; ANALYZE sightings")
    wanted = selection(POSTGRES, query, "s", 9)
    steps = await plan(tables, schema, wanted.chunk("source", newest=query.newest), (*wanted.values, 5))
    assert "Sort" not in steps
    assert "Seq Scan" not in steps


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (RecordQuery(after="pg:s:5", upto="pg:s:9"), "records_revision"),
        (RecordQuery(after="pg:s:5", job="books-1"), "records_revision"),
        (RecordQuery(key="5"), "records_key"),
        (RecordQuery(key="5", job="books-1"), "records_key"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["with statistics", "without"])
async def test_few_among_many_are_found_through_an_index(
    store: PostgresRecords, tables, schema: str, query: RecordQuery, index: str, known: bool
) -> None:
    await store.save([result(book(f"{n}")) for n in range(500)])
    if known:
        await tables.execute("ANALYZE records; ANALYZE sightings")
    wanted = selection(POSTGRES, query, "s", 9)
    assert f"using {index}" in await plan(tables, schema, wanted.some(), wanted.few_values)
    for sql, values in (wanted.count(), (wanted.picked("source"), (*wanted.values, [1, 2]))):
        assert "Seq Scan" not in await plan(tables, schema, sql, values)


async def test_what_an_older_transaction_commits_later_is_not_missed(
    store: PostgresRecords, tables, schema: str
) -> None:
    await store.save([result(book("slow", price=1)), result(book("before"))])
    start = await store.cursor()
    transaction = tables.transaction()
    await transaction.start()
    slow = [result(book("slow", price=2, at=NOW + 1))]
    count = Count(Sheet(), slow, NOW + 10_000)
    batch = PostgresBatch(PostgresTransaction(tables, schema), queryable, count=count)
    await save_results(batch, slow, NOW + 10_000, 0.0)  # not committed
    await store.save([result(book("quick"))])

    between = await store.cursor()
    early = [record.key async for record in store.records(RecordQuery(after=start, upto=between))]
    await transaction.commit()
    late = [record.key async for record in store.records(RecordQuery(after=between, upto=await store.cursor()))]

    assert "slow" in late
    assert sorted([*early, *late]) == ["quick", "slow"]  # and each is told once


async def test_tables_restored_on_another_server_are_told_again_and_old_marks_are_refused(
    store: PostgresRecords, tables
) -> None:
    """There the numbers of transactions begin anew: those in the tables lie in the future."""
    await store.save([result(book("a")), result(book("b"))])
    old = await store.cursor()
    name, newest = old.rsplit(":", 1)
    await tables.execute("UPDATE records SET revision = (revision::text::bigint + 1000000)::text::xid8")
    with pytest.raises(Misconfigured, match="newer state"):
        await store.count(RecordQuery(after=f"{name}:{int(newest) + 1_000_000}"))

    mark = await store.cursor()
    assert await store.count(RecordQuery(upto=await store.cursor())) == 2
    await store.save([result(book("c"))])
    assert [record.key async for record in store.records(RecordQuery(after=mark))][-1] == "c"


async def test_a_query_that_means_more_than_fits_in_memory_walks_along_all(
    store: PostgresRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.backends.records.queries.MOST_FOUND", 10)
    mark = await store.cursor()
    await store.save([result(book(f"{n}")) for n in range(30)])
    for query in (RecordQuery(after=mark), RecordQuery(after=mark, job="books-1")):
        assert [record.key async for record in store.records(query)] == [f"{n}" for n in range(30)]


async def test_a_record_that_is_being_seen_is_not_retired(store: PostgresRecords, tables, schema: str) -> None:
    """Who retires waits for the save that is under way, and looks again."""
    await store.save([visit("https://shop.example/list", book("a"), book("b"), at=NOW)])
    await store.save([visit("https://shop.example/list", at=NOW + 1, job="books-2")])
    transaction = tables.transaction()
    await transaction.start()
    seen = [visit("https://shop.example/other", book("a"), at=NOW + 2, job="books-2")]
    batch = PostgresBatch(PostgresTransaction(tables, schema), queryable, count=Count(Sheet(), seen, NOW))
    await save_results(batch, seen, NOW + 10_000, 0.0)

    retiring = asyncio.create_task(store.retire(Retirement(job="books-2", spider="books", at=NOW + 5)))
    await waiting_backend(tables)
    assert not retiring.done()
    await transaction.commit()

    assert await retiring == 1
    assert [record.key async for record in store.records(RecordQuery(gone=True))] == ["b"]


async def test_the_same_few_statements_store_a_small_and_a_large_batch(
    database: PostgresDatabase, store: PostgresRecords, tables
) -> None:
    def batch(count: int, at: float):
        return [
            result(book(f"{n}", v=at, at=at), page=page_of(f"https://shop.example/{n}", at=at, archive_ref="r"))
            for n in range(count)
        ]

    asked: list[str] = []
    async with database.pool.acquire() as connection:
        connection.add_query_logger(lambda record: asked.append(record.query))
    counts = []
    # The driver asks for types when it meets them first: the first two saves are not counted.
    for size, at in ((1, NOW), (2, NOW + 1), (3, NOW + 2), (200, NOW + 3), (200, NOW + 4)):
        asked.clear()
        await store.save(batch(size, at))
        counts.append(len(asked))
    assert counts[2] == counts[3] <= 15  # one of them asks what was erased
    assert counts[4] <= counts[3]  # nothing new, all changed
    assert await tables.fetchval("SELECT count(*) FROM superseded") == 1 + 2 + 3 + 200


async def test_what_a_long_crawl_stores_is_looked_up_through_indexes(store: PostgresRecords, tables) -> None:
    """Statistics are missing while a first crawl fills the tables; the plans must be right nevertheless."""
    for start in range(0, 2000, 100):
        await store.save([result(book(f"{n}")) for n in range(start, start + 100)])
    await tables.execute("SELECT pg_stat_force_next_flush()")
    await store.save([result(book(f"{n}", at=NOW + 1)) for n in range(100)])
    await tables.execute("SELECT pg_stat_clear_snapshot()")
    scanned = await tables.fetch(
        "SELECT relname, seq_tup_read FROM pg_stat_user_tables WHERE schemaname = current_schema() AND seq_tup_read > 0"
    )
    assert [tuple(row) for row in scanned if row["relname"] != "migrations"] == []


async def test_a_copy_whose_connection_is_lost_is_told_so_at_its_next_question(
    database: PostgresDatabase, postgres: PostgresServer
) -> None:
    said: list[object] = []

    async def copy() -> None:
        async with database.as_of_now() as moment:
            [[process]] = await moment.rows("SELECT pg_backend_pid()")
            other = await asyncpg.connect(postgres.address())
            await other.execute("SELECT pg_terminate_backend($1, 10000)", process)
            await other.close()
            try:
                said.append(await moment.rows("SELECT 1"))
            except BackendUnavailable:
                said.append("away")

    with pytest.raises(BackendUnavailable):
        await copy()
    assert said == ["away"]


async def test_who_may_not_make_views_stores_all_the_same_and_it_is_said(
    postgres: PostgresServer, schema: str, store: PostgresRecords, caplog: pytest.LogCaptureFixture
) -> None:
    user = f"writer_{schema}"[:60]
    await store.save([result(book("a", title="Emma"))])
    postgres.sql(
        f"CREATE ROLE {user} LOGIN", f"GRANT USAGE ON SCHEMA {schema} TO {user}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {user}",
    )  # fmt: skip
    try:
        async with open_database(postgres.address(user=user), schema=schema) as opened:
            lesser = PostgresRecords(opened, CLOCK)
            assert await lesser.save([result(book("b", title="Dune", pages=412))]) == [1]
            assert "The view of Book is not up to date" in caplog.text
            assert (await lesser.views.refresh())[1].startswith("The view of Book is not up to date")
            assert (await lesser.views.select("SELECT title FROM book ORDER BY _key", limit=9, seconds=9)).rows == [
                ("Emma",), ("Dune",),
            ]  # fmt: skip
    finally:
        postgres.sql(f"DROP OWNED BY {user}", f"DROP ROLE {user}")


async def test_a_view_of_somebody_on_ours_is_never_dropped(store: PostgresRecords, tables, schema: str) -> None:
    await store.save([result(book("a", title="Emma", price=1))])
    await tables.execute(f"CREATE VIEW {schema}.own AS SELECT title, price FROM {schema}.book")
    await store.save([result(book("b", title="Dune", price=2, pages=412))])  # another column: replaced in place
    assert await tables.fetchval("SELECT pages FROM book WHERE _key = 'b'") == 412
    await store.save([result(book("c", title="It", price="dear"))])  # another type: it stays as it is
    assert [tuple(row) for row in await tables.fetch("SELECT title, price FROM own ORDER BY title")] == [
        ("Dune", 2), ("Emma", 1), ("It", None),
    ]  # fmt: skip
    assert "depend on it" in (await store.views.refresh())[1]
