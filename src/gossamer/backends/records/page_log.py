"""What a batch of results writes to the log of pages: pages, attempts, archived visits, and the counts of the checks.

Runs inside the transaction of writes.py, which defines the order of row locks. The same attempt reported twice is one
attempt, and is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, Tally
from ...store.record_rows import PAGE_FIELDS, TALLY_FIELDS, attempt_values, visit_values
from ...store.record_rules import REPARSED, archived_visits, is_stale, reparse_visitors, reparsed_pages, sum_tallies
from .dialect import BatchWriter, Dialect, Row
from .statements import add, change, new_rows

_KEEP_FACTS = change("pages", ("number",), PAGE_FIELDS[1:])

# A visit without a spider may be this spider's own.
_NEWEST_VISITS = f"""
SELECT new.page, new.spider, (
    SELECT max(fetched_at) FROM @visits AS visits
    WHERE visits.page = new.page AND visits.spider IN (new.spider, '') AND failure = ''
) FROM {new_rows(("page", "spider"))}"""  # noqa: S608 - our own names

# A copy that was parsed again: its spider and its outcome are now better known. It may be older than the newest visit,
# which found it unchanged.
_REPARSE_FACTS = change("pages", ("number", "archive_ref"), ("parser", "links", "spider", "failure"))

# Visits, or copies of visits that were parsed again, of which not everything is in the records.
_ASK_AGAIN = change("pages", ("number", "fetched_at"), (), "parser = ''")
_ASK_AGAIN_FOR_COPIES = change("pages", ("number", "archive_ref"), (), "parser = ''")


def unfetched(fingerprint: bytes, url: str, job: str) -> Row:
    """The values of PAGE_FIELDS for a page that was tried, but never fetched."""
    return (fingerprint, url, job, None, None, *PageFacts.__struct_defaults__)


async def keep_pages(batch: BatchWriter, results: Sequence[PageResult], now: float) -> dict[bytes, int]:
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
    wanted = list(dict.fromkeys((*tried, *newest)))
    known = {row[0]: row for row in await batch.lock_pages(wanted)}
    number = {fingerprint: row[1] for fingerprint, row in known.items()}
    if len(known) < len(wanted):
        missing = [
            msgspec.structs.astuple(newest[one]) if one in newest else unfetched(one, tried[one].url, tried[one].job)
            for one in wanted
            if one not in known
        ]
        number.update(await batch.add_pages(missing))
    # The same visit again changes nothing: a newer parser may have parsed it since. A visit from the future, by a
    # worker whose clock was ahead, gives way to any other: it must not answer for a page that has changed since.
    facts = [
        (row[1], page)
        for fingerprint, page in newest.items()
        if (row := known.get(fingerprint)) and (row[2] is None or row[2] > now or _age(page) > (row[2], row[3]))
    ]
    if facts:
        await batch.set_apart(facts)
        await batch.write(_KEEP_FACTS, [(number, *msgspec.structs.astuple(page)[1:]) for number, page in facts])
    return number


def _age(page: PageFacts) -> tuple[float, bytes]:
    """Of two visits at the same instant the greater hash wins, so that the order of arrival does not matter."""
    return page.fetched_at, page.body_hash


async def stale_ones(batch: BatchWriter, results: Sequence[PageResult], number: dict[bytes, int]) -> frozenset[int]:
    """The indexes of results parsed from an old copy: the spider has a newer one of the same page."""
    visitors = reparse_visitors(results, number)
    if not visitors:
        return frozenset()
    newest = {
        (page, spider): at for page, spider, at in await batch.find(_NEWEST_VISITS, sorted(set(visitors.values())))
    }
    return frozenset(place for place, who in visitors.items() if is_stale(results[place], newest.get(who)))


async def write_visits(
    batch: BatchWriter, results: Sequence[PageResult], number: dict[bytes, int]
) -> Sequence[PageResult]:
    """Write attempts and visits, and count; return the results whose attempts were new."""
    attempts = [(number[one.attempt.fingerprint], *attempt_values(one.attempt)) for one in results]
    new = await batch.count_attempts(results, attempts)
    if visits := archived_visits(results):
        await batch.add_visits([(number[page.fingerprint], *visit_values(page)) for page in visits])
    if again := reparsed_pages(results):
        # One row each: of two for the same place, an UPDATE of PostgreSQL would pick either.
        places = {(number[p.fingerprint], p.fetched_at): (p.spider, p.failure) for p in again}
        copies = {(number[p.fingerprint], p.archive_ref): (p.parser, p.links, p.spider, p.failure) for p in again}
        reparse = change(batch.words.visits.removeprefix("@"), ("page", "fetched_at"), ("spider", "failure"))
        await batch.write(reparse, [(*key, *values) for key, values in places.items()])
        await batch.write(_REPARSE_FACTS, [(*key, *values) for key, values in copies.items()])
    return new


async def ask_again(batch: BatchWriter, results: Sequence[PageResult], number: dict[bytes, int]) -> None:
    """Note that not everything that these pages said is in the records: their next visit requests them in full."""
    pages = [(result.attempt.outcome == REPARSED, result.page) for result in results if result.page is not None]
    if visits := [(number[page.fingerprint], page.fetched_at) for again, page in pages if not again]:
        await batch.write(_ASK_AGAIN, visits)
    if copies := [(number[page.fingerprint], page.archive_ref) for again, page in pages if again]:
        await batch.write(_ASK_AGAIN_FOR_COPIES, copies)


def add_schemas(words: Dialect) -> str:
    return add("schemas", (*words.hashes, "type", "id", "definition", "first_stored"))


async def keep_schemas(batch: BatchWriter, schemas: Sequence[tuple[ItemSchema, float]]) -> None:
    """Add schemas, each with the time at which it was first stored."""
    rows = sorted((*batch.hashed(one.type, one.id), one.type, one.id, one.definition, at) for one, at in schemas)
    if rows:
        await batch.write(add_schemas(batch.words), rows)


async def count_quality(batch: BatchWriter, tallies: Sequence[Tally], *, adds: bool = True) -> None:
    """Add to the counts of the checks; without `adds`, keep those that are there."""
    if not tallies:
        return
    conflict = "DO NOTHING"
    if adds:
        sums = ", ".join(f"{name} = kept.{name} + excluded.{name}" for name in TALLY_FIELDS[5:])
        conflict = f"({', '.join(batch.words.hashes or TALLY_FIELDS[:5])}) DO UPDATE SET {sums}"
    sql = add("quality", (*batch.words.hashes, *TALLY_FIELDS), conflict)
    await batch.write(sql, [(*batch.hashed(*key), *key, *counts) for key, counts in sum_tallies(tallies)])
