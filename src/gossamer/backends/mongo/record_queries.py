"""Translates record queries, and reads records in the order of their numbers, a few at a time.

Most queries scan all records, or those that a job saw. Queries that match few records, by changes after a cursor, first
find the numbers. No server cursor is held open while the reader works.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ...model.record import StoredRecord
from ...store.contract import RecordQuery
from ...store.record_rules import mend, read_cursor, stored_record
from .connection import Document, MongoDatabase
from .layout import JOB_BYTES, MOST, job_hash, key_hash, number_in, sighting_name
from .record_history import sightings_after
from .record_writes import NAMES_PER_QUERY, portions

KIND = "mongo"  # of cursors
CHUNK = 256  # records in memory while streaming
MOST_FOUND = 100_000  # numbers kept in memory; a query with more matches scans all records

_STORED_FIELDS = tuple(name for name in StoredRecord.__struct_fields__ if name != "data")


def conditions(query: RecordQuery, store: str, newest: int) -> Document:
    """The filter for a record's document, without the job. Raises Misconfigured for a cursor from another store:
    `store` is this one's id, `newest` the current revision."""
    wanted: Document = {}
    if query.spider is not None:
        wanted["$or"] = [{"spider": mend(query.spider)}, {"seen_by": mend(query.spider)}]
    for field in ("type", "site", "key", "url"):
        value = getattr(query, field)
        if value is not None:
            wanted[field] = mend(value)
    if query.key is not None:
        wanted["key_hash"] = key_hash(mend(query.key))
    for field, least, below in (
        ("last_changed", query.since, query.until),
        (
            "revision",
            None if query.after is None else read_cursor(query.after, KIND, store, newest),
            None if query.upto is None else read_cursor(query.upto, KIND, store, newest),
        ),
    ):
        if least is not None or below is not None:
            bounds = {"$gte": least, "$lt": below}
            wanted[field] = {name: bound for name, bound in bounds.items() if bound is not None}
    if query.gone is not None:
        wanted["gone_since"] = {"$ne": None} if query.gone else None
    return wanted


async def count(database: MongoDatabase, query: RecordQuery, wanted: Document) -> int:
    if query.job is None:
        return await database.count("records", wanted)
    job = job_hash(mend(query.job))
    if not wanted:
        every = {"$gt": sighting_name(job, 0), "$lte": sighting_name(job, MOST)}
        return await database.count("sightings", {"_id": every})
    total = 0
    async for numbers in _seen_by(database, job, NAMES_PER_QUERY, RecordQuery()):
        total += await database.count("records", {**wanted, "number": {"$in": numbers}})
    return total


async def read(database: MongoDatabase, query: RecordQuery, wanted: Document) -> AsyncIterator[StoredRecord]:
    """The records, in the order of first storage or its reverse."""
    few = await _few(database, query, wanted)
    if few is not None:
        for part in portions(query.in_order(few), CHUNK):
            for record in await _picked(database, part, wanted, query):
                yield record
    elif query.job is not None:
        async for numbers in _seen_by(database, job_hash(mend(query.job)), CHUNK, query):
            for record in await _picked(database, numbers, wanted, query):
                yield record
    else:
        last = query.first()
        hint = "key" if query.key is not None else "number"
        while found := await database.find(
            "records",
            {**wanted, "number": {"$lt" if query.newest else "$gt": last}},
            ("source", *_STORED_FIELDS),
            order=[("number", _direction(query))],
            limit=CHUNK,
            hint=hint,
        ):
            for one in found:
                yield _stored(one)
            last = found[-1]["number"]


async def _few(database: MongoDatabase, query: RecordQuery, wanted: Document) -> list[int] | None:
    """The numbers of the possible matches, in order; None without an index, or if they are too many."""
    if query.after is None and (query.key is None or query.job is None):
        return None
    by = ("key_hash", "key") if query.key is not None else ("revision",)
    hint = "key" if query.key is not None else "revision"
    found = await database.find(
        "records", {name: wanted[name] for name in by}, ["number"], limit=MOST_FOUND + 1, hint=hint
    )
    if len(found) > MOST_FOUND:
        return None
    numbers = sorted(one["number"] for one in found)
    if query.job is None:
        return numbers
    job = job_hash(mend(query.job))
    seen: list[int] = []
    for part in portions(numbers, NAMES_PER_QUERY):
        names = [sighting_name(job, number) for number in part]
        rows = await database.find("sightings", {"_id": {"$in": names}}, ["_id"])
        seen += sorted(number_in(one["_id"], JOB_BYTES) for one in rows)
    return seen


async def _seen_by(database: MongoDatabase, job: bytes, size: int, query: RecordQuery) -> AsyncIterator[list[int]]:
    """The numbers of the records that a job saw, in the order of the query, in batches."""
    last = min(query.first(), MOST)
    while found := await sightings_after(database, job, last, size, newest=query.newest):
        yield list(found)
        last = min(found) if query.newest else max(found)


async def _picked(
    database: MongoDatabase, numbers: Sequence[int], wanted: Document, query: RecordQuery
) -> list[StoredRecord]:
    """The matches among given numbers."""
    found = await database.find(
        "records",
        {**wanted, "number": {"$in": list(numbers)}},
        ("source", *_STORED_FIELDS),
        order=[("number", _direction(query))],
        hint="number",
    )
    return [_stored(one) for one in found]


def _direction(query: RecordQuery) -> int:
    return -1 if query.newest else 1


def _stored(document: Document) -> StoredRecord:
    return stored_record(document["source"], **{name: document[name] for name in _STORED_FIELDS})
