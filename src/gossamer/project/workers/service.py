"""The processes of a project: a crawl, a worker, a scheduler, or all of them under a supervisor.

What it does: opens the backends, waits for those that are away, works until a signal drains it, and sends a pulse to
its supervisor, if there is one. The caller decides what people see: `welcome` is called when the backends are open,
`tell` with a line for people, and events go to a sink.
How it fails: Misconfigured. How it recovers: a process that dies loses nothing, because its leases expire, and none
outlives its supervisor (process/supervisor.py).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from ...clock import Backoff, SystemClock
from ...crawl.heartbeat import BEAT
from ...errors import BadState, GossamerError, Misconfigured, Transient
from ...model.events import EventSink, Trouble
from ...model.job import Job
from ...parse.spider import Spider
from ...process.black_box import PARENT
from ...process.pulse import Pulse as Pulse  # re-exported for processes that run elsewhere
from ...process.pulse import alive
from ...process.signals import stopping as stopping
from ...process.supervisor import DRAINED, MISCONFIGURED, RESTARTED, ChildSlot, Supervisor, silence_under, spawn
from ...schedule.definition import schedules_of
from ...schedule.leader import Scheduler
from ...schedule.spider_loader import SpiderLoader
from ...settings import Settings
from ...terms import routing_of, served
from ...units import many
from ..jobs.crawl import Attend, CrawlReport, RunningCrawl, crawl
from ..jobs.end import first_of
from ..jobs.outcome import leaves_outputs_alone
from ..jobs.worker_pool import WorkerPool
from ..open import Project, open_patiently, open_project
from ..outputs.run import OutputReport, changes_written, is_address, running_outputs, typed_outputs
from ..records.erasure import erasing
from ..records.export import live_lines, outputs_of, write_feeds, write_outputs
from ..records.live_lines import LiveLines
from ..upkeep.retention import forget_old_runs
from ..wiring import is_over, sink_of
from .health import HealthAddress, listen, telling_health
from .health import health_address as health_address  # re-exported for callers that start workers
from .scaling import Bounds, Look, decide, in_words, kept, look_at, scaling
from .spools import waiting_by_job

RESTARTS = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))  # of a process that died
EXIT_DRAINED = DRAINED  # tells a supervisor that the worker was drained on purpose and is not to be replaced
EXIT_RESTARTS = RESTARTED  # tells it that another one is to take its place
SCALER_ENDS_WITHIN = timedelta(seconds=5)
EXIT_MISCONFIGURED = MISCONFIGURED  # tells a supervisor not to start this process again

Welcome = Callable[[Project], None]
Tell = Callable[[str], None]


def inherited_pulse() -> Pulse | None:
    """The pulse that a supervisor gave this process; None if no supervisor watches it."""
    return Pulse.inherited()


def last_fate() -> str:
    """How this process's predecessor ended, in one line; "" if it is the first."""
    return PARENT.box.fate if PARENT.box is not None else ""


def served_routes(settings: Settings, routes: str) -> frozenset[str]:
    """The routes that a worker serves, from the typed text: `http, browser`. Raises Misconfigured."""
    return served(routes, routing_of(settings))


# -- one process ---------------------------------------------------------------------------------------------------


async def run_crawl(
    spider: Spider,
    settings: Settings,
    *,
    events: EventSink,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    fresh: bool = False,
    output: str | Path | Sequence[str] | None = None,
    attend: Attend | None = None,
    heeds_signals: bool = True,
    meta: bool = True,
) -> CrawlReport:
    """Crawl in this process; write the records that the job saw to `output` when it ends or is stopped. In a crew, the
    first process writes them.

    A process that replaces a dead one continues its crawl, even if that was started as a fresh one. Raises
    Misconfigured and Transient.
    """

    crew = PARENT.crew
    leads = crew is None or not crew.helps
    wanted = outputs_of(output, spider) if leads else ()
    outputs = [one for one in wanted if not is_address(one)]
    following = typed_outputs([one for one in wanted if is_address(one)], spider.name)

    async def write(project: Project, job: Job) -> None:
        if outputs and not await leaves_outputs_alone(project, job.id):
            whole = [one for one, lines in live.items() if await lines.finish()]
            left = [one for one in outputs if one not in whole]
            await write_outputs(project, job.id, spider, left, gone=False, meta=meta)
        if not output:
            feeds.extend(await write_feeds(project, job, spider))

    live: dict[str, LiveLines] = {}
    feeds: list[str] = []

    async def beside(running: RunningCrawl) -> None:
        live.update(live_lines(running.project, running.job.id, spider, outputs, meta=meta))
        async with asyncio.TaskGroup() as tasks:
            for lines in live.values():
                tasks.create_task(lines.run(), name="write lines")
            if attend is not None:
                tasks.create_task(attend(running), name="attend")

    fate = last_fate()
    if fate:
        events.emit(Trouble(at=SystemClock().now(), stage="supervisor", message=fate))
    pulse = Pulse.forked()
    async with pulse.beating() if pulse is not None else nullcontext():
        report = await crawl(
            spider,
            settings,
            name=name,
            arguments=arguments,
            fresh=fresh and not fate,
            events=events,
            attend=beside,
            after=write,
            heeds_signals=heeds_signals,
            crew=crew,
            outputs={**settings.outputs, **following} if leads else {},
        )
    return msgspec.structs.replace(report, feeds=tuple(feeds))


