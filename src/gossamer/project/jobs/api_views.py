"""What the holder of a key sees of a project: jobs, stories, records and dead letters, without those of other keys.

Every value has the shape of `--json`, sometimes with a few more fields. Jobs that no key has started (from schedules or
the command line) are visible to all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from tempfile import SpooledTemporaryFile
from typing import Any, cast

import msgspec

from ...model.job import Job, JobState, number_of
from ...model.record import StoredRecord
from ...model.task import Request
from ...parse.site import SiteSpider
from ...store.contract import LAST_NUMBER as LAST_NUMBER  # re-exported: part of this interface
from ...store.contract import RecordQuery as RecordQuery
from ...store.export.text_formats import TableWriter, meta_of
from ..access.keys import Caller, Sight
from ..dead_letters.dead_letters import DeadLetterDetail, show_letters
from ..dead_letters.story import ANOTHER_JOB, JobStory, Story, story_of
from ..open import Project
from ..records.records import QualityScore, RecordFilter, RecordVersions, history, quality, query_of
from ..spiders.spiders import spiders_of
from .api_requests import BadRequest
from .jobs import JobView, job_in_full, views_of

PIECE = 256 * 1024  # bytes sent at once
UNFINISHED = ("queued", "running", "paused")  # statuses of jobs that have not ended
JOBS_AT_ONCE = 100
RECORDS_AT_ONCE = 32  # records whose jobs are looked up together
LOOKED_AT = 1000  # jobs examined for those of one status
MOST_BYTES = 16 * 1024 * 1024  # of results or records in one answer, roughly; at least one is always returned


class JobReport(JobView, frozen=True, kw_only=True):
    """A job, with one word for its status: queued, running, paused, completed, failed or cancelled. Some values appear
    under two names, the second being the one that clients of similar services expect."""

    job_id: str
    status: str
    failed: int  # the same as `dead`
    started_at: str  # the same as `started`
    rate: float  # the same as `pages_per_second`
    eta: float | None  # the same as `eta_seconds`
    error: str | None  # why it failed


class JobReports(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs that the caller may see. Pass `next` as `after` for the next page."""

    jobs: list[JobReport]
    next: str | None


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records as lines of `gossamer export`. Pass `next` as `after` for the next page."""

    records: list[dict[str, Any]]  # the fields of items
    next: str | None


async def job_report(project: Project, job: Job) -> JobReport:
    return _report(await job_in_full(project, job))


def _report(view: JobView) -> JobReport:
    status, error = _status(view), None
    if status == "failed":
        error = view.fault or "None of its pages could be fetched. See the errors of its results, or its dead letters."
    return JobReport(
        **msgspec.structs.asdict(view),
        job_id=view.id,
        status=status,
        failed=view.dead,
        started_at=view.started,
        rate=view.pages_per_second,
        eta=view.eta_seconds,
        error=error,
    )


def _status(view: JobView) -> str:
    had = view.done + view.unchanged
    if view.state is JobState.RUNNING:
        return "paused" if view.paused else "running" if had or view.dead or view.phase == "running" else "queued"
    if view.state is JobState.CANCELLED or view.ending == "replaced":
        return "cancelled"
    return "completed" if had or (not view.dead and not view.dropped and not view.fault) else "failed"


async def job_reports(
    project: Project, caller: Caller, *, limit: int, after: str | None = None, status: str | None = None
) -> JobReports:
    """The jobs that the caller sees, newest first, that come after the job `after`. With a `status`, at most LOOKED_AT
    jobs are examined: then there may be fewer than `limit`, and more after `next`."""
    found: list[JobReport] = []
    looked, last = 0, after
    async for jobs in _seen_jobs(project, caller, limit=limit, after=after, status=status):
        for view in await views_of(project, jobs):
            if len(found) == limit or looked == LOOKED_AT:
                return JobReports(jobs=found, next=last)
            looked, last = looked + 1, view.id
            report = _report(view)
            if status in (None, report.status):
                found.append(report)
    return JobReports(jobs=found, next=None)


async def _seen_jobs(
    project: Project, caller: Caller, *, limit: int, after: str | None, status: str | None
) -> AsyncIterator[list[Job]]:
    """Jobs that may match, in batches."""
    if status in UNFINISHED:
        running = [job for job in await project.state.jobs.running_jobs() if caller.sees(job)]
        below = number_of(after) if after is not None else None
        running = [job for job in running[::-1] if below is None or number_of(job.id) < below]
        for start in range(0, len(running), JOBS_AT_ONCE):
            yield running[start : start + JOBS_AT_ONCE]
        return
    owners = None if caller.is_admin else ("", caller.id)
    some = limit + 1 if status is None else JOBS_AT_ONCE  # one extra tells whether there is a next page
    while jobs := await project.state.history.page(some, owners=owners, after=after):
        yield jobs
        after = jobs[-1].id


# -- records -------------------------------------------------------------------------------------------------------


async def seen_records(project: Project, caller: Caller, query: RecordQuery) -> AsyncIterator[StoredRecord]:
    """If the caller sees the job: all records that it saw, even those another job stored first. Otherwise: records last
    changed by a job that the caller sees. A record that a job of another key changed since is given as the caller's job
    saw it."""
    sight = Sight(project, caller)
    whole = query.job if query.job is not None and await sight.of(query.job) else None
    async for some in _in_portions(project.records.records(query)):
        await sight.look_at(record.job for record in some)
        for record in some:
            if await sight.of(record.job):
                yield record
            elif whole is not None and (seen := await _as_seen(project, whole, record)) is not None:
                yield seen


async def _in_portions(records: AsyncIterator[StoredRecord]) -> AsyncIterator[list[StoredRecord]]:
    """A few records at a time, so that their jobs can be looked up together."""
    some: list[StoredRecord] = []
    async for record in records:
        some.append(record)
        if len(some) == RECORDS_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


async def _as_seen(project: Project, job: str, record: StoredRecord) -> StoredRecord | None:
    """The record in the version that the job saw last; None if that is unknown."""
    identity = (record.type, record.site, record.key)
    version = await project.records.seen_version(job, *identity)
    if version == record.version:
        return record
    for past in await project.records.history(*identity) if version else ():
        if past.version == version:
            return msgspec.structs.replace(
                record,
                data=msgspec.json.decode(past.data, type=dict[str, Any]),
                job=past.job,
                version=past.version,
                last_changed=past.at,
                last_checked=past.at,
                schema=past.schema,
                gone_since=past.at if past.gone else None,
            )
    return None


async def record_lines(project: Project, caller: Caller, query: RecordQuery) -> AsyncIterator[dict[str, Any]]:
    """The records of a query whose job the caller sees, as lines of `gossamer export`."""
    async for record in seen_records(project, caller, query):
        yield _line(record)


def _line(record: StoredRecord) -> dict[str, Any]:
    return {**record.data, "_meta": record.data.get("_meta", meta_of(record))}


def encode(value: Any) -> bytes:  # Any: whatever can be JSON
    """JSON in UTF-8. Items may hold integers that are too long for msgspec."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except (OverflowError, ValueError):
        text = json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False)
        return text.encode("utf-8", "backslashreplace")


