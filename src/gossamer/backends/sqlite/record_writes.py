"""The writing half of the record store: what a batch of results does to the tables of schema/records-*.sql.

store/record_rules.py decides what a record becomes, between one look-up and a handful of bulk statements; the write
transaction around it keeps other processes out meanwhile. Every row has its own identity, so that the same batch can be
written again. Pages, attempts and visits: page_log.py. Reading: records.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

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
from .figures import count_attempts
from .page_log import ask_again, count_quality, find, insert, keep_schemas, number_pages, save_visits, stale_ones

_NEXT_NUMBER = "SELECT coalesce(max(number), 0) + 1 FROM records"

# One number for all changes of a batch. Writers take turns, so it grows in the order of commits.
NEXT_REVISION = "SELECT coalesce(max(revision), 0) + 1 FROM records"

# CROSS JOIN fixes the direction: for each wanted identity one step into the index.
_FIND_RECORDS = """
WITH wanted (type, site, key, seer) AS (VALUES {rows})
SELECT wanted.seer, sightings.version, sightings.page, sightings.state, sightings.content, records.type, records.site,
    records.key, number, content_hash, first_seen, last_changed, last_checked, records.version, records.page,
    gone_since IS NOT NULL, spider
FROM wanted CROSS JOIN records USING (type, site, key)
LEFT JOIN sightings ON sightings.job = wanted.seer AND sightings.record = records.number"""

_ADD_RECORD = insert(
    "records",
    ("number", "type", "site", "key", "url", "job", "spider", "data", "content_hash", "first_seen", "last_changed",
     "last_checked", "version", "page", "schema", "revision"),
)  # fmt: skip

SUPERSEDE = """
INSERT INTO superseded (record, version, at, job, data, gone, schema)
SELECT number, version, last_changed, job, data, gone_since IS NOT NULL, schema FROM records WHERE """

_CHANGE_RECORD = """
UPDATE records SET url = ?, job = ?, spider = ?, data = ?, content_hash = ?, first_seen = ?, last_changed = ?,
    last_checked = ?, version = ?, page = ?, schema = ?, revision = ?, gone_since = NULL