async def run_worker(
    settings: Settings,
    events: EventSink,
    *,
    welcome: Welcome,
    tell: Tell,
    pulse: Pulse | None = None,
    until_idle: bool = False,
    serves: frozenset[str] | None = None,
    health_at: HealthAddress | None = None,
) -> int:
    """Work on every running job until a signal; with `until_idle`, until no job is left that can be served here.

    `serves` are the routes that it serves; None means all. Its metrics are served at `health_at`. Returns the exit
    code: EXIT_DRAINED if an operator drained this worker, which is not to be replaced, EXIT_RESTARTS if another one is
    to take its place. Raises Misconfigured.
    """
    pools: list[WorkerPool] = []  # empty until the backends are open

    def orphaned() -> None:
        for pool in pools:
            pool.drain()

    pulse = pulse or Pulse.forked()
    if fate := last_fate():
        tell(fate)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(touching_alive_file(settings))
        if pulse is not None:
            silence = silence_under(settings.crawl.parse_timeout)
            await stack.enter_async_context(pulse.beating(orphaned, silence=silence))
        try:
            project = await open_patiently(stack, settings, tell, check=check_work_left if until_idle else None)
        except NothingLeft:
            tell("No job is left to work on: this worker ends without that store.")
            return 0
        pool = WorkerPool(project, events, until_idle=until_idle, serves=serves)
        pools.append(pool)
        if health_at is not None:
            await stack.enter_async_context(telling_health(health_at, pool.health, SystemClock()))
        welcome(project)
        with stopping(pool.drain), PARENT.at_work(settings.crawl.parse_timeout):
            # Under a supervisor, a process of their own runs the outputs.
            async with (
                erasing(project),
                running_outputs(project, {} if pulse is not None else settings.outputs) as outputs,
            ):
                await pool.run()
                for one in await outputs.finish():
                    if one.lag != 0:
                        tell(one.in_words)
        return EXIT_DRAINED if pool.was_asked_to_drain else EXIT_RESTARTS if pool.was_asked_to_restart else 0


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The result of draining this machine's spool. `jobs` are those that waited for nothing else."""

    stored: int
    left: int
    jobs: tuple[str, ...]


async def drain_spool(settings: Settings, events: EventSink) -> Drained:
    """Store the results in this machine's spool that no living process owns, until a signal. Raises Misconfigured and
    Transient."""
    async with open_project(settings) as project:
        stopped = asyncio.Event()
        before = waiting_by_job(await project.state.spools.notes())
        async with sink_of(project, events) as sink:
            found = sink.results
            with stopping(stopped.set):
                await first_of(sink.emptied(), stopped.wait())
            left = sink.results.total()
        after = waiting_by_job(await project.state.spools.notes())
        running = {job.id for job in await project.state.jobs.running_jobs()}
        free = [job for job in before if not after[job] and job in running and await is_over(project.state.jobs, job)]
        return Drained(stored=found.total() - left, left=left, jobs=tuple(sorted(free)))


async def run_outputs(
    settings: Settings,
    names: Sequence[str],
    *,
    welcome: Welcome,
    tell: Tell,
    until_written: bool,
    pulse: Pulse | None = None,
) -> list[OutputReport]:
    """Run these outputs (none named: all) until a signal; with `until_written`, until everything is written, and return
    what became of each. Raises Misconfigured."""
    for name in names:
        if name not in settings.outputs:
            raise Misconfigured(
                f"There is no output {name[:60]!r} in gossamer.toml. `gossamer output list` lists them."
            )
    if not settings.outputs:
        raise Misconfigured("There are no outputs. [outputs.NAME] in gossamer.toml makes one: docs/outputs.md.")
    ended = asyncio.Event()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(touching_alive_file(settings))
        if pulse is not None:
            await stack.enter_async_context(pulse.beating(ended.set))
        project = await open_patiently(stack, settings, tell)
        welcome(project)
        tables = {name: table for name, table in settings.outputs.items() if not names or name in names}
        before = await changes_written(project, tables)
        with stopping(ended.set):
            async with (
                erasing(project),
                running_outputs(project, tables) as outputs,
                leaving_when_outdated(project, ended.set),
            ):
                if not until_written:
                    await ended.wait()
                    return []
                reports: list[OutputReport] = []

                async def finish(within: timedelta) -> None:
                    reports.extend(await outputs.finish(within, before=before))

                await first_of(finish(timedelta(days=365)), ended.wait())
                if not reports:  # a signal came first
                    await finish(timedelta(0))
                for one in reports:
                    if one.lag != 0:
                        tell(one.in_words)
                return reports


