"""The jobs of a project: `gossamer status` (states and sums) and `gossamer job` (speed; pause, resume, cancel)."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from typing import Annotated

import typer
from rich.text import Text

from ..model.job import JobPace, JobState
from ..monitor.progress import discovering
from ..project.jobs.jobs import (
    NO_WORKER,
    NOT_RESPONDING,
    PAUSED,
    RUNNING,
    JobPage,
    JobView,
    cancel_job,
    crawl_command,
    job_in_full,
    list_jobs,
    pause_job,
    resume_job,
    running_job,
    show_job,
    window_words,
)
from ..project.jobs.status import (
    SITES_SHOWN,
    JobDetail,
    JobStatus,
    ProjectStatus,
    SiteStatus,
    job_status,
    project_status,
)
from ..project.open import Project, nothing_crawled
from ..settings import Settings
from ..units import distance, many, moment, span, visible
from .app import app, ask, ask_at, err, open_crawled, out, run_async, settings_with
from .layout import (
    Column,
    advise,
    heading,
    in_words,
    item_facts,
    number,
    print_facts,
    print_groups,
    print_json,
    print_table,
    record_facts,
    section,
    warn,
)
from .options import JsonOption, YesOption

JOBS_SHOWN = 20

job_app = typer.Typer(help="The jobs of the project: list, show, pause, resume, cancel.", no_args_is_help=True)
app.add_typer(job_app, name="job")

JobArgument = Annotated[str, typer.Argument(help="A job's id (books-3), or its name.")]


# -- status --------------------------------------------------------------------------------------------------------


@app.command("status")
def status_verb(
    job: Annotated[str | None, typer.Argument(help="A job's id (books-3), or the name of a spider.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"Show at most this many jobs, newest first; {JOBS_SHOWN}, or all with --json."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the state of every job; with JOB, everything about that one."""
    if job is not None:
        (detail, table), now = ask_at(partial(_detail_of, job=job))
        print_json(detail) if as_json else _print_detail(detail, table, now)
        return
    status, now = ask_at(
        lambda project: project_status(project, limit=_shown(limit, as_json)),
        empty=lambda settings: ProjectStatus(jobs=[], total=0),
    )
    print_json(status.jobs) if as_json else _print_status(settings_with(), status, now)


async def _detail_of(project: Project, job: str) -> tuple[JobDetail, str]:
    """Everything about the job, and a command that writes its records as a table; "" if it has none."""
    from ..project.records.export import table_command  # only here: the list of jobs is to be quick

    detail = await job_status(project, job)
    return detail, await table_command(project, detail.id) if detail.records else ""


def _shown(limit: int | None, as_json: bool) -> int | None:
    """How many jobs to list. Programs get all of them unless they ask for fewer."""
    return limit if limit is not None or as_json else JOBS_SHOWN


def _print_status(settings: Settings, status: ProjectStatus, now: float) -> None:
    if status.alerts:
        names = Counter(one.alert for one in status.alerts)
        shown = ", ".join(name if count == 1 else f"{name} ({count})" for name, count in names.items())
        warn(f"{many(len(status.alerts), 'alert fires', 'alerts fire')}: {shown}. See `gossamer incident list`.")
    if status.records:
        out.print(
            f"No job has run in {settings.root} yet. It holds {many(status.records, 'record')} from another source: "
            "`gossamer export` writes them, `gossamer quality` shows their quality.",
            markup=False,
        )
        return
    if not status.jobs:
        out.print(nothing_crawled(settings), markup=False)
        return
    print_table(
        (
            Column("JOB", "bold"), Column("NAME", spare=True), Column("STATE"), Column("STARTED"),
            Column("DONE", right=True), Column("UNCHANGED", right=True, spare=True),
            Column("DEAD", "red", right=True), Column("DROPPED", right=True, spare=True),
            Column("QUEUE", "cyan", right=True), Column("RETRIES", right=True, spare=True),
            Column("RECORDS", "green", right=True),
        ),
        [_status_row(job, now) for job in status.jobs],
    )  # fmt: skip
    for job in status.jobs:
        if job.storing:
            warn(f"{many(job.storing, 'result')} of {job.id} wait on the disks of workers: gossamer spool")
    for session in status.failing:
        warn(f"{session.name} cannot log in: {session.error} See `gossamer sessions`.")
    for one in status.outputs:
        warn(f"Output {one.in_words} See `gossamer output show {one.name}`.")
    warn(status.trouble)
    _print_older(status.total - len(status.jobs))


