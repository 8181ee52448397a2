"""`gossamer spool`: list the results that wait on the disks of workers, store those of this machine, or give up those
of a lost one."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from ..project.open import is_crawled
from ..project.workers.spools import SpoolFiles, SpoolView, forget_spools, list_spools, spool_files
from ..units import distance, many, size, visible
from .app import app, ask, ask_at, err, fail, out, run_async, settings_with
from .layout import Column, answer_program, number, print_table, section
from .options import JsonOption, YesOption
from .progress import Warnings

spool_app = typer.Typer(help="Results that wait on the disks of workers: list, store or give up.")
app.add_typer(spool_app, name="spool")


@spool_app.callback(invoke_without_command=True)
def spool_verb(context: typer.Context) -> None:
    """Results that wait on the disks of workers: list, store or give up."""
    if context.invoked_subcommand is None:
        list_verb()


@spool_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the waiting results by machine and job, and the spool files of this machine."""
    settings = settings_with()
    spools, now = ask_at(list_spools, empty=lambda settings: [])
    files = spool_files(settings, (one.name for one in spools))
    answer_program({"waiting": spools, "files": files}, as_json)
    if spools:
        _print_spools(spools, now)
    else:
        out.print("No results wait.")
    _print_files(files, visible(str(settings.root / settings.store.spool)))


def _print_spools(spools: list[SpoolView], now: float) -> None:
    print_table(
        (Column("HOST", "bold"), Column("RESULTS", right=True), Column("SIZE", right=True), Column("STATE"),
         Column("JOBS", fold=True), Column("SEEN"), Column("FOLDER", fold=True, spare=2), Column("NAME", spare=1)),
        [
            (one.host, number(one.results), size(one.bytes), _state(one), ", ".join(one.jobs),
             distance(one.noted_at, now) if out.is_terminal else one.noted_at, one.folder, one.name)
            for one in spools
        ],
    )  # fmt: skip


def _state(one: SpoolView) -> str:
    return "given up" if one.given_up else "waiting" if one.alive else "orphaned"


def _print_files(files: list[SpoolFiles], folder: str) -> None:
    if not files:
        return
    section(f"Files in {folder}")
    print_table(
        (Column("NAME"), Column("FILES", right=True), Column("SIZE", right=True), Column("STATE")),
        [
            (one.name or "*.bad", number(one.files), size(one.bytes),
             "set aside: cannot be stored" if not one.name else "known" if one.noted else "not known to the state")
            for one in files
        ],
        indent=2,
    )  # fmt: skip


@spool_app.command("drain")
def drain_verb() -> None:
    """Store the results in this machine's spool, as workers do on their own. Ctrl-C leaves the rest for later."""
    from ..project.workers import service  # imports the fetching code

    settings = settings_with()
    if not is_crawled(settings):
        out.print("No results wait.")
        return
    drained = run_async(service.drain_spool(settings, Warnings(err)))
    if drained.left:
        fail(f"{many(drained.stored, 'result')} stored, {many(drained.left, 'result')} left.", 130)
    out.print(f"{many(drained.stored, 'result')} stored. Nothing waits on this machine.")
    if drained.jobs:
        names = ", ".join(drained.jobs)
        err.print(Text(f"A worker ends {visible(names)} now: gossamer worker --until-idle", style="dim"))


@spool_app.command("forget")
def forget_verb(
    lost: Annotated[str, typer.Argument(help="A host, a worker, or a name from `gossamer spool`.")],
    yes: YesOption = False,
) -> None:
    """Give up the results of a machine that will not come back. Their jobs can then end, and mark nothing as gone."""
    wanted = [one for one in ask(list_spools) if lost in (one.name, one.host, one.worker) and not one.given_up]
    results = sum(one.results for one in wanted)
    question = (
        f"Give up {many(results, 'result')} on {visible(lost)}? Their pages count as done, and are not fetched again."
    )
    if wanted and not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)

    given_up = ask(lambda project: forget_spools(project, lost))
    jobs = ", ".join(sorted({job for one in given_up for job in one.jobs}))
    count = many(sum(one.results for one in given_up), "result")
    out.print(
        visible(f"{count} of {jobs} given up. If that machine comes back, its worker stores them after all."),
        markup=False,
    )
