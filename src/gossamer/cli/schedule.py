"""`gossamer schedule`: list and show schedules, pause and resume one, run one now, remove one; schedule_add.py adds
one.

Schedules of gossamer.toml are listed with the others, but can only be changed and removed in that file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer
from msgspec.structs import asdict
from rich.text import Text

from ..clock import SystemClock
from ..project.jobs.jobs import window_words
from ..project.open import Project, is_crawled, open_project
from ..project.schedules.changes import demand_schedule, pause_schedule, remove_schedule, resume_schedule, run_schedule
from ..project.schedules.schedules import (
    ScheduleDetail,
    ScheduleList,
    ScheduleNote,
    ScheduleView,
    list_schedules,
    show_schedule,
    unstarted_schedule,
    unstarted_schedules,
)
from ..project.schedules.timetable import SKIPPED, UNREAD, in_zone
from ..settings import FILE_NAME, Settings
from ..units import distance, many, moment, seconds_of, visible
from .app import app, ask, ask_at, err, out, run_async, settings_with
from .jobs import print_jobs
from .layout import Column, answer_program, heading, number, print_facts, print_table, section
from .options import JsonOption

T = TypeVar("T")

TICKS_SHOWN = 10

schedule_app = typer.Typer(help="What is scraped, and when.", no_args_is_help=True)
app.add_typer(schedule_app, name="schedule")

NameArgument = Annotated[str, typer.Argument(help="The name of a schedule.")]


# -- looking -----------------------------------------------------------------------------------------------------


@schedule_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the schedules: what they scrape, when, and their state."""
    found = _list()
    answer_program(found.entries, as_json)
    if not found.entries:
        words = f"No schedules. Add one with `gossamer schedule add`, or with a table [schedules.NAME] in {FILE_NAME}."
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
                _when(one.last_due, now), one.last_job, one.last_outcome or one.last_phase, number(one.runs),
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
    if one.next is None or not out.is_terminal:
        return one.next or ""
    return "due" if one.due else distance(one.next, now)


def _when(at: str | None, now: float) -> str:
    return "" if at is None else distance(at, now) if out.is_terminal else at


def _until(at: str, now: float) -> str:
    """The time until a tick; an overdue one runs as soon as a scheduler leads."""
    return "due" if seconds_of(at) <= now else distance(at, now)


def _print_notes(found: ScheduleList, about: set[str], *, leader: bool = True) -> None:
    """Print the problems of the listed schedules, and whether a scheduler is running."""
    for broken in found.broken:
        _note(broken.words)
    for one in found.schedules:
        _print_notes_of(one.name, one.notes, about)
    if leader and not found.leads and any(not one.paused for one in found.schedules):
        _note("No scheduler is running: start `gossamer up`, or wait until it has started.")


def _print_notes_of(name: str, notes: Sequence[ScheduleNote], about: set[str]) -> None:
    for note in notes:
        if note.about in about:
            _note(f"{name}: {note.text}", "dim" if note.about in ("file", "withdrawn") else "yellow")


def _note(words: str, style: str = "yellow") -> None:
    err.print(Text(visible(words), style=style))


@schedule_app.command("show")
def show_verb(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one schedule: its definition, state, last runs and next ticks."""
    one, now = ask_at(
        lambda project: show_schedule(project, name),
        empty=lambda settings: unstarted_schedule(settings, SystemClock().now(), name),
    )
    answer_program(one, as_json)
    heading(one.name, one.state)
    print_facts(_facts(settings_with(), one, now))
    if one.last_runs:
        section("Last runs")
        print_jobs(one.last_runs, now, indent=2)
    if one.next_ticks:
        section("Next ticks")
        print_table(
            (Column("LOCAL TIME"), Column("", "dim"), Column(one.zone)),
            [(moment(at), _until(at, now), in_zone(at, one.zone)) for at in one.next_ticks],
            indent=2,
        )
    _print_notes_of(one.name, one.notes, {"file", "ignored", "withdrawn", "last run"})  # its trouble is printed above
    if not one.leads and not one.paused:
        _note("No scheduler is running: start `gossamer up`, or wait until it has started.")


def _facts(settings: Settings, one: ScheduleDetail, now: float) -> list[tuple[str, object]]:
    origin = settings.root / FILE_NAME if one.origin == "file" else f"added {moment(one.created_at, now)}"
    trouble = f"{one.trouble} ({many(one.failures, 'try', 'tries')} in a row{_again(one.retry_at, one.leads, now)})"
    missed = f"its time has passed without a run. To start one now: gossamer schedule run {one.name}"
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
        ("rate", one.rate),
        ("requests at once", one.site_concurrency),
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
    name: Annotated[str | None, typer.Argument(help="Only this schedule.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="The number of ticks.")] = TICKS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the next ticks of all schedules, in order."""
    found = _list(name, ticks=count)
    answer_program(found.ticks, as_json)
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
        out.print(visible(f"Nothing is due while {', '.join(paused)} {be} paused."), markup=False)
    else:
        out.print("Nothing will be due again." if found.schedules else "No schedules.")
    _print_notes(found, {"file", "withdrawn", "trouble"}, leader=False)
    if paused and found.ticks:
        err.print(Text(visible(f"Left out because paused: {', '.join(paused)}."), style="dim"))


# -- changing ----------------------------------------------------------------------------------------------------


def _change(name: str, act: Callable[[Project], Awaitable[T]]) -> T:
    """Let `act` change the schedule of that name in the open project."""
    settings = settings_with()

    async def change() -> T:
        if not is_crawled(settings):  # an unknown name is a typing error: create nothing
            demand_schedule(settings, name, SystemClock().now())
        async with open_project(settings, to_look=True) as project:
            return await act(project)

    return run_async(change())


def _say(words: str, running: Sequence[str] = ()) -> None:
    still = "".join(f" Its job {job} continues; `gossamer job cancel {job}` ends it." for job in running)
    out.print(visible(words + still), markup=False)


@schedule_app.command("pause")
def pause_verb(name: NameArgument) -> None:
    """Pause a schedule: its ticks are skipped. A running job continues."""
    done = _change(name, lambda project: pause_schedule(project, name))
    if done.changed:
        _say(f"Schedule {name} is paused: its ticks are skipped.", done.running)
    else:
        _say(f"Schedule {name} is paused already.")


@schedule_app.command("resume")
def resume_verb(name: NameArgument) -> None:
    """Resume a paused schedule with its next tick."""
    done = _change(name, lambda project: resume_schedule(project, name))
    if done.changed:
        _say(f"Schedule {name} is resumed. Next run: {done.next_run}.")
    else:
        _say(f"Schedule {name} is not paused.")


@schedule_app.command("run")
def run_verb(
    name: NameArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the current run, and start this one in its place.")
    ] = False,
) -> None:
    """Start a run now, in addition to the ticks. Workers pick it up at once; no scheduler is needed."""
    begun = _change(name, lambda project: run_schedule(project, name, replace=replace))
    _say(f"{begun.job} has started. Workers pick it up; see: gossamer job show {begun.job}")
    if begun.note:
        _note(begun.note)


@schedule_app.command("remove")
def remove_verb(name: NameArgument) -> None:
    """Remove a schedule. Its jobs stay, and a running one continues."""
    done = _change(name, lambda project: remove_schedule(project, name))
    _say(f"Schedule {name} is removed.", done.running)
