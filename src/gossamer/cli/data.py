"""`gossamer export`: records out of the store, as JSON Lines or CSV."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ..assembly import System
from ..clock import SystemClock
from ..errors import Misconfigured
from ..store.contract import RecordQuery
from ..store.export import STDOUT, export, format_of
from .app import app, err, run_async, settings_with
from .layout import many, visible
from .look import open_crawled
from .typed import typed_job, typed_moment


@app.command("export")
def export_verb(
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file: .jsonl or .csv; - is standard output.")
    ] = STDOUT,
    format: Annotated[str | None, typer.Option("--format", help="jsonl or csv; else by the file's extension.")] = None,
    job: Annotated[str | None, typer.Option(help="Seen by this job: its id, or the name of a spider.")] = None,
    spider: Annotated[str | None, typer.Option(help="Found by this spider.")] = None,
    type: Annotated[str | None, typer.Option("--type", help="Of this type of item: Book.")] = None,
    site: Annotated[str | None, typer.Option(help="Of this site: shop.example.")] = None,
    since: Annotated[str | None, typer.Option(help="Changed since: 7d, 12h ago, or 2027-01-31T12:00.")] = None,
    until: Annotated[str | None, typer.Option(help="Changed before: as --since.")] = None,
) -> None:
    """Write the records that were collected, with their history's dates."""
    settings = settings_with()
    format_of(output, format)
    now = SystemClock().now()
    since_at, until_at = typed_moment("--since", since, now), typed_moment("--until", until, now)
    if since_at is not None and until_at is not None and since_at >= until_at:
        raise Misconfigured(f"--since {since} is not before --until {until}: no record can match.")

    async def write() -> int:
        async with open_crawled(settings) as system:
            query = RecordQuery(
                job=await _job_id(system, job) if job is not None else None,
                spider=spider,
                type=type,
                site=site,
                since=since_at,
                until=until_at,
            )
            count = await export(system.records, query, output, format)
            if not count:
                err.print(f"[yellow]No record matches.[/] {await _what_there_is(system, query)}".rstrip())
            return count

    with _busy(output):
        count = run_async(write())
    if count:
        where = "" if output == STDOUT else f" written to {visible(str(output))}"
        err.print(f"{many(count, 'record')}{where}", markup=False)


async def _job_id(system: System, wanted: str) -> str:
    """As `typed_job`; records of a job that the queue has forgotten can be had as well."""
    try:
        return (await typed_job(system.jobs, wanted)).id
    except Misconfigured:
        if await system.records.count(RecordQuery(job=wanted)):
            return wanted
        raise


async def _what_there_is(system: System, query: RecordQuery) -> str:
    """A hint for those who misspelled a filter."""
    total = await system.records.count(RecordQuery())
    if not total:
        return "The store is empty."
    if query.job is not None and not await system.records.count(RecordQuery(job=query.job)):
        return f"Job {query.job} has no records; the store holds {total:,} of others."
    return f"The store holds {total:,}; leave out a filter to see more."


def _busy(output: Path) -> AbstractContextManager[object]:
    if output == STDOUT or not err.is_terminal:
        return nullcontext()
    return err.status("Writing ...")
