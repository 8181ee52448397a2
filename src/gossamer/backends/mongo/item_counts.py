"""The account of items: one document for each page and job, replaced when the page is settled again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from pymongo import ReplaceOne

from ...model.item_account import COUNT_FIELDS, ItemCounts
from ...model.record import PageResult
from ...store.record_rows import Values, item_counts
from ...store.record_rules import ItemStates
from .connection import Document, MongoDatabase, Write
from .layout import MOST, job_hash, sighting_name

CHUNK = 1000  # documents in memory
_FIELDS = (*COUNT_FIELDS, "parser", "notes")


async def count_items(
    database: MongoDatabase, results: Sequence[PageResult], number: dict[bytes, int], states: Sequence[ItemStates]
) -> None:
    """Replace the account of each page that was settled."""
    accounts = {
        (result.attempt.job, number[result.attempt.fingerprint]): (
            result.attempt.at,
            None if result.items.says_nothing else account.values(result.items),
        )
        for result, account in zip(results, states, strict=True)
        if result.items is not None
    }
    await write_items(database, [(job, page, *account) for (job, page), account in accounts.items()])


async def write_items(database: MongoDatabase, accounts: Sequence[tuple[str, int, float, Values | None]]) -> None:
    """Write accounts: job, number of the page, time, and what `item_values` makes of the counts; None removes what was
    there."""
    documents = {sighting_name(job_hash(job), page): (job, at, values) for job, page, at, values in accounts}
    if empty := [name for name, (_, _, values) in documents.items() if values is None]:
        await database.delete("item_counts", {"_id": {"$in": empty}})
    writes: list[Write] = [
        ReplaceOne({"_id": name}, _document(name, job, at, values), upsert=True)
        for name, (job, at, values) in documents.items()
        if values is not None
    ]
    while writes:  # two writers may be the first at the same time: the second finds the document
        written = await database.write("item_counts", writes)
        writes = [writes[place] for place in sorted(written.refused)]


def _document(name: bytes, job: str, at: float, values: Values) -> Document:
    return {"_id": name, "job": job, "at": at, **dict(zip(_FIELDS, values, strict=True))}


async def items_of(database: MongoDatabase, job: str) -> AsyncIterator[tuple[float, ItemCounts]]:
    """The accounts of all pages of a job, each with its time."""
    last, end = sighting_name(job_hash(job), 0), sighting_name(job_hash(job), MOST)
    while found := await database.find(
        "item_counts", {"_id": {"$gt": last, "$lte": end}}, order=[("_id", 1)], limit=CHUNK
    ):
        for one in found:
            yield one["at"], counts_of(one)
        last = found[-1]["_id"]


def counts_of(document: Document) -> ItemCounts:
    return item_counts([document[name] for name in _FIELDS])
