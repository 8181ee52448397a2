"""`gossamer schedule`: what is scraped, and when. Look at schedules, let them rest, run one now, remove them.

Those of gossamer.toml are listed with the others; they are changed and removed in that file only.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from ..clock import iso_time
from ..errors import Misconfigured, Transient
from ..model.schedule import ScheduleProgress
from ..project.jobs import JobView, views_of, window_words
from ..project.open import Project, is_crawled, open_project
from ..schedule.decisions import run_now
from ..schedule.runs import share_of
from ..schedule.triggers import describe
from ..settings import FILE_NAME, Settings
from ..text import distance, many, moment, visible
from .adding import opening_for  # which also brings the verb `add`
from .app import err, out, run_async, settings_with
from .jobs import print_jobs
from .layout import Column, heading, number, print_facts, print_json, print_table
from .schedules import (
    FILE,
    JsonOption,
    Listing,
    NameArgument,
    in_file,
    listing_of,
    look,
    print_notes,
    schedule_app,
    with_one,
)
from .timetable import (
    at_its_place,
    coming,
    definition,
    in_zone,
    is_counted,
    missed_words,
    next_tick,
    skipped_words,
    source_words,
    standing_json,
    state_of,
    trigger_of,
    until,
)

TICKS_SHOWN = 10
TICKS_OF_ONE = 5
RUNS_SHOWN = 5
RUN_TRIES = 50
RUN_PAUSE = timedelta(milliseconds=100)  # between two of them


# -- looking -----------------------------------------------------------------------------------------------------


@schedule_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the schedules: what, when, and where each stands."""
    listing = run_async(look(settings_with()))
    if as_json:
        broken = [{"name": one.name, "state": "unreadable", "trouble": one.why} for one in listing.unreadable]
        print_json([*(_json(one, listing) for one in listing.standings), *broken])
        return
    if not listing.standings and not listing.unreadable:
        words = f"No schedules. `gossamer schedule add` makes one; so does a table [schedules.NAME] in {FILE_NAME}."
        out.print(words, markup=False)
        return
    print_table(
        (
            Column("NAME", "bold"), Column("SPIDER", spare=1), Column("WHEN", fold=True), Column("SOURCE", spare=5),
            Column("STATE"), Column("NEXT"), Column("LAST", spare=2), Column("LAST JOB", spare=4),
            Column("LAST RUN"), Column("RUNS", right=True, spare=2), Column("SKIPPED", right=True, spare=3),
        ),
        [_row(one, listing) for one in listing.standings],
    )  # fmt: skip
    print_notes(listing)


def _json(standing: ScheduleProgress, listing: Listing) -> dict[str, Any]:
    run = listing.last_runs.get(standing.schedule.name)
    return {
        **standing_json(standing, listing.now, unread=listing.is_unread(standing)),
        "last_standing": run.standing if run is not None else None,
        "last_ending": run.ending if run is not None else None,
        "file_ignored": standing.schedule.name in listing.ignored,
        "file_differs": listing.is_behind(standing),
    }


def _row(standing: ScheduleProgress, listing: Listing) -> list[str]:
    schedule, now = standing.schedule, listing.now
    run = listing.last_runs.get(schedule.name)
    return [
        schedule.name,
        schedule.spider,
        describe(trigger_of(schedule)),
        source_words(schedule),
        state_of(standing, now, unread=listing.is_unread(standing)),
        _next(standing, listing),
        _when(standing.last_due, now),
        standing.last_job,
        run.standing if run is not None else "",
        number(standing.runs),
        number(standing.skipped),
    ]


def _next(standing: ScheduleProgress, listing: Listing) -> str:
    if standing.paused:
        return ""
    if listing.is_unread(standing) and is_counted(standing):
        return "once read"
    due = next_tick(standing, listing.now)
    if due is not None and out.is_terminal:
        return until(due, listing.now)
    return _when(due, listing.now)


def _when(at: float | None, now: float) -> str:
    if at is None:
        return ""
    return distance(at, now) if out.is_terminal else iso_time(at)


