"""`gossamer schedule`: what is scraped, and when. Look at schedules, let them rest, run one now, remove them.

Those of gossamer.toml are listed with the others; they are changed and removed in that file only.
"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from ..assembly import System, open_system
from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.schedule import Standing
from ..schedule.spelling import describe
from ..schedule.triggers import next_due
from ..scheduler.deciding import budget_of
from ..settings import FILE_NAME, Settings
from ..store.export import iso_time
from .adding import opening_for  # which also brings the verb `add`
from .app import err, out, run_async, settings_with
from .job import print_runs, run_of
from .layout import (
    Column,
    distance,
    heading,
    many,
    moment,
    number,
    print_facts,
    print_json,
    print_table,
    visible,
)
from .look import is_crawled
from .schedules import FILE, JsonOption, NameArgument, found, in_file, look, merged, named, schedule_app, with_one
from .timetable import (
    Run,
    coming,
    definition,
    in_zone,
    next_tick,
    source_words,
    standing_json,
    state_of,
    trigger_of,
    until,
    window_words,
)

TICKS_SHOWN = 10
TICKS_OF_ONE = 5
RUNS_SHOWN = 5


# -- looking -----------------------------------------------------------------------------------------------------


@schedule_app.command("list")
def list_verb(as_json: JsonOption = False) -> None:
    """List the schedules: what, when, and where each stands."""
    standings, now = run_async(look(settings_with()))
    if as_json:
        print_json([standing_json(one, now) for one in standings])
        return
    if not standings:
        out.print("No schedules. `gossamer schedule add` makes one; so does a [schedules.NAME] table in", FILE_NAME)
        return
    print_table(
        (
            Column("NAME", "bold"), Column("SPIDER"), Column("WHEN", fold=True), Column("SOURCE", spare=True),
            Column("STATE"), Column("NEXT"), Column("LAST"), Column("LAST JOB", spare=True),
            Column("RUNS", right=True), Column("SKIPPED", right=True, spare=True),
        ),
        [_row(one, now) for one in standings],
    )  # fmt: skip
    for one in standings:
        if one.trouble:
            words = f"{one.schedule.name}: {one.trouble}"
            err.print(Text(visible(words), style="yellow"), soft_wrap=True)


def _row(standing: Standing, now: float) -> list[str]:
    schedule = standing.schedule
    due = None if standing.paused else next_tick(standing, now)
    return [
        schedule.name,
        schedule.spider,
        describe(trigger_of(schedule)),
        source_words(schedule),
        state_of(standing, now),
        _when(due, now),
        _when(standing.last_due, now),
        standing.last_job,
        number(standing.runs),
        number(standing.skipped),
    ]


def _when(at: float | None, now: float) -> str:
    if at is None:
        return ""
    return distance(at, now) if out.is_terminal else iso_time(at)


@schedule_app.command("show")
def show_verb(name: NameArgument, as_json: JsonOption = False) -> None:
    """Show one schedule: its definition, where it stands, its last runs and its next ticks."""
    settings = settings_with()

    async def find() -> tuple[Standing, list[Run], float]:
        if not is_crawled(settings):
            return named(await merged(None, settings), name), [], SystemClock().now()
        async with open_system(settings, to_look=True) as system:
            standing = await found(system, settings, name)
            jobs = [job for job in await system.jobs.jobs() if job.schedule == name]
            return standing, [await run_of(system, job) for job in jobs[:RUNS_SHOWN]], system.clock.now()

    standing, runs, now = run_async(find())
    ticks = [] if standing.paused else coming([standing], now, TICKS_OF_ONE)
    if as_json:
        print_json(
            {
                **standing_json(standing, now),
                "next_ticks": [iso_time(tick.at) for tick in ticks],
                "last_runs": [run.as_json() for run in runs],
            }
        )
        return
    _show(settings, standing, now)
    if runs:
        out.print()
        heading("Last runs")
        print_runs(runs, indent=2)
    if ticks:
        out.print()
        heading("Next ticks")
        print_table(
            (Column("LOCAL TIME"), Column("", "dim"), Column(standing.schedule.zone)),
            [(moment(tick.at), until(tick.at, now), in_zone(tick.at, standing.schedule.zone)) for tick in ticks],
            indent=2,
        )


def _show(settings: Settings, standing: Standing, now: float) -> None:
    schedule = standing.schedule
    heading(schedule.name, state_of(standing, now))
    origin = settings.root / FILE_NAME if standing.origin == FILE else f"added {moment(standing.created_at, now)}"
    trouble = ""
    if standing.trouble:
        again = f", tried again {moment(standing.retry_at, now)}" if standing.retry_at is not None else ""
        trouble = f"{standing.trouble} ({many(standing.failures, 'try', 'tries')} in a row{again})"
    print_facts(
        [
            ("spider", schedule.spider),
            ("when", describe(trigger_of(schedule))),
            ("source", source_words(schedule)),
            ("windows", window_words(schedule.windows, now)),
            *definition(schedule),
            ("from", origin),
            ("ticks", f"{standing.runs:,} became runs, {standing.skipped:,} were skipped"),
            ("last tick", moment(standing.last_due, now)),
            ("last job", standing.last_job),
            ("waiting", f"the run of {moment(standing.waiting_due)}" if standing.waiting_due is not None else ""),
            ("trouble", Text(visible(trouble), style="yellow") if trouble else ""),
        ]
    )


@schedule_app.command("next")
def next_verb(
    name: Annotated[str | None, typer.Argument(help="Only of this schedule.")] = None,
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=10_000, help="So many ticks.")] = TICKS_SHOWN,
    as_json: JsonOption = False,
) -> None:
    """Show the coming ticks, of all schedules in their order."""
    standings, now = run_async(look(settings_with()))
    if name is not None:
        standings = [named(standings, name)]
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
    else:
        out.print("Nothing is due any more." if standings else "No schedules.")
    if paused:
        err.print(Text(visible(f"Left out, because paused: {', '.join(paused)}."), style="dim"), soft_wrap=True)


# -- changing ----------------------------------------------------------------------------------------------------


@schedule_app.command("pause")
def pause_verb(name: NameArgument) -> None:
    """Let a schedule rest: its ticks are skipped. A job of it that runs goes on."""

    async def pause(system: System, standing: Standing) -> str:
        if standing.paused:
            return f"Schedule {name} is paused already."
        await _pause(system, standing, True)
        return f"Schedule {name} is paused: its ticks are skipped.{await _still_running(system, name)}"

    with_one(name, pause)


@schedule_app.command("resume")
def resume_verb(name: NameArgument) -> None:
    """Let a paused schedule go on with its next tick."""

    async def resume(system: System, standing: Standing) -> str:
        if not standing.paused:
            return f"Schedule {name} is not paused."
        await _pause(system, standing, False)
        now = system.clock.now()
        due = next_tick(standing, now)
        return f"Schedule {name} goes on. Next run: {'never' if due is None else moment(max(due, now), now)}."

    with_one(name, resume)


async def _pause(system: System, standing: Standing, paused: bool) -> None:
    name = standing.schedule.name
    if not await system.schedules.pause(name, paused):  # one of the file that no scheduler has met yet
        await system.schedules.put(standing.schedule, origin=standing.origin)
        await system.schedules.pause(name, paused)


@schedule_app.command("run")
def run_verb(
    name: NameArgument,
    replace: Annotated[
        bool, typer.Option("--replace", help="End the run that is going, and begin this one in its place.")
    ] = False,
) -> None:
    """Begin a run now, besides its ticks. Workers take it up at once; no scheduler is needed."""

    async def begin(system: System, standing: Standing) -> str:
        now = system.clock.now()
        title, terms = opening_for(system.settings, standing.schedule, now, budget=_budget_now(standing, now))
        job, goes_on = await system.jobs.open_job(title, terms, fresh=replace)
        if goes_on:
            raise Misconfigured(
                f"{job.id} is still {'paused' if job.paused else 'running'}. Wait for it, end it with `gossamer job "
                f"cancel {job.id}`, or add --replace."
            )
        return f"{job.id} is begun. Workers take it up; see: gossamer job show {job.id}"

    with_one(name, begin)


def _budget_now(standing: Standing, now: float) -> int | None:
    """What a run besides the ticks may spend: the share since the last tick, and one fetch at least."""
    per_day = standing.schedule.budget
    if per_day is None:
        return None
    following = next_due(trigger_of(standing.schedule), now, first=standing.created_at)
    return max(1, budget_of(per_day, due=now, since=standing.last_due, following=following))


@schedule_app.command("remove")
def remove_verb(name: NameArgument) -> None:
    """Remove a schedule. Its jobs stay, and one that runs goes on."""
    settings = settings_with()

    async def remove(system: System, standing: Standing) -> str:
        if standing.origin == FILE:
            raise Misconfigured(in_file(settings, name, "remove it"))
        await system.schedules.remove(name)
        return f"Schedule {name} is removed.{await _still_running(system, name)}"

    with_one(name, remove)


async def _still_running(system: System, name: str) -> str:
    jobs = [job.id for job in await system.jobs.running_jobs() if job.schedule == name]
    return "".join(f" Its job {job} goes on; `gossamer job cancel {job}` ends it." for job in jobs)
