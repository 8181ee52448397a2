"""`gossamer workers`: the workers of the project, on all machines. `gossamer scaling`: how many are needed."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.text import Text

from ..project.open import is_crawled
from ..project.workers.scaling import scaling
from ..project.workers.spools import SpoolView, list_spools
from ..project.workers.workers import (
    ARCHIVE_FULL,
    BEAT_SECONDS,
    CLOCK_OFF_SECONDS,
    FATES,
    MISSING_SECONDS,
    ONE_PACE,
    SET_ASIDE,
    SchedulerView,
    WorkerView,
    clock_in_words,
    drain_worker,
    forget_worker,
    leading_scheduler,
    list_workers,
    without_pages,
)
from ..units import distance, many, size, visible
from .app import app, ask, err, open_crawled, out, run_async, settings_with
from .layout import Column, answer_program, number, print_json, print_table, warn
from .options import JsonOption

workers_app = typer.Typer(help="The processes that work on the project, on all machines: list, drain, restart.")
app.add_typer(workers_app, name="workers")


@workers_app.callback(invoke_without_command=True)
def workers_verb(context: typer.Context, as_json: JsonOption = False) -> None:
    """The processes that work on the project, on all machines: list, drain, restart."""
    if context.invoked_subcommand is None:
        list_verb(as_json)


@workers_app.command("drain")
def drain_verb(
    worker: Annotated[str, typer.Argument(help="HOST/PID from `gossamer workers`, or PID if it is unique.")],
    as_json: JsonOption = False,
) -> None:
    """Let a worker on any machine finish its pages in flight and exit. It is not replaced."""
    asked = ask(lambda project: drain_worker(project, worker))
    if as_json:
        print_json(asked)
    else:
        out.print(Text(f"{visible(asked.name)} was asked to drain; it will notice within {BEAT_SECONDS:.0f} s."))


@workers_app.command("restart")
def restart_verb(
    worker: Annotated[str, typer.Argument(help="HOST/PID from `gossamer workers`, or PID if it is unique.")],
    as_json: JsonOption = False,
) -> None:
    """Let a worker on any machine finish its pages in flight; another one starts in its place."""
    asked = ask(lambda project: drain_worker(project, worker, restart=True))
    if as_json:
        print_json(asked)
    else:
        out.print(Text(f"{visible(asked.name)} was asked to restart; it will notice within {BEAT_SECONDS:.0f} s."))


@workers_app.command("forget")
def forget_verb(
    worker: Annotated[str, typer.Argument(help="The whole name of a missing worker: gossamer workers --json.")],
    as_json: JsonOption = False,
) -> None:
    """Take a worker off the list that is gone for good. Alerts do not miss it any more."""
    gone = ask(lambda project: forget_worker(project, worker))
    if as_json:
        print_json(gone)
    else:
        out.print(Text(f"{visible(gone.name)} is forgotten."))


@workers_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the processes that work on the project, on all machines, and their last heartbeats."""
    settings = settings_with()

    async def find() -> tuple[list[WorkerView], list[SpoolView], SchedulerView | None, float]:
        if not is_crawled(settings):
            return [], [], None, 0.0
        async with open_crawled(settings) as project:
            workers, spools = await list_workers(project), await list_spools(project)
            return workers, spools, await leading_scheduler(project), project.clock.now()

    workers, spools, scheduler, now = run_async(find())
    answer_program(workers, as_json)
    if workers:
        _print_workers(workers, now)
    else:
        out.print("No workers. `gossamer worker` starts one; a running `gossamer crawl` counts as well.")
    for left in (one for one in spools if not one.alive and not one.given_up):
        warn(f"{many(left.results, 'result')} wait on {left.host}, and no worker runs there: gossamer spool")
    if scheduler is not None and (words := _scheduler_words(scheduler)):
        err.print(Text(visible(words), style="dim"))


