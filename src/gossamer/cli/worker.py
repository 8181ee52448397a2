"""`gossamer worker`: a process that serves all jobs, or several under a supervisor. `gossamer workers`: the list."""

from __future__ import annotations

import os
import sys
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from ..backends.addresses import place_of
from ..clock import Backoff, SystemClock
from ..crawl.heartbeat import MISSING_AFTER
from ..errors import BackendUnavailable, Misconfigured
from ..frontier.contract import WorkerCard
from ..model import events
from ..model.events import EventHub
from ..monitor.logs import JsonLog
from ..process.black_box import TIES
from ..process.signals import stopping
from ..process.supervisor import MISCONFIGURED, Pulse, Supervisor, silence_under
from ..project.open import Project, is_crawled, open_project
from ..project.worker_pool import WorkerPool
from ..settings import Settings
from ..settings.effective import routing_of, served
from ..text import distance, many, size, visible
from .app import app, err, fail, out, run_async, settings_with
from .layout import Column, jsonable, number, print_json, print_table
from .progress import Warnings

AWAY = Backoff(first=timedelta(milliseconds=500), longest=timedelta(seconds=15))  # while a backend does not answer


@app.command("worker")
def worker_verb(
    processes: Annotated[int, typer.Option(min=1, help="So many processes, watched and replaced when they die.")] = 1,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in each process.")] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when no job is left that can be served here.")
    ] = False,
    routes: Annotated[
        str | None, typer.Option(metavar="ROUTES", help="Serve only these routes or kinds: http, browser, managed ...")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object per event, to stderr.")] = False,
) -> None:
    """Work on every running job of the project, those that are begun later too. Ctrl-C finishes what is in hand."""
    pulse = Pulse.inherited()
    settings = settings_with(**{"crawl.concurrency": concurrency})
    serves = None if routes is None else served(routes, routing_of(settings))
    voice = Voice(quiet=quiet, json_logs=json_logs, supervised=pulse is not None)
    if processes == 1:
        try:
            run_async(_serve(settings, voice, pulse, until_idle=until_idle, serves=serves))
        except Misconfigured as error:
            if pulse is None:
                raise
            fail(str(error), MISCONFIGURED)
        finally:
            voice.close()
        return
    # -P: files in the working directory do not stand in for modules, as in the command itself.
    command = [sys.executable, "-P", "-m", "gossamer", "worker"]
    command += ["--concurrency", str(concurrency)] if concurrency is not None else []
    command += ["--routes", routes] if routes is not None else []
    wanted = {"--until-idle": until_idle, "--quiet": quiet, "--json-logs": json_logs}
    command += [flag for flag, is_wanted in wanted.items() if is_wanted]
    code = run_async(_supervise(settings, voice, command, processes, until_idle=until_idle))
    if code:
        raise typer.Exit(code)


class Voice:
    """What a worker process says, and how: lines for people, objects for programs, or nothing."""

    def __init__(self, *, quiet: bool, json_logs: bool, supervised: bool) -> None:
        self._clock = SystemClock()
        self._log = JsonLog(sys.stderr, self._clock) if json_logs else None
        self._shows = not quiet and not json_logs
        self._supervised = supervised
        self._before = f"worker {os.getpid()}: " if supervised else ""

    def listeners(self) -> EventHub:
        lines = (Warnings(err, before=self._before, names_jobs=True), self) if self._shows else ()
        return EventHub(*lines) if self._log is None else EventHub(self._log, *lines)

    def welcome(self, project: Project, text: str) -> None:
        """What the user should know first. The children of a supervisor leave it to him."""
        if not self._shows or self._supervised:
            return
        settings = project.settings
        place = place_of(settings, "state")
        self._greet(project, f"{text} all jobs of", f"queue in {place}; Ctrl-C finishes what is in hand")

    def _greet(self, project: Project, text: str, note: str) -> None:
        settings = project.settings
        for warning in project.warnings:
            err.print(Text(f"Warning: {visible(warning)}", style="yellow"), soft_wrap=True)
        name = visible(settings.project or str(settings.root))
        err.print(Text.assemble(f"{text} ", (name, "bold"), (f" ({visible(note)})", "dim")))

    def emit(self, event: events.Event) -> None:
        match event:
            case events.JobBegun():
                self._say(f"working on {event.job}")
            case events.JobEnded() | events.JobLeft():
                self._say(f"{event.job} ended: {event.ending}")
            case events.JobPaused():
                self._say(f"{event.job} is paused" if event.paused else f"{event.job} goes on")

    def _say(self, words: str, style: str = "") -> None:
        err.print(Text(f"{self._before}{visible(words)}", style=style), soft_wrap=True)

    def tell(self, words: str) -> None:
        """A line of the supervisor."""
        if self._log is not None:
            self._log.emit(events.Trouble(at=self._clock.now(), stage="supervisor", message=words))
        elif self._shows:
            err.print(Text(words, style="yellow"))

    def tell_fate(self) -> None:
        """What became of the process that this one follows, if there was one."""
        if TIES.box is not None and TIES.box.fate:
            self.tell(TIES.box.fate)

    def close(self) -> None:
        if self._log is not None:
            self._log.summary()


