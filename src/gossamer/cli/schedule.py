"""`gossamer schedule`: what is scraped, and when. Look at schedules, pause and resume one, run one now, add and remove.

Those of gossamer.toml are listed with the others; they are changed and removed in that file only.
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from msgspec.structs import asdict
from rich.text import Text

from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.schedule import Overlap
from ..project.jobs import window_words
from ..project.open import Project, is_crawled, open_project
from ..project.schedule_changes import (
    BadSchedule,
    Key,
    ScheduleAdded,
    add_schedule,
    demand_schedule,
    new_schedule,
    pause_schedule,
    remove_schedule,
    resume_schedule,
    run_schedule,
)
from ..project.schedules import (
    ScheduleDetail,
    ScheduleList,
    ScheduleNote,
    ScheduleView,
    list_schedules,
    show_schedule,
    unstarted_schedule,
    unstarted_schedules,
)
from ..project.timetable import SKIPPED, UNREAD, in_zone
from ..settings import FILE_NAME, ScheduleTable, Settings
from ..units import distance, many, moment, parse_duration, parse_size, seconds_of, visible
from .app import (
    ArgumentOption,
    MaxChangeOption,
    MaxDeadShareOption,
    MinPagesOption,
    MinRecordsOption,
    app,
    ask,
    ask_at,
    err,
    out,
    run_async,
    settings_with,
)
from .jobs import print_jobs
from .layout import Column, advise, heading, number, print_facts, print_json, print_table

T = TypeVar("T")

TICKS_SHOWN = 10

schedule_app = typer.Typer(help="What is scraped, and when.", no_args_is_help=True)
app.add_typer(schedule_app, name="schedule")

NameArgument = Annotated[str, typer.Argument(help="The name of a schedule.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


# -- looking -----------------------------------------------------------------------------------------------------


@schedule_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the schedules: what, when, and where each stands."""
    found = _list()
    if as_json:
        print_json(found.entries)
        return
    if not found.entries:
        words = f"No schedules. `gossamer schedule add` makes one; so does a table [schedules.NAME] in {FILE_NAME}."
        out.print(words, markup=False)
        return
    now = seconds_of(found.now)
    print_table(
        (
            Column("NAME", "bold"), Column("SPIDER", spare=1), Column("WHEN", fold=True), Column("SOURCE", spare=5),
            Column("STATE"), Column("NEXT"), Column("LAST", spare=2), Column("LAST JOB", spare=4),
            Column("LAST RUN"), Column("RUNS", right=True, spare=2), Column("SKIPPED", right=True, spare=3),
        ),
        [
            (
                one.name, one.spider, one.when, one.source_in_words, one.state, _next(one, now),
                _when(one.last_due, now), one.last_job, one.last_outcome or one.last_standing, number(one.runs),
                number(one.skipped),
            )
            for one in found.schedules
        ],
    )  # fmt: skip
    _print_notes(found, {"file", "ignored", "withdrawn", "trouble", "last run"})


def _list(name: str | None = None, *, ticks: int = 0) -> ScheduleList:
    return ask(
        lambda project: list_schedules(project, name, ticks=ticks),
        empty=lambda settings: unstarted_schedules(settings, SystemClock().now(), name, ticks=ticks),
    )


def _next(one: ScheduleView, now: float) -> str:
    if one.state == UNREAD and one.is_counted and not one.paused:
        return "once read"
    return _until(one.next, now) if one.next is not None and out.is_terminal else one.next or ""


def _when(at: str | None, now: float) -> str:
    return "" if at is None else distance(at, now) if out.is_terminal else at


def _until(at: str, now: float) -> str:
    """How far off a tick is; one that is past runs as soon as a scheduler leads."""
    return "due" if seconds_of(at) <= now else distance(at, now)


def _print_notes(found: ScheduleList, about: set[str], *, leader: bool = True) -> None:
    """What is the matter with the schedules that are listed, and whether a scheduler begins their runs."""
    for broken in found.broken:
        _note(broken.words)
    for one in found.schedules:
        _print_notes_of(one.name, one.notes, about)
    if leader and not found.leads and any(not one.paused for one in found.schedules):
        _note("No scheduler is running; start `gossamer up`.")


def _print_notes_of(name: str, notes: Sequence[ScheduleNote], about: set[str]) -> None:
    for note in notes:
        if note.about in about:
            _note(f"{name}: {note.text}", "dim" if note.about in ("file", "withdrawn") else "yellow")


def _note(words: str, style: str = "yellow") -> None:
    err.print(Text(visible(words), style=style))


