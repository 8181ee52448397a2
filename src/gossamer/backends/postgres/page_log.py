"""What a batch of results writes to the log of pages: pages, attempts, archived visits, and the counts of the checks.

Runs inside the transaction of record_writes.py, which defines the order of row locks. The same attempt reported twice
is one attempt, and is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, Tally
from ...store.record_rows import ATTEMPT_FIELDS, PAGE_FIELDS, VISIT_FIELDS, attempt_values, visit_values
from ...store.record_rules import REPARSED, added_up, archived_visits, is_stale, reparsed, reread
from .connection import Collision, Session
from .figures import Count
from .stored_text import identity_of

# FOR NO KEY UPDATE inside LATERAL locks the rows one by one, in the order of the array.
_LOCK_PAGES = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT number, fingerprint, fetched_at, body_hash FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint FOR NO KEY UPDATE
) AS found"""

_PAGE_TYPES = ("bytea", "text", "text", "float8", "int", "text", "text", "text", "bytea", "text", "bytea", "text",
               "text", "bytea", "text")  # fmt: skip
_ATTEMPT_TYPES = ("float8", "text", "text", "text", "text", "int", "text", "text", "text", "int", "bigint", "float8",
                  "float8", "text", "text")  # fmt: skip
_VISIT_TYPES = ("float8", "text", "text", "int", "text", "bytea", "text", "text")


def unnest(types: Iterable[str]) -> str:
    return f"unnest({', '.join(f'${place}::{type}[]' for place, type in enumerate(types, 1))})"


ADD_PAGES = f"""
INSERT INTO @pages ({", ".join(PAGE_FIELDS)}) SELECT * FROM {unnest(_PAGE_TYPES)}
ON CONFLICT (fingerprint) DO NOTHING RETURNING number, fingerprint"""  # noqa: S608 - our own names

_KEEP_FACTS = f"""
UPDATE @pages AS pages SET {", ".join(f"{name} = new.{name}" for name in PAGE_FIELDS[1:])}
FROM {unnest(_PAGE_TYPES)} AS new ({", ".join(PAGE_FIELDS)}) WHERE pages.fingerprint = new.fingerprint"""  # noqa: S608

ADD_ATTEMPTS = f"""
INSERT INTO @attempts (page, {", ".join(ATTEMPT_FIELDS)}) SELECT * FROM {unnest(("bigint", *_ATTEMPT_TYPES))}
ON CONFLICT (page, at, job, worker) DO NOTHING"""  # noqa: S608 - our own names

_ADDED = " RETURNING page, at, job, worker"

# Also adds the figures, if all attempts are new: figures.py.
_LAST = len(_ATTEMPT_TYPES) + 1
_ADD_AND_COUNT = f"""
WITH added AS ({ADD_ATTEMPTS}{_ADDED}), counted AS (
    UPDATE @figure_sheets SET figures = ${_LAST + 4}
    WHERE start = ${_LAST + 2} AND writer = ${_LAST + 3} AND (SELECT count(*) FROM added) = ${_LAST + 1} RETURNING 1
) SELECT added.*, (SELECT count(*) FROM counted) AS counted FROM added"""  # noqa: S608 - our own names

ADD_VISITS = f"""
INSERT INTO @visits (page, {", ".join(VISIT_FIELDS)}) SELECT * FROM {unnest(("bigint", *_VISIT_TYPES))}
ON CONFLICT (page, fetched_at) DO NOTHING"""  # noqa: S608 - our own names

# A visit without a spider may be this spider's own.
_NEWEST_VISITS = """
SELECT wanted.page, wanted.spider, (
    SELECT max(fetched_at) FROM @visits AS visits
    WHERE visits.page = wanted.page AND visits.spider IN (wanted.spider, '') AND failure = ''
)
FROM unnest($1::bigint[], $2::text[]) AS wanted (page, spider)"""

