"""The dialect of SQLite: how the shared record store (backends/records/) speaks to a file."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from ...store.contract import RecordQuery
from ...store.record_rules import mend
from ..records.dialect import Dialect, Row, SqlSession
from .connection import Database

T = TypeVar("T")

# There is no index on keys alone, which would cost a block for every new record: the existing types and sites are found
# by steps along the index of identities, and the key is looked up in each.
_BY_KEY = """
SELECT records.number FROM (
    WITH RECURSIVE types (type) AS (
        SELECT min(type) FROM records
        UNION ALL
        SELECT (SELECT min(type) FROM records WHERE records.type > types.type) FROM types WHERE types.type IS NOT NULL
    ), pairs (type, site) AS (
        SELECT type, (SELECT min(site) FROM records WHERE records.type = types.type)
        FROM types WHERE type IS NOT NULL
        UNION ALL
        SELECT type, (SELECT min(site) FROM records WHERE records.type = pairs.type AND records.site > pairs.site)
        FROM pairs WHERE pairs.site IS NOT NULL
    )
    SELECT type, site FROM pairs
) AS pairs JOIN @records AS records ON records.type = pairs.type AND records.site = pairs.site
WHERE records.key = $1"""
_BY_IDENTITY = "SELECT number FROM @records WHERE type = $1 AND site = $2 AND key = $3"


def _with_key(query: RecordQuery) -> tuple[str, tuple[Any, ...]]:
    if query.type is not None and query.site is not None:
        return _BY_IDENTITY, (query.type, query.site, query.key)
    return _BY_KEY, (query.key,)


# One number for all changes of a batch. Writers take turns, so it grows in the order of commits.
NEXT_REVISION = "max(coalesce((SELECT max(revision) FROM @records), 0), (SELECT max(revision) FROM @store)) + 1"

SQLITE = Dialect(
    kind="sqlite",
    newest=f"SELECT store.id, {NEXT_REVISION} FROM @store",  # noqa: S608 - our own words
    text="data",
    contents="data",
    hashes=(),
    visits="visit_rows",
    revision="@revision",  # a value that record_batch.py adds
    scanned="@records AS records NOT INDEXED",
    place="{}",
    next_place=f"({NEXT_REVISION})",
    identity=lambda type, site, key: (type, site, key),
    identified=lambda n: f"records.type = ${n} AND records.site = ${n + 1} AND records.key = ${n + 2}",
    with_key=_with_key,
    attempts="attempt_rows",
    marking="",
    erasing="UPDATE @store SET revision = max(revision, (SELECT coalesce(max(revision), 0) FROM @records))",
    prunes=(
        "DELETE FROM attempt_rows WHERE page BETWEEN $1 AND $2 AND at < $3",
        "DELETE FROM visit_rows WHERE page BETWEEN $1 AND $2 AND fetched_at < $3 AND url <> '' "
        "AND archive_ref <> (SELECT archive_ref FROM pages WHERE number = visit_rows.page)",
    ),
)

_SPELLINGS = (
    (re.compile(r"= ANY \(\$(\d+)::\w+\[\]\)"), r"IN (SELECT value FROM json_each(?\1))"),
    (re.compile(r"unnest\(\$(\d+)::\w+\[\]\) AS (\w+) \((\w+)\)"), r"(SELECT value AS \3 FROM json_each(?\1)) AS \2"),
    (re.compile(r"::\w+(\[\])?"), ""),
    (re.compile(r"\bgreatest\("), "max("),
    (re.compile(r"\$(\d+)"), r"?\1"),
    (re.compile(r"@(\w)"), r"\1"),
    (re.compile(r"(?<!LEFT )(?<!CROSS )\bJOIN\b"), "CROSS JOIN"),  # tables are read in the order of writing
)


@lru_cache(maxsize=512)
def sqlite_spelling(sql: str) -> str:
    """A statement of the shared record store, as SQLite wants it.

    >>> sqlite_spelling("SELECT type FROM @records WHERE number = ANY ($1::bigint[])")
    'SELECT type FROM records WHERE number IN (SELECT value FROM json_each(?1))'
    """
    for pattern, spelling in _SPELLINGS:
        sql = pattern.sub(spelling, sql)
    return sql


def sqlite_value(value: Any) -> Any:
    """A value as SQLite binds it: a list as JSON, a text without lone surrogates."""
    if type(value) is list:
        return msgspec.json.encode([sqlite_value(one) for one in value]).decode()
    return mend(value) if type(value) is str else value


class SqliteSql:
    """Fulfils `SqlDatabase`."""

    dialect = SQLITE

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rows(self, sql: str, *values: Any, quick: bool = False) -> list[Row]:
        statement, wanted = sqlite_spelling(sql), [sqlite_value(value) for value in values]
        return await self._database.read(lambda c: c.execute(statement, wanted).fetchall(), quick=quick)

    look_up = rows

    async def transact(self, work: Callable[[SqlSession], Awaitable[T]]) -> T:
        return await self._database.write(lambda connection: result_of(work(SqliteSession(connection))))


class SqliteSession:
    """Fulfils `Session`: nothing in it waits."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        return self._connection.execute(sqlite_spelling(sql), [sqlite_value(value) for value in values]).fetchall()

    async def run(self, sql: str, *values: Any) -> int:
        return self._connection.execute(sqlite_spelling(sql), [sqlite_value(value) for value in values]).rowcount

    async def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        self._connection.executemany(sqlite_spelling(sql), [[sqlite_value(value) for value in row] for row in rows])

    async def define(self, sql: str) -> None:
        self._connection.execute(sql)

    async def lock_records(self, numbers: Sequence[int]) -> list[int]:
        """Writers take turns."""
        return list(numbers)


def result_of(work: Awaitable[T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        cast("Coroutine[Any, Any, T]", work).send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise RuntimeError("A transaction of the records file waited for something.")
