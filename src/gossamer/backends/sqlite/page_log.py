"""What a batch of results writes to the log of pages: pages, attempts, archived visits, and the counts of the checks.

Runs inside the transaction of record_writes.py. The same attempt reported twice is one attempt, and is counted once.
Attempts and visits do not repeat what their page says (schema/records-001.sql): this module writes them, views read
them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ...model.record import Attempt, ItemSchema, PageFacts, PageResult, Tally
from ...store.record_rows import ATTEMPT_FIELDS, TALLY_FIELDS, VISIT_FIELDS, attempt_values, visit_values
from ...store.record_rules import REPARSED, added_up, archived_visits, is_stale, reparsed, reread

MAX_LOOKUP = 256  # identities per statement
_WORKER = 1 + ATTEMPT_FIELDS.index("worker")


def insert(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608 - our own names


_NEXT_PAGE = "SELECT coalesce(max(number), 0) + 1 FROM pages"

_FIND_PAGES = "SELECT fingerprint, number FROM pages WHERE fingerprint IN (VALUES {rows})"

_ADD_PAGE = insert("pages", ("number", *PageFacts.__struct_fields__))

_ADD_UNFETCHED_PAGE = """
INSERT INTO pages (number, fingerprint, url, job, etag, last_modified, archive_ref, body_hash, parser, links, spider,
    failure, content, rhythm) VALUES (?, ?, ?, ?, '', '', '', x'', '', x'', '', '', x'', '')"""

# Of two visits at the same instant the greater hash wins, so that the order of arrival does not matter. The same visit
# again changes nothing: a newer parser may have parsed it since. A visit from the future, by a worker whose clock was
# ahead, gives way to any other: it must not answer for a page that has changed since.
_KEEP_FACTS = """
UPDATE pages SET url = ?, job = ?, fetched_at = ?, status = ?, etag = ?, last_modified = ?, archive_ref = ?,
    body_hash = ?, parser = ?, links = ?, spider = ?, failure = ?, content = ?, rhythm = ?
WHERE number = ? AND (fetched_at IS NULL OR fetched_at > ? OR (?, ?) > (fetched_at, body_hash))"""

# Rows of earlier versions contain the worker's name itself.
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

# Before a page gets another address or copy: earlier attempts and visits get their own.
_KEEP_TRIED = """
UPDATE attempt_rows SET url = (SELECT url FROM pages WHERE number = ?1) WHERE page = ?1 AND url = ''
    AND EXISTS (SELECT 1 FROM pages WHERE number = ?1 AND url <> ?2)"""
_KEEP_VISITED = """
UPDATE visit_rows SET (url, archive_ref, body_hash) = (SELECT url, archive_ref, body_hash FROM pages WHERE number = ?1)
WHERE page = ?1 AND url = ''
    AND EXISTS (SELECT 1 FROM pages WHERE number = ?1 AND (url, archive_ref, body_hash) <> (?2, ?3, ?4))"""

# A visit without a spider may be this spider's own.
_NEWEST_VISITS = """
WITH wanted (page, spider) AS (VALUES {rows})
SELECT wanted.page, wanted.spider, max(fetched_at) FROM wanted CROSS JOIN visit_rows ON visit_rows.page = wanted.page
WHERE visit_rows.spider IN (wanted.spider, '') AND failure = '' GROUP BY 1, 2"""

# A visit that was parsed again: its spider and its outcome are now better known.
_REPARSE_VISIT = "UPDATE visit_rows SET spider = ?, failure = ? WHERE page = ? AND fetched_at = ?"

# The newest copy may be older than the newest visit, which found it unchanged.
_REPARSE_FACTS = """
UPDATE pages SET parser = ?, links = ?, spider = ?, failure = ? WHERE number = ? AND archive_ref = ?"""

# A visit, or the copy of one that was parsed again, of which not everything is in the records.
_ASK_AGAIN = "UPDATE pages SET parser = '' WHERE number = ? AND fetched_at = ?"
_ASK_AGAIN_FOR_COPY = "UPDATE pages SET parser = '' WHERE number = ? AND archive_ref = ?"

_ADD_SCHEMA = "INSERT INTO schemas (type, id, definition, first_stored) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"

_ADD_TALLY = (
    insert("quality", TALLY_FIELDS)
    + """ ON CONFLICT DO UPDATE SET checked = checked + excluded.checked, filled = filled + excluded.filled,
    faulty = faulty + excluded.faulty"""
)


def find(connection: sqlite3.Connection, sql: str, wanted: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Look up many identities with few statements. Padded to a power of two, so that few statements are prepared."""
    for start in range(0, len(wanted), MAX_LOOKUP):
        part = list(wanted[start : start + MAX_LOOKUP])
        part += part[:1] * ((1 << (len(part) - 1).bit_length()) - len(part))
        row = f"({', '.join('?' * len(part[0]))})"
        values = [value for identity in part for value in identity]
        yield from connection.execute(sql.format(rows=", ".join([row] * len(part))), values).fetchall()


