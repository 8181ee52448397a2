"""`gossamer crawl`: a spider by name or file, a recipe, or just a URL. Also its output during and after the crawl,
which `gossamer demo` and `gossamer.run` share."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.events import EventHub, EventSink
from ..model.outcome import EXIT_CODES, Outcome
from ..monitor.counts import EventCounts
from ..monitor.logs import JsonLog
from ..monitor.progress import short_duration
from ..project.jobs.crawl_processes import Crew, crew_of
from ..project.jobs.forecast import least_seconds_of, wait_of_job
from ..project.jobs.status import limit_words, place_near
from ..project.sites.routes import BY_BROWSER, probe_of
from ..project.spiders.spiders import crawl_list, crawl_target, written_arguments
from ..project.workers.spools import results_waiting
from ..project.workers.workers import lacks_scheduler
from ..settings import FILE_NAME, Settings
from ..units import discreet, many, visible
from .app import allow_local, app, err, fail, run_async, settings_with, styled
from .layout import in_words, item_facts, print_groups, print_tips, warn
from .options import (
    ArgumentOption,
    JsonLogsOption,
    MaxChangeOption,
    MaxDeadShareOption,
    MinPagesOption,
    MinRecordsOption,
)
from .progress import Alarms, ProgressLine, Tracebacks, Warnings

if TYPE_CHECKING:  # these import the fetching code
    from ..parse.spider import Spider
    from ..project.jobs.crawl import CrawlReport, RunningCrawl

_CRAWL = "gossamer crawl"
STOPPED = 130  # the exit code of a crawl that was stopped early and can be resumed


@app.command("crawl")
def crawl_verb(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="A spider's name, a file (spider.py, spider.py:Class, recipe.toml), one or more URLs, a list of URLs"
            " (urls.txt, .csv, .jsonl), or - for a list on standard input.",
        ),
    ],
    output: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "-O",
            "--output",
            help="Write the records to this file, replacing it: .jsonl, .csv, .parquet, s3://...; or to a table or"
            " a collection: postgresql://..., sqlite:///... Can be repeated.",
        ),
    ] = None,
    no_meta: Annotated[
        bool, typer.Option("--no-meta", help="With -o: only the items' own fields, no _meta, no _type, _url ...")
    ] = False,
    depth: Annotated[int | None, typer.Option(min=0, help="Follow links this many steps from the start.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many pages.")] = None,
    rate: Annotated[
        str | None, typer.Option(help="Requests of this job to a site, by all processes: 5/s, 30/m or unlimited.")
    ] = None,
    site_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests of this job at once at one site, by all processes.")
    ] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Pages in flight at once in each process.")] = None,
    priority: Annotated[int | None, typer.Option(help="Of this job among others; higher ones go first.")] = None,
    processes: Annotated[
        str, typer.Option(metavar="N", help="Crawl with this many processes; auto: one for each core.")
    ] = "1",
    argument: ArgumentOption = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print each page that is given up, with its traceback, as it comes.")
    ] = False,
    json_logs: JsonLogsOption = False,
    min_records: MinRecordsOption = None,
    min_pages: MinPagesOption = None,
    max_dead_share: MaxDeadShareOption = None,
    max_change: MaxChangeOption = None,
    replay: Annotated[
        bool, typer.Option("--replay", help="Take responses from the archive only; send nothing, store nothing.")
    ] = False,
) -> None:
    """Crawl. Run the same command again to resume, or in a second terminal to share the work. The exit code is the
    outcome: 0 is done."""
    flags = {
        "expect.min_records": min_records,
        "expect.min_pages": min_pages,
        "expect.max_dead_share": max_dead_share,
        "expect.max_change": max_change,
        "crawl.depth": depth,
        "crawl.limit": limit,
        "crawl.rate": rate,
        "crawl.site_concurrency": site_concurrency,
        "crawl.concurrency": concurrency,
        "crawl.priority": priority,
    }
    crew = crew_of(processes, replay=replay)
    settings = settings_with(**flags)
    # Typing errors surface before the slow imports.
    if target == ["-"] and crew is not None:
        raise Misconfigured("Several processes cannot read one standard input: write the list to a file.")
    wanted = crawl_list(settings, target, Path.cwd(), follows=bool(depth))
    if wanted is None:
        wanted = crawl_target(settings, target[0], Path.cwd())
    elif not (depth or quiet or wanted.urls or (crew is not None and crew.helps)):
        err.print(styled("[dim]Only the listed pages are crawled; --depth 1 also follows their links.[/]"))
    if replay:
        from .spider_cases import run_replay

        run_replay(wanted, settings, output=output, quiet=quiet)
        return
    report = run_crawl(
        wanted.spider,
        allow_local(settings, wanted.urls, flags, says=crew is None or not crew.helps),
        name=wanted.name,
        arguments=written_arguments(argument or ()),
        output=output,
        meta=not no_meta,
        fresh=fresh,
        quiet=quiet,
        verbose=verbose,
        json_logs=json_logs,
        command=shlex.join([*_CRAWL.split(), *target, *(word for one in argument or () for word in ("-a", one))]),
        crew=crew,
    )
    if crew is not None and crew.helps:
        return  # the first process reports the outcome
    if report.failure:
        more = f" `gossamer dead list --job {report.job.id}` has the details." if report.counts.dead else ""
        if probe := _probe(settings, report):
            more += f" `{probe}` tries it in a browser."
        if FILE_NAME in report.failure and not (settings.root / FILE_NAME).exists():
            more = f" There is no {FILE_NAME} yet: make one in {settings.root}.{more}"
        ended = "" if report.failure.endswith((".", "?", "!")) else "."
        fail(f"No page could be used. {report.failure}{ended if more else ''}{more}")
    if report.storing is not None:
        fail(
            f"{many(report.storing.results, 'result')} are not stored yet. {report.storing.in_words(report.job.id)}",
            STOPPED,
        )
    if not report.ended:
        raise typer.Exit(STOPPED)
    outcome = report.job.outcome
    if outcome is not None and (code := EXIT_CODES[outcome.outcome]):
        if quiet:  # otherwise the summary has said it
            err.print(Text(visible(f"{report.job.id}: {outcome.in_words}")))
        raise typer.Exit(code)


def run_crawl(
    spider: Spider,
    settings: Settings,
    *,
    name: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    output: Sequence[str] | None = None,
    meta: bool = True,
    fresh: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    json_logs: bool = False,
    command: str = "",
    crew: Crew | None = None,
) -> CrawlReport:
    """Crawl in this process, with progress and summary; the first process of a `crew` shows them for all. Raises
    Misconfigured and Transient."""
    from ..project.outputs.run import is_address
    from ..project.records.export import outputs_of, try_outputs
    from ..project.workers import service  # imports the fetching code

    helps = crew is not None and crew.helps
    outputs = outputs_of(output, spider) if not helps else ()
    try_outputs(outputs, spider, settings)  # fail before the crawl, not after it
    clock = SystemClock()
    tally = EventCounts(clock)
    log = JsonLog(sys.stderr, clock, lambda: settings.log.level) if json_logs else None
    listeners: list[EventSink] = [tally] if log is None else [tally, log]
    show = not quiet and not json_logs
    if show:
        listeners.append(Warnings(err, before=f"process {os.getpid()}: " if helps else ""))
    elif log is None:
        listeners.append(Alarms(err))
    if verbose and log is None:  # the log has the tracebacks too
        listeners.append(Tracebacks(err))

    async def watch(running: RunningCrawl) -> None:
        for warning in running.project.warnings:
            warn(f"Warning: {warning}")
        verb = "Going on with" if running.resumed else "Crawling"
        words = "{} [bold]{}[/] [dim](job {}; Ctrl-C stops, the same command resumes)[/]"
        err.print(styled(words, verb, running.job.name, running.job.id))
        if await lacks_scheduler(running.project):
            err.print(styled("[dim]Schedules run with `gossamer up`.[/]"))
        jobs, job = running.project.state.jobs, running.job
        storing = partial(results_waiting, running.project, job.id)
        waits = partial(wait_of_job, running.project, job.id)
        least = partial(least_seconds_of, running.project, job)
        draining = running.pool.is_draining
        line = ProgressLine(
            jobs, storing, clock, err, job=job.id, limit=job.limit, waits=waits, least=least, draining=draining
        )
        await line.show()

    async def follow_level(running: RunningCrawl) -> None:
        if log is not None:
            log.level = lambda: running.project.log_level

    with log.hearing() if log is not None else nullcontext():
        report = run_async(
            service.run_crawl(
                spider,
                settings,
                events=EventHub(*listeners),
                name=name,
                arguments=arguments,
                fresh=fresh,
                output=outputs,
                meta=meta,
                attend=watch if show and not helps else follow_level,
            )
        )
    if log is not None:
        log.summary()
    if crew is not None:
        if crew.helps:
            crew.report(tally.to_bytes())
            return report
        for told in crew.reports():
            tally.add(told)
    if show and not report.failure:
        files = [discreet(one) for one in (*(one for one in outputs if not is_address(one)), *report.feeds)]
        summarise(report, tally, settings, ", ".join(files) or None, command)
    return report


def summarise(report: CrawlReport, tally: EventCounts, settings: Settings, output: str | None, command: str) -> None:
    """Print the summary table, and commands to try next."""
    counts = report.counts
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    unchanged = f", {counts.unchanged:,} unchanged" if counts.unchanged else ""
    speed = f"{tally.pages / report.seconds:,.1f} pages/s" if report.seconds else ""
    spent = f"{report.seconds:.1f} s" if report.seconds < 60 else short_duration(timedelta(seconds=report.seconds))
    moved = f", {many(counts.redirected, 'redirect')}" if counts.redirected else ""
    came = counts.done - counts.redirected
    if speed and tally.done < came:  # other workers or an earlier command did the rest
        speed = f"{tally.done:,} by this command, {speed}"
    table.add_row("pages", styled("[bold]{}[/] done{}  [dim]{}, {}{}[/]", f"{came:,}", unchanged, spent, speed, moved))
    if limit := limit_words(settings, report.job, tally.sites, latency=tally.latency, seconds=report.seconds):
        table.add_row("limit", visible(limit))
    records = f"{report.records:,}" if report.records is not None else "not known"
    table.add_row("records", styled("[bold]{}[/]  [dim]seen by this job[/]", records))
    for name, words in item_facts(report.account):
        if words:
            table.add_row(name, words)
    if tally.faults:
        table.add_row(
            "quality", styled("{} found  [dim]gossamer quality {}[/]", many(tally.faults, "fault"), report.job.name)
        )
    if tally.gone:
        be = "is" if tally.gone == 1 else "are"
        table.add_row("gone", styled("{} {} gone  [dim]known before, not found now[/]", f"{tally.gone:,}", be))
    if counts.stats:
        table.add_row("counted", visible(in_words(counts.stats)))
    table.add_row("retries", f"{counts.retries:,}")
    if report.cost is not None:
        table.add_row("cost", f"{report.cost:,.10g} credits")
    if tally.blocked:
        table.add_row("blocks", styled("{}  [dim]responses in which a site refused a page[/]", f"{tally.blocked:,}"))
    reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(report.dead_reasons).most_common(4))
    table.add_row("dead letters", styled("[red]{}[/]  [dim]{}[/]", f"{counts.dead:,}", reasons) if counts.dead else "0")
    if counts.postponed:
        waiting = f"{counts.postponed:,}"
        table.add_row("links waiting", styled("{}  [dim]until the queue has room (crawl.max_queued)[/]", waiting))
    by_reason = sorted(counts.drops.items(), key=lambda one: -one[1])
    why = ", ".join(f"{count:,} {reason}" for reason, count in (("duplicate", counts.duplicates), *by_reason) if count)
    table.add_row("skipped", styled("{}  [dim]{}[/]", f"{counts.dropped + counts.duplicates:,}", why))
    records, archive = (place_near(settings, role, Path.cwd()) for role in ("records", "archive"))
    table.add_row("data", styled("{}  [dim]raw pages in {}[/]", records, archive))
    if output is not None:
        table.add_row("output", f"{output}")
    for one in report.outputs:
        table.add_row("output", styled("{}  [dim]{}[/]", one.account, one.target))
    err.print()
    err.print(_headline(report))
    err.print(table)
    print_groups(report.failures, console=err)
    if tally.last_trouble:
        err.print(styled("[yellow]There was trouble:[/] {}", tally.last_trouble))
    for one in report.outputs:
        if one.lag != 0:
            err.print(styled("[yellow]Not written yet:[/] {} [dim]gossamer output show {}[/]", one.in_words, one.name))
    _advise(settings, report, output or report.outputs, command)


def _headline(report: CrawlReport) -> Text:
    if report.storing is not None:
        waiting = many(report.storing.results, "result")
        return styled("[yellow]Not stored yet.[/] All pages are done, and {} wait on disk: gossamer spool.", waiting)
    if not report.ended and report.is_served:
        words = "[yellow]Stopped here.[/] Other workers go on with it: gossamer job pause {} holds it."
        return styled(words, report.job.id)
    if not report.ended:
        return styled("[yellow]Stopped.[/] Nothing is lost: run the same command again to resume.")
    outcome = report.job.outcome
    if outcome is None or (outcome.outcome is Outcome.DONE and not outcome.reasons):
        return styled("[green]Done.[/]")
    styles = {Outcome.DONE: "green", Outcome.WARNINGS: "yellow", Outcome.INCOMPLETE: "yellow"}
    style, reasons = styles.get(outcome.outcome, "red"), "; ".join(reason.message for reason in outcome.reasons)
    return Text.assemble((outcome.outcome.value.capitalize(), style), f": {visible(reasons)}.")


def _advise(settings: Settings, report: CrawlReport, output: object, command: str) -> None:
    tips: list[tuple[str, str]] = []
    if not report.ended and command:
        tips.append((command, "resume"))
    if report.counts.dead:
        tips.append((f"gossamer dead list --job {report.job.id}", "what failed, and why"))
        if probe := _probe(settings, report):
            tips.append((probe, BY_BROWSER))
    if report.table_command and not output:
        tips.append((report.table_command, "the records as a table"))
    if report.ended and report.records == 0 and report.counts.done and command.startswith(_CRAWL):
        target = shlex.split(command)[2]
        tips.append((f"gossamer check {shlex.quote(target)} URL", "no records: see what the spider finds on a page"))
    tips.append((f"gossamer status {report.job.id}", "where everything stands"))
    tips.append(("gossamer why URL", "the whole story of one URL"))
    print_tips(err, tips)


def _probe(settings: Settings, report: CrawlReport) -> str | None:
    """The command that tries one of the pages that the site refused by another route, if none is set."""
    groups = report.failures.groups if report.failures is not None else ()
    return next((probe for one in groups if (probe := probe_of(settings, one.url, one.reason))), None)


def run_from_script(
    spider: type[Spider] | Spider | str,
    *,
    fresh: bool,
    quiet: bool,
    output: str | Path | Sequence[str] | None = None,
    arguments: Mapping[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
    **flags: Any,
) -> CrawlReport:
    """The body of `gossamer.run`. Raises GossamerErrors instead of printing them: the script decides."""
    from ..project.jobs.embedded import dotted_settings, target_of

    dotted = dotted_settings("run", settings, flags)
    read = settings_with(**dotted)
    target = target_of(read, spider)
    return run_crawl(
        target.spider,
        allow_local(read, target.urls, dotted) if target.urls else read,
        name=target.name,
        arguments=arguments,
        output=[str(output)] if isinstance(output, str | Path) else output,
        fresh=fresh,
        quiet=quiet,
    )
