"""From a spider to a finished job: open, seed, work, close. What `gossamer crawl` and `gossamer.run` share."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import msgspec

from .assembly import open_worker
from .crawl.heart import Heart, Vitals
from .crawl.worker import Worker
from .errors import Misconfigured, Transient
from .frontier.admission import Admission, Scope
from .frontier.contract import DeadFilter, JobTerms
from .lifeline import TIES
from .model.events import EventSink, Gone, JobEnded, Silence, Trouble
from .model.job import Job, JobCounts
from .model.task import DropReason, Request, UrlState
from .model.url import site_of
from .monitor.hub import EventHub
from .parse.spider import Spider, listed_seeds, seeds
from .settings import Settings
from .sowing import SEEDS_AT_ONCE, Sower, forget_runs_before, offer
from .store.contract import RecordQuery
from .store.spool_home import something_waits
from .system import System, open_system
from .terms import job_terms, scope_of

ECHO = timedelta(seconds=1)  # a signal this soon after the first is the same one
REDIRECTED = "redirected to "  # how the reason of a page begins that is elsewhere
NOT_FOUND = {"http-404", "http-410"}
LEFT_OUT = {  # pages that another crawl may have visited
    DropReason.TRAP, DropReason.FULL, DropReason.FRESH, DropReason.UNMODIFIED,
}  # fmt: skip
MANY_RECORDS = 20
BELIEVED = 0.5  # a crawl that sees less than this part of what the one before saw is not believed
EARLIER_JOBS = 100  # of the same name, the newest first, whose records a crawl speaks for
FEW = 50  # pages; more than these are not all redirects, and the list of a big job is long


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

    system: System
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
    after: Callable[[System, Job], Awaitable[None]] | None = None,
) -> CrawlReport:
    """Crawl until the job is over, or until SIGINT or SIGTERM. Raises Misconfigured and Transient.

    The unfinished job of that name goes on, unless `fresh`. `attend` runs beside the crawl and is cancelled with
    its end; `after` runs when the work is over and the stores are still open.
    """
    async with open_system(settings, spider=spider) as system:
        clock = system.clock
        began = clock.monotonic()
        await _leave_schedules_alone(system, name or spider.name)
        job, resumed = await system.jobs.open_job(name or spider.name, job_terms(settings, spider), fresh=fresh)
        sites: set[str] = set()
        scope = scope_of(settings, job, spider, sites)
        heart = Heart(system.workers, clock, name=system.worker, vitals=lambda: vitals_of(job, worker), troubles=events)
        listeners = EventHub(heart) if events is None else EventHub(heart, events)
        terms = await system.jobs.terms(job.id)
        async with open_worker(system, spider, job.id, scope, listeners, terms=terms) as worker, heart:
            with stopping(worker.drain), TIES.at_work(settings.crawl.parse_timeout):
                running = Running(system=system, job=job, resumed=resumed, worker=worker)
                watching = asyncio.create_task(attend(running), name="attend") if attend else None
                try:
                    drained = await work_off(system, spider, job, worker, scope, sites, listeners)
                    if drained:
                        await close_drained(system, spider, job, listeners)
                finally:
                    await _end(watching)
        if after is not None:
            await after(system, job)
        return CrawlReport(
            job=await system.jobs.job(job.id) or job,
            resumed=resumed,
            ended=drained,
            counts=await system.jobs.counts(job.id),
            records=await system.records.count(RecordQuery(job=job.id)),
            seconds=clock.monotonic() - began,
            failure=await why_nothing_came(system, job.id) if drained else "",
        )


async def _leave_schedules_alone(system: System, name: str) -> None:
    """A run of a schedule has terms of its own: it is not taken over by a crawl of the same name. Raises
    Misconfigured."""
    for job in await system.jobs.running_jobs():
        if job.name == name and job.schedule:
            raise Misconfigured(
                f"{job.id} is a run of the schedule {job.schedule!r}, and still going. `gossamer worker` works on it;"
                f" `gossamer job cancel {job.id}` ends it."
            )


async def why_nothing_came(system: System, job: str) -> str:
    """One line on why not one page of the job could be had; empty when one could, a redirect not counted."""
    counts = await system.jobs.counts(job)
    if counts.done + counts.unchanged > FEW:
        return ""
    elsewhere = refused = ""
    told = 0  # pages that are done and have a row; where a filter deduplicates, rows go with the work
    async for url, state, reason in system.desk.urls(job):
        told += state in (UrlState.DONE, UrlState.UNCHANGED)
        if state in (UrlState.DONE, UrlState.UNCHANGED) and not reason.startswith(REDIRECTED):
            return ""
        if state is UrlState.DONE:
            elsewhere = elsewhere or f"{url} {reason}, which is another site. Crawl that one instead."
        elif state is UrlState.DROPPED and reason == DropReason.ROBOTS:
            refused = refused or f"The robots.txt of the site forbids {url} to crawlers."
    if told < counts.done + counts.unchanged:
        return ""
    for letter in await system.desk.dead(DeadFilter(job=job), limit=1):
        return letter.message.partition("\n")[0] or f"{letter.url}: {letter.reason}"
    return refused or elsewhere or "Every address was left out by the rules of the crawl."


async def work_off(
    system: System,
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
    sealed = await system.jobs.is_sealed(job.id)
    terms = await system.jobs.terms(job.id)
    if terms.schedule:
        return await _work_off_run(system, spider, job, terms, worker, scope, sites, events or Silence())
    if sealed and scope.sites is not sites:
        return await worker.run()
    sowing = asyncio.create_task(_sow(system, spider, job.id, scope, sites, known=sealed), name="seeds")
    drained = asyncio.create_task(worker.draining.wait(), name="drained while reading seeds")
    try:
        if sealed:
            await asyncio.wait({sowing, drained}, return_when=asyncio.FIRST_COMPLETED)
        return await _work(worker, sowing)
    finally:
        await _end(sowing, drained)


async def _work_off_run(
    system: System,
    spider: Spider,
    job: Job,
    terms: JobTerms,
    worker: Worker,
    scope: Scope,
    sites: set[str],
    events: EventSink,
) -> bool:
    """Work on the run of a schedule: one of its workers reads the source (sowing.py)."""
    sower = Sower(system, spider, job.id, terms, scope, sites, events)
    await sower.learn_sites()  # whoever read before us may have died: what he found is in the queue
    if await system.jobs.is_sealed(job.id):
        await sower.learn_sites()
        return await worker.run()
    worker.sows = lambda: sower.reads
    sowing = asyncio.create_task(sower.run(), name="seeds")
    try:
        return await _work(worker, sowing)
    finally:
        await _end(sowing)


async def close_drained(system: System, spider: Spider, job: Job, events: EventSink) -> None:
    """End a job of which nothing is left; told by the one worker that ended it."""
    counts = await system.jobs.counts(job.id)
    job = await system.jobs.job(job.id) or job  # its limit may be another one by now
    full = job.limit is not None and counts.settled >= job.limit
    ending = "limit" if full and (counts.queued or counts.waiting) else "done"
    if ending == "done" and system.settings.store.mark_gone:
        # Before the job is closed: a crash in between repeats it.
        try:
            gone = await mark_gone(system, spider, job, counts, events)
        except Transient as error:  # the next crawl will see to it
            events.emit(Trouble(at=system.clock.now(), job=job.id, stage="gone", message=str(error)))
        else:
            if gone:
                events.emit(Gone(at=system.clock.now(), job=job.id, records=gone))
    if await system.jobs.close_job(job.id, ending):
        events.emit(JobEnded(at=system.clock.now(), job=job.id, ending=ending))
        await forget_runs_before(system, job, events)


async def mark_gone(system: System, spider: Spider, job: Job, counts: JobCounts, events: EventSink) -> int:
    """Mark records that the crawl should have seen and did not; return how many.

    A crawl that got everywhere speaks for all that earlier crawls of its name had seen. One that left pages out speaks
    only for the pages that it visited itself. One that found less than half of what the crawl before had seen says
    nothing: more likely something is wrong with it than with half of the site. While results wait in the spool, what
    was seen is not known.
    """
    settings = system.settings
    if not counts.done + counts.unchanged or something_waits(settings.root / settings.store.spool):
        return 0
    newest = await system.history.newest_jobs(job.name, EARLIER_JOBS + 1)
    earlier = [one for one in newest if one.created_at < job.created_at]
    everywhere = await _got_everywhere(system, job, earlier)
    if earlier and everywhere:
        before = await system.records.count(RecordQuery(job=earlier[0].id, spider=spider.name))
        now = await system.records.count(RecordQuery(job=job.id, spider=spider.name))
        if before >= MANY_RECORDS and now < before * BELIEVED:
            message = (
                f"{job.id} saw {now:,} records where {earlier[0].id} saw {before:,}. None is marked as gone: see"
                f" whether the site or the spider has changed."
            )
            events.emit(Trouble(at=system.clock.now(), job=job.id, stage="gone", message=message))
            return 0
    return await system.records.retire(
        job.id,
        spider=spider.name,
        at=system.clock.now(),
        earlier=[one.id for one in earlier[:EARLIER_JOBS]] if everywhere else (),
        began=job.created_at,
    )


async def _got_everywhere(system: System, job: Job, earlier: Sequence[Job]) -> bool:
    """Was nothing left out that the crawl before may have visited?

    A list of addresses speaks for itself alone: what has dropped out of a feed, or out of the choice of a budget, is
    not gone from its site.
    """
    if (await system.jobs.terms(job.id)).source:
        return False
    if earlier and earlier[0].depth != job.depth:
        return False
    if not set(await system.desk.dead_reasons(DeadFilter(job=job.id))) <= NOT_FOUND:
        return False
    async for _, _, reason in system.desk.urls(job.id, UrlState.DROPPED):
        if reason in LEFT_OUT:
            return False
    return True


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


async def _sow(system: System, spider: Spider, job: str, scope: Scope, sites: set[str], *, known: bool) -> None:
    """Offer the spider's seeds, waiting while the queue is full. Seeds that are `known` only widen the scope."""
    admission = Admission(
        scope, system.rules, remember_known=False, fetcher=spider.fetcher, proxy_pool=spider.proxy_pool
    )
    chunk: list[Request] = []
    count = 0
    async for request in seeds(spider):
        count += 1
        sites.add(site_of(request.url))
        if not known:
            chunk.append(request)
        if len(chunk) >= SEEDS_AT_ONCE:
            await offer(system, job, admission.judge(chunk), system.settings.crawl.max_queued)
            chunk = []
    if not count:
        raise Misconfigured(f"Spider {spider.name} has nothing to start from. Give it start_urls, or a start() method.")
    if chunk:
        await offer(system, job, admission.judge(chunk), system.settings.crawl.max_queued)
    if not known:
        await system.jobs.seal_seeds(job)


