"""Processes that run until a signal: `gossamer worker` (serves all jobs), `gossamer scheduler` (starts the runs of
schedules), `gossamer up` (both and the HTTP server, supervised)."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Annotated, Self

import typer
from rich.text import Text

from ..clock import SystemClock
from ..errors import Misconfigured
from ..model import events
from ..model.events import EventHub
from ..monitor.logs import JsonLog
from ..project.jobs.status import place_of
from ..project.open import Project
from ..project.schedules.timetable import SKIPPED
from ..project.workers.scaling import bounds_of
from ..units import many, moment, span, visible
from .app import app, err, fail, run_async, settings_with
from .layout import warn
from .options import JsonLogsOption, QuietOption
from .progress import Alarms, Warnings

LATE = timedelta(seconds=5)  # a run that starts later than this is printed with the time of its tick

# -P: files in the working directory do not shadow modules, as in the command itself.
COMMAND = (sys.executable, "-P", "-m", "gossamer")

ConcurrencyOption = Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in each process.")]
MetricsPortOption = Annotated[
    str | None,
    typer.Option(metavar="PORT", help="Serve each worker's health to Prometheus at this PORT or ADDRESS:PORT."),
]


# -- what they say -------------------------------------------------------------------------------------------------


class Voice:
    """The output of a long-lived process: lines for people, JSON objects for programs, or nothing.

    A `supervised` process names itself in every line, and leaves the welcome to its supervisor.
    """

    role = "worker"

    def __init__(self, *, quiet: bool, json_logs: bool, supervised: bool = False) -> None:
        self._clock = SystemClock()
        self._began = self._clock.now()
        self._log = JsonLog(sys.stderr, self._clock) if json_logs else None
        self._hearing = ExitStack()
        self._shows = not quiet and not json_logs
        self._supervised = supervised
        self._before = f"{self.role} {os.getpid()}: " if supervised else ""

    def listeners(self) -> EventHub:
        if self._log is not None:
            self._hearing.enter_context(self._log.hearing())
            return EventHub(self._log)
        if not self._shows:
            return EventHub(Alarms(err))
        return EventHub(Warnings(err, before=self._before, names_jobs=True), self)

    def welcome(self, text: str, note: str, project: Project) -> None:
        """Print the first line, and warnings. `{place}` in the note is the address of the state."""
        if self._log is not None:
            self._log.level = lambda: project.log_level
        if not self._shows or self._supervised:
            return
        settings = project.settings
        for warning in project.warnings:
            warn(f"Warning: {visible(warning)}")
        name = visible(settings.project or str(settings.root))
        note = visible(note.format(place=place_of(settings, "state")))
        err.print(Text.assemble(f"{text} ", (name, "bold"), (f" ({note})", "dim")))

    def emit(self, event: events.Event) -> None:
        match event:
            case events.JobBegun():
                if 0 < event.since < self._began:
                    ends = f"gossamer job cancel {event.job} ends it"
                    self._say(f"going on with {event.job}, which was begun {moment(event.since, event.at)}; {ends}")
                else:
                    self._say(f"working on {event.job}")
            case events.JobEnded():
                did = f" (records: {event.records})" if event.records else ""
                self._say(f"{event.job} ended: {event.outcome or event.ending}{did}")
            case events.JobWaits():
                self._say(event.message, "dim")
            case events.JobLeft():
                self._say(f"{event.job} ended: {event.ending}")
            case events.JobPaused():
                self._say(f"{event.job} is paused" if event.paused else f"{event.job} is resumed")

    def _say(self, words: str, style: str = "") -> None:
        err.print(Text(f"{self._before}{visible(words)}", style=style))

    def tell(self, words: str) -> None:
        """Print what happens to the process or its stores, also with --quiet."""
        if self._log is not None:
            self._log.emit(events.Trouble(at=self._clock.now(), stage="supervisor", message=words))
        else:
            warn(words)

    def say(self, words: str) -> None:
        """Print what a person may like to know; not with --quiet, and not as a log."""
        if self._shows:
            err.print(words, markup=False, highlight=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Say that it ends, or log a summary. The exit code for wrong settings tells a supervisor not to restart it."""
        from ..project.workers.service import EXIT_MISCONFIGURED

        try:
            if self._supervised and isinstance(error, Misconfigured):
                fail(str(error), EXIT_MISCONFIGURED)
            if error is None and self._shows and not self._supervised:
                self._say("Ended.", "dim")
        finally:
            if self._log is not None:
                self._hearing.close()
                self._log.summary()


