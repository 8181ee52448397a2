"""Maintenance of a project: `gossamer doctor` (is everything here that a crawl needs?), `gossamer prune` (free space),
`gossamer migrate` (tables for this version)."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from ..errors import Misconfigured
from ..project.open import migrate_records
from ..project.upkeep.retention import PruneAges, count_prunable_jobs, prune
from ..units import many, parse_duration, size, visible
from .app import app, ask, err, out, run_async, settings_with
from .layout import print_json
from .options import JsonOption

if TYPE_CHECKING:
    from ..project.upkeep.doctor import DoctorFinding

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


@app.command("doctor")
def doctor_verb(
    online: Annotated[
        bool, typer.Option("--online", help="Also look up example.com, to see whether names resolve.")
    ] = False,
    security: Annotated[
        bool, typer.Option("--security", help="Only check who could read, change or misuse the project.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this machine and this project. Exit code 1 when something must be fixed."""
    from ..project.upkeep.doctor import Level, examine  # imports the fetching code

    async def check() -> list[DoctorFinding]:
        findings = []
        async for finding in examine(Path.cwd(), online=online):
            findings.append(finding)
            if not as_json:
                _print_finding(finding)
        return findings

    if security:
        from ..project.access.security import posture

        findings = list(posture(Path.cwd()))
        for finding in [] if as_json else findings:
            _print_finding(finding)
    else:
        findings = run_async(check())
    failures = sum(finding.level is Level.FAIL for finding in findings)
    if as_json:
        print_json(findings)
    elif failures:
        out.print(f"\n{many(failures, 'thing')} must be fixed.")
    else:
        all_well = all(finding.level is Level.OK for finding in findings)
        out.print("\nAll is well." if all_well else "\nA crawl can run." if not security else "")
    if failures:
        raise typer.Exit(1)


def _print_finding(finding: DoctorFinding) -> None:
    out.print(
        Text.assemble(
            (finding.level.ljust(4), STYLES[finding.level]),
            f"  {finding.what.ljust(12)}  ",
            (visible(finding.detail), "dim" if finding.level == "ok" else ""),
        )
    )
    if finding.advice:
        out.print(Text(f"      {visible(finding.advice)}", style="cyan"))


# -- prune ---------------------------------------------------------------------------------------------------------


@app.command("prune")
def prune_verb(
    attempts: Annotated[
        str | None, typer.Option(help="Delete attempts and replaced visits older than this: 90d, 12h.")
    ] = None,
    pages: Annotated[str | None, typer.Option(help="Delete archived raw pages older than this: 30d.")] = None,
    copies: Annotated[
        int | None, typer.Option(min=1, help="Keep only so many raw copies of each page, the newest.")
    ] = None,
    jobs: Annotated[
        str | None, typer.Option(help="Delete jobs without dead letters that ended longer ago than this: 30d.")
    ] = None,
    dead: Annotated[
        str | None, typer.Option(help="Delete jobs with dead letters that ended longer ago than this: 90d.")
    ] = None,
    audit: Annotated[str | None, typer.Option(help="Delete lines of the audit log older than this: 1y.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting jobs.")] = False,
) -> None:
    """Free space: delete old attempts, raw pages and jobs. Records and their history stay."""
    ages = PruneAges(
        attempts=_age("--attempts", attempts),
        pages=_age("--pages", pages),
        copies=copies,
        jobs=_age("--jobs", jobs),
        dead=_age("--dead", dead),
        audit=_age("--audit", audit),
    )
    if ages == PruneAges():
        raise Misconfigured("Name what to delete: gossamer prune --attempts 90d --pages 30d --jobs 30d")

    if (ages.jobs is not None or ages.dead is not None) and not yes and sys.stdin.isatty():
        meant = ask(lambda project: count_prunable_jobs(project, ages))
        if meant and not typer.confirm(f"Forget {many(meant, 'job')} for good? Records stay.", err=True):
            err.print("Nothing was changed.")
            raise typer.Exit(1)
    pruned = ask(lambda project: prune(project, ages))
    if pruned.attempts is not None:
        what = many(pruned.attempts, "attempt or visit", "attempts and visits")
        out.print(f"attempts  {what} older than {attempts} deleted", markup=False)
    if pruned.page_bytes is not None:
        out.print(f"pages     {size(pruned.page_bytes)} of raw pages older than {pages} deleted", markup=False)
    if pruned.copies is not None:
        what = f"{many(pruned.copies, 'raw copy', 'raw copies')} beyond the newest {copies} of a page"
        out.print(f"copies    {what} deleted, {size(pruned.copy_bytes or 0)}", markup=False)
    if pruned.jobs is not None:
        kept = pruned.jobs.with_letters
        stay = f"; {kept:,} with dead letters kept (see --dead)" if kept else ""
        out.print(f"jobs      {many(pruned.jobs.jobs, 'job')} forgotten{stay}", markup=False)
    if pruned.audit is not None:
        what = many(pruned.audit, "line of the audit log", "lines of the audit log")
        out.print(f"audit     {what} older than {audit} deleted", markup=False)


def _age(option: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_duration(text)
    except (ValueError, OverflowError):
        raise Misconfigured(f"{option} {visible(text)!r} is not an age. Write it like 90d, 12h or 1h30m.") from None


# -- migrate -------------------------------------------------------------------------------------------------------


@app.command("migrate")
def migrate_verb() -> None:
    """Bring the record store's tables up to date. Safe to run repeatedly."""
    done = run_async(migrate_records(settings_with()))
    for name in done.applied:
        out.print(f"records  applied {name}", markup=False)
    out.print(f"records  {visible(done.in_words)}", markup=False)
