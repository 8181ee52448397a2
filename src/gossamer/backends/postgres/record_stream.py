"""The records in PostgreSQL as a stream of rows. Fulfils `RecordStream`.

The table `move_mark` exists only after a move or a restore.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...model.item_account import COUNT_FIELDS
from ...model.record import Tally
from ...model.stream import MoveMark
from ...store.contract import SentNote
from ...store.record_rows import (
    ATTEMPT_FIELDS,
    COUNTED,
    PAGE_FIELDS,
    PAST_FIELDS,
    RECORD_FIELDS,
    SENT_FIELDS,
    TABLES,
    VISIT_FIELDS,
    DumpedPage,
    DumpedRecord,
    DumpedSchema,
    RecordRow,
    attempt_values,
    dumped_page,
    dumped_record,
    grouped,
    item_values,
    visit_values,
)
from .connection import PostgresDatabase, Session
from .errors import Unstorable
from .page_log import ADD_ATTEMPTS, ADD_PAGES, ADD_SCHEMAS, ADD_TALLIES, ADD_VISITS, Unfetched, new_rows, tally_rows
from .record_writes import ADD_PAST, ADD_RECORDS, ADD_SEERS, ADD_SIGHTINGS, COUNT_ITEMS, Queryable
from .stored_text import identity_of, queryable, read, stored

if TYPE_CHECKING:
    from .records import PostgresRecords

BATCH = 200  # pages or records in memory, each with everything that belongs to it


def _columns(fields: Sequence[str], table: str = "") -> str:
    """The columns of these fields: the text of `data` is in the column `source`."""
    return ", ".join(f"{table}{'source' if name == 'data' else name}" for name in fields)


_PAGES = f"SELECT number, {_columns(PAGE_FIELDS)} FROM @pages WHERE number > $1 ORDER BY number LIMIT $2"  # noqa: S608
_RECORDS = f"""
SELECT records.number, pages.fingerprint, {_columns(RECORD_FIELDS, "records.")}
FROM @records AS records LEFT JOIN @pages AS pages ON pages.number = records.page
WHERE records.number > $1 ORDER BY records.number LIMIT $2"""  # noqa: S608 - our own names
_ATTEMPTS = f"SELECT page, {_columns(ATTEMPT_FIELDS)} FROM @attempts WHERE page = ANY ($1::bigint[]) ORDER BY page, at"  # noqa: S608
_VISITS = (
    f"SELECT page, {_columns(VISIT_FIELDS)} FROM @visits WHERE page = ANY ($1::bigint[]) ORDER BY page, fetched_at"  # noqa: S608
)
_PAST = f"""
SELECT record, {_columns(PAST_FIELDS)} FROM @superseded WHERE record = ANY ($1::bigint[])
ORDER BY record, version"""  # noqa: S608 - our own names
_SEEN = """
SELECT seen.record, seen.job, seen.version, pages.fingerprint, seen.state, seen.content
FROM unnest($1::text[]) AS wanted (job) CROSS JOIN LATERAL (
    SELECT record, job, version, page, state, content FROM @sightings AS sightings
    WHERE sightings.job = wanted.job AND record = ANY ($2::bigint[])
) AS seen LEFT JOIN @pages AS pages ON pages.number = seen.page"""
_FIRST_SEEN = """
UPDATE @sightings AS sightings SET page = new.page, state = new.state, content = new.content
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bytea[])
    AS new (job, record, page, state, content)