class SchedulerVoice(Voice):
    """The output of a scheduler: which runs start, which do not and why. A repeated reason is printed once."""

    role = "scheduler"

    def __init__(self, *, quiet: bool, json_logs: bool, supervised: bool = False) -> None:
        super().__init__(quiet=quiet, json_logs=json_logs, supervised=supervised)
        self._skipping: dict[str, str] = {}  # by schedule, why its last tick did not run

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Leading():
                self._say(f"this scheduler {'leads' if event.leads else 'no longer leads'}", "dim")
            case events.ScheduleFired():
                self._skipping.pop(event.schedule, None)
                late = event.at - event.due > LATE.total_seconds()
                missed = f"; {many(event.missed, 'tick')} before it did not run" if event.missed else ""
                self._say(
                    f"{event.schedule}: {event.job} started{f', for {moment(event.due)}' if late else ''}{missed}"
                )
            case events.ScheduleQueued():
                self._say(f"{event.schedule}: the run of {moment(event.due)} waits for the previous one")
            case events.ScheduleSkipped() if self._skipping.get(event.schedule) != event.reason:
                self._skipping[event.schedule] = event.reason
                why = SKIPPED.get(event.reason, event.reason)
                self._say(f"{event.schedule}: {moment(event.due)} is skipped because {why}")
            case events.AlertChanged():
                whom = f" for {event.subject}" if event.subject else ""
                what = "fires" if event.state == "firing" else f"is {event.state}"
                style = "yellow" if event.state == "firing" else "green"
                self._say(f"alert {event.alert} {what}{whom}: {event.message}", style)
            case events.ScheduleFailed():
                again = f"Next try in {span(event.delay)}."
                self._say(f"{event.schedule}: a run could not start. {event.message} {again}", "yellow")


# -- worker --------------------------------------------------------------------------------------------------------

FINISHES = "queue in {place}; Ctrl-C finishes the pages in flight"


@app.command("worker")
def worker_verb(
    processes: Annotated[int, typer.Option(min=1, help="The number of processes; one that dies is replaced.")] = 1,
    concurrency: ConcurrencyOption = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="Exit when there is no job left that this worker can serve.")
    ] = False,
    routes: Annotated[
        str | None, typer.Option(metavar="ROUTES", help="Serve only these routes or kinds: http, browser, managed ...")
    ] = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
    json_logs: JsonLogsOption = False,
) -> None:
    """Work on every running job of the project, including later ones. Ctrl-C finishes the pages in flight."""
    from ..project.workers import service  # imports the fetching code

    pulse = service.inherited_pulse()
    settings = settings_with(**{"crawl.concurrency": concurrency})
    serves = None if routes is None else service.served_routes(settings, routes)
    health_at = service.health_address(metrics_port) if metrics_port is not None else None
    voice = Voice(quiet=quiet, json_logs=json_logs, supervised=pulse is not None)
    if processes == 1:
        welcome = partial(voice.welcome, f"Worker {os.getpid()} serves all jobs of", FINISHES)
        with voice:
            ended = run_async(
                service.run_worker(
                    settings,
                    voice.listeners(),
                    welcome=welcome,
                    tell=voice.tell,
                    pulse=pulse,
                    until_idle=until_idle,
                    serves=serves,
                    health_at=health_at,
                )
            )
        if ended == service.EXIT_RESTARTS or (ended and pulse is not None):
            raise typer.Exit(ended)
        return
    command = [*COMMAND, "worker", *_flags(concurrency=concurrency, quiet=quiet, json_logs=json_logs)]
    command += ["--routes", routes] if routes is not None else []
    command += ["--until-idle"] if until_idle else []
    welcome = partial(voice.welcome, f"{processes} workers serve all jobs of", FINISHES)
    supervisor = run_async(
        service.supervised_workers(
            settings,
            command,
            processes,
            welcome=welcome,
            tell=voice.tell,
            until_idle=until_idle,
            health_at=health_at,
            output=[*COMMAND, "output", "run", "--quiet"],
        )
    )
    if code := supervisor.run():
        raise typer.Exit(code)


