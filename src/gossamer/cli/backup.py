"""`gossamer backup` and `gossamer restore`: the whole project in one file, and back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from ..project.upkeep.move import backup, restore
from ..units import size, visible, within_calendar
from .app import app, out, run_async, settings_with
from .layout import Column, number, print_table, section, warn
from .move import complain, progress, show


@app.command("backup")
def backup_verb(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist yet.")],
    no_archive: Annotated[bool, typer.Option("--no-archive", help="Leave out the raw pages.")] = False,
) -> None:
    """Write the whole project into one file: jobs, queue, schedules, records with their history, raw pages."""
    settings = settings_with()
    with progress(quiet=False) as watch:
        report = run_async(backup(settings, file, pages=not no_archive, watch=watch))
    _warn(report.warnings)
    for role, counts in report.header.counts.items():
        section(role, visible(str(file)))
        say = {"bytes": size}
        rows = [(name, say.get(name, number)(count)) for name, count in counts.items()]
        print_table((Column("WHAT"), Column("COUNT", right=True)), rows, indent=2)
    out.print(f"\n{visible(str(file))} is complete ({size(report.size)}).", markup=False)


@app.command("restore")
def restore_verb(file: Annotated[Path, typer.Argument(help="A file that `gossamer backup` wrote.")]) -> None:
    """Load a backup into the project's addresses, which must be empty."""
    settings = settings_with()
    with progress(quiet=False) as watch:
        header, report = run_async(restore(settings, file, watch=watch))
    for part in report.parts:
        show(part, dry_run=False)
    if report.problems:
        complain(report, "The stores refuse to be used until the restore is complete. Run the same command again.")
        raise typer.Exit(1)
    made = datetime.fromtimestamp(within_calendar(header.made_at), UTC).strftime("%Y-%m-%d %H:%M UTC")
    out.print(f"\nThe backup of {made} is restored: every count is the same.", markup=False)
    _warn(report.warnings)


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        warn(warning)
