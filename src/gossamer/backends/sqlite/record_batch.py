"""The transaction that writes a batch of results into a SQLite file: what backends/records/writes.py leaves to it.

Writers take turns, so numbers are counted on, and nothing is locked. Attempts and visits do not repeat what their page
says (schema/records-001.sql): this module writes them, views read them. All writers share the sheet with the figures of
a minute; the one that opens a new sheet rolls up the finished ones in the same transaction, so the tables stay small
without a maintenance process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ...model.figures import MINUTE, Figures, counted, sum_figures
from ...model.record import PageFacts, PageResult
from ...store.erasure import ResultMarks, every_mark
from ...store.figure_rules import (
    KEEP_MINUTES,
    KEEP_TEN_MINUTES,
    ROLLED_AT_ONCE,
    STAYS_OPEN,
    TEN_MINUTES,
    figures_text,
    read_figures,
    roll_up_figures,
    rows_for,
)
from ...store.record_rows import ATTEMPT_FIELDS, PAGE_FIELDS, VISIT_FIELDS
from ..records.changes import Identity
from ..records.dialect import Row
from ..records.statements import each_row
from .record_sql import NEXT_REVISION, SQLITE, sqlite_spelling, sqlite_value

MAX_LOOKUP = 256  # identities per statement
_WORKER = 1 + ATTEMPT_FIELDS.index("worker")


def insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our own names


_NEXT_PAGE = "SELECT coalesce(max(number), 0) + 1 FROM pages"
_FIND_PAGES = "SELECT fingerprint, number, fetched_at, body_hash FROM pages WHERE fingerprint IN (VALUES {rows})"
_ADD_PAGE = insert("pages", ("number", *PAGE_FIELDS))

_NEXT_RECORD = "SELECT coalesce(max(number), 0) + 1 FROM records"
_NEXT_REVISION = sqlite_spelling(f"SELECT {NEXT_REVISION}")
_FIND_MARKS = "SELECT mark, until FROM erased WHERE mark IN (VALUES {rows})"
# CROSS JOIN fixes the direction: for each wanted identity one step into the index.
_FIND_RECORDS = """
WITH wanted (type, site, key) AS (VALUES {rows})
SELECT records.type, records.site, records.key, number, content_hash, first_seen, last_changed, last_checked, version,
    page, gone_since IS NOT NULL, spider
FROM wanted CROSS JOIN records USING (type, site, key)"""
_ADD_RECORD = insert("records", ("number", "revision", *SQLITE.added))

_ADD_ATTEMPT = f"""
INSERT INTO attempt_rows (page, {", ".join(ATTEMPT_FIELDS)})
SELECT ?1, ?2, ?3, (SELECT number FROM attempt_workers WHERE name = ?4),
    iif(?5 = (SELECT url FROM pages WHERE number = ?1), '', ?5), ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16
WHERE true
ON CONFLICT (page, at, job, worker) DO NOTHING"""  # noqa: S608 - our own names
_ADD_WORKER = "INSERT INTO attempt_workers (name) VALUES (?) ON CONFLICT DO NOTHING"

_ADD_VISIT = f"""
INSERT INTO visit_rows (page, {", ".join(VISIT_FIELDS)})
SELECT ?1, ?2, iif(same, '', ?3), ?4, ?5, iif(same, '', ?6), iif(same, x'', ?7), ?8, ?9
FROM (SELECT (url, archive_ref, body_hash) = (?3, ?6, ?7) AS same FROM pages WHERE number = ?1) WHERE true
ON CONFLICT (page, fetched_at) DO NOTHING"""  # noqa: S608 - our own names

_KEEP_TRIED = """
UPDATE attempt_rows SET url = (SELECT url FROM pages WHERE number = ?1) WHERE page = ?1 AND url = ''
    AND EXISTS (SELECT 1 FROM pages WHERE number = ?1 AND url <> ?2)"""
_KEEP_VISITED = """
UPDATE visit_rows SET (url, archive_ref, body_hash) = (SELECT url, archive_ref, body_hash FROM pages WHERE number = ?1)
WHERE page = ?1 AND url = ''
    AND EXISTS (SELECT 1 FROM pages WHERE number = ?1 AND (url, archive_ref, body_hash) <> (?2, ?3, ?4))"""


def find(connection: sqlite3.Connection, sql: str, wanted: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Look up many identities with few statements. Padded to a power of two, so that few statements are prepared."""
    for start in range(0, len(wanted), MAX_LOOKUP):
        part = list(wanted[start : start + MAX_LOOKUP])
        part += part[:1] * ((1 << (len(part) - 1).bit_length()) - len(part))
        row = f"({', '.join('?' * len(part[0]))})"
        values = [value for identity in part for value in identity]
        yield from connection.execute(sql.format(rows=", ".join([row] * len(part))), values).fetchall()


