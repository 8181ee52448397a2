"""Views of jobs: the list, and one job, which can be paused, resumed, cancelled or run again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
from msgspec import Meta

from ...errors import Misconfigured, NotThere
from ...model.incident import Subject, SubjectKind
from ...model.item_account import STATE_WORDS, ItemCounts
from ...model.job import Job, JobTerms
from ...model.task import UrlState
from ...project.access.keys import JOBS, METRICS, SCRAPE
from ...project.alerts.incidents import IncidentView, open_incident_of
from ...project.boards.runs import cost_of_run
from ...project.dead_letters.attempts import hard_pages
from ...project.jobs.api_jobs import is_ended
from ...project.jobs.compare import RunPair, compare_runs
from ...project.jobs.jobs import JobChange, cancel_job, job_in_full, pause_job, resume_job
from ...project.jobs.notes import marks
from ...project.jobs.run_log import Level, log_of
from ...project.jobs.status import addresses, job_status
from ...project.jobs.table import JobSort, JobWanted, begin_again, job_table, rows_of
from ...project.open import Project
from ...project.overrides import OverrideQuery, list_overrides
from ...project.records.figures import job_history
from ...project.records.items import reasons_in_words, shared_in_words
from ...project.records.records import DIFFERENCE_MEANINGS, DIFFERENCE_WORDS, difference_words, naming_fields
from ...units import many, seconds_of, setting_text
from ..answers import ApiError
from .charts import Series
from .overview import pages_series
from .templates import segment
from .view import CHARTS_EVERY, Context, Done, FormAction, Question, View, Visit, job_of, missing

AT_ONCE = 50
ADDRESSES, MOST_SKIPPED = 200, 100_000  # of a state: shown at once, and reached by turning pages
LOG_LINES = 200
RUNS_LOOKED_AT = 30
# States of URLs, and where they are listed.
STATE_LINKS = {"queued": "queued", "waiting": "waiting", "in progress": "leased", "dropped": "dropped", "done": "done",
    "unchanged": "unchanged"}  # fmt: skip
SHOWN_TERMS = {
    "max_attempts": "attempts at a page", "max_urls_per_site": "at most, URLs of a site",
    "max_urls_per_pattern": "at most, URLs of one pattern", "dedup_window": "a URL again after",
    "dedup": "deduplication",
    "priority": "priority", "min_age": "not fetched within", "budget": "fetches of the run",
    "min_interval": "between two fetches, at least", "max_interval": "between two fetches, at most",
}  # fmt: skip
Text = Annotated[str, Meta(max_length=500)]


class JobFilters(msgspec.Struct, frozen=True, kw_only=True):
    level: Level = "info"


class AddressFilters(msgspec.Struct, frozen=True, kw_only=True):
    state: UrlState = UrlState.QUEUED
    after: Annotated[int, Meta(ge=0, le=100_000)] = 0


class JobsFilters(msgspec.Struct, frozen=True, kw_only=True):
    q: Text | None = None
    state: Text | None = None
    spider: Text | None = None
    schedule: Text | None = None
    sort: JobSort = "-started"
    after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


async def list_region(visit: Visit) -> Context:
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
        "before": await _run_before(visit, job),
        "terms": terms_in_words(await visit.project.state.jobs.terms(job.id)),
        "links": STATE_LINKS,
        "mine": visit.may(JOBS) and visit.caller.may_change(job),
        "state_words": STATE_WORDS,
        "incident": await _incident(visit, job) if visit.may(METRICS) else None,
        "item_notes": _item_notes(detail.items) if detail.items is not None else [],
    }


async def _run_before(visit: Visit, job: Job) -> str:
    """The run of the same name before this one, if the visitor may see it."""
    newest = await visit.project.state.history.newest_jobs(job.name, RUNS_LOOKED_AT)
    return next((one.id for one in newest if one.created_at < job.created_at and visit.caller.sees(one)), "")


def terms_in_words(terms: JobTerms) -> dict[str, str]:
    """The terms of the job that differ from the usual ones, and that people set."""
    usual, own = JobTerms(), terms.politeness
    found = {"rate": own.rate, "requests at once at a site": own.concurrency, "burst": own.burst}
    for field, name in SHOWN_TERMS.items():
        if (value := getattr(terms, field)) != getattr(usual, field):
            found[name] = f"{value:,}" if isinstance(value, int) else setting_text(value)
    expected = {name: value for name, value in msgspec.structs.asdict(terms.expected).items() if value is not None}
    found["expected"] = ", ".join(f"{name} {value}" for name, value in expected.items())
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


async def log(visit: Visit) -> Context:
    """What its workers and its spider said."""
    level = visit.of(JobFilters).level
    return {
        "log": await log_of(visit.project, await _job(visit), level=level, limit=LOG_LINES),
        "levels": await list_overrides(visit.project, visit.caller, OverrideQuery(prefix="log.level")),
    }


async def compared(visit: Visit) -> Context:
    pair = RunPair(before=visit.path["other"], after=visit.path["job"])
    try:
        return {
            "found": await compare_runs(visit.project, visit.caller, pair),
            "difference_words": difference_words,
            "kind_words": DIFFERENCE_WORDS,
            "naming_fields": naming_fields,
            "meanings": DIFFERENCE_MEANINGS,
        }
    except NotThere:
        raise missing("run of that id") from None
    except Misconfigured as error:
        raise ApiError(422, "invalid", str(error)) from error


async def pages(visit: Visit) -> Context:
    """The addresses of the job in one state."""
    job, chosen = await _job(visit), visit.of(AddressFilters)
    found, more = await addresses(visit.project, job.id, chosen.state, limit=ADDRESSES, skip=chosen.after)
    following = chosen.after + ADDRESSES if more and chosen.after + ADDRESSES <= MOST_SKIPPED else None
    return {"addresses": found, "next": following, "states": list(UrlState)}


async def _incident(visit: Visit, job: Job) -> IncidentView | None:
    """The open incident about the job, or about its spider."""
    subjects = (Subject(SubjectKind.JOB, job.id), Subject(SubjectKind.SPIDER, job.spider_name))
    return await open_incident_of(visit.project, *subjects)


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
        "cost": await cost_of_run(visit.project, job),
        "times": [point.at for point in found.points],
        "pages": pages_series(found),
        "answers": [Series("on average", [point.seconds for point in found.points], "a")],
        "step": found.step,
        "notes": [
            *await marks(visit.project, visit.caller, found.since, found.until, job=job.id),
            *await _versions(visit, job),
        ],
    }


async def _versions(visit: Visit, job: Job) -> list[tuple[float, str]]:
    """When each version of the spider began to work on the job: marks on its charts."""
    seen: dict[str, tuple[float, str]] = {}
    for line in (await log_of(visit.project, job, limit=1000)).lines:
        if line.code:
            words = f"version {line.code}" + (f", commit {line.commit[:12]}" if line.commit else "")
            seen.setdefault(line.code, (seconds_of(line.at), words))
    return list(seen.values())


async def hard(visit: Visit) -> Context:
    """Its slow and failed pages."""
    return {"hard": await hard_pages(visit.project, (await _job(visit)).id)}


async def _job(visit: Visit, *, to_change: bool = False) -> Job:
    return await job_of(visit, visit.path["job"], to_change=to_change)


def page_of(job: str) -> str:
    return f"/ui/jobs/{segment(job)}"


async def pause(visit: Visit) -> Done:
    return await _changed(visit, pause_job, "paused: pages in progress are finished, no more are handed out")


async def resume(visit: Visit) -> Done:
    return await _changed(visit, resume_job, "going on")


async def cancel(visit: Visit) -> Done:
    return await _changed(visit, cancel_job, "cancelled; what it has stored stays")


async def ask_to_cancel(visit: Visit) -> Question:
    job = await _job(visit, to_change=True)
    view = await job_in_full(visit.project, job)
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
    View("/ui/jobs", "Jobs", "jobs.html", {"listed": list_region}, JOBS, query=JobsFilters,
         or_scope=SCRAPE, group="Work"),
    View("/ui/jobs/{job}", "Job", "job.html", {"one": one, "pace": pace, "log": log, "hard": hard}, JOBS,
         or_scope=SCRAPE, query=JobFilters, slow={"pace": CHARTS_EVERY, "hard": CHARTS_EVERY}),
    View("/ui/jobs/{job}/pages", "Addresses of a job", "job_pages.html", {"pages": pages}, JOBS, query=AddressFilters,
         live=False),
    View("/ui/jobs/{job}/compare/{other}", "Two runs", "compare.html", {"compared": compared}, JOBS, live=False),
)  # fmt: skip
ACTIONS = (
    FormAction(path="/ui/jobs/{job}/pause", handler=pause, scope=JOBS),
    FormAction(path="/ui/jobs/{job}/resume", handler=resume, scope=JOBS),
    FormAction(path="/ui/jobs/{job}/cancel", handler=cancel, ask=ask_to_cancel, scope=JOBS),
    FormAction(path="/ui/jobs/{job}/again", handler=again, scope=JOBS),
)