@schedule_app.command("show")
def show_verb(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one schedule: its definition, where it stands, its last runs and its next ticks."""
    one, now = ask_at(
        lambda project: show_schedule(project, name),
        empty=lambda settings: unstarted_schedule(settings, SystemClock().now(), name),
    )
    if as_json:
        print_json(one)
        return
    heading(one.name, one.state)
    print_facts(_facts(settings_with(), one, now))
    if one.last_runs:
        out.print()
        heading("Last runs")
        print_jobs(one.last_runs, now, indent=2)
    if one.next_ticks:
        out.print()
        heading("Next ticks")
        print_table(
            (Column("LOCAL TIME"), Column("", "dim"), Column(one.zone)),
            [(moment(at), _until(at, now), in_zone(at, one.zone)) for at in one.next_ticks],
            indent=2,
        )
    _print_notes_of(one.name, one.notes, {"file", "ignored", "withdrawn", "last run"})  # its trouble stands above
    if not one.leads and not one.paused:
        _note("No scheduler is running; start `gossamer up`.")


def _facts(settings: Settings, one: ScheduleDetail, now: float) -> list[tuple[str, object]]:
    origin = settings.root / FILE_NAME if one.origin == "file" else f"added {moment(one.created_at, now)}"
    trouble = f"{one.trouble} ({many(one.failures, 'try', 'tries')} in a row{_again(one.retry_at, one.leads, now)})"
    missed = f"its moment is past, and it did not run. To begin a run now: gossamer schedule run {one.name}"
    skipped = many(one.skipped, "tick")
    if one.skip_reason:
        skipped += f", the last because {SKIPPED.get(one.skip_reason, one.skip_reason)}"
    return [
        ("spider", one.spider),
        ("arguments", ", ".join(one.arguments)),
        ("when", one.when),
        ("source", one.source_in_words),
        ("windows", window_words(one.windows, now)),
        ("most URLs", f"{one.max_urls:,}" if one.max_urls is not None else ""),
        ("kind of page", one.kind),
        ("priority", one.priority or ""),
        ("minimum age", one.min_age),
        ("overlap", one.overlap.value),
        ("limit", one.limit),
        ("budget", f"{one.budget:,} fetches a day" if one.budget is not None else ""),
        ("min interval", one.min_interval),
        ("max interval", one.max_interval),
        ("expected", ", ".join(f"{key} {value:g}" for key, value in asdict(one.expected).items() if value is not None)),
        ("from", origin),
        ("runs", f"{one.runs:,} so far"),
        ("skipped", skipped if one.skipped else ""),
        ("last tick", moment(one.last_due, now)),
        ("missed", Text(missed, style="yellow") if one.missed else ""),
        ("last run", f"{one.last_job}: {one.last_in_words}" if one.last_in_words is not None else one.last_job),
        ("waiting", f"the run of {moment(one.waiting_due)}" if one.waiting_due is not None else ""),
        ("trouble", Text(visible(trouble), style="yellow") if one.trouble else ""),
    ]


def _again(at: str | None, leads: bool, now: float) -> str:
    if at is None:
        return ""
    if seconds_of(at) > now:
        return f", tried again at {moment(at, now)}"
    return f", tried again {'at once' if leads else 'when a scheduler runs'}"


@schedule_app.command("next")
def next_verb(
    name: Annotated[str | None, typer.Argument(help="Only of this schedule.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="The number of ticks.")] = TICKS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the coming ticks, of all schedules in their order."""
    found = _list(name, ticks=count)
    if as_json:
        print_json(found.ticks)
        return
    now, zones = seconds_of(found.now), {one.name: one.zone for one in found.schedules}
    paused = [one.name for one in found.schedules if one.paused]
    if found.ticks:
        print_table(
            (Column("LOCAL TIME"), Column("IN", "dim"), Column("SCHEDULE", "bold"), Column("ON ITS CLOCK")),
            [
                (moment(tick.at), _until(tick.at, now), tick.schedule, in_zone(tick.at, zones[tick.schedule]))
                for tick in found.ticks
            ],
        )
    elif paused:
        be = "is" if len(paused) == 1 else "are"
        out.print(visible(f"Nothing is due as long as {', '.join(paused)} {be} paused."), markup=False)
    else:
        out.print("Nothing is due any more." if found.schedules else "No schedules.")
    _print_notes(found, {"file", "withdrawn", "trouble"}, leader=False)
    if paused and found.ticks:
        err.print(Text(visible(f"Left out, because paused: {', '.join(paused)}."), style="dim"))


# -- changing ----------------------------------------------------------------------------------------------------


def _change(name: str, act: Callable[[Project], Awaitable[T]]) -> T:
    """Let `act` change the schedule of that name in the open project."""
    settings = settings_with()

    async def change() -> T:
        if not is_crawled(settings):  # a name that is not there was mistyped: nothing is created
            demand_schedule(settings, name, SystemClock().now())
        async with open_project(settings, to_look=True) as project:
            return await act(project)

    return run_async(change())


def _say(words: str, running: Sequence[str] = ()) -> None:
    still = "".join(f" Its job {job} goes on; `gossamer job cancel {job}` ends it." for job in running)
    out.print(visible(words + still), markup=False)


@schedule_app.command("pause")
def pause_verb(name: NameArgument) -> None:
    """Let a schedule rest: its ticks are skipped. A job of it that runs goes on."""
    done = _change(name, lambda project: pause_schedule(project, name))
    if done.changed:
        _say(f"Schedule {name} is paused: its ticks are skipped.", done.running)
    else:
        _say(f"Schedule {name} is paused already.")


@schedule_app.command("resume")
def resume_verb(name: NameArgument) -> None:
    """Let a paused schedule go on with its next tick."""
    done = _change(name, lambda project: resume_schedule(project, name))
    if done.changed:
        _say(f"Schedule {name} goes on. Next run: {done.next_run}.")
    else:
        _say(f"Schedule {name} is not paused.")


@schedule_app.command("run")
def run_verb(
    name: NameArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the run that is going, and begin this one in its place.")
    ] = False,
) -> None:
    """Begin a run now, besides its ticks. Workers take it up at once; no scheduler is needed."""
    begun = _change(name, lambda project: run_schedule(project, name, replace=replace))
    _say(f"{begun.job} is begun. Workers take it up; see: gossamer job show {begun.job}")
    if begun.note:
        _note(begun.note)


