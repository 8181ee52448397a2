"""Work in slices, for programs that bring their own processes, such as Celery: each call starts, does its part and
ends, in any process and any number of times.

What it does: `work_slice` works on the running jobs for a while, `tick` starts the runs that are due, `enqueue` opens a
job, `scrape_page` fetches one page here and now. Correctness rests on the state: leases, the scheduler's leadership,
the outbox of messages. A slice that dies, comes late, or runs twice costs only time.
How it fails: Transient while a backend does not answer, Misconfigured; BadRequest for an invalid request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from ...errors import Transient
from ...model.events import Buried, Completed, Event, EventHub, EventSink, JobBegun, ScheduleFired
from ...model.job import Job
from ...settings import Settings
from ..access.idempotency import begin as claim_answer
from ..access.idempotency import finish as keep_answer
from ..access.keys import OWNER
from ..open import Project, open_project
from ..pages.results import PageOutcome, PageReader
from ..workers.service import scheduler_of
from .api_jobs import Asked, begin_crawl, begin_scrape, job_for, wanted_pages
from .api_requests import BadRequest, CrawlRequest, ScrapeRequest
from .messages import Message, Send, deliver_messages, enter_message
from .worker_pool import WorkerPool

LOOK = timedelta(milliseconds=200)  # how often to check whether the slice is over
LONGEST_TICK = timedelta(seconds=40)  # a spider that takes longer to load counts as failed
QUIET = timedelta(seconds=1)  # a scheduler with nothing due for this long has done its part
T = TypeVar("T")


class SliceReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice of work did. `ended`: time (its time was over), idle (nothing to do), told (the caller stopped
    it)."""

    pages: int
    failed: int
    seconds: float
    ended: str


class TickReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a tick did. `led` is False if another scheduler leads; then it started nothing."""

    led: bool
    begun: tuple[str, ...]
    messages: int  # sent, about ended jobs


class Enqueued(msgspec.Struct, frozen=True, kw_only=True):
    job_id: str


class _Watch:
    """Counts the work of a slice, and remembers which jobs it met."""

    def __init__(self) -> None:
        self.pages = 0
        self.failed = 0
        self.jobs: set[str] = set()
        self.begun: list[str] = []

    def emit(self, event: Event) -> None:
        match event:
            case Completed():
                self.pages += 1
            case Buried():
                self.failed += 1
            case JobBegun():
                self.jobs.add(event.job)
            case ScheduleFired():
                self.begun.append(event.job)


# -- work ----------------------------------------------------------------------------------------------------------


async def work_slice(
    settings: Settings,
    events: EventSink,
    *,
    lasts: timedelta,
    serves: frozenset[str] | None = None,
    told: Callable[[], bool] = lambda: False,
    messages: Iterable[Message] = (),
) -> SliceReport:
    """Work on all running jobs for that time, or until there is nothing left to do or `told` returns True; then finish
    the pages in progress. Each job that it meets gets the messages for its end. Raises Misconfigured and Transient."""
    watch, wanted = _Watch(), tuple(messages)
    async with open_project(settings) as project:
        clock = project.clock
        began = clock.monotonic()
        pool = WorkerPool(project, EventHub(watch, events), until_idle=True, serves=serves)
        ended = "idle"

        async def limit() -> None:
            nonlocal ended
            while clock.monotonic() - began < lasts.total_seconds() and not told():
                await clock.sleep(LOOK.total_seconds())
                with suppress(Transient):  # the next look, or the next slice, enters them
                    await _enter_for(project, watch.jobs, wanted)
            ended = "told" if told() else "time"
            pool.drain()

        limiting = asyncio.create_task(limit(), name="limit of the slice")
        try:
            await pool.run()
        finally:
            limiting.cancel()
            await asyncio.gather(limiting, return_exceptions=True)
        await _enter_for(project, watch.jobs, wanted)
        seconds = round(clock.monotonic() - began, 3)
    return SliceReport(pages=watch.pages, failed=watch.failed, seconds=seconds, ended=ended)


async def _enter_for(project: Project, jobs: set[str], messages: tuple[Message, ...]) -> None:
    """Enter the messages for the ends of these jobs, and clear the list of jobs."""
    while jobs and messages:
        job = next(iter(jobs))
        for message in messages:
            await enter_message(project, job, message)
        jobs.discard(job)
    jobs.clear()


# -- tick ----------------------------------------------------------------------------------------------------------


async def tick(
    settings: Settings,
    events: EventSink,
    send: Send,
    *,
    messages: Iterable[Message] = (),
    longest: timedelta = LONGEST_TICK,
) -> TickReport:
    """Start the due runs, evaluate alerts, and send the messages of jobs that have ended.

    Of all ticks and schedulers only one at a time leads and starts runs. Raises Misconfigured and Transient.
    """
    watch, wanted = _Watch(), tuple(messages)
    async with open_project(settings, to_look=True) as project:
        led = await _lead(project, EventHub(watch, events), longest)
        if wanted:
            running = {job.id for job in await project.state.jobs.running_jobs()}
            await _enter_for(project, running | set(watch.begun), wanted)
        sent = await deliver_messages(project, send, wanted)
    return TickReport(led=led, begun=tuple(watch.begun), messages=sent)


async def _lead(project: Project, events: EventSink, longest: timedelta) -> bool:
    from ..alerts.watch import AlertWatch  # loads the code that sends alerts

    clock = project.clock
    until = clock.monotonic() + longest.total_seconds()
    scheduler = scheduler_of(project, events)
    try:
        while True:
            pause = await scheduler.turn()
            if not scheduler.leads:
                return False
            if clock.monotonic() >= until or (pause >= QUIET and not scheduler.is_loading):
                break
            await clock.sleep(pause.total_seconds())
        await AlertWatch(project, scheduler.lead, events).once(timedelta(seconds=max(0.0, until - clock.monotonic())))
        return True
    finally:
        await scheduler.resign()


# -- jobs and pages ------------------------------------------------------------------------------------------------


async def enqueue(settings: Settings, wanted: CrawlRequest, *, once: str, messages: Iterable[Message] = ()) -> Enqueued:
    """Open the job of a crawl; a repeated request with the same name `once` gets the same job. Raises BadRequest,
    Transient and Misconfigured, and StillWorking if the first request of that name has not finished."""
    content = msgspec.json.encode(wanted)
    async with open_project(settings, to_look=True) as project:
        known = await claim_answer(project, OWNER, once, content)
        if known is not None and known.body is not None:
            return msgspec.json.decode(known.body, type=Enqueued)
        job = await begin_crawl(project, OWNER, wanted)
        for message in messages:
            await enter_message(project, job.id, message)
        answer = Enqueued(job_id=job.id)
        await keep_answer(project, OWNER, once, content, 202, msgspec.json.encode(answer))
        return answer


async def scrape_page(settings: Settings, events: EventSink, wanted: ScrapeRequest) -> PageOutcome:
    """Fetch one page, politely, in this process: a job of one page that needs no other worker. Raises BadRequest,
    Transient and Misconfigured; PageNotThere if it did not arrive in time, and then workers continue with it."""
    async with open_project(settings) as project, PageReader(project) as pages:
        asked = Asked(project=project, caller=OWNER, extraction=pages.extraction)
        job = await begin_scrape(asked, wanted, waits=True)
        pool = WorkerPool(project, events, until_idle=True, only=frozenset((job.id,)))
        waiting = asyncio.create_task(pages.wait(job.id, wanted.timeout), name="wait for the page")
        working = asyncio.create_task(pool.run(), name="work on the page")
        try:
            came = await waiting
        finally:
            waiting.cancel()
            pool.drain()
            await asyncio.gather(waiting, working, return_exceptions=True)
        if not came:
            raise PageNotThere(
                f"{wanted.url} did not arrive within {wanted.timeout:g} s. {job.id} is still being worked on."
            )
        ended: Job = await job_for(project, OWNER, job.id) or job
        (outcome,) = await pages.outcomes(ended, await wanted_pages(project, ended))
        return outcome


class PageNotThere(Transient):
    """The page did not arrive within the caller's time limit."""

    reason = "timeout"


def request_of(fields: dict[str, Any], kind: type[T]) -> T:
    """A request from plain values. Raises BadRequest."""
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise BadRequest(f"{error}.") from error
