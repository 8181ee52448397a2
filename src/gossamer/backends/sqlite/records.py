"""Records, attempts and page facts in one SQLite file; fulfils `Records`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored. How it recovers: the same batch can be
written again. What is common to both dialects: backends/records/.
"""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from ...clock import Clock
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity
from ...store.attempt_pages import LOOKED_AT, page_of, read_mark
from ...store.contract import AttemptPage, AttemptQuery
from ...store.erasure import marks_of, with_erased, without_erased
from ...store.figure_rules import DOMAINS
from ...store.record_rows import ATTEMPT_FIELDS, PAGE_FIELDS, TABLES, RecordRow
from ...store.record_rules import mend, with_texts
from ..records.records import KNOWN_ATTEMPT, SqlRecords, struct_of
from ..records.stream import count_rows, dump_rows, load_rows
from ..records.writes import save_results
from .connection import Database
from .item_views import SqliteItemViews
from .record_batch import SqliteBatch, find, known_marks
from .record_sql import SqliteSql, result_of
from .stream import SqliteStream

APPLICATION_ID = 0x67735265  # "gsRe"
LINGER = timedelta(milliseconds=3)  # how long a save waits for others, to share their commit

_FIND_FACTS = (
    f"SELECT {', '.join(PAGE_FIELDS)} FROM pages "  # noqa: S608 - our own names
    "WHERE fingerprint IN (VALUES {rows}) AND fetched_at IS NOT NULL"
)
_ASKED = ("job", "site", "route", "outcome", "reason")
_NEWEST = (
    "SELECT page, at, job, worker, site, route, outcome, reason FROM attempt_rows INDEXED BY attempts_at "
    "WHERE at <= ? AND at >= ? ORDER BY at DESC LIMIT ?"
)
_ATTEMPT = (
    f"SELECT fingerprint, {', '.join(f'attempts.{name}' for name in ATTEMPT_FIELDS)} FROM attempts "  # noqa: S608
    "JOIN pages ON pages.number = attempts.page WHERE page = ? AND at = ? AND attempts.job = ? AND worker_number = ?"
)
_LATEST = """
WITH wanted (type, site, key) AS (VALUES {rows})
SELECT records.type, records.site, records.key, data FROM wanted CROSS JOIN records USING (type, site, key)"""


@asynccontextmanager
async def open_sqlite_records(
    path: Path,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    domains: int = DOMAINS,
) -> AsyncIterator[SqliteRecords]:
    """Open or create the records file. Raises BadState, Misconfigured, BackendUnavailable.

    `domains` have separate figures in the total.
    """
    database = Database(
        path, schema="records", application_id=APPLICATION_ID, durable=True, linger=LINGER, role="records"
    )
    async with database:
        yield SqliteRecords(database, clock, min_rewrite_age=min_rewrite_age, domains=domains)


class SqliteRecords(SqlRecords):
    """The record store on one machine. No other object in this process may write to the database."""

    def __init__(
        self, database: Database, clock: Clock, *, min_rewrite_age: timedelta | None = None, domains: int = DOMAINS
    ) -> None:
        sql = SqliteSql(database)
        super().__init__(sql, SqliteItemViews(sql, database), clock, min_rewrite_age=min_rewrite_age, domains=domains)
        self._database = database
        self.stream = SqliteRecordStream(database, self)

    async def _save(self, results: Sequence[PageResult], schemas: Sequence[ItemSchema]) -> list[int]:
        try:
            return await self._write(results, schemas)
        except UnicodeEncodeError:
            # A lone surrogate cannot be stored. The driver detected it while binding, so the whole transaction was
            # rolled back; each save of that group arrives here, replaces it in its own texts and repeats.
            mended = [with_texts(result, mend) for result in results]
            return await self._write(mended, [one for result in mended for one in result.schemas])

    async def _write(self, results: Sequence[PageResult], schemas: Sequence[ItemSchema]) -> list[int]:
        now, marks = self._clock.now(), marks_of(results)

        def write(connection: sqlite3.Connection) -> list[int]:
            rows = without_erased(results, marks, known_marks(connection, marks))
            kept = [result for result, _ in rows if result is not None]
            batch = SqliteBatch(connection, now, self._domains)
            counts = result_of(save_results(batch, kept, now, self._min_age, schemas)) if kept else []
            return with_erased(rows, iter(counts))

        return await self._database.write(write)

    async def compact(self, *, rewrite: bool = False) -> str:
        return await self._database.compact()

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        wanted = {(mend(type), mend(site), mend(key)): (type, site, key) for type, site, key in identities}
        rows = await self._database.read(lambda connection: list(find(connection, _LATEST, list(wanted))), quick=True)
        return {wanted[type, site, key]: data for type, site, key, data in rows}

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return list(find(connection, _FIND_FACTS, [(fingerprint,) for fingerprint in fingerprints]))

        pages = [struct_of(PageFacts, PAGE_FIELDS, row) for row in await self._database.read(read, quick=True)]
        return {page.fingerprint: page for page in pages}

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        mark = read_mark(before, query)
        bounds = (mark.at, query.since if query.since is not None else -1e18)
        wanted = {name: mend(value) for name in _ASKED if (value := getattr(query, name)) is not None}
        fits = " AND ".join(["1", *(f"{name} = ?" for name in wanted)])

        def read(connection: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], float | None]:
            sql = f"SELECT page, at, job, worker FROM ({_NEWEST}) WHERE {fits} LIMIT ?"  # noqa: S608 - our own names
            keys = connection.execute(sql, (*bounds, LOOKED_AT, *wanted.values(), limit + mark.skip + 1)).fetchall()
            floor = None
            if len(keys) <= limit + mark.skip:
                floor = connection.execute(f"{_NEWEST} OFFSET {LOOKED_AT}", (*bounds, 1)).fetchone()
            return [connection.execute(_ATTEMPT, key).fetchone() for key in keys], floor[1] if floor else None

        rows, floor = await self._database.read(read)
        return page_of([struct_of(Attempt, KNOWN_ATTEMPT, row) for row in rows], limit, mark, floor)


KEPT_IN = {"attempts": "attempt_rows", "visits": "visit_rows"}  # tables that are read through a view


class SqliteRecordStream(SqliteStream[RecordRow]):
    """The records file as a stream of rows. Fulfils `RecordStream`."""

    def __init__(self, database: Database, store: SqliteRecords) -> None:
        super().__init__(database)
        self._store = store

    async def counts(self) -> dict[str, int]:
        return await count_rows(self._store.sql)

    def _dump(self) -> AsyncIterator[Sequence[RecordRow]]:
        return dump_rows(self._store)

    async def load(self, batch: Sequence[RecordRow]) -> None:
        await self._database.write(lambda connection: result_of(load_rows(SqliteBatch(connection, 0, 0), batch)))

    async def finish(self) -> None:
        await self._store.views.refresh(whole=True)

    async def clear(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for table in (*(KEPT_IN.get(table, table) for table in TABLES), "attempt_workers"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            # Cursors count from the beginning again: the store gets a new id, so that older ones are refused.
            connection.execute("UPDATE store SET id = lower(hex(randomblob(6)))")

        await self._database.write(write)
        self._store.forget_schemas()
