"""`gossamer up`: a scheduler and workers on this machine, in one command.

What it does: every one of them is a child process under a supervisor, which replaces it when it dies or hangs. How it
fails: a project that is misconfigured ends all of them. How it recovers: a child that died loses nothing, and none
outlives this process (supervisor.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Annotated

import typer

from ..backends.addresses import place_of
from ..process.signals import stopping
from ..process.supervisor import Supervisor, silence_under
from ..project.open import Project
from ..schedule.definition import schedules_of
from ..settings import Settings
from ..text import many
from .app import app, err, run_async, settings_with
from .worker import Voice, open_patiently

# -P: files in the working directory do not stand in for modules, as in the command itself.
COMMAND = (sys.executable, "-P", "-m", "gossamer")


@app.command("up")
def up_verb(
    workers: Annotated[int, typer.Option(min=1, help="So many worker processes.")] = 1,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in each worker.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="One JSON object per event, to stderr.")] = False,
) -> None:
    """Run a scheduler and workers on this machine, until Ctrl-C. All are watched, and replaced when they die."""
    settings = settings_with(**{"crawl.concurrency": concurrency})
    voice = Welcome(quiet=quiet, json_logs=json_logs, supervised=False)
    flags = [flag for flag, wanted in (("--quiet", quiet), ("--json-logs", json_logs)) if wanted]
    worker = [*COMMAND, "worker", *flags]
    worker += ["--concurrency", str(concurrency)] if concurrency is not None else []
    code = run_async(_run(settings, voice, [*COMMAND, "scheduler", *flags], worker, workers))
    if code:
        raise typer.Exit(code)


class Welcome(Voice):
    """What is said before the children begin to speak."""

    def welcome(self, project: Project, text: str) -> None:
        if not self._shows:
            return
        place = place_of(project.settings, "state")
        self._greet(project, text, f"queue in {place}; Ctrl-C finishes what is in hand")

    def miss_schedules(self) -> None:
        if self._shows:
            err.print("There is no schedule yet. `gossamer schedule add` makes one, also while this runs.")


async def _run(settings: Settings, voice: Welcome, scheduler: list[str], worker: list[str], workers: int) -> int:
    schedules_of(settings.schedules)  # raises Misconfigured, before anything is started
    async with AsyncExitStack() as stack:  # what is wrong with the backends is told once, and not by each child
        project = await open_patiently(stack, settings, voice, to_look=True)
        voice.welcome(project, f"A scheduler and {many(workers, 'worker')} for")
        if not settings.schedules and not await project.state.schedules.schedules():
            voice.miss_schedules()

    def tell_of_scheduler(words: str) -> None:
        voice.tell(words.replace("Worker", "Scheduler", 1).replace("A worker", "A scheduler", 1))

    drain = settings.crawl.drain
    silence = silence_under(settings.crawl.parse_timeout)
    return await _together(
        (
            Supervisor(scheduler, processes=1, drain_within=timedelta(0), tell=tell_of_scheduler),
            Supervisor(worker, processes=workers, drain_within=drain, tell=voice.tell, silence=silence),
        )
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
        await asyncio.sleep(0)  # by now each heeds the signals for itself alone, and the last word is ours
        going = set(runs)
        while going:
            with stopping(stop, force):
                _, going = await asyncio.wait(going, return_when=asyncio.FIRST_COMPLETED)
            stop()  # one ends: they all do
    return forced or max(run.result() for run in runs)
