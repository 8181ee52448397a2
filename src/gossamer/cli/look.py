"""`gossamer status`: the jobs of a project and where each stands. The story of one URL is in why.py."""

from __future__ import annotations

import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..backends.addresses import place_of
from ..clock import iso_time
from ..demo.spider import DemoShop
from ..frontier.contract import DeadFilter, SiteLoad
from ..model.job import Job, JobCounts, JobState
from ..project.jobs import find_job
from ..project.open import Project, is_crawled, nothing_crawled, open_project
from ..project.open import open_crawled as open_existing
from ..schedule.windows import is_open, opens_at, parse_windows
from ..settings import Settings
from ..store.contract import RecordQuery
from ..text import distance, many, moment, span, visible
from .app import app, err, out, run_async, settings_with
from .layout import Column, advise, heading, jsonable, number, print_facts, print_json, print_table
from .runs import Run, runs_of
from .timetable import window_words

JOBS_SHOWN = 20
SITES_SHOWN = 20


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A run and the records that it saw."""

    run: Run
    records: int

    @property
    def job(self) -> Job:
        return self.run.job

    @property
    def counts(self) -> JobCounts:
        return self.run.counts

    @property
    def adds_up(self) -> bool:
        counts = self.counts
        return counts.discovered == counts.open + counts.settled + counts.dropped + counts.duplicates

    def as_json(self) -> dict[str, Any]:
        job = self.job
        return {
            "id": job.id,
            "name": job.name,
            "state": job.state.value,
            "standing": self.run.state,
            "ending": job.ending or None,
            "started": iso_time(job.created_at),
            "finished": iso_time(job.finished_at) if job.finished_at is not None else None,
            "limit": job.limit,
            "counts": jsonable(self.counts),
            "adds_up": self.adds_up,
            "records": self.records,
        }


@app.command("status")
def status_verb(
    job: Annotated[str | None, typer.Argument(help="A job's id (books-3), or the name of a spider.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help=f"Show so many jobs, newest first; {JOBS_SHOWN}, or all with --json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Where every job stands; with JOB, everything about that one."""
    settings = settings_with()
    if job is None:
        run_async(_show_all(settings, shown(limit, as_json), as_json))
    else:
        run_async(_show_one(settings, job, as_json))


@asynccontextmanager
async def open_crawled(settings: Settings) -> AsyncIterator[Project]:
    """As `project.open_crawled`; says on standard error when the project was moved away."""
    async with open_existing(settings) as project:
        warn_of_old_copies(project)
        yield project


def warn_of_old_copies(project: Project) -> None:
    """Whoever looks at what was moved away should know it."""
    for warning in project.old_copies:
        err.print(Text(f"Warning: {visible(warning)}", style="yellow"), soft_wrap=True)


def no_job(settings: Settings, records: int) -> str:
    """Records are there, and no job made them: pages were imported and parsed."""
    return (
        f"No job has run in {settings.root} yet. It holds {many(records, 'record')} of imported pages: `gossamer "
        "export` writes them, `gossamer quality` tells how good they are."
    )


async def _standings(project: Project, jobs: list[Job]) -> list[Standing]:
    return [
        Standing(run=run, records=await project.records.count(RecordQuery(job=run.job.id)))
        for run in await runs_of(project, jobs)
    ]


def shown(limit: int | None, as_json: bool) -> int | None:
    """How many jobs a list has. Programs get all of them, unless they ask for fewer."""
    return limit if limit is not None or as_json else JOBS_SHOWN


def tell_of_older(count: int) -> None:
    """A list was cut. What goes into a pipe is the list alone."""
    if count > 0:
        words = f"... and {many(count, 'older job')}; --limit shows more."
        (out if out.is_terminal else err).print(Text(words, style="dim"))


async def _show_all(settings: Settings, limit: int | None, as_json: bool) -> None:
    standings: list[Standing] = []
    total, records, now = 0, 0, 0.0
    if is_crawled(settings):
        async with open_project(settings, to_look=True) as project:
            warn_of_old_copies(project)
            jobs = await project.state.jobs.jobs()
            total, now = len(jobs), project.clock.now()
            standings = await _standings(project, jobs[:limit])
            records = 0 if jobs else await project.records.count(RecordQuery())
    if as_json:
        print_json([standing.as_json() for standing in standings])
        return
    if not standings:
        out.print(nothing_crawled(settings) if not records else no_job(settings, records), markup=False)
        return
    print_table(
        (
            Column("JOB", "bold"), Column("NAME", spare=True), Column("STATE"), Column("STARTED"),
            Column("DONE", right=True), Column("UNCHANGED", right=True, spare=True),
            Column("DEAD", "red", right=True), Column("DROPPED", right=True, spare=True),
            Column("QUEUE", "cyan", right=True), Column("RETRIES", right=True, spare=True),
            Column("RECORDS", "green", right=True),
        ),
        [_row(standing, now) for standing in standings],
    )  # fmt: skip
    tell_of_older(total - len(standings))


def _row(standing: Standing, now: float) -> list[str]:
    job, counts = standing.job, standing.counts
    figures = (counts.done, counts.unchanged, counts.dead, counts.dropped)
    queue = number(counts.open)
    if counts.open and out.is_terminal:
        queue = f"{counts.queued:,} / {counts.waiting:,} / {counts.leased:,}"
    started = distance(job.created_at, now) if out.is_terminal else iso_time(job.created_at)
    tail = (number(counts.retries), number(standing.records))
    return [job.id, job.name, standing.run.state, started, *(number(figure) for figure in figures), queue, *tail]


