"""Records, attempts and page facts in PostgreSQL; fulfils `Records`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored (or all of it, if the connection was lost
during the commit). How it recovers: the same batch can be written again. What is common to
both dialects: backends/records/.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from ...clock import Clock
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity
from ...model.stream import MoveMark
from ...store.attempt_pages import LOOKED_AT, page_of, read_mark
from ...store.contract import AttemptPage, AttemptQuery
from ...store.erasure import every_mark, marks_of, with_erased, without_erased
from ...store.figure_rules import DOMAINS
from ...store.record_rows import ATTEMPT_FIELDS, ERASABLE, PAGE_FIELDS, TABLES, DumpedRecord, RecordRow
from ..records.dialect import Row
from ..records.records import KNOWN_ATTEMPT, SqlRecords, struct_of
from ..records.stream import count_rows, dump_rows, load_rows
from ..records.writes import save_results
from .connection import CONNECT_WITHIN, PostgresDatabase, PostgresTransaction, open_database
from .errors import Unstorable
from .figures import Count, FigureSheets
from .item_views import PostgresItemViews
from .record_batch import PostgresBatch, Queryable
from .record_sql import ADOPT, PostgresSql
from .stored_text import identity_of, queryable, read, stored_results, strictly_queryable, to_stored

SCHEMA = "gossamer"

_FIND_FACTS = f"""
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT {", ".join(PAGE_FIELDS)} FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint AND fetched_at IS NOT NULL LIMIT 1
) AS found"""  # noqa: S608 - our own names

_NEWEST = "FROM @attempts WHERE at <= $1 AND at >= $2 ORDER BY at DESC"
_ATTEMPT_LOG = f"""
WITH newest AS MATERIALIZED (
    SELECT * FROM (SELECT * {_NEWEST}, page DESC, job, worker LIMIT {LOOKED_AT}) AS looked
    WHERE ($3::text IS NULL OR job = $3) AND ($4::text IS NULL OR site = $4) AND ($5::text IS NULL OR route = $5)
        AND ($6::text IS NULL OR outcome = $6) AND ($7::text IS NULL OR reason = $7)
    LIMIT $8)
SELECT fingerprint, {", ".join(f"newest.{name}" for name in ATTEMPT_FIELDS)}
FROM newest JOIN @pages AS pages ON pages.number = newest.page
ORDER BY newest.at DESC, newest.page DESC, newest.job, newest.worker"""  # noqa: S608 - our own names
_FLOOR = f"SELECT at {_NEWEST} OFFSET {LOOKED_AT} LIMIT 1"

# Locks the table against `mark_erased`, which waits for the batches that have looked; those that come after it see it.
_MARKS = "SELECT mark, until FROM @erased WHERE mark = ANY ($1::bytea[]) FOR KEY SHARE"

_LATEST = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT identity, source FROM @records AS records WHERE records.identity = wanted.identity LIMIT 1
) AS found"""


@asynccontextmanager
async def open_postgres_records(
    address: str,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    domains: int = DOMAINS,
    schema: str = SCHEMA,
    connect_within: timedelta = CONNECT_WITHIN,
) -> AsyncIterator[PostgresRecords]:
    """Open the record store at `address`; missing tables are created.

    `domains` have separate figures in the total. A `?schema=` in the address takes precedence over `schema`. Raises
    Misconfigured, BadState, BackendUnavailable.
    """
    async with open_database(address, schema=schema, connect_within=connect_within) as database:
        yield PostgresRecords(database, clock, min_rewrite_age=min_rewrite_age, domains=domains)


