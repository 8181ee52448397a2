"""Translates record queries to SQL.

Most queries scan all records (or those that a job saw) in the order of their numbers, a few rows at a time. Queries
that match few records, by key or by changes after a cursor, first find the numbers through an index.

A cursor is the id of the oldest transaction that was open when the cursor was given; ids are never reused. Older
transactions are complete: what they wrote is before the cursor. What an open one writes is after it, however late it
commits.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...store.contract import RecordQuery
from ...store.record_rules import read_cursor
from .stored_text import stored

KIND = "pg"  # of cursors
CHUNK = 256  # rows in memory while streaming
MOST_FOUND = 100_000  # numbers kept in memory; a query with more matches scans all records

NEWEST = """
SELECT id, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS newest,
    coalesce((SELECT revision FROM @records ORDER BY revision DESC LIMIT 1) >= pg_snapshot_xmax(pg_current_snapshot()),
        false) AS is_ahead
FROM @store"""

# Revisions from the future are those of another server: the tables were restored from a copy. They count as changed
# now; otherwise no cursor would ever reach them.
ADOPT = """
UPDATE @records SET revision = pg_current_xact_id() WHERE revision >= pg_snapshot_xmax(pg_current_snapshot())"""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a statement; `where` numbers its values from $1. `few` finds the numbers of a superset of the
    matches, with its own values; None: scan `source`."""

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
        """The matches among given numbers; it takes `values`, then the numbers."""
        return (
            f"SELECT records.number, {columns} FROM @records AS records "  # noqa: S608 - our own words
            f"WHERE records.number = ANY (${len(self.values) + 1}::bigint[]) AND {self.where}"
        )

    def some(self) -> str:
        """Numbers that may match, at most one more than can be kept; it takes `few_values`."""
        return f"{self.few} LIMIT {MOST_FOUND + 1}"

    def count(self) -> str:
        """It takes `values`."""
        source = self.source if self.few is None else "@records AS records"
        return f"SELECT count(*) FROM {source} WHERE {self.where}"  # noqa: S608 - our own words


def selection(query: RecordQuery, store: str, newest: int) -> Selection:
    """`store` and `newest` are the result of NEWEST. Raises Misconfigured for a cursor from another store."""
    conditions: list[str] = []
    values: list[Any] = []

    def demand(condition: str, value: Any) -> None:
        values.append(value)
        conditions.append(condition.format(f"${len(values)}"))

    if query.job is not None:
        demand("sightings.job = {}", stored(query.job))
    if query.spider is not None:
        demand(_SEEN_BY_SPIDER, stored(query.spider))
    for column in ("type", "site", "key", "url"):
        wanted = getattr(query, column)
        if wanted is not None:
            demand(f"records.{column} = {{}}", stored(wanted))
    if query.since is not None:
        demand("records.last_changed >= {}", query.since)
    if query.until is not None:
        demand("records.last_changed < {}", query.until)
    if query.gone is not None:
        conditions.append(f"records.gone_since IS {'NOT ' if query.gone else ''}NULL")
    after = str(read_cursor(query.after, KIND, store, newest)) if query.after is not None else None
    upto = str(read_cursor(query.upto, KIND, store, newest)) if query.upto is not None else None
    if after is not None:
        demand("records.revision >= {}::text::xid8", after)
    if upto is not None:
        demand("records.revision < {}::text::xid8", upto)
    where = " AND ".join(conditions) or "true"
    if query.key is None and after is None:
        return _walk(query, where, values)
    few, few_values = _few(query.key, after, upto)
    return Selection(
        source="@records AS records",
        number="records.number",
        where=where.replace("sightings.job = $1", _SEEN_BY),
        values=tuple(values),
        few=few,
        few_values=few_values,
    )


_SEEN_BY_SPIDER = """(records.spider = {0}
    OR EXISTS (SELECT FROM @seen_by AS seers WHERE seers.spider = {0} AND seers.record = records.number))"""
_SEEN_BY = "EXISTS (SELECT FROM @sightings AS s WHERE s.job = $1 AND s.record = records.number)"


def _few(key: str | None, after: str | None, upto: str | None) -> tuple[str, tuple[Any, ...]]:
    if key is not None:
        return "SELECT number FROM @records WHERE key = $1", (stored(key),)
    if upto is None:
        return "SELECT number FROM @records WHERE revision >= $1::text::xid8", (after,)
    return "SELECT number FROM @records WHERE revision >= $1::text::xid8 AND revision < $2::text::xid8", (after, upto)


def _walk(query: RecordQuery, where: str, values: list[Any]) -> Selection:
    source, number = "@records AS records", "records.number"
    if query.job is not None:
        source = "@sightings AS sightings JOIN @records AS records ON records.number = sightings.record"
        number = "sightings.record"
    return Selection(source=source, number=number, where=where, values=tuple(values))
