"""The part of a record store that is the same in every dialect of SQL: all reading, and the writing that is rare.

How it fails: `BackendUnavailable`, and then nothing of the batch is stored. How it recovers: the same batch can be
written again. What queries become: queries.py. History: history.py.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import TypeVar

import msgspec

from ...clock import Clock
from ...model.erasure import Holdings
from ...model.figures import FAILURES, MINUTE, NOTHING, SUCCESSES, Figures
from ...model.item_account import COUNT_FIELDS, ItemCounts
from ...model.outcome import NOT_FOUND
from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, RecordIdentity, StoredRecord, Tally
from ...store.contract import FigurePart, Measured, RecordQuery, SentNote, SiteCounts, SpareCopy, VisitQuery
from ...store.figure_rules import TEN_MINUTES, read_figures, reader_of, sort_measured, total_of
from ...store.record_rows import ATTEMPT_FIELDS, TALLY_FIELDS, VISIT_FIELDS, item_counts
from ...store.record_rules import mend, stored_record, write_cursor
from . import erasure, queries
from .dialect import Row, SqlDatabase, SqlSession
from .history import SqlHistory
from .queries import CHUNK, Selection, selection
from .views import SqlItemViews

SPARE_PAGES = 2_000  # whose copies are looked at together
PRUNED_PAGES = 20_000  # pages per transaction while pruning: others can write in between

S = TypeVar("S", bound=msgspec.Struct)

KNOWN_ATTEMPT = ("fingerprint", *ATTEMPT_FIELDS)
_KNOWN_VISIT = ("fingerprint", *VISIT_FIELDS)


def _of_page(table: str, columns: Sequence[str], order: str) -> str:
    wanted = ", ".join(f"t.{column}" for column in columns)
    return (
        f"SELECT fingerprint, {wanted} FROM @pages AS pages JOIN @{table} AS t ON t.page = pages.number "  # noqa: S608
        f"WHERE fingerprint = $1{{0}} ORDER BY t.{order}"
    )


_OF_JOB = " AND t.job = $2"


_LIST_ATTEMPTS = _of_page("attempts", ATTEMPT_FIELDS, "at")
_LIST_VISITS = _of_page("visits", VISIT_FIELDS, "fetched_at")

_FITS = """{0}.archive_ref <> '' AND ($3::text IS NULL OR {0}.spider = $3) AND ($4::text IS NULL OR {0}.job = $4)
    AND ($5::float8 IS NULL OR {0}.fetched_at >= $5) AND ($6::text[] IS NULL OR {0}.failure = ANY ($6::text[]))"""

# For each page and spider the newest matching visit, in the order of pages.
_ARCHIVED = f"""
SELECT visits.page, fingerprint, {", ".join(f"visits.{name}" for name in VISIT_FIELDS)}
FROM @visits AS visits JOIN @pages AS pages ON pages.number = visits.page
WHERE (visits.page, visits.spider) > ($1, $2) AND {_FITS.format("visits")} AND NOT EXISTS (
    SELECT 1 FROM @visits AS newer
    WHERE newer.page = visits.page AND newer.fetched_at > visits.fetched_at AND newer.spider = visits.spider
        AND {_FITS.format("newer")}
)
ORDER BY visits.page, visits.spider LIMIT {CHUNK}"""  # noqa: S608 - our own names

COUNTED = 300_000  # attempts, and records, that are counted for the sites of one job


def _number_of(outcomes: Iterable[str], reasons: Iterable[str] = ()) -> str:
    chosen = " AND ".join(
        f"{field} IN ({', '.join(repr(one) for one in sorted(words))})"
        for field, words in (("outcome", outcomes), ("reason", reasons))
        if words
    )
    return f"sum(CASE WHEN {chosen} THEN 1 ELSE 0 END)"


_SITE_ATTEMPTS = f"""
SELECT site, {_number_of(("done", "unchanged"))}, {_number_of(("dead",))},
    {_number_of(("dead",), NOT_FOUND)}, {_number_of(("reparsed",))}, {_number_of(SUCCESSES)}, {_number_of(FAILURES)},
    CAST(sum(bytes) AS bigint), sum(cost)
FROM (SELECT job, site, outcome, reason, bytes, cost FROM @attempts AS attempts WHERE at >= $2 AND at <= $3
    ORDER BY at DESC LIMIT {COUNTED}) AS newest
