"""The writing half of the record store: what a batch of results does to the tables of schema/records-*.sql.

Many processes write at once. Every transaction locks in the same order, so that there are no deadlocks:

    1. lock the pages of the batch, in the order of their fingerprints; add the missing ones in that order
    2. lock the records of the batch, in the order of their identities; add the missing ones in that order
    3. write the rest: its rows belong to the locked ones, so that no other transaction writes them meanwhile
    4. shapes of items, and last the counts of the checks, in the order of their names: these rows are shared by all,
       and are locked for the shortest time

A row that another transaction has added since it was looked up is a `Collision`: everything is rolled back and
repeated, and then the row is found. A batch of any size takes about ten statements. Pages, attempts and visits:
page_log.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec

from ...model.item_account import COUNT_FIELDS
from ...model.record import ItemSchema, PageResult, Record
from ...store.record_rules import (
    REPEAT,
    UNCHANGED,
    Held,
    ItemStates,
    Sighting,
    Verdict,
    last_of_each,
    receive,
    see,
    version_seen,
)
from .connection import Collision, Session
from .figures import Count
from .page_log import (
    added,
    ask_again,
    count_quality,
    keep_pages,
    keep_schemas,
    new_rows,
    stale_ones,
    unnest,
    write_visits,
)
from .stored_text import identity_of

Queryable = Callable[[str], str | None]

_GIVEN_BY = "SELECT identity FROM @records WHERE page = ANY ($1::bigint[])"

# Records that a page did not give any more when it was read last: that it is unchanged at a time says nothing of them.
_NOT_GIVEN = f"""
SELECT records.identity, page.at FROM unnest($1::bigint[], $2::float8[]) AS page (number, at)
JOIN @records AS records ON records.page = page.number
WHERE EXISTS (
    SELECT FROM @attempts AS later
    WHERE later.page = records.page AND later.at > records.last_checked AND later.at <= page.at
        AND later.outcome = 'done' AND later.reason IN ('', '{REPEAT}'))"""  # noqa: S608 - our own words

_LOCK_RECORDS = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT identity, number, content_hash, first_seen, last_changed, last_checked, version, page,
        gone_since IS NOT NULL, spider
    FROM @records AS records WHERE records.identity = wanted.identity FOR NO KEY UPDATE
) AS found"""

# What the jobs of the batch saw of records that it has locked: no other transaction changes it meanwhile.
_SEEN = """
SELECT job, record, version, page, state, content FROM @sightings
WHERE job = ANY ($1::text[]) AND record = ANY ($2::bigint[])"""

# Numbered in the order of the batch, added in the order of identities.
RECORD_COLUMNS = """identity, type, site, key, url, job, spider, source, data, content_hash, first_seen, last_changed,
    last_checked, version, page, schema"""
ADD_RECORDS = f"""
WITH numbered AS MATERIALIZED (
    SELECT nextval('@record_numbers') AS number, new.* FROM {unnest(
        ("bytea", "text", "text", "text", "text", "text", "text", "text", "text", "bytea", "float8", "float8", "float8",
         "int", "bigint", "text")
    )} AS new ({RECORD_COLUMNS})
)
INSERT INTO @records (number, {RECORD_COLUMNS})
SELECT number, {RECORD_COLUMNS.replace("data", "data::jsonb")} FROM numbered ORDER BY identity
ON CONFLICT (identity) DO NOTHING RETURNING number, identity"""  # noqa: S608 - our own names  # fmt: skip

SUPERSEDE = """
INSERT INTO @superseded (record, version, at, job, source, data, gone, schema)
SELECT number, version, last_changed, job, source, data, gone_since IS NOT NULL, schema
FROM @records WHERE number = ANY ($1::bigint[])"""

ADD_PAST = """
INSERT INTO @superseded (record, version, at, job, source, data, gone, schema)
SELECT record, version, at, job, source, data::jsonb, gone, schema
FROM unnest($1::bigint[], $2::int[], $3::float8[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::text[])
    AS new (record, version, at, job, source, data, gone, schema)"""

