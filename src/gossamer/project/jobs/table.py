"""The jobs of a project as a table: searched, filtered, sorted, paged, without the jobs of other keys. Restarts a job.

How it fails: BackendUnavailable; BadRequest for a job that cannot be started again over HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import msgspec

from ...model.job import Job, read_arguments
from ..access.keys import LOCAL, Caller
from ..open import Project
from ..schedules.changes import run_schedule
from .api_jobs import begin_crawl, wanted_pages
from .api_requests import BadRequest, CrawlRequest
from .jobs import JobView, views_of

JobSort = Literal["-started", "started", "name", "-name", "-dead", "dead", "-open", "open", "-done", "done"]
_OF_COUNTS = ("dead", "open", "done")
RUNNING_SHOWN = 20


class JobWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list. None does not restrict. `state` is running, paused, cancelled, or an outcome."""

    text: str | None = None  # in its id, its name or its spider
    state: str | None = None
    spider: str | None = None
    schedule: str | None = None


class JobLine(JobView, frozen=True, kw_only=True):
    """A job, and who started it: a key by its name, a schedule, or the command line."""

    begun_by: str


class JobTable(msgspec.Struct, frozen=True, kw_only=True):
    """One page of jobs. `total` counts all that match; `states`, `spiders` and `schedules` count all that the caller
    sees."""

    jobs: list[JobLine]
    total: int
    next: str | None  # pass it as `after` to get the next page
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
    """The matching jobs that the caller may see. `after` is how many to skip."""
    seen = [job for job in await project.state.jobs.jobs() if caller.sees(job)]
    found = [job for job in seen if _is_wanted(job, wanted)]
    field, down = sort.lstrip("-"), sort.startswith("-")
    if field in _OF_COUNTS:
        found_counts = await project.state.jobs.counts_of([job.id for job in found])
        found = [job for job in found if job.id in found_counts]  # the others were deleted just now
        found.sort(key=lambda job: getattr(found_counts[job.id][0], field), reverse=down)
    elif field == "name":
        found.sort(key=lambda job: job.name.casefold(), reverse=down)
    elif not down:
        found.reverse()
    end = after + limit
    return JobTable(
        jobs=await rows_of(project, found[after:end]),
        total=len(found),
        next=str(end) if end < len(found) else None,
        states=_counted(job.word for job in seen),
        spiders=_counted(job.spider_name for job in seen),
        schedules=_counted(job.schedule for job in seen if job.schedule),
    )


async def running_rows(project: Project, caller: Caller) -> tuple[list[JobLine], int]:
    """The newest running jobs, and how many are running."""
    seen = [job for job in await project.state.jobs.running_jobs() if caller.sees(job)]
    return await rows_of(project, seen[::-1][:RUNNING_SHOWN]), len(seen)


async def rows_of(project: Project, jobs: list[Job]) -> list[JobLine]:
    names = {key.id: key.name for key in await project.state.keys.keys()} if any(job.owner for job in jobs) else {}
    views = await views_of(project, jobs)
    return [
        JobLine(**msgspec.structs.asdict(view), begun_by=_begun_by(job, names))
        for job, view in zip(jobs, views, strict=True)
    ]


def _is_wanted(job: Job, wanted: JobWanted) -> bool:
    text = (wanted.text or "").casefold()
    return (
        wanted.state in (None, job.word)
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
    """Start a job with the spider, arguments and limit of another; return its id.

    For a run of a schedule this is one more run, which only an admin may start. Raises BadRequest, TooMuchAtOnce,
    Misconfigured.
    """
    if job.schedule:
        if not caller.is_admin:
            raise BadRequest("Only an admin can start runs of a schedule.")
        return (await run_schedule(project, job.schedule)).job
    if await wanted_pages(project, job):
        raise BadRequest("This job fetched single pages that a program asked for: let it request them again.")
    is_address = "://" in job.spider_name
    wanted = CrawlRequest(
        url=job.spider_name if is_address else None,
        spider=None if is_address else job.spider_name,
        arguments=read_arguments(job.arguments) or None,
        limit=job.limit,
        depth=job.depth,
        rate=job.politeness.rate,
    )
    return (await begin_crawl(project, caller, wanted)).id