async def run_scheduler(
    settings: Settings, events: EventSink, *, welcome: Welcome, tell: Tell, pulse: Pulse | None = None
) -> None:
    """Start the runs of schedules when they are due, and watch for alerts, until a signal. Raises Misconfigured."""
    schedulers: list[Scheduler] = []  # empty until the backends are open

    def orphaned() -> None:
        for scheduler in schedulers:
            scheduler.drain()

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(touching_alive_file(settings))
        if pulse is not None:
            await stack.enter_async_context(pulse.beating(orphaned))
        project = await open_patiently(stack, settings, tell, to_look=True)
        scheduler = scheduler_of(project, events)
        schedulers.append(scheduler)
        welcome(project)
        from ..alerts.watch import AlertWatch  # only for schedulers: loads the code that sends alerts
        from ..spiders.layout_watch import LayoutWatch
        from ..upkeep.retention import RetentionWatch

        watching = [
            asyncio.create_task(AlertWatch(project, scheduler.lead, events).run(), name="watch alerts"),
            asyncio.create_task(LayoutWatch(project, scheduler.lead, events).run(), name="watch layouts"),
            asyncio.create_task(RetentionWatch(project, scheduler.lead).run(), name="retention"),
        ]
        try:
            with stopping(scheduler.drain):
                async with erasing(project), leaving_when_outdated(project, scheduler.drain):
                    await scheduler.run()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)


@asynccontextmanager
async def touching_alive_file(settings: Settings) -> AsyncIterator[None]:
    """During the block, the event loop touches the file `fleet.alive` every few seconds. Raises Misconfigured."""
    file = settings.root / settings.fleet.alive if settings.fleet.alive else None
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(alive(file))
        except OSError as error:
            raise Misconfigured(
                f"{file} cannot be written ({error.strerror}). Set fleet.alive to a file in a folder that can."
            ) from error
        yield


@asynccontextmanager
async def leaving_when_outdated(project: Project, leave: Callable[[], None]) -> AsyncIterator[None]:
    """During the block, check whether a newer version has opened the state, whose data this version may not understand.
    Then `leave` is called, and the end of the block raises BadState. Workers learn of it by heartbeat."""
    outdated: list[BadState] = []

    async def watch() -> None:
        while not outdated:
            try:
                await project.state.workers.check_format()
            except BadState as error:
                outdated.append(error)
                leave()
            except Transient:  # the code that needs the state reports that it is away
                pass
            await asyncio.sleep(BEAT.total_seconds())

    watching = asyncio.create_task(watch(), name="look for a newer version")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if outdated:
        raise outdated[0]


class NothingLeft(Exception):
    """No job is running, and no results wait on a disk."""


async def check_work_left(settings: Settings) -> None:
    """Raises NothingLeft. A state that does not answer may have work."""
    try:
        async with open_project(settings, to_look=True) as project:
            running, notes = await project.state.jobs.running_jobs(), await project.state.spools.notes()
    except Transient:
        return
    if not running and not waiting_by_job(notes):
        raise NothingLeft


# -- several processes ---------------------------------------------------------------------------------------------


async def supervised_workers(
    settings: Settings,
    command: list[str],
    processes: int,
    *,
    welcome: Welcome,
    tell: Tell,
    until_idle: bool,
    health_at: HealthAddress | None = None,
    output: list[str] | None = None,
) -> Supervisor:
    """The supervisor that runs `command` in `processes` processes, and replaces those that die. Raises Misconfigured
    before anything is started."""
    await _check_ports(health_at, processes)
    async with AsyncExitStack() as stack:  # report faults of the backends once, not from each child
        welcome(await open_patiently(stack, settings, tell))
    slots = [_worker_slot(command, settings, health_at, place) for place in range(processes)]
    slots += [_outputs_slot(output)] if output is not None and settings.outputs and not until_idle else []
    return Supervisor(slots, tell=tell, backoff=RESTARTS, until_idle=until_idle)


def supervised_worker(settings: Settings, command: list[str], *, tell: Tell) -> Supervisor:
    """The supervisor of one worker beside another process; the worker itself opens the backends."""
    return Supervisor([_worker_slot(command, settings)], tell=tell, backoff=RESTARTS)


