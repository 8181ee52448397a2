"""The jobs of a project as a table: searched, filtered, sorted, in pages; less those of other keys. And a job again.

How it fails: BackendUnavailable; BadRequest for a job that cannot be begun again over HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from ..model.job import Job, JobState
from ..parse.arguments import read_arguments
from .api_jobs import begin_crawl, wanted_pages
from .api_requests import BadRequest, CrawlRequest
from .jobs import JobView, views_of
from .keys import LOCAL, Caller
from .open import Project
from .schedule_changes import run_schedule

JobSort = Literal["-started", "started", "name", "-name", "-dead", "dead", "-open", "open", "-done", "done"]
_OF_COUNTS = ("dead", "open", "done")
RUNNING_SHOWN = 20


class JobWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs. None does not restrict. `state` is running, paused, cancelled, or an outcome."""

    text: str | None = None  # in its id, its name or its spider
    state: str | None = None
    spider: str | None = None
    schedule: str | None = None


class JobRow(JobView, frozen=True, kw_only=True):
    """A job, and who began it: a key by its name, a schedule, or the command line."""

    begun_by: str


class JobTable(msgspec.Struct, frozen=True, kw_only=True):
    """A page of jobs. `total` are all that are wanted; `states`, `spiders` and `schedules` count all that are seen."""

    jobs: list[JobRow]
    total: int
    next: str | None  # is given as `after` for the next page
    states: dict[str, int]
    spiders: dict[str, int]
    schedules: dict[str, int]


async def job_table(
    project: Project,
    caller: Caller,
    wanted: JobWanted,
    *,
    sort: JobSort = "-started",
    limit: int = 50,
    after: int = 0,
) -> JobTable:
    """The jobs that the caller sees and wants. `after` are jobs to skip."""
    seen = [job for job in await project.state.jobs.jobs() if caller.sees(job)]
    found = [job for job in seen if _is_wanted(job, wanted)]
    field, down = sort.lstrip("-"), sort.startswith("-")
    if field in _OF_COUNTS:
        standings = await project.state.jobs.standings([job.id for job in found])
        found = [job for job in found if job.id in standings]  # the others were forgotten just now
        found.sort(key=lambda job: getattr(standings[job.id][0], field), reverse=down)
    elif field == "name":
        found.sort(key=lambda job: job.name.casefold(), reverse=down)
    elif not down:
        found.reverse()
    end = after + limit
    return JobTable(
        jobs=await rows_of(project, found[after:end]),
        total=len(found),
        next=str(end) if end < len(found) else None,
        states=_counted(state_of(job) for job in seen),
        spiders=_counted(job.spider_name for job in seen),
        schedules=_counted(job.schedule for job in seen if job.schedule),
    )


async def running_rows(project: Project, caller: Caller) -> tuple[list[JobRow], int]:
    """The newest of the jobs that run now, and how many there are."""
    seen = [job for job in await project.state.jobs.running_jobs() if caller.sees(job)]
    return await rows_of(project, seen[::-1][:RUNNING_SHOWN]), len(seen)


async def rows_of(project: Project, jobs: list[Job]) -> list[JobRow]:
    names = {key.id: key.name for key in await project.state.keys.keys()} if any(job.owner for job in jobs) else {}
    views = await views_of(project, jobs)
    return [
        JobRow(**msgspec.structs.asdict(view), begun_by=_begun_by(job, names))
        for job, view in zip(jobs, views, strict=True)
    ]


def state_of(job: Job) -> str:
    """One word that the job itself tells, without its counts."""
    if job.state is JobState.RUNNING:
        return "paused" if job.paused else "running"
    if job.state is JobState.CANCELLED:
        return "cancelled"
    return job.outcome.outcome.value if job.outcome is not None else job.ending.partition(":")[0] or "done"


def _is_wanted(job: Job, wanted: JobWanted) -> bool:
    text = (wanted.text or "").casefold()
    return (
        wanted.state in (None, state_of(job))
        and wanted.spider in (None, job.spider_name)
        and wanted.schedule in (None, job.schedule)
        and (not text or any(text in held.casefold() for held in (job.id, job.name, job.spider_name)))
    )


def _begun_by(job: Job, names: dict[str, str]) -> str:
    if job.schedule:
        return f"schedule {job.schedule}"
    if job.owner == LOCAL:
        return "this machine"
    return names.get(job.owner, f"key {job.owner}") if job.owner else "command line"


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(Counter(words).most_common())


async def begin_again(project: Project, caller: Caller, job: Job) -> str:
    """Begin a job with the spider, arguments and limit of another; return its id.

    A run of a schedule is one more run of it, which is for the admin. Raises BadRequest, TooMuchAtOnce, Misconfigured.
    """
    if job.schedule:
        if not caller.is_admin:
            raise BadRequest("Runs of a schedule are begun by an admin.")
        return (await run_schedule(project, job.schedule)).job
    if await wanted_pages(project, job):
        raise BadRequest("This job fetched single pages that a program asked for: it can ask for them again.")
    is_address = "://" in job.spider_name
    wanted = CrawlRequest(
        url=job.spider_name if is_address else None,
        spider=None if is_address else job.spider_name,
        arguments=read_arguments(job.arguments) or None,
        limit=job.limit,
        depth=job.depth,
        rate=job.manners.rate,
    )
    return (await begin_crawl(project, caller, wanted)).id
