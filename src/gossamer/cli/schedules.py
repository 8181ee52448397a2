"""Which schedules there are: those that are kept with the queue, and those of gossamer.toml. For the verbs of
`gossamer schedule`, which are in schedule.py and adding.py."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable
from typing import Annotated

import typer

from ..assembly import System, open_system
from ..clock import SystemClock
from ..errors import Misconfigured
from ..model.schedule import Standing
from ..scheduler.defining import schedules_of
from ..settings import FILE_NAME, Settings
from .app import app, out, run_async, settings_with
from .layout import visible
from .look import is_crawled

FILE, ADDED = "file", "added"  # origins

schedule_app = typer.Typer(help="What is scraped, and when.", no_args_is_help=True)
app.add_typer(schedule_app, name="schedule")

NameArgument = Annotated[str, typer.Argument(help="The name of a schedule.")]
JsonOption = Annotated[bool, typer.Option("--json", help="For programs.")]


def with_one(name: str, act: Callable[[System, Standing], Awaitable[str]]) -> None:
    """Find the schedule, do something with it, and say what came of it."""
    settings = settings_with()

    async def do() -> str:
        if not is_crawled(settings):
            named(await merged(None, settings), name)  # a name that is not there was mistyped: nothing is created
        async with open_system(settings, to_look=True) as system:
            return await act(system, await found(system, settings, name))

    out.print(visible(run_async(do())), markup=False)


async def look(settings: Settings) -> tuple[list[Standing], float]:
    if not is_crawled(settings):  # looking must not create files
        return await merged(None, settings), SystemClock().now()
    async with open_system(settings, to_look=True) as system:
        return await merged(system, settings), system.clock.now()


async def found(system: System, settings: Settings, name: str) -> Standing:
    return named(await merged(system, settings), name)


async def merged(system: System | None, settings: Settings) -> list[Standing]:
    """All schedules by name. Those of the file are shown as it has them, also before a scheduler has read it."""
    standings = {one.schedule.name: one for one in await system.schedules.schedules()} if system is not None else {}
    now = (system.clock if system is not None else SystemClock()).now()
    for name, schedule in schedules_of(settings.schedules).items():
        known = standings.get(name)
        if known is None:
            standings[name] = Standing(schedule=schedule, origin=FILE, created_at=now)
        elif known.origin == FILE and known.schedule != schedule:
            standings[name] = known.rewritten(schedule, FILE)
    return [standings[name] for name in sorted(standings)]


def named(standings: list[Standing], name: str) -> Standing:
    """Raises Misconfigured with a suggestion."""
    for one in standings:
        if one.schedule.name == name:
            return one
    names = [one.schedule.name for one in standings]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {near[0]}?" if near else "`gossamer schedule list` shows what there is."
    raise Misconfigured(f"There is no schedule {visible(name)!r}. {hint}")


def in_file(settings: Settings, name: str, verb: str) -> str:
    return f"Schedule {name!r} is written in {settings.root / FILE_NAME}, as [schedules.{name}]: {verb} there."
