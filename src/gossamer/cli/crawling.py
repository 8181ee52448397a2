"""A crawl in this process: what a person sees while it runs, and when it is over. Behind `gossamer crawl`, `gossamer
demo` and `gossamer.run`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from ..backends.addresses import is_local, local_path, place_of
from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.events import EventHub, EventSink, Trouble
from ..model.job import Job
from ..monitor.counts import EventCounts
from ..monitor.logs import JsonLog
from ..monitor.progress import short_duration
from ..parse.spider import Spider
from ..process.black_box import TIES
from ..process.supervisor import Pulse
from ..project.crawl import CrawlReport, Running, crawl
from ..project.export import destination_of, try_output
from ..project.job_end import why_nothing_came
from ..project.open import Project
from ..project.workers import lacks_scheduler
from ..settings import Settings
from ..store.contract import RecordQuery
from ..store.export import export
from ..text import many
from .app import err, run_async, settings_with
from .crawl import CANCELLED, REPLACED, allow_local
from .progress import Alarms, ProgressLine, Warnings


def run_crawl(
    spider: Spider,
    settings: Settings,
    *,
    name: str | None = None,
    output: str | None = None,
    fresh: bool = False,
    quiet: bool = False,
    json_logs: bool = False,
    command: str = "",
) -> CrawlReport:
    """Crawl in this process, with what a person expects to see. Raises Misconfigured and Transient."""
    if output is not None:
        try_output(output)  # what is wrong with it is better known before the crawl than after it
    clock = SystemClock()
    tally = EventCounts(clock)
    log = JsonLog(sys.stderr, clock) if json_logs else None
    listeners: list[EventSink] = [tally] if log is None else [tally, log]
    show = not quiet and not json_logs
    if show:
        listeners.append(Warnings(err))
    elif log is None:
        listeners.append(Alarms(err))

    async def watch(running: Running) -> None:
        for warning in running.project.warnings:
            err.print(Text(f"Warning: {warning}", style="yellow"))
        verb = "Going on with" if running.resumed else "Crawling"
        err.print(
            f"{verb} [bold]{running.job.name}[/] [dim](job {running.job.id}; Ctrl-C stops, it can go on later)[/]"
        )
        if await lacks_scheduler(running.project):
            err.print("[dim]Schedules run with `gossamer up`.[/]")
        await ProgressLine(running.project.state.jobs, clock, err, job=running.job.id, limit=running.job.limit).show()

    async def after(project: Project, job: Job) -> None:
        # A crawl that had nothing leaves the file of the last one alone.
        if output is not None and not await why_nothing_came(project, job.id):
            place = destination_of(output, now=project.clock.now(), job=job.id)
            await export(project.records, RecordQuery(job=job.id, gone=False), place)

    async def work(events: EventHub, fresh: bool) -> CrawlReport:
        fate = TIES.box.fate if TIES.box is not None else ""
        if fate:  # this process follows one that died: it goes on, even with a crawl that was begun as a fresh one
            events.emit(Trouble(at=clock.now(), stage="keeper", message=fate))
            fresh = False
        pulse = Pulse.for_keeper()
        async with pulse.beating() if pulse is not None else nullcontext():
            return await crawl(
                spider,
                settings,
                name=name,
                fresh=fresh,
                events=events,
                attend=watch if show else None,
                after=after,
            )

    report = run_async(work(EventHub(*listeners), fresh))
    if log is not None:
        log.summary()
    if show and not report.failure:
        summarise(report, tally, settings, output, command)
    return report


def summarise(report: CrawlReport, tally: EventCounts, settings: Settings, output: str | None, command: str) -> None:
    """The small table at the end, and what to try next."""
    counts = report.counts
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column()
    unchanged = f", {counts.unchanged:,} unchanged" if counts.unchanged else ""
    speed = f"{tally.pages / report.seconds:,.1f} pages/s" if report.seconds else ""
    if speed and tally.pages < counts.settled:  # others helped, or a command before this one
        speed = f"{tally.pages:,} by this command, {speed}"
    spent = f"{report.seconds:.1f} s" if report.seconds < 60 else spell_seconds(report.seconds)
    table.add_row("pages", f"[bold]{counts.done:,}[/] done{unchanged}  [dim]{spent}, {speed}[/]")
    table.add_row("records", f"[bold]{report.records:,}[/]  [dim]{tally.changed:,} new or changed[/]")
    if tally.faults:
        table.add_row("quality", f"{many(tally.faults, 'fault')} found  [dim]gossamer quality {report.job.name}[/]")
    if tally.gone:
        be = "is" if tally.gone == 1 else "are"
        table.add_row("gone", f"{tally.gone:,} {be} gone  [dim]known before, not found now[/]")
    table.add_row("retries", f"{counts.retries:,}")
    if settings.routes or tally.blocked:
        blocked = f"  [dim]{many(tally.blocked, 'block')} met[/]" if tally.blocked else ""
        table.add_row("cost", f"{tally.tokens:,.10g} tokens{blocked}")
    reasons = ", ".join(f"{count} {reason}" for reason, count in tally.reasons.most_common(4))
    style = "red" if counts.dead else ""
    table.add_row("dead letters", f"[{style}]{counts.dead:,}[/]  [dim]{reasons}[/]" if style else "0")
    left = counts.dropped + counts.duplicates
    table.add_row("left out", f"{left:,}  [dim]{counts.duplicates:,} duplicates, {counts.dropped:,} by rule[/]")
    table.add_row("data", f"{_place(settings, 'records')}  [dim]raw pages in {_place(settings, 'archive')}[/]")
    if output is not None:
        table.add_row("output", f"{output}")
    err.print()
    err.print(_headline(report))
    err.print(table)
    if tally.last_trouble:
        err.print(f"[yellow]There was trouble:[/] {tally.last_trouble}")
    _advise(report, output, command)


def _headline(report: CrawlReport) -> str:
    if not report.ended:
        return "[yellow]Stopped.[/] Nothing is lost: the same command goes on from here."
    if report.job.ending == REPLACED:
        return "[yellow]Stopped.[/] A newer crawl of the same name took its place (--fresh)."
    if report.job.ending == CANCELLED:
        return "[yellow]Stopped.[/] Somebody has cancelled it (gossamer job cancel)."
    if report.job.ending == "limit":
        apart = "; redirects do not count" if report.counts.settled > (report.job.limit or 0) else ""
        return f"[green]Done[/]: the limit of {report.job.limit:,} pages is reached{apart}."
    return "[green]Done.[/]"


def _advise(report: CrawlReport, output: str | None, command: str) -> None:
    tips: list[tuple[str, str]] = []
    if not report.ended and command:
        tips.append((command, "go on"))
    if report.counts.dead:
        tips.append(("gossamer dead list", "what failed, and why"))
    if report.records and output is None:
        tips.append(("gossamer export -o items.csv", "the records as a table"))
    tips.append((f"gossamer status {report.job.id}", "where everything stands"))
    tips.append(("gossamer why URL", "the whole story of one URL"))
    err.print()
    width = max(len(text) for text, _ in tips)
    for text, meaning in tips:
        err.print(f"  [cyan]{text.ljust(width)}[/]  [dim]{meaning}[/]")


def spell_seconds(seconds: float) -> str:
    from datetime import timedelta

    return short_duration(timedelta(seconds=seconds))


def _place(settings: Settings, role: str) -> str:
    if not is_local(settings, role):
        return place_of(settings, role)
    path = local_path(settings, role)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


FLAGS = {"depth": "crawl.depth", "limit": "crawl.limit", "rate": "politeness.rate", "concurrency": "crawl.concurrency"}


def run_from_script(
    spider: type[Spider] | Spider,
    *,
    fresh: bool,
    quiet: bool,
    output: str | Path | None = None,
    settings: dict[str, Any] | None = None,
    **flags: Any,
) -> CrawlReport:
    """What `gossamer.run` does. Errors of ours are raised, not printed: the script decides."""
    unknown = [name for name in flags if name not in FLAGS]
    if unknown:
        raise Misconfigured(
            f"run() has no option {unknown[0]!r}; there are {', '.join(FLAGS)}, output, fresh, quiet and settings."
        )
    dotted = {**(settings or {}), **{FLAGS[name]: value for name, value in flags.items()}}
    instance = spider() if isinstance(spider, type) else spider
    read = settings_with(**dotted)
    read = allow_local(read, list(instance.start_urls), dotted) if instance.start_urls else read
    return run_crawl(instance, read, output=str(output) if output is not None else None, fresh=fresh, quiet=quiet)
