"""The collected data of a project: records and their versions, differences between two jobs, quality, shapes of items.

Every value has the shape that `--json` prints; times are ISO 8601. export.py writes files.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, TypeAlias

import msgspec

from ...clock import iso_time
from ...errors import Misconfigured
from ...model.item import healed_fields
from ...model.record import StoredRecord, Tally, day_of
from ...model.run_records import DifferenceKind
from ...pipeline.inspection import WHOLE, Habits
from ...pipeline.quality_rules import faults_of
from ...store.contract import Difference, RecordHistory, RecordQuery, Version
from ...store.export.text_formats import meta_of
from ..jobs.jobs import find_job
from ..open import Project
from ..view_fields import view_of

Marks: TypeAlias = Mapping[tuple[str, str], dict[str, int]]  # by type and id of a schema: fields, and rules
_REPARSE = re.compile(r"reparse-.+-(\d+|[0-9a-f]{6})")


class RecordFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which records to select. None does not restrict. Times are those of the last change, in seconds."""

    job: str | None = None  # its id, or a name: then the newest job of that name
    spider: str | None = None
    type: str | None = None  # the item type: Book
    site: str | None = None
    since: float | None = None
    until: float | None = None
    gone: bool = False  # include records that are gone
    gone_by: str | None = None  # only those that this job marked as gone


