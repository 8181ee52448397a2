"""Views of jobs: the list, and one job, which can be paused, resumed, cancelled or run again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...model.item_account import STATE_WORDS, ItemCounts
from ...model.job import Job
from ...project.access.keys import JOBS, SCRAPE
from ...project.dead_letters.attempts import hard_pages
from ...project.jobs.api_jobs import is_ended
from ...project.jobs.jobs import JobChange, cancel_job, pause_job, resume_job, view_of
from ...project.jobs.notes import marks
from ...project.jobs.status import job_status
from ...project.jobs.table import JobSort, JobWanted, begin_again, job_table, rows_of
from ...project.open import Project
from ...project.records.figures import job_history
from ...project.records.items import reasons_in_words, shared_in_words
from ...units import many
from ..answers import ApiError
from .charts import Series
from .overview import pages_series
from .templates import segment
from .view import Action, Context, Done, Question, View, Visit, job_of

AT_ONCE = 50
Text = Annotated[str, Meta(max_length=500)]


class JobsFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text | None = None
    state: Text | None = None
    spider: Text | None = None
    schedule: Text | None = None
    sort: JobSort = "-started"
    after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


async def listed(visit: Visit) -> Context:
    chosen = visit.of(JobsFilters)
    wanted = JobWanted(text=chosen.q, state=chosen.state, spider=chosen.spider, schedule=chosen.schedule)
    table = await job_table(visit.project, visit.caller, wanted, sort=chosen.sort, limit=AT_ONCE, after=chosen.after)
    return {"table": table, "filtered": wanted != JobWanted()}


async def one(visit: Visit) -> Context:
    job = await _job(visit)
    detail = await job_status(visit.project, job.id)
    (row,) = await rows_of(visit.project, [job])
    return {
        "job": detail,
        "row": row,
        "ended": is_ended(job),
        "mine": visit.may(JOBS) and visit.caller.may_change(job),
        "state_words": STATE_WORDS,
        "item_notes": _item_notes(detail.items) if detail.items is not None else [],
    }


def _item_notes(items: ItemCounts) -> list[str]:
    """Why items are not stored, and which records are shared with another spider."""
    reasons = reasons_in_words(items)
    return [words for words in (f"Not stored: {reasons}" if reasons else "", shared_in_words(items)) if words]


async def pace(visit: Visit) -> Context:
    """The figures of the job over time."""
    job = await _job(visit)
    found = await job_history(visit.project, job)
    if found is None or not found.whole.pages:
        return {"times": []}
    return {
        "times": [point.at for point in found.points],
        "pages": pages_series(found),
        "answers": [Series("on average", [point.seconds for point in found.points], "a")],
        "step": found.step,
        "notes": await marks(visit.project, visit.caller, found.since, found.until, job=job.id),
    }


async def hard(visit: Visit) -> Context:
    """Its slow and failed pages."""
    return {"hard": await hard_pages(visit.project, (await _job(visit)).id)}


async def _job(visit: Visit, *, to_change: bool = False) -> Job:
    return await job_of(visit, visit.path["job"], to_change=to_change)


def page_of(job: str) -> str:
    return f"/ui/jobs/{segment(job)}"


async def pause(visit: Visit) -> Done:
    return await _changed(visit, pause_job, "paused: pages in hand are finished, no more are handed out")


async def resume(visit: Visit) -> Done:
    return await _changed(visit, resume_job, "going on")


async def cancel(visit: Visit) -> Done:
    return await _changed(visit, cancel_job, "cancelled; what it has stored stays")


async def ask_to_cancel(visit: Visit) -> Question:
    job = await _job(visit, to_change=True)
    view = await view_of(visit.project, job)
    return Question(
        words=f"Cancel {job.id}? {many(view.open, 'open page')} would be dropped. What it has stored stays.",
        button="Cancel the job",
        back=page_of(job.id),
    )


async def _changed(visit: Visit, verb: Callable[[Project, str], Awaitable[JobChange]], words: str) -> Done:
    job = await _job(visit, to_change=True)
    if is_ended(job):
        raise ApiError(409, "ended", f"The job {job.id} has ended meanwhile: there is nothing to do.")
    await verb(visit.project, job.id)
    return Done(words=f"{job.id} is {words}.", to=page_of(job.id), target=job.id)


async def again(visit: Visit) -> Done:
    job = await _job(visit)
    begun = await begin_again(visit.project, visit.caller, job)
    return Done(words=f"{begun} has begun.", to=page_of(begun), target=begun)


VIEWS = (
    View(
        path="/ui/jobs",
        title="Jobs",
        template="jobs.html",
        regions={"listed": listed},
        query=JobsFilters,
        scope=JOBS,
        or_scope=SCRAPE,
        group="Work",
    ),
    View(
        path="/ui/jobs/{job}",
        title="Job",
        template="job.html",
        regions={"one": one, "pace": pace, "hard": hard},
        scope=JOBS,
        or_scope=SCRAPE,
    ),
)
ACTIONS = (
    Action(path="/ui/jobs/{job}/pause", handler=pause, scope=JOBS),
    Action(path="/ui/jobs/{job}/resume", handler=resume, scope=JOBS),
    Action(path="/ui/jobs/{job}/cancel", handler=cancel, ask=ask_to_cancel, scope=JOBS),
    Action(path="/ui/jobs/{job}/again", handler=again, scope=JOBS),
)
