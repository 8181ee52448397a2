"""`gossamer reparse`: the current parser over the archived pages, without a request."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.status import Status
from rich.text import Text

from ..clock import SystemClock
from ..project.jobs import find_job
from ..project.records import told
from ..project.reparse.run import Choice, Report, reparse
from ..units import many, visible
from .app import app, err, open_crawled, out, run_async, settings_with, typed_moment
from .layout import advise, print_facts, print_failures
from .records import DIFFERENCES_SHOWN, DifferenceLines


@app.command("reparse")
def reparse_verb(
    spider: Annotated[str | None, typer.Option("--spider", help="Pages of this spider: a name or a file.")] = None,
    crawled_as: Annotated[
        str | None, typer.Option("--as", help="With --spider: its pages were crawled under this name.")
    ] = None,
    job: Annotated[str | None, typer.Option("--job", help="Pages that this job fetched last.")] = None,
    since: Annotated[str | None, typer.Option(help="Fetched since: 7d, 12h, or 2027-01-31T12:00.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only pages that could not be parsed or were held back.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing; show what would change.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="With --dry-run: show at most this many changes; all are counted.")
    ] = DIFFERENCES_SHOWN,
    processes: Annotated[int | None, typer.Option(min=1, help="Parsing processes; else one per core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object per change.")] = False,
) -> None:
    """Parse archived pages again with the spiders as they are now. No request is made.

    Records become a new version where something changed; what a page does not give any more is marked as gone.
    """
    settings = settings_with()
    since_at = typed_moment("--since", since, SystemClock().now())
    lines = DifferenceLines(limit, as_json=as_json)

    async def work(status: Status | None) -> tuple[Report, float]:
        async with open_crawled(settings) as project:
            choice = Choice(
                spider=spider,
                crawled_as=crawled_as,
                job=(await find_job(project, job)).id if job is not None else None,
                since=since_at,
                failed=failed,
            )
            began = project.clock.monotonic()

            def tell(report: Report) -> None:
                if status is not None:
                    rate = report.pages / max(project.clock.monotonic() - began, 1e-9)
                    status.update(f"{many(report.pages, 'page')} parsed, {rate:,.0f} per second")

            report = await reparse(
                project,
                choice,
                processes=processes,
                tell=tell,
                would_change=(lambda one: lines.show(told(one))) if dry_run else None,
            )
            return report, project.clock.monotonic() - began

    with _busy() as status:
        report, seconds = run_async(work(status))
    if not as_json:
        _tell(report, seconds, lines, dry_run=dry_run, spider_named=spider is not None and crawled_as is None)
    if report.failed + report.lost == report.pages:  # also when there were none
        raise typer.Exit(1)


def _busy() -> AbstractContextManager[Status | None]:
    return err.status("Parsing ...") if err.is_terminal else nullcontext()


def _tell(report: Report, seconds: float, lines: DifferenceLines, *, dry_run: bool, spider_named: bool) -> None:
    for name, count in report.unknown.items():
        advice = f" Name its file with --spider FILE; if it was renamed, with --spider FILE --as {visible(name)}."
        missing = visible(report.why[name]) if name else "it is not known which spider they are of."
        err.print(Text(f"{many(count, 'page')} left out: {missing}{advice if name else ''}", style="yellow"))
    if not report.pages:
        if not report.unknown:
            renamed = " A spider that was renamed has its old pages with --as OLD-NAME." if spider_named else ""
            err.print(f"No archived page matches. `gossamer status` shows what was crawled.{renamed}")
        return
    if dry_run and lines.left_out:
        out.print(lines.left_out)
    would = "would be " if dry_run else ""
    print_facts(
        [
            ("pages", f"{report.pages:,} parsed in {seconds:.1f} s, {report.pages / seconds:,.0f} per second"),
            ("records", f"{report.records:,}, of which {report.changed:,} {would}new or changed"),
            ("gone", f"{report.gone:,} {would}marked as gone" if report.gone else ""),
            ("failed", f"{report.failed:,} could not be parsed" if report.failed else ""),
            ("raw page lost", f"{report.lost:,}: pruned, or the archive was moved" if report.lost else ""),
            *([] if dry_run else _runs(report)),
        ],
        indent=0,
    )
    print_failures([(one.wanted.url, one.message) for one in report.failures])
    if dry_run:
        out.print("Nothing was stored. Without --dry-run it is.")
        return
    if report.mended:
        out.print(
            f"{many(report.mended, 'page')} of these had failed before. Dead letters stay as they are: "
            f"`gossamer dead replay` settles them and queues the links of their pages."
        )
    if report.changed:
        advise(
            (f"gossamer export --job {next(iter(report.runs.values()))}", "the records of this run"),
            ("gossamer history KEY", "every version of one record"),
        )


def _runs(report: Report) -> list[tuple[str, str]]:
    """The ids under which the records are: one for each spider."""
    several = len(report.runs) > 1
    return [
        ("" if place else "run", f"{run} ({visible(name)})" if several else run)
        for place, (name, run) in enumerate(report.runs.items())
    ]
