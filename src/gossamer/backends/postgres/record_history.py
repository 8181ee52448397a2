"""The history of records: their versions, the differences between two jobs, and which are gone.

Records are marked as gone in portions, one transaction each, so that others can write in between; an interrupted call
has marked some of them, and the next call marks the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...store.contract import Difference, Retirement, Version
from ...store.record_rules import Seen, difference
from .connection import Row, Session
from .record_writes import SUPERSEDE
from .stored_text import read, stored

COMPARED = 1000  # records whose versions are compared at a time
COMPARED_DATA = 100  # possibly different records whose data is read at a time
RETIRED = 20_000  # records examined in one transaction

VERSIONS = """
SELECT past.version, past.at, past.job, past.source, past.gone, past.schema
FROM @records AS records JOIN @superseded AS past ON past.record = records.number WHERE identity = $1
UNION ALL
SELECT version, last_changed, job, source, gone_since IS NOT NULL, schema FROM @records WHERE identity = $1
ORDER BY 1"""

SEEN_VERSION = """
SELECT sightings.version FROM @records AS records JOIN @sightings AS sightings ON sightings.record = records.number
WHERE records.identity = $1 AND sightings.job = $2"""

# The first records after a number that either of two jobs saw. Both sides get the same limit, so that for the remaining
# records both sides are known.
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
) AS seen GROUP BY record ORDER BY record LIMIT {COMPARED}"""  # noqa: S608 - our own words

_WITH_DATA = """
SELECT wanted.record, type, site, key, url,
    CASE WHEN wanted.before = records.version THEN records.source
        ELSE (SELECT past.source FROM @superseded AS past
              WHERE past.record = wanted.record AND past.version = wanted.before) END,
    CASE WHEN wanted.after = records.version THEN records.source
        ELSE (SELECT past.source FROM @superseded AS past
              WHERE past.record = wanted.record AND past.version = wanted.after) END
FROM unnest($1::bigint[], $2::int[], $3::int[]) AS wanted (record, before, after)
JOIN @records AS records ON records.number = wanted.record"""

HIGHEST = "SELECT coalesce(max(number), 0) AS number FROM @records"

# What the job found for the page that last yielded a record: 2 its content, 1 that it does not exist, 0 nothing that it
# could parse, NULL if it did not look. A page that redirects was not looked at, and of an attempt that was repeated the
# repetition counts. A later sighting knows better.
_UNSEEN = """
SELECT identity, number, coalesce(found, 0) AS found FROM (
    SELECT identity, number, last_checked, (
        SELECT max(CASE WHEN outcome IN ('done', 'unchanged', 'reparsed') THEN 2 WHEN status IN (404, 410) THEN 1
            WHEN outcome NOT IN ('redirected', 'retry') THEN 0 END)
        FROM @attempts AS attempts
        WHERE attempts.page = records.page AND attempts.at >= records.last_checked AND attempts.job = $1
    ) AS found
    FROM @records AS records
    WHERE {which} AND spider = $2 AND gone_since IS NULL
        AND NOT EXISTS (SELECT FROM @sightings AS s WHERE s.job = $1 AND s.record = records.number)
) AS unseen WHERE found > 0 AND ($5::text[] IS NULL OR EXISTS (
    SELECT FROM unnest($5::text[]) AS earlier (job)
    JOIN @sightings AS s ON s.job = earlier.job AND s.record = unseen.number
)) OR found IS NULL AND last_checked <= $4 AND EXISTS (
    SELECT FROM unnest($3::text[]) AS earlier (job)
    JOIN @sightings AS s ON s.job = earlier.job AND s.record = unseen.number
)"""
_UNSEEN_BETWEEN = _UNSEEN.format(which="number BETWEEN $6 AND $7")
_UNSEEN_AMONG = _UNSEEN.format(which="number = ANY ($6::bigint[])")

# As in record_writes.py: one by one, in the order of the array.
_LOCK = """
SELECT found.number FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT number FROM @records AS records WHERE records.identity = wanted.identity FOR NO KEY UPDATE
) AS found"""

# A record that its page no longer yields has no page: if that page is unchanged next time, it still does not yield the
# record.
_RETIRE = """
UPDATE @records AS records SET gone_since = $3, last_changed = $3, job = $4, version = version + 1,
    revision = pg_current_xact_id(), page = CASE WHEN given.looked THEN 0 ELSE page END
FROM unnest($1::bigint[], $2::boolean[]) AS given (number, looked) WHERE records.number = given.number"""


def version_of(row: Row) -> Version:
    version, at, job, source, gone, schema = row
    return Version(version=version, at=at, job=read(job), data=read(source), gone=gone, schema=read(schema))


async def seen_by_either(session: Session, before: str, after: str, last: int) -> list[Seen]:
    """The next records after the number `last` that either of two jobs saw."""
    return [Seen(*row) for row in map(tuple, await session.rows(_SEEN, stored(before), stored(after), last))]


async def differences(session: Session, seen: Sequence[Seen]) -> list[Difference]:
    """The differences among these, which should be few: the data of all of them is read."""
    columns = [[one.record for one in seen], [one.before for one in seen], [one.after for one in seen]]
    rows = {row[0]: tuple(row)[1:] for row in await session.rows(_WITH_DATA, *columns)}
    found = []
    for one in seen:
        if one.record in rows:
            type_, site, key, url, before, after = (
                read(text) if text is not None else None for text in rows[one.record]
            )
            found.append(difference((type_ or "", site or "", key or ""), url or "", one, before, after))
    return [one for one in found if one is not None]


async def retire_some(session: Session, first: int, wanted: Retirement) -> int:
    """Mark the gone ones among the records from the number `first` on; return how many. In the caller's transaction."""
    job, earlier = stored(wanted.job), [stored(one) for one in wanted.earlier]
    stands_for = None if wanted.of is None else [stored(one) for one in wanted.of]
    asked = (job, stored(wanted.spider), earlier, wanted.checked_by, stands_for)
    likely = await session.rows(_UNSEEN_BETWEEN, *asked, first, first + RETIRED - 1)
    if not likely:
        return 0
    # A writer may be seeing one of them right now. Once they are locked none can, so the query is repeated then.
    locked = await session.rows(_LOCK, sorted(row["identity"] for row in likely))
    gone = await session.rows(_UNSEEN_AMONG, *asked, [row["number"] for row in locked])
    numbers = [row["number"] for row in gone]
    if numbers:
        await session.run(SUPERSEDE, numbers)
        await session.run(_RETIRE, numbers, [row["found"] == 2 for row in gone], wanted.at, job)
    return len(numbers)