WHERE number = ?"""

_MOVE_TIMES = "UPDATE records SET first_seen = ?, last_checked = ?, page = ? WHERE number = ?"

# That a page is unchanged says something of the records that it gave when it was read last. Those that it had not given
# any more then are as they were.
_STILL_GIVEN = f"""NOT EXISTS (
    SELECT 1 FROM attempt_rows AS later
    WHERE later.page = records.page AND later.at > records.last_checked AND later.at <= ?
        AND later.outcome = 'done' AND later.reason IN ('', '{REPEAT}'))"""  # noqa: S608 - our own words

_CONFIRM = f"UPDATE records SET last_checked = max(last_checked, ?) WHERE page = ? AND {_STILL_GIVEN}"  # noqa: S608

_GONE_FROM = "SELECT DISTINCT page FROM records WHERE page IN (VALUES {rows}) AND gone_since IS NOT NULL"

_IS_BACK = f"page = ? AND gone_since IS NOT NULL AND last_checked < ? AND {_STILL_GIVEN}"

_BRING_BACK = f"""
UPDATE records SET job = ?, last_changed = max(last_changed, ?), version = version + 1, revision = ?, gone_since = NULL
WHERE {_IS_BACK}"""  # noqa: S608 - our own words

_SEE = """ ON CONFLICT (job, record) DO UPDATE SET version = excluded.version
WHERE excluded.version > sightings.version"""

# What a newer check has seen since is not what was seen at that time. Queried before the check itself is noted.
_SEE_AGAIN = f"""
INSERT INTO sightings (job, record, version)
SELECT ?, number, iif(last_checked <= ? AND gone_since IS NULL, version, 0) FROM records
WHERE page = ? AND {_STILL_GIVEN}{_SEE}"""  # noqa: S608

_ADD_SIGHTING = """
INSERT INTO sightings (job, record, version, page, state, content) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job, record) DO UPDATE SET version = max(sightings.version, excluded.version), page = excluded.page,
    state = excluded.state, content = excluded.content"""

_ADD_SEER = "INSERT INTO seen_by (spider, record) VALUES (?, ?) ON CONFLICT DO NOTHING"

COUNT_ITEMS = insert("item_counts", ("job", "page", "at", *COUNT_FIELDS, "parser", "notes")).replace(
    "INSERT", "REPLACE", 1
)
_NO_ITEMS = "DELETE FROM item_counts WHERE job = ? AND page = ?"


def save_results(
    connection: sqlite3.Connection,
    results: Sequence[PageResult],
    now: float,
    min_age: float,
    schemas: Sequence[ItemSchema] = (),
    *,
    most_domains: int,
) -> list[int]:
    """Write a batch inside the caller's transaction; return how many records of each result were new or changed.

    `schemas` are those that may be new; `most_domains` is how many have separate figures in the total.
    """
    counts = [0] * len(results)
    behind: list[PageResult] = []  # results of which not everything is in the records
    number, facts = number_pages(connection, results)
    stale = stale_ones(connection, results, number)
    states = [ItemStates() if result.items is not None else None for result in results]
    if any(result.records for result in results):
        batch = _RecordBatch(connection, now, min_age)
        batch.look_up([record for result in results for record in result.records])
        for position, result in enumerate(results):
            page, account = number[result.attempt.fingerprint], states[position]
            old = bool(stale) and position in stale
            batch.held_back = False
            counts[position] = sum(batch.take(record, page, old, account) for record in last_of_each(result.records))
            if batch.held_back:
                behind.append(result)
        batch.flush()
    _count_items(connection, results, number, states)
    for position in stale:
        attempt = results[position].attempt
        connection.execute(_SEE_AGAIN, (attempt.job, None, number[attempt.fingerprint], None))
    unchanged = [result.attempt for result in results if result.attempt.outcome == UNCHANGED]
    if unchanged:
        _confirm(connection, [(number[a.fingerprint], a.job, min(a.at, now)) for a in unchanged])
    new = save_visits(connection, results, number, facts, now)
    ask_again(connection, behind, number)
    if schemas:
        keep_schemas(connection, schemas, now)
    if tallies := [tally for result in new for tally in result.quality]:
        count_quality(connection, tallies)
    count_attempts(connection, new, now, most_domains)
    return counts


def _count_items(
    connection: sqlite3.Connection,
    results: Sequence[PageResult],
    number: dict[bytes, int],
    states: Sequence[ItemStates | None],
) -> None:
    """Replace the account of each page that was settled."""
    counted: list[tuple[Any, ...]] = []
    without: list[tuple[Any, ...]] = []
    for result, account in zip(results, states, strict=True):
        if account is None or result.items is None:
            continue
        page = (result.attempt.job, number[result.attempt.fingerprint])
        if result.items.says_nothing:
            without.append(page)
        else:
            counted.append((*page, result.attempt.at, *account.values(result.items)))
    if without:
        connection.executemany(_NO_ITEMS, without)
    if counted:
        connection.executemany(COUNT_ITEMS, counted)


def _confirm(connection: sqlite3.Connection, unchanged: Sequence[tuple[int, str, float]]) -> None:
    """Pages that a job found unchanged: the records they yielded were checked, are back, and were seen by the job."""
    gone = {page for (page,) in find(connection, _GONE_FROM, [(page,) for page, _, _ in unchanged])}
    for page, job, at in unchanged:
        if page in gone:
            (revision,) = connection.execute(NEXT_REVISION).fetchone()
            connection.execute(SUPERSEDE + _IS_BACK, (page, at, at))
            connection.execute(_BRING_BACK, (job, at, revision, page, at, at))
    connection.executemany(_SEE_AGAIN, [(job, at, page, at) for page, job, at in unchanged])
    connection.executemany(_CONFIRM, [(at, page, at) for page, _, at in unchanged])


class _RecordBatch:
    """Gathers what a batch of records does to the tables, and writes it with one statement per kind of change."""

    def __init__(self, connection: sqlite3.Connection, now: float, min_age: float) -> None:
        self._connection = connection
        self._now = now
        self._min_age = min_age
        self._next: int = connection.execute(_NEXT_NUMBER).fetchone()[0]
        self._revision: int = connection.execute(NEXT_REVISION).fetchone()[0]
        self._held: dict[tuple[str, ...], Held] = {}  # by type, site and key
        self._new: list[tuple[Any, ...]] = []
        self._changed: list[tuple[Any, ...]] = []
        self._moved: dict[int, Held] = {}
        self._unwritten: set[int] = set()  # numbers in _new or _changed
        self._seen: dict[tuple[str, int], Sighting] = {}
        self._unwritten_sightings: dict[tuple[str, int], Sighting] = {}
        self._seers: set[tuple[str, int]] = set()
        self.held_back = False  # the store has another version of a record that was taken since this was reset

    def look_up(self, records: Sequence[Record]) -> None:
        """Read the stored state of these records, by which `take` decides."""
        identities = dict.fromkeys((record.type, record.site, record.key, record.job) for record in records)
        for row in find(self._connection, _FIND_RECORDS, list(identities)):
            job, version, page, state, content, *identity, number = row[:9]
            self._held.setdefault(tuple(identity), Held(*row[8:]))
            if version is not None:
                self._seen[job, number] = Sighting(version, page, state, content)

    def take(self, record: Record, page: int, stale: bool, account: ItemStates | None) -> bool:
        """Decide about one record that `page` yielded, and note what became of it. True if it is new or changed."""
        identity = (record.type, record.site, record.key)
        known = self._held.get(identity)
        first_seen, writer = (known.first_seen, known.spider) if known is not None else (0.0, record.spider)
        verdict, held = receive(known, record, page, now=self._now, min_age=self._min_age, stale=stale)
        if verdict is Verdict.NEW:
            self._add(identity, record, held)
        elif verdict is Verdict.CHANGED:
            self._change(record, held)
        elif verdict is not Verdict.LATE or held.first_seen < first_seen:
            self._moved[held.number] = held
        self.held_back |= not version_seen(held, record.content_hash)
        sighting = (record.job, held.number)
        state, seen, news = see(self._seen.get(sighting), record, page, verdict, held)
        if news:
            self._seen[sighting] = self._unwritten_sightings[sighting] = seen
        if writer != record.spider:
            self._seers.add((writer if held.spider == record.spider else record.spider, held.number))
        if account is not None:
            account.add(state, record, verdict, writer if writer != record.spider else "")
        return verdict is Verdict.NEW or verdict is Verdict.CHANGED

    def _add(self, identity: tuple[str, str, str], record: Record, held: Held) -> None:
        self._held[identity] = held
        held.number = self._next
        self._next += 1
        self._unwritten.add(held.number)
        self._new.append(
            (held.number, *identity, record.url, record.job, record.spider, record.data, record.content_hash,
             held.first_seen, held.last_changed, held.last_checked, 1, held.page, record.schema, self._revision)
        )  # fmt: skip

    def _change(self, record: Record, held: Held) -> None:
        if held.number in self._unwritten:  # the version that becomes history is not in the table yet
            self.flush()
        self._unwritten.add(held.number)
        self._changed.append(
            (record.url, record.job, record.spider, record.data, record.content_hash, held.first_seen,
             held.last_changed, held.last_checked, held.version, held.page, record.schema, self._revision, held.number)
        )  # fmt: skip

    def flush(self) -> None:
        """Write what was gathered."""
        write = self._connection.executemany
        if self._new:
            write(_ADD_RECORD, self._new)
        if self._changed:
            write(SUPERSEDE + "number = ?", [(row[-1],) for row in self._changed])
            write(_CHANGE_RECORD, self._changed)
        if self._moved:
            write(_MOVE_TIMES, [(h.first_seen, h.last_checked, h.page, h.number) for h in self._moved.values()])
        if self._unwritten_sightings:
            rows = [(*name, s.version, s.page, s.state, s.content) for name, s in self._unwritten_sightings.items()]
            write(_ADD_SIGHTING, sorted(rows))
        if self._seers:
            write(_ADD_SEER, sorted(self._seers))
        self._new.clear()
        self._changed.clear()
        self._moved.clear()
        self._unwritten.clear()
        self._unwritten_sightings.clear()
        self._seers.clear()