@schedule_app.command("remove")
def remove_verb(name: NameArgument) -> None:
    """Remove a schedule. Its jobs stay, and one that runs goes on."""
    done = _change(name, lambda project: remove_schedule(project, name))
    _say(f"Schedule {name} is removed.", done.running)


# -- adding ------------------------------------------------------------------------------------------------------


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
    timeout: Annotated[str | None, typer.Option(help="With --command: how long it may run; 10m if not given.")] = None,
    max_output: Annotated[
        str | None, typer.Option(help="With --command: how much it may print; 256MiB if not given.")
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
    max_urls: Annotated[int | None, typer.Option(min=1, help="Take at most this many addresses.")] = None,
    kind: Annotated[str | None, typer.Option(help="The callback, or the kind of page, for these addresses.")] = None,
    argument: ArgumentOption = None,
    priority: Annotated[int, typer.Option(help="Of these addresses; more goes first.")] = 0,
    min_age: Annotated[str | None, typer.Option(help="Leave out pages that were fetched less than this ago.")] = None,
    window: Annotated[
        list[str] | None, typer.Option("--window", help="Fetch only then: '22:00-06:00 Europe/Berlin'.")
    ] = None,
    overlap: Annotated[
        Overlap, typer.Option(help="When a run is due and the one before still goes on.")
    ] = Overlap.SKIP,
    limit: Annotated[int | None, typer.Option(min=1, help="Fetch at most this many pages in each run.")] = None,
    budget: Annotated[int | None, typer.Option(min=1, help="Fetches a day, spent where pages change most.")] = None,
    min_interval: Annotated[str | None, typer.Option(help="With a budget: fetch no page more often.")] = None,
    max_interval: Annotated[str | None, typer.Option(help="With a budget: fetch no page less often.")] = None,
    min_records: MinRecordsOption = None,
    min_pages: MinPagesOption = None,
    max_dead_share: MaxDeadShareOption = None,
    max_change: MaxChangeOption = None,
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
        raise Misconfigured(error.told(in_flags)) from error

    async def add() -> ScheduleAdded:
        async with open_project(settings, to_look=True) as project:
            return await add_schedule(project, new, replace=replace)

    done = run_async(add())
    out.print(f"Schedule {visible(name)}: {done.when}; {visible(done.first_run)}.", markup=False)
    for job in done.going:
        out.print(f"{visible(job)} goes on under the terms with which it began.", markup=False)
    for warning in done.warnings:
        err.print(Text(f"Warning: {visible(warning)}", style="yellow"))
    advise(
        ("gossamer up", "a scheduler and a worker on this machine"),
        (f"gossamer schedule show {shlex.quote(name)}", "where it stands"),
    )


def in_flags(key: Key) -> str:
    """A key of a schedule's table as its flag: `--min-interval`, `--every 6h`, `--shell`."""
    if key.name == "start":
        return "none of these"  # the spider's own start is what comes without a flag
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
    """A command line as its words. No shell reads it."""
    if text is None:
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # Not shown, for it may hold a password.
        raise Misconfigured(f"{option} cannot be taken apart into words: {error}. Mend its quotes.") from error


def _value(option: str, text: str | None, read: Callable[[str], T]) -> T | None:
    try:
        return read(text) if text is not None else None
    except ValueError as error:
        raise Misconfigured(f"{option}: {error}.") from error


def _windows(texts: Sequence[str]) -> Sequence[str]:
    """Raises Misconfigured for one that says nothing: no windows at all would mean that pages are always fetched."""
    if empty := [text for text in texts if not text.strip(" ;")]:
        raise Misconfigured(f"--window {empty[0]!r} names no window. Write it like 22:00-06:00, or leave it out.")
    return texts