# A visit that was parsed again: its spider and its outcome are now better known.
_REPARSE_VISITS = """
UPDATE @visits AS visits SET spider = new.spider, failure = new.failure
FROM unnest($1::bigint[], $2::float8[], $3::text[], $4::text[]) AS new (page, fetched_at, spider, failure)
WHERE visits.page = new.page AND visits.fetched_at = new.fetched_at"""

# The newest copy may be older than the newest visit, which found it unchanged.
_REPARSE_FACTS = """
UPDATE @pages AS pages SET parser = new.parser, links = new.links, spider = new.spider, failure = new.failure
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[])
    AS new (number, archive_ref, parser, links, spider, failure)
WHERE pages.number = new.number AND pages.archive_ref = new.archive_ref"""

# Visits, or copies of visits that were parsed again, of which not everything is in the records.
_ASK_AGAIN = """
UPDATE @pages AS pages SET parser = '' FROM unnest($1::bigint[], $2::float8[]) AS new (number, fetched_at)
WHERE pages.number = new.number AND pages.fetched_at = new.fetched_at"""
_ASK_AGAIN_FOR_COPIES = """
UPDATE @pages AS pages SET parser = '' FROM unnest($1::bigint[], $2::text[]) AS new (number, archive_ref)
WHERE pages.number = new.number AND pages.archive_ref = new.archive_ref"""

ADD_SCHEMAS = """
INSERT INTO @schemas (identity, type, id, definition, first_stored)
SELECT * FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::float8[])
ON CONFLICT (identity) DO NOTHING"""

_TALLY_TYPES = ("bytea", *["text"] * 5, *["bigint"] * 3)
ADD_TALLIES = f"""
INSERT INTO @quality AS quality (identity, day, spider, type, field, rule, checked, filled, faulty)
SELECT * FROM {unnest(_TALLY_TYPES)} ON CONFLICT (identity)"""  # noqa: S608 - our own names
_COUNT_ON = """ DO UPDATE SET checked = quality.checked + excluded.checked, filled = quality.filled + excluded.filled,
    faulty = quality.faulty + excluded.faulty"""


async def keep_pages(session: Session, results: Sequence[PageResult], now: float) -> dict[bytes, int]:
    """Lock every page of the batch, adding missing ones, and store the newest facts; return their numbers.

    A page has a number from its first attempt on.
    """
    tried: dict[bytes, Attempt] = {}
    newest: dict[bytes, PageFacts] = {}
    for result in results:
        tried.setdefault(result.attempt.fingerprint, result.attempt)
        page = result.page
        if page is not None and (page.fingerprint not in newest or _age(page) > _age(newest[page.fingerprint])):
            newest[page.fingerprint] = page
    wanted = sorted({*tried, *newest})
    known = {row["fingerprint"]: row for row in await session.rows(_LOCK_PAGES, wanted)}
    number = {fingerprint: row["number"] for fingerprint, row in known.items()}
    missing = [fingerprint for fingerprint in wanted if fingerprint not in known]
    if missing:
        new = [newest[one] if one in newest else _unfetched(tried[one]) for one in missing]
        number.update(await added(session, ADD_PAGES, "fingerprint", new_rows(map(msgspec.structs.astuple, new))))
        if len(number) < len(wanted):
            raise Collision
    # The same visit again changes nothing: a newer parser may have parsed it since. A visit from the future, by a
    # worker whose clock was ahead, gives way to any other.
    facts = [
        page
        for fingerprint, page in newest.items()
        if fingerprint in known
        and (known[fingerprint]["fetched_at"] is None
             or known[fingerprint]["fetched_at"] > now
             or _age(page) > (known[fingerprint]["fetched_at"], known[fingerprint]["body_hash"]))
    ]  # fmt: skip
    if facts:
        await session.run(_KEEP_FACTS, *new_rows(map(msgspec.structs.astuple, facts)))
    return number


