"""Translates record queries to SQL.

Most queries scan all records (or those that a job saw) in the order of their numbers, a few rows at a time. Queries
that match few records, by key or by changes after a cursor, first find the numbers through an index.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ...store.contract import RecordQuery
from ...store.record_rules import read_cursor
from .dialect import Dialect

CHUNK = 256  # rows in memory while streaming
MOST_FOUND = 100_000  # numbers kept in memory; a query with more matches scans all records

_VALUE = re.compile(r"\$(\d+)")

_SEEN_BY = "EXISTS (SELECT 1 FROM @sightings AS seen WHERE seen.job = {0} AND seen.record = records.number)"

_SEEN_BY_SPIDER = """(records.spider = {0}
    OR EXISTS (SELECT 1 FROM @seen_by AS seers WHERE seers.spider = {0} AND seers.record = records.number))"""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a statement; `where` numbers its values from $1. `few` finds the numbers of a superset of the
    matches, with its own values, numbered from $1 too; None: scan `source`."""

    source: str
    number: str
    where: str
    values: tuple[Any, ...]
    few: str | None = None
    few_values: tuple[Any, ...] = ()

    def chunk(self, columns: str, *, newest: bool) -> str:
        """A chunk of the scan; it takes `values` and the number to continue after."""
        follows, order = ("<", "DESC") if newest else (">", "ASC")
        return (
            f"SELECT {self.number}, {columns} FROM {self.source} WHERE {self.where} "  # noqa: S608 - our own words
            f"AND {self.number} {follows} ${len(self.values) + 1} ORDER BY {self.number} {order} LIMIT {CHUNK}"
        )

    def picked(self, columns: str) -> str:
        """The matches among given numbers, unordered; it takes `values`, then the numbers."""
        return (
            f"SELECT records.number, {columns} FROM @records AS records "  # noqa: S608 - our own words
            f"WHERE records.number = ANY (${len(self.values) + 1}::bigint[]) AND {self.where}"
        )

    def some(self) -> str:
        """Numbers that may match, at most one more than can be kept; it takes `few_values`."""
        return f"{self.few} LIMIT {MOST_FOUND + 1}"

    def count(self) -> tuple[str, tuple[Any, ...]]:
        if self.few is None:
            return f"SELECT count(*) FROM {self.source} WHERE {self.where}", self.values  # noqa: S608 - as above
        few = _VALUE.sub(lambda found: f"${int(found[1]) + len(self.values)}", self.few)
        sql = f"SELECT count(*) FROM @records AS records WHERE records.number IN ({few}) AND {self.where}"  # noqa: S608
        return sql, (*self.values, *self.few_values)


def selection(dialect: Dialect, query: RecordQuery, store: str, newest: int) -> Selection:
    """`store` and `newest` are the result of `dialect.newest`. Raises Misconfigured for a cursor from another store."""
    conditions: list[str] = []
    values: list[Any] = []

    def demand(condition: str, value: Any) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    after = read_cursor(query.after, dialect.kind, store, newest) if query.after is not None else None
    upto = read_cursor(query.upto, dialect.kind, store, newest) if query.upto is not None else None
    scans = query.key is None and after is None and query.gone_by is None
    if query.job is not None:
        demand("seen.job = {}" if scans else _SEEN_BY, query.job)
    if query.spider is not None:
        demand(_SEEN_BY_SPIDER, query.spider)
    for column in ("type", "site", "key", "url"):
        wanted = getattr(query, column)
        if wanted is not None:
            demand(f"records.{column} = {{}}", wanted)
    if query.since is not None:
        demand("records.last_changed >= {}", query.since)
    if query.until is not None:
        demand("records.last_changed < {}", query.until)
    if query.gone is not None:
        conditions.append(f"records.gone_since IS {'NOT ' if query.gone else ''}NULL")
    if query.gone_by is not None:
        demand("records.job = {} AND records.gone_since IS NOT NULL", query.gone_by)
    if after is not None:
        demand(f"records.revision >= {dialect.place}", after)
    if upto is not None:
        demand(f"records.revision < {dialect.place}", upto)
    source, number, few, few_values = dialect.scanned, "records.number", None, ()
    if not scans:
        source, (few, few_values) = "@records AS records", _few(dialect, query, after, upto)
    elif query.job is not None:
        source = "@sightings AS seen JOIN @records AS records ON records.number = seen.record"
        number = "seen.record"
    return Selection(
        source=source, number=number, where=" AND ".join(conditions) or "true", values=tuple(values),
        few=few, few_values=few_values,
    )  # fmt: skip


def _few(dialect: Dialect, query: RecordQuery, after: int | None, upto: int | None) -> tuple[str, tuple[Any, ...]]:
    if query.key is not None:
        return dialect.with_key(query)
    if query.gone_by is not None:
        return "SELECT number FROM @records WHERE job = $1 AND gone_since IS NOT NULL", (query.gone_by,)
    changed = f"SELECT number FROM @records WHERE revision >= {dialect.place.format('$1')}"  # noqa: S608 - our own words
    if upto is None:
        return changed, (after,)
    return f"{changed} AND revision < {dialect.place.format('$2')}", (after, upto)
