"""The records in PostgreSQL as one side of a move. Fulfils `RecordCarrier`.

The table `move_mark` is there only where a move has been.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from ...model.carrying import Mark
from ...model.record import Attempt, PageFacts, Tally
from ...store.carrying import CarriedPage, CarriedRecord, CarriedSchema, RecordItem
from ...store.contract import Version
from .batch import ADD_PAST, ADD_RECORDS, ADD_SIGHTINGS, Queryable
from .changes import identity_of
from .connection import Row, Session
from .faults import Unstorable
from .records import PostgresRecords
from .texts import queryable, read, stored
from .visits import (
    ADD_ATTEMPTS,
    ADD_PAGES,
    ADD_SCHEMAS,
    ADD_TALLIES,
    ADD_VISITS,
    ATTEMPT_FIELDS,
    PAGE_FIELDS,
    VISIT_FIELDS,
    Unfetched,
    new_rows,
    tally_rows,
)

AT_ONCE = 200
_TABLES = ("quality", "schemas", "visits", "attempts", "sightings", "superseded", "records", "pages")
_TALLIED = {
    "records": "records", "earlier versions": "superseded", "sightings": "sightings", "pages": "pages",
    "attempts": "attempts", "archived visits": "visits", "shapes of items": "schemas", "quality counts": "quality",
}  # fmt: skip
_RECORD = ("type", "site", "key", "url", "job", "spider", "source", "content_hash", "first_seen", "last_changed",
           "last_checked", "version", "gone_since", "schema")  # fmt: skip
_RECORD_FIELDS = CarriedRecord.__struct_fields__[:14]  # the same, as the struct has them

_PAGES = f"SELECT number, {', '.join(PAGE_FIELDS)} FROM @pages WHERE number > $1 ORDER BY number LIMIT $2"  # noqa: S608
_RECORDS = f"""
SELECT records.number, {", ".join(f"records.{name}" for name in _RECORD)}, pages.fingerprint
FROM @records AS records LEFT JOIN @pages AS pages ON pages.number = records.page
WHERE records.number > $1 ORDER BY records.number LIMIT $2"""  # noqa: S608 - our own names
_ATTEMPTS = f"SELECT page, {', '.join(ATTEMPT_FIELDS)} FROM @attempts WHERE page = ANY ($1::bigint[]) ORDER BY page, at"  # noqa: S608
_VISITS = (
    f"SELECT page, {', '.join(VISIT_FIELDS)} FROM @visits WHERE page = ANY ($1::bigint[]) ORDER BY page, fetched_at"  # noqa: S608
)
_PAST = """
SELECT record, version, at, job, source, gone, schema FROM @superseded WHERE record = ANY ($1::bigint[])
ORDER BY record, version"""
_SEEN = """
SELECT seen.record, seen.job, seen.version FROM unnest($1::text[]) AS wanted (job) CROSS JOIN LATERAL (
    SELECT record, job, version FROM @sightings AS sightings
    WHERE sightings.job = wanted.job AND record = ANY ($2::bigint[])
) AS seen"""

_NUMBERS = "SELECT fingerprint, number FROM @pages WHERE fingerprint = ANY ($1::bytea[])"
_RECORD_NUMBERS = "SELECT identity, number FROM @records WHERE identity = ANY ($1::bytea[])"
_GONE_SINCE = """
UPDATE @records AS records SET gone_since = new.at FROM unnest($1::bytea[], $2::float8[]) AS new (identity, at)
WHERE records.identity = new.identity"""


class PostgresRecordCarrier:
    def __init__(self, store: PostgresRecords) -> None:
        self._store = store
        self._database = store._database
        self._accepted = store._accepted

    async def mark(self) -> Mark | None:
        name = f'"{self._database.address.schema}".move_mark'
        there = await self._database.rows("SELECT to_regclass($1) IS NOT NULL", name)
        rows = await self._database.rows("SELECT mark FROM @move_mark") if there[0][0] else []
        return msgspec.json.decode(rows[0][0], type=Mark) if rows else None

    async def set_mark(self, mark: Mark | None) -> None:
        async def write(session: Session) -> None:
            await session.run("CREATE TABLE IF NOT EXISTS @move_mark (mark text NOT NULL)")
            await session.run("DELETE FROM @move_mark")
            if mark is not None:
                await session.run("INSERT INTO @move_mark VALUES ($1)", msgspec.json.encode(mark).decode())

        await self._database.transact(write)

    async def tally(self) -> dict[str, int]:
        counts = {
            name: (await self._database.rows(f"SELECT count(*) FROM @{table}"))[0][0]  # noqa: S608 - our own names
            for name, table in _TALLIED.items()
        }
        return {name: count for name, count in counts.items() if count}

    async def pour(self) -> AsyncIterator[Sequence[RecordItem]]:
        last = -1
        while rows := await self._database.rows(_PAGES, last, AT_ONCE):
            numbers = [row[0] for row in rows]
            attempts = _grouped(await self._looked_up(_ATTEMPTS, numbers))
            visits = _grouped(await self._looked_up(_VISITS, numbers))
            yield [_page(row, attempts.get(row[0], ()), visits.get(row[0], ())) for row in rows]
            last = numbers[-1]
        jobs, last = await self._jobs(), -1
        while rows := await self._database.rows(_RECORDS, last, AT_ONCE):
            numbers = [row[0] for row in rows]
            past = _grouped(await self._looked_up(_PAST, numbers))
            seen = _grouped(await self._looked_up(_SEEN, jobs, numbers))
            yield [_record(row, past.get(row[0], ()), seen.get(row[0], ())) for row in rows]
            last = numbers[-1]
        shapes = await self._store.schemas()
        if shapes:
            yield [CarriedSchema(shape=shape, first_stored=at) for shape, at in shapes]
        tallies = await self._store.scores()
        for start in range(0, len(tallies), AT_ONCE):
            yield tallies[start : start + AT_ONCE]

    async def fill(self, batch: Sequence[RecordItem]) -> None:
        pages = [item for item in batch if isinstance(item, CarriedPage)]
        records = [item for item in batch if isinstance(item, CarriedRecord)]
        shapes = [item for item in batch if isinstance(item, CarriedSchema)]
        tallies = [item for item in batch if isinstance(item, Tally)]

        async def write(session: Session, as_json: Queryable) -> None:
            await _add_pages(session, pages)
            await _add_records(session, records, as_json)
            await _add_shapes(session, shapes)
            await _add_tallies(session, tallies)

        try:
            await self._database.transact(lambda session: write(session, queryable))
        except Unstorable:
            # As in `save`: what is JSON for us and not for PostgreSQL is shown to it alone.
            texts = {stored(text) for one in records for text in (one.data, *(past.data for past in one.past))}
            known = {text: await self._accepted(text) for text in texts}
            await self._database.transact(lambda session: write(session, known.__getitem__))

    async def settle(self) -> None:
        """A first crawl here would plan without statistics."""
        for table in _TABLES:
            await self._database.rows(f"ANALYZE @{table}")

    async def clear(self) -> None:
        async def write(session: Session) -> None:
            await session.run(f"TRUNCATE {', '.join(f'@{table}' for table in _TABLES)}")

        await self._database.transact(write)
        self._store.forget_schemas()

    async def _looked_up(self, sql: str, *values: Any) -> list[Row]:
        return await self._database.transact(lambda session: session.rows(sql, *values))

    async def _jobs(self) -> list[str]:
        """Every job that saw something; found by leaps, not by reading all sightings."""
        found: list[str] = []
        rows = await self._looked_up("SELECT min(job) FROM @sightings")
        while (job := rows[0][0]) is not None:
            found.append(job)
            rows = await self._looked_up("SELECT min(job) FROM @sightings WHERE job > $1", job)
        return found


# -- rows into items ---------------------------------------------------------------------------------------------


def _plain(row: Sequence[Any]) -> list[Any]:
    return [read(value) if type(value) is str else value for value in row]


def _grouped(rows: Sequence[Row]) -> dict[int, tuple[Sequence[Any], ...]]:
    """Rows by their first column, the rest in order."""
    groups: dict[int, list[Sequence[Any]]] = {}
    for number, *rest in rows:
        groups.setdefault(number, []).append(_plain(rest))
    return {number: tuple(group) for number, group in groups.items()}


def _page(row: Row, attempts: Sequence[Sequence[Any]], visits: Sequence[Sequence[Any]]) -> CarriedPage:
    facts = dict(zip(PAGE_FIELDS, _plain(tuple(row)[1:]), strict=True))
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


def _record(row: Row, past: Sequence[Sequence[Any]], seen: Sequence[Sequence[Any]]) -> CarriedRecord:
    values = _plain(tuple(row)[1:])
    return CarriedRecord(
        **dict(zip(_RECORD_FIELDS, values[:-1], strict=True)),
        page=values[-1] or b"",
        past=tuple(
            Version(version=version, at=at, job=job, data=data, gone=gone, schema=schema)
            for version, at, job, data, gone, schema in past
        ),
        seen_by=tuple(sorted((job, version) for job, version in seen)),
    )


# -- items into rows, inside a transaction -----------------------------------------------------------------------


def _storable(values: Sequence[Any]) -> list[Any]:
    return [stored(value) if type(value) is str else value for value in values]


async def _add_pages(session: Session, pages: Sequence[CarriedPage]) -> None:
    if not pages:
        return
    facts = [page.facts or Unfetched(page.fingerprint, page.url, page.job) for page in pages]
    await session.rows(ADD_PAGES, *new_rows(_storable(msgspec.structs.astuple(one)) for one in facts))
    found = await session.rows(_NUMBERS, [page.fingerprint for page in pages])
    number = dict(map(tuple, found))
    tried = [
        (number[page.fingerprint], *_storable([getattr(one, name) for name in ATTEMPT_FIELDS]))
        for page in pages
        for one in page.attempts
    ]
    seen = [
        (number[page.fingerprint], *_storable([getattr(one, name) for name in VISIT_FIELDS]))
        for page in pages
        for one in page.visits
    ]
    if tried:
        await session.run(ADD_ATTEMPTS, *new_rows(tried))
    if seen:
        await session.run(ADD_VISITS, *new_rows(seen))


async def _add_records(session: Session, records: Sequence[CarriedRecord], as_json: Queryable) -> None:
    if not records:
        return
    found = await session.rows(_NUMBERS, [record.page for record in records])
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


async def _add_shapes(session: Session, shapes: Sequence[CarriedSchema]) -> None:
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