class PostgresRecords(SqlRecords):
    """Fulfils `Records`. Many processes may write to the same tables."""

    def __init__(
        self,
        database: PostgresDatabase,
        clock: Clock,
        *,
        min_rewrite_age: timedelta | None = None,
        domains: int = DOMAINS,
    ) -> None:
        sql = PostgresSql(database)
        super().__init__(sql, PostgresItemViews(sql, database), clock, min_rewrite_age=min_rewrite_age, domains=domains)
        self._database = database
        self._figures = FigureSheets(database, domains)
        self.stream = PostgresRecordStream(database, self)

    def on(self, database: PostgresDatabase) -> PostgresRecords:
        """The same store, read by other means."""
        return PostgresRecords(database, self._clock)

    async def _save(self, results: Sequence[PageResult], schemas: Sequence[ItemSchema]) -> list[int]:
        rows = stored_results(results)
        if rows is not results:
            schemas = [one for result in rows for one in result.schemas]
        try:
            return await self._write(rows, schemas, queryable)
        except Unstorable:
            # A record is JSON for us but not for PostgreSQL. Each is tried alone; one that PostgreSQL rejects is stored
            # only as its exact text.
            known = {one.data: await self.accepted(one.data) for result in rows for one in result.records}
            return await self._write(rows, schemas, known.__getitem__)

    async def _write(
        self, results: Sequence[PageResult], schemas: Sequence[ItemSchema], as_json: Queryable
    ) -> list[int]:
        now, min_age, marks = self._clock.now(), self._min_age, marks_of(results)
        await self._figures.roll_up_when_due(now)
        async with self._figures.counting() as sheet:

            async def write(session: PostgresTransaction) -> tuple[list[int], Count]:
                known = dict(map(tuple, await session.rows(_MARKS, every_mark(marks))))
                rows = without_erased(results, marks, known)
                kept = [result for result, _ in rows if result is not None]
                count = Count(sheet, kept, now)
                batch = PostgresBatch(session, as_json, count=count)
                counts = await save_results(batch, kept, now, min_age, schemas) if kept else []
                return with_erased(rows, iter(counts)), count

            counts, count = await self._database.transact(write)
            count.settle()
        return counts

    async def accepted(self, source: str) -> str | None:
        """The JSON that PostgreSQL accepts for a record's text; None if it rejects every form of it."""
        for text in dict.fromkeys((queryable(source), strictly_queryable(source))):
            try:
                if text is not None:
                    await self._database.rows("SELECT $1::text::jsonb IS NULL", text)
                    return text
            except Unstorable:
                continue
        return None

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        wanted = {identity_of(*map(to_stored, identity)): identity for identity in identities}
        if not wanted:
            return {}
        rows = await self._database.rows(_LATEST, list(wanted))
        return {wanted[row["identity"]]: read(row["source"]) for row in rows}

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        if not fingerprints:
            return {}
        pages = [struct_of(PageFacts, PAGE_FIELDS, row) for row in await self.sql.rows(_FIND_FACTS, list(fingerprints))]
        return {page.fingerprint: page for page in pages}

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        mark = read_mark(before, query)
        bounds = (mark.at, query.since if query.since is not None else -1e18)
        wanted = (query.job, query.site, query.route, query.outcome, query.reason)
        rows = await self.sql.rows(_ATTEMPT_LOG, *bounds, *wanted, limit + mark.skip + 1)
        floor = await self.sql.rows(_FLOOR, *bounds) if len(rows) <= limit + mark.skip else []
        return page_of(
            [struct_of(Attempt, KNOWN_ATTEMPT, row) for row in rows], limit, mark, floor[0][0] if floor else None
        )

    async def compact(self, *, rewrite: bool = False) -> str:
        return await self._database.vacuum(ERASABLE, rewrite=rewrite)

    async def _figure_rows(self, sql: str, *values: int) -> list[Row]:
        # As they are stored: a text in them that came escaped would break their JSON.
        return [tuple(row) for row in await self._database.rows(sql, *values)]

    async def cursor(self) -> str:
        if (await self.sql.rows(self.sql.dialect.newest))[0][2]:  # the newest revision is ahead of this server
            await self._database.transact(lambda session: session.run(ADOPT))
        return await super().cursor()


class PostgresRecordStream:
    """The records as a stream of rows. Fulfils `RecordStream`. A move or a restore adds the table `move_mark`."""

    def __init__(self, database: PostgresDatabase, store: PostgresRecords) -> None:
        self._database = database
        self._store = store

    async def mark(self) -> MoveMark | None:
        name = f'"{self._database.address.schema}".move_mark'
        there = await self._database.rows("SELECT to_regclass($1) IS NOT NULL", name)
        rows = await self._database.rows("SELECT mark FROM @move_mark") if there[0][0] else []
        return msgspec.json.decode(rows[0][0], type=MoveMark) if rows else None

    async def set_mark(self, mark: MoveMark | None) -> None:
        async def write(session: PostgresTransaction) -> None:
            await session.run("CREATE TABLE IF NOT EXISTS @move_mark (mark text NOT NULL)")
            await session.run("DELETE FROM @move_mark")
            if mark is not None:
                await session.run("INSERT INTO @move_mark VALUES ($1)", msgspec.json.encode(mark).decode())

        await self._database.transact(write)

    async def counts(self) -> dict[str, int]:
        return await count_rows(self._store.sql)

    async def dump(self) -> AsyncGenerator[Sequence[RecordRow]]:
        async with self._database.as_of_now() as moment:
            async for batch in dump_rows(self._store.on(moment)):
                yield batch

    async def load(self, batch: Sequence[RecordRow]) -> None:
        async def write(session: PostgresTransaction, as_json: Queryable) -> None:
            await load_rows(PostgresBatch(session, as_json, stores=True), batch)

        try:
            await self._database.transact(lambda session: write(session, queryable))
        except Unstorable:
            # As in `save`: a text that is JSON for us but not for PostgreSQL is tried alone.
            records = [row for row in batch if isinstance(row, DumpedRecord)]
            texts = {to_stored(text) for one in records for text in (one.data, *(past.data for past in one.past))}
            known = {text: await self._store.accepted(text) for text in texts}
            await self._database.transact(lambda session: write(session, known.__getitem__))

    async def finish(self) -> None:
        """Analyse the tables: without statistics the first crawl here would get bad query plans. Make the views."""
        for table in TABLES:
            await self._database.rows(f"ANALYZE @{table}")
        await self._store.views.refresh(whole=True)

    async def clear(self) -> None:
        async def write(session: PostgresTransaction) -> None:
            await session.run(f"TRUNCATE {', '.join(f'@{table}' for table in TABLES)}")

        await self._database.transact(write)
        self._store.forget_schemas()
