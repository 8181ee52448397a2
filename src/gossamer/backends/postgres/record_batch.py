"""The transaction that writes a batch of results into PostgreSQL: what backends/records/writes.py leaves to it.

Rows are locked one by one, in one order for all writers. A row that another transaction has added since it was looked
up is a `Collision`: everything is rolled back and repeated, and then the row is found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from ...model.record import PageFacts, PageResult
from ...store.record_rows import ATTEMPT_FIELDS, PAGE_FIELDS, VISIT_FIELDS
from ..records.changes import Identity
from ..records.dialect import Row
from ..records.statements import add, new_rows
from .connection import Collision, PostgresTransaction
from .figures import Count
from .record_sql import POSTGRES
from .stored_text import identity_of, to_stored

Queryable = Callable[[str], str | None]

# FOR NO KEY UPDATE inside LATERAL locks the rows one by one, in the order of the array.
_LOCK_PAGES = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (fingerprint) CROSS JOIN LATERAL (
    SELECT fingerprint, number, fetched_at, body_hash FROM @pages AS pages
    WHERE pages.fingerprint = wanted.fingerprint FOR NO KEY UPDATE
) AS found"""
_ADD_PAGES = f"{add('pages', PAGE_FIELDS, '(fingerprint) DO NOTHING')} RETURNING fingerprint, number"

_GIVEN_BY = "SELECT identity FROM @records WHERE page = ANY ($1::bigint[])"
_LOCK_RECORDS = """
SELECT found.* FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT identity, number, content_hash, first_seen, last_changed, last_checked, version, page,
        gone_since IS NOT NULL, spider
    FROM @records AS records WHERE records.identity = wanted.identity FOR NO KEY UPDATE
) AS found"""

# Numbered in the order of the batch, added in the order of identities.
_RECORD = ("identity", *POSTGRES.added)
_ADD_RECORDS = f"""
WITH numbered AS MATERIALIZED (SELECT nextval('@record_numbers') AS number, new.* FROM {new_rows(_RECORD)})
INSERT INTO @records (number, {", ".join(_RECORD)})
SELECT * FROM numbered ORDER BY identity
ON CONFLICT (identity) DO NOTHING RETURNING identity, number"""  # noqa: S608 - our own names

_ADD_ATTEMPTS = add("attempts", ("page", *ATTEMPT_FIELDS), "(page, at, job, worker) DO NOTHING")
_ADDED = " RETURNING page, at, job, worker"
# Also adds the figures, if all attempts are new: figures.py.
_LAST = len(ATTEMPT_FIELDS) + 2
_ADD_AND_COUNT = f"""
WITH added AS ({_ADD_ATTEMPTS}{_ADDED}), counted AS (
    UPDATE @figure_sheets SET figures = ${_LAST + 3}
    WHERE start = ${_LAST + 1} AND writer = ${_LAST + 2} AND (SELECT count(*) FROM added) = ${_LAST} RETURNING 1
) SELECT added.*, (SELECT count(*) FROM counted) FROM added"""  # noqa: S608 - our own names
_ADD_VISITS = add("visits", ("page", *VISIT_FIELDS))


class PostgresBatch:
    """Fulfils `BatchWriter`. Texts must be as stored_text.py stores them, unless it `stores` them itself. `queryable`
    makes the jsonb of a record's source; `count` is what the batch adds to the figures."""

    words = POSTGRES

    def __init__(
        self, session: PostgresTransaction, queryable: Queryable, *, count: Count | None = None, stores: bool = False
    ) -> None:
        self._session = session
        self._queryable = queryable
        self._count = count
        self._stores = stores

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        return [tuple(row) for row in await self._session.rows(sql, *values)]

    async def run(self, sql: str, *values: Any) -> int:
        return await self._session.run(sql, *values)

    async def find(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        return await self.rows(sql, *self._columns(rows))

    async def write(self, sql: str, rows: Sequence[Row]) -> None:
        await self._session.run(sql, *self._columns(rows))

    def _columns(self, rows: Iterable[Row]) -> list[list[Any]]:
        """Rows as columns, for unnest."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        if not self._stores:
            return columns
        return [[to_stored(value) if type(value) is str else value for value in column] for column in columns]

    def hashed(self, *texts: str) -> tuple[bytes, ...]:
        return (identity_of(*(map(to_stored, texts) if self._stores else texts)),)

    identity = hashed

    def content(self, data: str) -> tuple[str | None, ...]:
        source = to_stored(data) if self._stores else data
        return source, self._queryable(source)

    async def lock_pages(self, fingerprints: Sequence[bytes]) -> list[Row]:
        return await self.rows(_LOCK_PAGES, sorted(fingerprints))

    async def add_pages(self, rows: Sequence[Row]) -> dict[bytes, int]:
        numbers: dict[bytes, int] = dict(await self.find(_ADD_PAGES, sorted(rows)))
        return _all_added(numbers, rows)

    async def set_apart(self, facts: Sequence[tuple[int, PageFacts]]) -> None:
        """Every row has its own values."""

    async def lock_records(self, identities: Collection[Identity], pages: Sequence[int]) -> list[Row]:
        wanted = {identity for (identity,) in identities}
        if pages:
            wanted.update([identity for (identity,) in await self.rows(_GIVEN_BY, pages)])
        rows = await self.rows(_LOCK_RECORDS, sorted(wanted)) if wanted else []
        return [((identity,), *rest) for identity, *rest in rows]

    async def add_records(self, records: Sequence[tuple[Identity, Row]]) -> dict[Identity, int]:
        rows = await self.find(_ADD_RECORDS, [(*identity, *row) for identity, row in records])
        return _all_added({(identity,): number for identity, number in rows}, records)

    async def add_attempts(self, rows: Sequence[Row]) -> None:
        await self.write(_ADD_ATTEMPTS, rows)

    async def count_attempts(self, results: Sequence[PageResult], rows: Sequence[Row]) -> Sequence[PageResult]:
        count, values = self._count, self._columns(rows)
        assert count is not None  # rows that are loaded are not counted
        if count.text:
            found = await self.rows(_ADD_AND_COUNT, *values, len(results), count.start, count.writer, count.text)
        else:
            found = await self.rows(_ADD_ATTEMPTS + _ADDED, *values)
        added = {row[:4] for row in found}
        new = []
        for result, key in zip(results, zip(*values[:4], strict=True), strict=True):
            if key in added:
                added.remove(key)
                new.append(result)
        await count.finish(self._session, new, written=bool(count.text and found and found[0][4]))
        return new

    async def add_visits(self, rows: Sequence[Row]) -> None:
        await self.write(_ADD_VISITS, rows)


def _all_added(numbers: dict[Any, int], rows: Sequence[Any]) -> dict[Any, int]:
    if len(numbers) < len(rows):
        raise Collision
    return numbers