def stale_ones(
    connection: sqlite3.Connection, results: Sequence[PageResult], number: dict[bytes, int]
) -> frozenset[int]:
    """The indexes of results parsed from an old copy: the spider has a newer one of the same page."""
    visitors = reparsed(results, number)
    if not visitors:
        return frozenset()
    rows = find(connection, _NEWEST_VISITS, list(set(visitors.values())))
    newest: dict[tuple[int, str], float] = {(page, spider): at for page, spider, at in rows}
    return frozenset(place for place, who in visitors.items() if is_stale(results[place], newest.get(who)))


def save_visits(
    connection: sqlite3.Connection,
    results: Sequence[PageResult],
    number: dict[bytes, int],
    facts: list[PageFacts],
    now: float,
) -> Sequence[PageResult]:
    """Write attempts, page facts and visits; return the results whose attempts were new."""
    if facts:
        pages = [(number[p.fingerprint], p) for p in facts]
        connection.executemany(_KEEP_TRIED, [(page, p.url) for page, p in pages])
        connection.executemany(_KEEP_VISITED, [(page, p.url, p.archive_ref, p.body_hash) for page, p in pages])
        connection.executemany(
            _KEEP_FACTS,
            [
                (p.url, p.job, p.fetched_at, p.status, p.etag, p.last_modified, p.archive_ref, p.body_hash, p.parser,
                 p.links, p.spider, p.failure, p.content, p.rhythm, number[p.fingerprint], now, p.fetched_at,
                 p.body_hash)
                for p in facts
            ],
        )  # fmt: skip
    new = _add_attempts(connection, results, number)
    add_visits(connection, [(number[page.fingerprint], *visit_values(page)) for page in archived_visits(results)])
    for p in reread(results):
        page = number[p.fingerprint]
        connection.execute(_REPARSE_VISIT, (p.spider, p.failure, page, p.fetched_at))
        connection.execute(_REPARSE_FACTS, (p.parser, p.links, p.spider, p.failure, page, p.archive_ref))
    return new


def ask_again(connection: sqlite3.Connection, results: Sequence[PageResult], number: dict[bytes, int]) -> None:
    """Note that not everything that these pages said is in the records: their next visit requests them in full."""
    for result in results:
        if (page := result.page) is not None:
            again = result.attempt.outcome == REPARSED
            sql, which = (_ASK_AGAIN_FOR_COPY, page.archive_ref) if again else (_ASK_AGAIN, page.fetched_at)
            connection.execute(sql, (number[page.fingerprint], which))


def add_visits(connection: sqlite3.Connection, visits: Sequence[tuple[Any, ...]]) -> None:
    """Write new visits: the number of the page, then VISIT_FIELDS. The pages already have their facts."""
    connection.executemany(_ADD_VISIT, visits)


def add_attempts(connection: sqlite3.Connection, attempts: Sequence[tuple[Any, ...]]) -> None:
    """Write new attempts: the number of the page, then ATTEMPT_FIELDS."""
    _add_workers(connection, attempts)
    connection.executemany(_ADD_ATTEMPT, attempts)


def _add_workers(connection: sqlite3.Connection, attempts: Sequence[tuple[Any, ...]]) -> None:
    connection.executemany(_ADD_WORKER, [(worker,) for worker in {one[_WORKER] for one in attempts}])


def _add_attempts(
    connection: sqlite3.Connection, results: Sequence[PageResult], number: dict[bytes, int]
) -> Sequence[PageResult]:
    """Write attempts; return the results whose attempts were new."""
    rows = [
        (number[attempt.fingerprint], *attempt_values(attempt)) for attempt in (result.attempt for result in results)
    ]
    _add_workers(connection, rows)
    connection.execute("SAVEPOINT attempts")
    added = connection.executemany(_ADD_ATTEMPT, rows).rowcount
    if added == len(rows):
        new = results
    else:  # some are known: the driver tells which ones only one by one
        connection.execute("ROLLBACK TO attempts")
        new = [one for one, row in zip(results, rows, strict=True) if connection.execute(_ADD_ATTEMPT, row).rowcount]
    connection.execute("RELEASE attempts")
    return new


def number_pages(
    connection: sqlite3.Connection, results: Sequence[PageResult]
) -> tuple[dict[bytes, int], list[PageFacts]]:
    """Give every page of the batch its number, with a row for new ones; return also the facts still to be stored.

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
    numbers: dict[bytes, int] = dict(find(connection, _FIND_PAGES, [(fingerprint,) for fingerprint in seen]))
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


def keep_schemas(connection: sqlite3.Connection, schemas: Sequence[ItemSchema], now: float) -> None:
    connection.executemany(_ADD_SCHEMA, [(one.type, one.id, one.definition, now) for one in schemas])


def count_quality(connection: sqlite3.Connection, tallies: Sequence[Tally]) -> None:
    connection.executemany(_ADD_TALLY, [(*key, *sums) for key, sums in added_up(tallies)])