WHERE sightings.job = new.job AND sightings.record = new.record"""

_ITEMS = f"""
SELECT page, job, at, {_columns(COUNT_FIELDS)}, parser, notes FROM @item_counts
WHERE job = ANY ($1::text[]) AND page = ANY ($2::bigint[])"""  # noqa: S608 - our own names
_SEERS = """
SELECT record, spider FROM @seen_by WHERE spider = ANY ($1::text[]) AND record = ANY ($2::bigint[])"""

_SENT = f"""
SELECT {_columns(SENT_FIELDS)} FROM @sent_notes WHERE (job, fingerprint) > ($1, $2) ORDER BY job, fingerprint
LIMIT $3"""  # noqa: S608 - our own names
_ADD_SENT = f"""
INSERT INTO @sent_notes ({_columns(SENT_FIELDS)})
SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[], $4::float8[]) ON CONFLICT DO NOTHING"""  # noqa: S608

_NUMBERS = "SELECT fingerprint, number FROM @pages WHERE fingerprint = ANY ($1::bytea[])"
_RECORD_NUMBERS = "SELECT identity, number FROM @records WHERE identity = ANY ($1::bytea[])"
_GONE_SINCE = """
UPDATE @records AS records SET gone_since = new.at FROM unnest($1::bytea[], $2::float8[]) AS new (identity, at)
WHERE records.identity = new.identity"""


class PostgresRecordStream:
    def __init__(self, database: PostgresDatabase, store: PostgresRecords) -> None:
        self._database = database
        self._store = store

    async def mark(self) -> MoveMark | None:
        name = f'"{self._database.address.schema}".move_mark'
        there = await self._database.rows("SELECT to_regclass($1) IS NOT NULL", name)
        rows = await self._database.rows("SELECT mark FROM @move_mark") if there[0][0] else []
        return msgspec.json.decode(rows[0][0], type=MoveMark) if rows else None

    async def set_mark(self, mark: MoveMark | None) -> None:
        async def write(session: Session) -> None:
            await session.run("CREATE TABLE IF NOT EXISTS @move_mark (mark text NOT NULL)")
            await session.run("DELETE FROM @move_mark")
            if mark is not None:
                await session.run("INSERT INTO @move_mark VALUES ($1)", msgspec.json.encode(mark).decode())

        await self._database.transact(write)

    async def counts(self) -> dict[str, int]:
        counts = {
            name: (await self._database.rows(f"SELECT count(*) FROM @{table}"))[0][0]  # noqa: S608 - our own names
            for name, table in COUNTED.items()
        }
        return {name: count for name, count in counts.items() if count}

    async def dump(self) -> AsyncGenerator[Sequence[RecordRow]]:
        async with self._database.as_of_now() as moment:
            stream = PostgresRecordStream(moment, self._store.on(moment))
            async for batch in stream._dump():
                yield batch

    async def _dump(self) -> AsyncIterator[Sequence[RecordRow]]:
        last, counted = -1, [stored(job) for job in await self._names("item_counts", "job")]
        while rows := await self._rows(_PAGES, last, BATCH):
            numbers = [row[0] for row in rows]
            attempts = grouped(await self._rows(_ATTEMPTS, numbers))
            visits = grouped(await self._rows(_VISITS, numbers))
            items = grouped(await self._rows(_ITEMS, counted, numbers))
            yield [
                dumped_page(row[1:], attempts.get(row[0], ()), visits.get(row[0], ()), items.get(row[0], ()))
                for row in rows
            ]
            last = numbers[-1]
        jobs, last = [stored(job) for job in await self._names("sightings", "job")], -1
        spiders = [stored(spider) for spider in await self._names("seen_by", "spider")]
        while rows := await self._rows(_RECORDS, last, BATCH):
            numbers = [row[0] for row in rows]
            past = grouped(await self._rows(_PAST, numbers))
            seen = grouped(await self._rows(_SEEN, jobs, numbers))
            seers = grouped(await self._rows(_SEERS, spiders, numbers))
            yield [
                dumped_record(row[2:], row[1], past.get(row[0], ()), seen.get(row[0], ()), seers.get(row[0], ()))
                for row in rows
            ]
            last = numbers[-1]
        yield [DumpedSchema(shape=shape, first_stored=at) for shape, at in await self._store.schemas()]
        yield await self._store.scores()
        job, fingerprint = "", b""
        while rows := await self._rows(_SENT, stored(job), fingerprint, BATCH):
            yield [SentNote(**dict(zip(SENT_FIELDS, row, strict=True))) for row in rows]
            job, fingerprint, *_ = rows[-1]

    async def load(self, batch: Sequence[RecordRow]) -> None:
        pages = [item for item in batch if isinstance(item, DumpedPage)]
        records = [item for item in batch if isinstance(item, DumpedRecord)]
        shapes = [item for item in batch if isinstance(item, DumpedSchema)]
        tallies = [item for item in batch if isinstance(item, Tally)]
        sent = [_storable(msgspec.structs.astuple(item)) for item in batch if isinstance(item, SentNote)]

        async def write(session: Session, as_json: Queryable) -> None:
            await _add_pages(session, pages)
            await _add_records(session, records, as_json)
            await _add_shapes(session, shapes)
            await _add_tallies(session, tallies)
            if sent:
                await session.run(_ADD_SENT, *new_rows(sent))

        try:
            await self._database.transact(lambda session: write(session, queryable))
        except Unstorable:
            # As in `save`: a text that is JSON for us but not for PostgreSQL is tried alone.
            texts = {stored(text) for one in records for text in (one.data, *(past.data for past in one.past))}
            known = {text: await self._store.accepted(text) for text in texts}
            await self._database.transact(lambda session: write(session, known.__getitem__))

    async def finish(self) -> None:
        """Analyse the tables: without statistics the first crawl here would get bad query plans."""
        for table in TABLES:
            await self._database.rows(f"ANALYZE @{table}")

    async def clear(self) -> None:
        async def write(session: Session) -> None:
            await session.run(f"TRUNCATE {', '.join(f'@{table}' for table in TABLES)}")

        await self._database.transact(write)
        self._store.forget_schemas()

    async def _rows(self, sql: str, *values: Any) -> list[list[Any]]:
        """The rows of a query, with their texts as they were before they were stored."""
        rows = await self._database.transact(lambda session: session.rows(sql, *values))
        return [[read(value) if type(value) is str else value for value in row] for row in rows]

    async def _names(self, table: str, column: str) -> list[str]:
        """Every job or spider in a table whose key starts with it: one index step for each, instead of a scan."""
        found: list[str] = []
        first = f"SELECT min({column}) FROM @{table}"  # noqa: S608 - our own names
        rows = await self._rows(first)
        while (name := rows[0][0]) is not None:
            found.append(name)
            rows = await self._rows(f"{first} WHERE {column} > $1", stored(name))
        return found


# -- loading, inside a transaction -------------------------------------------------------------------------------


def _storable(values: Sequence[Any]) -> list[Any]:
    return [stored(value) if type(value) is str else value for value in values]


async def _add_pages(session: Session, pages: Sequence[DumpedPage]) -> None:
    if not pages:
        return
    facts = [page.facts or Unfetched(page.fingerprint, page.url, page.job) for page in pages]
    await session.rows(ADD_PAGES, *new_rows(_storable(msgspec.structs.astuple(one)) for one in facts))
    found = await session.rows(_NUMBERS, [page.fingerprint for page in pages])
    number = dict(map(tuple, found))
    tried = [(number[page.fingerprint], *_storable(attempt_values(one))) for page in pages for one in page.attempts]
    seen = [(number[page.fingerprint], *_storable(visit_values(one))) for page in pages for one in page.visits]
    if tried:
        await session.run(ADD_ATTEMPTS, *new_rows(tried))
    if seen:
        await session.run(ADD_VISITS, *new_rows(seen))
    items = [
        (stored(job), number[page.fingerprint], at, *item_values(one)) for page in pages for job, at, one in page.items
    ]
    if items:
        await session.run(COUNT_ITEMS, *new_rows(items))


async def _add_records(session: Session, records: Sequence[DumpedRecord], as_json: Queryable) -> None:
    if not records:
        return
    firsts = [first for record in records for _, first, _, _ in record.first_seen_on]
    found = await session.rows(_NUMBERS, [*(record.page for record in records), *firsts])
    page = dict(map(tuple, found))
    identities = [identity_of(stored(one.type), stored(one.site), stored(one.key)) for one in records]
    rows = []
    for identity, one in zip(identities, records, strict=True):
        *texts, source = _storable([one.type, one.site, one.key, one.url, one.job, one.spider, one.data])
        rows.append(
            (identity, *texts, source, as_json(source), one.content_hash, one.first_seen, one.last_changed,
             one.last_checked, one.version, page.get(one.page, 0), stored(one.schema))
        )  # fmt: skip
    await session.rows(ADD_RECORDS, *new_rows(rows))
    gone = [
        (identity, one.gone_since)
        for identity, one in zip(identities, records, strict=True)
        if one.gone_since is not None
    ]
    if gone:
        await session.run(_GONE_SINCE, *new_rows(gone))
    number = dict(map(tuple, await session.rows(_RECORD_NUMBERS, identities)))
    past = [
        (number[identity], version.version, version.at, stored(version.job), source, as_json(source), version.gone,
         stored(version.schema))
        for identity, one in zip(identities, records, strict=True)
        for version in one.past
        for source in [stored(version.data)]
    ]  # fmt: skip
    if past:
        await session.run(ADD_PAST + " ON CONFLICT (record, version) DO NOTHING", *new_rows(past))
    sightings = [
        (stored(job), number[identity], version)
        for identity, one in zip(identities, records, strict=True)
        for job, version in one.seen_by
    ]
    if sightings:
        await session.run(ADD_SIGHTINGS, *new_rows(sightings))
    first_seen = [
        (stored(job), number[identity], page[first], state, content)
        for identity, one in zip(identities, records, strict=True)
        for job, first, state, content in one.first_seen_on
        if first in page
    ]
    if first_seen:
        await session.run(_FIRST_SEEN, *new_rows(first_seen))
    seers = [
        (stored(spider), number[identity])
        for identity, one in zip(identities, records, strict=True)
        for spider in one.spiders
    ]
    if seers:
        await session.run(ADD_SEERS, *new_rows(seers))


async def _add_shapes(session: Session, shapes: Sequence[DumpedSchema]) -> None:
    if shapes:
        rows = [
            (identity_of(type_, id), type_, id, definition, one.first_stored)
            for one in shapes
            for type_, id, definition in [_storable([one.shape.type, one.shape.id, one.shape.definition])]
        ]
        await session.run(ADD_SCHEMAS, *new_rows(rows))


async def _add_tallies(session: Session, tallies: Sequence[Tally]) -> None:
    if tallies:
        fields = [msgspec.structs.asdict(one) for one in tallies]
        rows = [Tally(**dict(zip(one, _storable(list(one.values())), strict=True))) for one in fields]
        await session.run(f"{ADD_TALLIES} DO NOTHING", *tally_rows(rows))
