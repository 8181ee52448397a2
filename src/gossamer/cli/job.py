"""`gossamer job`: the runs of a project. What came of each, and to hold one up, let it go on, or end it.

How the whole queue of one stands is told by `gossamer status`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..model.job import Job, JobState
from ..project.jobs import find_job
from ..project.open import Project, is_crawled, nothing_crawled
from ..text import many, moment, span, visible
from .app import app, err, out, run_async, settings_with
from .layout import advise, heading, print_facts, print_json
from .look import JOBS_SHOWN, open_crawled, shown, tell_of_older
from .runs import PAUSED, RUNNING, UNSERVED, Run, print_runs, run_of, runs_of
from .timetable import window_words

job_app = typer.Typer(help="The runs of the project: list them, pause, resume or cancel one.", no_args_is_help=True)
app.add_typer(job_app, name="job")

Act = Callable[[Project, Job], Awaitable[str]]  # does something with a running job; what to say of it

JobArgument = Annotated[str, typer.Argument(help="A job's id (books-3), or its name.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


@job_app.command("list")
def list_verb(
    schedule: Annotated[str | None, typer.Option("--schedule", help="Only those that this schedule began.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"Show so many, the newest first; {JOBS_SHOWN}, or all with --json.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs, with what came of each and how fast it was."""
    settings = settings_with()

    async def find() -> tuple[list[Run], int]:
        if not is_crawled(settings):
            return [], 0
        async with open_crawled(settings) as project:
            jobs = [job for job in await project.state.jobs.jobs() if schedule is None or job.schedule == schedule]
            return await runs_of(project, jobs[: shown(limit, as_json)]), len(jobs)

    runs, total = run_async(find())
    if as_json:
        print_json([run.as_json() for run in runs])
        return
    if not runs:
        words = nothing_crawled(settings) if schedule is None else f"No job of schedule {visible(schedule)!r}."
        out.print(words, markup=False)
        return
    print_runs(runs)
    tell_of_older(total - len(runs))


@job_app.command("show")
def show_verb(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show one job: its counts, how fast it is, and how long it may still take."""
    settings = settings_with()

    async def find() -> Run:
        async with open_crawled(settings) as project:
            return await run_of(project, await find_job(project, job))

    run = run_async(find())
    if as_json:
        print_json(run.as_json())
    else:
        _show(run)


def _show(run: Run) -> None:
    job, counts, now = run.job, run.counts, run.now
    heading(job.id, run.story)
    ended = ""
    if job.finished_at is not None:
        ended = f"{moment(job.finished_at, now)}, after {run.took}"
    print_facts(
        [
            ("name", job.name),
            ("spider", job.spider_name if job.spider_name != job.name else ""),
            ("schedule", job.schedule),
            ("due", moment(job.due, now)),
            ("started", moment(job.created_at, now)),
            ("ended", ended),
            ("because", Text(visible(run.fault), style="yellow") if run.fault else ""),
            ("trouble", Text(visible(run.trouble), style="yellow") if run.trouble and not run.fault else ""),
            ("windows", window_words(job.windows, now) if job.state is JobState.RUNNING else job.windows),
            ("pages", _pages(run)),
            (
                "retries",
                many(counts.retries, "failed try was repeated", "failed tries were repeated") if counts.retries else "",
            ),
            ("limit", f"{many(job.limit, 'page')}; redirects do not count" if job.limit is not None else ""),
            ("rate", f"{run.rate_words}, on average since it began"),
            ("time to go", _time_to_go(run)),
        ]
    )
    tips = [(f"gossamer status {job.id}", "sites, reasons of failures, where the data is")]
    if run.state == UNSERVED:
        tips.append(("gossamer worker", "works on every running job of the project"))
    if job.state is JobState.RUNNING:
        verb = "resume" if job.paused else "pause"
        tips.append((f"gossamer job {verb} {job.id}", "go on" if job.paused else "hand out nothing more for now"))
        tips.append((f"gossamer job cancel {job.id}", "end it; what it has stored stays"))
    advise(*tips)


def _pages(run: Run) -> Text:
    counts = run.counts
    return Text.assemble(
        f"{run.total:,} total = {counts.done:,} done + {counts.unchanged:,} unchanged + ",
        (f"{counts.dead:,} dead", "red" if counts.dead else ""),
        f" + {counts.dropped:,} dropped + {counts.open:,} open",
    )


def _time_to_go(run: Run) -> str:
    if run.state == PAUSED:
        return "it is paused"
    if run.state != RUNNING:
        return ""
    if run.eta is None:
        return "not known before the first page is done"
    return f"about {span(run.eta)} for {many(run.remaining, 'page')}, at that rate and without new links"


@job_app.command("pause")
def pause_verb(job: JobArgument) -> None:
    """Hand out nothing more of a job, to any worker. Pages in hand are finished."""

    async def pause(project: Project, found: Job) -> str:
        if found.paused:
            return f"{found.id} is paused already."
        if not await project.state.control.pause_job(found.id, True):
            raise Misconfigured(_too_late(found, "pause"))
        counts = await project.state.jobs.counts(found.id)
        return (
            f"{found.id} is paused. {many(counts.leased, 'page')} in hand will be finished, "
            f"{counts.queued + counts.waiting:,} wait. Go on with: gossamer job resume {found.id}"
        )

    _control(job, "pause", pause)


@job_app.command("resume")
def resume_verb(job: JobArgument) -> None:
    """Let a paused job go on."""

    async def resume(project: Project, found: Job) -> str:
        if not found.paused:
            return f"{found.id} is not paused."
        if not await project.state.control.pause_job(found.id, False):
            raise Misconfigured(_too_late(found, "resume"))
        counts = await project.state.jobs.counts(found.id)
        return f"{found.id} goes on, with {many(counts.open, 'open page')}. Workers take it up within seconds."

    _control(job, "resume", resume)


@job_app.command("cancel")
def cancel_verb(
    job: JobArgument, yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False
) -> None:
    """End a job for good: its open pages are dropped. What it has stored stays."""
    settings = settings_with()

    async def find() -> Run:
        async with open_crawled(settings) as project:
            return await run_of(project, await _running(project, job, "cancel"))

    run = run_async(find())
    question = f"Cancel {visible(run.job.id)}, with {many(run.counts.open, 'open page')}?"
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)

    async def cancel(project: Project, found: Job) -> str:
        if not await project.state.control.cancel_job(found.id):
            raise Misconfigured(_too_late(found, "cancel"))
        counts = await project.state.jobs.counts(found.id)
        return (
            f"{found.id} is cancelled: {counts.settled:,} of {many(run.total, 'page')} had been settled, the others "
            "are dropped. What it has stored stays."
        )

    _control(run.job.id, "cancel", cancel)


def _control(wanted: str, verb: str, act: Act) -> None:
    settings = settings_with()

    async def do() -> str:
        async with open_crawled(settings) as project:
            return await act(project, await _running(project, wanted, verb))

    out.print(visible(run_async(do())), markup=False)


async def _running(project: Project, wanted: str, verb: str) -> Job:
    """The running job of that id or name. Raises Misconfigured when there is none, or it has ended."""
    for job in await project.state.jobs.running_jobs():
        if wanted in (job.id, job.name):
            return job
    found = await find_job(project, wanted)
    raise Misconfigured(_too_late(found, verb))


def _too_late(job: Job, verb: str) -> str:
    ending = f" ({job.ending})" if job.ending else ""
    return f"Job {job.id} has ended{ending}: there is nothing to {verb}. `gossamer job list` shows which run."