async def supervised_all(
    settings: Settings,
    scheduler: list[str],
    worker: list[str],
    workers: int | None,
    *,
    server: list[str] | None = None,
    output: list[str] | None = None,
    health_at: HealthAddress | None = None,
    welcome: Callable[[Project, bool], None],
    tell: Tell,
) -> Supervisor:
    """The supervisor of one scheduler, `workers` workers and perhaps a server. One that cannot continue is retried; the
    others go on.

    If `workers` is None, `autoscaled` decides. `welcome` is also told whether the project has schedules. Raises
    Misconfigured before anything is started.
    """
    schedules_of(settings.schedules)
    await _check_ports(health_at, workers or 0)
    async with AsyncExitStack() as stack:  # as above
        project = await open_patiently(stack, settings, tell, to_look=True)
        welcome(project, bool(settings.schedules or await project.state.schedules.schedules()))
    slots = [_worker_slot(worker, settings, health_at, place) for place in range(workers or 0)]
    others = [ChildSlot(spawn(scheduler), name="scheduler")]
    if server is not None:
        others.append(ChildSlot(spawn(server), name="server"))
    if output is not None and settings.outputs:
        others.append(_outputs_slot(output))
    spare = (lambda: _worker_slot(worker, settings)) if workers is None else None
    return Supervisor([*others, *slots], tell=tell, backoff=RESTARTS, spare=spare)


@contextmanager
def autoscaled(supervisor: Supervisor, settings: Settings, bounds: Bounds, tell: Tell) -> Iterator[None]:
    """During the block, give the supervisor as many workers as the project needs, within the bounds.

    A separate thread checks every `scaling.look`. While the state does not answer, the number stays.
    """
    ended = threading.Event()
    supervisor.resize(bounds.least)

    async def watch() -> None:
        try:
            await first_of(_autoscale(supervisor, settings, bounds, tell), asyncio.to_thread(ended.wait))
        except GossamerError as error:
            tell(f"The number of workers does not change any more: {error}")

    thread = threading.Thread(target=lambda: asyncio.run(watch()), name="autoscale", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SCALER_ENDS_WITHIN.total_seconds())  # the workers have ended: do not wait for a hanging thread


async def _autoscale(supervisor: Supervisor, settings: Settings, bounds: Bounds, tell: Tell) -> None:
    clock, current, looks, trouble = SystemClock(), bounds.least, list[Look](), ""
    async with AsyncExitStack() as stack:
        project = await open_patiently(stack, settings, tell, to_look=True)
        while True:
            try:
                found = await scaling(project)
            except GossamerError as error:
                if not isinstance(error, Transient) and str(error) != trouble:
                    trouble = str(error)
                    tell(f"The number of workers stays at {current}: {trouble}")
            else:
                look = look_at(found, clock.monotonic(), bounds)
                looks = kept([*looks, look], calm=settings.scaling.calm)
                wanted = decide(looks, current, calm=settings.scaling.calm)
                if wanted != current:
                    tell(f"{many(wanted, 'worker')} instead of {current}: {in_words(found)}.")
                    current = wanted
                    supervisor.resize(current)
            await clock.sleep(settings.scaling.look.total_seconds())


async def _check_ports(health_at: HealthAddress | None, workers: int) -> None:
    """Raise Misconfigured if a worker could not serve its metrics, before anything is started."""
    if health_at is None:
        return
    for place in range(workers):
        (await listen(health_address(health_at.moved(place)), lambda *_: None)).close()


def _worker_slot(
    command: list[str], settings: Settings, health_at: HealthAddress | None = None, place: int = 0
) -> ChildSlot:
    """Each worker serves its metrics at a separate port: the first at the given one."""
    silence = silence_under(settings.crawl.parse_timeout)
    health = ["--metrics-port", health_at.moved(place)] if health_at is not None else []
    return ChildSlot(spawn([*command, *health]), silence=silence, drain_within=settings.crawl.drain)


def _outputs_slot(command: list[str]) -> ChildSlot:
    return ChildSlot(spawn(command), name="outputs")


def scheduler_of(
    project: Project, events: EventSink, *, name: str = "", loader: SpiderLoader | None = None
) -> Scheduler:
    """A scheduler with this name; by default the process's own. Raises Misconfigured as `Scheduler` does."""
    state, keep = project.state, project.settings.store.keep_runs
    return Scheduler(
        state,
        project.settings,
        project.clock,
        events,
        name=name or project.worker,
        forget_old_runs=lambda schedule: forget_old_runs(state.history, state.jobs, schedule, keep),
        loader=loader,
    )