async def _show_one(settings: Settings, wanted: str, as_json: bool) -> None:
    async with open_crawled(settings) as project:
        job = await find_job(project, wanted)
        (standing,) = await _standings(project, [job])
        sites = await project.state.queue.sites(job.id, SITES_SHOWN)
        reasons = await project.state.queue.dead_reasons(DeadFilter(job=job.id)) if standing.counts.dead else {}
        now = project.clock.now()
    places = {role: place_of(settings, role) for role in ("state", "records", "archive")}
    if as_json:
        loads = [jsonable(site, times=("next_at",)) for site in sites]
        print_json({**standing.as_json(), "sites": loads, "dead_reasons": reasons, "data": places})
        return
    _print_counts(standing, now)
    _print_sites(settings, standing.run, sites, now)
    if reasons:
        out.print()
        heading("Dead letters")
        print_table((Column("REASON", "red"), Column("URLS", right=True)), list(reasons.items()), indent=2)
    out.print()
    heading("Data")
    print_facts(list(places.items()))
    _advise(standing)


def _print_counts(standing: Standing, now: float) -> None:
    job, counts = standing.job, standing.counts
    heading(job.id, standing.run.story)
    ended = ""
    if job.finished_at is not None:
        ended = f"{moment(job.finished_at, now)}, after {span(job.finished_at - job.created_at)}"
    dead = Text(f"{counts.dead:,} dead", style="red" if counts.dead else "")
    limit = f", limit {job.limit:,}" if job.limit is not None else ""
    print_facts(
        [
            ("name", job.name),
            ("started", moment(job.created_at, now)),
            ("ended", ended),
            ("because", Text(visible(standing.run.fault), style="yellow") if standing.run.fault else ""),
            ("windows", window_words(job.windows, now) if job.state is JobState.RUNNING else job.windows),
            ("pages", Text.assemble(f"{counts.done:,} done, {counts.unchanged:,} unchanged, ", dead, limit)),
            ("queue", f"{counts.queued:,} queued, {counts.waiting:,} waiting, {counts.leased:,} in hand"),
            ("retries", f"{counts.retries:,}"),
            ("records", f"{standing.records:,}"),
            ("links", _sum(standing)),
        ]
    )


def _sum(standing: Standing) -> Text:
    """Every link that was found is somewhere."""
    counts = standing.counts
    where = (
        f"{counts.discovered:,} found = {counts.done + counts.unchanged:,} done + {counts.dead:,} dead + "
        f"{counts.open:,} in the queue + {counts.dropped:,} dropped + {counts.duplicates:,} duplicates"
    )
    if standing.adds_up:
        return Text.assemble(where, ("  it adds up", "green"))
    return Text.assemble(where, ("  IT DOES NOT ADD UP: please report this", "bold red"))


def _print_sites(settings: Settings, run: Run, sites: list[SiteLoad], now: float) -> None:
    if not sites:
        return
    out.print()
    heading("Sites with open work", f"the first {SITES_SHOWN}" if len(sites) == SITES_SHOWN else "")
    print_table(
        (Column("SITE"), Column("QUEUED", right=True), Column("WAITING", right=True), Column("IN HAND", right=True),
         Column("NEXT REQUEST")),
        [
            (load.site, number(load.queued), number(load.waiting), number(load.leased),
             _next_request(settings, run, load, now))
            for load in sites
        ],
        indent=2,
    )  # fmt: skip


def _next_request(settings: Settings, run: Run, load: SiteLoad, now: float) -> str:
    """When the site's rate, its windows and those of the job let it be asked again."""
    if run.job.state is not JobState.RUNNING:
        return "never: the job has ended"
    if run.job.paused:
        return "when the job is resumed"
    for whose, text in (("job's", run.job.windows), ("site's", settings.domain(load.site).windows)):
        read = parse_windows(text) if text else ()
        if read and not is_open(read, now):
            opening = opens_at(read, now)
            return f"{distance(opening, now)}, when the {whose} window opens" if opening is not None else "never"
    return distance(load.next_at, now) if load.next_at is not None and load.next_at > now else "any time"


def _advise(standing: Standing) -> None:
    job, counts = standing.job, standing.counts
    tips: list[tuple[str, str]] = []
    if job.state is JobState.RUNNING and counts.open:
        tips.append((work_command(job), "go on, or help along from a second terminal"))
    if counts.dead:
        tips.append((f"gossamer dead list --job {job.id}", f"the {many(counts.dead, 'dead letter')}, and why"))
    if standing.records:
        tips.append((f"gossamer export --job {job.id} -o items.csv", "the records as a table"))
    if tips:
        advise(*tips)


def work_command(job: Job) -> str:
    """What works on a job: the crawl of its name, or a worker where a schedule began it."""
    return "gossamer worker --until-idle" if job.schedule else crawl_command(job.name)


def crawl_command(name: str) -> str:
    """The command that goes on with a job of that name."""
    return "gossamer demo" if name == DemoShop.name else f"gossamer crawl {shlex.quote(name)}"