def _status_row(job: JobStatus, now: float) -> list[str]:
    counts = job.counts
    figures = (counts.done, counts.unchanged, counts.dead, counts.dropped)
    queue = number(counts.open)
    if counts.open and out.is_terminal:
        queue = f"{counts.queued:,} / {counts.waiting:,} / {counts.leased:,}"
    started = distance(job.started, now) if out.is_terminal else job.started
    tail = (number(counts.retries), number(job.records) if job.records is not None else "?")
    return [
        job.id,
        job.name,
        job.outcome or job.phase,
        started,
        *(number(figure) for figure in figures),
        queue,
        *tail,
    ]


def _print_older(count: int) -> None:
    """Say that a list was truncated; not in a pipe."""
    if count > 0:
        words = f"... and {many(count, 'older job')}; --limit shows more."
        (out if out.is_terminal else err).print(Text(words, style="dim"))


def _print_detail(job: JobDetail, table: str, now: float) -> None:
    counts = job.counts
    heading(job.id, job.outcome or job.in_words)
    dead = Text(f"{counts.dead:,} dead", style="red" if counts.dead else "")
    limit = f", limit {job.limit:,}" if job.limit is not None else ""
    print_facts(
        [
            ("name", job.name),
            ("arguments", in_words(job.arguments)),
            ("started", moment(job.started, now)),
            ("ended", f"{moment(job.finished, now)}, after {span(job.took)}" if job.took is not None else ""),
            ("settled again", _settled_again(job, now)),
            ("because", _because(job)),
            ("windows", _windows(job, now)),
            ("pages", Text.assemble(f"{counts.done:,} done, {counts.unchanged:,} unchanged, ", dead, limit)),
            ("queue", f"{counts.queued:,} queued, {counts.waiting:,} waiting, {counts.leased:,} in progress"),
            ("waits for", Text(visible(job.waits_for), style="yellow") if job.waits_for else ""),
            ("retries", f"{counts.retries:,}"),
            ("counted", in_words(counts.stats)),
            *item_facts(job.items),
            *(record_facts(job.run_records) or [("records", _records(job))]),
            ("waiting", f"{many(job.storing, 'result')} on the disks of workers" if job.storing else ""),
            ("links", _sum(job)),
        ]
    )
    _print_sites(job.sites)
    if job.dead_reasons:
        section("Dead letters")
        print_table((Column("REASON", "red"), Column("URLS", right=True)), list(job.dead_reasons.items()), indent=2)
    print_groups(job.failures)
    section("Data")
    print_facts(list(job.data.items()))
    warn(job.trouble)
    _advise_detail(job, table)


def _records(job: JobStatus) -> str:
    return f"{job.records:,}" if job.records is not None else "not known"


def _settled_again(job: JobView | JobStatus, now: float) -> str:
    if job.settled_again is None:
        return ""
    why = job.later_in_words or "for its dead letters"
    return f"{moment(job.settled_again, now)}, {why}; first ended {moment(job.first_ended, now)}"


def _because(job: JobView | JobStatus) -> Text | str:
    """Why the outcome of a job is not `done`."""
    words = "; ".join(reason.message for reason in job.reasons) or job.fault
    return Text(visible(words), style="yellow") if words else ""


def _windows(job: JobView | JobStatus, now: float) -> str:
    """The windows of a job; while it runs, also whether one is open."""
    windows = job.windows or ""
    return window_words(windows, now) if job.state is JobState.RUNNING else windows


def _sum(job: JobStatus) -> Text:
    """The equation of counts: every discovered link is in one of them."""
    counts = job.counts
    where = (
        f"{counts.discovered:,} found = {counts.done + counts.unchanged:,} done + {counts.dead:,} dead + "
        f"{counts.open:,} in the queue + {counts.dropped:,} dropped + {counts.duplicates:,} duplicates"
    )
    if later := sum(job.settled_later.values()):
        where += f" ({later:,} of them dead when it ended, settled later)"
    if counts.postponed:
        where += f"; {many(counts.postponed, 'link waits', 'links wait')} until the queue has room (crawl.max_queued)"
    if job.adds_up:
        return Text.assemble(where, ("  it adds up", "green"))
    return Text.assemble(where, ("  IT DOES NOT ADD UP: please report this", "bold red"))


