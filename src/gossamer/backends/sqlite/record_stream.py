"""The records file as a stream of rows. Fulfils `RecordStream`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...model.item_account import COUNT_FIELDS
from ...model.record import Tally
from ...store.contract import SentNote
from ...store.record_rows import (
    ATTEMPT_FIELDS,
    COUNTED,
    PAGE_FIELDS,
    PAST_FIELDS,
    RECORD_FIELDS,
    SENT_FIELDS,
    TABLES,
    TALLY_FIELDS,
    VISIT_FIELDS,
    DumpedPage,
    DumpedRecord,
    DumpedSchema,
    RecordRow,
    attempt_values,
    dumped_page,
    dumped_record,
    fields_of,
    grouped,
    item_values,
    visit_values,
)
from .connection import Database
from .page_log import add_attempts, add_visits
from .record_writes import COUNT_ITEMS
from .stream import SqliteStream

if TYPE_CHECKING:
    from .records import SqliteRecords

KEPT_IN = {"attempts": "attempt_rows", "visits": "visit_rows"}  # tables that are read through a view
BATCH = 200  # pages or records in memory, each with everything that belongs to it

_PAGES = f"SELECT number, {', '.join(PAGE_FIELDS)} FROM pages ORDER BY number"  # noqa: S608 - our own names
_RECORDS = f"""
SELECT records.number, pages.fingerprint, {", ".join(f"records.{name}" for name in RECORD_FIELDS)}
FROM records LEFT JOIN pages ON pages.number = records.page ORDER BY records.number"""  # noqa: S608

_ATTEMPTS = f"""
SELECT page, {", ".join(ATTEMPT_FIELDS)} FROM attempts WHERE page IN (SELECT value FROM json_each(?))
ORDER BY page, at"""  # noqa: S608 - our own names
_VISITS = f"""
SELECT page, {", ".join(VISIT_FIELDS)} FROM visits WHERE page IN (SELECT value FROM json_each(?))
ORDER BY page, fetched_at"""  # noqa: S608 - our own names
_PAST = f"""
SELECT record, {", ".join(PAST_FIELDS)} FROM superseded WHERE record IN (SELECT value FROM json_each(?))
ORDER BY record, version"""  # noqa: S608 - our own names
_ITEMS = f"""
SELECT item_counts.page, item_counts.job, at, {", ".join(COUNT_FIELDS)}, parser, notes
FROM json_each(?) AS job CROSS JOIN json_each(?) AS wanted
CROSS JOIN item_counts ON item_counts.job = job.value AND item_counts.page = wanted.value"""  # noqa: S608 - our own names
_SEERS = """
SELECT seen_by.record, seen_by.spider FROM json_each(?) AS spider CROSS JOIN json_each(?) AS wanted
CROSS JOIN seen_by ON seen_by.spider = spider.value AND seen_by.record = wanted.value"""
# Sightings are stored by job: one look-up for each job and record, in the order of the table.
_SEEN = """
SELECT sightings.record, sightings.job, version, pages.fingerprint, state, sightings.content
FROM json_each(?) AS job CROSS JOIN json_each(?) AS wanted
CROSS JOIN sightings ON sightings.job = job.value AND sightings.record = wanted.value
LEFT JOIN pages ON pages.number = sightings.page"""

_SENT = f"SELECT {', '.join(SENT_FIELDS)} FROM sent_notes"  # noqa: S608 - our own names


class SqliteRecordStream(SqliteStream[RecordRow]):
    def __init__(self, database: Database, store: SqliteRecords) -> None:
        super().__init__(database)
        self._store = store

    async def counts(self) -> dict[str, int]:
        return {name: count for name, count in (await self._count(COUNTED)).items() if count}

    async def _dump(self) -> AsyncIterator[Sequence[RecordRow]]:
        counted = _json(await self._names("item_counts", "job"))
        async for rows in self._batches(_PAGES, BATCH):
            numbers = _json([row[0] for row in rows])
            attempts = grouped(await self._rows(_ATTEMPTS, (numbers,)))
            visits = grouped(await self._rows(_VISITS, (numbers,)))
            items = grouped(await self._rows(_ITEMS, (counted, numbers)))
            yield [
                dumped_page(row[1:], attempts.get(row[0], ()), visits.get(row[0], ()), items.get(row[0], ()))
                for row in rows
            ]
        jobs, spiders = _json(await self._names("sightings", "job")), _json(await self._names("seen_by", "spider"))
        async for rows in self._batches(_RECORDS, BATCH):
            numbers = _json([row[0] for row in rows])
            past = grouped(await self._rows(_PAST, (numbers,)))
            seen = grouped(await self._rows(_SEEN, (jobs, numbers)))
            seers = grouped(await self._rows(_SEERS, (spiders, numbers)))
            yield [
                dumped_record(row[2:], row[1], past.get(row[0], ()), seen.get(row[0], ()), seers.get(row[0], ()))
                for row in rows
            ]
        yield [DumpedSchema(shape=shape, first_stored=at) for shape, at in await self._store.schemas()]
        yield await self._store.scores()
        async for rows in self._batches(_SENT, BATCH):
            yield [SentNote(**dict(zip(SENT_FIELDS, row, strict=True))) for row in rows]

    async def load(self, batch: Sequence[RecordRow]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for row in batch:
                if isinstance(row, DumpedPage):
                    _add_page(connection, row)
                elif isinstance(row, DumpedRecord):
                    _add_record(connection, row)
                elif isinstance(row, SentNote):
                    connection.execute(_ADD_SENT, msgspec.structs.astuple(row))
                elif isinstance(row, Tally):
                    connection.execute(_ADD_TALLY, fields_of(row, TALLY_FIELDS))
                else:
                    shape = row.shape
                    connection.execute(_ADD_SCHEMA, (shape.type, shape.id, shape.definition, row.first_stored))

        await self._database.write(write)

    async def finish(self) -> None:
        """Nothing to do: pages come before the records they yielded."""

    async def clear(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for table in (*(KEPT_IN.get(table, table) for table in TABLES), "attempt_workers"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            # Cursors count from the beginning again: the store gets a new id, so that older ones are refused.
            connection.execute("UPDATE store SET id = lower(hex(randomblob(6)))")

        await self._database.write(write)
        self._store.forget_schemas()

    async def _names(self, table: str, column: str) -> list[str]:
        """Every job or spider in a table whose key starts with it: one index step for each, instead of a scan."""
        found: list[str] = []
        first = f"SELECT min({column}) FROM {table}"  # noqa: S608 - our own names
        rows = await self._rows(first)
        while (name := rows[0][0]) is not None:
            found.append(name)
            rows = await self._rows(f"{first} WHERE {column} > ?", (name,))
        return found


def _json(values: Sequence[int | str]) -> str:
    return msgspec.json.encode(values).decode()


# -- loading, inside a transaction -------------------------------------------------------------------------------


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


_ADD_PAGE = _insert("pages", PAGE_FIELDS)
_ADD_UNFETCHED = """
INSERT OR IGNORE INTO pages (fingerprint, url, job, etag, last_modified, archive_ref, body_hash, parser, links, spider,
    failure, content, rhythm) VALUES (?, ?, ?, '', '', '', x'', '', x'', '', '', x'', '')"""
_ADD_RECORD = _insert("records", (*RECORD_FIELDS, "page", "revision"))
_ADD_PAST = _insert("superseded", ("record", *PAST_FIELDS))
_ADD_SIGHTING = _insert("sightings", ("record", "job", "version"))
_FIRST_SEEN = "UPDATE sightings SET page = ?, state = ?, content = ? WHERE job = ? AND record = ?"
_ADD_SEER = _insert("seen_by", ("record", "spider"))
_ADD_SCHEMA = _insert("schemas", ("type", "id", "definition", "first_stored"))
_ADD_TALLY = _insert("quality", TALLY_FIELDS)
_ADD_SENT = _insert("sent_notes", SENT_FIELDS)
_FIND_PAGE = "SELECT number FROM pages WHERE fingerprint = ?"
_FIND_RECORD = "SELECT number FROM records WHERE type = ? AND site = ? AND key = ?"


def _add_page(connection: sqlite3.Connection, page: DumpedPage) -> None:
    if page.facts is not None:
        connection.execute(_ADD_PAGE, msgspec.structs.astuple(page.facts))
    else:
        connection.execute(_ADD_UNFETCHED, (page.fingerprint, page.url, page.job))
    number = connection.execute(_FIND_PAGE, (page.fingerprint,)).fetchone()[0]
    add_attempts(connection, [(number, *attempt_values(one)) for one in page.attempts])
    add_visits(connection, [(number, *visit_values(one)) for one in page.visits])
    connection.executemany(COUNT_ITEMS, [(job, number, at, *item_values(one)) for job, at, one in page.items])


def _add_record(connection: sqlite3.Connection, record: DumpedRecord) -> None:
    page = connection.execute(_FIND_PAGE, (record.page,)).fetchone()
    connection.execute(_ADD_RECORD, (*fields_of(record, RECORD_FIELDS), page[0] if page is not None else 0, 0))
    number = connection.execute(_FIND_RECORD, (record.type, record.site, record.key)).fetchone()[0]
    connection.executemany(_ADD_PAST, [(number, *fields_of(version, PAST_FIELDS)) for version in record.past])
    connection.executemany(_ADD_SIGHTING, [(number, job, version) for job, version in record.seen_by])
    for job, first, state, content in record.first_seen_on:
        if (found := connection.execute(_FIND_PAGE, (first,)).fetchone()) is not None:
            connection.execute(_FIRST_SEEN, (found[0], state, content, job, number))
    connection.executemany(_ADD_SEER, [(number, spider) for spider in record.spiders])
