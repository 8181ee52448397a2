"""What a batch of results writes to the log of pages: pages, attempts, archived visits; and pages that were unchanged.

The same attempt reported twice is one attempt, and is counted once: its document has one id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from pymongo import InsertOne, UpdateOne

from ...errors import BackendUnavailable
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult
from ...store.record_rows import ATTEMPT_FIELDS, VISIT_FIELDS
from ...store.record_rules import REPEAT, UNCHANGED, Held, archived_visits, is_stale, reparsed, reread
from . import figures
from .connection import Document, MongoDatabase, Write
from .layout import attempt_name, attempts_from, digest, number_in, visit_name, visits_from
from .quality import uncounted
from .record_writes import (
    HELD_FIELDS,
    MAX_TRIES,
    NAMES_PER_QUERY,
    Sightings,
    held_of,
    keep_versions,
    portions,
    see,
    unchanged,
)
from .revisions import Revisions

FACT_FIELDS = tuple(name for name in PageFacts.__struct_fields__ if name != "fingerprint")


async def number_pages(
    database: MongoDatabase, revisions: Revisions, results: Sequence[PageResult]
) -> dict[bytes, int]:
    """The number of every page of the batch; new ones are added. A page has a number from its first attempt on."""
    seen: dict[bytes, tuple[str, str]] = {}
    for result in results:
        seen.setdefault(result.attempt.fingerprint, (result.attempt.url, result.attempt.job))
        if result.page is not None:
            seen.setdefault(result.page.fingerprint, (result.page.url, result.page.job))
    numbers = await find_numbers(database, list(seen))
    missing = [fingerprint for fingerprint in seen if fingerprint not in numbers]
    if not missing:
        return numbers
    first = await revisions.number_pages(len(missing))
    new: list[Document] = [
        {"_id": fingerprint, "number": number, "url": seen[fingerprint][0], "job": seen[fingerprint][1],
         "fetched_at": None}
        for number, fingerprint in enumerate(missing, first)
    ]  # fmt: skip
    written = await database.write("pages", [InsertOne(one) for one in new])
    numbers.update((one["_id"], one["number"]) for place, one in enumerate(new) if place not in written.refused)
    if written.refused:  # other writers were faster with these
        numbers.update(await find_numbers(database, [missing[place] for place in written.refused]))
    return numbers


async def find_numbers(database: MongoDatabase, fingerprints: Sequence[bytes]) -> dict[bytes, int]:
    """The numbers of the known pages among these."""
    numbers: dict[bytes, int] = {}
    for part in portions(fingerprints, NAMES_PER_QUERY):
        found = await database.find("pages", {"_id": {"$in": part}}, ["number"])
        numbers.update((one["_id"], one["number"]) for one in found)
    return numbers


async def stale_ones(
    database: MongoDatabase, results: Sequence[PageResult], number: dict[bytes, int]
) -> frozenset[int]:
    """The indexes of results parsed from an old copy: the spider has a newer one of the same page."""
    visitors = reparsed(results, number)
    each = list(set(visitors.values()))
    newest = dict(zip(each, await asyncio.gather(*(_newest(database, *who) for who in each)), strict=True))
    return frozenset(place for place, who in visitors.items() if is_stale(results[place], newest[who]))


async def _newest(database: MongoDatabase, page: int, spider: str) -> float | None:
    """When the spider last visited the page successfully; a visit without a spider may be its own."""
    wanted = {**visits_of(page), "failure": "", "spider": {"$in": [spider, ""]}}
    for found in await database.find("visits", wanted, ["fetched_at"], order=[("_id", 1)], limit=1):
        at: float = found["fetched_at"]
        return at
    return None


def visits_of(page: int) -> Document:
    return {"_id": {"$gte": visits_from(page), "$lt": visits_from(page + 1)}}


async def see_stale(database: MongoDatabase, looks: Sequence[tuple[int, str]]) -> None:
    """Note pages of which a job parsed an old copy: such a copy proves nothing missing."""
    for page, job in looks:
        found = await database.find("records", {"page": page}, ["number"], hint="page")
        await see(database, {(job, one["number"]): 0 for one in found})


# -- pages that were unchanged -------------------------------------------------------------------------------------


class _Confirmed(msgspec.Struct):
    """A record of an unchanged page: its stored and its new state."""

    identity: bytes
    before: Held
    held: Held
    job: str
    is_back: bool


async def confirm(
    database: MongoDatabase, revisions: Revisions, results: Sequence[PageResult], number: dict[bytes, int], now: float
) -> None:
    """The records that unchanged pages yielded were checked, are back, and were seen by the job."""
    waiting = [result.attempt for result in results if result.attempt.outcome == UNCHANGED]
    while waiting:
        # One answer per page at a time: a later one builds on the changes of an earlier one.
        turn: dict[int, tuple[str, float]] = {}
        later = []
        for attempt in waiting:
            page = number[attempt.fingerprint]
            if page in turn:
                later.append(attempt)
            else:
                turn[page] = (attempt.job, min(attempt.at, now))
        waiting = later
        for part in portions(list(turn), NAMES_PER_QUERY):
            await _confirm_pages(database, revisions, {page: turn[page] for page in part})


async def _confirm_pages(database: MongoDatabase, revisions: Revisions, pages: dict[int, tuple[str, float]]) -> None:
    for _ in range(MAX_TRIES):
        found = await database.find("records", {"page": {"$in": list(pages)}}, HELD_FIELDS, hint="page")
        given = await _still_given(database, found, pages)
        plans = [_confirmed(one["_id"], held_of(one), *pages[one["page"]]) for one in given]
        back = [plan for plan in plans if plan.is_back]
        moved = [plan for plan in plans if not plan.is_back and plan.held != plan.before]
        if await _bring_back(database, revisions, back) and await _move_on(database, moved):
            break
    else:
        raise BackendUnavailable(
            f"{database.address.place}: {MAX_TRIES} tries collided with other writers. Try again later."
        )
    sightings: Sightings = {}
    for plan in plans:
        job, at = pages[plan.held.page]
        # What a newer check has moved since is not what was seen at that time.
        is_that = plan.held.last_checked == at and not plan.held.gone
        sightings[job, plan.held.number] = plan.held.version if is_that else 0
    await see(database, sightings)


async def _still_given(
    database: MongoDatabase, records: Sequence[Document], pages: dict[int, tuple[str, float]]
) -> list[Document]:
    """Those that their pages gave when they were read last. That a page is unchanged says nothing of the others."""
    read: dict[int, float] = {}
    since: dict[int, float] = {}
    for one in records:
        since[one["page"]] = min(one["last_checked"], since.get(one["page"], one["last_checked"]))
    for part in portions(list(since), NAMES_PER_QUERY):
        ranges = [
            {"_id": {"$gte": attempts_from(page), "$lt": attempts_from(page + 1)},
             "at": {"$gt": since[page], "$lte": pages[page][1]}}
            for page in part
        ]  # fmt: skip
        visits = {"outcome": "done", "reason": {"$in": ["", REPEAT]}, "$or": ranges}
        for visit in await database.find("attempts", visits, ["at"]):
            page = number_in(visit["_id"])
            read[page] = max(visit["at"], read.get(page, visit["at"]))
    return [one for one in records if one["last_checked"] >= read.get(one["page"], one["last_checked"])]


def _confirmed(identity: bytes, before: Held, job: str, at: float) -> _Confirmed:
    held = msgspec.structs.replace(before)
    is_back = held.gone and held.last_checked < at
    if is_back:
        held.gone = False
        held.version += 1
        held.last_changed = max(held.last_changed, at)
    held.last_checked = max(held.last_checked, at)
    return _Confirmed(identity, before, held, job, is_back)


async def _bring_back(database: MongoDatabase, revisions: Revisions, plans: Sequence[_Confirmed]) -> bool:
    """False if another writer was faster with one of them."""
    if not plans:
        return True
    kept = await keep_versions(database, {plan.identity: plan.before.version for plan in plans})
    if len(kept) < len(plans):
        return False
    ticket = await revisions.open(0)
    writes: list[Write] = [
        UpdateOne(
            unchanged(plan.identity, plan.before),
            {
                "$set": {
                    "gone_since": None,
                    "job": plan.job,
                    "last_changed": plan.held.last_changed,
                    "last_checked": plan.held.last_checked,
                    "version": plan.held.version,
                    "revision": ticket.revision,
                    "checked_by": plan.job,
                }
            },
        )
        for plan in plans
    ]
    written = await database.write("records", writes)
    await revisions.close(ticket, [plan.identity for plan in plans])
    return written.matched == len(plans)


async def _move_on(database: MongoDatabase, plans: Sequence[_Confirmed]) -> bool:
    """As above."""
    writes: list[Write] = [
        UpdateOne(
            unchanged(plan.identity, plan.before),
            {"$set": {"last_checked": plan.held.last_checked, "checked_by": plan.job}},
        )
        for plan in plans
    ]
    return (await database.write("records", writes)).matched == len(plans)


# -- visits, attempts, facts ---------------------------------------------------------------------------------------


async def log_visits(
    database: MongoDatabase, results: Sequence[PageResult], number: dict[bytes, int], now: float
) -> int:
    """Write visits, attempts and, last, the facts of pages; return how many attempts have counts for the quality sums.
    All of them are to be counted in the figures."""
    pages = [result.page for result in results if result.page is not None]
    visits = archived_visits(results)
    await database.write("visits", [InsertOne(visit_document(page, number[page.fingerprint])) for page in visits])
    attempts = [attempt_document(result.attempt, number[result.attempt.fingerprint]) for result in results]
    for document, result in zip(attempts, results, strict=True):
        document.update(uncounted(result.quality))
        document.update(figures.uncounted(result, now))
    await database.write("attempts", [InsertOne(one) for one in attempts])
    await _keep_facts(database, pages, now)
    await _keep_reparsed(database, reread(results), number)
    return sum("sheet" in one for one in attempts)


def visit_document(page: PageFacts, number: int) -> Document:
    return {
        "_id": visit_name(number, page.fetched_at),
        "page": page.fingerprint,
        **{name: getattr(page, name) for name in VISIT_FIELDS},
    }


def attempt_document(attempt: Attempt, number: int) -> Document:
    return {
        "_id": attempt_name(number, attempt.at, attempt.job, attempt.worker),
        **{name: getattr(attempt, name) for name in ATTEMPT_FIELDS},
    }


async def _keep_facts(database: MongoDatabase, pages: Sequence[PageFacts], now: float) -> None:
    """Of two visits at the same instant the greater hash wins, so that the order of arrival does not matter. The same
    visit again changes nothing: a newer parser may have parsed it since. A visit from the future gives way to any
    other."""
    newest: dict[bytes, PageFacts] = {}
    for page in pages:
        known = newest.get(page.fingerprint)
        if known is None or _age(page) > _age(known):
            newest[page.fingerprint] = page
    older = {
        page.fingerprint: [
            {"fetched_at": None},
            {"fetched_at": {"$gt": now}},
            {"fetched_at": {"$lt": page.fetched_at}},
            {"fetched_at": page.fetched_at, "body_hash": {"$lt": page.body_hash}},
        ]
        for page in newest.values()
    }
    writes: list[Write] = [
        UpdateOne(
            {"_id": page.fingerprint, "$or": older[page.fingerprint]},
            {"$set": {name: getattr(page, name) for name in FACT_FIELDS}},
        )
        for page in newest.values()
    ]
    await database.write("pages", writes)


def _age(page: PageFacts) -> tuple[float, int, bytes]:
    return page.fetched_at, len(page.body_hash), page.body_hash  # the order in which MongoDB compares bytes


async def _keep_reparsed(database: MongoDatabase, pages: Sequence[PageFacts], number: dict[bytes, int]) -> None:
    """Visits that were parsed again: their spider and their outcome are now better known."""
    visits: list[Write] = [
        UpdateOne(
            {"_id": visit_name(number[page.fingerprint], page.fetched_at)},
            {"$set": {"spider": page.spider, "failure": page.failure}},
        )
        for page in pages
    ]
    # The newest copy may be older than the newest visit, which found it unchanged.
    facts: list[Write] = [
        UpdateOne(
            {"_id": page.fingerprint, "archive_ref": page.archive_ref},
            {"$set": {"parser": page.parser, "links": page.links, "spider": page.spider, "failure": page.failure}},
        )
        for page in pages
    ]
    await database.write("visits", visits)
    await database.write("pages", facts)


async def keep_schemas(database: MongoDatabase, schemas: Sequence[ItemSchema], now: float) -> None:
    writes: list[Write] = [
        InsertOne(
            {
                "_id": digest(one.type, one.id),
                "id": one.id,
                "type": one.type,
                "definition": one.definition,
                "first_stored": now,
            }
        )
        for one in schemas
    ]
    await database.write("schemas", writes)


def facts_of(fingerprint: bytes, document: Document, fields: Sequence[str]) -> PageFacts:
    return PageFacts(fingerprint=fingerprint, **{name: document[name] for name in fields})


def attempt_of(fingerprint: bytes, document: Document) -> Attempt:
    return Attempt(fingerprint=fingerprint, **{name: document[name] for name in ATTEMPT_FIELDS})