def weight_of(value: Any) -> int:  # Any: whatever can be JSON
    """The approximate size of a value as JSON, in bytes."""
    weight, left = 0, [value]
    while left:
        match left.pop():
            case str() as text:
                weight += 2 + (len(text) if text.isascii() else len(text.encode("utf-8", "replace")))
            case dict() as held:
                left += [*held, *held.values()]
            case list() | tuple() as held:
                left += held
            case _:
                weight += 8
    return weight


async def some_records(
    project: Project, caller: Caller, query: RecordQuery, *, limit: int, after: int
) -> tuple[list[StoredRecord], int | None]:
    """Up to `limit` records after the number `after`, fewer if they are big; and the `after` of the next page, if there
    is one. Every page costs the same."""
    found: list[StoredRecord] = []
    weight = 0
    async for record in seen_records(project, caller, msgspec.structs.replace(query, beyond=after or None)):
        if len(found) == limit or weight >= MOST_BYTES:
            return found, found[-1].number
        found.append(record)
        weight += weight_of(record.data)
    return found, None


async def record_page(project: Project, caller: Caller, query: RecordQuery, *, limit: int, after: int) -> RecordPage:
    """As `some_records`, as lines of `gossamer export`."""
    found, following = await some_records(project, caller, query, limit=limit, after=after)
    return RecordPage(records=[_line(one) for one in found], next=None if following is None else str(following))


