"""Options that several verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]
JsonLogsOption = Annotated[bool, typer.Option("--json-logs", help="One JSON object per event, to stderr.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ArgumentOption = Annotated[
    list[str] | None, typer.Option("--argument", "-a", help="An argument of the spider: category=lamps.")
]
# What a run must achieve for its outcome to be `done`:
MinRecordsOption = Annotated[
    int | None, typer.Option("--min-records", min=0, help="Warn when it finds fewer records; 0: none are expected.")
]
MinPagesOption = Annotated[int | None, typer.Option("--min-pages", min=0, help="Warn when fewer pages were fetched.")]
MaxDeadShareOption = Annotated[
    float | None,
    typer.Option(
        "--max-dead-share", min=0, max=1, help="Warn when a larger share of its pages are dead letters: 0.05."
    ),
]
MaxChangeOption = Annotated[
    float | None,
    typer.Option(
        "--max-change", min=0, help="Warn when the number of records changed by a larger share since the last run: 0.5."
    ),
]
