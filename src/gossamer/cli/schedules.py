"""Which schedules there are: those that are kept with the queue, and those of gossamer.toml. For the verbs of
`gossamer schedule`, which are in schedule.py and adding.py."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.job import JobState
from ..model.schedule import Schedule, ScheduleProgress, Term, UnreadableSchedule
from ..project.jobs import JobView, view_of
from ..project.open import Project, is_crawled, open_project
from ..schedule.definition import schedules_of
from ..settings import FILE_NAME, Settings
from ..text import visible
from .app import app, err, out, run_async, settings_with
from .timetable import natural

FILE, ADDED = "file", "added"  # origins
AT_ONCE = 50  # last runs that are asked for at a time

schedule_app = typer.Typer(help="What is scraped, and when.", no_args_is_help=True)
app.add_typer(schedule_app, name="schedule")

NameArgument = Annotated[str, typer.Argument(help="The name of a schedule.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


def with_one(
    name: str,
    act: Callable[[Project, ScheduleProgress], Awaitable[str]],
    unreadable: Callable[[Project], Awaitable[str]] | None = None,
) -> None:
    """Find the schedule, do something with it, and say what came of it. `unreadable` is for one that cannot be read."""
    settings = settings_with()

    async def do() -> str:
        if not is_crawled(settings):
            named(await merged(None, settings), name)  # a name that is not there was mistyped: nothing is created
        async with open_project(settings, to_look=True) as project:
            if unreadable is not None and name in {one.name for one in await unreadable_in(project)}:
                return await unreadable(project)
            return await act(project, await found(project, settings, name))

    out.print(visible(run_async(do())), markup=False)


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """All schedules by name, and what a reader should know besides."""

    standings: list[ScheduleProgress]
    now: float
    leader: Term | None = None  # of the schedulers
    unread: frozenset[str] = frozenset()  # new in the file since a scheduler has read it
    changed: frozenset[str] = frozenset()  # in the file, since then
    removed: frozenset[str] = frozenset()  # from the file, since then
    ignored: frozenset[str] = frozenset()  # in the file, while one of that name was added at run time
    last_runs: dict[str, JobView] = {}  # by schedule
    unreadable: list[UnreadableSchedule] = []

    def of(self, name: str) -> Listing:
        """Only the schedule of that name. Raises Misconfigured."""
        demand_readable(self.unreadable, name)
        return msgspec.structs.replace(self, standings=[named(self.standings, name)], unreadable=[])

    def is_unread(self, standing: ScheduleProgress) -> bool:
        return standing.schedule.name in self.unread

    def is_behind(self, standing: ScheduleProgress) -> bool:
        """Says gossamer.toml something else than what is in force?"""
        return standing.schedule.name in self.unread | self.changed | self.removed


async def look(settings: Settings, only: str | None = None) -> Listing:
    """All schedules, or one of them. Raises Misconfigured when that one is not there."""
    if not is_crawled(settings):  # looking must not create files
        wanted = schedules_of(settings.schedules)
        listing = Listing(standings=await merged(None, settings), now=SystemClock().now(), unread=frozenset(wanted))
        return listing if only is None else listing.of(only)
    async with open_project(settings, to_look=True) as project:
        return await listing_of(project, settings, only)


async def listing_of(project: Project, settings: Settings, only: str | None = None) -> Listing:
    wanted = schedules_of(settings.schedules)
    written = await project.state.schedules.everything()
    book = {one.schedule.name: one for one in written if isinstance(one, ScheduleProgress)}
    unreadable = [one for one in written if isinstance(one, UnreadableSchedule)]
    leader = await project.state.schedules.leader()
    listing = Listing(
        standings=await merged(project, settings, in_force=leader is not None),
        unreadable=unreadable,
        now=project.clock.now(),
        leader=leader,
        unread=frozenset(wanted.keys() - book.keys() - {one.name for one in unreadable}),
        changed=frozenset(name for name, schedule in wanted.items() if _is_changed(book.get(name), schedule)),
        removed=frozenset(name for name, one in book.items() if name not in wanted and _is_removed(one)),
        ignored=frozenset(name for name in wanted if name in book and book[name].origin != FILE),
    )
    listing = listing if only is None else listing.of(only)
    return msgspec.structs.replace(listing, last_runs=await _last_runs(project, listing.standings))


def _is_changed(known: ScheduleProgress | None, schedule: Schedule) -> bool:
    return known is not None and known.origin == FILE and (known.schedule != schedule or known.withdrawn_at is not None)


def _is_removed(known: ScheduleProgress) -> bool:
    return known.origin == FILE and known.withdrawn_at is None


async def _last_runs(project: Project, standings: list[ScheduleProgress]) -> dict[str, JobView]:
    async def last_run(standing: ScheduleProgress) -> JobView | None:
        job = await project.state.jobs.job(standing.last_job) if standing.last_job else None
        return None if job is None else await view_of(project, job)

    found: dict[str, JobView] = {}
    for start in range(0, len(standings), AT_ONCE):
        some = standings[start : start + AT_ONCE]
        runs = await asyncio.gather(*(last_run(one) for one in some))
        found |= {one.schedule.name: run for one, run in zip(some, runs, strict=True) if run is not None}
    return found


def print_notes(listing: Listing, *, leader: bool = True) -> None:
    """What is the matter with the schedules that are listed, and whether anybody begins their runs."""
    for broken in listing.unreadable:
        _note(broken.words)
    for one in listing.standings:
        name, run = one.schedule.name, listing.last_runs.get(one.schedule.name)
        if listing.is_behind(one):
            _note(f"{name}: {_behind(one, listing)}", "dim")
        if name in listing.ignored:
            _note(
                f"{name}: the table [schedules.{name}] of {FILE_NAME} is ignored, because one of that name was added. "
                f"Remove that one (gossamer schedule remove {name}), or rename the table."
            )
        if one.withdrawn_at is not None and not listing.is_behind(one):
            _note(f"{name}: not in {FILE_NAME} any more, so it rests; it is forgotten after a week.", "dim")
        if one.trouble:
            _note(f"{name}: {one.trouble}")
        if run is not None and (trouble := _trouble_of(run)):
            _note(f"{name}: {trouble}")
    if leader and listing.leader is None and any(not one.paused for one in listing.standings):
        _note("No scheduler is running; start `gossamer up`.")


def _trouble_of(run: JobView) -> str:
    """What is wrong with a run, whatever its ending says."""
    if run.fault:
        return f"{run.id} ended: {run.ending}"
    if run.dead and not run.done + run.unchanged and run.state is not JobState.RUNNING:
        return f"not one page of {run.id} could be had; see: gossamer dead list --job {run.id}"
    return f"{run.id}: {run.trouble}" if run.trouble else ""


def _behind(standing: ScheduleProgress, listing: Listing) -> str:
    """What the file says otherwise, and when that will hold."""
    name, led = standing.schedule.name, listing.leader is not None
    when = "when the leading scheduler is restarted" if led else "when a scheduler starts"
    if name in listing.removed:
        return f"not in {FILE_NAME} any more; it rests {when}."
    if name in listing.unread:
        return f"new in {FILE_NAME}; it is read {when}."
    news = "changed" if standing.withdrawn_at is None else "back"
    return f"{news} in {FILE_NAME}; that is read {when}."


def _note(words: str, style: str = "yellow") -> None:
    err.print(Text(visible(words), style=style), soft_wrap=True)


async def found(project: Project, settings: Settings, name: str) -> ScheduleProgress:
    demand_readable(await unreadable_in(project), name)
    return named(await merged(project, settings), name)


async def unreadable_in(project: Project) -> list[UnreadableSchedule]:
    return [one for one in await project.state.schedules.everything() if isinstance(one, UnreadableSchedule)]


async def merged(project: Project | None, settings: Settings, *, in_force: bool = False) -> list[ScheduleProgress]:
    """All schedules by name. Those of the file are as it has them, also before a scheduler has read it.

    `in_force`: one that a scheduler has read is as that one has it, whatever the file says by now.
    """
    standings = (
        {one.schedule.name: one for one in await project.state.schedules.schedules()} if project is not None else {}
    )
    now = (project.clock if project is not None else SystemClock()).now()
    for name, schedule in schedules_of(settings.schedules).items():
        known = standings.get(name)
        if known is None:
            standings[name] = ScheduleProgress(schedule=schedule, origin=FILE, created_at=now)
        elif not in_force and known.origin == FILE and (known.schedule != schedule or known.withdrawn_at is not None):
            standings[name] = known.rewritten(schedule, FILE, now)
    return [standings[name] for name in sorted(standings, key=natural)]


def named(standings: list[ScheduleProgress], name: str) -> ScheduleProgress:
    """Raises Misconfigured with a suggestion."""
    for one in standings:
        if one.schedule.name == name:
            return one
    names = [one.schedule.name for one in standings]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer schedule list` shows what there is."
    raise Misconfigured(f"There is no schedule {visible(name)!r}. {hint}")


def demand_readable(unreadable: list[UnreadableSchedule], name: str) -> None:
    """Raises Misconfigured for a schedule that is there, and nobody can say what it is."""
    for one in unreadable:
        if one.name == name:
            raise Misconfigured(one.words)


def in_file(settings: Settings, name: str, verb: str) -> str:
    return f"Schedule {name!r} is written in {settings.root / FILE_NAME}, as [schedules.{name}]: {verb} there."