def _print_sites(sites: list[SiteStatus]) -> None:
    if not sites:
        return
    section("Sites with open work", f"the first {SITES_SHOWN}" if len(sites) == SITES_SHOWN else "")
    print_table(
        (Column("SITE"), Column("QUEUED", right=True), Column("WAITING", right=True), Column("IN PROGRESS", right=True),
         Column("NEXT REQUEST")),
        [
            (load.site, number(load.queued), number(load.waiting), number(load.leased), load.next_request)
            for load in sites
        ],
        indent=2,
    )  # fmt: skip


def _advise_detail(job: JobDetail, table: str) -> None:
    tips: list[tuple[str, str]] = []
    if job.state is JobState.RUNNING and job.counts.open:
        command = "gossamer worker --until-idle" if job.schedule else crawl_command(job.name)
        tips.append((command, "resume, or share the work from a second terminal"))
    if job.counts.dead:
        tips.append((f"gossamer dead list --job {job.id}", f"the {many(job.counts.dead, 'dead letter')}, and why"))
    if job.storing:
        tips.append(("gossamer spool", "where its results wait"))
    if table:
        tips.append((table, "the records as a table"))
    if tips:
        advise(*tips)


# -- job -----------------------------------------------------------------------------------------------------------


@job_app.command("list")
def list_verb(
    schedule: Annotated[str | None, typer.Option("--schedule", help="Only jobs that this schedule started.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help=f"Show at most this many, newest first; {JOBS_SHOWN}, or all with --json."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the jobs with their outcomes, counts and speed."""
    settings = settings_with()

    page, now = ask_at(
        lambda project: list_jobs(project, schedule=schedule, limit=_shown(limit, as_json)),
        empty=lambda settings: JobPage([], 0),
    )
    if as_json:
        print_json(page.jobs)
    elif page.jobs:
        print_jobs(page.jobs, now)
        _print_older(page.total - len(page.jobs))
    else:
        words = nothing_crawled(settings) if schedule is None else f"No job of schedule {visible(schedule)!r}."
        out.print(words, markup=False)


def print_jobs(jobs: list[JobView], now: float, *, indent: int = 0) -> None:
    """Print a table of jobs. The counts that add up to the total are shown even on a narrow terminal."""
    print_table(
        (
            Column("JOB", "bold"), Column("SCHEDULE", spare=4), Column("STATE"), Column("STARTED", spare=1),
            Column("TOOK", right=True, spare=2), Column("TOTAL", right=True), Column("DONE", "green", right=True),
            Column("UNCHANGED", right=True), Column("DEAD", "red", right=True), Column("DROPPED", right=True),
            Column("OPEN", "cyan", right=True), Column("RATE", right=True, spare=3), Column("RECORDS", fold=True),
        ),
        [_job_row(job, now) for job in jobs],
        indent=indent,
    )  # fmt: skip


def _job_row(job: JobView, now: float) -> list[str]:
    on_terminal = out.is_terminal
    figures = (job.total, job.done, job.unchanged, job.dead, job.dropped, job.open)
    later = sum(job.settled_later.values())
    return [
        job.id,
        job.schedule or "",
        f"{job.outcome or job.phase}{f', {later:,} settled later' if later else ''}",
        distance(job.started, now) if on_terminal else job.started,
        span(job.seconds) if on_terminal else f"{job.seconds:.1f}s",
        *(number(figure) for figure in figures),
        rate_words(job.pages_per_second),
        job.run_records.changes if job.run_records is not None else "",
    ]


def rate_words(per_second: float) -> str:
    return f"{per_second:.1f}/s" if per_second >= 1 or not per_second else f"{per_second * 60:.1f}/m"


@job_app.command("show")
def show_verb(job: JobArgument, as_json: JsonOption = False) -> None:
    """Show one job: its counts, its speed, and an estimate of the time left."""
    view, now = ask_at(lambda project: show_job(project, job))
    if as_json:
        print_json(view)
    else:
        _print_job(view, now)


def _print_job(job: JobView, now: float) -> None:
    heading(job.id, job.outcome or job.in_words)
    print_facts(
        [
            ("name", job.name),
            ("spider", job.spider if job.spider != job.name else ""),
            ("arguments", in_words(job.arguments)),
            ("schedule", job.schedule),
            ("due", moment(job.due, now)),
            ("started", moment(job.started, now)),
            ("ended", f"{moment(job.finished, now)}, after {span(job.seconds)}" if job.finished is not None else ""),
            ("settled again", _settled_again(job, now)),
            ("because", _because(job)),
            ("trouble", Text(visible(job.trouble), style="yellow") if job.trouble and not job.fault else ""),
            ("windows", _windows(job, now)),
            ("pages", _pages(job)),
            (
                "retries",
                many(job.retries, "failed try was repeated", "failed tries were repeated") if job.retries else "",
            ),
            *item_facts(job.items),
            *record_facts(job.run_records),
            ("counted", in_words(job.stats)),
            ("waiting", f"{many(job.storing, 'result')} on the disks of workers" if job.storing else ""),
            ("limit", f"{many(job.limit, 'page')}; redirects do not count" if job.limit is not None else ""),
            ("depth", f"{many(job.depth, 'link')} from its first pages" if job.depth is not None else ""),
            ("own rate", f"{job.own_rate} at each site" if job.own_rate is not None else ""),
            ("own requests", f"{job.site_concurrency:,} at a time at each site" if job.site_concurrency else ""),
            ("priority", f"{job.priority:,}" if job.priority else ""),
            ("rate", f"{rate_words(job.pages_per_second)}, on average since it began"),
            ("time to go", _time_to_go(job)),
        ]
    )
    print_groups(job.failures)
    tips = [(f"gossamer status {job.id}", "sites, reasons for failures, where the data is")]
    if job.phase in (NO_WORKER, NOT_RESPONDING):
        tips.append(("gossamer worker", "works on every running job of the project"))
    if job.state is JobState.RUNNING:
        verb = "resume" if job.paused else "pause"
        tips.append((f"gossamer job {verb} {job.id}", "resume it" if job.paused else "fetch no more pages for now"))
        tips.append((f"gossamer job cancel {job.id}", "end it; what it has stored stays"))
    advise(*tips)


def _pages(job: JobView) -> Text:
    drops = sorted(job.drops.items(), key=lambda one: -one[1])
    why = ", ".join(f"{count:,} {reason}" for reason, count in drops)
    return Text.assemble(
        f"{job.total:,} total = {job.done:,} done + {job.unchanged:,} unchanged + ",
        (f"{job.dead:,} dead", "red" if job.dead else ""),
        f" + {job.dropped:,} dropped + {job.open:,} open",
        (f"  ({visible(why)})" if why else "", "dim"),
    )


def _time_to_go(job: JobView) -> str:
    if job.phase == PAUSED:
        return "it is paused"
    if job.phase != RUNNING:
        return ""
    if job.found_last_minute is not None:
        return f"unknown: it is {discovering(JobPace(found=job.found_last_minute, seconds=60.0))}"
    if job.eta_seconds is None:
        return "unknown: no page was done in the last minute"
    return f"about {span(job.eta_seconds)} for {many(job.remaining, 'page')}, by the rate at which the queue shrinks"


@job_app.command("pause")
def pause_verb(job: JobArgument) -> None:
    """Pause a job on all workers. Pages in flight are finished."""
    done = ask(lambda project: pause_job(project, job))
    words = f"{done.id} is paused already."
    if done.changed:
        words = (
            f"{done.id} is paused. {many(done.counts.leased, 'page')} in flight will be finished, "
            f"{done.counts.queued + done.counts.waiting:,} wait. Resume with: gossamer job resume {done.id}"
        )
    out.print(visible(words), markup=False)


@job_app.command("resume")
def resume_verb(job: JobArgument) -> None:
    """Resume a paused job."""
    done = ask(lambda project: resume_job(project, job))
    words = f"{done.id} is not paused."
    if done.changed:
        words = f"{done.id} is resumed, with {many(done.counts.open, 'open page')}. Workers pick it up within seconds."
    out.print(visible(words), markup=False)


@job_app.command("cancel")
def cancel_verb(job: JobArgument, yes: YesOption = False) -> None:
    """End a job for good: its open pages are dropped. What it has stored stays."""
    settings = settings_with()

    async def find() -> JobView:
        async with open_crawled(settings) as project:
            return await job_in_full(project, await running_job(project, job, verb="cancel"))

    view = run_async(find())
    question = f"Cancel {visible(view.id)}, with {many(view.open, 'open page')}?"
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        err.print("Nothing was changed.")
        raise typer.Exit(1)

    done = ask(lambda project: cancel_job(project, view.id))
    rest = f", {done.counts.open:,} of them later, by workers in the background" if done.counts.open else ""
    words = (
        f"{done.id} is cancelled: {done.counts.settled:,} of {many(view.total, 'page')} had been settled, "
        f"the others are dropped{rest}. What it has stored stays."
    )
    out.print(visible(words), markup=False)
