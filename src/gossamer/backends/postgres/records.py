"""Records, attempts and page facts in PostgreSQL; fulfils `Records`. The tables are in schema/records-*.sql.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored (or all of it, if the connection was lost
during the commit). How it recovers: the same batch can be written again. This module has the contract's methods and the
reading. What a batch writes: record_writes.py. How queries become SQL: record_queries.py. History: record_history.py.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
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
from ...store.record_rules import mend, stored_record, write_cursor
from .connection import CONNECT_WITHIN, PostgresDatabase, Row, Session, open_database
from .errors import Unstorable
from .figures import Count, FigureSheets
from .record_history import (
    COMPARED_DATA,
    HIGHEST,
    RETIRED,
    SEEN_VERSION,
    VERSIONS,
    differences,
    retire_some,
    seen_by_either,
    version_of,
)
from .record_queries import ADOPT, CHUNK, KIND, MOST_FOUND, NEWEST, Selection, selection
from .record_stream import PostgresRecordStream
from .record_writes import Queryable, save_results
from .stored_text import identity_of, queryable, read, stored, stored_results, strictly_queryable

SCHEMA = "gossamer"
PRUNED_PAGES = 20_000  # pages per transaction while pruning: others can write in between

S = TypeVar("S", bound=msgspec.Struct)

_FIND_FACTS = f"""
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT {", ".join(PAGE_FIELDS)} FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint AND fetched_at IS NOT NULL LIMIT 1
) AS found"""  # noqa: S608 - our own names

_ITEMS = f"""
SELECT {", ".join(f"coalesce(sum({name}), 0)" for name in COUNT_FIELDS)}, bool_or(notes <> '') FROM @item_counts
WHERE job = $1"""  # noqa: S608 - our own names
_ITEM_NOTES = "SELECT notes FROM @item_counts WHERE job = $1 AND notes <> ''"
_RECENT_ITEMS = """
SELECT fine, flawed FROM @item_counts WHERE job = $1 AND parser = $2 AND fine + flawed > 0
ORDER BY at DESC LIMIT $3"""

_KNOWN_ATTEMPT = ("fingerprint", *ATTEMPT_FIELDS)
_KNOWN_VISIT = ("fingerprint", *VISIT_FIELDS)


def _of_page(table: str, columns: Sequence[str], order: str) -> str:
    wanted = ", ".join(f"t.{column}" for column in columns)
    return (
        f"SELECT fingerprint, {wanted} FROM @pages AS pages JOIN @{table} AS t ON t.page = pages.number "  # noqa: S608
        f"WHERE fingerprint = $1 ORDER BY t.{order}"
    )


_LIST_ATTEMPTS = _of_page("attempts", ATTEMPT_FIELDS, "at")
_NEWEST = "FROM @attempts WHERE at <= $1 AND at >= $2 ORDER BY at DESC"
_ATTEMPT_LOG = f"""
WITH newest AS MATERIALIZED (
    SELECT * FROM (SELECT * {_NEWEST}, page DESC, job, worker LIMIT {LOOKED_AT}) AS looked
    WHERE ($3::text IS NULL OR job = $3) AND ($4::text IS NULL OR site = $4) AND ($5::text IS NULL OR route = $5)
        AND ($6::text IS NULL OR outcome = $6) AND ($7::text IS NULL OR reason = $7)
    LIMIT $8)
SELECT fingerprint, {", ".join(f"newest.{name}" for name in ATTEMPT_FIELDS)}
FROM newest JOIN @pages AS pages ON pages.number = newest.page
ORDER BY newest.at DESC, newest.page DESC, newest.job, newest.worker"""  # noqa: S608 - our own names
_FLOOR = f"SELECT at {_NEWEST} OFFSET {LOOKED_AT} LIMIT 1"
_LIST_VISITS = _of_page("visits", VISIT_FIELDS, "fetched_at")

_FITS = """{0}.archive_ref <> '' AND ($3::text IS NULL OR {0}.spider = $3) AND ($4::text IS NULL OR {0}.job = $4)
    AND ($5::float8 IS NULL OR {0}.fetched_at >= $5) AND ($6::text[] IS NULL OR {0}.failure = ANY ($6::text[]))"""

# For each page and spider the newest matching visit, in the order of pages.
_ARCHIVED = f"""
SELECT visits.page, fingerprint, {", ".join(f"visits.{name}" for name in VISIT_FIELDS)}
FROM @visits AS visits JOIN @pages AS pages ON pages.number = visits.page
WHERE (visits.page, visits.spider) > ($1, $2) AND {_FITS.format("visits")} AND NOT EXISTS (
    SELECT FROM @visits AS newer
    WHERE newer.page = visits.page AND newer.fetched_at > visits.fetched_at AND newer.spider = visits.spider
        AND {_FITS.format("newer")}
)
ORDER BY visits.page, visits.spider LIMIT {CHUNK}"""  # noqa: S608 - our own names

_STORED_FIELDS = tuple(name for name in StoredRecord.__struct_fields__ if name != "data")
_STORED_COLUMNS = ", ".join(f"records.{name}" for name in ("source", *_STORED_FIELDS))

_LATEST = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT identity, source FROM @records AS records WHERE records.identity = wanted.identity LIMIT 1
) AS found"""

