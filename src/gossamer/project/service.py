"""The processes of a project: a crawl, a worker, a scheduler, or all of them under a supervisor.

What it does: opens the backends, waits for those that are away, works until a signal drains it, and beats for the
supervisor above it, if there is one. What people see of it is left to the caller: `welcome` is called when the
backends are open, `tell` with a line for people, and events go to a sink.
How it fails: Misconfigured. How it recovers: a process that dies loses nothing, because its leases come back, and
none outlives its supervisor (process/supervisor.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from datetime import timedelta

from ..clock import Backoff, SystemClock
from ..errors import BackendUnavailable
from ..model.events import EventSink, Trouble
from ..model.job import Job
from ..parse.spider import Spider
from ..process.black_box import TIES
from ..process.signals import stopping
from ..process.supervisor import MISCONFIGURED, Pulse, Supervisor, silence_under
from ..schedule.definition import schedules_of
from ..schedule.leader import Scheduler
from ..settings import Settings
from ..settings.effective import routing_of, served
from ..store.contract import RecordQuery
from ..store.export import export
from .crawl import Attend, CrawlReport, crawl
from .export import destination_of
from .job_end import why_nothing_came
from .open import Project, open_project
from .scheduler import scheduler_of
from .worker_pool import WorkerPool

AWAY = Backoff(first=timedelta(milliseconds=500), longest=timedelta(seconds=15))  # while a backend does not answer
EXIT_MISCONFIGURED = MISCONFIGURED  # the exit code that tells a supervisor not to start this process again

Welcome = Callable[[Project], None]
Tell = Callable[[str], None]


def inherited_pulse() -> Pulse | None:
    """The pulse that a supervisor has given to this process; None for a process that nobody watches."""
    return Pulse.inherited()


def last_fate() -> str:
    """What became of the process that this one follows, in one line; "" when it is the first."""
    return TIES.box.fate if TIES.box is not None else ""


def served_routes(settings: Settings, routes: str) -> frozenset[str]:
    """The routes that a worker serves, from what was typed: `http, browser`. Raises Misconfigured."""
    return served(routes, routing_of(settings))


# -- one process ---------------------------------------------------------------------------------------------------


async def run_crawl(
    spider: Spider,
    settings: Settings,
    *,
    events: EventSink,
    name: str | None = None,
    fresh: bool = False,
    output: str | None = None,
    attend: Attend | None = None,
) -> CrawlReport:
    """Crawl in this process; write the records that the job saw to `output` when it ends or is stopped.

    A process that follows one that died goes on with its crawl, even if it was begun as a fresh one. Raises
    Misconfigured and Transient.
    """

    async def write(project: Project, job: Job) -> None:
        # A crawl that had nothing leaves the file of the last one alone.
        if output is not None and not await why_nothing_came(project, job.id):
            place = destination_of(output, now=project.clock.now(), job=job.id)
            await export(project.records, RecordQuery(job=job.id, gone=False), place)

    fate = last_fate()
    if fate:
        events.emit(Trouble(at=SystemClock().now(), stage="keeper", message=fate))
    pulse = Pulse.for_keeper()
    async with pulse.beating() if pulse is not None else nullcontext():
        return await crawl(
            spider, settings, name=name, fresh=fresh and not fate, events=events, attend=attend, after=write
        )


async def run_worker(
    settings: Settings,
    events: EventSink,
    *,
    welcome: Welcome,
    tell: Tell,
    pulse: Pulse | None = None,
    until_idle: bool = False,
    serves: frozenset[str] | None = None,
) -> None:
    """Work on every running job until a signal; `until_idle`, until no job is left that can be served here.

    `serves` are the routes that it works on; None means all. Raises Misconfigured.
    """
    pools: list[WorkerPool] = []  # empty until the backends are open

    def orphaned() -> None:
        for pool in pools:
            pool.drain()

    pulse = pulse or Pulse.for_keeper()
    if fate := last_fate():
        tell(fate)
    async with AsyncExitStack() as stack:
        if pulse is not None:
            silence = silence_under(settings.crawl.parse_timeout)
            await stack.enter_async_context(pulse.beating(orphaned, silence=silence))
        project = await open_patiently(stack, settings, tell)
        pool = WorkerPool(project, events, until_idle=until_idle, serves=serves)
        pools.append(pool)
        welcome(project)
        with stopping(pool.drain), TIES.at_work(settings.crawl.parse_timeout):
            await pool.run()


async def run_scheduler(
    settings: Settings, events: EventSink, *, welcome: Welcome, tell: Tell, pulse: Pulse | None = None
) -> None:
    """Begin the runs of schedules when they are due, until a signal. Raises Misconfigured."""
    schedulers: list[Scheduler] = []  # empty until the backends are open

    def orphaned() -> None:
        for scheduler in schedulers:
            scheduler.drain()

    async with AsyncExitStack() as stack:
        if pulse is not None:
            await stack.enter_async_context(pulse.beating(orphaned))
        project = await open_patiently(stack, settings, tell, to_look=True)
        scheduler = scheduler_of(project, events)
        schedulers.append(scheduler)
        welcome(project)
        with stopping(scheduler.drain):
            await scheduler.run()


async def open_patiently(stack: AsyncExitStack, settings: Settings, tell: Tell, *, to_look: bool = False) -> Project:
    """Open the backends; wait for one that is away, since commands are often started before their servers."""
    clock, pauses, told = SystemClock(), AWAY.pauses(), ""
    while True:
        try:
            return await stack.enter_async_context(open_project(settings, to_look=to_look))
        except BackendUnavailable as error:
            if str(error) != told:
                told = str(error)
                tell(f"{told} Waiting for it.")
        await clock.sleep(next(pauses).total_seconds())


# -- several processes ---------------------------------------------------------------------------------------------


async def supervise_workers(
    settings: Settings, command: list[str], processes: int, *, welcome: Welcome, tell: Tell, until_idle: bool
) -> int:
    """Run `command` in so many processes, watched and replaced when they die; return the exit code."""
    async with AsyncExitStack() as stack:  # what is wrong with the backends is told once, and not by each child
        welcome(await open_patiently(stack, settings, tell))
    return await _workers(settings, command, processes, tell=tell, until_idle=until_idle).run()


async def supervise_all(
    settings: Settings,
    scheduler: list[str],
    worker: list[str],
    workers: int,
    *,
    welcome: Callable[[Project, bool], None],
    tell: Tell,
) -> int:
    """Run one scheduler and so many workers, all watched, until a signal or until one gives up; return the exit code.

    `welcome` is also given whether the project has schedules. Raises Misconfigured before anything is started.
    """
    schedules_of(settings.schedules)
    async with AsyncExitStack() as stack:  # as above
        project = await open_patiently(stack, settings, tell, to_look=True)
        welcome(project, bool(settings.schedules or await project.state.schedules.schedules()))

    def tell_of_scheduler(words: str) -> None:
        tell(words.replace("Worker", "Scheduler", 1).replace("A worker", "A scheduler", 1))

    return await _together(
        (
            Supervisor(scheduler, processes=1, drain_within=timedelta(0), tell=tell_of_scheduler),
            _workers(settings, worker, workers, tell=tell),
        )
    )


def _workers(
    settings: Settings, command: list[str], processes: int, *, tell: Tell, until_idle: bool = False
) -> Supervisor:
    return Supervisor(
        command,
        processes=processes,
        drain_within=settings.crawl.drain,
        tell=tell,
        until_idle=until_idle,
        silence=silence_under(settings.crawl.parse_timeout),
    )


async def _together(supervisors: Sequence[Supervisor]) -> int:
    """Run all of them until a signal, or until one gives up; return the exit code."""
    forced = 0

    def stop() -> None:
        for one in supervisors:
            one.stop(signal.SIGTERM)

    def force(number: signal.Signals) -> None:
        nonlocal forced
        forced = 128 + number
        for pid in [pid for one in supervisors for pid in one.pids]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async with asyncio.TaskGroup() as group:
        runs = [group.create_task(one.run()) for one in supervisors]
        await asyncio.sleep(0)  # by now each heeds the signals for itself alone, and ours are heeded last
        going = set(runs)
        while going:
            with stopping(stop, force):
                _, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            stop()  # when one ends, all do
    return forced or max(run.result() for run in runs)
