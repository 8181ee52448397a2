"""The writing half of the record store: what a batch of results does to the tables of schema/records-*.sql.

Many processes write at once. Each transaction goes the same way, so that none waits for one that waits for it:

    1. lock the pages of the batch, in the order of their fingerprints; add the missing ones in that order
    2. lock the records of the batch, in the order of their identities; add the missing ones in that order
    3. write the rest: its rows belong to the locked ones, so that nobody else writes them meanwhile

A row that somebody else has added since it was looked for is a `Collision`: everything is undone and done again, and
then it is found. Statements per batch: about ten, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from ...model.record import Attempt, PageFacts, PageResult
from ...store.verdict import UNCHANGED, Held, last_of_each
from .changes import RecordChanges, identity_of
from .connection import Collision, Session

Queryable = Callable[[str], str | None]

ATTEMPT_FIELDS = ("at", "job", "worker", "url", "site", "attempt", "outcome", "route", "proxy", "status", "bytes",
                  "latency", "cost", "reason", "error")  # fmt: skip
VISIT_FIELDS = ("fetched_at", "url", "job", "status", "archive_ref", "body_hash")
PAGE_FIELDS = PageFacts.__struct_fields__

# FOR NO KEY UPDATE inside LATERAL locks the rows one by one, in the order of the array.
_LOCK_PAGES = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT number, fingerprint, fetched_at, body_hash FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint FOR NO KEY UPDATE
) AS found"""

_PAGE_TYPES = ("bytea", "text", "text", "float8", "int", "text", "text", "text", "bytea", "text", "bytea")
_ATTEMPT_TYPES = ("float8", "text", "text", "text", "text", "int", "text", "text", "text", "int", "bigint", "float8",
                  "float8", "text", "text")  # fmt: skip
_VISIT_TYPES = ("float8", "text", "text", "int", "text", "bytea")


def _unnest(types: Iterable[str]) -> str:
    return f"unnest({', '.join(f'${place}::{type}[]' for place, type in enumerate(types, 1))})"


_ADD_PAGES = f"""
INSERT INTO @pages ({", ".join(PAGE_FIELDS)}) SELECT * FROM {_unnest(_PAGE_TYPES)}
ON CONFLICT (fingerprint) DO NOTHING RETURNING number, fingerprint"""  # noqa: S608 - our own names

_KEEP_FACTS = f"""
UPDATE @pages AS pages SET {", ".join(f"{name} = new.{name}" for name in PAGE_FIELDS[1:])}
FROM {_unnest(_PAGE_TYPES)} AS new ({", ".join(PAGE_FIELDS)}) WHERE pages.fingerprint = new.fingerprint"""  # noqa: S608

_GIVEN_BY = "SELECT identity FROM @records WHERE page = ANY ($1::bigint[])"

_LOCK_RECORDS = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT identity, number, content_hash, first_seen, last_changed, last_checked, version, page
    FROM @records AS records WHERE records.identity = wanted.identity FOR NO KEY UPDATE
) AS found"""

# Numbered in the order of the batch, added in the order of identities.
_RECORD_COLUMNS = """identity, type, site, key, url, job, spider, source, data, content_hash, first_seen, last_changed,
    last_checked, version, page"""
_ADD_RECORDS = f"""
WITH numbered AS MATERIALIZED (
    SELECT nextval('@record_numbers') AS number, new.* FROM {_unnest(
        ("bytea", "text", "text", "text", "text", "text", "text", "text", "text", "bytea", "float8", "float8", "float8",
         "int", "bigint")
    )} AS new ({_RECORD_COLUMNS})
)
INSERT INTO @records (number, {_RECORD_COLUMNS})
SELECT number, {_RECORD_COLUMNS.replace("data", "data::jsonb")} FROM numbered ORDER BY identity
ON CONFLICT (identity) DO NOTHING RETURNING number, identity"""  # noqa: S608 - our own names  # fmt: skip

_SUPERSEDE = """
INSERT INTO @superseded (record, version, at, job, source, data)
SELECT number, version, last_changed, job, source, data FROM @records WHERE number = ANY ($1::bigint[])"""

_ADD_PAST = """
INSERT INTO @superseded (record, version, at, job, source, data)
SELECT record, version, at, job, source, data::jsonb
FROM unnest($1::bigint[], $2::int[], $3::float8[], $4::text[], $5::text[], $6::text[])
    AS new (record, version, at, job, source, data)"""

_CHANGE_RECORDS = """
UPDATE @records AS records SET url = new.url, job = new.job, spider = new.spider, source = new.source,
    data = new.data::jsonb, content_hash = new.content_hash, first_seen = new.first_seen,
    last_changed = new.last_changed, last_checked = new.last_checked, version = new.version, page = new.page
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::float8[],
    $9::float8[], $10::float8[], $11::int[], $12::bigint[])
    AS new (number, url, job, spider, source, data, content_hash, first_seen, last_changed, last_checked, version, page)