_CHANGE_RECORDS = """
UPDATE @records AS records SET url = new.url, job = new.job, spider = new.spider, source = new.source,
    data = new.data::jsonb, content_hash = new.content_hash, first_seen = new.first_seen,
    last_changed = new.last_changed, last_checked = new.last_checked, version = new.version, page = new.page,
    schema = new.schema, gone_since = NULL, revision = pg_current_xact_id()
FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::float8[],
    $9::float8[], $10::float8[], $11::int[], $12::bigint[], $13::text[])
    AS new (number, url, job, spider, source, data, content_hash, first_seen, last_changed, last_checked, version, page,
        schema)
WHERE records.number = new.number"""

_BRING_BACK = """
UPDATE @records AS records SET job = new.job, first_seen = new.first_seen, last_changed = new.last_changed,
    last_checked = new.last_checked, version = new.version, gone_since = NULL, revision = pg_current_xact_id()
FROM unnest($1::bigint[], $2::text[], $3::float8[], $4::float8[], $5::float8[], $6::int[])
    AS new (number, job, first_seen, last_changed, last_checked, version)
WHERE records.number = new.number"""

_MOVE_RECORDS = """
UPDATE @records AS records SET first_seen = new.first_seen, last_checked = new.last_checked, page = new.page
FROM unnest($1::bigint[], $2::float8[], $3::float8[], $4::bigint[]) AS new (number, first_seen, last_checked, page)
WHERE records.number = new.number"""

ADD_SIGHTINGS = """
INSERT INTO @sightings AS sightings (job, record, version) SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[])
ON CONFLICT (job, record) DO UPDATE SET version = excluded.version WHERE excluded.version > sightings.version"""

_SEE = """
INSERT INTO @sightings AS sightings (job, record, version, page, state, content)
SELECT * FROM unnest($1::text[], $2::bigint[], $3::int[], $4::bigint[], $5::smallint[], $6::bytea[])
ON CONFLICT (job, record) DO UPDATE SET version = greatest(sightings.version, excluded.version), page = excluded.page,
    state = excluded.state, content = excluded.content"""

ADD_SEERS = """
INSERT INTO @seen_by (spider, record) SELECT * FROM unnest($1::text[], $2::bigint[]) ON CONFLICT DO NOTHING"""

_ITEM_COLUMNS = ("job", "page", "at", *COUNT_FIELDS, "parser", "notes")
COUNT_ITEMS = f"""
INSERT INTO @item_counts ({", ".join(_ITEM_COLUMNS)})
SELECT * FROM {unnest(("text", "bigint", "float8", *["int"] * len(COUNT_FIELDS), "text", "text"))}
ON CONFLICT (job, page) DO UPDATE SET {", ".join(f"{name} = excluded.{name}" for name in _ITEM_COLUMNS[2:])}"""  # noqa: S608
_NO_ITEMS = """
DELETE FROM @item_counts AS counts USING unnest($1::text[], $2::bigint[]) AS page (job, number)
WHERE counts.job = page.job AND counts.page = page.number"""


