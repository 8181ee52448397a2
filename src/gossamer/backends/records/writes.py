"""The writing half of the record store: what a batch of results does to the tables of schema/.

In PostgreSQL many processes write at once. Every transaction locks in the same order, so that there are no deadlocks
(writers of a SQLite file take turns):

    1. lock the pages of the batch, in the order of their fingerprints; add the missing ones in that order
    2. lock the records of the batch, in the order of their identities; add the missing ones in that order
    3. write the rest: its rows belong to the locked ones, so that no other transaction writes them meanwhile
    4. shapes of items, and last the counts of the checks, in the order of their names: these rows are shared by all,
       and are locked for the shortest time

A batch of any size takes about ten statements. Every row has its own identity, so that the same batch can be written
again. Pages, attempts and visits: page_log.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from ...model.item_account import COUNT_FIELDS
from ...model.record import ItemSchema, PageResult
from ...store.item_states import ItemStates, Sighting
from ...store.record_rules import REPEAT, UNCHANGED, Held, last_of_each
from .changes import Identity, RecordChanges
from .dialect import BatchWriter, Dialect
from .page_log import ask_again, count_quality, keep_pages, keep_schemas, stale_ones, write_visits
from .statements import add, change, new_rows

# What the jobs of the batch saw of records that it has locked: no other transaction changes it meanwhile.
_SEEN = """
SELECT job, record, version, page, state, content FROM @sightings
WHERE job = ANY ($1::text[]) AND record = ANY ($2::bigint[])"""

_MOVE = change("records", ("number",), ("first_seen", "last_checked", "page"))

# That a page is unchanged says something of the records that it gave when it was read last. Those that it had not given
# any more then are as they were.
_GIVEN = f"""records.page = new.page AND NOT EXISTS (
    SELECT 1 FROM @attempts AS later
    WHERE later.page = records.page AND later.at > records.last_checked AND later.at <= new.at
        AND later.outcome = 'done' AND later.reason IN ('', '{REPEAT}'))"""  # noqa: S608 - our own words
_LOOKED = new_rows(("job", "page", "at"))

_CONFIRM = f"""
UPDATE @records AS records SET last_checked = greatest(records.last_checked, new.at) FROM {_LOOKED} WHERE {_GIVEN}"""  # noqa: S608

_GONE_FROM = "SELECT DISTINCT page FROM @records WHERE page = ANY ($1::bigint[]) AND gone_since IS NOT NULL"
_IS_BACK = f"{_GIVEN} AND gone_since IS NOT NULL AND last_checked < new.at"
_SUPERSEDE = """
INSERT INTO @superseded (record, version, at, job, {contents}, gone, schema)
SELECT number, version, last_changed, records.job, {contents}, gone_since IS NOT NULL, schema FROM """
_SUPERSEDE_CHANGED = _SUPERSEDE + "@records AS records WHERE number = ANY ($1::bigint[])"
_SUPERSEDE_GONE = f"{_SUPERSEDE}{_LOOKED} JOIN @records AS records ON {_IS_BACK}"
_BRING_BACK = f"""
UPDATE @records AS records SET job = new.job, last_changed = greatest(records.last_changed, new.at),
    version = records.version + 1, gone_since = NULL, revision = {{revision}}
