"""Jobs and schedules: list, pause, resume, cancel, run; pages and records of a job; its progress as events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response, StreamingResponse

from ..model.job import Job
from ..project.access.keys import ADMIN, JOBS, RECORDS, SCRAPE, is_still_open_to
from ..project.jobs.api_jobs import is_ended, job_for, wanted_pages
from ..project.jobs.api_views import JobReport, JobReports, RecordPage, job_report, job_reports
from ..project.jobs.jobs import JobChange, cancel_job, pause_job, resume_job
from ..project.pages.results import JobAnswer, PageOutcome, answer_of
from ..project.records.figures import History, job_history
from ..project.records.records import RecordFilter, query_of
from ..project.schedules.api_schedules import ScheduleRequest, write_schedule
from ..project.schedules.changes import (
    ScheduleAdded,
    ScheduleChange,
    ScheduleRun,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from ..project.schedules.schedules import ScheduleDetail, ScheduleList, list_schedules, show_schedule
from .answers import ApiError, encode, not_found
from .endpoint import Call, Endpoint
from .record_routes import STREAMED, RecordsForm, records_in_form

RESULTS_AT_ONCE = 10
LOOK = 1.0  # seconds between two events
SILENCE = 15.0  # seconds without a change after which a keep-alive comment is sent
LONGEST_STREAM = 3600.0  # seconds; then the client reconnects

Status = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]


class JobsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: Annotated[str, Meta(pattern="-[0-9]{1,12}$", max_length=100)] | None = None  # `next` of the page before
    status: Status | None = None


class ResultsQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = RESULTS_AT_ONCE
    after: Annotated[int, Meta(ge=0, le=1_000_000)] = 0  # `next` of the page before


class ResultPage(msgspec.Struct, frozen=True, kw_only=True):
    """Pages of a batch, in the order of the request."""

    results: list[PageOutcome]
    next: int | None


async def list_jobs(call: Call) -> JobReports:
    query = call.of(JobsQuery)
    return await job_reports(call.project, call.caller, limit=query.limit, after=query.after, status=query.status)


async def show(call: Call) -> JobAnswer:
    return await answer_of(call.project, call.pages, await _job(call))


async def results(call: Call) -> ResultPage:
    job, query = await _job(call), call.of(ResultsQuery)
    pages = await wanted_pages(call.project, job)
    if not pages:
        raise ApiError(409, "no_pages", "This job is a crawl: ask for its records instead.")
    found = await call.pages.outcomes(job, pages[query.after : query.after + query.limit])
    end = query.after + len(found)
    return ResultPage(results=found, next=end if end < len(pages) else None)


async def records(call: Call) -> RecordPage | Response:
    job = await _job(call)
    query = await query_of(call.project, RecordFilter(job=job.id))
    return await records_in_form(call, query, call.of(RecordsForm))


async def figures(call: Call) -> History:
    found = await job_history(call.project, await _job(call))
    if found is None:
        raise ApiError(404, "forgotten", "The figures of this job are forgotten: they are kept for 30 days.")
    return found


async def _change(call: Call, verb: str) -> JobChange:
    job = await _job(call, to_change=True)
    if is_ended(job):
        raise ApiError(
            409, "ended", f"The job has ended ({job.ending or job.state.value}): there is nothing to {verb}."
        )
    return await {"pause": pause_job, "resume": resume_job, "cancel": cancel_job}[verb](call.project, job.id)


async def events(call: Call) -> Response:
    """Server-sent events: one whenever the job has made progress, and a last one when it ends."""
    job = await _job(call)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_progress(call, job), media_type="text/event-stream", headers=headers)


async def _progress(call: Call, job: Job) -> AsyncIterator[bytes]:
    clock, told, told_at = call.project.clock, b"", 0.0
    began = clock.monotonic()
    number = 0
    while clock.monotonic() - began < LONGEST_STREAM:
        found = await job_for(call.project, call.caller, job.id)
        if found is None or not await is_still_open_to(call.project, call.caller):
            return
        report = await job_report(call.project, found)
        state = encode(_moving(report))
        if state != told:
            number += 1
            kind = "end" if is_ended(found) else "progress"
            told, told_at = state, clock.monotonic()
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (number, kind.encode(), encode(report))
        elif clock.monotonic() - told_at >= SILENCE:
            told_at = clock.monotonic()
            yield b": still there\n\n"
        if is_ended(found):
            return
        await clock.sleep(LOOK)


def _moving(report: JobReport) -> JobReport:
    """The status without the fields that change merely because time passes."""
    return msgspec.structs.replace(report, seconds=0.0, pages_per_second=0.0, rate=0.0, eta_seconds=None, eta=None)


async def _job(call: Call, *, to_change: bool = False) -> Job:
    found = await job_for(call.project, call.caller, call.path["job"], to_change=to_change)
    if found is None:
        raise not_found("job of that id")
    return found


# -- schedules ---------------------------------------------------------------------------------------------------------


class SchedulesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    ticks: Annotated[int, Meta(ge=0, le=1000)] = 0  # how many of the next runs to list, over all schedules


class RunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    replace: bool = False  # also end the current run


async def run_now(call: Call) -> ScheduleRun:
    replace = call.of(RunRequest).replace if call.body is not None else False
    return await run_schedule(call.project, call.path["name"], replace=replace)


ENDPOINTS = (
    Endpoint("GET", "/api/v1/jobs", JOBS, "List jobs, the newest first",
             list_jobs, or_scope=SCRAPE, query=JobsQuery, gives=JobReports),
    Endpoint("GET", "/api/v1/jobs/{job}", JOBS, "The status of a job, and the results of its pages",
             show, or_scope=SCRAPE, gives=JobAnswer, aliases=("/api/v1/async/jobs/{job}", "/api/v1/batch/{job}")),
    Endpoint("GET", "/api/v1/jobs/{job}/results", JOBS, "The pages of a scrape or a batch",
             results, or_scope=SCRAPE, query=ResultsQuery, gives=ResultPage),
    Endpoint("GET", "/api/v1/jobs/{job}/records", RECORDS,
             "The records that a job saw: a page of them, or all as JSON Lines or CSV",
             records, or_scope=JOBS, query=RecordsForm, gives=RecordPage, other_media=STREAMED),
    Endpoint("GET", "/api/v1/jobs/{job}/figures", JOBS, "The figures of a job over time, in equal steps",
             figures, or_scope=SCRAPE, gives=History),
    Endpoint("GET", "/api/v1/jobs/{job}/events", JOBS, "The progress of a job, as server-sent events",
             events, or_scope=SCRAPE, media="text/event-stream"),
    Endpoint("POST", "/api/v1/jobs/{job}/pause", JOBS, "Pause a job: its queued pages wait",
             lambda call: _change(call, "pause"), gives=JobChange),
    Endpoint("POST", "/api/v1/jobs/{job}/resume", JOBS, "Resume a paused job",
             lambda call: _change(call, "resume"), gives=JobChange),
    Endpoint("DELETE", "/api/v1/jobs/{job}", JOBS, "Cancel a job; what it has stored stays",
             lambda call: _change(call, "cancel"), or_scope=SCRAPE, gives=JobChange,
             aliases=("/api/v1/async/jobs/{job}",)),
    Endpoint("GET", "/api/v1/schedules", JOBS, "All schedules, and the next runs",
             lambda call: list_schedules(call.project, ticks=call.of(SchedulesQuery).ticks),
             query=SchedulesQuery, gives=ScheduleList),
    Endpoint("POST", "/api/v1/schedules", ADMIN, "Add a schedule, or replace one",
             lambda call: write_schedule(call.project, call.of(ScheduleRequest)),
             body=ScheduleRequest, gives=ScheduleAdded, status=201, names="name",
             example={"name": "nightly", "spider": "https://shop.example/", "cron": "0 3 * * *", "limit": 1000}),
    Endpoint("GET", "/api/v1/schedules/{name}", JOBS, "One schedule with its last runs and its next ticks",
             lambda call: show_schedule(call.project, call.path["name"]), gives=ScheduleDetail),
    Endpoint("DELETE", "/api/v1/schedules/{name}", ADMIN, "Remove a schedule; its current run goes on",
             lambda call: remove_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/pause", ADMIN, "Pause a schedule: no more runs start",
             lambda call: pause_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/resume", ADMIN, "Begin its runs again",
             lambda call: resume_schedule(call.project, call.path["name"]), gives=ScheduleChange),
    Endpoint("POST", "/api/v1/schedules/{name}/run", ADMIN, "Begin a run now",
             run_now, body=RunRequest, body_optional=True, gives=ScheduleRun, status=202, names="job",
             example={"replace": False}),
)  # fmt: skip