WHERE job = $1 GROUP BY site ORDER BY count(*) DESC, site LIMIT $4"""  # noqa: S608 - our own words
_SITE_RECORDS = f"""
SELECT records.site, count(*) FROM (SELECT record FROM @sightings WHERE job = $1 LIMIT {COUNTED}) AS seen
JOIN @records AS records ON records.number = seen.record GROUP BY records.site"""  # noqa: S608 - our own words

_STORED_FIELDS = tuple(name for name in StoredRecord.__struct_fields__ if name != "data")

_SCHEMAS = "SELECT id, type, definition, first_stored FROM @schemas"
_SCORES = f"SELECT {', '.join(TALLY_FIELDS)} FROM @quality WHERE $1::text IS NULL OR spider = $1"  # noqa: S608

_ITEMS = f"""
SELECT {", ".join(f"coalesce(sum({name}), 0)" for name in COUNT_FIELDS)}, max(notes) FROM @item_counts
WHERE job = $1"""  # noqa: S608 - our own names
_ITEM_NOTES = "SELECT notes FROM @item_counts WHERE job = $1 AND notes <> ''"
_RECENT_ITEMS = """
SELECT fine, flawed FROM @item_counts WHERE job = $1 AND parser = $2 AND fine + flawed > 0
ORDER BY at DESC LIMIT $3"""

_FIGURES = f"""
SELECT span, start, figures FROM @figures WHERE span IN ({MINUTE}, {TEN_MINUTES}) AND start >= $1 AND start < $2
UNION ALL SELECT {MINUTE}, start, figures FROM @figure_sheets WHERE start >= $1 AND start < $2"""  # noqa: S608
_TOTAL_FIGURES = f"""
SELECT span, start, figures FROM @figures WHERE span = 0
UNION ALL SELECT {MINUTE}, start, figures FROM @figure_sheets"""  # noqa: S608 - our own numbers

_NOTE_SENT = """
INSERT INTO @sent_notes AS kept (job, fingerprint, owner, at) VALUES ($1, $2, $3, $4)
ON CONFLICT (job, fingerprint) DO UPDATE SET owner = excluded.owner, at = excluded.at
    WHERE kept.owner = excluded.owner OR kept.at < $5"""
_FORGET_SENT = "DELETE FROM @sent_notes WHERE job = $1 AND fingerprint = $2"
_PRUNE_SENT = "DELETE FROM @sent_notes WHERE at < $1"
# Visits beyond the newest of their page, without those that a reparse reads, for each spider: the newest, and the
# newest that it parsed well.
_SPARE_COPIES = """
SELECT page, fetched_at, fingerprint, job, archive_ref, of_job = 1 FROM (
    SELECT visits.page, visits.fetched_at, fingerprint, visits.job, visits.archive_ref, visits.failure,
        pages.archive_ref AS newest_ref,
        row_number() OVER (PARTITION BY visits.page ORDER BY visits.fetched_at DESC) AS place,
        row_number() OVER (PARTITION BY visits.page, visits.job ORDER BY visits.fetched_at DESC) AS of_job,
        row_number() OVER (PARTITION BY visits.page, visits.spider ORDER BY visits.fetched_at DESC) AS of_spider,
        row_number() OVER (PARTITION BY visits.page, visits.spider, visits.failure = ''
            ORDER BY visits.fetched_at DESC) AS of_kind
    FROM @visits AS visits JOIN @pages AS pages ON pages.number = visits.page
    WHERE visits.page BETWEEN $1 AND $2 AND visits.archive_ref <> ''
) AS known
WHERE place > $3 AND fetched_at < $4::float8 AND archive_ref <> newest_ref AND of_spider > 1
    AND (failure <> '' OR of_kind > 1)
