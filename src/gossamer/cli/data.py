"""`gossamer export`: records out of the store, as JSON Lines, CSV or Parquet; all of them, or what changed."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from ..backends.addresses import place_of
from ..clock import SystemClock, iso_time
from ..errors import Misconfigured
from ..project.jobs import find_job
from ..project.open import Project
from ..settings import Settings
from ..store.contract import RecordQuery
from ..store.export import Destination, Exported, StandardOutput, export, format_of
from ..store.export.destination import CursorFile, ExportCursor
from ..text import many, visible
from .app import app, err, run_async, settings_with
from .look import open_crawled
from .places import output_place
from .typed import typed_moment

FORMS = ".jsonl, .csv or .parquet, the first two also with .gz or .zst"


@app.command("export")
def export_verb(
    output: Annotated[
        str, typer.Option("-o", "--output", help=f"The file: {FORMS}; s3://bucket/file; - is standard output.")
    ] = "-",
    format: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv or parquet; else by the file's extension.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="Seen by this job: its id, or the name of a spider.")] = None,
    spider: Annotated[str | None, typer.Option(help="Found by this spider.")] = None,
    type: Annotated[str | None, typer.Option("--type", help="Of this type of item: Book.")] = None,
    site: Annotated[str | None, typer.Option(help="Of this site: shop.example.")] = None,
    since: Annotated[str | None, typer.Option(help="Changed since: 7d, 12h ago, or 2027-01-31T12:00.")] = None,
    until: Annotated[str | None, typer.Option(help="Changed before: as --since.")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Also those that were not found any more.")] = False,
    since_cursor: Annotated[
        Path | None,
        typer.Option("--since-cursor", help="Only what changed since the last export with this file; kept up to date."),
    ] = None,
) -> None:
    """Write the records that were collected, with their history's dates."""
    settings = settings_with()
    now = SystemClock().now()
    since_at, until_at = typed_moment("--since", since, now), typed_moment("--until", until, now)
    if since_at is not None and until_at is not None and since_at >= until_at:
        raise Misconfigured(f"--since {since} is not before --until {until}: no record can match.")
    if since_cursor is not None and (since is not None or until is not None):
        raise Misconfigured("--since-cursor tells what changed since the last export; leave out --since and --until.")
    typed = {"job": job, "spider": spider, "type": type, "site": site}
    filters = {name: value for name, value in typed.items() if value is not None}
    query = RecordQuery(
        spider=spider, type=type, site=site, since=since_at, until=until_at, gone=None if gone else False
    )
    # Said before the store is opened: what is wrong with the name is wrong whatever the store holds.
    _check_form(output_place(output, now=now, job=job), format)

    async def write() -> tuple[Exported, Destination]:
        async with open_crawled(settings) as project:
            wanted = query if job is None else msgspec.structs.replace(query, job=await _job_id(project, job))
            place = output_place(output, now=now, job=wanted.job)
            if since_cursor is not None:
                file = CursorFile(since_cursor)
                file.check_place(place)
                return await _export_changes(project, settings, wanted, filters, place, format, file), place
            done = await export(project.records, wanted, place, format)
            if not done.records and done.whole:
                err.print(f"[yellow]No record matches.[/] {await _what_there_is(project, wanted)}".rstrip())
            return done, place

    with _busy(output):
        done, place = run_async(write())
    if done.records:
        where = "" if isinstance(place, StandardOutput) else f" written to {visible(str(place))}"
        err.print(f"{many(done.records, 'record')}{where}", markup=False)


def _check_form(place: Destination, format: str | None) -> None:
    form = format_of(place.name, format)
    if form.format == "parquet" and isinstance(place, StandardOutput) and sys.stdout.isatty():
        raise Misconfigured("Parquet is nothing for a terminal. Name a file: -o items.parquet.")


async def _export_changes(
    project: Project,
    settings: Settings,
    query: RecordQuery,
    filters: dict[str, str],
    place: Destination,
    format: str | None,
    file: CursorFile,
) -> Exported:
    """What was stored since the last time, records that are gone among it. Nothing new makes no file.

    `filters` are kept as the user typed them: the newest job of a spider is another one each time."""
    kept = file.read()
    cursor = await project.records.cursor()
    now = ExportCursor(
        cursor=cursor, records=place_of(settings, "records"), filters=filters, told_at=iso_time(project.clock.now())
    )
    if kept is not None:
        file.check(kept, now)
    changed = msgspec.structs.replace(query, gone=None, after=kept.cursor if kept is not None else None, upto=cursor)
    done = await export(project.records, changed, place, format, even_empty=False)
    if not done.whole:
        err.print(
            "[yellow]The reader went away.[/] The cursor stays where it was: the next export tells all of it again."
        )
        return done
    if not done.records:
        err.print("Nothing has changed: no file is written.")
    file.keep(now)
    return done


async def _job_id(project: Project, wanted: str) -> str:
    """As `find_job`; records of a job that the queue has forgotten can be had as well."""
    try:
        return (await find_job(project, wanted)).id
    except Misconfigured:
        if await project.records.count(RecordQuery(job=wanted)):
            return wanted
        raise


async def _what_there_is(project: Project, query: RecordQuery) -> str:
    """A hint for those who misspelled a filter."""
    total = await project.records.count(RecordQuery())
    if not total:
        return "The store is empty."
    if query.job is not None and not await project.records.count(RecordQuery(job=query.job)):
        return f"Job {query.job} has no records; the store holds {total:,} of others."
    return f"The store holds {total:,}; leave out a filter to see more."


def _busy(output: str) -> AbstractContextManager[object]:
    if output == "-" or not err.is_terminal:
        return nullcontext()
    return err.status("Writing ...")
