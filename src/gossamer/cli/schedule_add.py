"""`gossamer schedule add`: add a schedule from flags. It is kept in the state, not written to gossamer.toml."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer

from ..errors import Misconfigured
from ..model.schedule import Overlap
from ..project.open import open_project
from ..project.schedules.changes import BadSchedule, Key, ScheduleAdded, add_schedule, new_schedule
from ..settings import ScheduleTable
from ..units import parse_duration, parse_rate, parse_size, visible
from .app import out, run_async, settings_with
from .layout import advise, warn
from .options import ArgumentOption, MaxChangeOption, MaxDeadShareOption, MinPagesOption, MinRecordsOption
from .schedule import schedule_app

T = TypeVar("T")


@schedule_app.command("add")
def add_verb(
    name: Annotated[str, typer.Argument(help="Its name, and the name of its jobs.")],
    spider: Annotated[str, typer.Option("--spider", help="A spider or a recipe by its name, or the URL of a site.")],
    every: Annotated[str | None, typer.Option(help="Run at this interval: 15m, 6h, 7d.")] = None,
    cron: Annotated[str | None, typer.Option(help="Run at the times of a cron expression: '0 3 * * *'.")] = None,
    at: Annotated[str | None, typer.Option(help="Run once, at this time: 2027-01-31T12:00.")] = None,
    zone: Annotated[str, typer.Option(help="The time zone of --cron, --at and --window: Europe/Berlin.")] = "UTC",
    url: Annotated[
        list[str] | None, typer.Option("--url", help="This URL, or a range: 'https://shop.example/p/{1..100}'.")
    ] = None,
    file: Annotated[str | None, typer.Option(help="The URLs in this file: lines, .csv or .jsonl.")] = None,
    command: Annotated[str | None, typer.Option(help="The URLs that this program prints.")] = None,
    shell: Annotated[bool, typer.Option("--shell", help="With --command: run it in a shell.")] = False,
    timeout: Annotated[str | None, typer.Option(help="With --command: how long it may run (default: 10m).")] = None,
    max_output: Annotated[
        str | None, typer.Option(help="With --command: how much it may print (default: 256MiB).")
    ] = None,
    sitemap: Annotated[str | None, typer.Option(help="The URLs in this sitemap.")] = None,
    feed: Annotated[str | None, typer.Option(help="The URLs in this RSS, Atom or JSON feed.")] = None,
    only_changed: Annotated[
        bool,
        typer.Option("--only-changed", help="With --sitemap or --feed: only pages it lists as changed since our copy."),
    ] = False,
    form: Annotated[
        str | None,
        typer.Option("--format", help="With --file or --command: lines, csv or jsonl (default: by file name)."),
    ] = None,
    column: Annotated[str | None, typer.Option(help="The column or field with the URLs, in CSV or JSON.")] = None,
    max_urls: Annotated[int | None, typer.Option(min=1, help="Take at most this many URLs.")] = None,
    kind: Annotated[str | None, typer.Option(help="The callback, or the kind of page, for these URLs.")] = None,
    argument: ArgumentOption = None,
    priority: Annotated[int, typer.Option(help="Of its runs among the jobs; higher ones go first.")] = 0,
    rate: Annotated[str | None, typer.Option(help="Requests of a run to a site, if slower than usual: 30/m.")] = None,
    site_concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests of a run at once at one site, if fewer than usual.")
    ] = None,
    min_age: Annotated[str | None, typer.Option(help="Leave out pages fetched less than this long ago.")] = None,
    window: Annotated[
        list[str] | None, typer.Option("--window", help="Fetch only in this window: '22:00-06:00 Europe/Berlin'.")
    ] = None,
    overlap: Annotated[Overlap, typer.Option(help="What to do when the previous run is still going.")] = Overlap.SKIP,
    limit: Annotated[int | None, typer.Option(min=1, help="Fetch at most this many pages in each run.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Fetches per day, spent where pages change most.")] = None,
    min_interval: Annotated[str | None, typer.Option(help="With a budget: fetch no page more often than this.")] = None,
    max_interval: Annotated[
        str | None, typer.Option(help="With a budget: fetch every page at least this often.")
    ] = None,
    min_records: MinRecordsOption = None,
    min_pages: MinPagesOption = None,
    max_dead_share: MaxDeadShareOption = None,
    max_change: MaxChangeOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace the schedule with that name.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Add it even if this machine does not have the spider.")
    ] = False,
) -> None:
    """Add a schedule. It is kept in the state, for all schedulers and workers of the project."""
    settings = settings_with()
    table = ScheduleTable(
        spider=spider,
        every=every,
        cron=cron,
        at=at,
        zone=zone,
        windows="; ".join(_windows(window or ())),
        overlap=overlap.value,
        urls=tuple(url) if url else None,
        file=file,
        command=command if shell else _words("--command", command),
        shell=True if shell else None,
        timeout=_value("--timeout", timeout, parse_duration),
        max_output=_value("--max-output", max_output, parse_size),
        format=form,
        sitemap=sitemap,
        feed=feed,
        only_changed=True if only_changed else None,
        column=column,
        max_urls=max_urls,
        kind=kind or "",
        arguments=tuple(argument or ()),
        priority=priority,
        rate=_value("--rate", rate, parse_rate),
        site_concurrency=site_concurrency,
        min_age=_value("--min-age", min_age, parse_duration),
        limit=limit,
        budget=budget,
        min_interval=_value("--min-interval", min_interval, parse_duration),
        max_interval=_value("--max-interval", max_interval, parse_duration),
        min_records=min_records,
        min_pages=min_pages,
        max_dead_share=max_dead_share,
        max_change=max_change,
    )
    try:
        new = new_schedule(settings, name, table, force=force)
    except BadSchedule as error:
        raise Misconfigured(error.in_words(in_flags)) from error

    async def add() -> ScheduleAdded:
        async with open_project(settings, to_look=True) as project:
            return await add_schedule(project, new, replace=replace)

    done = run_async(add())
    out.print(f"Schedule {visible(name)}: {done.when}; {visible(done.first_run)}.", markup=False)
    for job in done.going:
        out.print(f"{visible(job)} continues under its old terms.", markup=False)
    for warning in done.warnings:
        warn(f"Warning: {visible(warning)}")
    advise(
        ("gossamer up", "a scheduler and a worker on this machine"),
        (f"gossamer schedule show {shlex.quote(name)}", "where it stands"),
    )


def in_flags(key: Key) -> str:
    """A key of a schedule's table, as its flag: `--min-interval`, `--every 6h`, `--shell`."""
    if key.name == "start":
        return "none of these"  # the default without a flag: the spider's own start
    flag = {"urls": "--url", "windows": "--window"}.get(key.name, f"--{key.name.replace('_', '-')}")
    match key.value:
        case None | True:
            return flag
        case tuple(words) if key.name == "command":
            return f'{flag} "{shlex.join(words)}"'
        case tuple(texts):
            return " ".join(f"{flag} {shlex.quote(text)}" for text in texts)
        case value:
            return f"{flag} {shlex.quote(str(value))}"


def _words(option: str, text: str | None) -> tuple[str, ...] | None:
    """Split a command line into words. No shell is involved."""
    if text is None:
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # Not shown, because it may contain a password.
        raise Misconfigured(f"{option} cannot be split into words: {error}. Mend its quotes.") from error


def _value(option: str, text: str | None, read: Callable[[str], T]) -> T | None:
    try:
        return read(text) if text is not None else None
    except ValueError as error:
        raise Misconfigured(f"{option}: {error}.") from error


def _windows(texts: Sequence[str]) -> Sequence[str]:
    """Raises Misconfigured for an empty one: no windows at all would mean that pages are always fetched."""
    if empty := [text for text in texts if not text.strip(" ;")]:
        raise Misconfigured(f"--window {empty[0]!r} names no window. Write it like 22:00-06:00, or leave it out.")
    return texts