FROM {_LOOKED} WHERE {_IS_BACK}"""  # noqa: S608

# What a newer check has seen since is not what was seen at that time. Without a time: nothing was seen for certain.
_SEE_AGAIN = f"""
INSERT INTO @sightings AS kept (job, record, version)
SELECT new.job, number, CASE WHEN last_checked <= new.at AND gone_since IS NULL THEN version ELSE 0 END
FROM {_LOOKED} JOIN @records AS records ON {_GIVEN}
WHERE true ON CONFLICT (job, record) DO UPDATE SET version = excluded.version WHERE excluded.version > kept.version"""  # noqa: S608

ADD_SIGHTINGS = add(
    "sightings",
    ("job", "record", "version", "page", "state", "content"),
    """(job, record) DO UPDATE SET version = greatest(kept.version, excluded.version), page = excluded.page,
    state = excluded.state, content = excluded.content""",
)
ADD_SEERS = add("seen_by", ("spider", "record"))

_ACCOUNT = ("job", "page", "at", *COUNT_FIELDS, "parser", "notes")
COUNT_ITEMS = add(
    "item_counts",
    _ACCOUNT,
    f"(job, page) DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in _ACCOUNT[2:])}",
)
_NO_ITEMS = f"DELETE FROM @item_counts WHERE (job, page) IN (SELECT * FROM {new_rows(('job', 'page'))})"  # noqa: S608


@lru_cache
def add_past(words: Dialect) -> str:
    return add("superseded", ("record", "version", "at", "job", *words.contents.split(", "), "gone", "schema"))


@lru_cache
def _change_records(words: Dialect) -> str:
    also = f", gone_since = NULL, revision = {words.revision}"
    return change("records", ("number",), words.added[3:-1], also)


async def save_results(
    batch: BatchWriter, results: Sequence[PageResult], now: float, min_age: float, schemas: Sequence[ItemSchema] = ()
) -> list[int]:
    """Write a batch inside the caller's transaction; return how many records of each result were new or changed.
    `schemas` are those that may be new."""
    number = await keep_pages(batch, results, now)
    stale = await stale_ones(batch, results, number)
    unchanged = [one.attempt for one in results if one.attempt.outcome == UNCHANGED]
    old = [results[place].attempt for place in sorted(stale)]
    counts, behind, states = (
        [0] * len(results),
        [],
        [ItemStates() if one.items is not None else None for one in results],
    )
    if unchanged or old or any(result.records for result in results):
        taken = [
            [(batch.identity(one.type, one.site, one.key), one) for one in last_of_each(result.records)]
            for result in results
        ]
        identities = dict.fromkeys(identity for records in taken for identity, _ in records)
        pages = [number[attempt.fingerprint] for attempt in (*unchanged, *old)]
        held = {row[0]: Held(*row[1:]) for row in await batch.lock_records(identities, pages)}
        changes = RecordChanges(held, now, min_age, await _seen(batch, results, held))
        for place, result in enumerate(results):
            page, account, stands = number[result.attempt.fingerprint], states[place], place in stale
            changes.held_back = False
            counts[place] = sum([changes.take(*one, page, stands, account) for one in taken[place]])
            if changes.held_back:
                behind.append(result)
        await _write_records(batch, changes)
    await _count_items(batch, results, number, states)
    if old:
        await batch.write(_SEE_AGAIN, [(one.job, number[one.fingerprint], None) for one in old])
    if unchanged:
        await _confirm(batch, [(one.job, number[one.fingerprint], min(one.at, now)) for one in unchanged])
    new = await write_visits(batch, results, number)
    await ask_again(batch, behind, number)
    await keep_schemas(batch, [(one, now) for one in schemas])
    await count_quality(batch, [tally for result in new for tally in result.quality])
    return counts


async def _seen(
    batch: BatchWriter, results: Sequence[PageResult], held: dict[Identity, Held]
) -> dict[tuple[str, int], Sighting]:
    """What the jobs of the batch saw before of its records; nothing in a first crawl, where all are new."""
    jobs = list({result.attempt.job for result in results if result.records})
    if not jobs or not held:
        return {}
    rows = await batch.rows(_SEEN, jobs, [one.number for one in held.values()])
    return {(job, record): Sighting(*rest) for job, record, *rest in rows}


async def _count_items(
    batch: BatchWriter, results: Sequence[PageResult], number: dict[bytes, int], states: Sequence[ItemStates | None]
) -> None:
    """Replace the account of each page that was settled; of one that is in the batch twice, the last counts."""
    accounts: dict[tuple[str, int], tuple[Any, ...] | None] = {}
    for result, account in zip(results, states, strict=True):
        if account is not None and result.items is not None:
            counted = None if result.items.says_nothing else (result.attempt.at, *account.values(result.items))
            accounts[result.attempt.job, number[result.attempt.fingerprint]] = counted
    if without := [page for page, counted in accounts.items() if counted is None]:
        await batch.write(_NO_ITEMS, without)
    if rows := [(*page, *counted) for page, counted in accounts.items() if counted is not None]:
        await batch.write(COUNT_ITEMS, rows)


async def _confirm(batch: BatchWriter, looks: Sequence[tuple[str, int, float]]) -> None:
    """Pages that a job found unchanged at a time: the records they yielded exist, were checked, and were seen by the
    job."""
    gone = {page for (page,) in await batch.rows(_GONE_FROM, [page for _, page, _ in looks])}
    rest = sorted(looks, key=lambda look: look[2])
    while rest:  # once, unless two jobs found the same page unchanged: an earlier look is noted before the next
        firsts = {page: look for look in reversed(rest) for page in [look[1]]}
        some = list(firsts.values())
        rest = [look for look in rest if firsts[look[1]] is not look]
        if back := [look for look in some if look[1] in gone]:
            await batch.write(_SUPERSEDE_GONE.format(contents=batch.words.contents), back)
            await batch.write(_BRING_BACK.format(revision=batch.words.revision), back)
        await batch.write(_SEE_AGAIN, some)
        await batch.write(_CONFIRM, some)


async def _write_records(batch: BatchWriter, changes: RecordChanges) -> None:
    content = batch.content
    if new := changes.new:
        rows = [
            (draft.identity,
             (r.type, r.site, r.key, r.url, r.job, r.spider, *content(r.data), r.content_hash, held.first_seen,
              held.last_changed, held.last_checked, held.version, held.page, r.schema, None))
            for draft in new if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        numbers = await batch.add_records(rows)
        for draft in new:
            draft.held.number = numbers[draft.identity]
    if changes.superseded:
        await batch.run(_SUPERSEDE_CHANGED.format(contents=batch.words.contents), changes.superseded)
    if changes.past:
        past = [
            (one.draft.held.number, one.version, one.at, r.job, *content(r.data), False, r.schema)
            for one in changes.past
            if (r := one.record)
        ]
        await batch.write(add_past(batch.words), past)
    if changed := changes.changed:
        rewritten = [
            (held.number, r.url, r.job, r.spider, *content(r.data), r.content_hash, held.first_seen, held.last_changed,
             held.last_checked, held.version, held.page, r.schema)
            for draft in changed if (r := draft.record) is not None and (held := draft.held)
        ]  # fmt: skip
        await batch.write(_change_records(batch.words), rewritten)
    if moved := changes.moved:
        await batch.write(_MOVE, [(h.number, h.first_seen, h.last_checked, h.page) for h in moved])
    if sightings := changes.sightings:
        await batch.write(ADD_SIGHTINGS, sightings)
    if seers := changes.seers:
        await batch.write(ADD_SEERS, seers)
