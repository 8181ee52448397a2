"""Totals of a project's jobs: pages by state, records, sites with open work, reasons of failures.

How fast a job is, and how to pause or end it, is in jobs.py.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ...backends.addresses import is_local, local_path
from ...backends.addresses import place_of as place_of  # where a part of the data is kept, for people
from ...clock import iso_time
from ...errors import BackendUnavailable
from ...frontier.contract import DeadFilter, SiteLoad
from ...frontier.limits import condition_of, held_back, limits_of
from ...model.failure_groups import Failures
from ...model.item_account import ItemCounts
from ...model.job import Job, JobCounts, JobState
from ...model.outcome import Outcome, Reason, later_in_words
from ...model.run_records import RunRecords
from ...model.task import UrlState
from ...model.windows import is_open, opens_at, parse_windows
from ...settings import Settings
from ...store.contract import RecordQuery
from ...terms import site_terms
from ...units import distance, moment
from ..alerts.alerts import AlertView, firing_alerts
from ..open import Project
from ..outputs.outputs import OutputView, unfinished_outputs
from ..overrides import rest_of
from ..records.items import items_of
from ..sites.sessions import SessionView, failing_sessions
from ..workers.workers import ARCHIVE_FULL, list_workers
from .failures import failures_of
from .jobs import JobView, counted_views, find_job

SITES_SHOWN = 20
log = logging.getLogger("gossamer.project")
LOST = "it went away a moment ago, and is asked again the next time"
ROLES = ("state", "records", "archive")


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A job with all its counts. Times are ISO 8601 in UTC; `phase` and `in_words` are those of JobView."""

    id: str
    name: str
    arguments: dict[str, Any]  # of its spider
    state: JobState
    phase: str
    in_words: str
    ending: str | None
    outcome: Outcome | None
    reasons: tuple[Reason, ...]
    started: str
    finished: str | None
    first_ended: str | None
    settled_again: str | None
    first_outcome: Outcome | None
    settled_later: dict[str, int]
    limit: int | None
    windows: str | None
    counts: JobCounts
    adds_up: bool  # whether every link that was found is in one of the counts
    storing: int  # results that wait in spools
    records: int | None  # seen by the job; None: the record store does not answer
    run_records: RunRecords | None = None  # what it did to them; None while it runs, and if it was cancelled

    @property
    def fault(self) -> str:
        """Why it ended early, if more than one word is known: what was wrong with its source."""
        return (self.ending or "").partition(": ")[2]

    @property
    def later_in_words(self) -> str:
        return later_in_words(self.settled_later, self.first_outcome)

    @property
    def took(self) -> float | None:
        """Seconds from start to end; None while it runs."""
        if self.finished is None:
            return None
        return (datetime.fromisoformat(self.finished) - datetime.fromisoformat(self.started)).total_seconds()


class SiteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The open pages of a job on one site. `next_at` is when the site's rate allows the next request."""

    site: str
    queued: int
    waiting: int
    leased: int
    next_at: str | None
    away_since: str | None  # since when the site cannot be reached
    next_request: str  # when, in words: by its rate, its windows and the job's windows


class JobDetail(JobStatus, frozen=True, kw_only=True):
    """Everything about one job. `data` says where the project keeps its state, records and archive."""

    schedule: str | None
    sites: list[SiteStatus]  # the first ones with open work
    dead_reasons: dict[str, int]
    failures: Failures | None  # the largest groups of its dead letters
    data: dict[str, str]
    waits_for: str | None = None  # in words, if no page of it is in progress or may be handed out
    trouble: str | None = None  # with the record store
    items: ItemCounts | None = None  # what became of those that were yielded; None: the record store does not answer


class ProjectStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The newest jobs. `records` is counted only in a project without jobs, whose records were imported."""

    jobs: list[JobStatus]
    total: int  # jobs in all
    records: int | None = 0
    trouble: str | None = None  # with the record store, or the archive
    failing: list[SessionView] = []  # sessions that cannot log in
    alerts: list[AlertView] = []  # that fire
    outputs: list[OutputView] = []  # that lag, are paused or have stopped


async def project_status(project: Project, *, limit: int | None = None) -> ProjectStatus:
    """Where every job stands, newest first. `limit` None means all."""
    jobs = await project.state.jobs.jobs()
    told = [
        JobStatus(**await _fields(project, view, counts)) for view, counts in await counted_views(project, jobs[:limit])
    ]
    records = 0 if jobs else await _counted(project, RecordQuery())
    lost = LOST if records is None or any(one.records is None for one in told) else ""
    return ProjectStatus(
        jobs=told,
        total=len(jobs),
        records=records,
        trouble=project.absent or lost or await _archive_trouble(project),
        failing=await failing_sessions(project),
        alerts=await firing_alerts(project),
        outputs=await unfinished_outputs(project),
    )


async def _archive_trouble(project: Project) -> str | None:
    workers = await list_workers(project) if project.settings.store.archive_limit is not None else []
    return ARCHIVE_FULL if any(one.state == "archive full" and not one.missing for one in workers) else None


async def job_status(project: Project, wanted: str) -> JobDetail:
    """Everything about the job with that id or name. Raises Misconfigured if there is none."""
    job = await find_job(project, wanted)
    ((view, counts),) = await counted_views(project, [job])
    loads = await project.state.queue.sites(job.id, SITES_SHOWN)
    now = project.clock.now()
    fields = await _fields(project, view, counts)
    return JobDetail(
        **fields,
        schedule=view.schedule,
        sites=[_site_status(project, job, load, now) for load in loads],
        dead_reasons=await project.state.queue.dead_reasons(DeadFilter(job=job.id)) if counts.dead else {},
        failures=await failures_of(project, DeadFilter(job=job.id), counts.dead),
        data={role: place_of(project.settings, role) for role in ROLES},
        waits_for=f"{view.waits_for}; next try {moment(view.waits_until, now)}" if view.waits_until else view.waits_for,
        trouble=project.absent or (LOST if fields["records"] is None else None),
        items=await items_of(project, job.id),
    )


ENOUGH_PAGES = 10  # of one site, to say which limit held a crawl back


async def _fields(project: Project, view: JobView, counts: JobCounts) -> dict[str, Any]:
    somewhere = counts.open + counts.settled + counts.dropped + counts.duplicates
    return {
        **{name: getattr(view, name) for name in JobStatus.__struct_fields__ if name in JobView.__struct_fields__},
        "counts": counts,
        "adds_up": counts.discovered == somewhere,
        "records": await _counted(project, RecordQuery(job=view.id)),
    }


async def _counted(project: Project, query: RecordQuery) -> int | None:
    """The number of records; None if the record store does not answer."""
    if project.absent:
        return None
    try:
        return await project.records.count(query)
    except BackendUnavailable as error:
        log.warning("Records were not counted: %s", error)
        return None


def _site_status(project: Project, job: Job, load: SiteLoad, now: float) -> SiteStatus:
    return SiteStatus(
        site=load.site,
        queued=load.queued,
        waiting=load.waiting,
        leased=load.leased,
        next_at=iso_time(load.next_at) if load.next_at is not None else None,
        away_since=iso_time(load.away_since) if load.away_since is not None else None,
        next_request=_next_request(project, job, load, now),
    )


def _next_request(project: Project, job: Job, load: SiteLoad, now: float) -> str:
    """When the site's rate, its rests, its windows and the job's windows allow the next request."""
    settings = project.settings
    if job.state is not JobState.RUNNING:
        return "never: the job has ended"
    if job.paused:
        return "when the job is resumed"
    for whose, text in (("job's", job.windows), ("site's", settings.domain(load.site).windows)):
        windows = parse_windows(text) if text else ()
        if windows and not is_open(windows, now):
            opening = opens_at(windows, now)
            return f"{distance(opening, now)}, when the {whose} window opens" if opening is not None else "never"
    if (rest := rest_of(project, load.site)) is not None:
        return f"{distance(rest.until, now)}: {rest.lasting}" if rest.until is not None else rest.lasting
    soon = distance(load.next_at, now) if load.next_at is not None and load.next_at > now else "any time"
    limits = limits_of(load.site, site_terms(settings)(load.site), job.politeness, condition_of(load, now))
    bound = limits.at_full(load.leased) or limits.rate
    if load.queued and bound is not None:
        soon = f"{soon}; {bound.words}"
    return soon if load.away_since is None else f"{soon}: away since {moment(load.away_since, now)}"


def limit_words(settings: Settings, job: Job, sites: Counter[str], *, latency: float, seconds: float) -> str:
    """The limit that held a crawl back at the site with most of its pages, if one did. `sites` are the pages fetched
    from each, which took `latency` seconds on average."""
    site, pages = sites.most_common(1)[0] if sites else ("", 0)
    if pages < ENOUGH_PAGES or 2 * pages < sites.total() or not seconds:
        return ""
    limits = limits_of(site, site_terms(settings)(site), job.politeness)
    at_once = settings.crawl.concurrency
    found = held_back(limits, latency=latency, pages_per_second=pages / seconds, concurrency=at_once)
    return found.words if found is not None else ""


def place_near(settings: Settings, role: str, folder: Path) -> str:
    """As `place_of`, with a file or folder of this machine relative to `folder`."""
    if not is_local(settings, role):
        return place_of(settings, role)
    path = local_path(settings, role)
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


class JobUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A URL of a job in some state; `reason` says why, where there is one to say."""

    url: str
    reason: str


async def addresses(
    project: Project, job: str, state: UrlState, *, limit: int, skip: int = 0
) -> tuple[list[JobUrl], bool]:
    """The URLs of a job in that state, in the order in which they were found, and whether there are more."""
    found, place = list[JobUrl](), 0
    async for url, _, reason in project.state.queue.urls(job, state):
        if place >= skip + limit:
            return found, True
        if place >= skip:
            found.append(JobUrl(url=url, reason=reason))
        place += 1
    return found, False
