"""The records file as one side of a move. Fulfils `RecordCarrier`."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...model.carrying import Mark
from ...model.record import Attempt, PageFacts, Tally
from ...store.carrying import CarriedPage, CarriedRecord, CarriedSchema, RecordItem
from ...store.contract import Version
from .marks import Rows, read_mark, stream, write_mark
from .records import SqliteRecords
from .visit_batch import ATTEMPT_FIELDS, VISIT_FIELDS

AT_ONCE = 200
_TABLES = ("quality", "schemas", "visits", "attempts", "sightings", "superseded", "records", "pages")  # children first
_TALLIED = {
    "records": "records", "earlier versions": "superseded", "sightings": "sightings", "pages": "pages",
    "attempts": "attempts", "archived visits": "visits", "shapes of items": "schemas", "quality counts": "quality",
}  # fmt: skip
_FACTS = PageFacts.__struct_fields__
_RECORD = CarriedRecord.__struct_fields__[:14]  # from type to schema, as the table has them
_PAST_FIELDS = ("version", "at", "job", "data", "gone", "schema")
_TALLY = ("day", "spider", "type", "field", "rule", "checked", "filled", "faulty")

_PAGES = f"SELECT number, {', '.join(_FACTS)} FROM pages ORDER BY number"  # noqa: S608 - our own names
_RECORDS = f"""
SELECT records.number, {", ".join(f"records.{name}" for name in _RECORD)}, pages.fingerprint
FROM records LEFT JOIN pages ON pages.number = records.page ORDER BY records.number"""  # noqa: S608

_OF_PAGES = "SELECT page, {columns} FROM {table} WHERE page IN (SELECT value FROM json_each(?)) ORDER BY page, {order}"
_PAST = f"""
SELECT record, {", ".join(_PAST_FIELDS)} FROM superseded WHERE record IN (SELECT value FROM json_each(?))
ORDER BY record, version"""  # noqa: S608 - our own names
# Sightings are filed under their job: for each job one look per record, in the order of the table.
_SEEN = """
SELECT sightings.record, sightings.job, sightings.version FROM json_each(?) AS job CROSS JOIN json_each(?) AS wanted
CROSS JOIN sightings ON sightings.job = job.value AND sightings.record = wanted.value"""


class SqliteRecordCarrier:
    def __init__(self, store: SqliteRecords) -> None:
        self._store = store
        self._database = store._database

    async def mark(self) -> Mark | None:
        return await read_mark(self._database)

    async def set_mark(self, mark: Mark | None) -> None:
        await write_mark(self._database, mark)

    async def tally(self) -> dict[str, int]:
        counts = {
            name: (await self._rows(f"SELECT count(*) FROM {table}"))[0][0]  # noqa: S608 - our own names
            for name, table in _TALLIED.items()
        }
        return {name: count for name, count in counts.items() if count}

    async def pour(self) -> AsyncIterator[Sequence[RecordItem]]:
        async for rows in stream(self._database, _PAGES, (), AT_ONCE):
            numbers = msgspec.json.encode([row[0] for row in rows]).decode()
            attempts = await self._of_pages("attempts", ATTEMPT_FIELDS, "at", numbers)
            visits = await self._of_pages("visits", VISIT_FIELDS, "fetched_at", numbers)
            yield [_page(row, attempts.get(row[0], ()), visits.get(row[0], ())) for row in rows]
        jobs = await self._jobs()
        async for rows in stream(self._database, _RECORDS, (), AT_ONCE):
            numbers = msgspec.json.encode([row[0] for row in rows]).decode()
            past = _grouped(await self._rows(_PAST, (numbers,)))
            seen = _grouped(await self._rows(_SEEN, (jobs, numbers)))
            yield [_record(row, past.get(row[0], ()), seen.get(row[0], ())) for row in rows]
        shapes = await self._store.schemas()
        if shapes:
            yield [CarriedSchema(shape=shape, first_stored=at) for shape, at in shapes]
        tallies = await self._store.scores()
        for start in range(0, len(tallies), AT_ONCE):
            yield tallies[start : start + AT_ONCE]

    async def fill(self, batch: Sequence[RecordItem]) -> None:
        await self._database.write(lambda connection: _fill(connection, batch))

    async def settle(self) -> None:
        """Nothing depends on all of it: pages come before the records they gave."""

    async def clear(self) -> None:
        def write(connection: sqlite3.Connection) -> None:
            for table in _TABLES:
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 - our own names
            # Marks in the stream of changes count from the beginning again: those of before are not good any more.
            connection.execute("UPDATE store SET id = lower(hex(randomblob(6)))")

        await self._database.write(write)
        self._store.forget_schemas()

    async def _rows(self, sql: str, values: Sequence[Any] = ()) -> Rows:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall())

    async def _jobs(self) -> str:
        """Every job that saw something, as JSON; found by leaps, not by reading all sightings."""
        found: list[str] = []
        rows = await self._rows("SELECT min(job) FROM sightings")
        while (job := rows[0][0]) is not None:
            found.append(job)
            rows = await self._rows("SELECT min(job) FROM sightings WHERE job > ?", (job,))
        return msgspec.json.encode(found).decode()

    async def _of_pages(
        self, table: str, columns: Sequence[str], order: str, numbers: str
    ) -> dict[int, tuple[Sequence[Any], ...]]:
        sql = _OF_PAGES.format(columns=", ".join(columns), table=table, order=order)
        return _grouped(await self._rows(sql, (numbers,)))


def _grouped(rows: Rows) -> dict[int, tuple[Sequence[Any], ...]]:
    """Rows by their first column, the rest in order."""
    groups: dict[int, list[Sequence[Any]]] = {}
    for number, *rest in rows:
        groups.setdefault(number, []).append(rest)
    return {number: tuple(group) for number, group in groups.items()}


def _page(row: Sequence[Any], attempts: Sequence[Sequence[Any]], visits: Sequence[Sequence[Any]]) -> CarriedPage:
    facts = dict(zip(_FACTS, row[1:], strict=True))
    fingerprint = facts["fingerprint"]
    return CarriedPage(
        fingerprint=fingerprint,
        url=facts["url"],
        job=facts["job"],
        facts=PageFacts(**facts) if facts["fetched_at"] is not None else None,
        attempts=tuple(
            Attempt(fingerprint=fingerprint, **dict(zip(ATTEMPT_FIELDS, one, strict=True))) for one in attempts
        ),
        visits=tuple(PageFacts(fingerprint=fingerprint, **dict(zip(VISIT_FIELDS, one, strict=True))) for one in visits),
    )


def _record(row: Sequence[Any], past: Sequence[Sequence[Any]], seen: Sequence[Sequence[Any]]) -> CarriedRecord:
    return CarriedRecord(
        **dict(zip(_RECORD, row[1:-1], strict=True)),
        page=row[-1] or b"",
        past=tuple(
            Version(version=version, at=at, job=job, data=data, gone=bool(gone), schema=schema)
            for version, at, job, data, gone, schema in past
        ),
        seen_by=tuple((job, version) for job, version in seen),
    )


# -- taking in, inside a transaction -----------------------------------------------------------------------------


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608


_ADD_PAGE = _insert("pages", _FACTS)
_ADD_UNFETCHED = _insert("pages", ("fingerprint", "url", "job"))
_ADD_ATTEMPT = _insert("attempts", ("page", *ATTEMPT_FIELDS))
_ADD_VISIT = _insert("visits", ("page", *VISIT_FIELDS))
_ADD_RECORD = _insert("records", (*_RECORD, "page"))
_ADD_PAST = _insert("superseded", ("record", *_PAST_FIELDS))
_ADD_SIGHTING = _insert("sightings", ("record", "job", "version"))
_ADD_SCHEMA = _insert("schemas", ("type", "id", "definition", "first_stored"))
_ADD_TALLY = _insert("quality", _TALLY)
_FIND_PAGE = "SELECT number FROM pages WHERE fingerprint = ?"
_FIND_RECORD = "SELECT number FROM records WHERE type = ? AND site = ? AND key = ?"


def _fill(connection: sqlite3.Connection, batch: Sequence[RecordItem]) -> None:
    for item in batch:
        if isinstance(item, CarriedPage):
            _add_page(connection, item)
        elif isinstance(item, CarriedRecord):
            _add_record(connection, item)
        elif isinstance(item, Tally):
            connection.execute(_ADD_TALLY, [getattr(item, name) for name in _TALLY])
        else:
            shape = item.shape
            connection.execute(_ADD_SCHEMA, (shape.type, shape.id, shape.definition, item.first_stored))


def _add_page(connection: sqlite3.Connection, page: CarriedPage) -> None:
    if page.facts is not None:
        connection.execute(_ADD_PAGE, msgspec.structs.astuple(page.facts))
    else:
        connection.execute(_ADD_UNFETCHED, (page.fingerprint, page.url, page.job))
    number = connection.execute(_FIND_PAGE, (page.fingerprint,)).fetchone()[0]
    connection.executemany(
        _ADD_ATTEMPT, [(number, *(getattr(one, name) for name in ATTEMPT_FIELDS)) for one in page.attempts]
    )
    connection.executemany(
        _ADD_VISIT, [(number, *(getattr(one, name) for name in VISIT_FIELDS)) for one in page.visits]
    )


def _add_record(connection: sqlite3.Connection, record: CarriedRecord) -> None:
    page = connection.execute(_FIND_PAGE, (record.page,)).fetchone()
    values = [getattr(record, name) for name in _RECORD]
    connection.execute(_ADD_RECORD, (*values, page[0] if page is not None else 0))
    number = connection.execute(_FIND_RECORD, (record.type, record.site, record.key)).fetchone()[0]
    past = [(number, *(getattr(version, name) for name in _PAST_FIELDS)) for version in record.past]
    connection.executemany(_ADD_PAST, past)
    connection.executemany(_ADD_SIGHTING, [(number, job, version) for job, version in record.seen_by])