async def record_table(project: Project, caller: Caller, query: RecordQuery, *, most: int) -> AsyncIterator[bytes]:
    """The records as CSV. All are read before the first byte is sent, because the columns depend on all of them; beyond
    a few megabytes they are buffered on disk. Raises BadRequest for more than `most` bytes, roughly."""
    weight, too_much = 0, "These are more records than server.max_stream allows. Ask by site, type or time."
    with SpooledTemporaryFile(max_size=PIECE) as file:
        writer = TableWriter(cast("Any", file))  # Any: a binary file of unspecified type
        try:
            async for record in seen_records(project, caller, query):
                weight += weight_of(record.data)
                if weight > most:
                    raise BadRequest(too_much)
                writer.take(record)
            writer.finish()
        finally:
            writer.close()
        if file.tell() > most:
            raise BadRequest(too_much)
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece


async def changes_query(project: Project, wanted: RecordFilter, after: str | None) -> tuple[RecordQuery, str]:
    """The query for records stored between the cursor `after` and now, and the cursor for now. Raises Misconfigured."""
    cursor = await project.records.cursor()
    query = await query_of(project, wanted)
    return msgspec.structs.replace(query, gone=None, after=after, upto=cursor), cursor


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A spider or a recipe."""

    name: str
    summary: str


async def catalogue(project: Project) -> list[CatalogueEntry]:
    """The spiders and recipes that load here. A thread reads their files."""
    found = await asyncio.to_thread(spiders_of, project.settings)
    return [CatalogueEntry(name=one.name, summary=one.summary) for one in found.spiders]


async def ask_stores(project: Project) -> None:
    """Check that state and records answer. Raises BackendUnavailable."""
    await project.state.jobs.running_jobs()
    await project.records.cursor()


async def seen_history(
    project: Project, caller: Caller, key: str, *, type: str | None, site: str | None, limit: int
) -> list[RecordVersions]:
    """Records with that key, or of the page at that address, each with the versions that the caller may see."""
    sight = Sight(project, caller)
    found: list[RecordVersions] = []
    for one in await history(project, key, type=type, site=site, limit=limit):
        versions = [version for version in one.versions if await sight.of(version.job)]
        if versions:
            found.append(msgspec.structs.replace(one, versions=versions))
    return found


async def seen_spiders(project: Project, caller: Caller) -> set[str]:
    """The spiders of the jobs that the caller sees, by their names in records."""
    names = {job.spider_name for job in await project.state.jobs.jobs() if caller.sees(job)}
    return {SiteSpider.name if "://" in name else name for name in names}


async def seen_quality(project: Project, caller: Caller, spider: str | None, *, days: int) -> list[QualityScore]:
    """As `quality`, for the spiders of the jobs that the caller sees. Items are counted by spider, not by job: a score
    covers all jobs of the spider."""
    found = await quality(project, spider, days=days)
    if caller.is_admin:
        return found
    seen = await seen_spiders(project, caller)
    return [score for score in found if score.spider in seen]


# -- stories and dead letters --------------------------------------------------------------------------------------


async def seen_story(project: Project, caller: Caller, url: str, request: Request | None = None) -> Story:
    """`gossamer why`, without the activity of other keys. Raises InvalidUrl, Misconfigured."""
    story, sight = await story_of(project, url, request), Sight(project, caller)
    jobs = [await _masked(one, sight) for one in story.jobs if await sight.of(one.job)]
    attempts = [one for one in story.attempts if await sight.of(one.job)]
    return msgspec.structs.replace(
        story,
        known=bool(jobs or attempts),
        jobs=jobs,
        attempts=attempts,
        visits=[one for one in story.visits if await sight.of(one.job)],
        records=[one for one in story.records if await sight.of(one.job)],
        changes=story.changes if jobs or attempts else None,
    )


async def _masked(story: JobStory, sight: Sight) -> JobStory:
    """The story without the id of a job that the caller may not see."""
    other = story.site_taken_by
    if other is None or await sight.of(other):
        return story
    return msgspec.structs.replace(
        story, site_taken_by=ANOTHER_JOB, in_words=story.in_words.replace(other, ANOTHER_JOB)
    )


async def seen_letters(project: Project, caller: Caller, target: str) -> list[DeadLetterDetail]:
    """The dead letters with that id or URL whose jobs the caller sees. Raises Misconfigured."""
    sight = Sight(project, caller)
    return [letter for letter in await show_letters(project, target) if await sight.of(letter.job)]
