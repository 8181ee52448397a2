"""`gossamer reparse`: the current parser over the archived pages, without a request."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Annotated

import typer
from rich.status import Status
from rich.text import Text

from ..clock import SystemClock
from ..reparsing.orders import Outcome
from ..reparsing.run import Choice, Report, reparse
from .app import app, err, out, run_async, settings_with
from .changes import Lines
from .layout import advise, many, print_facts, visible
from .look import open_crawled
from .typed import typed_job, typed_moment

DIFFERENCES_SHOWN = 200


@app.command("reparse")
def reparse_verb(
    spider: Annotated[str | None, typer.Option("--spider", help="Pages of this spider: a name or a file.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="Pages that this job fetched last.")] = None,
    since: Annotated[str | None, typer.Option(help="Fetched since: 7d, 12h, or 2027-01-31T12:00.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only pages that could not be parsed or were held back.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Store nothing; show what would change.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="With --dry-run: show so many changes; all are counted.")
    ] = DIFFERENCES_SHOWN,
    processes: Annotated[int | None, typer.Option(min=1, help="Parse in so many processes; else one per core.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object per change.")] = False,
) -> None:
    """Parse archived pages again with the spiders as they are now. No request is made.

    Records become a new version where something changed; what a page does not give any more is marked as gone.
    """
    settings = settings_with()
    since_at = typed_moment("--since", since, SystemClock().now())
    lines = Lines(limit, json_lines=as_json)

    async def work(status: Status | None) -> tuple[Report, float]:
        async with open_crawled(settings) as system:
            choice = Choice(
                spider=spider,
                job=(await typed_job(system.jobs, job)).id if job is not None else None,
                since=since_at,
                failed=failed,
            )
            began = system.clock.monotonic()

            def tell(report: Report) -> None:
                if status is not None:
                    rate = report.pages / max(system.clock.monotonic() - began, 1e-9)
                    status.update(f"{many(report.pages, 'page')} parsed, {rate:,.0f} per second")

            report = await reparse(
                system, choice, processes=processes, tell=tell, would_change=lines.show if dry_run else None
            )
            return report, system.clock.monotonic() - began

    with _busy() as status:
        report, seconds = run_async(work(status))
    if not as_json:
        _tell(report, seconds, lines, dry_run=dry_run)
    if report.failed == report.pages:  # also when there were none
        raise typer.Exit(1)


def _busy() -> AbstractContextManager[Status | None]:
    return err.status("Parsing ...") if err.is_terminal else nullcontext()


def _tell(report: Report, seconds: float, lines: Lines, *, dry_run: bool) -> None:
    for name, count in report.unknown.items():
        missing = f"no spider {visible(name)!r} is here. Name its file with --spider."
        err.print(Text(f"{many(count, 'page')} left out: {missing}", style="yellow"))
    if not report.pages:
        err.print("No archived page matches. `gossamer status` shows what was crawled.")
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
            ("run", "" if dry_run else report.run),
        ],
        indent=0,
    )
    tell_failures(report.failures)
    if dry_run:
        out.print("Nothing was stored. Without --dry-run it is.")
    elif report.changed:
        advise(
            (f"gossamer export --job {report.run}", "the records of this run"),
            ("gossamer history KEY", "every version of one record"),
        )


def tell_failures(failures: list[Outcome]) -> None:
    """The first pages that failed, one line each."""
    for outcome in failures[:5]:
        url, message = outcome.wanted.url, outcome.message
        err.print(Text(f"  {visible(message if url in message else f'{url}: {message}')}", style="red"))
    if len(failures) > 5:
        err.print(Text("  and others; gossamer why URL tells more", style="dim"))
