"""The writing half of the record store: what a batch of results does to the tables of schema/records-*.sql.

What a record becomes is decided in Python (store/verdict.py), between one look-up and a handful of bulk statements;
the write transaction around it keeps other processes out meanwhile. Every row has an identity of its own, so that the
same batch can be written again. Reading back lives in records.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from ...model.record import Attempt, PageFacts, PageResult, Record
from ...store.verdict import UNCHANGED, Held, Verdict, judge, last_of_each, mend

S = TypeVar("S", bound=msgspec.Struct)

ATTEMPT_FIELDS = ("at", "job", "worker", "url", "site", "attempt", "outcome", "route", "proxy", "status", "bytes",
                  "latency", "cost", "reason", "error")  # fmt: skip
MAX_LOOKUP = 256  # identities per statement
VISIT_FIELDS = ("fetched_at", "url", "job", "status", "archive_ref", "body_hash")


def _insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our own names


_NEXT_NUMBER = "SELECT coalesce(max(number), 0) + 1 FROM records"

# CROSS JOIN fixes the direction: for each wanted identity one step into the index.
_FIND_RECORDS = """
WITH wanted (type, site, key) AS (VALUES {rows})
SELECT records.type, records.site, records.key, number, content_hash, first_seen, last_changed, last_checked, version,
    page
FROM wanted CROSS JOIN records USING (type, site, key)"""

_ADD_RECORD = _insert(
    "records",
    ("number", "type", "site", "key", "url", "job", "spider", "data", "content_hash", "first_seen", "last_changed",
     "last_checked", "version", "page"),
)  # fmt: skip

_SUPERSEDE = """
INSERT INTO superseded (record, version, at, job, data)
SELECT number, version, last_changed, job, data FROM records WHERE number = ?"""

_CHANGE_RECORD = """
UPDATE records SET url = ?, job = ?, spider = ?, data = ?, content_hash = ?, first_seen = ?, last_changed = ?,
    last_checked = ?, version = ?, page = ?
WHERE number = ?"""

_MOVE_TIMES = "UPDATE records SET first_seen = ?, last_checked = ?, page = ? WHERE number = ?"

_CONFIRM = "UPDATE records SET last_checked = max(last_checked, ?) WHERE page = ?"

_SEE_AGAIN = """
INSERT INTO sightings (job, record) SELECT ?, number FROM records WHERE page = ? ON CONFLICT (job, record) DO NOTHING"""

_ADD_SIGHTING = "INSERT INTO sightings (job, record) VALUES (?, ?) ON CONFLICT (job, record) DO NOTHING"

_NEXT_PAGE = "SELECT coalesce(max(number), 0) + 1 FROM pages"

_FIND_PAGES = "SELECT fingerprint, number FROM pages WHERE fingerprint IN (VALUES {rows})"

_ADD_PAGE = _insert("pages", ("number", *PageFacts.__struct_fields__))

_ADD_UNFETCHED_PAGE = "INSERT INTO pages (number, fingerprint, url, job) VALUES (?, ?, ?, ?)"

# Of two visits of the same instant the greater hash stays, so that the order of arrival does not matter.
_KEEP_FACTS = """
UPDATE pages SET url = ?, job = ?, fetched_at = ?, status = ?, etag = ?, last_modified = ?, archive_ref = ?,
    body_hash = ?, parser = ?, links = ?
WHERE number = ? AND (fetched_at IS NULL OR (?, ?) >= (fetched_at, body_hash))"""

_ADD_ATTEMPT = _insert("attempts", ("page", *ATTEMPT_FIELDS)) + " ON CONFLICT (page, at, job, worker) DO NOTHING"

_ADD_VISIT = _insert("visits", ("page", *VISIT_FIELDS)) + " ON CONFLICT (page, fetched_at) DO NOTHING"


def _find(connection: sqlite3.Connection, sql: str, wanted: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Look up many identities with few statements. Filled up to a power of two, so that few texts are prepared."""
    for start in range(0, len(wanted), MAX_LOOKUP):
        part = list(wanted[start : start + MAX_LOOKUP])
        part += part[:1] * ((1 << (len(part) - 1).bit_length()) - len(part))
        row = f"({', '.join('?' * len(part[0]))})"
        values = [value for identity in part for value in identity]
        yield from connection.execute(sql.format(rows=", ".join([row] * len(part))), values).fetchall()


