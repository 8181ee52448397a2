"""`gossamer output`: targets that follow the records. All commands but `run` are operations."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..project.outputs.outputs import OPERATIONS
from .app import run_async, settings_with
from .operations import add_operations
from .options import JsonLogsOption, QuietOption
from .worker import Voice

group = add_operations(
    "output", "Outputs, which follow the records: list, show, check, pause, resume, rewind, remove.", OPERATIONS
)


@group.command("run")
def run_verb(
    name: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="Only these; none: all.")] = None,
    until_written: Annotated[
        bool, typer.Option("--until-written", help="End when everything that is stored now has been written.")
    ] = False,
    quiet: QuietOption = False,
    json_logs: JsonLogsOption = False,
) -> None:
    """Run the outputs of gossamer.toml in a process of their own, until Ctrl-C. `crawl`, `worker` and `up` run them
    too."""
    from ..project.workers import service

    pulse = service.inherited_pulse()
    settings = settings_with()
    voice = Voice(quiet=quiet, json_logs=json_logs, supervised=pulse is not None)
    words = f"Process {os.getpid()} runs the outputs of"
    with voice:
        reports = run_async(
            service.run_outputs(
                settings,
                name or [],
                welcome=lambda project: voice.welcome(words, "Ctrl-C ends it", project),
                tell=voice.tell,
                until_written=until_written,
                pulse=pulse,
            )
        )
        for one in reports:
            voice.say(one.account)
    if any(one.lag != 0 for one in reports):
        raise typer.Exit(1)