_SCHEMAS = "SELECT id, type, definition, first_stored FROM @schemas"

_SCORES = f"SELECT {', '.join(TALLY_FIELDS)} FROM @quality WHERE ($1::text IS NULL OR spider = $1)"  # noqa: S608

# An operator may have turned off that commits wait for the disk; these must.
_DURABLY = """
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"""
_NOTE_SENT = """
INSERT INTO @sent_notes AS kept (job, fingerprint, owner, at) VALUES ($1, $2, $3, $4)
ON CONFLICT (job, fingerprint) DO UPDATE SET owner = excluded.owner, at = excluded.at
    WHERE kept.owner = excluded.owner OR kept.at < $5
RETURNING 1"""
_FORGET_SENT = "DELETE FROM @sent_notes WHERE job = $1 AND fingerprint = ANY ($2::bytea[])"
_PRUNE_SENT = "DELETE FROM @sent_notes WHERE at < $1"

_HIGHEST_PAGE = "SELECT coalesce(max(number), 0) AS number FROM @pages"
_PRUNE_ATTEMPTS = """
WITH gone AS (DELETE FROM @attempts WHERE page BETWEEN $1 AND $2 AND at < $3 RETURNING 1) SELECT count(*) FROM gone"""
_PRUNE_VISITS = """
WITH gone AS (
    DELETE FROM @visits AS visits USING @pages AS pages
    WHERE pages.number = visits.page AND page BETWEEN $1 AND $2 AND visits.fetched_at < $3
        AND visits.archive_ref <> pages.archive_ref
    RETURNING 1
) SELECT count(*) FROM gone"""


@asynccontextmanager
async def open_postgres_records(
    address: str,
    clock: Clock,
    *,
    min_rewrite_age: timedelta | None = None,
    domains: int = DOMAINS,
    schema: str = SCHEMA,
    connect_within: timedelta = CONNECT_WITHIN,
) -> AsyncIterator[PostgresRecords]:
    """Open the record store at `address`; missing tables are created.

    `domains` have separate figures in the total. A `?schema=` in the address takes precedence over `schema`. Raises
    Misconfigured, BadState, BackendUnavailable.
    """
    async with open_database(address, schema=schema, connect_within=connect_within) as database:
        yield PostgresRecords(database, clock, min_rewrite_age=min_rewrite_age, domains=domains)