class RecordVersion(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a record. When a crawl no longer finds a record, it gets a version that is `gone`."""

    version: int
    at: str  # valid from
    job: str
    gone: bool
    schema: str | None  # the shape of the item, see `schemas`
    healed: dict[str, int]  # fields that healed rules gave, with the version of these rules
    data: Any  # the fields of the item


class RecordVersions(msgspec.Struct, frozen=True, kw_only=True):
    """A record with all its versions, oldest first."""

    type: str
    site: str
    key: str
    url: str
    first_seen: str
    last_checked: str
    gone_since: str | None
    versions: list[RecordVersion]


class FieldChange(msgspec.Struct, frozen=True):
    """One field, by its dotted path, in two versions of a record. None stands for a missing field."""

    field: str
    before: Any
    after: Any


class RecordDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a record between two jobs. `fields` lists the differences if it was changed, or is back.

    `added`: not known before; `changed`: other content; `back`: it was gone and was found again; `again`: the first job
    did not see it, though it was not gone, and the second one found it as it was; `gone`: marked as gone; `unseen`: the
    second job did not see it, and it is not gone. `reason` says why its page failed then.
    """

    kind: DifferenceKind
    type: str
    site: str
    key: str
    url: str
    before: Any = None
    after: Any = None
    fields: list[FieldChange] | msgspec.UnsetType = msgspec.UNSET
    reason: str = ""


class QualityScore(msgspec.Struct, frozen=True, kw_only=True):
    """The quality of one field of one item type on one day (UTC).

    Field `*` is the item as a whole, type `*` are the pages of the spider. `score` is the share of faultless ones among
    those `checked`; `rules` counts how often each rule was broken.
    """

    spider: str
    day: str
    type: str
    field: str
    checked: int
    filled: int
    faulty: int
    score: float
    rules: dict[str, int]

    @property
    def is_of_pages(self) -> bool:
        return self.type == WHOLE

    @property
    def is_whole(self) -> bool:
        """Whether it covers the item as a whole rather than one field."""
        return self.field == WHOLE

    @property
    def filled_share(self) -> float:
        return self.filled / self.checked if self.checked else 0.0

    @property
    def faultless_share(self) -> float:
        """As `score`, without rounding."""
        return 1 - self.faulty / self.checked if self.checked else 1.0


class ItemShape(msgspec.Struct, frozen=True, kw_only=True):
    """The declared fields of an item type at one time. Records keep the shape they were made with."""

    id: str
    type: str
    first_stored: str
    key: list[str]
    fields: dict[str, Any]  # name -> {"type": "list", "of": {"type": "text"}, "optional": true}


# -- records -----------------------------------------------------------------------------------------------------


async def query_of(project: Project, wanted: RecordFilter) -> RecordQuery:
    """The query for the record store. Raises Misconfigured if there is no such job."""
    return RecordQuery(
        job=await job_of_records(project, wanted.job) if wanted.job is not None else None,
        spider=wanted.spider,
        type=wanted.type,
        site=wanted.site,
        since=wanted.since,
        until=wanted.until,
        gone=None if wanted.gone or wanted.gone_by else False,
        gone_by=wanted.gone_by,
    )


async def job_of_records(project: Project, wanted: str) -> str:
    """The id of a job, as in `find_job`. Records may also belong to a job that was deleted from the queue, or to a
    reparse, which was never in it."""
    try:
        return (await find_job(project, wanted)).id
    except Misconfigured:
        if await project.records.count(RecordQuery(job=wanted)):
            return wanted
        raise


async def records(project: Project, wanted: RecordFilter, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
    """Records as lines of `gossamer export`: the item's fields, and `_meta` with what else is known about them."""
    count = 0
    async for record in project.records.records(await query_of(project, wanted)):
        if count == limit:
            return
        yield {**record.data, "_meta": record.data.get("_meta", meta_of(record))}
        count += 1


async def what_there_is(project: Project, query: RecordQuery) -> str:
    """A hint for a user whose query matched nothing: perhaps a filter is misspelled."""
    total = await project.records.count(RecordQuery())
    if not total:
        return "The store is empty."
    if query.job is not None and not await project.records.count(RecordQuery(job=query.job)):
        return f"Job {query.job} has no records; the store holds {total:,} of others."
    return f"The store holds {total:,}; leave out a filter to see more."


# -- versions and differences ------------------------------------------------------------------------------------


async def history(
    project: Project, key: str, *, type: str | None = None, site: str | None = None, limit: int | None = None
) -> list[RecordVersions]:
    """The records with that key and all their versions; if there are none, the records of the page at that address."""
    marks = await healed_marks(project.records, type)
    for query in (RecordQuery(key=key, type=type, site=site), RecordQuery(url=key, type=type, site=site)):
        found: list[RecordVersions] = []
        async for record in project.records.records(query):
            found.append(_versions(record, await project.records.history(record.type, record.site, record.key), marks))
            if len(found) == limit:
                break
        if found:
            return found
    return []


async def healed_marks(store: RecordHistory, type: str | None = None) -> Marks:
    """By type and id of a schema: the fields that healed rules gave, with the version of these rules."""
    found = {(one.type, one.id): healed_fields(one.definition) for one, _ in await store.schemas(type)}
    return {which: fields for which, fields in found.items() if fields}


def _versions(record: StoredRecord, versions: list[Version], marks: Marks) -> RecordVersions:
    return RecordVersions(
        type=record.type,
        site=record.site,
        key=record.key,
        url=record.url,
        first_seen=iso_time(record.first_seen),
        last_checked=iso_time(record.last_checked),
        gone_since=iso_time(record.gone_since) if record.gone_since is not None else None,
        versions=[
            RecordVersion(
                version=one.version,
                at=iso_time(one.at),
                job=one.job,
                gone=one.gone,
                schema=one.schema or None,
                healed=marks.get((record.type, one.schema), {}) if not one.gone else {},
                data=decoded(one.data),
            )
            for one in versions
        ],
    )


def is_reparse(job: str) -> bool:
    """Whether this is the id of a run over the archive rather than of a crawl."""
    return _REPARSE.fullmatch(job) is not None


async def differences(project: Project, before: str, after: str) -> AsyncIterator[RecordDifference]:
    """What the job `after` saw differently from the job `before`. Raises Misconfigured for a job that does not exist,
    and for a job compared with itself."""
    one, other = await job_of_records(project, before), await job_of_records(project, after)
    if one == other:
        raise Misconfigured(f"{one} is compared with itself. Name two different jobs.")
    async for difference in project.records.differences(one, other, await ends_of(project, one, other)):
        yield difference_view(difference)


DIFFERENCE_WORDS: dict[DifferenceKind, str] = {
    "added": "added", "changed": "changed", "back": "back", "gone": "gone", "again": "seen again", "unseen": "not seen",
}  # fmt: skip
DIFFERENCE_MEANINGS: dict[DifferenceKind, str] = {
    "gone": "Gone: a run looked for it and did not find it (gossamer export --gone).",
    "again": "Seen again: the earlier run had not seen it, and it was never gone.",
    "unseen": "Not seen: the later run learned nothing about it, so it is not gone (gossamer job show says why).",
}
ALWAYS_TOLD = ("added", "changed", "gone")


def difference_words(counts: Mapping[DifferenceKind, int]) -> str:
    """`3 added, 1 changed, 0 gone, 1 not seen`"""
    told = [kind for kind in DIFFERENCE_WORDS if counts.get(kind) or kind in ALWAYS_TOLD]
    return ", ".join(f"{counts.get(kind, 0):,} {DIFFERENCE_WORDS[kind]}" for kind in told)


FIELDS_NAMED = 3


def naming_fields(difference: RecordDifference) -> list[FieldChange]:
    """The first fields of a record that is not told field by field, to know it by; its key and address are told
    anyway."""
    if difference.fields:
        return []
    found = changes(None, difference.before if difference.after is None else difference.after)
    return [one for one in found if one.after not in (None, difference.key, difference.url)][:FIELDS_NAMED]


async def ends_of(project: Project, before: str, after: str) -> tuple[float, float]:
    """When two jobs ended; infinite for one that runs, or is not known any more."""
    jobs = [await project.state.jobs.job(id) for id in (before, after)]
    first, last = (job.finished_at if job is not None else None for job in jobs)
    return (math.inf if first is None else first), (math.inf if last is None else last)


def difference_view(difference: Difference) -> RecordDifference:
    """The difference with its data decoded and its fields compared."""
    before = decoded(difference.before) if difference.before else None
    after = decoded(difference.after) if difference.after else None
    fields = changes(before, after) if difference.kind in ("changed", "back") else msgspec.UNSET
    return view_of(RecordDifference, difference, before=before, after=after, fields=fields)


def changes(before: Any, after: Any) -> list[FieldChange]:
    """The fields in which two versions of a record differ; None stands for no record."""
    old, new = dict(_fields(before)), dict(_fields(after))
    return [
        FieldChange(name, old.get(name), new.get(name))
        for name in dict.fromkeys((*old, *new))
        if old.get(name) != new.get(name)
    ]


def _fields(data: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of an item with their dotted paths: `price.amount`."""
    if data is None and not path:
        return
    if not isinstance(data, dict):
        yield "data", data
        return
    for name, value in data.items():
        where = f"{path}.{name}" if path else name
        if isinstance(value, dict) and value:
            yield from _fields(value, where)
        else:
            yield where, value


def decoded(data: str) -> Any:
    """The data of a stored record. Python's JSON reader accepts integers of any length, as items may hold them."""
    return json.loads(data)


# -- quality and shapes ------------------------------------------------------------------------------------------


async def quality(project: Project, spider: str | None = None, *, days: int) -> list[QualityScore]:
    """The scores of the last `days` days, by day, spider and type of item; whole items before their fields."""
    since = day_of(project.clock.now() - timedelta(days=days - 1).total_seconds())
    return scores_of(await project.records.scores(spider=spider, since=since))


class FaultyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored record that breaks quality rules."""

    spider: str
    type: str
    key: str
    url: str
    job: str
    faults: list[str]


async def faulty_records(project: Project, spider: str | None = None, *, days: int) -> AsyncIterator[FaultyRecord]:
    """Stored records of the last `days` days that break the built-in rules: those stored before the quality guard
    closed. A field counts as missing if items of that type nearly always had it. A spider's own rules need the page,
    and are left to `gossamer reparse`."""
    terms, since = project.settings.quality, project.clock.now() - timedelta(days=days).total_seconds()
    habits: dict[str, Habits] = {}
    async for record in project.records.records(RecordQuery(spider=spider, since=since, gone=False)):
        known = habits.get(record.spider)
        if known is None:
            counted = await project.records.scores(spider=record.spider)
            known = habits[record.spider] = Habits(terms.usual, counted, strict=True)
        broken = partial(_broken, known, record.type)
        if faults := faults_of(record.data, terms, broken=broken):
            yield FaultyRecord(
                spider=record.spider,
                type=record.type,
                key=record.key,
                url=record.url,
                job=record.job,
                faults=[fault.message for fault in faults],
            )


def _broken(habits: Habits, type: str, _: str, field: str) -> bool:
    """Stored data is a dict, which does not know the item type it was made from."""
    return habits.broken(type, field)


def scores_of(tallies: list[Tally]) -> list[QualityScore]:
    """The counts with the broken rules, in order."""
    rules: dict[tuple[str, str, str, str], Counter[str]] = defaultdict(Counter)
    for one in tallies:
        if one.rule and one.faulty:
            for field in {one.field, WHOLE}:
                rules[one.day, one.spider, one.type, field][one.rule] += one.faulty
    scores = [
        view_of(
            QualityScore,
            one,
            score=round(1 - one.faulty / one.checked, 4) if one.checked else 1.0,
            rules=dict(
                sorted(rules[one.day, one.spider, one.type, one.field].items(), key=lambda pair: (-pair[1], pair[0]))
            ),
        )
        for one in tallies
        if not one.rule
    ]
    return sorted(scores, key=lambda one: (one.day, one.spider, one.type, one.field))


async def schemas(project: Project, type: str | None = None) -> list[ItemShape]:
    """The shapes that items had, oldest first."""
    return [
        ItemShape(id=one.id, type=one.type, first_stored=iso_time(at), **msgspec.json.decode(one.definition))
        for one, at in await project.records.schemas(type)
    ]
