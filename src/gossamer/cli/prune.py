"""`gossamer prune`: forget old attempts, raw pages and jobs. Records and their history are never deleted."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated, TypedDict

import typer

from ..errors import Misconfigured
from ..project.open import Project
from ..project.retention import ended_jobs, forget_ended
from ..text import many, size, visible
from ..units import parse_duration
from .app import app, err, open_crawled, out, run_async, settings_with


@app.command("prune")
def prune_verb(
    attempts: Annotated[
        str | None, typer.Option(help="Forget attempts and replaced visits older than this: 90d, 12h.")
    ] = None,
    pages: Annotated[str | None, typer.Option(help="Delete archived raw pages older than this: 30d.")] = None,
    jobs: Annotated[
        str | None, typer.Option(help="Forget jobs that ended longer ago than this and have no dead letters: 30d.")
    ] = None,
    dead: Annotated[
        str | None, typer.Option(help="Forget jobs with dead letters, too, that ended longer ago than this: 90d.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before jobs are forgotten.")] = False,
) -> None:
    """Make room: forget attempts, raw pages and jobs of some age. Records and their history stay."""
    settings = settings_with()
    attempts_age, pages_age = _age("--attempts", attempts), _age("--pages", pages)
    jobs_age, dead_age = _age("--jobs", jobs), _age("--dead", dead)
    if attempts_age is pages_age is jobs_age is dead_age is None:
        raise Misconfigured("Say what may go: gossamer prune --attempts 90d --pages 30d --jobs 30d")

    async def count() -> int:
        async with open_crawled(settings) as project:
            return len((await ended_jobs(project.state.jobs, **await _bounds(project, jobs_age, dead_age)))[0])

    if (jobs_age is not None or dead_age is not None) and not yes and sys.stdin.isatty():
        meant = run_async(count())
        if meant and not typer.confirm(f"Forget {many(meant, 'job')} for good? Records stay.", err=True):
            err.print("Nothing was changed.")
            raise typer.Exit(1)

    async def prune() -> None:
        async with open_crawled(settings) as project:
            if attempts_age is not None:
                count = await project.records.prune(attempts_age)
                what = many(count, "attempt or visit", "attempts and visits")
                out.print(f"attempts  {what} older than {attempts} deleted", markup=False)
            if pages_age is not None:
                freed = await project.archive.prune(pages_age)
                out.print(f"pages     {size(freed)} of raw pages older than {pages} deleted", markup=False)
            if jobs_age is not None or dead_age is not None:
                out.print(f"jobs      {await _forget(project, jobs_age, dead_age)}", markup=False)

    run_async(prune())


async def _forget(project: Project, jobs_age: timedelta | None, dead_age: timedelta | None) -> str:
    """Forget the jobs; return what became of them, for people."""
    forgotten = await forget_ended(
        project.state.history, project.state.jobs, **await _bounds(project, jobs_age, dead_age)
    )
    stay = f"; {forgotten.with_letters:,} with dead letters kept (see --dead)" if forgotten.with_letters else ""
    return f"{many(forgotten.jobs, 'job')} forgotten{stay}"


class _Bounds(TypedDict):
    before: float | None
    dead_before: float | None
    keep: set[str]


async def _bounds(project: Project, jobs_age: timedelta | None, dead_age: timedelta | None) -> _Bounds:
    """Which jobs are meant, in the words of forgetting.py."""
    now = project.clock.now()
    return _Bounds(
        before=None if jobs_age is None else now - jobs_age.total_seconds(),
        dead_before=None if dead_age is None else now - dead_age.total_seconds(),
        keep={standing.last_job for standing in await project.state.schedules.schedules()},
    )


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise Misconfigured(f"{option} {visible(text)!r} is no age. Write it like 90d, 12h or 1h30m.") from None
