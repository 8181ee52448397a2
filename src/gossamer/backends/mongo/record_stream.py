"""The record store in MongoDB as a stream of rows. Fulfils `RecordStream`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

import msgspec
from pymongo import InsertOne

from ...model.item_account import ItemCounts
from ...model.record import Tally
from ...model.stream import MoveMark
from ...store.contract import Version
from ...store.record_rows import (
    COUNTED,
    RECORD_FIELDS,
    TABLES,
    VISIT_FIELDS,
    DumpedPage,
    DumpedRecord,
    DumpedSchema,
    RecordRow,
    item_values,
)
from ...store.record_rules import NO_PAGE
from .connection import Document, MongoDatabase
from .item_counts import counts_of, write_items
from .layout import (
    JOB_BYTES,
    MOST,
    attempts_from,
    digest,
    identity_of,
    key_hash,
    number_in,
    sighting_name,
    version_name,
    visits_from,
)
from .page_log import FACT_FIELDS, attempt_document, attempt_of, facts_of, find_numbers, visit_document
from .record_history import SIGHTINGS_PER_QUERY, version_of
from .record_writes import portions, see
from .stored_text import queryable

if TYPE_CHECKING:
    from .records import MongoRecords

BATCH = 200  # pages or records in memory, each with everything that belongs to it
CHECKED = 5000  # documents read, or deleted, with one request


class MongoRecordStream:
    def __init__(self, database: MongoDatabase, store: MongoRecords) -> None:
        self._database = database
        self._store = store

    async def mark(self) -> MoveMark | None:
        found = await self._database.one("store", {"_id": "move"})
        return msgspec.json.decode(found["mark"], type=MoveMark) if found is not None else None

    async def set_mark(self, mark: MoveMark | None) -> None:
        if mark is None:
            await self._database.delete("store", {"_id": "move"})
        else:
            await self._database.put("store", {"_id": "move", "mark": msgspec.json.encode(mark).decode()})

    async def counts(self) -> dict[str, int]:
        counts = {name: await self._database.count(collection, {}) for name, collection in COUNTED.items()}
        counts["earlier versions"] -= await self._count_copies()
        counts["quality counts"] = len(await self._store.scores())
        return {name: count for name, count in counts.items() if count}

    async def _count_copies(self) -> int:
        """Copies of present versions that a crash left in the history: they are not earlier versions."""
        copies, last = 0, 0
        while found := await self._records_after(last, ["number", "version"], CHECKED):
            names = [version_name(one["number"], one["version"]) for one in found]
            copies += await self._database.count("superseded", {"_id": {"$in": names}})
            last = found[-1]["number"]
        return copies

    # -- dumping ---------------------------------------------------------------------------------------------------

    async def dump(self) -> AsyncGenerator[Sequence[RecordRow]]:
        last, counted = 0, await self._jobs("item_counts")
        while pages := await self._database.find(
            "pages", {"number": {"$gt": last}}, order=[("number", 1)], limit=BATCH, hint="page_number"
        ):
            yield await self._dumped_pages(pages, counted)
            last = pages[-1]["number"]
        jobs = await self._jobs("sightings")
        last = 0
        while records := await self._records_after(
            last, ["number", "source", "page", "seen_by", *RECORD_FIELDS], BATCH
        ):
            yield await self._dumped_records(records, jobs)
            last = records[-1]["number"]
        yield [DumpedSchema(shape=shape, first_stored=at) for shape, at in await self._store.schemas()]
        yield await self._store.scores()

    async def _dumped_pages(self, pages: Sequence[Document], jobs: Sequence[tuple[bytes, str]]) -> list[DumpedPage]:
        first, last = pages[0]["number"], pages[-1]["number"]
        attempts = await self._between("attempts", attempts_from(first), attempts_from(last + 1))
        visits = await self._between("visits", visits_from(first), visits_from(last + 1))
        items: dict[int, list[tuple[str, float, ItemCounts]]] = {}
        names = [sighting_name(job, page["number"]) for job, _ in jobs for page in pages]
        for part in portions(names, SIGHTINGS_PER_QUERY):
            for one in await self._database.find("item_counts", {"_id": {"$in": part}}):
                account = (one["job"], one["at"], counts_of(one))
                items.setdefault(number_in(one["_id"], JOB_BYTES), []).append(account)
        return [
            DumpedPage(
                fingerprint=page["_id"],
                url=page["url"],
                job=page["job"],
                facts=facts_of(page["_id"], page, FACT_FIELDS) if page["fetched_at"] is not None else None,
                attempts=tuple(attempt_of(page["_id"], one) for one in attempts.get(page["number"], ())),
                visits=tuple(
                    facts_of(page["_id"], one, VISIT_FIELDS) for one in reversed(visits.get(page["number"], ()))
                ),
                items=tuple(sorted(items.get(page["number"], ()))),
            )
            for page in pages
        ]

    async def _dumped_records(
        self, records: Sequence[Document], jobs: Sequence[tuple[bytes, str]]
    ) -> list[DumpedRecord]:
        first, last = records[0]["number"], records[-1]["number"]
        past = await self._between("superseded", version_name(first, 0), version_name(last + 1, 0))
        numbers = [record["number"] for record in records]
        seen: dict[int, list[tuple[str, int]]] = {}
        names = [sighting_name(job, number) for job, _ in jobs for number in numbers]
        called = dict(jobs)
        for part in portions(names, SIGHTINGS_PER_QUERY):
            for one in await self._database.find("sightings", {"_id": {"$in": part}}, ["version"]):
                number = number_in(one["_id"], JOB_BYTES)
                seen.setdefault(number, []).append((called[one["_id"][:JOB_BYTES]], one["version"]))
        wanted = {"number": {"$in": list({record["page"] for record in records})}}
        pages = {one["number"]: one["_id"] for one in await self._database.find("pages", wanted, ["number"])}
        return [
            DumpedRecord(
                **{name: record["source" if name == "data" else name] for name in RECORD_FIELDS},
                page=pages.get(record["page"], b""),
                past=tuple(map(version_of, _before(record, past.get(record["number"], ())))),
                seen_by=tuple(seen.get(record["number"], ())),
                spiders=tuple(sorted(record.get("seen_by", ()))),
            )
            for record in records
        ]

    async def _records_after(self, last: int, fields: Sequence[str], limit: int) -> list[Document]:
        return await self._database.find(
            "records", {"number": {"$gt": last}}, fields, order=[("number", 1)], limit=limit, hint="number"
        )

    async def _between(self, name: str, first: bytes, end: bytes) -> dict[int, list[Document]]:
        """Documents by the number that their ids start with, in order."""
        groups: dict[int, list[Document]] = {}
        for one in await self._database.find(name, {"_id": {"$gte": first, "$lt": end}}, order=[("_id", 1)]):
            groups.setdefault(number_in(one["_id"]), []).append(one)
        return groups

    async def _jobs(self, name: str) -> list[tuple[bytes, str]]:
        """The hash and the name of every job in a collection whose ids start with it: one index step for each."""
        found: list[tuple[bytes, str]] = []
        last = bytes(JOB_BYTES + 8)
        while first := await self._database.find(name, {"_id": {"$gt": last}}, ["job"], order=[("_id", 1)], limit=1):
            job = first[0]["_id"][:JOB_BYTES]
            found.append((job, first[0]["job"]))
            last = sighting_name(job, MOST)
        return found

    # -- loading ---------------------------------------------------------------------------------------------------

    async def load(self, batch: Sequence[RecordRow]) -> None:
        await self._load_pages([item for item in batch if isinstance(item, DumpedPage)])
        await self._load_records([item for item in batch if isinstance(item, DumpedRecord)])
        shapes = [item for item in batch if isinstance(item, DumpedSchema)]
        await self._database.write("schemas", [InsertOne(_schema(one)) for one in shapes])
        await self._load_quality([item for item in batch if isinstance(item, Tally)])

    async def _load_pages(self, pages: Sequence[DumpedPage]) -> None:
        if not pages:
            return
        numbers = await find_numbers(self._database, [page.fingerprint for page in pages])
        missing = [page for page in pages if page.fingerprint not in numbers]
        if missing:
            first = await self._store.revisions.number_pages(len(missing))
            new = {page.fingerprint: number for number, page in enumerate(missing, first)}
            await self._database.write("pages", [InsertOne(_page(page, new[page.fingerprint])) for page in missing])
            numbers.update(new)
        attempts = [attempt_document(one, numbers[page.fingerprint]) for page in pages for one in page.attempts]
        visits = [visit_document(one, numbers[page.fingerprint]) for page in pages for one in page.visits]
        await self._database.write("attempts", [InsertOne(one) for one in attempts])
        await self._database.write("visits", [InsertOne(one) for one in visits])
        await write_items(
            self._database,
            [(job, numbers[page.fingerprint], at, item_values(one)) for page in pages for job, at, one in page.items],
        )

    async def _load_records(self, records: Sequence[DumpedRecord]) -> None:
        if not records:
            return
        pages = await find_numbers(self._database, list({record.page for record in records if record.page}))
        names = [identity_of(record.type, record.site, record.key) for record in records]
        found = await self._database.find("records", {"_id": {"$in": names}}, ["number"])
        numbers = {one["_id"]: one["number"] for one in found}
        missing = [name for name in names if name not in numbers]
        ticket = await self._store.revisions.open(len(missing))
        numbers.update((name, number) for number, name in enumerate(missing, ticket.first))
        documents = {
            name: {
                **{field: getattr(record, field) for field in RECORD_FIELDS if field != "data"},
                "_id": name, "number": numbers[name], "key_hash": key_hash(record.key), "source": record.data,
                "data": queryable(record.data), "page": pages.get(record.page, NO_PAGE), "revision": ticket.revision,
                "checked_by": None, "seen_by": list(record.spiders),
            }
            for name, record in zip(names, records, strict=True)
        }  # fmt: skip
        past = [
            InsertOne({"_id": version_name(numbers[name], one.version), **_past(one)})
            for name, record in zip(names, records, strict=True)
            for one in record.past
        ]
        # The history first, as always: no record exists before its history.
        await self._database.write("superseded", past)
        await self._database.write("records", [InsertOne(documents[name]) for name in missing])
        await self._store.revisions.close(ticket, missing)
        seen = {
            (job, numbers[name]): version
            for name, record in zip(names, records, strict=True)
            for job, version in record.seen_by
        }
        await see(self._database, seen)

    async def _load_quality(self, tallies: Sequence[Tally]) -> None:
        """As separate documents, named after their first row: writing the same batch again finds them."""
        sheets: dict[tuple[str, str], list[Tally]] = {}
        for one in tallies:
            sheets.setdefault((one.day, one.spider), []).append(one)
        documents = [
            {
                "_id": digest("carried", day, spider, rows[0].type, rows[0].field, rows[0].rule),
                "fold": 1,
                "last": [],
                "newest": day,
                "rows": [msgspec.structs.asdict(row) for row in rows],
            }
            for (day, spider), rows in sheets.items()
        ]
        await self._database.write("quality", [InsertOne(one) for one in documents])

    async def finish(self) -> None:
        """Nothing to do: pages come before the records they yielded."""

    async def clear(self) -> None:
        for name in TABLES:  # those that are no collection here are empty
            while found := await self._database.find(name, {}, ["_id"], limit=CHECKED):
                await self._database.delete(name, {"_id": {"$in": [one["_id"] for one in found]}})
        self._store.forget_schemas()


def _page(page: DumpedPage, number: int) -> Document:
    document = {"_id": page.fingerprint, "number": number, "url": page.url, "job": page.job, "fetched_at": None}
    if page.facts is not None:
        document.update({name: getattr(page.facts, name) for name in FACT_FIELDS})
    return document


def _before(record: Document, past: Sequence[Document]) -> list[Document]:
    """The replaced versions, without a copy of the present one."""
    present = version_name(record["number"], record["version"])
    return [one for one in past if one["_id"] < present]


def _past(version: Version) -> Document:
    return {
        "at": version.at,
        "job": version.job,
        "source": version.data,
        "gone": version.gone,
        "schema": version.schema,
    }


def _schema(one: DumpedSchema) -> Document:
    shape = one.shape
    return {"_id": digest(shape.type, shape.id), **msgspec.structs.asdict(shape), "first_stored": one.first_stored}
