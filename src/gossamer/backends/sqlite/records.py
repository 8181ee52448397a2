"""Records, attempts and page facts in one SQLite file; fulfils `RecordStore`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored. How it recovers: the same batch can be
written again. Lives here: the contract's verbs and reading back. What a batch does to the tables: record_batch.py.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...errors import Permanent
from ...model.record import Attempt, PageFacts, PageResult, StoredRecord
from ...store.contract import RecordQuery, Version
from ...store.verdict import mend
from .connection import Database
from .record_batch import ATTEMPT_FIELDS, VISIT_FIELDS, mend_result, save_results

APPLICATION_ID = 0x676F7372
LINGER = timedelta(milliseconds=3)
CHUNK = 256  # rows in memory while streaming
PRUNED_PAGES = 20_000  # pages per transaction while pruning: others can write in between

S = TypeVar("S", bound=msgspec.Struct)

_PAGE_FIELDS = PageFacts.__struct_fields__
_KNOWN_ATTEMPT = ("fingerprint", *ATTEMPT_FIELDS)
_KNOWN_VISIT = ("fingerprint", *VISIT_FIELDS)


def _of_page(table: str, columns: Sequence[str], order: str) -> str:
    wanted = ", ".join(f"{table}.{column}" for column in columns)
    return (
        f"SELECT fingerprint, {wanted} FROM pages JOIN {table} ON {table}.page = pages.number "  # noqa: S608 - our names
        f"WHERE fingerprint = ? ORDER BY {table}.{order}"
    )


_FIND_FACTS = f"SELECT {', '.join(_PAGE_FIELDS)} FROM pages WHERE fingerprint = ? AND fetched_at IS NOT NULL"  # noqa: S608
_LIST_ATTEMPTS = _of_page("attempts", ATTEMPT_FIELDS, "at")
_LIST_VISITS = _of_page("visits", VISIT_FIELDS, "fetched_at")

_HISTORY = """
SELECT past.version, past.at, past.job, past.data
FROM records JOIN superseded AS past ON past.record = records.number
WHERE type = ? AND site = ? AND key = ?
UNION ALL
SELECT version, last_changed, job, data FROM records WHERE type = ? AND site = ? AND key = ?
ORDER BY 1"""

_STORED_COLUMNS = """records.type, records.site, records.key, records.url, records.job, records.spider,
    records.data, records.first_seen, records.last_changed, records.last_checked, records.version"""

_HIGHEST_PAGE = "SELECT coalesce(max(number), 0) FROM pages"
_PRUNE_ATTEMPTS = "DELETE FROM attempts WHERE page BETWEEN ? AND ? AND at < ?"
_PRUNE_VISITS = """
DELETE FROM visits WHERE page BETWEEN ? AND ? AND fetched_at < ?
    AND archive_ref <> (SELECT archive_ref FROM pages WHERE number = visits.page)"""


@asynccontextmanager
async def open_sqlite_records(
    path: Path, clock: Clock, *, min_rewrite_age: timedelta | None = None, linger: timedelta = LINGER
) -> AsyncIterator[SqliteRecords]:
    """Open the records file, made if it is not there. Raises BadState, Misconfigured, BackendUnavailable.

    `linger` is how long a save waits for company. Behind a sink, which has gathered already, none is needed.
    """
    database = Database(
        path, schema="records", application_id=APPLICATION_ID, durable=True, linger=linger, role="records"
    )
    async with database:
        yield SqliteRecords(database, clock, min_rewrite_age=min_rewrite_age)


class SqliteRecords:
    """The record store of the laptop. `min_rewrite_age` protects a version that is younger than that from change.

    Nobody else in this process may write to the database.
    """

    def __init__(self, database: Database, clock: Clock, *, min_rewrite_age: timedelta | None = None) -> None:
        self._database = database
        self._clock = clock
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        now, min_age = self._clock.now(), self._min_age
        try:
            return await self._database.write(lambda connection: save_results(connection, results, now, min_age))
        except UnicodeEncodeError:
            # Half a character (a lone surrogate) cannot be stored. The driver found it while binding, so the whole
            # transaction was rolled back; each save of that group comes here, mends its own texts and repeats.
            mended = [mend_result(result) for result in results]
            return await self._database.write(lambda connection: save_results(connection, mended, now, min_age))

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            found = (connection.execute(_FIND_FACTS, (fingerprint,)).fetchone() for fingerprint in fingerprints)
            return [row for row in found if row is not None]

        pages = [_built(PageFacts, _PAGE_FIELDS, row) for row in await self._database.read(read)]
        return {page.fingerprint: page for page in pages}

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        rows = await self._rows(_LIST_ATTEMPTS, (fingerprint,))
        return [_built(Attempt, _KNOWN_ATTEMPT, row) for row in rows]

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        rows = await self._rows(_LIST_VISITS, (fingerprint,))
        return [_built(PageFacts, _KNOWN_VISIT, row) for row in rows]

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        identity = (mend(type), mend(site), mend(key))
        rows = await self._rows(_HISTORY, identity * 2)
        return [Version(version=version, at=at, job=job, data=data) for version, at, job, data in rows]

    async def count(self, query: RecordQuery) -> int:
        source, _, values = _selection(query)
        rows = await self._rows(f"SELECT count(*) FROM {source}", values)  # noqa: S608 - `source` is our own words
        total: int = rows[0][0]
        return total

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        # One short read per chunk, going on after the last number seen: no lock is held while the reader thinks.
        source, number, values = _selection(query)
        sql = (
            f"SELECT {number}, {_STORED_COLUMNS} FROM {source} "  # noqa: S608 - as above
            f"AND {number} > ? ORDER BY {number} LIMIT {CHUNK}"
        )
        last = -1
        while rows := await self._rows(sql, (*values, last)):
            for row in rows:
                yield _stored(row[1:])
            last = rows[-1][0]

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        highest = (await self._rows(_HIGHEST_PAGE, ()))[0][0]
        return sum([await self._prune(first, cutoff) for first in range(0, highest + 1, PRUNED_PAGES)])

    async def _prune(self, first: int, cutoff: float) -> int:
        values = (first, first + PRUNED_PAGES - 1, cutoff)
        return await self._database.write(
            lambda connection: sum(connection.execute(sql, values).rowcount for sql in (_PRUNE_ATTEMPTS, _PRUNE_VISITS))
        )

    async def _rows(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())


def _selection(query: RecordQuery) -> tuple[str, str, list[Any]]:
    """FROM and WHERE of a query, the column that numbers its rows, and its values.

    Both ways walk in the order of that number, so that a chunk is found without sorting what lies behind it.
    """
    source, number = "records NOT INDEXED", "records.number"
    conditions: list[str] = []
    values: list[Any] = []
    if query.job is not None:
        # CROSS JOIN fixes the direction: along the job's sightings, which lie in the order of records.
        source, number = "sightings CROSS JOIN records ON records.number = sightings.record", "sightings.record"
        conditions.append("sightings.job = ?")
        values.append(mend(query.job))
    for column in ("spider", "type", "site", "url"):
        wanted = getattr(query, column)
        if wanted is not None:
            conditions.append(f"records.{column} = ?")
            values.append(mend(wanted))
    for bound, comparison in ((query.since, ">="), (query.until, "<")):
        if bound is not None:
            conditions.append(f"records.last_changed {comparison} ?")
            values.append(bound)
    return f"{source} WHERE {' AND '.join(conditions) or 'true'}", number, values


def _built(kind: type[S], fields: Sequence[str], row: Sequence[Any]) -> S:
    return kind(**dict(zip(fields, row, strict=True)))


def _stored(row: Sequence[Any]) -> StoredRecord:
    type_, site, key, url, job, spider, text, first_seen, last_changed, last_checked, version = row
    try:
        data = msgspec.json.decode(text)
    except msgspec.DecodeError:
        data = _lenient_json(text, f"{type_} {key!r} of {site}")
    return StoredRecord(
        type=type_, site=site, key=key, url=url, job=job, spider=spider, data=data, first_seen=first_seen,
        last_changed=last_changed, last_checked=last_checked, version=version,
    )  # fmt: skip


def _lenient_json(text: str, what: str) -> Any:
    """Read what other writers call JSON: escaped lone surrogates, NaN."""
    try:
        return json.loads(mend(json.dumps(json.loads(text), ensure_ascii=False)))
    except ValueError as error:
        raise Permanent(f"The stored {what} is not JSON. Correct or delete its row in the table records.") from error