WHERE records.number = new.number"""

_MOVE_RECORDS = """
UPDATE @records AS records SET first_seen = new.first_seen, last_checked = new.last_checked, page = new.page
FROM unnest($1::bigint[], $2::float8[], $3::float8[], $4::bigint[]) AS new (number, first_seen, last_checked, page)
WHERE records.number = new.number"""

_ADD_SIGHTINGS = """
INSERT INTO @sightings (job, record) SELECT * FROM unnest($1::text[], $2::bigint[])
ON CONFLICT (job, record) DO NOTHING"""

_ADD_ATTEMPTS = f"""
INSERT INTO @attempts (page, {", ".join(ATTEMPT_FIELDS)}) SELECT * FROM {_unnest(("bigint", *_ATTEMPT_TYPES))}
ON CONFLICT (page, at, job, worker) DO NOTHING"""  # noqa: S608 - our own names

_ADD_VISITS = f"""
INSERT INTO @visits (page, {", ".join(VISIT_FIELDS)}) SELECT * FROM {_unnest(("bigint", *_VISIT_TYPES))}
ON CONFLICT (page, fetched_at) DO NOTHING"""  # noqa: S608 - our own names


async def save_results(
    session: Session, results: Sequence[PageResult], now: float, min_age: float, queryable: Queryable
) -> list[int]:
    """Write a batch inside the caller's transaction; return how many records of each result were new or changed.

    Texts must be as texts.py stores them; `queryable` makes the jsonb of a record's source.
    """
    number = await _keep_pages(session, results)
    unchanged = [result.attempt for result in results if result.attempt.outcome == UNCHANGED]
    held = await _lock_records(session, results, [number[attempt.fingerprint] for attempt in unchanged])
    changes = RecordChanges(held, now, min_age)
    counts = [
        sum(changes.take(record, number[result.attempt.fingerprint]) for record in last_of_each(result.records))
        for result in results
    ]
    if unchanged:
        changes.confirm((number[attempt.fingerprint], attempt.job, attempt.at) for attempt in unchanged)
    await _write_records(session, changes, queryable)
    await _write_visits(session, results, number)
    return counts


async def _keep_pages(session: Session, results: Sequence[PageResult]) -> dict[bytes, int]:
    """Lock every page of the batch, the missing ones added, and keep the newest facts; return their numbers.

    A page has a number from its first attempt on.
    """
    tried: dict[bytes, Attempt] = {}
    newest: dict[bytes, PageFacts] = {}
    for result in results:
        tried.setdefault(result.attempt.fingerprint, result.attempt)
        page = result.page
        if page is not None and (page.fingerprint not in newest or _age(page) >= _age(newest[page.fingerprint])):
            newest[page.fingerprint] = page
    wanted = sorted({*tried, *newest})
    known = {row["fingerprint"]: row for row in await session.rows(_LOCK_PAGES, wanted)}
    number = {fingerprint: row["number"] for fingerprint, row in known.items()}
    missing = [fingerprint for fingerprint in wanted if fingerprint not in known]
    if missing:
        new = [newest[one] if one in newest else _unfetched(tried[one]) for one in missing]
        number.update(await _added(session, _ADD_PAGES, "fingerprint", new_rows(map(msgspec.structs.astuple, new))))
        if len(number) < len(wanted):
            raise Collision
    facts = [
        page
        for fingerprint, page in newest.items()
        if fingerprint in known
        and (known[fingerprint]["fetched_at"] is None
             or _age(page) >= (known[fingerprint]["fetched_at"], known[fingerprint]["body_hash"]))
    ]  # fmt: skip
    if facts:
        await session.run(_KEEP_FACTS, *new_rows(map(msgspec.structs.astuple, facts)))
    return number


async def _lock_records(session: Session, results: Sequence[PageResult], unchanged: list[int]) -> dict[bytes, Held]:
    """What the store holds of the batch's records, and of those that its unchanged pages gave."""
    wanted = {identity_of(one.type, one.site, one.key) for result in results for one in result.records}
    if unchanged:
        wanted.update([row["identity"] for row in await session.rows(_GIVEN_BY, unchanged)])
    if not wanted:
        return {}
    rows = await session.rows(_LOCK_RECORDS, sorted(wanted))
    return {row[0]: Held(*row[1:]) for row in map(tuple, rows)}


