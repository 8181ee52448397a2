"""`gossamer scheduler`: a process that begins the runs of schedules when they are due. It never scrapes."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Annotated

import typer

from ..backends.addresses import place_of
from ..errors import Misconfigured
from ..model import events
from ..process.signals import stopping
from ..process.supervisor import MISCONFIGURED, Pulse
from ..project.open import Project
from ..project.scheduler import scheduler_of
from ..project.timetable import SKIPPED
from ..schedule.leader import Scheduler
from ..settings import Settings
from ..text import many, moment, span
from .app import app, fail, run_async, settings_with
from .worker import Voice, open_patiently

LATE = timedelta(seconds=5)  # a tick that begins later than this is told with its moment


@app.command("scheduler")
def scheduler_verb(
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object per event, to stderr.")] = False,
) -> None:
    """Begin the runs of schedules when they are due; workers do the rest. Of several schedulers, one leads."""
    pulse = Pulse.inherited()
    settings = settings_with()
    voice = Bulletin(quiet=quiet, json_logs=json_logs, supervised=pulse is not None)
    try:
        run_async(_lead(settings, voice, pulse))
    except Misconfigured as error:
        if pulse is None:
            raise
        fail(str(error), MISCONFIGURED)
    finally:
        voice.close()


class Bulletin(Voice):
    """What a scheduler says: which runs begin, which do not and why. What repeats itself is said once."""

    def __init__(self, *, quiet: bool, json_logs: bool, supervised: bool) -> None:
        super().__init__(quiet=quiet, json_logs=json_logs, supervised=supervised)
        self._before = f"scheduler {os.getpid()}: " if supervised else ""
        self._skipping: dict[str, str] = {}  # by schedule, why its last tick did not run

    def welcome(self, project: Project, text: str) -> None:
        if not self._shows or self._supervised:
            return
        self._greet(project, text, f"schedules in {place_of(project.settings, 'state')}; Ctrl-C ends it")

    def emit(self, event: events.Event) -> None:
        match event:
            case events.Leading():
                self._say(f"this scheduler {'leads' if event.leads else 'does not lead any more'}", "dim")
            case events.ScheduleFired():
                self._skipping.pop(event.schedule, None)
                late = event.at - event.due > LATE.total_seconds()
                missed = f"; {many(event.missed, 'tick')} before it did not run" if event.missed else ""
                self._say(f"{event.schedule}: {event.job} begun{f', for {moment(event.due)}' if late else ''}{missed}")
            case events.ScheduleQueued():
                self._say(f"{event.schedule}: the run of {moment(event.due)} waits for the one before")
            case events.ScheduleSkipped() if self._skipping.get(event.schedule) != event.reason:
                self._skipping[event.schedule] = event.reason
                why = SKIPPED.get(event.reason, event.reason)
                self._say(f"{event.schedule}: {moment(event.due)} is skipped, because {why}")
            case events.ScheduleFailed():
                again = f"Tried again in {span(event.delay)}."
                self._say(f"{event.schedule}: a run could not be begun. {event.message} {again}", "yellow")


async def _lead(settings: Settings, voice: Bulletin, pulse: Pulse | None) -> None:
    schedulers: list[Scheduler] = []  # none until the backends are open

    def orphaned() -> None:
        for scheduler in schedulers:
            scheduler.drain()

    async with AsyncExitStack() as stack:
        if pulse is not None:
            await stack.enter_async_context(pulse.beating(orphaned))
        project = await open_patiently(stack, settings, voice, to_look=True)
        scheduler = scheduler_of(project, voice.listeners())
        schedulers.append(scheduler)
        voice.welcome(project, f"Scheduler {os.getpid()} of")
        with stopping(scheduler.drain):
            await scheduler.run()
