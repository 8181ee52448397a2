"""Records, attempts and page facts in one SQLite file; fulfils `Records`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored. How it recovers: the same batch can be
written again. This module has the contract's methods and the reading. What a batch writes: record_writes.py. How
queries become SQL: record_queries.py. History: record_history.py.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...model.figures import Figures
from ...model.item_account import COUNT_FIELDS, ItemCounts
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity, StoredRecord, Tally
from ...store.attempt_pages import LOOKED_AT, page_of, read_mark
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
from ...store.record_rows import ATTEMPT_FIELDS, PAGE_FIELDS, TALLY_FIELDS, VISIT_FIELDS, item_counts
from ...store.record_rules import mend, stored_record, with_texts, write_cursor
from .connection import Database
from .figures import figures_between, total_figures
from .page_log import find
from .record_history import (
    COMPARED_DATA,
    HIGHEST,
    RETIRED,
    differences,
    retire_some,
    seen_by_either,
    seen_version,
    versions,
)
from .record_queries import CHUNK, KIND, MOST_FOUND, NEWEST, Selection, selection
from .record_stream import SqliteRecordStream
from .record_writes import save_results

APPLICATION_ID = 0x67735265  # "gsRe"
LINGER = timedelta(milliseconds=3)  # how long a save waits for others, to share their commit
PRUNED_PAGES = 20_000  # pages per transaction while pruning: others can write in between

S = TypeVar("S", bound=msgspec.Struct)

_KNOWN_ATTEMPT = ("fingerprint", *ATTEMPT_FIELDS)
_KNOWN_VISIT = ("fingerprint", *VISIT_FIELDS)


def _of_page(table: str, columns: Sequence[str], order: str) -> str:
    wanted = ", ".join(f"{table}.{column}" for column in columns)
    return (
        f"SELECT fingerprint, {wanted} FROM pages JOIN {table} ON {table}.page = pages.number "  # noqa: S608 - our names
        f"WHERE fingerprint = ? ORDER BY {table}.{order}"
    )


_FIND_FACTS = (
    f"SELECT {', '.join(PAGE_FIELDS)} FROM pages "  # noqa: S608 - our own names
    "WHERE fingerprint IN (VALUES {rows}) AND fetched_at IS NOT NULL"
)
_NOTE_SENT = """
INSERT INTO sent_notes (job, fingerprint, owner, at) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO UPDATE SET owner = excluded.owner, at = excluded.at
    WHERE sent_notes.owner = excluded.owner OR sent_notes.at < ?5"""
_LIST_ATTEMPTS = _of_page("attempts", ATTEMPT_FIELDS, "at")
_ASKED = ("job", "site", "route", "outcome", "reason")
_NEWEST = (
    "SELECT page, at, job, worker, site, route, outcome, reason FROM attempt_rows INDEXED BY attempts_at "
    "WHERE at <= ? AND at >= ? ORDER BY at DESC LIMIT ?"
)
_ATTEMPT = (
    f"SELECT fingerprint, {', '.join(f'attempts.{name}' for name in ATTEMPT_FIELDS)} FROM attempts "  # noqa: S608
    "JOIN pages ON pages.number = attempts.page WHERE page = ? AND at = ? AND attempts.job = ? AND worker_number = ?"
)
_LIST_VISITS = _of_page("visits", VISIT_FIELDS, "fetched_at")

# For each page and spider the newest matching visit, in the order of pages.
_ARCHIVED = f"""
SELECT visits.page, fingerprint, {", ".join(f"visits.{name}" for name in VISIT_FIELDS)}
FROM visits CROSS JOIN pages ON pages.number = visits.page
WHERE (visits.page, visits.spider) > (?, ?) AND {{fits}} AND NOT EXISTS (
    SELECT 1 FROM visits AS newer
    WHERE newer.page = visits.page AND newer.fetched_at > visits.fetched_at AND newer.spider = visits.spider
        AND {{newer_fits}}
)
ORDER BY visits.page, visits.spider LIMIT {CHUNK}"""  # noqa: S608 - our own names

_STORED_FIELDS = tuple(name for name in StoredRecord.__struct_fields__ if name != "data")
_STORED_COLUMNS = ", ".join(f"records.{name}" for name in ("data", *_STORED_FIELDS))

_LATEST = """
WITH wanted (type, site, key) AS (VALUES {rows})
SELECT records.type, records.site, records.key, data FROM wanted CROSS JOIN records USING (type, site, key)"""

_SCHEMAS = "SELECT id, type, definition, first_stored FROM schemas ORDER BY first_stored, type, id"

_SCORES = f"SELECT {', '.join(TALLY_FIELDS)} FROM quality WHERE day >= :since AND (:spider IS NULL OR spider = :spider)"  # noqa: S608

_ITEMS = f"""
SELECT {", ".join(f"coalesce(sum({name}), 0)" for name in COUNT_FIELDS)}, max(notes) FROM item_counts
WHERE job = ?"""  # noqa: S608 - our own names
_ITEM_NOTES = "SELECT notes FROM item_counts WHERE job = ? AND notes <> ''"
_RECENT_ITEMS = """
SELECT fine, flawed FROM item_counts WHERE job = ? AND parser = ? AND fine + flawed > 0 ORDER BY at DESC LIMIT ?"""

_HIGHEST_PAGE = "SELECT coalesce(max(number), 0) FROM pages"
_PRUNE_ATTEMPTS = "DELETE FROM attempt_rows WHERE page BETWEEN ? AND ? AND at < ?"
_PRUNE_VISITS = """
DELETE FROM visit_rows WHERE page BETWEEN ? AND ? AND fetched_at < ? AND url <> ''
    AND archive_ref <> (SELECT archive_ref FROM pages WHERE number = visit_rows.page)"""


@asynccontextmanager
async def open_sqlite_records(
    path: Path,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    domains: int = DOMAINS,
) -> AsyncIterator[SqliteRecords]:
    """Open or create the records file. Raises BadState, Misconfigured, BackendUnavailable.

    `domains` have separate figures in the total.
    """
    database = Database(
        path, schema="records", application_id=APPLICATION_ID, durable=True, linger=LINGER, role="records"
    )
    async with database:
        yield SqliteRecords(database, clock, min_rewrite_age=min_rewrite_age, domains=domains)


class SqliteRecords:
    """The record store on one machine. `min_rewrite_age` protects younger versions from change.

    No other object in this process may write to the database.
    """

    def __init__(
        self, database: Database, clock: Clock, *, min_rewrite_age: timedelta | None = None, domains: int = DOMAINS
    ) -> None:
        self._database = database
        self._clock = clock
        self._domains = domains
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0
        self._known_schemas: set[tuple[str, str]] = set()
        self.stream = SqliteRecordStream(database, self)

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        try:
            return await self._save(results)
        except UnicodeEncodeError:
            # A lone surrogate cannot be stored. The driver detected it while binding, so the whole transaction was
            # rolled back; each save of that group arrives here, replaces it in its own texts and repeats.
            return await self._save([with_texts(result, mend) for result in results])

    async def _save(self, results: Sequence[PageResult]) -> list[int]:
        now, min_age = self._clock.now(), self._min_age
        shapes = {(one.type, one.id): one for result in results for one in result.schemas}
        unknown = [one for key, one in shapes.items() if key not in self._known_schemas]
        counts = await self._database.write(
            lambda connection: save_results(connection, results, now, min_age, unknown, most_domains=self._domains)
        )
        self._known_schemas.update(shapes)
        return counts

    def forget_schemas(self) -> None:
        """The tables were emptied: known shapes must be stored again."""
        self._known_schemas.clear()

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        wanted = {(mend(type), mend(site), mend(key)): (type, site, key) for type, site, key in identities}
        rows = await self._database.read(lambda connection: list(find(connection, _LATEST, list(wanted))), quick=True)
        return {wanted[type, site, key]: data for type, site, key, data in rows}

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        def read(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return list(find(connection, _FIND_FACTS, [(fingerprint,) for fingerprint in fingerprints]))

        pages = [_built(PageFacts, PAGE_FIELDS, row) for row in await self._database.read(read, quick=True)]
        return {page.fingerprint: page for page in pages}

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        rows = await self._rows(_LIST_ATTEMPTS, (fingerprint,), quick=True)
        return [_built(Attempt, _KNOWN_ATTEMPT, row) for row in rows]

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        mark = read_mark(before, query)
        bounds = (mark.at, query.since if query.since is not None else -1e18)
        wanted = {name: mend(value) for name in _ASKED if (value := getattr(query, name)) is not None}
        fits = " AND ".join(["1", *(f"{name} = ?" for name in wanted)])

        def read(connection: sqlite3.Connection) -> tuple[list[tuple[Any, ...]], float | None]:
            sql = f"SELECT page, at, job, worker FROM ({_NEWEST}) WHERE {fits} LIMIT ?"  # noqa: S608 - our own names
            keys = connection.execute(sql, (*bounds, LOOKED_AT, *wanted.values(), limit + mark.skip + 1)).fetchall()
            floor = None
            if len(keys) <= limit + mark.skip:
                floor = connection.execute(f"{_NEWEST} OFFSET {LOOKED_AT}", (*bounds, 1)).fetchone()
            return [connection.execute(_ATTEMPT, key).fetchone() for key in keys], floor[1] if floor else None

        rows, floor = await self._database.read(read)
        return page_of([_built(Attempt, _KNOWN_ATTEMPT, row) for row in rows], limit, mark, floor)

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        rows = await self._rows(_LIST_VISITS, (fingerprint,), quick=True)
        return [_built(PageFacts, _KNOWN_VISIT, row) for row in rows]

    async def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        conditions, values = _fitting(query)
        sql = _ARCHIVED.format(
            fits=" AND ".join(f"visits.{condition}" for condition in conditions),
            newer_fits=" AND ".join(f"newer.{condition}" for condition in conditions),
        )
        last: tuple[int, str] = (-1, "")
        while rows := await self._rows(sql, (*last, *values, *values)):
            for row in rows:
                yield _built(PageFacts, _KNOWN_VISIT, row[1:])
            last = (rows[-1][0], rows[-1][1 + _KNOWN_VISIT.index("spider")])

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        return await self._database.read(lambda connection: versions(connection, type, site, key))

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        return await self._database.read(lambda connection: seen_version(connection, job, type, site, key))

    async def differences(self, before: str, after: str) -> AsyncIterator[Difference]:
        last = -1
        while seen := await self._database.read(partial(seen_by_either, before=before, after=after, last=last)):
            differing = [one for one in seen if one.may_differ]
            for start in range(0, len(differing), COMPARED_DATA):
                part = differing[start : start + COMPARED_DATA]
                for one in await self._database.read(partial(differences, seen=part)):
                    yield one
            last = seen[-1].record

    async def retire(self, wanted: Retirement) -> int:
        (highest,) = (await self._rows(HIGHEST))[0]
        starts = range(0, highest + 1, RETIRED)
        return sum([await self._database.write(partial(retire_some, first=first, wanted=wanted)) for first in starts])

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        rows = await self._rows(_SCHEMAS)
        found = [(ItemSchema(id=id, type=kind, definition=text), stored) for id, kind, text, stored in rows]
        return [one for one in found if type is None or one[0].type == mend(type)]

    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        rows = await self._rows(_SCORES, {"since": since, "spider": mend(spider) if spider is not None else None})
        return [_built(Tally, TALLY_FIELDS, row) for row in sorted(rows)]

    async def items(self, job: str) -> ItemCounts:
        rows = await self._rows(_ITEMS, (mend(job),))
        notes = await self._rows(_ITEM_NOTES, (mend(job),)) if rows[0][-1] else []
        return item_counts((*rows[0][:-1], "", ""), [text for (text,) in notes])

    async def recent_items(self, job: str, parser: str, limit: int) -> list[tuple[int, int]]:
        rows = await self._rows(_RECENT_ITEMS, (mend(job), parser, limit))
        return [(fine, flawed) for fine, flawed in reversed(rows)]

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        return await self._database.read(lambda connection: figures_between(connection, since, until, part))

    async def total_figures(self) -> Figures:
        return await self._database.read(lambda connection: total_figures(connection, self._domains))

    async def cursor(self) -> str:
        store, newest = await self._newest()
        return write_cursor(KIND, store, newest)

    async def count(self, query: RecordQuery) -> int:
        rows = await self._rows(*(await self._selection(query)).count())
        total: int = rows[0][0]
        return total

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        # One short read per chunk, continuing after the last number: no lock is held while the reader works.
        wanted = await self._selection(query)
        numbers = await self._few(wanted, query)
        if numbers is not None:
            picked = wanted.picked(_STORED_COLUMNS)
            for start in range(0, len(numbers), CHUNK):
                part = msgspec.json.encode(numbers[start : start + CHUNK]).decode()
                found = await self._rows(picked, (part, *wanted.values))
                for row in sorted(found, key=itemgetter(0), reverse=query.newest):
                    yield _stored(row)
            return
        sql, last = wanted.chunk(_STORED_COLUMNS, newest=query.newest), query.first()
        while rows := await self._rows(sql, (*wanted.values, last)):
            for row in rows:
                yield _stored(row)
            last = rows[-1][0]

    async def _selection(self, query: RecordQuery) -> Selection:
        store, newest = await self._newest() if query.after or query.upto else ("", 0)
        return selection(query, store, newest)

    async def _newest(self) -> tuple[str, int]:
        store, newest = (await self._rows(NEWEST))[0]
        return store, newest

    async def _few(self, wanted: Selection, query: RecordQuery) -> list[int] | None:
        """The numbers of the possible matches, in order; None without an index, or if they are too many."""
        if wanted.few is None:
            return None
        rows = await self._rows(f"{wanted.few} LIMIT {MOST_FOUND + 1}", wanted.few_values)
        return query.in_order([number for (number,) in rows]) if len(rows) <= MOST_FOUND else None

    async def note_sent(self, note: SentNote, *, replaces_before: float = -math.inf) -> bool:
        values = (mend(note.job), note.fingerprint, note.owner, note.at, replaces_before)
        return await self._database.write(lambda connection: connection.execute(_NOTE_SENT, values).rowcount > 0)

    async def forget_sent(self, job: str, fingerprints: Sequence[bytes]) -> None:
        rows = [(mend(job), fingerprint) for fingerprint in fingerprints]
        sql = "DELETE FROM sent_notes WHERE job = ? AND fingerprint = ?"
        await self._database.write(lambda connection: connection.executemany(sql, rows).rowcount)

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        await self._database.write(lambda c: c.execute("DELETE FROM sent_notes WHERE at < ?", (cutoff,)).rowcount)
        highest = (await self._rows(_HIGHEST_PAGE))[0][0]
        return sum([await self._prune(first, cutoff) for first in range(0, highest + 1, PRUNED_PAGES)])

    async def _prune(self, first: int, cutoff: float) -> int:
        values = (first, first + PRUNED_PAGES - 1, cutoff)
        return await self._database.write(
            lambda connection: sum(connection.execute(sql, values).rowcount for sql in (_PRUNE_ATTEMPTS, _PRUNE_VISITS))
        )

    async def _rows(
        self, sql: str, values: Sequence[Any] | dict[str, Any] = (), *, quick: bool = False
    ) -> list[tuple[Any, ...]]:
        return await self._database.read(lambda connection: connection.execute(sql, values).fetchall(), quick=quick)


def _fitting(query: VisitQuery) -> tuple[list[str], list[Any]]:
    """The conditions of a query for visits, each for one column, and their values."""
    conditions: list[str] = ["archive_ref <> ''"]
    values: list[Any] = []
    for column, wanted in (("spider", query.spider), ("job", query.job)):
        if wanted is not None:
            conditions.append(f"{column} = ?")
            values.append(mend(wanted))
    if query.since is not None:
        conditions.append("fetched_at >= ?")
        values.append(query.since)
    if query.failures is not None:
        conditions.append("failure IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode([mend(one) for one in query.failures]).decode())
    return conditions, values


def _built(kind: type[S], fields: Sequence[str], row: Sequence[Any]) -> S:
    return kind(**dict(zip(fields, row, strict=True)))


def _stored(row: Sequence[Any]) -> StoredRecord:
    _, data, *rest = row
    return stored_record(data, **dict(zip(_STORED_FIELDS, rest, strict=True)))