ORDER BY page, fetched_at"""
_HIGHEST_PAGE = "SELECT coalesce(max(number), 0) FROM @pages"


class SqlRecords(SqlHistory, ABC):
    """The common part of the record stores in SQL. `min_rewrite_age` protects younger versions from change; `domains`
    have separate figures in the total."""

    def __init__(
        self, sql: SqlDatabase, views: SqlItemViews, clock: Clock, *, min_rewrite_age: timedelta | None, domains: int
    ) -> None:
        self.sql = sql
        self.views = views
        self._clock = clock
        self._min_age = min_rewrite_age.total_seconds() if min_rewrite_age is not None else 0.0
        self._domains = domains
        self._known_schemas: set[tuple[str, str]] = set()

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        if not results:
            return []
        shapes = {(one.type, one.id): one for result in results for one in result.schemas}
        unknown = [one for key, one in shapes.items() if key not in self._known_schemas]
        counts = await self._save(results, unknown)
        self._known_schemas.update(shapes)
        await self.views.keep(results, {one.type for one in unknown})
        return counts

    @abstractmethod
    async def _save(self, results: Sequence[PageResult], schemas: Sequence[ItemSchema]) -> list[int]:
        """Store a batch; `schemas` are those that may be new."""

    def forget_schemas(self) -> None:
        """The tables were emptied: known shapes must be stored again."""
        self._known_schemas.clear()

    async def attempts(self, fingerprint: bytes, job: str | None = None) -> list[Attempt]:
        rows = await self._of_page(_LIST_ATTEMPTS, fingerprint, job)
        return [struct_of(Attempt, KNOWN_ATTEMPT, row) for row in rows]

    async def _of_page(self, sql: str, fingerprint: bytes, job: str | None) -> list[Row]:
        if job is None:
            return await self.sql.rows(sql.format(""), fingerprint)
        return await self.sql.rows(sql.format(_OF_JOB), fingerprint, job, quick=True)

    async def site_counts(self, job: str, since: float, until: float, limit: int) -> list[SiteCounts]:
        rows = await self.sql.rows(_SITE_ATTEMPTS, job, since, until, limit)
        records: dict[str, int] = {row[0]: row[1] for row in await self.sql.rows(_SITE_RECORDS, job)}
        return [
            SiteCounts(
                site=site, pages=pages, dead=dead, missing=missing, mended=mended, good=good, bad=bad, bytes=received,
                credits=credits, records=records.get(site, 0),
            )
            for site, pages, dead, missing, mended, good, bad, received, credits in rows
        ]  # fmt: skip

    async def visits(self, fingerprint: bytes, job: str | None = None) -> list[PageFacts]:
        rows = await self._of_page(_LIST_VISITS, fingerprint, job)
        return [struct_of(PageFacts, _KNOWN_VISIT, row) for row in rows]

    async def archived(self, query: VisitQuery) -> AsyncIterator[PageFacts]:
        failures = list(query.failures) if query.failures is not None else None
        last: tuple[int, str] = (-1, "")
        while rows := await self.sql.look_up(_ARCHIVED, *last, query.spider, query.job, query.since, failures):
            for row in rows:
                yield struct_of(PageFacts, _KNOWN_VISIT, row[1:])
            last = (rows[-1][0], rows[-1][1 + _KNOWN_VISIT.index("spider")])

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        rows = sorted(await self.sql.rows(_SCHEMAS), key=itemgetter(3, 1, 0))
        found = [(ItemSchema(id=id, type=kind, definition=text), stored) for id, kind, text, stored in rows]
        return [one for one in found if type is None or one[0].type == mend(type)]

    async def scores(self, *, spider: str | None = None, since: str = "") -> list[Tally]:
        # Compared and sorted here: the order of texts in a database depends on its settings.
        rows = sorted(row for row in await self.sql.rows(_SCORES, spider) if row[0] >= since)
        return [struct_of(Tally, TALLY_FIELDS, row) for row in rows]

    async def items(self, job: str) -> ItemCounts:
        *numbers, has_notes = (await self.sql.rows(_ITEMS, job))[0]
        notes = await self.sql.rows(_ITEM_NOTES, job) if has_notes else []
        return item_counts((*numbers, "", ""), [text for (text,) in notes])

    async def recent_items(self, job: str, parser: str, limit: int) -> list[tuple[int, int]]:
        rows = await self.sql.rows(_RECENT_ITEMS, job, parser, limit)
        return [(fine, flawed) for fine, flawed in reversed(rows)]

    async def figures(self, since: float, until: float, part: FigurePart | None = None) -> list[Measured]:
        rows, read = await self._figure_rows(_FIGURES, math.ceil(since), math.ceil(until)), reader_of(part)
        return sort_measured((span, start, read(text)) for span, start, text in rows)

    async def total_figures(self) -> Figures:
        found = [(span, read_figures(text)) for span, _, text in sorted(await self._figure_rows(_TOTAL_FIGURES))]
        total = next((figures for span, figures in found if not span), NOTHING)
        return total_of(total, [figures for span, figures in found if span], most_domains=self._domains)

    async def _figure_rows(self, sql: str, *values: int) -> list[Row]:
        return await self.sql.rows(sql, *values)

    async def cursor(self) -> str:
        return write_cursor(self.sql.dialect.kind, *await self._newest())

    async def count(self, query: RecordQuery) -> int:
        wanted = await self._selection(query)
        sql, values = wanted.count()
        ask = self.sql.rows if wanted.few is None else self.sql.look_up
        total: int = (await ask(sql, *values))[0][0]
        return total

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        # One short read per chunk, continuing after the last number: nothing is locked, and no connection is held,
        # while the reader works.
        columns = ", ".join(f"records.{name}" for name in (self.sql.dialect.text, *_STORED_FIELDS))
        wanted = await self._selection(query)
        numbers = await self._few(wanted, query)
        if numbers is not None:
            picked = wanted.picked(columns)
            for start in range(0, len(numbers), CHUNK):
                rows = await self.sql.look_up(picked, *wanted.values, numbers[start : start + CHUNK])
                for row in sorted(rows, key=itemgetter(0), reverse=query.newest):
                    yield _stored(row)
            return
        sql, last = wanted.chunk(columns, newest=query.newest), query.first()
        while rows := await self.sql.look_up(sql, *wanted.values, last):
            for row in rows:
                yield _stored(row)
            last = rows[-1][0]

    async def _selection(self, query: RecordQuery) -> Selection:
        store, newest = await self._newest() if query.after or query.upto else ("", 0)
        return selection(self.sql.dialect, query, store, newest)

    async def _newest(self) -> tuple[str, int]:
        store, newest = (await self.sql.rows(self.sql.dialect.newest))[0][:2]
        return store, newest

    async def _few(self, wanted: Selection, query: RecordQuery) -> list[int] | None:
        """The numbers of the possible matches, in order; None without an index, or if they are too many."""
        if wanted.few is None:
            return None
        rows = await self.sql.look_up(wanted.some(), *wanted.few_values)
        return query.in_order([number for (number,) in rows]) if len(rows) <= queries.MOST_FOUND else None

    async def note_sent(self, note: SentNote, *, replaces_before: float = -math.inf) -> bool:
        values = (note.job, note.fingerprint, note.owner, note.at, replaces_before)

        async def write(session: SqlSession) -> bool:
            return await session.run(_NOTE_SENT, *values) > 0

        return await self.sql.transact(write)

    async def forget_sent(self, job: str, fingerprints: Sequence[bytes]) -> None:
        rows = [(job, fingerprint) for fingerprint in fingerprints]
        await self.sql.transact(lambda session: session.run_many(_FORGET_SENT, rows))

    async def mark_erased(self, marks: Sequence[bytes], until: float) -> None:
        await erasure.mark_erased(self.sql, marks, until)

    async def holdings(
        self, records: Sequence[RecordIdentity], pages: Sequence[bytes], linking: Sequence[bytes] = ()
    ) -> Holdings:
        return await erasure.holdings(self.sql, records, pages, linking)

    async def erase(self, records: Sequence[RecordIdentity], found: Holdings, until: float) -> int:
        return await erasure.erase(self.sql, records, found, until)

    @abstractmethod
    async def compact(self, *, rewrite: bool = False) -> str: ...

    async def prune(self, older_than: timedelta) -> int:
        cutoff = self._clock.now() - older_than.total_seconds()
        await self.sql.transact(lambda session: session.run(_PRUNE_SENT, cutoff))
        highest = (await self.sql.rows(_HIGHEST_PAGE))[0][0]
        return sum([await self._prune(first, cutoff) for first in range(0, highest + 1, PRUNED_PAGES)])

    async def _prune(self, first: int, cutoff: float) -> int:
        pages = (first, first + PRUNED_PAGES - 1)

        async def delete(session: SqlSession) -> int:
            return sum([await session.run(sql, *pages, cutoff) for sql in self.sql.dialect.prunes])

        return await self.sql.transact(delete)

    async def spare_copies(self, keep: int, before: float) -> AsyncIterator[list[SpareCopy]]:
        highest = (await self.sql.rows(_HIGHEST_PAGE))[0][0]
        for first in range(0, highest + 1, SPARE_PAGES):
            rows = await self.sql.look_up(_SPARE_COPIES, first, first + SPARE_PAGES - 1, keep, before)
            fields = SpareCopy.__struct_fields__
            if found := [
                SpareCopy(**{**dict(zip(fields, row, strict=True)), fields[-1]: bool(row[-1])}) for row in rows
            ]:
                yield found

    async def forget_copies(self, copies: Sequence[SpareCopy]) -> None:
        visits = self.sql.dialect.visits
        sql = f"DELETE FROM {visits} WHERE page = $1 AND fetched_at = $2::float8 AND archive_ref = $3"  # noqa: S608
        rows = [(one.page, one.fetched_at, one.ref) for one in copies]
        await self.sql.transact(lambda session: session.run_many(sql, rows))


def struct_of(kind: type[S], fields: Sequence[str], row: Row) -> S:
    return kind(**dict(zip(fields, row, strict=True)))


def _stored(row: Row) -> StoredRecord:
    _, text, *rest = row
    return stored_record(text, **dict(zip(_STORED_FIELDS, rest, strict=True)))
