"""Records, attempts and page facts in MongoDB; fulfils `Records`. The documents are described in layout.py.

How it fails: `BackendUnavailable`, and then some of the batch may be stored. How it recovers: the same batch is written
again; what is already there stays as it is. This module has the contract's methods. What a batch does to records:
record_writes.py; to the log of pages: page_log.py. Queries: record_queries.py. History: record_history.py.

Not tested: none of this has been run against a real MongoDB server. The tests run the driver against a stand-in that
speaks its protocol and answers from mongomock (tests/services/mongo.py). Query plans, replication, elections of a new
primary and repeated writes of a real server have not been observed.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from pymongo import InsertOne

from ...clock import Clock
from ...model.figures import Figures
from ...model.item_account import ItemCounts, summed_items
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity, StoredRecord, Tally
from ...store.attempt_pages import page_of, read_mark
from ...store.contract import (
    AttemptPage,
    AttemptQuery,
    Difference,
    FigurePart,
    Measured,
    RecordQuery,
    Retirement,
    SentNote,
    Version,
    VisitQuery,
)
from ...store.figure_rules import DOMAINS
from ...store.record_rows import ATTEMPT_FIELDS, VISIT_FIELDS
from ...store.record_rules import ItemStates, asked_again, mend, write_cursor
from . import record_history as history
from . import record_queries as queries
from .connection import CONNECT_WITHIN, Document, MongoDatabase, open_database
from .figures import FigureLedger
from .item_counts import count_items, items_of
from .layout import attempts_from, identity_of, number_in, sent_name, visits_from
from .page_log import (
    FACT_FIELDS,
    attempt_of,
    confirm,
    facts_of,
    keep_schemas,
    log_visits,
    number_pages,
    see_stale,
    stale_ones,
    visits_of,
)
from .quality import QualityLedger
from .record_stream import MongoRecordStream
from .record_writes import NAMES_PER_QUERY, RecordBatch, portions
from .revisions import Revisions
from .stored_text import stored_results

PREFIX = "gossamer"
CHUNK = 256  # documents in memory while streaming
PRUNED = 5000  # documents deleted at a time: others can write in between


@asynccontextmanager
async def open_mongo_records(
    address: str,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    domains: int = DOMAINS,
    prefix: str = PREFIX,
    connect_within: timedelta = CONNECT_WITHIN,
) -> AsyncIterator[MongoRecords]:
    """Open the record store at `address`; missing collections, whose names start with `prefix`, are created.

    `domains` have separate figures in the total. Raises Misconfigured, BadState, BackendUnavailable.
    """
    async with open_database(address, prefix=prefix, connect_within=connect_within) as database:
        revisions = Revisions(database)
        await revisions.refresh()
        yield MongoRecords(database, revisions, clock, min_rewrite_age=min_rewrite_age, domains=domains)


class MongoRecords:
    """Fulfils `Records`. Many processes may write to the same collections."""

    def __init__(
        self,
        database: MongoDatabase,
        revisions: Revisions,
        clock: Clock,
        *,
        min_rewrite_age: timedelta | None = None,
        domains: int = DOMAINS,
    ) -> None:
        self.database = database
        self.revisions = revisions
        self._ledger = QualityLedger(database)
        self._figures = FigureLedger(database, domains)
        self._clock = clock
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0
        self._known_schemas: set[tuple[str, str]] = set()
        self.stream = MongoRecordStream(database, self)

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        rows, now = stored_results(results), self._clock.now()
        number = await number_pages(self.database, self.revisions, rows)
        await self._save_schemas(rows, now)
        # In this order: layout.py says why.
        stale = await stale_ones(self.database, rows, number)
        batch = RecordBatch(self.database, self.revisions, now=now, min_age=self._min_age)
        states = [ItemStates() for _ in rows]
        counts = await batch.store(rows, number, stale, states)
        await count_items(self.database, rows, number, states)
        rows = [asked_again(row) if place in batch.behind else row for place, row in enumerate(rows)]
        looks = [(number[rows[place].attempt.fingerprint], rows[place].attempt.job) for place in sorted(stale)]
        await see_stale(self.database, looks)
        await confirm(self.database, self.revisions, rows, number, now)
        await self._ledger.note(await log_visits(self.database, rows, number, now))
        await self._figures.note(len(rows), now)
        return counts

    async def _save_schemas(self, results: Sequence[PageResult], now: float) -> None:
        shapes = {(one.type, one.id): one for result in results for one in result.schemas}
        unknown = [one for key, one in shapes.items() if key not in self._known_schemas]
        if unknown:
            await keep_schemas(self.database, unknown, now)
            self._known_schemas.update(shapes)

    def forget_schemas(self) -> None:
        """The store was emptied: known shapes must be stored again."""
        self._known_schemas.clear()

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        wanted = {identity_of(*map(mend, identity)): identity for identity in identities}
        found: dict[RecordIdentity, str] = {}
        for part in portions(list(wanted), NAMES_PER_QUERY):
            for one in await self.database.find("records", {"_id": {"$in": part}}, ["source"]):
                found[wanted[one["_id"]]] = one["source"]
        return found

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        found: dict[bytes, PageFacts] = {}
        for part in portions(list(fingerprints), NAMES_PER_QUERY):
            wanted = {"_id": {"$in": part}, "fetched_at": {"$ne": None}}
            for one in await self.database.find("pages", wanted, FACT_FIELDS):
                found[one["_id"]] = facts_of(one["_id"], one, FACT_FIELDS)
        return found

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        page = await self._number(fingerprint)
        wanted = {"_id": {"$gte": attempts_from(page), "$lt": attempts_from(page + 1)}}
        found = await self.database.find("attempts", wanted, ATTEMPT_FIELDS, order=[("_id", 1)])
        return [attempt_of(fingerprint, one) for one in found]

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        mark = read_mark(before, query)
        wanted: Document = {"at": {"$lte": mark.at, "$gte": query.since if query.since is not None else -1e18}}
        for name in ("job", "site", "route", "outcome", "reason"):
            if (value := getattr(query, name)) is not None:
                wanted[name] = mend(value)
        order, most = [("at", -1), ("_id", -1)], limit + mark.skip + 1
        rows = await self.database.find(
            "attempts", wanted, ATTEMPT_FIELDS, order=order, limit=most, hint="attempt_time"
        )
        numbers = sorted({number_in(row["_id"]) for row in rows})
        pages = await self.database.find("pages", {"number": {"$in": numbers}}, ["number"]) if numbers else []
        fingerprints = {page["number"]: page["_id"] for page in pages}
        found = [attempt_of(fingerprints[number_in(row["_id"])], row) for row in rows]
        return page_of(found, limit, mark, None)

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        page = await self._number(fingerprint)
        found = await self.database.find("visits", visits_of(page), VISIT_FIELDS, order=[("_id", -1)])
        return [facts_of(fingerprint, one, VISIT_FIELDS) for one in found]

    async def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        fits = _fitting(query)
        page, spiders, last = 0, set[str](), b""
        # Of each page the newest visit comes first.
        while found := await self.database.find(
            "visits",
            {**fits, "_id": {"$gt": last or visits_from(0)}},
            ("page", *VISIT_FIELDS),
            order=[("_id", 1)],
            limit=CHUNK,
        ):
            for one in found:
                number = number_in(one["_id"])
                if number != page:
                    page, spiders = number, set()
                if one["spider"] not in spiders:
                    spiders.add(one["spider"])
                    yield facts_of(one["page"], one, VISIT_FIELDS)
            last = found[-1]["_id"]

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        return await history.versions(self.database, type, site, key)

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        return await history.seen_version(self.database, job, type, site, key)

    async def differences(self, before: str, after: str) -> AsyncIterator[Difference]:
        async for one in history.differences(self.database, before, after):
            yield one

    async def retire(self, wanted: Retirement) -> int:
        return await history.RetirementRun(self.database, self.revisions, wanted).run()

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        wanted = {} if type is None else {"type": mend(type)}
        rows = await self.database.find("schemas", wanted, ["id", "type", "definition", "first_stored"])
        rows.sort(key=lambda one: (one["first_stored"], one["type"], one["id"]))
        return [
            (ItemSchema(id=one["id"], type=one["type"], definition=one["definition"]), one["first_stored"])
            for one in rows
        ]

    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        return await self._ledger.scores(mend(spider) if spider is not None else None, since)

    async def items(self, job: str) -> ItemCounts:
        return summed_items([one async for _, one in items_of(self.database, mend(job))])

    async def recent_items(self, job: str, parser: str, limit: int) -> list[tuple[int, int]]:
        pages = items_of(self.database, mend(job))
        found = [(at, one) async for at, one in pages if one.parser == parser and one.fine + one.flawed]
        found.sort(key=lambda one: one[0])
        return [(one.fine, one.flawed) for _, one in found[-limit:]]

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        return await self._figures.between(since, until, part)

    async def total_figures(self) -> Figures:
        return await self._figures.total()

    async def cursor(self) -> str:
        return write_cursor(queries.KIND, self.database.store, await self.revisions.cursor())

    async def count(self, query: RecordQuery) -> int:
        return await queries.count(self.database, query, await self._conditions(query))

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        async for record in queries.read(self.database, query, await self._conditions(query)):
            yield record

    async def note_sent(self, note: SentNote, *, replaces_before: float = -math.inf) -> bool:
        document = {"_id": sent_name(mend(note.job), note.fingerprint), "owner": note.owner, "at": note.at}
        if not (await self.database.write("sent_notes", [InsertOne(document)])).refused:
            return True
        replaceable = {"_id": document["_id"], "$or": [{"owner": note.owner}, {"at": {"$lt": replaces_before}}]}
        changes = {"$set": {"owner": note.owner, "at": note.at}}
        return await self.database.change("sent_notes", replaceable, changes) is not None

    async def forget_sent(self, job: str, fingerprints: Sequence[bytes]) -> None:
        names = [sent_name(mend(job), one) for one in fingerprints]
        await self.database.delete("sent_notes", {"_id": {"$in": names}})

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        await self.database.delete("sent_notes", {"at": {"$lt": cutoff}})
        await self._ledger.fold_all()  # the counts of an attempt are kept
        await self._figures.fold_all()
        return await self._prune_attempts(cutoff) + await self._prune_visits(cutoff)

    async def _prune_attempts(self, cutoff: float) -> int:
        gone, last = 0, bytes(24)
        while found := await self.database.find(
            "attempts",
            {"_id": {"$gt": last}, "at": {"$lt": cutoff}, "sheet": {"$exists": False}, "minute": {"$exists": False}},
            ["_id"],
            order=[("_id", 1)],
            limit=PRUNED,
        ):
            gone += await self.database.delete("attempts", {"_id": {"$in": [one["_id"] for one in found]}})
            last = found[-1]["_id"]
        return gone

    async def _prune_visits(self, cutoff: float) -> int:
        gone, last = 0, bytes(16)
        while found := await self.database.find(
            "visits",
            {"_id": {"$gt": last}, "fetched_at": {"$lt": cutoff}},
            ["page", "archive_ref"],
            order=[("_id", 1)],
            limit=PRUNED,
        ):
            wanted = {"_id": {"$in": list({one["page"] for one in found})}}
            pages = await self.database.find("pages", wanted, ["archive_ref"])
            newest = {one["_id"]: one.get("archive_ref", "") for one in pages}
            replaced = [one["_id"] for one in found if one["archive_ref"] != newest.get(one["page"])]
            if replaced:
                gone += await self.database.delete("visits", {"_id": {"$in": replaced}})
            last = found[-1]["_id"]
        return gone

    async def _number(self, fingerprint: bytes) -> int:
        """The number of a page; 0, which no page has, if it is unknown."""
        page = await self.database.one("pages", {"_id": fingerprint}, ["number"])
        return page["number"] if page is not None else 0

    async def _conditions(self, query: RecordQuery) -> Document:
        has_mark = query.after is not None or query.upto is not None
        return queries.conditions(query, self.database.store, await self.revisions.newest() if has_mark else 0)


def _fitting(query: VisitQuery) -> Document:
    """The filter for a visit's document."""
    wanted: Document = {"archive_ref": {"$ne": ""}}
    if query.failures is not None:
        wanted["failure"] = {"$in": [mend(one) for one in query.failures]}
    if query.spider is not None:
        wanted["spider"] = mend(query.spider)
    if query.job is not None:
        wanted["job"] = mend(query.job)
    if query.since is not None:
        wanted["fetched_at"] = {"$gte": query.since}
    return wanted