async def _write_records(session: Session, changes: RecordChanges, queryable: Queryable) -> None:
    rows: list[tuple[Any, ...]]
    if new := changes.new:
        rows = [
            (draft.identity, r.type, r.site, r.key, r.url, r.job, r.spider, r.data, queryable(r.data), r.content_hash,
             held.first_seen, held.last_changed, held.last_checked, held.version, held.page)
            for draft in new if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        numbers = await _added(session, _ADD_RECORDS, "identity", new_rows(rows))
        if len(numbers) < len(new):
            raise Collision
        for draft in new:
            draft.held.number = numbers[draft.identity]
    if changes.superseded:
        await session.run(_SUPERSEDE, changes.superseded)
    if changes.past:
        past = [
            (one.draft.held.number, one.version, one.at, one.record.job, one.record.data, queryable(one.record.data))
            for one in changes.past
        ]
        await session.run(_ADD_PAST, *new_rows(past))
    if changed := changes.changed:
        rows = [
            (held.number, r.url, r.job, r.spider, r.data, queryable(r.data), r.content_hash, held.first_seen,
             held.last_changed, held.last_checked, held.version, held.page)
            for draft in changed if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        await session.run(_CHANGE_RECORDS, *new_rows(rows))
    if moved := [draft.held for draft in changes.moved]:
        await session.run(_MOVE_RECORDS, *new_rows((h.number, h.first_seen, h.last_checked, h.page) for h in moved))
    if sightings := changes.sightings:
        await session.run(_ADD_SIGHTINGS, *new_rows(sightings))


async def _write_visits(session: Session, results: Sequence[PageResult], number: dict[bytes, int]) -> None:
    """Write attempts and visits."""
    attempts = [
        (number[a.fingerprint], a.at, a.job, a.worker, a.url, a.site, a.attempt, a.outcome, a.route, a.proxy, a.status,
         a.bytes, a.latency, a.cost, a.reason, a.error)
        for a in [result.attempt for result in results]
    ]  # fmt: skip
    await session.run(_ADD_ATTEMPTS, *new_rows(attempts))
    # A 304 brought no body: its facts point to the copy of an earlier visit, which is listed already.
    visits = [
        (number[p.fingerprint], p.fetched_at, p.url, p.job, p.status, p.archive_ref, p.body_hash)
        for p in (result.page for result in results)
        if p is not None and p.archive_ref and p.status != 304
    ]
    if visits:
        await session.run(_ADD_VISITS, *new_rows(visits))


async def _added(session: Session, sql: str, key: str, values: Sequence[Any]) -> dict[bytes, int]:
    return {row[key]: row["number"] for row in await session.rows(sql, *values)}


def new_rows(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns, for unnest."""
    return [list(column) for column in zip(*rows, strict=True)]


def _age(page: PageFacts) -> tuple[float, bytes]:
    """Of two visits of the same instant the greater hash stays, so that the order of arrival does not matter."""
    return page.fetched_at, page.body_hash


def _unfetched(attempt: Attempt) -> _Unfetched:
    return _Unfetched(attempt.fingerprint, attempt.url, attempt.job)


class _Unfetched(msgspec.Struct, frozen=True):
    """The row of a page that was tried, but never fetched; the fields are those of PageFacts."""

    fingerprint: bytes
    url: str
    job: str
    fetched_at: None = None
    status: None = None
    etag: str = ""
    last_modified: str = ""
    archive_ref: str = ""
    body_hash: bytes = b""
    parser: str = ""
    links: bytes = b""
