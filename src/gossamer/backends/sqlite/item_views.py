"""Typed views in SQLite, and queries on a file that cannot write to it."""

# ruff: noqa: S608 - names that hold no quotes, and escaped literals

from __future__ import annotations

import asyncio
import re
import sqlite3
import time
from contextlib import closing
from typing import Any

from ...errors import Misconfigured
from ...store.item_views import Path, Selected
from ...store.record_rules import mend
from ..records.dialect import SqlSession
from ..records.views import SqlItemViews, literal
from .connection import Database
from .record_sql import SqliteSql

STEPS = 10_000  # of SQLite's machine, between two looks at the clock
LONGEST_VALUE = 64 * 1024 * 1024  # bytes of a text that a query may make

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')  # what a path of SQLite can name

# `v` is the value, `t` its type in JSON. A value that does not fit is NULL.
_KINDS = {
    "text": "CASE t WHEN 'true' THEN t WHEN 'false' THEN t ELSE CAST(v AS TEXT) END",
    "bool": "CASE t WHEN 'true' THEN 1 WHEN 'false' THEN 0 END",
    "int": "CASE WHEN t = 'integer' AND typeof(v) = 'integer' THEN v END",
    "float": "CASE WHEN t IN ('integer', 'real') THEN CAST(v AS REAL) END",
    "number": "CASE WHEN t IN ('integer', 'real') THEN v END",
    "decimal": "CASE WHEN t IN ('integer', 'real') THEN CAST(v AS REAL) WHEN t = 'text' THEN "
    "CASE WHEN json_valid(v) THEN CASE WHEN json_type(v) IN ('integer', 'real') THEN CAST(v AS REAL) END END END",
    "date": "CASE WHEN t = 'text' AND date(v) = v THEN v END",
    "json": "v",
}
# Seconds, then the fraction, always with six digits, so that times sort as texts. A time without a zone is in UTC.
_DATETIME = """(SELECT CASE
    WHEN strftime('%Y-%m-%dT%H:%M:%S', substr(v, 1, 19)) = replace(substr(v, 1, 19), ' ', 'T')
        AND f NOT GLOB '*[^0-9]*' AND (f <> '' OR length(v) = 19 + length(z))
    THEN strftime('%Y-%m-%dT%H:%M:%S', substr(v, 1, 19) || z) || '.' || substr(f || '000000', 1, 6) || 'Z' END
FROM (SELECT v, z, CASE WHEN substr(v, 20, 1) = '.' THEN substr(v, 21, length(v) - 20 - length(z)) ELSE '' END AS f
FROM (SELECT v, CASE WHEN v GLOB '*Z' THEN 'Z' WHEN v GLOB '*T*[-+][0-9][0-9]:[0-9][0-9]' THEN substr(v, -6) ELSE '' END
AS z FROM (SELECT {value} AS v WHERE {type} = 'text'))))"""


class SqliteItemViews(SqlItemViews):
    names = "SELECT name FROM sqlite_master"
    time = "strftime('%Y-%m-%dT%H:%M:%fZ', {}, 'unixepoch')"
    stored = staticmethod(mend)

    def __init__(self, sql: SqliteSql, database: Database) -> None:
        super().__init__(sql)
        self._path = database.path

    async def take_turn(self, session: SqlSession) -> None:
        """Writers take turns."""

    def value(self, path: Path, kind: str) -> str:
        value, type = _place(path)
        if kind == "datetime":
            return _DATETIME.format(value=value, type=type)
        return f"(SELECT {_KINDS[kind]} FROM (SELECT {value} AS v, {type} AS t))"

    async def select(self, sql: str, *, limit: int, seconds: float) -> Selected:
        return await asyncio.to_thread(_select, f"{self._path.absolute().as_uri()}?mode=ro", sql, limit, seconds)


def _place(path: Path) -> tuple[str, str]:
    """The value at a path of the data, and its type. Any text may be the name of a field."""
    data, (*parents, name) = "iif(json_valid(data), data, '{}')", path
    if all(map(_PLAIN.fullmatch, path)):
        steps = literal("$" + "".join(f'."{part}"' for part in path))
        return f"json_extract({data}, {steps})", f"json_type({data}, {steps})"
    for parent in parents:
        data = f"(SELECT value FROM json_each({data}) WHERE key = {literal(parent)} AND type = 'object')"
    found = f"FROM json_each({data}) WHERE key = {literal(name)}"
    return f"(SELECT value {found})", f"(SELECT type {found})"


_ALLOWED = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, 33}  # 33: SQLITE_RECURSIVE
_BARRED = {"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"}


def _authorize(action: int, one: str | None, two: str | None, *_: object) -> int:
    if action not in _ALLOWED or (action == sqlite3.SQLITE_FUNCTION and (two or "").lower() in _BARRED):
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def _select(address: str, sql: str, limit: int, seconds: float) -> Selected:
    deadline = time.monotonic() + seconds
    try:
        with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=seconds)) as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            connection.set_authorizer(_authorize)
            connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
            cursor = connection.execute(sql)
            if cursor.description is None:
                raise Misconfigured("The query has no answer. Write SELECT ...")
            rows: list[tuple[Any, ...]] = cursor.fetchmany(limit + 1)
            return Selected(tuple(column[0] for column in cursor.description), rows[:limit], len(rows) > limit)
    except (sqlite3.Error, sqlite3.Warning) as error:
        said = str(error).rstrip(".")
        if "one statement" in said:
            raise Misconfigured("Write one statement: a SELECT.") from error
        if "interrupted" in said:
            raise Misconfigured(f"The query took longer than {seconds:g} s. Narrow it, or raise --seconds.") from error
        if "not authorized" in said or "prohibited" in said:
            raise Misconfigured("Only reading is possible here: one SELECT (or WITH ... SELECT).") from error
        raise Misconfigured(f"SQLite did not take the query: {said}.") from error
