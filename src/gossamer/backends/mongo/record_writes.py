"""What a batch of results does to records, their history and their sightings.

store/record_rules.py decides what a record becomes from its stored state, and the result is written only if that state
is unchanged. If another writer was faster, the record is read and decided again in the next wave, together with all
that have to wait. A record takes at most one new version per wave, so that the replaced version was always in the
store.

How it fails: an interrupted batch has stored some of its records. How it recovers: the batch is written again; records
that are already stored are found unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec
from pymongo import InsertOne, ReplaceOne, UpdateOne

from ...errors import BackendUnavailable
from ...model.record import PageResult, Record
from ...store.record_rules import Held, ItemStates, Sighting, Verdict, last_of_each, receive, version_seen
from ...store.record_rules import see as see_record
from .connection import Document, MongoDatabase, Write
from .layout import JOB_BYTES, identity_of, job_hash, key_hash, number_in, sighting_name, version_name
from .revisions import Revisions
from .stored_text import queryable

T = TypeVar("T")

NAMES_PER_QUERY = 1000  # ids in one look-up
COPIED = 100  # versions copied at a time: their texts are read
MAX_TRIES = 50  # of a record that others change at the same time; each collision means that another one succeeded

HELD_FIELDS = ("number", "content_hash", "first_seen", "last_changed", "last_checked", "version", "page", "spider",
               "gone_since")  # fmt: skip
VERSION_FIELDS = ("number", "version", "last_changed", "job", "source", "gone_since", "schema")

Sightings = dict[tuple[str, int], int]  # job and record -> the version it saw; 0: unknown, or not kept
SIGHTING_FIELDS = ("version", "page", "state", "content")


class _Incoming(msgspec.Struct, frozen=True):
    """A record of a result."""

    position: int
    record: Record
    page: int
    stale: bool


class _Plan(msgspec.Struct):
    """What a wave does to one record. Mutable: it follows the records that it takes."""

    identity: bytes
    before: Held | None
    held: Held | None = None
    record: Record | None = None  # the version to write; None: the stored one stays
    checked_by: str | None = None
    taken: int = 0
    news: list[int] = []  # the results for which it was new or changed
    behind: list[int] = []  # the results that gave another version than the stored one
    seen: dict[str, Sighting] = {}  # by job
    states: list[tuple[int, str, Record, Verdict, str]] = []  # what became of the items, by result
    seers: set[str] = set()  # spiders that saw it and did not write it last

    @property
    def moved(self) -> bool:
        return self.record is None and self.held != self.before


class RecordBatch:
    """Stores the records of one batch."""

    def __init__(self, database: MongoDatabase, revisions: Revisions, *, now: float, min_age: float) -> None:
        self._database = database
        self._revisions = revisions
        self._now = now
        self._min_age = min_age
        self.behind: set[int] = set()  # results of which not everything is in the records
        self._seers: dict[bytes, list[str]] = {}  # the stored ones, of the records of this wave
        # What the job that checked a record last saw of it: written with the record, before the sighting.
        self._given: dict[bytes, tuple[str, Sighting]] = {}

    async def store(
        self,
        results: Sequence[PageResult],
        number: dict[bytes, int],
        stale: frozenset[int],
        states: Sequence[ItemStates],
    ) -> list[int]:
        """Store all records; return how many of each result were new or changed. `number` maps pages to numbers;
        `states` gets what became of each item."""
        counts = [0] * len(results)
        waiting: dict[bytes, deque[_Incoming]] = {}
        for position, result in enumerate(results):
            for record in last_of_each(result.records):
                incoming = _Incoming(position, record, number[result.attempt.fingerprint], position in stale)
                waiting.setdefault(identity_of(record.type, record.site, record.key), deque()).append(incoming)
        waves = MAX_TRIES + max(map(len, waiting.values()), default=0)
        for _ in range(waves):
            if not waiting:
                return counts
            held = await self._look_up(list(waiting))
            jobs = {incoming.record.job for arrived in waiting.values() for incoming in arrived}
            seen = await self._seen(jobs, [one.number for one in held.values()])
            plans = [self._plan(identity, held.get(identity), arrived, seen) for identity, arrived in waiting.items()]
            for plan in await self._carry_out(plans):
                for position in plan.news:
                    counts[position] += 1
                self.behind.update(plan.behind)
                for position, state, record, verdict, other_spider in plan.states:
                    states[position].add(state, record, verdict, other_spider)
                arrived = waiting[plan.identity]
                for _ in range(plan.taken):
                    arrived.popleft()
                if not arrived:
                    del waiting[plan.identity]
        if waiting:
            raise BackendUnavailable(
                f"{self._database.address.place}: {waves} tries collided with other writers. Try again later."
            )
        return counts

    async def _look_up(self, identities: Sequence[bytes]) -> dict[bytes, Held]:
        found: dict[bytes, Held] = {}
        for part in portions(identities, NAMES_PER_QUERY):
            for one in await self._database.find("records", {"_id": {"$in": part}}, (*HELD_FIELDS, "seen_by", "given")):
                found[one["_id"]] = held_of(one)
                if given := one.get("given"):
                    self._given[one["_id"]] = (given[0], Sighting(*given[1:]))
                self._seers[one["_id"]] = one.get("seen_by", [])
        return found

    async def _seen(self, jobs: Iterable[str], numbers: Sequence[int]) -> dict[tuple[str, int], Sighting]:
        """What these jobs saw of these records before."""
        called = {job_hash(job): job for job in jobs}
        names = [sighting_name(job, number) for job in called for number in numbers]
        found: dict[tuple[str, int], Sighting] = {}
        for part in portions(names, NAMES_PER_QUERY):
            for one in await self._database.find("sightings", {"_id": {"$in": part}}, SIGHTING_FIELDS):
                name = (called[one["_id"][:JOB_BYTES]], number_in(one["_id"], JOB_BYTES))
                found[name] = Sighting(**{field: one[field] for field in SIGHTING_FIELDS if field in one})
        return found

    def _plan(
        self,
        identity: bytes,
        before: Held | None,
        arrived: Iterable[_Incoming],
        seen: dict[tuple[str, int], Sighting],
    ) -> _Plan:
        plan = _Plan(identity, before, copy_of(before))
        number = before.number if before is not None else 0
        for incoming in arrived:
            record = incoming.record
            verdict, held = receive(
                copy_of(plan.held), record, incoming.page, now=self._now, min_age=self._min_age, stale=incoming.stale
            )
            news = verdict is Verdict.NEW or verdict is Verdict.CHANGED
            if news and plan.record is not None:
                break  # left to the next wave
            if news:
                plan.record = record
                plan.news.append(incoming.position)
            if verdict is not Verdict.LATE:
                plan.checked_by = record.job
            writer = record.spider if plan.held is None else plan.held.spider
            plan.held = held
            if not version_seen(held, record.content_hash):
                plan.behind.append(incoming.position)
            last_by, last = self._given.get(identity, ("", None))
            known = (
                plan.seen.get(record.job) or seen.get((record.job, number)) or (last if last_by == record.job else None)
            )
            state, plan.seen[record.job], _ = see_record(known, record, incoming.page, verdict, held)
            if writer != record.spider:
                plan.seers.add(writer if held.spider == record.spider else record.spider)
            other = writer if writer != record.spider else ""
            plan.states.append((incoming.position, state, record, verdict, other))
            plan.taken += 1
        return plan

    async def _carry_out(self, plans: list[_Plan]) -> list[_Plan]:
        """Write the plans; return those that succeeded."""
        writing = [plan for plan in plans if plan.record is not None]
        moving = [plan for plan in plans if plan.moved]
        done = [plan for plan in plans if plan.record is None and not plan.moved]
        if writing:
            kept = await keep_versions(self._database, {p.identity: p.before.version for p in writing if p.before})
            done += await self._write([p for p in writing if p.before is None or p.identity in kept])
        if moving:
            written = await self._database.write("records", [_move(plan) for plan in moving])
            if written.matched == len(moving):
                done += moving
        # Another writer was faster with some that should have moved; the server does not say which. All are read again;
        # that the job saw the stored version is true in any case.
        sightings: Sightings = {}
        given: dict[tuple[str, int], Sighting] = {}
        for plan in {id(plan): plan for plan in [*done, *moving]}.values():
            assert plan.held is not None
            for job, one in plan.seen.items():
                sightings[job, plan.held.number] = one.version
        for plan in done:
            assert plan.held is not None
            given.update({(job, plan.held.number): one for job, one in plan.seen.items()})
        await see(self._database, sightings, given)
        seers: list[Write] = [
            UpdateOne({"_id": plan.identity}, {"$addToSet": {"seen_by": {"$each": sorted(plan.seers)}}})
            for plan in done
            if plan.seers
        ]
        await self._database.write("records", seers)
        return done

    async def _write(self, plans: list[_Plan]) -> list[_Plan]:
        """Write new and changed records; return those where no other writer was faster."""
        if not plans:
            return []
        ticket = await self._revisions.open(sum(plan.before is None for plan in plans))
        number = ticket.first
        writes: list[Write] = []
        for plan in plans:
            assert plan.held is not None
            if plan.before is None:
                plan.held.number = number
                number += 1
            document = _document(plan, ticket.revision, self._seers.get(plan.identity, []))
            if plan.before is None:
                writes.append(InsertOne(document))
            else:
                # If it has changed since, this becomes an insertion, which fails on the taken id.
                writes.append(ReplaceOne(unchanged(plan.identity, plan.before), document, upsert=True))
        written = await self._database.write("records", writes)
        done = [plan for place, plan in enumerate(plans) if place not in written.refused]
        await self._revisions.close(ticket, [plan.identity for plan in done])
        return done


def _move(plan: _Plan) -> UpdateOne:
    assert plan.before is not None
    assert plan.held is not None
    held = plan.held
    changes: Document = {"first_seen": held.first_seen, "last_checked": held.last_checked, "page": held.page}
    if plan.checked_by is not None:
        changes["checked_by"] = plan.checked_by
        changes["given"] = _given(plan)
    return UpdateOne(unchanged(plan.identity, plan.before), {"$set": changes})


def _document(plan: _Plan, revision: int, seers: list[str]) -> Document:
    record, held = plan.record, plan.held
    assert record is not None
    assert held is not None
    return {
        "_id": plan.identity,
        "number": held.number,
        "type": record.type,
        "site": record.site,
        "key": record.key,
        "key_hash": key_hash(record.key),
        "url": record.url,
        "job": record.job,
        "spider": record.spider,
        "data": queryable(record.data),
        "source": record.data,
        "content_hash": record.content_hash,
        "first_seen": held.first_seen,
        "last_changed": held.last_changed,
        "last_checked": held.last_checked,
        "version": held.version,
        "page": held.page,
        "gone_since": None,
        "schema": record.schema,
        "revision": revision,
        "checked_by": plan.checked_by,
        "seen_by": seers,
        "given": _given(plan),
    }


def _given(plan: _Plan) -> list[object]:
    """What the job that checked the record last saw of it."""
    assert plan.checked_by is not None
    return [plan.checked_by, *msgspec.structs.astuple(plan.seen[plan.checked_by])]


async def keep_versions(database: MongoDatabase, versions: dict[bytes, int]) -> set[bytes]:
    """Copy the present versions of records, given by id, into the history; return the ids of those that still have that
    version. Call it before they are replaced."""
    kept: set[bytes] = set()
    for part in portions(list(versions), COPIED):
        found = await database.find("records", {"_id": {"$in": part}}, VERSION_FIELDS)
        present = [one for one in found if one["version"] == versions[one["_id"]]]
        await database.write("superseded", [InsertOne(past_version(one)) for one in present])
        kept.update(one["_id"] for one in present)
    return kept


def past_version(one: Document) -> Document:
    """A record's present version, as stored once it is replaced."""
    return {
        "_id": version_name(one["number"], one["version"]),
        "at": one["last_changed"],
        "job": one["job"],
        "source": one["source"],
        "gone": one["gone_since"] is not None,
        "schema": one["schema"],
    }