class PostgresRecords:
    """Fulfils `Records`. Many processes may write to the same tables."""

    def __init__(
        self,
        database: PostgresDatabase,
        clock: Clock,
        *,
        min_rewrite_age: timedelta | None = None,
        domains: int = DOMAINS,
    ) -> None:
        self._database = database
        self._figures = FigureSheets(database, domains)
        self._clock = clock
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0
        self._known_schemas: set[tuple[str, str]] = set()
        self.stream = PostgresRecordStream(database, self)

    def on(self, database: PostgresDatabase) -> PostgresRecords:
        """The same store, read by other means."""
        return PostgresRecords(database, self._clock)

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        rows = stored_results(results)
        try:
            return await self._save(rows, queryable)
        except Unstorable:
            # A record is JSON for us but not for PostgreSQL. Each is tried alone; one that PostgreSQL rejects is stored
            # only as its exact text.
            known = {one.data: await self.accepted(one.data) for result in rows for one in result.records}
            return await self._save(rows, known.__getitem__)

    async def _save(self, results: Sequence[PageResult], as_json: Queryable) -> list[int]:
        now, min_age = self._clock.now(), self._min_age
        shapes = {(one.type, one.id): one for result in results for one in result.schemas}
        unknown = [one for key, one in shapes.items() if key not in self._known_schemas]
        await self._figures.roll_up_when_due(now)
        async with self._figures.counting() as sheet:

            async def write(session: Session) -> tuple[list[int], Count]:
                count = Count(sheet, results, now)
                return await save_results(session, results, now, min_age, as_json, unknown, count=count), count

            counts, count = await self._database.transact(write)
            count.settle()
        self._known_schemas.update(shapes)
        return counts

    async def accepted(self, source: str) -> str | None:
        """The JSON that PostgreSQL accepts for a record's text; None if it rejects every form of it."""
        for text in dict.fromkeys((queryable(source), strictly_queryable(source))):
            try:
                if text is not None:
                    await self._database.rows("SELECT $1::text::jsonb IS NULL", text)
                    return text
            except Unstorable:
                continue
        return None

    def forget_schemas(self) -> None:
        """The tables were emptied: known shapes must be stored again."""
        self._known_schemas.clear()

    async def latest(self, identities: Sequence[RecordIdentity]) -> dict[RecordIdentity, str]:
        wanted = {identity_of(*map(stored, identity)): identity for identity in identities}
        if not wanted:
            return {}
        rows = await self._database.rows(_LATEST, list(wanted))
        return {wanted[row["identity"]]: read(row["source"]) for row in rows}

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        if not fingerprints:
            return {}
        pages = [_built(PageFacts, PAGE_FIELDS, row) for row in await self._database.rows(_FIND_FACTS, fingerprints)]
        return {page.fingerprint: page for page in pages}

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        return [_built(Attempt, _KNOWN_ATTEMPT, row) for row in await self._database.rows(_LIST_ATTEMPTS, fingerprint)]

    async def attempt_log(self, query: AttemptQuery, *, limit: int, before: str | None = None) -> AttemptPage:
        mark = read_mark(before, query)
        bounds = (mark.at, query.since if query.since is not None else -1e18)
        asked = (query.job, query.site, query.route, query.outcome, query.reason)
        wanted = [stored(text) if text is not None else None for text in asked]
        rows = await self._database.rows(_ATTEMPT_LOG, *bounds, *wanted, limit + mark.skip + 1)
        floor = await self._database.rows(_FLOOR, *bounds) if len(rows) <= limit + mark.skip else []
        found = [_built(Attempt, _KNOWN_ATTEMPT, row) for row in rows]
        return page_of(found, limit, mark, floor[0]["at"] if floor else None)

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        return [_built(PageFacts, _KNOWN_VISIT, row) for row in await self._database.rows(_LIST_VISITS, fingerprint)]

    async def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        spider, job = (stored(text) if text is not None else None for text in (query.spider, query.job))
        failures = [stored(one) for one in query.failures] if query.failures is not None else None
        wanted = (spider, job, query.since, failures)
        last: tuple[int, str] = (-1, "")
        while rows := await self._chunk(_ARCHIVED, *last, *wanted):
            for row in rows:
                yield _built(PageFacts, _KNOWN_VISIT, tuple(row)[1:])
            last = (rows[-1]["page"], rows[-1]["spider"])

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        rows = await self._database.rows(VERSIONS, identity_of(stored(type), stored(site), stored(key)))
        return [version_of(row) for row in rows]

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        identity = identity_of(stored(type), stored(site), stored(key))
        rows = await self._database.rows(SEEN_VERSION, identity, stored(job))
        return rows[0][0] if rows else 0

    async def differences(self, before: str, after: str) -> AsyncIterator[Difference]:
        last, transact = -1, self._database.transact
        while seen := await transact(partial(seen_by_either, before=before, after=after, last=last)):
            differing = [one for one in seen if one.may_differ]
            for start in range(0, len(differing), COMPARED_DATA):
                for one in await transact(partial(differences, seen=differing[start : start + COMPARED_DATA])):
                    yield one
            last = seen[-1].record

    async def retire(self, wanted: Retirement) -> int:
        highest = (await self._database.rows(HIGHEST))[0]["number"]
        starts = range(0, highest + 1, RETIRED)
        return sum(
            [await self._database.transact(partial(retire_some, first=first, wanted=wanted)) for first in starts]
        )

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        rows = [(*map(read, row[:3]), row[3]) for row in map(tuple, await self._database.rows(_SCHEMAS))]
        found = [(ItemSchema(id=id, type=kind, definition=text), at) for id, kind, text, at in rows]
        found.sort(key=lambda one: (one[1], one[0].type, one[0].id))
        return [one for one in found if type is None or one[0].type == mend(type)]

    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        rows = await self._database.rows(_SCORES, stored(spider) if spider is not None else None)
        tallies = [_built(Tally, TALLY_FIELDS, row) for row in rows]
        # Compared and sorted here: the database's collation depends on its settings.
        wanted = [one for one in tallies if one.day >= since]
        return sorted(wanted, key=lambda one: (one.day, one.spider, one.type, one.field, one.rule))

    async def items(self, job: str) -> ItemCounts:
        rows = await self._database.rows(_ITEMS, stored(job))
        *numbers, has_notes = tuple(rows[0])
        notes = await self._database.rows(_ITEM_NOTES, stored(job)) if has_notes else []
        return item_counts((*numbers, "", ""), [row["notes"] for row in notes])

    async def recent_items(self, job: str, parser: str, limit: int) -> list[tuple[int, int]]:
        rows = await self._database.rows(_RECENT_ITEMS, stored(job), parser, limit)
        return [(row["fine"], row["flawed"]) for row in reversed(rows)]

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        return await self._figures.between(since, until, part)

    async def total_figures(self) -> Figures:
        return await self._figures.total()

    async def cursor(self) -> str:
        store, newest, is_ahead = await self._newest()
        if is_ahead:
            await self._database.transact(lambda session: session.run(ADOPT))
            store, newest, _ = await self._newest()
        return write_cursor(KIND, store, newest)

    async def count(self, query: RecordQuery) -> int:
        wanted = await self._selection(query)
        ask = self._database.rows if wanted.few is None else self._chunk
        total: int = (await ask(wanted.count(), *wanted.values))[0][0]
        return total

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        # One short transaction per chunk, continuing after the last number: nothing is locked, and no connection is
        # held, while the reader works.
        wanted = await self._selection(query)
        numbers = await self._few(wanted, query)
        if numbers is not None:
            picked = wanted.picked(_STORED_COLUMNS)
            for start in range(0, len(numbers), CHUNK):
                rows = await self._chunk(picked, *wanted.values, numbers[start : start + CHUNK])
                for row in sorted(rows, key=lambda row: row[0], reverse=query.newest):
                    yield _stored(row)
            return
        sql, last = wanted.chunk(_STORED_COLUMNS, newest=query.newest), query.first()
        while rows := await self._chunk(sql, *wanted.values, last):
            for row in rows:
                yield _stored(row)
            last = rows[-1][0]

    async def _selection(self, query: RecordQuery) -> Selection:
        store, newest, _ = await self._newest() if query.after or query.upto else ("", 0, False)
        return selection(query, store, newest)

    async def _newest(self) -> tuple[str, int, bool]:
        row = (await self._database.rows(NEWEST))[0]
        return row["id"], row["newest"], row["is_ahead"]

    async def _few(self, wanted: Selection, query: RecordQuery) -> list[int] | None:
        """The numbers of the possible matches, in order; None without an index, or if they are too many."""
        if wanted.few is None:
            return None
        rows = await self._chunk(wanted.some(), *wanted.few_values)
        return query.in_order([row[0] for row in rows]) if len(rows) <= MOST_FOUND else None

    async def _chunk(self, sql: str, *values: Any) -> list[Row]:
        return await self._database.transact(lambda session: session.rows(sql, *values))

    async def note_sent(self, note: SentNote, *, replaces_before: float = -math.inf) -> bool:
        async def write(session: Session) -> bool:
            await session.run(_DURABLY)
            values = (stored(note.job), note.fingerprint, note.owner, note.at, replaces_before)
            return bool(await session.rows(_NOTE_SENT, *values))

        return await self._database.transact(write)

    async def forget_sent(self, job: str, fingerprints: Sequence[bytes]) -> None:
        await self._database.transact(lambda session: session.run(_FORGET_SENT, stored(job), list(fingerprints)))

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        await self._database.transact(lambda session: session.run(_PRUNE_SENT, cutoff))
        highest = (await self._database.rows(_HIGHEST_PAGE))[0]["number"]
        return sum([await self._prune(first, cutoff) for first in range(0, highest + 1, PRUNED_PAGES)])

    async def _prune(self, first: int, cutoff: float) -> int:
        async def delete(session: Session) -> int:
            pages = (first, first + PRUNED_PAGES - 1)
            return sum([(await session.rows(sql, *pages, cutoff))[0][0] for sql in (_PRUNE_ATTEMPTS, _PRUNE_VISITS)])

        return await self._database.transact(delete)


def _built(kind: type[S], fields: Sequence[str], row: Sequence[Any]) -> S:
    values = (read(value) if type(value) is str else value for value in row)
    return kind(**dict(zip(fields, values, strict=True)))


def _stored(row: Sequence[Any]) -> StoredRecord:
    _, source, *rest = (read(value) if type(value) is str else value for value in tuple(row))
    return stored_record(source, **dict(zip(_STORED_FIELDS, rest, strict=True)))
