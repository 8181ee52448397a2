"""Records for the dashboard: the kinds that exist, a table with the item's own columns, one record over time.

How it fails: BackendUnavailable; Misconfigured for a job that does not exist.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from ...clock import iso_time
from ...model.record import StoredRecord
from ...pipeline.inspection import WHOLE
from ..access.keys import Caller, Sight
from ..jobs.api_views import RecordQuery, seen_records, seen_spiders, some_records
from ..open import Project
from .records import (
    FaultyRecord,
    FieldChange,
    RecordFilter,
    RecordVersion,
    RecordVersions,
    changes,
    faulty_records,
    query_of,
)

MOST_COLUMNS = 12
MOST_SORTED = 10_000  # records read to sort them by a column
SECONDS_SORTED = 0.6  # time limit for that
LONGEST_HELD = 400  # characters kept of a text while the others are read
MOST_CHARTS = 4
MOST_DRAWN = 1e300  # an item may hold integers that no float can represent
FIRST_COLUMNS = ("title", "name", "headline", "url")  # by which a reader recognises a record
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,9})?")


class RecordKinds(msgspec.Struct, frozen=True, kw_only=True):
    """The item types and spiders that have records. `types` is None for a caller who may not see all: which job stored
    a type first is unknown."""

    types: list[str] | None
    spiders: list[str]


class RecordRow(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    site: str
    key: str
    version: int
    changed: str
    gone: bool
    data: dict[str, Any]  # the fields of the item


class RecordTable(msgspec.Struct, frozen=True, kw_only=True):
    """A page of records. `total` is None for a caller who may not see all; pass `next` as `after`.

    `sorted_of`: how many records, the newest, were sorted by a column if there are more; None: all of them, or no
    sorting.
    """

    columns: list[str]
    rows: list[RecordRow]
    total: int | None
    next: int | None
    sorted_of: int | None = None


class RecordStep(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a record, and what it changed."""

    version: int
    at: str
    job: str
    gone: bool
    back: bool  # the version before was gone
    changes: list[FieldChange]


class NumberLine(msgspec.Struct, frozen=True, kw_only=True):
    """A numeric field over the versions of a record."""

    field: str
    times: list[float]
    values: list[float | None]


class RecordStory(msgspec.Struct, frozen=True, kw_only=True):
    record: RecordVersions
    steps: list[RecordStep]  # newest first
    numbers: list[NumberLine]


async def record_kinds(project: Project, caller: Caller) -> RecordKinds:
    """Derived from the counts of the quality checks and the recorded item shapes; for a caller who may not see all,
    only the spiders of the jobs that they see."""
    if not caller.is_admin:
        return RecordKinds(types=None, spiders=sorted(await seen_spiders(project, caller)))
    tallies = await project.records.scores()
    types = {one.type for one in tallies if one.type != WHOLE} | {
        shape.type for shape, _ in await project.records.schemas()
    }
    return RecordKinds(types=sorted(types), spiders=sorted({one.spider for one in tallies}))


async def searched(project: Project, wanted: RecordFilter, search: str | None) -> RecordQuery:
    """The query for a table, and for an export of it. `search` is a key, or the address of a page. Raises
    Misconfigured."""
    query = await query_of(project, wanted)
    if not search:
        return query
    by_key = msgspec.structs.replace(query, key=search)
    if search.startswith(("http://", "https://")) and not await project.records.count(by_key):
        return msgspec.structs.replace(query, url=search)
    return by_key


async def record_table(
    project: Project, caller: Caller, wanted: RecordFilter, *, search: str | None, newest: bool, limit: int, after: int
) -> RecordTable:
    """The records that the caller sees, in the order in which they were first stored, or `newest` first. `search` as in
    `searched`. Raises Misconfigured."""
    query = msgspec.structs.replace(await searched(project, wanted, search), newest=newest)
    found, following = await some_records(project, caller, query, limit=limit, after=after)
    rows = [_row(record) for record in found]
    return RecordTable(
        columns=_columns([row.data for row in rows]),
        rows=rows,
        total=await project.records.count(query) if caller.is_admin else None,
        next=following,
    )


async def sorted_table(
    project: Project, caller: Caller, wanted: RecordFilter, *, search: str | None, column: str, limit: int, after: int
) -> RecordTable:
    """As `record_table`, sorted by a field of the items; with a minus, descending. Records without a value come last.

    No store has an index for this, so the newest MOST_SORTED matching records are read, for SECONDS_SORTED at most, and
    the first `after + limit` are kept: if the filter matches no more than that, the order is complete.
    """
    query = msgspec.structs.replace(await searched(project, wanted, search), newest=True)
    total = await project.records.count(query) if caller.is_admin else None
    rows, read, whole = await _some_rows(seen_records(project, caller, query))
    name, down = column.removeprefix("-"), column.startswith("-")
    known = [(rank_of(row.data.get(name)), row) for row in rows if row.data.get(name) is not None]
    unknown = [row for row in rows if row.data.get(name) is None]
    choose = heapq.nlargest if down else heapq.nsmallest
    end = after + limit
    first = [row for _, row in choose(end, known, key=lambda pair: pair[0])]
    shown = [*first, *unknown[: max(0, end - len(known))]][after:end]
    return RecordTable(
        columns=_columns([row.data for row in shown]),
        rows=shown,
        total=total,
        next=end if end < read else None,
        sorted_of=None if whole else read,
    )


