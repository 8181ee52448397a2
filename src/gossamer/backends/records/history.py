"""The history of records: their versions, the differences between two jobs, and which are gone.

Records are marked as gone in portions, one transaction each, so that others can write in between; an interrupted call
has marked some, and the next call marks the rest. What a job did not see is counted in the same portions: no statement
takes longer for a store with more records.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

from ...model.record import RecordIdentity
from ...model.run_records import DifferenceKind, RunRecords
from ...store.contract import Difference, Retirement, Version
from ...store.record_rules import Seen, VersionMark, difference, difference_kind
from .dialect import Dialect, SqlDatabase, SqlSession

COMPARED = 1000  # records whose versions are compared at a time
COMPARED_DATA = 100  # possibly different records whose data is read at a time
RETIRED = 20_000  # records examined in one transaction or statement

_VERSIONS = """
SELECT past.version, past.at, past.job, past.{text}, past.gone, past.schema
FROM @records AS records JOIN @superseded AS past ON past.record = records.number WHERE {identified}
UNION ALL
SELECT version, last_changed, job, {text}, gone_since IS NOT NULL, schema FROM @records AS records WHERE {identified}
ORDER BY 1"""

_SEEN_VERSION = """
SELECT seen.version FROM @records AS records JOIN @sightings AS seen ON seen.record = records.number
WHERE seen.job = $1 AND {identified}"""

# The first records after a number that either of two jobs saw, or that the later one marked as gone. All sides get the
# same limit, so that for the remaining records all of them are known.
_SEEN = f"""
SELECT record, max(before), max(after) FROM (
    SELECT * FROM (
        SELECT record, version AS before, NULL::int AS after FROM @sightings
        WHERE job = $1 AND record > $3 ORDER BY record LIMIT {COMPARED}
    ) AS one
    UNION ALL
    SELECT * FROM (
        SELECT record, NULL::int, version FROM @sightings
        WHERE job = $2 AND record > $3 ORDER BY record LIMIT {COMPARED}
    ) AS other
    UNION ALL
    SELECT * FROM (
        SELECT number, NULL::int, NULL::int FROM @records
        WHERE job = $2 AND gone_since IS NOT NULL AND number > $3 ORDER BY number LIMIT {COMPARED}
    ) AS gone
    UNION ALL
    SELECT * FROM (
        SELECT record, NULL::int, NULL::int FROM @superseded
        WHERE job = $2 AND gone AND record > $3 ORDER BY record LIMIT {COMPARED}
    ) AS formerly
) AS seen GROUP BY record ORDER BY record LIMIT {COMPARED}"""  # noqa: S608 - our own words

_NOW = """
SELECT number, type, site, key, url, version, last_changed, job, gone_since IS NOT NULL, {text}
FROM @records WHERE number = ANY ($1::bigint[])"""
_MARKS = (
    "SELECT record, version, at, job, gone FROM @superseded WHERE record = ANY ($1::bigint[]) ORDER BY record, version"
)
# What a job met at the pages of records that it did not see, its last attempt last.
_MET = """
SELECT records.number, attempts.reason FROM @records AS records
JOIN @attempts AS attempts ON attempts.page = records.page
WHERE records.number = ANY ($1::bigint[]) AND attempts.job = $2 AND records.page > 0 ORDER BY attempts.at"""
_BEFORE = """
SELECT record, version, {text} FROM @superseded WHERE record = ANY ($1::bigint[]) AND version = ANY ($2::int[])"""

_NUMBER = "SELECT number FROM @records AS records WHERE {identified}"
_PRESENT = "SELECT number FROM @records WHERE number = ANY ($1::bigint[]) AND gone_since IS NULL"

# The versions that a job made of the records that it saw, each with whether the version before was gone. What the job
# marked as gone itself, and found later, is not back: with the same content, it is unchanged.
_RUN_RECORDS = """
WITH made AS (
    SELECT seen.record, records.version FROM @sightings AS seen JOIN @records AS records ON records.number = seen.record
    WHERE seen.job = $1 AND records.job = $1 AND records.gone_since IS NULL
    UNION ALL
    SELECT seen.record, past.version FROM @sightings AS seen JOIN @superseded AS past ON past.record = seen.record
    WHERE seen.job = $1 AND past.job = $1 AND NOT past.gone
), kinds AS (
    SELECT made.record, min(made.version) AS first, max(CASE WHEN was.gone AND was.job <> $1 THEN 1 ELSE 0 END) AS back
    FROM made LEFT JOIN @superseded AS was ON was.record = made.record AND was.version = made.version - 1
    WHERE CASE WHEN was.gone AND was.job = $1 THEN (
        SELECT {text} FROM @superseded AS past WHERE past.record = made.record AND past.version = made.version - 1
    ) <> coalesce((
        SELECT {text} FROM @superseded AS past WHERE past.record = made.record AND past.version = made.version
    ), (SELECT {text} FROM @records WHERE number = made.record)) ELSE true END
    GROUP BY made.record
)
SELECT (SELECT count(*) FROM @sightings WHERE job = $1), count(*),
    coalesce(sum(CASE WHEN first = 1 THEN 1 ELSE 0 END), 0),
    coalesce(sum(CASE WHEN first > 1 THEN back ELSE 0 END), 0) FROM kinds"""
_RUN_GONE = """
SELECT (SELECT count(*) FROM @records WHERE job = $1 AND gone_since IS NOT NULL) + (
    SELECT count(*) FROM @superseded AS past WHERE job = $1 AND gone AND NOT EXISTS (
        SELECT 1 FROM @sightings AS seen WHERE seen.job = $1 AND seen.record = past.record))"""

_LEFT = """
SELECT count(*) FROM {records} WHERE number BETWEEN $4 AND $5 AND spider = $2 AND gone_since IS NULL
    AND NOT EXISTS (SELECT 1 FROM @sightings AS seen WHERE seen.job = $1 AND seen.record = records.number)
    AND ($3::text[] IS NULL OR EXISTS (
        SELECT 1 FROM unnest($3::text[]) AS earlier (job)
        JOIN @sightings AS seen ON seen.job = earlier.job AND seen.record = records.number))"""

_HIGHEST = "SELECT coalesce(max(number), 0) FROM @records"

# What the job found for the page that last yielded a record: 2 its content, 1 that it does not exist, 0 nothing that it
# could parse, NULL if it did not look. A page that redirects was not looked at, and of an attempt that was repeated the
# repetition counts. A later sighting knows better.
_UNSEEN = """
SELECT number, coalesce(found, 0) FROM (
    SELECT number, last_checked, (
        SELECT max(CASE WHEN outcome IN ('done', 'unchanged', 'reparsed') THEN 2 WHEN status IN (404, 410) THEN 1
            WHEN outcome NOT IN ('redirected', 'retry') THEN 0 END)
        FROM @attempts AS attempts
        WHERE attempts.page = records.page AND attempts.at >= records.last_checked AND attempts.job = $1
    ) AS found
    FROM {records}
    WHERE {which} AND spider = $2 AND gone_since IS NULL
        AND NOT EXISTS (SELECT 1 FROM @sightings AS seen WHERE seen.job = $1 AND seen.record = records.number)
) AS unseen WHERE found > 0 AND ($5::text[] IS NULL OR EXISTS (
    SELECT 1 FROM unnest($5::text[]) AS earlier (job)
    JOIN @sightings AS seen ON seen.job = earlier.job AND seen.record = unseen.number
)) OR found IS NULL AND last_checked <= $4 AND EXISTS (
    SELECT 1 FROM unnest($3::text[]) AS earlier (job)
    JOIN @sightings AS seen ON seen.job = earlier.job AND seen.record = unseen.number
)"""

_SUPERSEDE = """
INSERT INTO @superseded (record, version, at, job, {contents}, gone, schema)
SELECT number, version, last_changed, job, {contents}, gone_since IS NOT NULL, schema
FROM @records WHERE number = ANY ($1::bigint[])"""

# A record that its page no longer yields has no page: if that page is unchanged next time, it still does not yield the
# record.
_RETIRE = """
UPDATE @records SET gone_since = $2::float8, last_changed = $2, job = $3, version = version + 1,
    revision = {next_place}, page = CASE WHEN $4::boolean THEN 0 ELSE page END