async def see(
    database: MongoDatabase, sightings: Sightings, given: Mapping[tuple[str, int], Sighting] | None = None
) -> None:
    """Write which job saw which record; of two versions the newer one wins. `given` says what a job first got of it."""
    hashes = {job: job_hash(job) for job, _ in sightings}
    writes = [
        UpdateOne(
            {"_id": sighting_name(hashes[job], record)},
            {"$max": {"version": version}, "$setOnInsert": {"job": job}, **_first_got(given, job, record)},
            upsert=True,
        )
        for (job, record), version in sightings.items()
    ]
    for _ in range(MAX_TRIES):
        written = await database.write("sightings", writes)
        if not written.refused:
            return
        writes = [writes[place] for place in sorted(written.refused)]  # two writers were the first at the same time
    raise BackendUnavailable(f"{database.address.place}: {MAX_TRIES} tries collided with other writers.")


def _first_got(given: Mapping[tuple[str, int], Sighting] | None, job: str, record: int) -> Document:
    one = given.get((job, record)) if given else None
    return {} if one is None else {"$set": {"page": one.page, "state": one.state, "content": one.content}}


def held_of(document: Document) -> Held:
    *values, spider, gone_since = [document[name] for name in HELD_FIELDS]
    number, content_hash, first_seen, last_changed, last_checked, version, page = values
    return Held(
        number,
        content_hash,
        first_seen,
        last_changed,
        last_checked,
        version,
        page,
        gone=gone_since is not None,
        spider=spider,
    )


def copy_of(held: Held | None) -> Held | None:
    return None if held is None else msgspec.structs.replace(held)


def unchanged(identity: bytes, held: Held) -> Document:
    """The record, if it is still what was decided about. A version never changes."""
    return {
        "_id": identity,
        "version": held.version,
        "first_seen": held.first_seen,
        "last_checked": held.last_checked,
        "page": held.page,
    }


def portions(things: Sequence[T], size: int) -> Iterable[list[T]]:
    rest = iter(things)
    while part := list(islice(rest, size)):
        yield part