async def _serve(
    settings: Settings, voice: Voice, pulse: Pulse | None, *, until_idle: bool, serves: frozenset[str] | None
) -> None:
    pools: list[WorkerPool] = []  # none until the backends are open

    def orphaned() -> None:
        for pool in pools:
            pool.drain()

    pulse = pulse or Pulse.for_keeper()
    voice.tell_fate()
    async with AsyncExitStack() as stack:
        if pulse is not None:
            silence = silence_under(settings.crawl.parse_timeout)
            await stack.enter_async_context(pulse.beating(orphaned, silence=silence))
        project = await open_patiently(stack, settings, voice)
        pool = WorkerPool(project, voice.listeners(), until_idle=until_idle, serves=serves)
        pools.append(pool)
        voice.welcome(project, f"Worker {os.getpid()} serves")
        with stopping(pool.drain), TIES.at_work(settings.crawl.parse_timeout):
            await pool.run()


async def open_patiently(stack: AsyncExitStack, settings: Settings, voice: Voice, *, to_look: bool = False) -> Project:
    """Open the backends; one that is away is waited for, since commands are often started before their servers."""
    clock, pauses, told = SystemClock(), AWAY.pauses(), ""
    while True:
        try:
            return await stack.enter_async_context(open_project(settings, to_look=to_look))
        except BackendUnavailable as error:
            if str(error) != told:
                told = str(error)
                voice.tell(f"{told} Waiting for it.")
        await clock.sleep(next(pauses).total_seconds())


async def _supervise(settings: Settings, voice: Voice, command: list[str], processes: int, *, until_idle: bool) -> int:
    async with AsyncExitStack() as stack:  # what is wrong with the backends is told once, and not by each child
        project = await open_patiently(stack, settings, voice)
        voice.welcome(project, f"{processes} workers serve")
    supervisor = Supervisor(
        command,
        processes=processes,
        drain_within=settings.crawl.drain,
        tell=voice.tell,
        until_idle=until_idle,
        silence=silence_under(settings.crawl.parse_timeout),
    )
    return await supervisor.run()


@app.command("workers")
def workers_verb(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """List the processes that work on the project, on all machines, and when they gave their last sign of life."""
    run_async(_show(settings_with(), as_json))


async def _show(settings: Settings, as_json: bool) -> None:
    cards: list[WorkerCard] = []
    now, scheduler = 0.0, ""
    if is_crawled(settings):
        async with open_project(settings, to_look=True) as project:
            cards, now = await project.state.workers.workers(), project.clock.now()
            if not as_json:
                scheduler = await _scheduler(project)
    if as_json:
        print_json([{**jsonable(card, ("started_at", "seen_at")), "missing": _is_missing(card, now)} for card in cards])
        return
    if cards:
        _print_cards(cards, now)
    else:
        out.print("No workers. `gossamer worker` starts one; a `gossamer crawl` counts as one, too.")
    if scheduler:
        err.print(Text(visible(scheduler), style="dim"), soft_wrap=True)


async def _scheduler(project: Project) -> str:
    """Who begins the runs of schedules; nothing where there are neither."""
    leader = await project.state.schedules.leader()
    if leader is not None:
        host, _, rest = leader.leader.partition("/")
        return f"A scheduler leads on {host}, process {rest.partition('/')[0]}."
    if project.settings.schedules or await project.state.schedules.schedules():
        return "No scheduler is running; start `gossamer up`."
    return ""


def _print_cards(cards: list[WorkerCard], now: float) -> None:
    print_table(
        (Column("HOST"), Column("PID", right=True), Column("STATE"), Column("JOB", fold=True),
         Column("IN FLIGHT", right=True), Column("DONE", right=True), Column("CPU", right=True),
         Column("MEMORY", right=True), Column("STARTED", spare=True), Column("LAST SEEN"),
         Column("VERSION", spare=True)),
        [
            (card.host, card.pid, "missing" if _is_missing(card, now) else card.state, card.job,
             number(card.in_flight), number(card.done), f"{card.cpu:.0%}", size(card.memory),
             distance(card.started_at, now), distance(card.seen_at, now), card.version)
            for card in cards
        ],
    )  # fmt: skip
    missing = sum(_is_missing(card, now) for card in cards)
    if missing:
        silence = f"{MISSING_AFTER.total_seconds():.0f} s"
        err.print(f"[yellow]{many(missing, 'worker')} gave no sign of life for {silence}.[/]")


def _is_missing(card: WorkerCard, now: float) -> bool:
    return now - card.seen_at > MISSING_AFTER.total_seconds()
