"""The history of records: their versions, the differences between two jobs, and which are gone.

Runs on a connection of the records file. Records are marked as gone in portions, one transaction each, so that others
can write in between; an interrupted call has marked some, and the next call marks the rest.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from ...store.contract import Difference, Retirement, Version
from ...store.record_rules import Seen, difference, mend
from .record_writes import NEXT_REVISION, SUPERSEDE

COMPARED = 1000  # records whose versions are compared at a time
COMPARED_DATA = 100  # possibly different records whose data is read at a time
RETIRED = 20_000  # records examined in one transaction

_VERSIONS = """
SELECT past.version, past.at, past.job, past.data, past.gone, past.schema
FROM records JOIN superseded AS past ON past.record = records.number
WHERE type = :type AND site = :site AND key = :key
UNION ALL
SELECT version, last_changed, job, data, gone_since IS NOT NULL, schema
FROM records WHERE type = :type AND site = :site AND key = :key
ORDER BY 1"""

_SEEN_VERSION = """
SELECT sightings.version FROM records JOIN sightings ON sightings.record = records.number
WHERE type = ? AND site = ? AND key = ? AND sightings.job = ?"""

# The first records after a number that either of two jobs saw. Both sides get the same limit, so that for the remaining
# records both sides are known.
_SEEN = f"""
SELECT record, max(before), max(after) FROM (
    SELECT record, version AS before, NULL AS after FROM (
        SELECT record, version FROM sightings WHERE job = :before AND record > :last ORDER BY record LIMIT {COMPARED})
    UNION ALL
    SELECT record, NULL, version FROM (
        SELECT record, version FROM sightings WHERE job = :after AND record > :last ORDER BY record LIMIT {COMPARED})
) GROUP BY record ORDER BY record LIMIT {COMPARED}"""  # noqa: S608 - our own words

_WITH_DATA = """
SELECT wanted.record, type, site, key, url,
    iif(wanted.before = records.version, records.data,
        (SELECT data FROM superseded WHERE record = wanted.record AND version = wanted.before)),
    iif(wanted.after = records.version, records.data,
        (SELECT data FROM superseded WHERE record = wanted.record AND version = wanted.after))
FROM (
    SELECT json_extract(value, '$[0]') AS record, json_extract(value, '$[1]') AS before,
        json_extract(value, '$[2]') AS after
    FROM json_each(?)
) AS wanted CROSS JOIN records ON records.number = wanted.record
ORDER BY records.number"""

HIGHEST = "SELECT coalesce(max(number), 0) FROM records"

# What the job found for the page that last yielded a record: 2 its content, 1 that it does not exist, 0 nothing that it
# could parse, NULL if it did not look. A page that redirects was not looked at, and of an attempt that was repeated the
# repetition counts. A later sighting knows better.
_UNSEEN = """
SELECT number, coalesce(found, 0) FROM (
    SELECT number, last_checked, (
        SELECT max(CASE WHEN outcome IN ('done', 'unchanged', 'reparsed') THEN 2 WHEN status IN (404, 410) THEN 1
            WHEN outcome NOT IN ('redirected', 'retry') THEN 0 END)
        FROM attempts WHERE attempts.page = records.page AND at >= last_checked AND attempts.job = :job
    ) AS found
    FROM records NOT INDEXED
    WHERE number BETWEEN :first AND :last AND spider = :spider AND gone_since IS NULL
        AND NOT EXISTS (SELECT 1 FROM sightings WHERE sightings.job = :job AND record = number)
) WHERE found > 0 AND (:of IS NULL OR EXISTS (
    SELECT 1 FROM json_each(:of) AS earlier CROSS JOIN sightings
    WHERE sightings.job = earlier.value AND record = number
)) OR found IS NULL AND last_checked <= :began AND EXISTS (
    SELECT 1 FROM json_each(:earlier) AS earlier CROSS JOIN sightings
    WHERE sightings.job = earlier.value AND record = number
)"""

# A record that its page no longer yields has no page: if that page is unchanged next time, it still does not yield the
# record.
_RETIRE = """
UPDATE records SET gone_since = ?, last_changed = ?, job = ?, version = version + 1, revision = ?,
    page = iif(?, 0, page)
WHERE number = ?"""


def versions(connection: sqlite3.Connection, type: str, site: str, key: str) -> list[Version]:
    rows = connection.execute(_VERSIONS, {"type": mend(type), "site": mend(site), "key": mend(key)}).fetchall()
    return [
        Version(version=version, at=at, job=job, data=data, gone=bool(gone), schema=schema)
        for version, at, job, data, gone, schema in rows
    ]


def seen_version(connection: sqlite3.Connection, job: str, type: str, site: str, key: str) -> int:
    row = connection.execute(_SEEN_VERSION, (mend(type), mend(site), mend(key), mend(job))).fetchone()
    return row[0] if row is not None else 0


def seen_by_either(connection: sqlite3.Connection, before: str, after: str, last: int) -> list[Seen]:
    """The next records after the number `last` that either of two jobs saw."""
    values = {"before": mend(before), "after": mend(after), "last": last}
    return [Seen(*row) for row in connection.execute(_SEEN, values)]


def differences(connection: sqlite3.Connection, seen: Sequence[Seen]) -> list[Difference]:
    """The differences among these, which should be few: the data of all of them is read."""
    by_number = {one.record: one for one in seen}
    wanted = msgspec.json.encode([(one.record, one.before, one.after) for one in seen]).decode()
    found = [
        difference((type_, site, key), url, by_number[number], before, after)
        for number, type_, site, key, url, before, after in connection.execute(_WITH_DATA, (wanted,))
    ]
    return [one for one in found if one is not None]


def retire_some(connection: sqlite3.Connection, first: int, wanted: Retirement) -> int:
    """Mark the gone ones among the records from the number `first` on; return how many. In the caller's transaction."""
    job, at = mend(wanted.job), wanted.at
    asked: dict[str, Any] = {
        "first": first,
        "last": first + RETIRED - 1,
        "job": job,
        "spider": mend(wanted.spider),
        "began": wanted.checked_by,
        "of": None if wanted.of is None else msgspec.json.encode([mend(one) for one in wanted.of]).decode(),
        "earlier": msgspec.json.encode([mend(one) for one in wanted.earlier]).decode(),
    }
    gone = connection.execute(_UNSEEN, asked).fetchall()
    if gone:
        (revision,) = connection.execute(NEXT_REVISION).fetchone()
        connection.executemany(SUPERSEDE + "number = ?", [(number,) for number, _ in gone])
        connection.executemany(_RETIRE, [(at, at, job, revision, found == 2, number) for number, found in gone])
    return len(gone)
