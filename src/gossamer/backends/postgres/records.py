"""Records, attempts and page facts in PostgreSQL; fulfils `RecordStore`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored (or all of it, when the connection was lost
during the commit). How it recovers: the same batch can be written again. Lives here: the contract's verbs and reading
back. What a batch does to the tables: batch.py.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...errors import Permanent
from ...model.record import Attempt, PageFacts, PageResult, StoredRecord
from ...store.contract import RecordQuery, Version
from ...store.verdict import mend
from .batch import ATTEMPT_FIELDS, PAGE_FIELDS, VISIT_FIELDS, save_results
from .changes import identity_of
from .connection import CONNECT_WITHIN, PostgresDatabase, Row, Session, open_database
from .faults import Unstorable
from .texts import queryable, read, stored, stored_results, strictly_queryable

SCHEMA = "gossamer"
CHUNK = 256  # rows in memory while streaming
PRUNED_PAGES = 20_000  # pages per transaction while pruning: others can write in between

S = TypeVar("S", bound=msgspec.Struct)

_FIND_FACTS = f"""
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT {", ".join(PAGE_FIELDS)} FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint AND fetched_at IS NOT NULL LIMIT 1
) AS found"""  # noqa: S608 - our own names

_KNOWN_ATTEMPT = ("fingerprint", *ATTEMPT_FIELDS)
_KNOWN_VISIT = ("fingerprint", *VISIT_FIELDS)


def _of_page(table: str, columns: Sequence[str], order: str) -> str:
    wanted = ", ".join(f"t.{column}" for column in columns)
    return (
        f"SELECT fingerprint, {wanted} FROM @pages AS pages JOIN @{table} AS t ON t.page = pages.number "  # noqa: S608
        f"WHERE fingerprint = $1 ORDER BY t.{order}"
    )


_LIST_ATTEMPTS = _of_page("attempts", ATTEMPT_FIELDS, "at")
_LIST_VISITS = _of_page("visits", VISIT_FIELDS, "fetched_at")

_HISTORY = """
SELECT past.version, past.at, past.job, past.source
FROM @records AS records JOIN @superseded AS past ON past.record = records.number WHERE identity = $1
UNION ALL
SELECT version, last_changed, job, source FROM @records WHERE identity = $1
ORDER BY 1"""

_STORED_COLUMNS = """records.type, records.site, records.key, records.url, records.job, records.spider,
    records.source, records.first_seen, records.last_changed, records.last_checked, records.version"""

_HIGHEST_PAGE = "SELECT coalesce(max(number), 0) AS number FROM @pages"
_PRUNE_ATTEMPTS = """
WITH gone AS (DELETE FROM @attempts WHERE page BETWEEN $1 AND $2 AND at < $3 RETURNING 1) SELECT count(*) FROM gone"""
_PRUNE_VISITS = """
WITH gone AS (
    DELETE FROM @visits AS visits USING @pages AS pages
    WHERE pages.number = visits.page AND page BETWEEN $1 AND $2 AND visits.fetched_at < $3
        AND visits.archive_ref <> pages.archive_ref
    RETURNING 1
) SELECT count(*) FROM gone"""


@asynccontextmanager
async def open_postgres_records(
    address: str,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    schema: str = SCHEMA,
    connect_within: timedelta = CONNECT_WITHIN,
) -> AsyncIterator[PostgresRecords]:
    """Open the record store at `address`; its tables are made when there are none yet.

    A `?schema=` in the address goes before `schema`. Raises Misconfigured, BadState, BackendUnavailable.
    """
    async with open_database(address, schema=schema, connect_within=connect_within) as database:
        yield PostgresRecords(database, clock, min_rewrite_age=min_rewrite_age)


class PostgresRecords:
    """Fulfils `RecordStore`. Many processes may write to the same tables."""

    def __init__(self, database: PostgresDatabase, clock: Clock, *, min_rewrite_age: timedelta | None = None) -> None:
        self._database = database
        self._clock = clock
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        now, min_age = self._clock.now(), self._min_age
        rows = stored_results(results)
        try:
            return await self._database.transact(lambda session: save_results(session, rows, now, min_age, queryable))
        except Unstorable:
            # Some record is JSON for us and not for PostgreSQL. Each is shown to it alone; what it does not take has
            # its exact text only.
            known = {one.data: await self._accepted(one.data) for result in rows for one in result.records}
            return await self._database.transact(
                lambda session: save_results(session, rows, now, min_age, known.__getitem__)
            )

    async def _accepted(self, source: str) -> str | None:
        """The JSON that PostgreSQL takes for a record's text; None when it takes none."""
        for text in dict.fromkeys((queryable(source), strictly_queryable(source))):
            try:
                if text is not None:
                    await self._database.rows("SELECT $1::text::jsonb IS NULL", text)
                    return text
            except Unstorable:
                continue
        return None

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        if not fingerprints:
            return {}
        pages = [_built(PageFacts, PAGE_FIELDS, row) for row in await self._database.rows(_FIND_FACTS, fingerprints)]
        return {page.fingerprint: page for page in pages}

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        return [_built(Attempt, _KNOWN_ATTEMPT, row) for row in await self._database.rows(_LIST_ATTEMPTS, fingerprint)]

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        return [_built(PageFacts, _KNOWN_VISIT, row) for row in await self._database.rows(_LIST_VISITS, fingerprint)]

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        rows = await self._database.rows(_HISTORY, identity_of(stored(type), stored(site), stored(key)))
        return [Version(version=version, at=at, job=read(job), data=read(data)) for version, at, job, data in rows]

    async def count(self, query: RecordQuery) -> int:
        source, _, values = _selection(query)
        rows = await self._database.rows(f"SELECT count(*) FROM {source}", *values)  # noqa: S608 - our own words
        total: int = rows[0][0]
        return total

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        # One short transaction per chunk, going on after the last number seen: nothing is locked, and no connection
        # is held, while the reader thinks.
        source, number, values = _selection(query)
        sql = (
            f"SELECT {number}, {_STORED_COLUMNS} FROM {source} "  # noqa: S608 - our own words
            f"AND {number} > ${len(values) + 1} ORDER BY {number} LIMIT {CHUNK}"
        )
        last = -1
        while rows := await self._chunk(sql, *values, last):
            for row in rows:
                yield _stored(tuple(row)[1:])
            last = rows[-1][0]

    async def _chunk(self, sql: str, *values: Any) -> list[Row]:
        return await self._database.transact(lambda session: session.rows(sql, *values))

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        highest = (await self._database.rows(_HIGHEST_PAGE))[0]["number"]
        return sum([await self._prune(first, cutoff) for first in range(0, highest + 1, PRUNED_PAGES)])

    async def _prune(self, first: int, cutoff: float) -> int:
        async def delete(session: Session) -> int:
            pages = (first, first + PRUNED_PAGES - 1)
            return sum([(await session.rows(sql, *pages, cutoff))[0][0] for sql in (_PRUNE_ATTEMPTS, _PRUNE_VISITS)])

        return await self._database.transact(delete)