async def stale_ones(session: Session, results: Sequence[PageResult], number: dict[bytes, int]) -> frozenset[int]:
    """The indexes of results parsed from an old copy: the spider has a newer one of the same page."""
    visitors = reparsed(results, number)
    if not visitors:
        return frozenset()
    rows = map(tuple, await session.rows(_NEWEST_VISITS, *new_rows(sorted(set(visitors.values())))))
    newest = {(page, spider): at for page, spider, at in rows}
    return frozenset(place for place, who in visitors.items() if is_stale(results[place], newest.get(who)))


async def write_visits(
    session: Session, results: Sequence[PageResult], number: dict[bytes, int], count: Count
) -> list[PageResult]:
    """Write attempts and visits, and count; return the results whose attempts were new."""
    attempts = new_rows(
        (number[attempt.fingerprint], *attempt_values(attempt)) for attempt in (result.attempt for result in results)
    )
    if count.text:
        rows = await session.rows(_ADD_AND_COUNT, *attempts, len(results), count.start, count.writer, count.text)
    else:
        rows = await session.rows(ADD_ATTEMPTS + _ADDED, *attempts)
    added = {tuple(row)[:4] for row in rows}
    new = []
    for result, key in zip(results, zip(*attempts[:4], strict=True), strict=True):
        if key in added:
            added.remove(key)
            new.append(result)
    await count.finish(session, new, written=bool(count.text and rows and rows[0]["counted"]))
    visits = [(number[page.fingerprint], *visit_values(page)) for page in archived_visits(results)]
    if visits:
        await session.run(ADD_VISITS, *new_rows(visits))
    again = reread(results)
    if again:
        # One row each: of two for the same place, an UPDATE would pick either.
        places = {(number[p.fingerprint], p.fetched_at): p for p in again}
        copies = {(number[p.fingerprint], p.archive_ref): p for p in again}
        await session.run(_REPARSE_VISITS, *new_rows((*at, p.spider, p.failure) for at, p in places.items()))
        await session.run(
            _REPARSE_FACTS, *new_rows((*at, p.parser, p.links, p.spider, p.failure) for at, p in copies.items())
        )
    return new


async def ask_again(session: Session, results: Sequence[PageResult], number: dict[bytes, int]) -> None:
    """Note that not everything that these pages said is in the records: their next visit requests them in full."""
    pages = [(result.attempt.outcome == REPARSED, result.page) for result in results if result.page is not None]
    if visits := [(number[page.fingerprint], page.fetched_at) for again, page in pages if not again]:
        await session.run(_ASK_AGAIN, *new_rows(visits))
    if copies := [(number[page.fingerprint], page.archive_ref) for again, page in pages if again]:
        await session.run(_ASK_AGAIN_FOR_COPIES, *new_rows(copies))


async def keep_schemas(session: Session, schemas: Sequence[ItemSchema], now: float) -> None:
    if schemas:
        rows = sorted((identity_of(one.type, one.id), one.type, one.id, one.definition, now) for one in schemas)
        await session.run(ADD_SCHEMAS, *new_rows(rows))


async def count_quality(session: Session, tallies: Sequence[Tally]) -> None:
    if tallies:
        await session.run(ADD_TALLIES + _COUNT_ON, *tally_rows(tallies))


def tally_rows(tallies: Sequence[Tally]) -> list[list[Any]]:
    return new_rows((identity_of(*key), *key, *sums) for key, sums in added_up(tallies))


async def added(session: Session, sql: str, key: str, values: Sequence[Any]) -> dict[bytes, int]:
    return {row[key]: row["number"] for row in await session.rows(sql, *values)}


def new_rows(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    """Rows as columns, for unnest."""
    return [list(column) for column in zip(*rows, strict=True)]


def _age(page: PageFacts) -> tuple[float, bytes]:
    """Of two visits at the same instant the greater hash wins, so that the order of arrival does not matter."""
    return page.fetched_at, page.body_hash


def _unfetched(attempt: Attempt) -> Unfetched:
    return Unfetched(attempt.fingerprint, attempt.url, attempt.job)


class Unfetched(msgspec.Struct, frozen=True):
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
    spider: str = ""
    failure: str = ""
    content: bytes = b""
    rhythm: str = ""
