"""`gossamer reparse`: parse archived pages again with the current spiders, without a request."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.status import Status

from ..clock import SystemClock
from ..model.job import JobState
from ..project.jobs.jobs import find_job
from ..project.records.records import difference_view
from ..project.reparse.archive_job import ReparseChoice
from ..project.reparse.preview import preview_changes
from ..project.reparse.report import Report
from ..project.workers.spools import results_waiting
from ..settings import Settings
from ..units import many, visible
from .app import app, err, open_crawled, out, run_async, settings_with, typed_moment
from .layout import advise, print_facts, print_failures, warn
from .progress import ProgressLine, Warnings
from .records import DIFFERENCES_SHOWN, DifferenceLines


@app.command("reparse")
def reparse_verb(
    spider: Annotated[str | None, typer.Option("--spider", help="Pages of this spider: a name or a file.")] = None,
    crawled_as: Annotated[
        str | None, typer.Option("--as", help="With --spider: the name under which its pages were crawled.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="Pages whose newest copy this job fetched.")] = None,
    since: Annotated[str | None, typer.Option(help="Fetched since: 7d, 12h, or 2027-01-31T12:00.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only pages that could not be parsed or were held back.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing; show what would change.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="With --dry-run: show at most this many changes; all are counted.")
    ] = DIFFERENCES_SHOWN,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Parsing processes on this machine (default: one per core).")
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Start the job and return: `gossamer worker`, on any machine, does the work."),
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object per change.")] = False,
) -> None:
    """Parse archived pages again with the current spiders. No request is made.

    A changed record gets a new version; a record that its page no longer yields is marked as gone. Each spider has a
    job: other workers of the project share the work, and after Ctrl-C or a crash it can be resumed.
    """
    settings = settings_with()
    choice = ReparseChoice(
        spider=spider,
        crawled_as=crawled_as,
        job=run_async(_id_of(settings, job)) if job is not None else None,
        since=typed_moment("--since", since, SystemClock().now()),
        failed=failed,
    )
    lines = DifferenceLines(limit, as_json=as_json)
    began = SystemClock().monotonic()
    if dry_run:
        with _busy() as status:
            report = run_async(_foretold(settings, choice, lines, processes, status))
    else:
        report = run_async(_reparsed(settings, choice, processes, fresh=fresh, detach=detach))
    seconds = SystemClock().monotonic() - began
    _tell_left_out(report, spider_named=spider is not None and crawled_as is None)
    if detach and report.jobs:
        for one in report.jobs:
            out.print(f"{one.id} has started. `gossamer worker` works on it, `gossamer status {one.id}` shows it.")
        return
    if report.pages and not as_json:
        _tell(report, seconds, lines, dry_run=dry_run)
    if report.open:
        names = " ".join(one.id for one in report.jobs if one.state is JobState.RUNNING)
        err.print(
            f"{many(report.open, 'page is', 'pages are')} left ({names}). The same command, or any worker, resumes it."
        )
    if report.failed + report.lost == report.pages:  # even if there were none
        raise typer.Exit(1)


async def _id_of(settings: Settings, job: str) -> str:
    async with open_crawled(settings) as project:
        return (await find_job(project, job)).id


async def _foretold(
    settings: Settings, choice: ReparseChoice, lines: DifferenceLines, processes: int | None, status: Status | None
) -> Report:
    async with open_crawled(settings) as project:
        began = project.clock.monotonic()

        def tell(report: Report) -> None:
            if status is not None:
                rate = report.pages / max(project.clock.monotonic() - began, 1e-9)
                status.update(f"{many(report.pages, 'page')} parsed, {rate:,.0f} per second")

        return await preview_changes(
            project, choice, lambda one: lines.show(difference_view(one)), processes=processes, tell=tell
        )


async def _reparsed(
    settings: Settings, choice: ReparseChoice, processes: int | None, *, fresh: bool, detach: bool
) -> Report:
    from ..project.reparse.run import Running, reparse  # imports the parsing code

    async def watch(running: Running) -> None:
        project, jobs = running.project, running.begun.jobs
        for job in jobs:
            if job.id in running.begun.resumed:
                err.print(f"{job.id} is resumed, with the pages it started with. --fresh starts over.")

        async def storing() -> int:
            return sum([await results_waiting(project, job.id) for job in jobs])

        names = ", ".join(job.id for job in jobs)
        await ProgressLine(running, storing, project.clock, err, job=names, limit=None).show()

    return await reparse(settings, choice, Warnings(err), processes=processes, fresh=fresh, detach=detach, attend=watch)


def _busy() -> AbstractContextManager[Status | None]:
    return err.status("Parsing ...") if err.is_terminal else nullcontext()


def _tell_left_out(report: Report, *, spider_named: bool) -> None:
    for name, count in report.unknown.items():
        advice = f" Name its file with --spider FILE; if it was renamed, with --spider FILE --as {visible(name)}."
        missing = visible(report.why[name]) if name else "their spider is unknown."
        warn(f"{many(count, 'page')} left out: {missing}{advice if name else ''}")
    if not report.pages and not report.jobs and not report.unknown:
        renamed = " If the spider was renamed, find its old pages with --as OLD-NAME." if spider_named else ""
        err.print(f"No archived page matches. `gossamer status` shows what was crawled.{renamed}")


def _tell(report: Report, seconds: float, lines: DifferenceLines, *, dry_run: bool) -> None:
    if dry_run and lines.left_out:
        out.print(lines.left_out)
    would = "would be " if dry_run else ""
    in_vain = report.failed + report.lost
    which = f"{report.pages - in_vain:,} of {report.pages:,}" if in_vain else f"{report.pages:,}"
    print_facts(
        [
            ("pages", f"{which} parsed in {seconds:.1f} s, {report.pages / seconds:,.0f} per second"),
            ("records", f"{report.records:,}, of which {report.changed:,} {would}new or changed"),
            ("gone", f"{report.gone:,} {would}marked as gone" if report.gone else ""),
            ("failed", f"{report.failed:,} could not be parsed" if report.failed else ""),
            ("raw page lost", f"{report.lost:,}: pruned, or the archive was moved or changed" if report.lost else ""),
            *(("" if place else "job", one.id) for place, one in enumerate(report.jobs)),
        ],
        indent=0,
    )
    print_failures([(one.url, one.message) for one in report.failures])
    if dry_run:
        out.print("Nothing was stored. Run without --dry-run to store it.")
        return
    if report.mended:
        out.print(
            f"{many(report.mended, 'page')} of these had failed before. Dead letters stay as they are: "
            f"`gossamer dead replay` settles them and queues the links of their pages."
        )
    if report.changed:
        advise(
            (f"gossamer export --job {report.jobs[0].id}", "the records of this run"),
            ("gossamer history KEY", "every version of one record"),
        )