WHERE number = ANY ($1::bigint[])"""


class SqlHistory:
    """The part of `SqlRecords` that compares versions and jobs."""

    sql: SqlDatabase

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        words = self.sql.dialect
        sql = _VERSIONS.format(text=words.text, identified=words.identified(1))
        return [
            Version(version=version, at=at, job=job, data=data, gone=bool(gone), schema=schema)
            for version, at, job, data, gone, schema in await self.sql.rows(sql, *words.identity(type, site, key))
        ]

    async def seen_version(self, job: str, type: str, site: str, key: str) -> int:
        words = self.sql.dialect
        sql = _SEEN_VERSION.format(identified=words.identified(2))
        rows = await self.sql.rows(sql, job, *words.identity(type, site, key))
        return rows[0][0] if rows else 0

    async def run_records(self, job: str) -> RunRecords:
        seen, made, new, back = map(int, (await self.sql.rows(_RUN_RECORDS.format(text=self.sql.dialect.text), job))[0])
        gone = (await self.sql.rows(_RUN_GONE, job))[0][0]
        return RunRecords(new=new, changed=made - new - back, back=back, unchanged=seen - made, gone=gone)

    async def unseen(self, wanted: Retirement) -> int:
        left = _LEFT.format(records=self.sql.dialect.scanned)
        asked = (wanted.job, wanted.spider, None if wanted.of is None else list(wanted.of))
        starts = await self._portions()
        return sum([(await self.sql.rows(left, *asked, first, first + RETIRED - 1))[0][0] for first in starts])

    async def _portions(self) -> range:
        """The numbers with which portions of the records begin."""
        return range(0, (await self.sql.rows(_HIGHEST))[0][0] + 1, RETIRED)

    async def differences(
        self, before: str, after: str, ends: tuple[float, float] = (math.inf, math.inf)
    ) -> AsyncIterator[Difference]:
        last = -1
        while rows := await self.sql.look_up(_SEEN, before, after, last):
            seen = [Seen(*row) for row in rows]
            differing = [one for one in seen if one.may_differ]
            for start in range(0, len(differing), COMPARED_DATA):
                for one in await self._compared(differing[start : start + COMPARED_DATA], after, ends):
                    yield one
            last = seen[-1].record

    async def _compared(self, seen: Sequence[Seen], job: str, ends: tuple[float, float]) -> list[Difference]:
        """The differences among these, which should be few: the data of all of them is read."""
        text, numbers = self.sql.dialect.text, [one.record for one in seen]
        # In this order: a version that is replaced in between is found in both.
        present = {row[0]: row[1:] for row in await self.sql.look_up(_NOW.format(text=text), numbers)}
        marks: dict[int, dict[int, VersionMark]] = {number: {} for number in present}
        for number, version, at, by, gone in await self.sql.look_up(_MARKS, numbers):
            if number in marks:
                marks[number][version] = VersionMark(version, at, by, bool(gone))
        kinds: dict[int, tuple[DifferenceKind, int, int]] = {}
        for one in seen:
            if one.record in present:
                *_, version, at, by, gone, _ = present[one.record]
                marks[one.record][version] = VersionMark(version, at, by, bool(gone))
                kinds[one.record] = difference_kind(one, [*marks[one.record].values()], job, ends)
        wanted = sorted({version for _, *compared in kinds.values() for version in compared if version})
        past = {row[:2]: row[2] for row in await self.sql.look_up(_BEFORE.format(text=text), numbers, wanted)}
        missed = [number for number, (kind, *_) in kinds.items() if kind == "unseen"]
        met: dict[int, str] = {row[0]: row[1] for row in await self.sql.look_up(_MET, missed, job)} if missed else {}
        found = []
        for number, (kind, first, last) in kinds.items():
            type_, site, key, url, version, *_, data = present[number]
            past[number, version] = data
            before, after = past.get((number, first)), past.get((number, last))
            found.append(difference((type_, site, key), url, kind, before, after, met.get(number, "")))
        return [one for one in found if one is not None]

    async def retire(self, wanted: Retirement) -> int:
        if wanted.records is not None:
            return await self.sql.transact(partial(_retire_these, self.sql.dialect, wanted, wanted.records))
        starts, words = await self._portions(), self.sql.dialect
        return sum([await self.sql.transact(partial(_retire_some, words, wanted, first)) for first in starts])


async def _retire_these(
    words: Dialect, wanted: Retirement, records: Sequence[RecordIdentity], session: SqlSession
) -> int:
    number = _NUMBER.format(identified=words.identified(1))
    found = [row[0] for one in records for row in await session.rows(number, *words.identity(*one))]
    present = [row[0] for row in await session.rows(_PRESENT, await session.lock_records(found))]
    await session.run(_SUPERSEDE.format(contents=words.contents), present)
    await session.run(_RETIRE.format(next_place=words.next_place), present, wanted.at, wanted.job, True)
    return len(present)


async def _retire_some(words: Dialect, wanted: Retirement, first: int, session: SqlSession) -> int:
    """Mark the gone ones among the records from the number `first` on; return how many."""
    stands_for = None if wanted.of is None else list(wanted.of)
    asked: tuple[Any, ...] = (wanted.job, wanted.spider, list(wanted.earlier), wanted.checked_by, stands_for)
    among = _UNSEEN.format(records=words.scanned, which="number BETWEEN $6 AND $7")
    likely = await session.rows(among, *asked, first, first + RETIRED - 1)
    if not likely:
        return 0
    # A writer may be seeing one of them right now. Once they are locked none can, so the query is repeated then.
    locked = await session.lock_records([number for number, _ in likely])
    among = _UNSEEN.format(records="@records AS records", which="number = ANY ($6::bigint[])")
    gone = await session.rows(among, *asked, locked)
    await session.run(_SUPERSEDE.format(contents=words.contents), [number for number, _ in gone])
    for looked in (True, False):
        numbers = [number for number, found in gone if (found == 2) is looked]
        if numbers:
            sql = _RETIRE.format(next_place=words.next_place)
            await session.run(sql, numbers, wanted.at, wanted.job, looked)
    return len(gone)