@contextmanager
def stopping(drain: Callable[[], None], force: Callable[[signal.Signals], None] | None = None) -> Iterator[None]:
    """SIGINT and SIGTERM call `drain`. A further one, later than ECHO, calls `force`, and without it ends the process.

    The echo: `timeout` signals its command and then the command's whole group; a terminal signals all of a group at
    once, and its first process passes the signal on.
    """
    loop = asyncio.get_running_loop()
    asked_at: float | None = None
    installed: list[signal.Signals] = []

    def heed(number: signal.Signals) -> None:
        nonlocal asked_at
        if asked_at is None:
            asked_at = loop.time()
            drain()
        elif loop.time() - asked_at > ECHO.total_seconds():
            if force is not None:
                force(number)
                return
            while installed:
                loop.remove_signal_handler(installed.pop())
            signal.raise_signal(number)  # as it would have ended without us

    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(ValueError, NotImplementedError, RuntimeError):  # not the main thread: the caller stops us
            loop.add_signal_handler(number, heed, number)
            installed.append(number)
    try:
        yield
    finally:
        while installed:
            loop.remove_signal_handler(installed.pop())


async def _end(*tasks: asyncio.Task[Any] | None) -> None:
    alive = [task for task in tasks if task is not None]
    for task in alive:
        task.cancel()
    await asyncio.gather(*alive, return_exceptions=True)