async def save_results(
    session: Session,
    results: Sequence[PageResult],
    now: float,
    min_age: float,
    queryable: Queryable,
    schemas: Sequence[ItemSchema] = (),
    *,
    count: Count,
) -> list[int]:
    """Write a batch inside the caller's transaction; return how many records of each result were new or changed.

    Texts must be as stored_text.py stores them; `queryable` makes the jsonb of a record's source. `schemas` may be new.
    `count` is what the batch adds to the figures.
    """
    number = await keep_pages(session, results, now)
    stale = await stale_ones(session, results, number)
    unchanged = [result.attempt for result in results if result.attempt.outcome == UNCHANGED]
    old = [results[place].attempt for place in sorted(stale)]
    held = await _lock_records(session, results, [number[attempt.fingerprint] for attempt in (*unchanged, *old)])
    changes = RecordChanges(held, now, min_age, await _seen(session, results, held))
    states = [ItemStates() if result.items is not None else None for result in results]
    counts: list[int] = []
    behind: list[PageResult] = []  # results of which not everything is in the records
    for place, result in enumerate(results):
        page, account, old_visit = number[result.attempt.fingerprint], states[place], place in stale
        changes.held_back = False
        counts.append(sum(changes.take(one, page, account, stale=old_visit) for one in last_of_each(result.records)))
        if changes.held_back:
            behind.append(result)
    if old:
        changes.pass_over([(number[attempt.fingerprint], attempt.job) for attempt in old])
    if unchanged:
        looks = [(number[attempt.fingerprint], attempt.job, min(attempt.at, now)) for attempt in unchanged]
        pages, _, times = zip(*looks, strict=True)
        not_given = await session.rows(_NOT_GIVEN, list(pages), list(times))
        changes.confirm(looks, {(row["identity"], row["at"]) for row in not_given})
    await _write_records(session, changes, queryable)
    await _count_items(session, results, number, states)
    new = await write_visits(session, results, number, count)
    await ask_again(session, behind, number)
    await keep_schemas(session, schemas, now)
    await count_quality(session, [tally for result in new for tally in result.quality])
    return counts


async def _lock_records(session: Session, results: Sequence[PageResult], pages: list[int]) -> dict[bytes, Held]:
    """The stored state of the batch's records, and of those that some of its pages yielded before."""
    wanted = {identity_of(one.type, one.site, one.key) for result in results for one in result.records}
    if pages:
        wanted.update([row["identity"] for row in await session.rows(_GIVEN_BY, pages)])
    if not wanted:
        return {}
    rows = await session.rows(_LOCK_RECORDS, sorted(wanted))
    return {row[0]: Held(*row[1:]) for row in map(tuple, rows)}


async def _seen(
    session: Session, results: Sequence[PageResult], held: dict[bytes, Held]
) -> dict[tuple[str, int], Sighting]:
    """What the jobs of the batch saw before of its records; nothing in a first crawl, where all are new."""
    jobs = list({result.attempt.job for result in results if result.records})
    if not jobs or not held:
        return {}
    rows = await session.rows(_SEEN, jobs, [one.number for one in held.values()])
    return {(job, record): Sighting(*rest) for job, record, *rest in map(tuple, rows)}


async def _count_items(
    session: Session, results: Sequence[PageResult], number: dict[bytes, int], states: Sequence[ItemStates | None]
) -> None:
    """Replace the account of each page that was settled; of one that is in the batch twice, the last counts."""
    accounts: dict[tuple[str, int], tuple[Any, ...] | None] = {}
    for result, account in zip(results, states, strict=True):
        if account is not None and result.items is not None:
            counted = (result.attempt.at, *account.values(result.items))
            page = (result.attempt.job, number[result.attempt.fingerprint])
            accounts[page] = None if result.items.says_nothing else counted
    if without := [page for page, counted in accounts.items() if counted is None]:
        await session.run(_NO_ITEMS, *new_rows(without))
    if rows := [(*page, *counted) for page, counted in accounts.items() if counted is not None]:
        await session.run(COUNT_ITEMS, *new_rows(rows))


