"""From a spider to a finished job: open, seed, work, close. What `gossamer crawl` and `gossamer.run` share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from ..crawl.heartbeat import Heartbeat, Vitals
from ..crawl.worker import Worker
from ..errors import Misconfigured
from ..frontier.admission import Admission, Scope
from ..frontier.contract import JobTerms
from ..model.events import EventHub, EventSink, Silence
from ..model.job import Job, JobCounts
from ..model.task import Request
from ..model.url import site_of
from ..parse.spider import Spider, listed_seeds, seeds
from ..process.black_box import TIES
from ..process.signals import stopping
from ..settings import Settings
from ..settings.effective import job_terms, scope_of
from ..store.contract import RecordQuery
from .job_end import close_drained, why_nothing_came
from .open import Project, open_project
from .seeding import SEEDS_AT_ONCE, Sower, offer
from .wiring import open_worker


class CrawlReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a crawl. `ended` is False when it was stopped before its time and will go on later.

    `failure` says why, when it ended and not one page of it could be had; else it is empty.
    """

    job: Job
    resumed: bool
    ended: bool
    counts: JobCounts
    records: int
    seconds: float
    failure: str = ""


Attend = Callable[["Running"], Coroutine[Any, Any, None]]


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl under way, for those who watch it."""

    project: Project
    job: Job
    resumed: bool
    worker: Worker


async def crawl(
    spider: Spider,
    settings: Settings,
    *,
    name: str | None = None,
    fresh: bool = False,
    events: EventSink | None = None,
    attend: Attend | None = None,
    after: Callable[[Project, Job], Awaitable[None]] | None = None,
) -> CrawlReport:
    """Crawl until the job is over, or until SIGINT or SIGTERM. Raises Misconfigured and Transient.

    The unfinished job of that name goes on, unless `fresh`. `attend` runs beside the crawl and is cancelled with
    its end; `after` runs when the work is over and the stores are still open.
    """
    async with open_project(settings, spider=spider) as project:
        clock = project.clock
        began = clock.monotonic()
        await _leave_schedules_alone(project, name or spider.name)
        job, resumed = await project.state.jobs.open_job(name or spider.name, job_terms(settings, spider), fresh=fresh)
        sites: set[str] = set()
        scope = scope_of(settings, job, spider, sites)
        heart = Heartbeat(
            project.state.workers, clock, name=project.worker, vitals=lambda: vitals_of(job, worker), troubles=events
        )
        listeners = EventHub(heart) if events is None else EventHub(heart, events)
        terms = await project.state.jobs.terms(job.id)
        async with open_worker(project, spider, job.id, scope, listeners, terms=terms) as worker, heart:
            with stopping(worker.drain), TIES.at_work(settings.crawl.parse_timeout):
                running = Running(project=project, job=job, resumed=resumed, worker=worker)
                watching = asyncio.create_task(attend(running), name="attend") if attend else None
                try:
                    drained = await work_off(project, spider, job, worker, scope, sites, listeners)
                    if drained:
                        await close_drained(project, spider, job, listeners)
                finally:
                    await _end(watching)
        if after is not None:
            await after(project, job)
        return CrawlReport(
            job=await project.state.jobs.job(job.id) or job,
            resumed=resumed,
            ended=drained,
            counts=await project.state.jobs.counts(job.id),
            records=await project.records.count(RecordQuery(job=job.id)),
            seconds=clock.monotonic() - began,
            failure=await why_nothing_came(project, job.id) if drained else "",
        )


async def _leave_schedules_alone(project: Project, name: str) -> None:
    """A run of a schedule has terms of its own: it is not taken over by a crawl of the same name. Raises
    Misconfigured."""
    for job in await project.state.jobs.running_jobs():
        if job.name == name and job.schedule:
            raise Misconfigured(
                f"{job.id} is a run of the schedule {job.schedule!r}, and still going. `gossamer worker` works on it;"
                f" `gossamer job cancel {job.id}` ends it."
            )


async def work_off(
    project: Project,
    spider: Spider,
    job: Job,
    worker: Worker,
    scope: Scope,
    sites: set[str],
    events: EventSink | None = None,
) -> bool:
    """Work on a job until nothing is left of it (True), or the worker is drained (False).

    Seeds that nobody has sown to their end are sown here. When all are in, they are read before the first link is
    judged, for the sake of their sites: every worker of a job must have the same scope.
    Raises Misconfigured and Transient.
    """
    sites.update(site_of(url) for url in listed_seeds(spider))  # a link may be found before the last seed is read
    sealed = await project.state.jobs.is_sealed(job.id)
    terms = await project.state.jobs.terms(job.id)
    if terms.schedule:
        return await _work_off_run(project, spider, job, terms, worker, scope, sites, events or Silence())
    if sealed and scope.sites is not sites:
        return await worker.run()
    sowing = asyncio.create_task(_sow(project, spider, job.id, scope, sites, known=sealed), name="seeds")
    drained = asyncio.create_task(worker.draining.wait(), name="drained while reading seeds")
    try:
        if sealed:
            await asyncio.wait({sowing, drained}, return_when=asyncio.FIRST_COMPLETED)
        return await _work(worker, sowing)
    finally:
        await _end(sowing, drained)


async def _work_off_run(
    project: Project,
    spider: Spider,
    job: Job,
    terms: JobTerms,
    worker: Worker,
    scope: Scope,
    sites: set[str],
    events: EventSink,
) -> bool:
    """Work on the run of a schedule: one of its workers reads the source (sowing.py)."""
    sower = Sower(project, spider, job.id, terms, scope, sites, events)
    await sower.learn_sites()  # whoever read before us may have died: what he found is in the queue
    if await project.state.jobs.is_sealed(job.id):
        await sower.learn_sites()
        return await worker.run()
    worker.sows = lambda: sower.reads
    sowing = asyncio.create_task(sower.run(), name="seeds")
    try:
        return await _work(worker, sowing)
    finally:
        await _end(sowing)


def vitals_of(job: Job, worker: Worker) -> Vitals:
    state = "draining" if worker.draining.is_set() else "working"
    return Vitals(job=job.id, state=state, in_flight=worker.in_flight)


async def _work(worker: Worker, sowing: asyncio.Task[None]) -> bool:
    """Run the worker; a seed that cannot be used stops it and is raised."""
    working = asyncio.create_task(worker.run(), name="worker")
    await asyncio.wait({working, sowing}, return_when=asyncio.FIRST_COMPLETED)
    if sowing.done() and not sowing.cancelled() and sowing.exception() is not None:
        worker.drain()
        await working
        sowing.result()
    return await working


async def _sow(project: Project, spider: Spider, job: str, scope: Scope, sites: set[str], *, known: bool) -> None:
    """Offer the spider's seeds, waiting while the queue is full. Seeds that are `known` only widen the scope."""
    admission = Admission(
        scope, project.rules, remember_known=False, fetcher=spider.fetcher, proxy_pool=spider.proxy_pool
    )
    chunk: list[Request] = []
    count = 0
    async for request in seeds(spider):
        count += 1
        sites.add(site_of(request.url))
        if not known:
            chunk.append(request)
        if len(chunk) >= SEEDS_AT_ONCE:
            await offer(project, job, admission.judge(chunk), project.settings.crawl.max_queued)
            chunk = []
    if not count:
        raise Misconfigured(f"Spider {spider.name} has nothing to start from. Give it start_urls, or a start() method.")
    if chunk:
        await offer(project, job, admission.judge(chunk), project.settings.crawl.max_queued)
    if not known:
        await project.state.jobs.seal_seeds(job)


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    alive = [task for task in tasks if task is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)