def save_results(
    connection: sqlite3.Connection, results: Sequence[PageResult], now: float, min_age: float
) -> list[int]:
    """Write a batch inside the caller's transaction; return how many records of each result were new or changed."""
    counts = [0] * len(results)
    number, facts = _number_pages(connection, results)
    if any(result.records for result in results):
        batch = _RecordBatch(connection, now, min_age)
        batch.look_up([record for result in results for record in result.records])
        for position, result in enumerate(results):
            page = number[result.attempt.fingerprint]
            counts[position] = sum(batch.take(record, page) for record in last_of_each(result.records))
        batch.flush()
    for attempt in [result.attempt for result in results if result.attempt.outcome == UNCHANGED]:
        connection.execute(_CONFIRM, (min(attempt.at, now), number[attempt.fingerprint]))
        connection.execute(_SEE_AGAIN, (attempt.job, number[attempt.fingerprint]))
    _save_visits(connection, results, number, facts)
    return counts


def _save_visits(
    connection: sqlite3.Connection, results: Sequence[PageResult], number: dict[bytes, int], facts: list[PageFacts]
) -> None:
    """Write attempts, page facts and visits."""
    if facts:
        connection.executemany(
            _KEEP_FACTS,
            [
                (p.url, p.job, p.fetched_at, p.status, p.etag, p.last_modified, p.archive_ref, p.body_hash, p.parser,
                 p.links, number[p.fingerprint], p.fetched_at, p.body_hash)
                for p in facts
            ],
        )  # fmt: skip
    connection.executemany(
        _ADD_ATTEMPT,
        [
            (number[a.fingerprint], a.at, a.job, a.worker, a.url, a.site, a.attempt, a.outcome, a.route, a.proxy,
             a.status, a.bytes, a.latency, a.cost, a.reason, a.error)
            for a in [result.attempt for result in results]
        ],
    )  # fmt: skip
    # A 304 brought no body: its facts point to the copy of an earlier visit, which is listed already.
    visits = [
        (number[p.fingerprint], p.fetched_at, p.url, p.job, p.status, p.archive_ref, p.body_hash)
        for p in (result.page for result in results)
        if p is not None and p.archive_ref and p.status != 304
    ]
    if visits:
        connection.executemany(_ADD_VISIT, visits)


def _number_pages(
    connection: sqlite3.Connection, results: Sequence[PageResult]
) -> tuple[dict[bytes, int], list[PageFacts]]:
    """Give every page of the batch its number, new ones with their row; return also the facts left to be kept.

    A page has a number from its first attempt on.
    """
    seen: dict[bytes, Attempt | PageFacts] = {}
    facts: list[PageFacts] = []
    for result in results:
        seen.setdefault(result.attempt.fingerprint, result.attempt)
        if result.page is not None:
            facts.append(result.page)
            if type(seen.get(result.page.fingerprint)) is not PageFacts:
                seen[result.page.fingerprint] = result.page
    numbers: dict[bytes, int] = dict(_find(connection, _FIND_PAGES, [(fingerprint,) for fingerprint in seen]))
    if len(numbers) == len(seen):
        return numbers, facts
    number: int = connection.execute(_NEXT_PAGE).fetchone()[0]
    fetched: list[tuple[Any, ...]] = []
    unfetched: list[tuple[Any, ...]] = []
    written: set[int] = set()
    for fingerprint, what in seen.items():
        if fingerprint in numbers:
            continue
        if isinstance(what, PageFacts):
            fetched.append((number, *msgspec.structs.astuple(what)))
            written.add(id(what))
        else:
            unfetched.append((number, fingerprint, what.url, what.job))
        numbers[fingerprint] = number
        number += 1
    connection.executemany(_ADD_PAGE, fetched)
    connection.executemany(_ADD_UNFETCHED_PAGE, unfetched)
    return numbers, [page for page in facts if id(page) not in written]


