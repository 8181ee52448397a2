"""The history of records: their versions, the differences between two jobs, and which are gone.

Records are marked as gone in portions: an interrupted call has marked some of them, and the next call marks the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from pymongo import UpdateOne

from ...errors import BackendUnavailable
from ...store.contract import Difference, Retirement, Version
from ...store.record_rules import NO_PAGE, Seen, difference, mend
from .connection import Document, MongoDatabase
from .layout import JOB_BYTES, MOST, attempts_from, identity_of, job_hash, number_in, sighting_name, version_name
from .record_writes import HELD_FIELDS, MAX_TRIES, held_of, keep_versions, portions, unchanged
from .revisions import Revisions

COMPARED = 1000  # records whose versions are compared at a time
COMPARED_DATA = 100  # possibly different records whose texts are read at a time
RETIRED = 1000  # records examined at a time
SIGHTINGS_PER_QUERY = 10_000  # of sightings per look-up
PAGES_PER_QUERY = 100  # whose attempts are looked up

_CURRENT = ("number", "version", "last_changed", "job", "source", "gone_since", "schema")
_LOOKED = ("done", "unchanged", "reparsed")
_NOT_THERE = (404, 410)
_TOLD_ELSEWHERE = ("redirected", "retry")  # by the page that it leads to, by the next try


async def versions(database: MongoDatabase, type: str, site: str, key: str) -> list[Version]:
    record = await database.one("records", {"_id": identity_of(mend(type), mend(site), mend(key))}, _CURRENT)
    if record is None:
        return []
    number, version = record["number"], record["version"]
    # A writer that was about to replace the present version may have copied it already.
    past = await database.find(
        "superseded",
        {"_id": {"$gte": version_name(number, 0), "$lt": version_name(number, version)}},
        order=[("_id", 1)],
    )
    return [
        *map(version_of, past),
        Version(
            version=version, at=record["last_changed"], job=record["job"], data=record["source"],
            gone=record["gone_since"] is not None, schema=record["schema"],
        ),
    ]  # fmt: skip


async def seen_version(database: MongoDatabase, job: str, type: str, site: str, key: str) -> int:
    record = await database.one("records", {"_id": identity_of(mend(type), mend(site), mend(key))}, ["number"])
    if record is None:
        return 0
    seen = await database.one("sightings", {"_id": sighting_name(job_hash(mend(job)), record["number"])}, ["version"])
    return int(seen["version"]) if seen is not None else 0


def version_of(past: Document) -> Version:
    return Version(
        version=int.from_bytes(past["_id"][-4:], "big"), at=past["at"], job=past["job"], data=past["source"],
        gone=past["gone"], schema=past["schema"],
    )  # fmt: skip


# -- differences ---------------------------------------------------------------------------------------------------


async def differences(database: MongoDatabase, before: str, after: str) -> AsyncIterator[Difference]:
    jobs = (job_hash(mend(before)), job_hash(mend(after)))
    last = 0
    while seen := await _seen_by_either(database, jobs, last):
        for part in portions([one for one in seen if one.may_differ], COMPARED_DATA):
            for one in await _compared(database, part):
                yield one
        last = seen[-1].record


async def _seen_by_either(database: MongoDatabase, jobs: tuple[bytes, bytes], last: int) -> list[Seen]:
    """The first records after a number that either of two jobs saw. Both sides get the same limit, so that for the
    remaining records both sides are known."""
    first, second = await asyncio.gather(*(sightings_after(database, job, last, COMPARED) for job in jobs))
    numbers = sorted({*first, *second})[:COMPARED]
    return [Seen(number, first.get(number), second.get(number)) for number in numbers]


async def sightings_after(
    database: MongoDatabase, job: bytes, last: int, limit: int, *, newest: bool = False
) -> dict[int, int]:
    """The next records after the number `last` that a job saw, in order, and in which versions."""
    after = {"$gt": sighting_name(job, last), "$lte": sighting_name(job, MOST)}
    before = {"$gte": sighting_name(job, 0), "$lt": sighting_name(job, last)}
    found = await database.find(
        "sightings",
        {"_id": before if newest else after},
        ["version"],
        order=[("_id", -1 if newest else 1)],
        limit=limit,
    )
    return {number_in(one["_id"], JOB_BYTES): one["version"] for one in found}


async def _compared(database: MongoDatabase, seen: Sequence[Seen]) -> list[Difference]:
    """The differences among these, which should be few: the texts of all of them are read."""
    numbers = [one.record for one in seen]
    fields = ("number", "type", "site", "key", "url", "version", "source")
    records = {one["number"]: one for one in await database.find("records", {"number": {"$in": numbers}}, fields)}
    names = [version_name(one.record, version) for one in seen for version in (one.before, one.after) if version]
    past = {one["_id"]: one["source"] for one in await database.find("superseded", {"_id": {"$in": names}}, ["source"])}

    def text(record: Document, version: int | None) -> str | None:
        if version == record["version"]:
            found: str = record["source"]
            return found
        return past.get(version_name(record["number"], version)) if version else None

    found = []
    for one in seen:
        record = records.get(one.record)
        if record is not None:
            identity = (record["type"], record["site"], record["key"])
            found.append(difference(identity, record["url"], one, text(record, one.before), text(record, one.after)))
    return [one for one in found if one is not None]


# -- what is gone --------------------------------------------------------------------------------------------------


class RetirementRun:
    """Marks the records that a `Retirement` covers, part by part."""

    def __init__(self, database: MongoDatabase, revisions: Revisions, wanted: Retirement) -> None:
        self._database = database
        self._revisions = revisions
        self._job = mend(wanted.job)
        self._spider = mend(wanted.spider)
        self._at = wanted.at
        self._checked_by = wanted.checked_by
        self._of = None if wanted.of is None else [job_hash(mend(one)) for one in wanted.of]
        self._earlier = [job_hash(mend(one)) for one in wanted.earlier]

    async def run(self) -> int:
        gone, last = 0, 0
        while found := await self._candidates({"$gt": last}):
            part, last = await self._retire({one["number"] for one in found}, found), found[-1]["number"]
            gone += part
        return gone

    async def _candidates(self, numbers: Document) -> list[Document]:
        return await self._database.find(
            "records",
            {"number": numbers, "spider": self._spider, "gone_since": None},
            (*HELD_FIELDS, "checked_by"),
            order=[("number", 1)],
            limit=RETIRED,
            hint="number",
        )

    async def _retire(self, numbers: set[int], found: list[Document]) -> int:
        """Mark the gone ones among the records found; look again at those that other writers change meanwhile."""
        gone = 0
        for _ in range(MAX_TRIES):
            unseen = await self._unseen(found)
            if not unseen:
                return gone
            marked = await self._mark(unseen)
            gone += marked
            if marked == len(unseen):
                return gone
            found = await self._candidates({"$in": sorted(numbers)})
        raise BackendUnavailable(
            f"{self._database.address.place}: {MAX_TRIES} tries collided with other writers. Try again later."
        )

    async def _unseen(self, found: Sequence[Document]) -> list[tuple[Document, int]]:
        """Those that the job would have seen, and what it found for the page that yielded each: 2 its content, 1 that
        it does not exist, 0 nothing (but it looked everywhere)."""
        # The writer that last checked it may have been interrupted before it could write the sighting.
        unchecked = [one for one in found if one["checked_by"] != self._job]
        seen = await self._seen([job_hash(self._job)], [one["number"] for one in unchecked])
        unseen = [one for one in unchecked if one["number"] not in seen]
        looks = await self._looks(unseen)
        left = [one for one in unseen if looks[one["number"]] is None and one["last_checked"] <= self._checked_by]
        known = await self._seen(self._earlier, [one["number"] for one in left])
        visited = [one["number"] for one in unseen if looks[one["number"]]]
        known |= set(visited) if self._of is None else await self._seen(self._of, visited)
        return [(one, looks[one["number"]] or 0) for one in unseen if one["number"] in known]

    async def _seen(self, jobs: Sequence[bytes], numbers: Sequence[int]) -> set[int]:
        """Those records, by number, that one of the jobs saw."""
        names = (sighting_name(job, number) for job in jobs for number in numbers)
        found: set[int] = set()
        for part in portions(list(names), SIGHTINGS_PER_QUERY):
            rows = await self._database.find("sightings", {"_id": {"$in": part}}, ["_id"])
            found.update(number_in(one["_id"], JOB_BYTES) for one in rows)
        return found

    async def _looks(self, records: Sequence[Document]) -> dict[int, int | None]:
        """What the job found for the pages that last yielded these records; None if it did not try or was redirected.
        A later sighting knows better."""
        attempts: dict[int, list[Document]] = {}
        pages = sorted({one["page"] for one in records if one["page"] != NO_PAGE})
        for part in portions(pages, PAGES_PER_QUERY):
            ranges = [{"_id": {"$gte": attempts_from(page), "$lt": attempts_from(page + 1)}} for page in part]
            for one in await self._database.find(
                "attempts", {"job": self._job, "$or": ranges}, ["at", "outcome", "status"]
            ):
                attempts.setdefault(number_in(one["_id"]), []).append(one)
        return {
            one["number"]: max(
                (
                    _found(look)
                    for look in attempts.get(one["page"], ())
                    if look["at"] >= one["last_checked"]
                    and (look["outcome"] not in _TOLD_ELSEWHERE or look["status"] in _NOT_THERE)
                ),
                default=None,
            )
            for one in records
        }

    async def _mark(self, unseen: Sequence[tuple[Document, int]]) -> int:
        """Being gone is a new version. Returns how many were still as found."""
        kept = await keep_versions(self._database, {one["_id"]: one["version"] for one, _ in unseen})
        going = [(one["_id"], held_of(one), look) for one, look in unseen if one["_id"] in kept]
        if not going:
            return 0
        ticket = await self._revisions.open(0)
        writes = [
            UpdateOne(
                unchanged(identity, held),
                {
                    "$set": {
                        "gone_since": self._at,
                        "last_changed": self._at,
                        "job": self._job,
                        "version": held.version + 1,
                        "revision": ticket.revision,
                        # A record that its page no longer yields has no page: if that page is unchanged next time, it
                        # still does not yield the record.
                        "page": NO_PAGE if look == 2 else held.page,
                    }
                },
            )
            for identity, held, look in going
        ]
        written = await self._database.write("records", writes)
        await self._revisions.close(ticket, [identity for identity, _, _ in going])
        return written.matched


def _found(attempt: Document) -> int:
    if attempt["outcome"] in _LOOKED:
        return 2
    return 1 if attempt["status"] in _NOT_THERE else 0