async def _write_records(session: Session, changes: RecordChanges, queryable: Queryable) -> None:
    rows: list[tuple[Any, ...]]
    if new := changes.new:
        rows = [
            (draft.identity, r.type, r.site, r.key, r.url, r.job, r.spider, r.data, queryable(r.data), r.content_hash,
             held.first_seen, held.last_changed, held.last_checked, held.version, held.page, r.schema)
            for draft in new if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        numbers = await added(session, ADD_RECORDS, "identity", new_rows(rows))
        if len(numbers) < len(new):
            raise Collision
        for draft in new:
            draft.held.number = numbers[draft.identity]
    if changes.superseded:
        await session.run(SUPERSEDE, changes.superseded)
    if changes.past:
        past = [
            (one.draft.held.number, one.version, one.at, r.job, r.data, queryable(r.data), False, r.schema)
            for one in changes.past
            if (r := one.record)
        ]
        await session.run(ADD_PAST, *new_rows(past))
    if changed := changes.changed:
        rows = [
            (held.number, r.url, r.job, r.spider, r.data, queryable(r.data), r.content_hash, held.first_seen,
             held.last_changed, held.last_checked, held.version, held.page, r.schema)
            for draft in changed if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        await session.run(_CHANGE_RECORDS, *new_rows(rows))
    if back := changes.back:
        rows = [
            (held.number, draft.back_by, held.first_seen, held.last_changed, held.last_checked, held.version)
            for draft in back if (held := draft.held)
        ]  # fmt: skip
        await session.run(_BRING_BACK, *new_rows(rows))
    if moved := [draft.held for draft in changes.moved]:
        await session.run(_MOVE_RECORDS, *new_rows((h.number, h.first_seen, h.last_checked, h.page) for h in moved))
    if sightings := changes.sightings:
        await session.run(ADD_SIGHTINGS, *new_rows(sightings))
    if seen := changes.given:
        await session.run(_SEE, *new_rows(seen))
    if seers := changes.seers:
        await session.run(ADD_SEERS, *new_rows(seers))


# -- deciding, without I/O ---------------------------------------------------------------------------------------


class RecordDraft(msgspec.Struct):
    """A record while the batch is decided. Mutable: it follows the batch."""

    identity: bytes
    held: Held
    is_new: bool
    record: Record | None = None  # the newest version in this batch; None: the stored one stays
    back_by: str | None = None  # the job that found it again, unchanged since it was gone
    has_moved: bool = False  # its times or its page differ from the stored ones


class PastVersion(msgspec.Struct, frozen=True):
    """A version that was replaced inside the batch."""

    draft: RecordDraft
    version: int
    at: float
    record: Record


class RecordChanges:
    """Takes the records of a batch one by one; afterwards its lists say what to write."""

    def __init__(
        self,
        held: dict[bytes, Held],
        now: float,
        min_age: float,
        seen: dict[tuple[str, int], Sighting] | None = None,
    ) -> None:
        self._drafts = {identity: RecordDraft(identity, one, is_new=False) for identity, one in held.items()}
        self._now = now
        self._min_age = min_age
        self._stored = seen or {}
        self._given: dict[tuple[str, bytes], Sighting] = {}
        self._seers: set[tuple[str, bytes]] = set()
        self._seen: dict[tuple[str, bytes], int] = {}
        self.superseded: list[int] = []  # numbers of records whose stored version is replaced
        self.past: list[PastVersion] = []
        self.held_back = False  # the store has another version of a record that was taken since this was reset

    def take(self, record: Record, page: int, account: ItemStates | None = None, *, stale: bool = False) -> bool:
        """Decide about one record that `page` yielded, and note what became of it. True if it is new or changed."""
        identity = identity_of(record.type, record.site, record.key)
        draft = self._drafts.get(identity)
        writer = record.spider if draft is None else draft.held.spider
        if draft is None:
            verdict, held = receive(None, record, page, now=self._now, min_age=self._min_age, stale=stale)
            draft = self._drafts[identity] = RecordDraft(identity, held, is_new=True, record=record)
        else:
            verdict = self._receive(draft, record, page, stale)
        self.held_back |= not version_seen(draft.held, record.content_hash)
        name, held = (record.job, identity), draft.held
        known = self._given.get(name) or self._stored.get((record.job, held.number))
        state, seen, news = see(known, record, page, verdict, held)
        if news:
            self._given[name] = seen
        if writer != record.spider:
            self._seers.add((writer if held.spider == record.spider else record.spider, identity))
        if account is not None:
            account.add(state, record, verdict, writer if writer != record.spider else "")
        return verdict is Verdict.NEW or verdict is Verdict.CHANGED

    def _receive(self, draft: RecordDraft, record: Record, page: int, stale: bool) -> Verdict:
        held = draft.held
        version, last_changed, first_seen = held.version, held.last_changed, held.first_seen
        verdict, _ = receive(held, record, page, now=self._now, min_age=self._min_age, stale=stale)
        if verdict is Verdict.CHANGED:
            if draft.record is None:
                self.superseded.append(held.number)
            else:
                self.past.append(PastVersion(draft, version, last_changed, draft.record))
            draft.record = record
        elif verdict is not Verdict.LATE or held.first_seen < first_seen:
            draft.has_moved = True
        return verdict

    def confirm(self, unchanged: Sequence[tuple[int, str, float]], not_given: Collection[tuple[bytes, float]]) -> None:
        """Pages that a job found unchanged at a time: the records they yielded exist, were checked, and were seen by
        the job. `not_given` are records, each with such a time, that their page no longer yielded when last read.
        """
        given = self._by_page()
        found = [
            (draft, job, at)
            for page, job, at in unchanged
            for draft in given.get(page, ())
            if (draft.identity, at) not in not_given
        ]
        for draft, job, at in found:
            if draft.held.gone and draft.held.last_checked < at:
                self._bring_back(draft, job, at)
        for draft, job, at in found:
            known = draft.held.last_checked <= at and not draft.held.gone
            self._see(job, draft.identity, draft.held.version if known else 0)
        for draft, _, at in found:
            draft.held.last_checked = max(draft.held.last_checked, at)
            draft.has_moved = True

    def pass_over(self, stale: Iterable[tuple[int, str]]) -> None:
        """Note pages of which a job has parsed a copy older than the newest: it proves nothing missing."""
        given = self._by_page()
        for page, job in stale:
            for draft in given.get(page, ()):
                self._see(job, draft.identity, 0)

    def _by_page(self) -> dict[int, list[RecordDraft]]:
        """The records that each page yielded last."""
        given: dict[int, list[RecordDraft]] = {}
        for draft in self._drafts.values():
            given.setdefault(draft.held.page, []).append(draft)
        return given

    def _bring_back(self, draft: RecordDraft, job: str, at: float) -> None:
        held = draft.held
        self.superseded.append(held.number)
        held.gone = False
        held.last_changed = max(held.last_changed, at)
        held.version += 1
        draft.back_by = job

    def _see(self, job: str, identity: bytes, version: int) -> None:
        if version >= self._seen.get((job, identity), 0):
            self._seen[job, identity] = version

    @property
    def new(self) -> list[RecordDraft]:
        """Records to be added, in the order of the batch."""
        return [draft for draft in self._drafts.values() if draft.is_new]

    @property
    def changed(self) -> list[RecordDraft]:
        """Records to be rewritten."""
        return [draft for draft in self._drafts.values() if draft.record is not None and not draft.is_new]

    @property
    def back(self) -> list[RecordDraft]:
        """Records that are back, with the content they had."""
        return [draft for draft in self._drafts.values() if draft.back_by is not None]

    @property
    def moved(self) -> list[RecordDraft]:
        """Records of which only times and page are to be written."""
        return [d for d in self._drafts.values() if d.record is None and d.back_by is None and d.has_moved]

    @property
    def sightings(self) -> list[tuple[str, int, int]]:
        """Which job saw which record in which version, by number: call it after the new records have theirs."""
        return [(job, self._drafts[identity].held.number, version) for (job, identity), version in self._seen.items()]

    @property
    def given(self) -> list[tuple[str, int, int, int, int, bytes]]:
        """Which job saw which record, and what it first got of it; as above."""
        return [
            (job, self._drafts[identity].held.number, one.version, one.page, one.state, one.content)
            for (job, identity), one in self._given.items()
        ]

    @property
    def seers(self) -> list[tuple[str, int]]:
        """Which spiders saw records that another one wrote last; as above."""
        return sorted((spider, self._drafts[identity].held.number) for spider, identity in self._seers)