class _RecordBatch:
    """Gathers what a batch of records does to the tables, and writes it with one statement per kind of change."""

    def __init__(self, connection: sqlite3.Connection, now: float, min_age: float) -> None:
        self._connection = connection
        self._now = now
        self._min_age = min_age
        self._next: int = connection.execute(_NEXT_NUMBER).fetchone()[0]
        self._held: dict[tuple[str, str, str], Held] = {}
        self._new: list[tuple[Any, ...]] = []
        self._changed: list[tuple[Any, ...]] = []
        self._moved: dict[int, Held] = {}
        self._unwritten: set[int] = set()  # numbers in _new or _changed
        self._sightings: set[tuple[str, int]] = set()

    def look_up(self, records: Sequence[Record]) -> None:
        """Learn what the store holds of these; `take` decides by that."""
        identities = dict.fromkeys((record.type, record.site, record.key) for record in records)
        for type_, site, key, *rest in _find(self._connection, _FIND_RECORDS, list(identities)):
            self._held[type_, site, key] = Held(*rest)

    def take(self, record: Record, page: int) -> bool:
        """Decide about one record that `page` gave. True when it is new or changed."""
        identity = (record.type, record.site, record.key)
        held = self._held.get(identity)
        # A worker whose clock runs ahead must not freeze the record until everybody else's has caught up.
        scraped_at = min(record.scraped_at, self._now)
        verdict = judge(held, record.content_hash, scraped_at, self._min_age)
        if held is None:
            held = self._add(identity, record, scraped_at, page)
        elif verdict is Verdict.CHANGED:
            self._change(held, record, scraped_at, page)
        elif verdict is Verdict.CHECKED or scraped_at < held.first_seen:
            held.first_seen = min(held.first_seen, scraped_at)
            held.last_checked = max(held.last_checked, scraped_at)
            if verdict is Verdict.CHECKED:
                held.page = page
            self._moved[held.number] = held
        self._sightings.add((record.job, held.number))
        return verdict is Verdict.NEW or verdict is Verdict.CHANGED

    def _add(self, identity: tuple[str, str, str], record: Record, scraped_at: float, page: int) -> Held:
        held = Held(self._next, record.content_hash, scraped_at, scraped_at, scraped_at, 1, page)
        self._held[identity] = held
        self._next += 1
        self._unwritten.add(held.number)
        self._new.append(
            (held.number, *identity, record.url, record.job, record.spider, record.data, record.content_hash,
             scraped_at, scraped_at, scraped_at, 1, page)
        )  # fmt: skip
        return held

    def _change(self, held: Held, record: Record, scraped_at: float, page: int) -> None:
        if held.number in self._unwritten:  # the version that becomes history is not in the table yet
            self.flush()
        held.content_hash = record.content_hash
        held.last_changed = held.last_checked = scraped_at
        held.version += 1
        held.page = page
        self._unwritten.add(held.number)
        self._changed.append(
            (record.url, record.job, record.spider, record.data, record.content_hash, held.first_seen, scraped_at,
             scraped_at, held.version, page, held.number)
        )  # fmt: skip

    def flush(self) -> None:
        """Write what was gathered."""
        write = self._connection.executemany
        if self._new:
            write(_ADD_RECORD, self._new)
        if self._changed:
            write(_SUPERSEDE, [(row[-1],) for row in self._changed])
            write(_CHANGE_RECORD, self._changed)
        if self._moved:
            write(_MOVE_TIMES, [(h.first_seen, h.last_checked, h.page, h.number) for h in self._moved.values()])
        if self._sightings:
            write(_ADD_SIGHTING, sorted(self._sightings))
        self._new.clear()
        self._changed.clear()
        self._moved.clear()
        self._unwritten.clear()
        self._sightings.clear()


def mend_result(result: PageResult) -> PageResult:
    """The result with all its texts mended, so that every one of them can be stored."""
    return PageResult(
        attempt=_mend_struct(result.attempt),
        page=None if result.page is None else _mend_struct(result.page),
        records=tuple(_mend_struct(record) for record in result.records),
    )


def _mend_struct(value: S) -> S:
    fields = msgspec.structs.asdict(value)
    return msgspec.structs.replace(value, **{name: mend(x) for name, x in fields.items() if isinstance(x, str)})