def _selection(query: RecordQuery) -> tuple[str, str, list[Any]]:
    """FROM and WHERE of a query, the column that numbers its rows, and its values.

    Both ways walk in the order of that number, so that a chunk is found without sorting what lies behind it.
    """
    source, number = "@records AS records", "records.number"
    conditions: list[str] = []
    values: list[Any] = []

    def demand(condition: str, value: Any) -> None:
        values.append(value)
        conditions.append(f"{condition} ${len(values)}")

    if query.job is not None:
        source = "@sightings AS sightings JOIN @records AS records ON records.number = sightings.record"
        number = "sightings.record"
        demand("sightings.job =", stored(query.job))
    for column in ("spider", "type", "site", "url"):
        wanted = getattr(query, column)
        if wanted is not None:
            demand(f"records.{column} =", stored(wanted))
    if query.since is not None:
        demand("records.last_changed >=", query.since)
    if query.until is not None:
        demand("records.last_changed <", query.until)
    return f"{source} WHERE {' AND '.join(conditions) or 'true'}", number, values


def _built(kind: type[S], fields: Sequence[str], row: Sequence[Any]) -> S:
    values = (read(value) if type(value) is str else value for value in row)
    return kind(**dict(zip(fields, values, strict=True)))


def _stored(row: Sequence[Any]) -> StoredRecord:
    *texts, first_seen, last_changed, last_checked, version = row
    type_, site, key, url, job, spider, source = map(read, texts)
    try:
        data = msgspec.json.decode(source)
    except msgspec.DecodeError:
        data = _lenient_json(source, f"{type_} {key!r} of {site}")
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