@schedule_app.command("show")
def show_verb(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one schedule: its definition, where it stands, its last runs and its next ticks."""
    settings = settings_with()

    async def find() -> tuple[Listing, list[JobView]]:
        if not is_crawled(settings):
            return await look(settings, name), []
        async with open_project(settings, to_look=True) as project:
            listing = await listing_of(project, settings, name)
            jobs = [job for job in await project.state.jobs.jobs() if job.schedule == name]
            return listing, await views_of(project, jobs[:RUNS_SHOWN])

    listing, runs = run_async(find())
    (standing,), now = listing.standings, listing.now
    ticks = [] if standing.paused else coming([standing], now, TICKS_OF_ONE)
    if as_json:
        print_json(
            {
                **_json(standing, listing),
                "next_ticks": [iso_time(tick.at) for tick in ticks],
                "last_runs": runs,
            }
        )
        return
    _show(settings, standing, listing)
    if runs:
        out.print()
        heading("Last runs")
        print_jobs(runs, listing.now, indent=2)
    if ticks:
        out.print()
        heading("Next ticks")
        print_table(
            (Column("LOCAL TIME"), Column("", "dim"), Column(standing.schedule.zone)),
            [(moment(tick.at), until(tick.at, now), in_zone(tick.at, standing.schedule.zone)) for tick in ticks],
            indent=2,
        )
    print_notes(msgspec.structs.replace(listing, standings=[msgspec.structs.replace(standing, trouble="")]))


def _show(settings: Settings, standing: ScheduleProgress, listing: Listing) -> None:
    schedule, now = standing.schedule, listing.now
    heading(schedule.name, state_of(standing, now, unread=listing.is_unread(standing)))
    origin = settings.root / FILE_NAME if standing.origin == FILE else f"added {moment(standing.created_at, now)}"
    trouble = ""
    if standing.trouble:
        again = f", tried again {_again(standing.retry_at, listing)}" if standing.retry_at is not None else ""
        trouble = f"{standing.trouble} ({many(standing.failures, 'try', 'tries')} in a row{again})"
    run, missed = listing.last_runs.get(schedule.name), missed_words(standing, now)
    print_facts(
        [
            ("spider", schedule.spider),
            ("when", describe(trigger_of(schedule))),
            ("source", source_words(schedule)),
            ("windows", window_words(schedule.windows, now)),
            *definition(schedule),
            ("from", origin),
            ("runs", f"{standing.runs:,} so far"),
            ("skipped", skipped_words(standing)),
            ("last tick", moment(standing.last_due, now)),
            ("missed", Text(missed, style="yellow") if missed else ""),
            ("last run", f"{standing.last_job}: {run.in_words}" if run is not None else standing.last_job),
            ("waiting", f"the run of {moment(standing.waiting_due)}" if standing.waiting_due is not None else ""),
            ("trouble", Text(visible(trouble), style="yellow") if trouble else ""),
        ]
    )


def _again(at: float, listing: Listing) -> str:
    if at > listing.now:
        return f"at {moment(at, listing.now)}"
    return "at once" if listing.leader is not None else "when a scheduler runs"


@schedule_app.command("next")
def next_verb(
    name: Annotated[str | None, typer.Argument(help="Only of this schedule.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="So many ticks.")] = TICKS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the coming ticks, of all schedules in their order."""
    listing = run_async(look(settings_with(), name))
    standings, now = listing.standings, listing.now
    paused = [one.schedule.name for one in standings if one.paused]
    zones = {one.schedule.name: one.schedule.zone for one in standings}
    ticks = coming([one for one in standings if not one.paused], now, count)
    if as_json:
        print_json([{"schedule": tick.schedule, "at": iso_time(tick.at)} for tick in ticks])
        return
    if ticks:
        print_table(
            (Column("LOCAL TIME"), Column("IN", "dim"), Column("SCHEDULE", "bold"), Column("ON ITS CLOCK")),
            [
                (moment(tick.at), until(tick.at, now), tick.schedule, in_zone(tick.at, zones[tick.schedule]))
                for tick in ticks
            ],
        )
    elif paused:
        be = "is" if len(paused) == 1 else "are"
        out.print(visible(f"Nothing is due as long as {', '.join(paused)} {be} paused."), markup=False)
    else:
        out.print("Nothing is due any more." if standings else "No schedules.")
    print_notes(msgspec.structs.replace(listing, ignored=frozenset(), last_runs={}), leader=False)
    if paused and ticks:
        err.print(Text(visible(f"Left out, because paused: {', '.join(paused)}."), style="dim"), soft_wrap=True)


# -- changing ----------------------------------------------------------------------------------------------------


@schedule_app.command("pause")
def pause_verb(name: NameArgument) -> None:
    """Let a schedule rest: its ticks are skipped. A job of it that runs goes on."""

    async def pause(project: Project, standing: ScheduleProgress) -> str:
        if standing.paused:
            return f"Schedule {name} is paused already."
        await _pause(project, standing, True)
        return f"Schedule {name} is paused: its ticks are skipped.{await _still_running(project, name)}"

    with_one(name, pause)


@schedule_app.command("resume")
def resume_verb(name: NameArgument) -> None:
    """Let a paused schedule go on with its next tick."""

    async def resume(project: Project, standing: ScheduleProgress) -> str:
        if not standing.paused:
            return f"Schedule {name} is not paused."
        await _pause(project, standing, False)
        now = project.clock.now()
        due = next_tick(standing.rested(False, now), now)
        return f"Schedule {name} goes on. Next run: {'never' if due is None else at_its_place(standing, due, now)}."

    with_one(name, resume)


async def _pause(project: Project, standing: ScheduleProgress, paused: bool) -> None:
    name = standing.schedule.name
    if not await project.state.schedules.pause(name, paused):  # one of the file that no scheduler has met yet
        await project.state.schedules.put(standing.schedule, origin=standing.origin)
        await project.state.schedules.pause(name, paused)


@schedule_app.command("run")
def run_verb(
    name: NameArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the run that is going, and begin this one in its place.")
    ] = False,
) -> None:
    """Begin a run now, besides its ticks. Workers take it up at once; no scheduler is needed."""

    async def begin(project: Project, standing: ScheduleProgress) -> str:
        for _ in range(RUN_TRIES):  # somebody may change the schedule, or begin another run, while we write
            going = [job for job in await project.state.jobs.running_jobs() if job.name == name][-1:]
            if going and not replace:
                (job,) = going
                raise Misconfigured(
                    f"{job.id} is still {'paused' if job.paused else 'running'}. Wait for it, end it with `gossamer "
                    f"job cancel {job.id}`, or add --replace."
                )
            kept, now = await _kept(project, standing), project.clock.now()
            share = await share_of(project.state.jobs, kept, now, now, by_hand=True)
            budget = None if share is None else max(1, share)
            opening = opening_for(project.settings, standing.schedule, now, budget=budget)
            replaces = going[0].id if going else ""
            settled = await project.state.schedules.begin(kept, run_now(kept), opening, replaces=replaces)
            if settled is not None:
                begun = settled.progress.last_job
                return f"{begun} is begun. Workers take it up; see: gossamer job show {begun}"
            await project.clock.sleep(RUN_PAUSE.total_seconds())
        raise Transient(
            f"Others change schedule {name} or begin runs of it all the time. Nothing was begun; try again."
        )

    with_one(name, begin)


async def _kept(project: Project, standing: ScheduleProgress) -> ScheduleProgress:
    """As it is in the book. One of the file that no scheduler has met yet is entered."""
    name = standing.schedule.name
    while True:
        for one in await project.state.schedules.schedules():
            if one.schedule.name == name:
                return one
        await project.state.schedules.put(standing.schedule, origin=standing.origin)


@schedule_app.command("remove")
def remove_verb(name: NameArgument) -> None:
    """Remove a schedule. Its jobs stay, and one that runs goes on."""
    settings = settings_with()

    async def remove(project: Project, standing: ScheduleProgress) -> str:
        if standing.origin == FILE and name in settings.schedules:
            raise Misconfigured(in_file(settings, name, "remove it"))
        return await remove_any(project)

    async def remove_any(project: Project) -> str:
        await project.state.schedules.remove(name)
        return f"Schedule {name} is removed.{await _still_running(project, name)}"

    with_one(name, remove, unreadable=remove_any)


async def _still_running(project: Project, name: str) -> str:
    jobs = [job.id for job in await project.state.jobs.running_jobs() if job.schedule == name]
    return "".join(f" Its job {job} goes on; `gossamer job cancel {job}` ends it." for job in jobs)
