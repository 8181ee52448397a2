"""Translates record queries to SQL.

Most queries scan all records (or those that a job saw) in the order of their numbers, a few rows at a time. Queries
that match few records, by key or by changes after a cursor, first find the numbers through an index.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...store.contract import RecordQuery
from ...store.record_rules import mend, read_cursor

KIND = "sqlite"  # of cursors
CHUNK = 256  # rows in memory while streaming
MOST_FOUND = 100_000  # numbers kept in memory; a query with more matches scans all records

NEWEST = "SELECT store.id, (SELECT coalesce(max(revision), 0) + 1 FROM records) FROM store"

# There is no index on keys alone, which would cost a block for every new record: the existing types and sites are found
# by steps along the index of identities, and the key is looked up in each.
_BY_KEY = """
WITH RECURSIVE types (type) AS (
    SELECT min(type) FROM records
    UNION ALL
    SELECT (SELECT min(type) FROM records WHERE records.type > types.type) FROM types WHERE types.type IS NOT NULL
), pairs (type, site) AS (
    SELECT type, (SELECT min(site) FROM records WHERE records.type = types.type) FROM types WHERE type IS NOT NULL
    UNION ALL
    SELECT type, (SELECT min(site) FROM records WHERE records.type = pairs.type AND records.site > pairs.site)
    FROM pairs WHERE pairs.site IS NOT NULL
)
SELECT records.number FROM pairs CROSS JOIN records USING (type, site) WHERE key = ?"""

_BY_IDENTITY = "SELECT number FROM records WHERE type = ? AND site = ? AND key = ?"

_BY_REVISION = "SELECT number FROM records INDEXED BY records_revision WHERE revision >= ? AND revision < ?"

_SEEN_BY = "EXISTS (SELECT 1 FROM sightings WHERE sightings.job = ? AND sightings.record = records.number)"

_SEEN_BY_SPIDER = """(records.spider = ?
    OR EXISTS (SELECT 1 FROM seen_by WHERE seen_by.spider = ? AND seen_by.record = records.number))"""


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a statement. `few` finds the numbers of a superset of the matches; None: scan `source`.

    `values` has one value for every `?` of `where`, in order.
    """

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
            f"AND {self.number} {follows} ? ORDER BY {self.number} {order} LIMIT {CHUNK}"
        )

    def picked(self, columns: str) -> str:
        """The matches among given numbers, unordered; it takes the numbers as JSON, then `values`."""
        return (
            f"SELECT records.number, {columns} FROM records WHERE number IN (SELECT value FROM json_each(?)) "  # noqa: S608
            f"AND {self.where}"
        )

    def count(self) -> tuple[str, tuple[Any, ...]]:
        if self.few is None:
            return f"SELECT count(*) FROM {self.source} WHERE {self.where}", self.values  # noqa: S608 - as above
        sql = f"SELECT count(*) FROM records WHERE number IN ({self.few}) AND {self.where}"  # noqa: S608 - as above
        return sql, (*self.few_values, *self.values)


def selection(query: RecordQuery, store: str, newest: int) -> Selection:
    """`store` and `newest` are the result of NEWEST. Raises Misconfigured for a cursor from another store."""
    conditions: list[str] = []
    values: list[Any] = []

    def demand(condition: str, value: Any) -> None:
        conditions.append(condition)
        values.append(value)

    if query.spider is not None:
        conditions.append(_SEEN_BY_SPIDER)
        values += [mend(query.spider)] * 2
    for column in ("type", "site", "key", "url"):
        wanted = getattr(query, column)
        if wanted is not None:
            demand(f"records.{column} = ?", mend(wanted))
    if query.since is not None:
        demand("records.last_changed >= ?", query.since)
    if query.until is not None:
        demand("records.last_changed < ?", query.until)
    if query.gone is not None:
        conditions.append(f"records.gone_since IS {'NOT ' if query.gone else ''}NULL")
    after = read_cursor(query.after, KIND, store, newest) if query.after is not None else None
    upto = read_cursor(query.upto, KIND, store, newest) if query.upto is not None else None
    if after is not None:
        demand("records.revision >= ?", after)
    if upto is not None:
        demand("records.revision < ?", upto)
    if query.key is None and after is None:
        return _walk(query, conditions, values)
    if query.job is not None:
        demand(_SEEN_BY, mend(query.job))
    few, few_values = _BY_REVISION, (after, newest if upto is None else upto)
    if query.key is not None:
        few, few_values = _few_by_key(query, query.key)
    return Selection(
        source="records NOT INDEXED",
        number="records.number",
        where=" AND ".join(conditions),
        values=tuple(values),
        few=few,
        few_values=few_values,
    )


def _few_by_key(query: RecordQuery, key: str) -> tuple[str, tuple[Any, ...]]:
    if query.type is not None and query.site is not None:
        return _BY_IDENTITY, (mend(query.type), mend(query.site), mend(key))
    return _BY_KEY, (mend(key),)


def _walk(query: RecordQuery, conditions: list[str], values: list[Any]) -> Selection:
    source, number = "records NOT INDEXED", "records.number"
    if query.job is not None:
        # CROSS JOIN fixes the direction: along the job's sightings, which are in the order of records.
        source, number = "sightings CROSS JOIN records ON records.number = sightings.record", "sightings.record"
        conditions, values = ["sightings.job = ?", *conditions], [mend(query.job), *values]
    return Selection(source=source, number=number, where=" AND ".join(conditions) or "true", values=tuple(values))