async def _some_rows(records: AsyncIterator[StoredRecord]) -> tuple[list[RecordRow], int, bool]:
    """The first rows, how many were read, and whether these are all."""
    rows: list[RecordRow] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS_SORTED):
            async for record in records:
                if len(rows) == MOST_SORTED:
                    return rows, len(rows), False
                row = _row(record)
                rows.append(msgspec.structs.replace(row, data={name: _cut(value) for name, value in row.data.items()}))
            return rows, len(rows), True
    return rows, len(rows), False


def _cut(value: Any) -> Any:
    """The value shortened to little more than a table shows."""
    text = value if isinstance(value, str) else "" if isinstance(value, int | float | bool | None) else str(value)
    if len(text) <= LONGEST_HELD:
        return value
    return text[:LONGEST_HELD]


def rank_of(value: Any) -> tuple[int, float, str]:
    """The sort key of a value: numbers and amounts of money first, by size, then texts."""
    if isinstance(value, dict) and {"amount", "currency"} <= value.keys():
        value = float(value["amount"]) if _is_number("amount", value["amount"]) else str(value["amount"])
    if isinstance(value, int | float):
        return (0, float(value), "") if abs(value) < MOST_DRAWN else (0, MOST_DRAWN, "")
    return (1, 0.0, str(value).casefold())


def _row(record: StoredRecord) -> RecordRow:
    return RecordRow(
        type=record.type,
        site=record.site,
        key=record.key,
        version=record.version,
        changed=iso_time(record.last_changed),
        gone=record.gone_since is not None,
        data=record.data,
    )


def _columns(rows: list[dict[str, Any]]) -> list[str]:
    """The item's own fields: those that identify it first, those that hold whole documents last."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    heavy = {name for name in names if any(len(str(row.get(name, ""))) > 400 for row in rows)}

    def rank(name: str) -> tuple[int, int]:
        first = FIRST_COLUMNS.index(name) if name in FIRST_COLUMNS[:-1] else len(FIRST_COLUMNS)
        return (2 if name in heavy or name == "url" else 0, first)

    return sorted(names, key=rank)[:MOST_COLUMNS]


def story_of_record(record: RecordVersions) -> RecordStory:
    """What each version changed, and the numeric fields over time."""
    steps: list[RecordStep] = []
    before: RecordVersion | None = None
    for one in record.versions:
        changed = changes(before.data, one.data) if before is not None and not one.gone else []
        back = before is not None and before.gone and not one.gone
        steps.append(RecordStep(version=one.version, at=one.at, job=one.job, gone=one.gone, back=back, changes=changed))
        before = one
    return RecordStory(record=record, steps=steps[::-1], numbers=_numbers(record))


def _numbers(record: RecordVersions) -> list[NumberLine]:
    """Numeric fields that changed come first. Each version holds until the next one, so the last is drawn twice."""
    versions = [one for one in record.versions if not one.gone]
    times = [datetime.fromisoformat(one.at).timestamp() for one in versions]
    flat = [_flat(one.data) for one in versions]
    found: list[NumberLine] = []
    for field in dict.fromkeys(name for one in flat for name in one):
        values = [one.get(field) for one in flat]
        if len({value for value in values if value is not None}) > 1:
            last = datetime.fromisoformat(record.last_checked).timestamp()
            stays = last > times[-1] + 1 and record.gone_since is None
            found.append(
                NumberLine(
                    field=field,
                    times=[*times, last] if stays else times,
                    values=[*values, values[-1]] if stays else values,
                )
            )
    return found[:MOST_CHARTS]


def _flat(data: Any, path: str = "") -> dict[str, float]:
    """The numbers of an item by their dotted paths; amounts of money are stored as text."""
    found: dict[str, float] = {}
    if not isinstance(data, dict):
        return found
    for name, value in data.items():
        where = f"{path}.{name}" if path else str(name)
        if isinstance(value, dict):
            found |= _flat(value, where)
        elif _is_number(name, value):
            found[where] = float(value)
    return found


def _is_number(name: str, value: Any) -> bool:
    if isinstance(value, str):
        return name == "amount" and _NUMBER.fullmatch(value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST_DRAWN


async def some_faulty(
    project: Project, caller: Caller, spider: str | None, *, days: int, limit: int, seconds: float
) -> tuple[list[FaultyRecord], bool]:
    """Up to `limit` stored records with faults that the caller sees, found within `seconds`; and whether these are
    all."""
    sight, found = Sight(project, caller), list[FaultyRecord]()
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for one in faulty_records(project, spider, days=days):
                if await sight.of(one.job):
                    found.append(one)
                if len(found) == limit:
                    return found, False
            return found, True
    return found, False
