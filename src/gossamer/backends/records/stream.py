"""The content of a record store, row by row: what a move copies and a backup holds (model/stream.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import msgspec

from ...model.item_account import COUNT_FIELDS
from ...model.record import Tally
from ...store.contract import SentNote
from ...store.record_rows import (
    ATTEMPT_FIELDS,
    COUNTED,
    MARK_FIELDS,
    PAGE_FIELDS,
    PAST_FIELDS,
    RECORD_FIELDS,
    SENT_FIELDS,
    VISIT_FIELDS,
    DumpedPage,
    DumpedRecord,
    DumpedSchema,
    ErasedMark,
    RecordRow,
    attempt_values,
    dumped_page,
    dumped_record,
    group_rows,
    item_values,
    visit_values,
)
from .dialect import BatchWriter, SqlDatabase, names_of
from .page_log import count_quality, keep_schemas, unfetched
from .records import SqlRecords, struct_of
from .statements import add
from .writes import ADD_SEERS, ADD_SIGHTINGS, COUNT_ITEMS, add_past

BATCH = 200  # pages or records in memory, each with everything that belongs to it

_PAGES = f"SELECT number, {', '.join(PAGE_FIELDS)} FROM @pages WHERE number > $1 ORDER BY number LIMIT $2"  # noqa: S608
_RECORDS = """
SELECT records.number, pages.fingerprint, {columns}
FROM {records} LEFT JOIN @pages AS pages ON pages.number = records.page
WHERE records.number > $1 ORDER BY records.number LIMIT $2"""

_ATTEMPTS = f"""
SELECT page, {", ".join(ATTEMPT_FIELDS)} FROM @attempts WHERE page = ANY ($1::bigint[]) ORDER BY page, at"""  # noqa: S608
_VISITS = f"""
SELECT page, {", ".join(VISIT_FIELDS)} FROM @visits WHERE page = ANY ($1::bigint[]) ORDER BY page, fetched_at"""  # noqa: S608
_PAST = "SELECT record, {columns} FROM @superseded WHERE record = ANY ($1::bigint[]) ORDER BY record, version"

# These tables are filed by job or spider: one look-up for each of them and each page or record.
_ITEMS = f"""
SELECT counts.page, counts.job, counts.at, {", ".join(f"counts.{name}" for name in COUNT_FIELDS)}, parser, notes
FROM unnest($1::text[]) AS wanted (job) JOIN @item_counts AS counts ON counts.job = wanted.job
WHERE counts.page = ANY ($2::bigint[])"""  # noqa: S608 - our own names
_SEERS = """
SELECT seers.record, seers.spider
FROM unnest($1::text[]) AS wanted (spider) JOIN @seen_by AS seers ON seers.spider = wanted.spider
WHERE seers.record = ANY ($2::bigint[])"""
_SEEN = """
SELECT seen.record, seen.job, seen.version, pages.fingerprint, seen.state, seen.content
FROM unnest($1::text[]) AS wanted (job) JOIN @sightings AS seen ON seen.job = wanted.job
LEFT JOIN @pages AS pages ON pages.number = seen.page
WHERE seen.record = ANY ($2::bigint[])"""

_SENT = f"""
SELECT {", ".join(SENT_FIELDS)} FROM @sent_notes WHERE (job, fingerprint) > ($1, $2) ORDER BY job, fingerprint
LIMIT $3"""  # noqa: S608 - our own names
_MARKS = "SELECT mark, until FROM @erased WHERE mark > $1 ORDER BY mark LIMIT $2"


async def count_rows(database: SqlDatabase) -> dict[str, int]:
    counts = {
        name: (await database.rows(f"SELECT count(*) FROM @{table}"))[0][0]  # noqa: S608 - our own names
        for name, table in COUNTED.items()
    }
    return {name: count for name, count in counts.items() if count}


async def dump_rows(store: SqlRecords) -> AsyncIterator[Sequence[RecordRow]]:
    """Everything in `store`, which is read as of one moment."""
    look_up, last = store.sql.look_up, -1
    jobs = await names_of(store.sql, "item_counts", "job")
    while rows := await look_up(_PAGES, last, BATCH):
        numbers = [row[0] for row in rows]
        attempts = group_rows(await look_up(_ATTEMPTS, numbers))
        visits = group_rows(await look_up(_VISITS, numbers))
        items = group_rows(await look_up(_ITEMS, jobs, numbers))
        yield [
            dumped_page(row[1:], attempts.get(row[0], ()), visits.get(row[0], ()), items.get(row[0], ()))
            for row in rows
        ]
        last = numbers[-1]
    jobs, last = await names_of(store.sql, "sightings", "job"), -1
    spiders = await names_of(store.sql, "seen_by", "spider")
    words = store.sql.dialect
    records = _RECORDS.format(columns=_columns(RECORD_FIELDS, words.text, "records."), records=words.scanned)
    while rows := await look_up(records, last, BATCH):
        numbers = [row[0] for row in rows]
        past = group_rows(await look_up(_PAST.format(columns=_columns(PAST_FIELDS, words.text)), numbers))
        seen = group_rows(await look_up(_SEEN, jobs, numbers))
        seers = group_rows(await look_up(_SEERS, spiders, numbers))
        yield [
            dumped_record(row[2:], row[1], past.get(row[0], ()), seen.get(row[0], ()), seers.get(row[0], ()))
            for row in rows
        ]
        last = numbers[-1]
    yield [DumpedSchema(shape=shape, first_stored=at) for shape, at in await store.schemas()]
    yield await store.scores()
    job, fingerprint = "", b""
    while rows := await look_up(_SENT, job, fingerprint, BATCH):
        yield [struct_of(SentNote, SENT_FIELDS, row) for row in rows]
        job, fingerprint, *_ = rows[-1]
    mark = b""
    while rows := await look_up(_MARKS, mark, BATCH):
        yield [struct_of(ErasedMark, MARK_FIELDS, row) for row in rows]
        mark = rows[-1][0]


def _columns(fields: Sequence[str], text: str, table: str = "") -> str:
    """The columns of these fields; `text` is the one with the text of `data`."""
    return ", ".join(f"{table}{text if name == 'data' else name}" for name in fields)


# -- loading, inside a transaction -------------------------------------------------------------------------------

_ADD_SENT = add("sent_notes", SENT_FIELDS)
_ADD_MARK = add("erased", MARK_FIELDS)


async def load_rows(batch: BatchWriter, rows: Sequence[RecordRow]) -> None:
    """Add what is not there yet."""
    await _load_pages(batch, [row for row in rows if isinstance(row, DumpedPage)])
    await _load_records(batch, [row for row in rows if isinstance(row, DumpedRecord)])
    await keep_schemas(batch, [(row.shape, row.first_stored) for row in rows if isinstance(row, DumpedSchema)])
    await count_quality(batch, [row for row in rows if isinstance(row, Tally)], adds=False)
    if sent := [msgspec.structs.astuple(row) for row in rows if isinstance(row, SentNote)]:
        await batch.write(_ADD_SENT, sent)
    if marks := [msgspec.structs.astuple(row) for row in rows if isinstance(row, ErasedMark)]:
        await batch.write(_ADD_MARK, marks)


async def _load_pages(batch: BatchWriter, pages: Sequence[DumpedPage]) -> None:
    number = {row[0]: row[1] for row in await batch.lock_pages([page.fingerprint for page in pages])}
    if new := [page for page in pages if page.fingerprint not in number]:
        rows = [
            msgspec.structs.astuple(page.facts) if page.facts else unfetched(page.fingerprint, page.url, page.job)
            for page in new
        ]
        number.update(await batch.add_pages(rows))
    numbered = [(number[page.fingerprint], page) for page in pages]
    if attempts := [(number, *attempt_values(one)) for number, page in numbered for one in page.attempts]:
        await batch.add_attempts(attempts)
    if visits := [(number, *visit_values(one)) for number, page in numbered for one in page.visits]:
        await batch.add_visits(visits)
    if items := [(job, number, at, *item_values(one)) for number, page in numbered for job, at, one in page.items]:
        await batch.write(COUNT_ITEMS, items)


async def _load_records(batch: BatchWriter, records: Sequence[DumpedRecord]) -> None:
    if not records:
        return
    firsts = (first for record in records for _, first, _, _ in record.first_seen_on)
    given_by = dict.fromkeys((*(record.page for record in records), *firsts))
    page = {row[0]: row[1] for row in await batch.lock_pages(list(given_by))}
    identified = {batch.hashed(one.type, one.site, one.key) or (one.type, one.site, one.key): one for one in records}
    number = {row[0]: row[1] for row in await batch.lock_records(identified, ())}
    new = [
        (identity,
         (r.type, r.site, r.key, r.url, r.job, r.spider, *batch.content(r.data), r.content_hash, r.first_seen,
          r.last_changed, r.last_checked, r.version, page.get(r.page, 0), r.schema, r.gone_since))
        for identity, r in identified.items() if identity not in number
    ]  # fmt: skip
    if new:
        number.update(await batch.add_records(new))
    numbered = [(number[identity], record) for identity, record in identified.items()]
    past = [
        (number, one.version, one.at, one.job, *batch.content(one.data), one.gone, one.schema)
        for number, record in numbered
        for one in record.past
    ]
    if past:
        await batch.write(add_past(batch.words), past)
    sightings = []
    for number_, record in numbered:
        first = {job: (page[first], *rest) for job, first, *rest in record.first_seen_on if first in page}
        sightings += [(job, number_, version, *first.get(job, (0, 0, b""))) for job, version in record.seen_by]
    if sightings:
        await batch.write(ADD_SIGHTINGS, sightings)
    if seers := [(spider, number) for number, record in numbered for spider in record.spiders]:
        await batch.write(ADD_SEERS, seers)
