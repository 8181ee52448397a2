"""A run over the archive: starts jobs whose tasks are archived visits; this process and all other workers work on them.

Of every page, the newest copy for each spider is used. Results are stored under the time at which the page was fetched
and replace those of an older parser for the same copy; a newer visit of another page with the same record stays.
Records that a page no longer yields are marked as gone. A run can be repeated at any time.

Each spider has its own job: that one spider parsed a page says nothing about the records of another.
How it fails: Misconfigured, BackendUnavailable. How it recovers: the jobs stay. The next run continues them, and so
does any worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from ...errors import Misconfigured
from ...model.events import Event, EventHub, EventSink, Gone
from ...model.job import COUNTERS, JobCounts, summed_stats
from ...process.signals import stopping
from ...schedule.authority import declared
from ...settings import Settings
from ...store.contract import AttemptQuery
from ...store.record_rules import UNPARSED
from ..jobs.worker_pool import WorkerPool
from ..open import Project, is_crawled, nothing_crawled, open_project
from .archive_job import Begun, ReparseChoice, begin
from .parser_pool import cores
from .report import MOST_FAILURES, ReparseFailure, Report

IN_PROGRESS = 32  # visits per child, so that none of them waits for the store


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A run in progress, as `attend` sees it."""

    project: Project
    begun: Begun

    async def counts(self, job: str = "") -> JobCounts:
        """The counts of all its jobs together."""
        found = [await self.project.state.jobs.counts(one.id) for one in self.begun.jobs]
        sums = {name: sum(getattr(one, name) for one in found) for name in COUNTERS}
        return JobCounts(**sums, stats=summed_stats(*(one.stats for one in found)))


Attend = Callable[[Running], Coroutine[Any, Any, None]]


class _GoneRecords:
    """Fulfils EventSink: how many records this process marked as gone when it ended the job."""

    def __init__(self) -> None:
        self.records = 0

    def emit(self, event: Event) -> None:
        if isinstance(event, Gone):
            self.records += event.records


async def reparse(
    settings: Settings,
    choice: ReparseChoice,
    events: EventSink,
    *,
    processes: int | None = None,
    fresh: bool = False,
    detach: bool = False,
    attend: Attend | None = None,
) -> Report:
    """Parse the selected pages again and store the results, until all are done or a signal comes.

    `processes` is the number of child processes that parse; None: one per core. With `detach`, the jobs are started and
    left to workers. Unfinished jobs continue as they were started, unless `fresh`. `attend` runs beside the work.
    Raises SpiderNotFound, Misconfigured, BackendUnavailable.
    """
    if not is_crawled(settings):
        raise Misconfigured(nothing_crawled(settings))
    if choice.spider is not None and not detach:
        settings = declared(settings, str(Path.cwd() / choice.spider))  # by its user, for the work of this process
    size = processes or cores()
    crawl = msgspec.structs.replace(settings.crawl, concurrency=max(settings.crawl.concurrency, IN_PROGRESS * size))
    async with open_project(msgspec.structs.replace(settings, crawl=crawl)) as project:
        begun = await begin(project, choice, fresh=fresh)
        gone = _GoneRecords()
        if begun.jobs and not detach:
            only = frozenset(job.id for job in begun.jobs)
            pool = WorkerPool(project, EventHub(gone, events), until_idle=True, only=only, parsers=size)
            watching = asyncio.create_task(attend(Running(project=project, begun=begun))) if attend else None
            try:
                with stopping(pool.drain):
                    await pool.run()
            finally:
                if watching is not None:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        return await _report(project, begun, gone.records)


async def _report(project: Project, begun: Begun, gone: int) -> Report:
    report = Report(gone=gone)
    for name, pages in begun.unknown.items():
        report.leave_out(name, pages, begun.why[name])
    for job in begun.jobs:
        report.add_job(await project.state.jobs.job(job.id) or job, await project.state.jobs.counts(job.id))
        failed = await project.records.attempt_log(AttemptQuery(job=job.id, outcome=UNPARSED), limit=MOST_FAILURES)
        report.failures += [ReparseFailure(one.url, one.error) for one in failed.attempts]
    return report
