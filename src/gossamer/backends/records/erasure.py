"""Erases records and pages from a record store: mark, look, erase. Every step may be repeated.

The row of an erased page stays, with nothing in it but the hash of its address: other rows may refer to its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ...model.erasure import ErasedVersion, Holdings
from ...model.record import RecordIdentity
from .dialect import Dialect, SqlDatabase, SqlSession, names_of

_MARK = """
INSERT INTO @erased AS kept (mark, until) VALUES ($1, $2)
ON CONFLICT (mark) DO UPDATE SET until = excluded.until WHERE kept.until < excluded.until"""

_RECORD = "SELECT number, url, page, {text} FROM @records AS records WHERE {identified}"
_PAST = "SELECT {text} FROM @superseded WHERE record = $1"
_FIRST_PAGES = """
SELECT DISTINCT seen.page FROM unnest($1::text[]) AS wanted (job) JOIN @sightings AS seen ON seen.job = wanted.job
WHERE seen.record = ANY ($2::bigint[])"""
_JOBS = """
SELECT DISTINCT job FROM @sightings WHERE job = ANY ($1::text[]) AND record = ANY ($2::bigint[])
UNION SELECT job FROM @superseded WHERE record = ANY ($2::bigint[])
UNION SELECT job FROM @records WHERE number = ANY ($2::bigint[])"""
_PAGE = "SELECT number FROM @pages WHERE fingerprint = $1"
_GIVES_OTHERS = """
SELECT DISTINCT page FROM @records WHERE page = ANY ($1::bigint[]) AND NOT number = ANY ($2::bigint[])"""
_PAGES = "SELECT number, fingerprint, url, archive_ref FROM @pages WHERE number = ANY ($1::bigint[])"
_COPIES = "SELECT archive_ref FROM @visits WHERE page = ANY ($1::bigint[])"

_NUMBER = "SELECT number FROM @records AS records WHERE {identified} AND first_seen <= {until}"
_ERASE_PAST = "DELETE FROM @superseded WHERE record = ANY ($1::bigint[])"
_ERASE_SIGHTINGS = "DELETE FROM @sightings WHERE job = ANY ($1::text[]) AND record = ANY ($2::bigint[])"
_ERASE_SEERS = "DELETE FROM @seen_by WHERE spider = ANY ($1::text[]) AND record = ANY ($2::bigint[])"
_ERASE_RECORDS = "DELETE FROM @records WHERE number = ANY ($1::bigint[])"
_FORGET_FACTS = """
UPDATE @pages SET etag = '', last_modified = '', archive_ref = '', body_hash = $3, parser = '', links = $3, content = $3
WHERE number = ANY ($1::bigint[]) AND (fetched_at IS NULL OR fetched_at <= $2::float8)"""
_FORGET_PAGE = """
UPDATE @pages SET url = '', fetched_at = NULL, status = NULL, spider = '', failure = '', rhythm = ''
WHERE number = ANY ($1::bigint[]) AND (fetched_at IS NULL OR fetched_at <= $2::float8)"""
_FORGET_VISITS = "DELETE FROM {visits} WHERE page = ANY ($1::bigint[]) AND fetched_at <= $2::float8"
_FORGET_ATTEMPTS = "DELETE FROM {attempts} WHERE page = ANY ($1::bigint[]) AND at <= $2::float8"
_FORGET_ITEMS = "DELETE FROM @item_counts WHERE job = ANY ($1::text[]) AND page = ANY ($2::bigint[])"
_FORGET_EXAMPLES = """
UPDATE @item_counts SET notes = '' WHERE job = ANY ($1::text[]) AND page = ANY ($2::bigint[]) AND notes <> ''"""
_FORGET_SENT = "DELETE FROM @sent_notes WHERE fingerprint = $1"


async def mark_erased(database: SqlDatabase, marks: Sequence[bytes], until: float) -> None:
    async def write(session: SqlSession) -> None:
        if database.dialect.marking:
            await session.run(database.dialect.marking)
        await session.run_many(_MARK, [(mark, until) for mark in sorted(marks)])

    if marks:
        await database.transact(write)


async def holdings(
    database: SqlDatabase, records: Sequence[RecordIdentity], pages: Sequence[bytes], linking: Sequence[bytes]
) -> Holdings:
    words = database.dialect
    one = _RECORD.format(text=words.text, identified=words.identified(1))
    versions: dict[ErasedVersion, None] = {}
    numbers: list[int] = []
    given: set[int] = set()
    for type, site, key in records:
        for number, url, page, text in await database.look_up(one, *words.identity(type, site, key)):
            numbers.append(number)
            given.add(page)
            past = await database.look_up(_PAST.format(text=words.text), number)
            for (data,) in [(text,), *past]:
                versions[ErasedVersion(type=type, site=site, key=key, url=url, data=data)] = None
    jobs = await names_of(database, "sightings", "job")
    given.update(number for (number,) in await database.look_up(_FIRST_PAGES, jobs, numbers))
    for fingerprint in pages:
        given.update(number for (number,) in await database.look_up(_PAGE, fingerprint))
    linked_from = {
        number for fingerprint in linking for (number,) in await database.look_up(_PAGE, fingerprint)
    } - given
    places = sorted(given | linked_from)
    others = linked_from | {page for (page,) in await database.look_up(_GIVES_OTHERS, places, numbers)}
    found = await database.look_up(_PAGES, places)
    refs = [row[3] for row in found] + [ref for (ref,) in await database.look_up(_COPIES, places)]
    return Holdings(
        versions=tuple(versions),
        own=tuple((row[1], row[2]) for row in found if row[0] not in others),
        shared=tuple((row[1], row[2]) for row in found if row[0] in others),
        refs=tuple(sorted({ref for ref in refs if ref})),
        jobs=tuple(sorted(job for (job,) in await database.look_up(_JOBS, jobs, numbers))),
    )


async def erase(database: SqlDatabase, records: Sequence[RecordIdentity], found: Holdings, until: float) -> int:
    jobs = [await names_of(database, table, "job") for table in ("sightings", "item_counts")]
    spiders = await names_of(database, "seen_by", "spider")
    work = partial(_erase, database.dialect, records, found, until, jobs[0], jobs[1], spiders)
    return await database.transact(work)


async def _erase(
    words: Dialect,
    records: Sequence[RecordIdentity],
    found: Holdings,
    until: float,
    seers: list[str],
    counted: list[str],
    spiders: list[str],
    session: SqlSession,
) -> int:
    async def numbers_of(pages: Sequence[tuple[bytes, str]]) -> list[int]:
        return sorted([row[0] for fingerprint, _ in pages for row in await session.rows(_PAGE, fingerprint)])

    if words.erasing:
        await session.run(words.erasing)
    own, shared = await numbers_of(found.own), await numbers_of(found.shared)
    # Pages first, as all writers do: nobody else can be adding to them now.
    await session.run(_FORGET_FACTS, own + shared, until, b"")
    await session.run(_FORGET_VISITS.format(visits=words.visits), own + shared, until)
    await session.run(_FORGET_ATTEMPTS.format(attempts=words.attempts), own, until)
    await session.run(_FORGET_PAGE, own, until)
    await session.run(_FORGET_ITEMS, counted, own)
    await session.run(_FORGET_EXAMPLES, counted, shared)
    for fingerprint, _ in found.own:
        await session.run(_FORGET_SENT, fingerprint)
    numbers: list[int] = []
    for identity in records:
        values: tuple[Any, ...] = words.identity(*identity)
        sql = _NUMBER.format(identified=words.identified(1), until=f"${len(values) + 1}::float8")
        numbers += [number for (number,) in await session.rows(sql, *values, until)]
    await session.run(_ERASE_PAST, numbers)
    await session.run(_ERASE_SIGHTINGS, seers, numbers)
    await session.run(_ERASE_SEERS, spiders, numbers)
    await session.run(_ERASE_RECORDS, numbers)
    return len(numbers)