def _scheduler_words(scheduler: SchedulerView) -> str:
    if scheduler.host is not None:
        return f"A scheduler leads on {scheduler.host}, process {scheduler.pid}."
    return "No scheduler is running: start `gossamer up`, or wait until it has started." if scheduler.needed else ""


def _print_workers(workers: list[WorkerView], now: float) -> None:
    print_table(
        (Column("HOST"), Column("PID", right=True), Column("STATE"), Column("JOB", fold=True),
         Column("IN FLIGHT", right=True), Column("DONE", right=True), Column("CPU", right=True),
         Column("MEMORY", right=True), Column("WAITING", right=True, spare=True), Column("STARTED", spare=True),
         Column("LAST SEEN"), Column("VERSION", spare=True)),
        [
            (worker.host, worker.pid, worker.fate or worker.state, worker.job,
             number(worker.in_flight), number(worker.done), f"{worker.cpu:.0%}", size(worker.memory),
             number(worker.waiting), distance(worker.started_at, now), distance(worker.seen_at, now), worker.version)
            for worker in workers
        ],
    )  # fmt: skip
    fates = Counter(worker.fate for worker in workers)
    if dead := fates["dead"]:
        warn(f"{many(dead, 'worker is', 'workers are')} dead. Pages in flight go back to the queue by themselves.")
    if missing := fates.total() - fates[""] - dead:
        warn(f"{many(missing, 'worker')} sent no heartbeat for {MISSING_SECONDS:.0f} s.")
    for worker in without_pages(workers):
        words = f"{worker.host}/{worker.pid} has no page of {worker.job}: other workers have them. {ONE_PACE}"
        err.print(Text(visible(words), "dim"))
    for worker in workers:
        if worker.fate == "frozen":
            warn(f"{visible(worker.host)}/{worker.pid} {FATES['frozen']}")
    if any(worker.state == "spool full" and not worker.missing for worker in workers):
        warn("A spool is full: that worker fetches nothing until its results can be stored.")
    if any(worker.state == "archive full" and not worker.missing for worker in workers):
        warn(ARCHIVE_FULL)
    for host in sorted({one.host for one in workers if one.state == "set aside" and not one.missing}):
        warn(f"{host} {SET_ASIDE}. Check its network and its name server.")
    off = {one.host: one for one in workers if not one.missing and abs(one.clock_ahead) > CLOCK_OFF_SECONDS}
    for host, worker in off.items():
        rest = " Until it is set, its workers take no work." if worker.state == "clock wrong" else ""
        warn(f"The clock of {host} is {clock_in_words(worker.clock_ahead)}.{rest}")


@app.command("scaling")
def scaling_verb(as_json: JsonOption = False) -> None:
    """Show what can be fetched now, and how many workers that takes. `gossamer up --autoscale` uses it."""
    found = ask(scaling)
    answer_program(found, as_json)
    lanes = {name: lane for name, lane in found.lanes.items() if lane.ready or lane.leased or lane.workers_wanted}
    if lanes:
        print_table(
            (Column("LANE"), Column("READY", right=True), Column("IN FLIGHT", right=True),
             Column("CAN BE FETCHED", right=True), Column("PER WORKER", right=True), Column("WORKERS", right=True),
             Column("WANTED", right=True)),
            [
                (name, number(lane.ready), number(lane.leased), f"{lane.runnable_per_second:.3g}/s",
                 f"{lane.pages_per_second_per_worker:.3g}/s{'' if lane.measured else ' assumed'}",
                 number(lane.workers), number(lane.workers_wanted))
                for name, lane in lanes.items()
            ],
        )  # fmt: skip
    else:
        out.print("Nothing can be fetched now.")
    words = f"{many(found.workers_wanted, 'worker')} wanted for all lanes together; {found.workers} running."
    if found.limit:
        words += f" The limit at the site with the most work: {visible(found.limit)}."
    if found.chores:
        words += f" {many(found.chores, 'job')} without a ready page also need a worker, to read a source or to end."
    out.print(words)
