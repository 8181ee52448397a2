"""`gossamer schedule add`, and what it asks first: is the spider here, is the moment to come, may workers go there?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

import typer
from rich.text import Text

from ..errors import GossamerError, Misconfigured, SpiderNotFound
from ..model.job import JobTerms
from ..model.schedule import Overlap, Schedule, ScheduleProgress
from ..project.open import open_project
from ..schedule.definition import schedule_of
from ..schedule.runs import opening_of
from ..schedule.spider_loader import Spiders
from ..schedule.triggers import Once, describe
from ..settings import ScheduleTable, Settings
from ..text import many, span, visible
from ..units import Size, parse_duration, parse_size
from .app import err, out, run_async, settings_with
from .cautions import cautions
from .flags import in_flags
from .layout import advise
from .schedules import ADDED, FILE, found, in_file, schedule_app
from .timetable import at_its_place, in_zone, next_run, trigger_of


@schedule_app.command("add")
def add_verb(
    name: Annotated[str, typer.Argument(help="What to call it; its jobs bear that name.")],
    spider: Annotated[str, typer.Option("--spider", help="A spider or a recipe by its name, or the URL of a site.")],
    every: Annotated[str | None, typer.Option(help="Again and again: 15m, 6h, 7d.")] = None,
    cron: Annotated[str | None, typer.Option(help="At such times: '0 3 * * *'.")] = None,
    at: Annotated[str | None, typer.Option(help="Once, at that moment: 2027-01-31T12:00.")] = None,
    zone: Annotated[str, typer.Option(help="The time zone of --cron, --at and --window: Europe/Berlin.")] = "UTC",
    url: Annotated[
        list[str] | None, typer.Option("--url", help="This address, or many: 'https://shop.example/p/{1..100}'.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="The addresses in this file: lines, .csv or .jsonl.")] = None,
    command: Annotated[str | None, typer.Option(help="The addresses that this program prints.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="With --command: a shell reads it.")] = False,
    timeout: Annotated[str | None, typer.Option(help="With --command: so long it may run; 10m if not given.")] = None,
    max_output: Annotated[
        str | None, typer.Option(help="With --command: so much it may print; 256MiB if not given.")
    ] = None,
    sitemap: Annotated[str | None, typer.Option(help="The addresses in this sitemap.")] = None,
    feed: Annotated[str | None, typer.Option(help="The addresses in this RSS, Atom or JSON feed.")] = None,
    only_changed: Annotated[
        bool, typer.Option("--only-changed", help="Of these: only pages that it says have changed since our copy.")
    ] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="Of --file and --command: lines, csv or jsonl; else by its name.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column or field with the addresses, in CSV or JSON.")] = None,
    max_urls: Annotated[int | None, typer.Option(min=1, help="So many addresses at most.")] = None,
    kind: Annotated[str | None, typer.Option(help="The callback, or the kind of page, for these addresses.")] = None,
    priority: Annotated[int, typer.Option(help="Of these addresses; more goes first.")] = 0,
    min_age: Annotated[str | None, typer.Option(help="Leave out pages that were fetched less than this ago.")] = None,
    window: Annotated[
        list[str] | None, typer.Option("--window", help="Fetch only then: '22:00-06:00 Europe/Berlin'.")
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="When a run is due and the one before still goes on.")
    ] = Overlap.SKIP,
    limit: Annotated[int | None, typer.Option(min=1, help="So many pages in each run at most.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="So many fetches a day, where pages change most.")] = None,
    min_interval: Annotated[str | None, typer.Option(help="With a budget: fetch no page more often.")] = None,
    max_interval: Annotated[str | None, typer.Option(help="With a budget: fetch every page so often.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change the one of that name.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even if the spider is not found on this machine.")] = False,
) -> None:
    """Add a schedule. It is kept with the queue, for all schedulers and workers of the project."""
    settings = settings_with()
    table = ScheduleTable(
        spider=spider,
        every=every,
        cron=cron,
        at=at,
        zone=zone,
        windows="; ".join(windows_of(window or ())),
        overlap=overlap.value,
        urls=tuple(url) if url else None,
        file=file,
        command=command if shell else words_of("--command", command),
        shell=True if shell else None,
        timeout=duration_of("--timeout", timeout),
        max_output=size_of("--max-output", max_output),
        format=form,
        sitemap=sitemap,
        feed=feed,
        only_changed=True if only_changed else None,
        column=column,
        max_urls=max_urls,
        kind=kind or "",
        priority=priority,
        min_age=duration_of("--min-age", min_age),
        limit=limit,
        budget=budget,
        min_interval=duration_of("--min-interval", min_interval),
        max_interval=duration_of("--max-interval", max_interval),
    )
    try:
        schedule = schedule_of(name, table)
    except Misconfigured as error:
        raise Misconfigured(in_flags(str(error))) from error
    if name in settings.schedules:
        raise Misconfigured(in_file(settings, name, "change it"))
    starts = demand_spider(settings, schedule, force=force)

    async def add() -> tuple[ScheduleProgress, float, bool, float | None, list[str]]:
        async with open_project(settings, to_look=True) as project:
            demand_future(schedule, project.clock.now())
            known = [one for one in await project.state.schedules.schedules() if one.schedule.name == name]
            if any(one.origin == FILE and one.withdrawn_at is None for one in known):
                raise Misconfigured(in_file(settings, name, "change it"))
            if not await project.state.schedules.put(schedule, origin=ADDED, replace=replace):
                raise Misconfigured(
                    f"There is a schedule {name!r} already. Add --replace to change it, or choose another name."
                )
            going = [job.id for job in await project.state.jobs.running_jobs() if job.schedule == name]
            leads = await project.state.schedules.leader() is not None
            standing = await found(project, settings, name)
            last = await project.state.jobs.job(standing.last_job) if standing.last_job else None
            return standing, project.clock.now(), leads, None if last is None else last.due, going

    standing, now, leads, last_due, going = run_async(add())
    when = first_run(standing, now, leads=leads, last=last_due)
    out.print(f"Schedule {visible(name)}: {describe(trigger_of(schedule))}; {when}.", markup=False)
    for job in going:
        out.print(f"{visible(job)} goes on under the terms with which it began.", markup=False)
    for warning in cautions(settings, standing, starts, now):
        err.print(Text(f"Warning: {visible(warning)}", style="yellow"), soft_wrap=True)
    advise(
        ("gossamer up", "a scheduler and a worker on this machine"),
        (f"gossamer schedule show {shlex.quote(name)}", "where it stands"),
    )


def first_run(standing: ScheduleProgress, now: float, *, leads: bool, last: float | None) -> str:
    """When it will run; `last` is the moment that its last run was for."""
    if standing.paused:
        return f"it is paused, and runs when it is resumed: gossamer schedule resume {visible(standing.schedule.name)}"
    first, skipped = next_run(standing, now, last)
    early = f"{many(skipped, 'tick')} before it, too early for a single fetch of the budget, will be skipped"
    if first is None:
        return "no tick to come gets a single fetch of the budget" if skipped else "it is never due again"
    when = at_its_place(standing, first, now)
    if first <= now:
        when = "at once" if leads else "as soon as a scheduler runs"
    return f"next run {when}" + (f"; {early}" if skipped else "")


def words_of(option: str, text: str | None) -> tuple[str, ...] | None:
    """A command line as its words. No shell reads it."""
    if text is None:
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # Not shown, for it may hold a password.
        raise Misconfigured(f"{option} cannot be taken apart into words: {error}. Mend its quotes.") from error


def duration_of(option: str, text: str | None) -> timedelta | None:
    try:
        return parse_duration(text) if text is not None else None
    except ValueError as error:
        raise Misconfigured(f"{option}: {error}.") from error


def size_of(option: str, text: str | None) -> Size | None:
    try:
        return parse_size(text) if text is not None else None
    except ValueError as error:
        raise Misconfigured(f"{option}: {error}.") from error


def windows_of(texts: Sequence[str]) -> Sequence[str]:
    """Raises Misconfigured for one that says nothing: no windows at all would mean that pages are always fetched."""
    for text in texts:
        if not text.strip(" ;"):
            raise Misconfigured(f"--window {text!r} names no window. Write it like 22:00-06:00, or leave it out.")
    return texts


def opening_for(
    settings: Settings,
    schedule: Schedule,
    due: float,
    *,
    budget: int | None = None,
    spiders: Spiders | None = None,
) -> tuple[str, JobTerms]:
    """Name and terms of the job that a run of it becomes. Raises Misconfigured, whatever its spider's code raises."""
    try:
        return opening_of(settings, schedule, due, budget=budget, spiders=spiders)
    except GossamerError:
        raise
    except Exception as error:  # a spider's constructor may raise anything
        raise Misconfigured(
            f"Spider {schedule.spider} cannot be made: {type(error).__name__}: {error}. Mend its file."
        ) from error


def demand_spider(settings: Settings, schedule: Schedule, *, force: bool) -> list[str]:
    """Where the spider starts. Nowhere, if it is not on this machine and `force` lets that be.

    Raises SpiderNotFound; Misconfigured for a spider that is faulty or has no such callback.
    """
    spiders = Spiders(settings)
    try:
        opening_for(settings, schedule, 0.0, spiders=spiders)
    except SpiderNotFound as error:
        if force:
            return []
        raise SpiderNotFound(f"{error} If it is on other machines only, add --force.") from error
    return [] if "://" in schedule.spider else list(spiders.find(schedule.spider).start_urls)


def demand_future(schedule: Schedule, now: float) -> None:
    """Raises Misconfigured for a schedule whose only moment is past."""
    trigger = trigger_of(schedule)
    if isinstance(trigger, Once) and trigger.at <= now:
        raise Misconfigured(
            f"{in_zone(trigger.at, trigger.zone)} is past by {span(now - trigger.at)}, so it would never run. Give a "
            "moment to come, or begin it now with `gossamer crawl`."
        )