def _flags(*, quiet: bool, json_logs: bool, concurrency: int | None = None, port: int | None = None) -> list[str]:
    """The flags that a supervisor passes to its children."""
    numbers = (("--concurrency", concurrency), ("--port", port))
    given = [word for flag, number in numbers if number is not None for word in (flag, str(number))]
    return given + [flag for flag, wanted in (("--quiet", quiet), ("--json-logs", json_logs)) if wanted]


# -- scheduler -----------------------------------------------------------------------------------------------------


@app.command("scheduler")
def scheduler_verb(quiet: QuietOption = False, json_logs: JsonLogsOption = False) -> None:
    """Start the runs of schedules when they are due; workers do the rest. Of several schedulers, one leads."""
    from ..project.workers import service

    pulse = service.inherited_pulse()
    settings = settings_with()
    voice = SchedulerVoice(quiet=quiet, json_logs=json_logs, supervised=pulse is not None)
    welcome = partial(voice.welcome, f"Scheduler {os.getpid()} of", "schedules in {place}; Ctrl-C ends it")
    with voice:
        run_async(service.run_scheduler(settings, voice.listeners(), welcome=welcome, tell=voice.tell, pulse=pulse))


# -- up ------------------------------------------------------------------------------------------------------------


@app.command("up")
def up_verb(
    workers: Annotated[int, typer.Option(min=1, help="How many worker processes.")] = 1,
    autoscale: Annotated[
        str | None,
        typer.Option(metavar="MIN..MAX", help="As many workers as can be kept busy: 1..8. Instead of --workers."),
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in each worker.")] = None,
    no_server: Annotated[bool, typer.Option("--no-server", help="Run no HTTP server.")] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The port of the HTTP server.")] = None,
    metrics_port: MetricsPortOption = None,
    quiet: QuietOption = False,
    json_logs: JsonLogsOption = False,
) -> None:
    """Run a scheduler, workers and the HTTP server until Ctrl-C. A process that dies is replaced."""
    from ..project.workers import service

    settings = settings_with(**{"crawl.concurrency": concurrency, "server.port": port})
    bounds = bounds_of(autoscale) if autoscale is not None else None
    health_at = service.health_address(metrics_port) if metrics_port is not None else None
    if bounds is not None and health_at is not None:
        raise Misconfigured("--metrics-port works with --workers only: autoscaled workers have no fixed ports.")
    voice = Voice(quiet=quiet, json_logs=json_logs)
    scheduler = [*COMMAND, "scheduler", *_flags(quiet=quiet, json_logs=json_logs)]
    worker = [*COMMAND, "worker", *_flags(concurrency=concurrency, quiet=quiet, json_logs=json_logs)]
    door = [*COMMAND, "serve", *_flags(port=port, quiet=quiet, json_logs=json_logs)] if not no_server else None
    if door is not None and find_spec("uvicorn") is None:
        door = None
        voice.tell("Running without the HTTP server: install it with pip install 'gossamer[server]'.")

    def welcome(project: Project, has_schedules: bool) -> None:
        crew = many(workers, "worker") if bounds is None else f"{bounds.least} to {many(bounds.most, 'worker')}"
        parts = f"A scheduler, {crew} and the HTTP server" if door is not None else f"A scheduler and {crew}"
        voice.welcome(f"{parts} for", FINISHES, project)
        if not has_schedules and not quiet and not json_logs:
            err.print("There is no schedule yet. Add one with `gossamer schedule add`, even while this runs.")

    supervisor = run_async(
        service.supervised_all(
            settings,
            scheduler,
            worker,
            workers if bounds is None else None,
            server=door,
            output=[*COMMAND, "output", "run", "--quiet"],
            health_at=health_at,
            welcome=welcome,
            tell=voice.tell,
        )
    )
    with service.autoscaled(supervisor, settings, bounds, voice.tell) if bounds is not None else nullcontext():
        code = supervisor.run()
    if code:
        raise typer.Exit(code)