def known_marks(connection: sqlite3.Connection, marks: Sequence[ResultMarks]) -> dict[bytes, float]:
    """Those of these marks of erased records and pages that exist."""
    if connection.execute("SELECT 1 FROM erased LIMIT 1").fetchone() is None:  # nearly always
        return {}
    return dict(find(connection, _FIND_MARKS, [(mark,) for mark in every_mark(marks)]))


class SqliteBatch:
    """Fulfils `BatchWriter`: nothing in it waits. `most_domains` is how many have separate figures in the total."""

    words = SQLITE

    def __init__(self, connection: sqlite3.Connection, now: float, most_domains: int) -> None:
        self._connection = connection
        self._now = now
        self._most_domains = most_domains
        self._revision: int | None = None

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        return self._connection.execute(sqlite_spelling(sql), [sqlite_value(value) for value in values]).fetchall()

    async def run(self, sql: str, *values: Any) -> int:
        return self._connection.execute(sqlite_spelling(sql), [sqlite_value(value) for value in values]).rowcount

    async def find(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        statement = _each_row(sql, len(rows[0]))[0]
        return [found for row in rows for found in self._connection.execute(statement, row)]

    async def write(self, sql: str, rows: Sequence[Row]) -> None:
        statement, is_change = _each_row(sql, len(rows[0]))
        if is_change:
            revision = self._next_revision()
            rows = [(*row, revision) for row in rows]
        self._connection.executemany(statement, rows)

    def _next_revision(self) -> int:
        if self._revision is None:
            self._revision = self._connection.execute(_NEXT_REVISION).fetchone()[0]
        return self._revision

    def hashed(self, *texts: str) -> tuple[bytes, ...]:
        return ()

    def identity(self, type: str, site: str, key: str) -> Identity:
        return type, site, key

    def content(self, data: str) -> tuple[str | None, ...]:
        return (data,)

    async def lock_pages(self, fingerprints: Sequence[bytes]) -> list[Row]:
        return list(find(self._connection, _FIND_PAGES, [(one,) for one in fingerprints]))

    async def add_pages(self, rows: Sequence[Row]) -> dict[bytes, int]:
        first: int = self._connection.execute(_NEXT_PAGE).fetchone()[0]
        self._connection.executemany(_ADD_PAGE, [(number, *row) for number, row in enumerate(rows, first)])
        return {row[0]: number for number, row in enumerate(rows, first)}

    async def set_apart(self, facts: Sequence[tuple[int, PageFacts]]) -> None:
        write = self._connection.executemany
        write(_KEEP_TRIED, [(number, page.url) for number, page in facts])
        write(_KEEP_VISITED, [(number, page.url, page.archive_ref, page.body_hash) for number, page in facts])

    async def lock_records(self, identities: Collection[Identity], pages: Sequence[int]) -> list[Row]:
        return [(row[:3], *row[3:]) for row in find(self._connection, _FIND_RECORDS, list(identities))]

    async def add_records(self, records: Sequence[tuple[Identity, Row]]) -> dict[Identity, int]:
        first: int = self._connection.execute(_NEXT_RECORD).fetchone()[0]
        revision = self._next_revision()
        rows = [(number, revision, *row) for number, (_, row) in enumerate(records, first)]
        self._connection.executemany(_ADD_RECORD, rows)
        return {identity: number for number, (identity, _) in enumerate(records, first)}

    async def add_attempts(self, rows: Sequence[Row]) -> None:
        self._add_workers(rows)
        self._connection.executemany(_ADD_ATTEMPT, rows)

    async def count_attempts(self, results: Sequence[PageResult], rows: Sequence[Row]) -> Sequence[PageResult]:
        add, new = self._connection.execute, results
        self._add_workers(rows)
        add("SAVEPOINT attempts")
        if self._connection.executemany(_ADD_ATTEMPT, rows).rowcount < len(rows):
            # Some are known: the driver tells which ones only one by one.
            add("ROLLBACK TO attempts")
            new = [one for one, row in zip(results, rows, strict=True) if add(_ADD_ATTEMPT, row).rowcount]
        add("RELEASE attempts")
        _count_figures(self._connection, new, self._now, self._most_domains)
        return new

    def _add_workers(self, attempts: Sequence[Row]) -> None:
        self._connection.executemany(_ADD_WORKER, [(worker,) for worker in {one[_WORKER] for one in attempts}])

    async def add_visits(self, rows: Sequence[Row]) -> None:
        self._connection.executemany(_ADD_VISIT, rows)


@lru_cache(maxsize=256)
def _each_row(sql: str, values: int) -> tuple[str, bool]:
    """The statement for one row, and whether it takes the revision as its last value."""
    revised = sql.replace(SQLITE.revision, f"${values + 1}")
    return sqlite_spelling(each_row(revised)), revised != sql


# -- figures ---------------------------------------------------------------------------------------------------------

_READ_SHEET = "SELECT figures FROM figure_sheets WHERE start = ?"
_WRITE_SHEET = "INSERT OR REPLACE INTO figure_sheets (start, figures) VALUES (?, ?)"
_READ_ROW = "SELECT figures FROM figures WHERE span = ? AND start = ?"
_WRITE_ROW = "INSERT OR REPLACE INTO figures (span, start, figures) VALUES (?, ?, ?)"

_OVER = f"SELECT start, figures FROM figure_sheets WHERE start < ? ORDER BY start LIMIT {ROLLED_AT_ONCE}"  # noqa: S608
_OLD = f"SELECT start, figures FROM figures WHERE span = {MINUTE} AND start <= ? ORDER BY start LIMIT {ROLLED_AT_ONCE}"  # noqa: S608
_FORGET = f"DELETE FROM figures WHERE span = {TEN_MINUTES} AND start < ?"  # noqa: S608 - our own numbers


def _count_figures(connection: sqlite3.Connection, new: Sequence[PageResult], now: float, most_domains: int) -> None:
    """Count attempts that are new, inside the caller's transaction."""
    opens = False
    for start, figures in counted(new, now).items():
        held = connection.execute(_READ_SHEET, (start,)).fetchone()
        if held is None:
            opens = True
        else:
            figures = sum_figures([read_figures(held[0]), figures])
        connection.execute(_WRITE_SHEET, (start, figures_text(figures)))
    if opens:
        _roll_up(connection, now, most_domains)


def _roll_up(connection: sqlite3.Connection, now: float, most_domains: int) -> None:
    sheets = _read(connection, _OVER, now - MINUTE - STAYS_OPEN)
    minutes = _read(connection, _OLD, now - KEEP_MINUTES)
    if sheets or minutes:
        held: dict[tuple[int, int], Figures] = {}
        for row in rows_for(sheets, minutes, now):
            found = connection.execute(_READ_ROW, row).fetchone()
            if found is not None:
                held[row] = read_figures(found[0])
        rows = roll_up_figures(held, sheets.items(), minutes.items(), now=now, most_domains=most_domains)
        connection.executemany("DELETE FROM figure_sheets WHERE start = ?", [(start,) for start in sheets])
        connection.executemany("DELETE FROM figures WHERE span = 60 AND start = ?", [(start,) for start in minutes])
        connection.executemany(_WRITE_ROW, [(*row, figures_text(figures)) for row, figures in rows.items()])
    connection.execute(_FORGET, (now - KEEP_TEN_MINUTES,))


def _read(connection: sqlite3.Connection, sql: str, before: float) -> dict[int, Figures]:
    return {start: read_figures(text) for start, text in connection.execute(sql, (before,)).fetchall()}
