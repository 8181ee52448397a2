"""`gossamer export`: write records as JSON Lines, CSV or Parquet, all of them or only changes. `gossamer warc export`:
write raw pages as a WARC file."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.status import Status

from ..clock import SystemClock
from ..errors import Misconfigured
from ..project.records.export import (
    ExportReport,
    WarcReport,
    check_warc_name,
    export_pages,
    export_records,
    is_binary_output,
)
from ..project.records.records import RecordFilter
from ..units import many, visible
from .app import app, err, open_crawled, run_async, settings_with, styled, typed_moment

FORMS = ".jsonl, .csv or .parquet, the first two also with .gz or .zst"

warc_app = typer.Typer(help="Raw pages as WARC files, for other tools.", no_args_is_help=True)
app.add_typer(warc_app, name="warc")


@app.command("export")
def export_verb(
    output: Annotated[
        str, typer.Option("-o", "--output", help=f"The file: {FORMS}; s3://bucket/file; - is standard output.")
    ] = "-",
    format: Annotated[
        str | None, typer.Option("--format", help="jsonl, csv or parquet (default: by the file's extension).")
    ] = None,
    job: Annotated[
        str | None, typer.Option(help="Only records seen by this job: its id, or the name of a spider.")
    ] = None,
    spider: Annotated[str | None, typer.Option(help="Found by this spider.")] = None,
    type: Annotated[str | None, typer.Option("--type", help="Only items of this type: Book.")] = None,
    site: Annotated[str | None, typer.Option(help="Of this site: shop.example.")] = None,
    since: Annotated[str | None, typer.Option(help="Changed since: 7d, 12h ago, or 2027-01-31T12:00.")] = None,
    until: Annotated[str | None, typer.Option(help="Changed before: as --since.")] = None,
    gone: Annotated[bool, typer.Option("--gone", help="Include records that were no longer found.")] = False,
    columns: Annotated[
        str | None, typer.Option(help="Only these columns, in this order (.csv, .parquet): sku,title,price_amount.")
    ] = None,
    no_meta: Annotated[bool, typer.Option("--no-meta", help="Only the items' own fields, no _type, _url ...")] = False,
    since_cursor: Annotated[
        Path | None,
        typer.Option(
            "--since-cursor", help="Only changes since the last export with this cursor file, which is updated."
        ),
    ] = None,
    files: Annotated[
        Path | None, typer.Option("--files", help="Also write the files of the records to this folder.")
    ] = None,
    keep_endings: Annotated[
        bool,
        typer.Option("--keep-endings", help="Files keep the endings that sites gave them: .html, .js, .py, .exe ..."),
    ] = False,
) -> None:
    """Write the records to a file, replacing it."""
    settings = settings_with()
    now = SystemClock().now()
    since_at, until_at = typed_moment("--since", since, now), typed_moment("--until", until, now)
    if since_at is not None and until_at is not None and since_at >= until_at:
        raise Misconfigured(f"--since {since} is not before --until {until}: no record can match.")
    if since_cursor is not None and (since is not None or until is not None):
        raise Misconfigured("--since-cursor exports the changes since the last export; leave out --since and --until.")
    # Checked before the store is opened, because it does not depend on the store.
    if is_binary_output(output, format, job) and sys.stdout.isatty():
        raise Misconfigured("Parquet cannot be printed to a terminal. Name a file: -o items.parquet.")
    wanted = RecordFilter(job=job, spider=spider, type=type, site=site, since=since_at, until=until_at, gone=gone)

    async def write() -> ExportReport:
        async with open_crawled(settings) as project:
            return await export_records(
                project,
                wanted,
                output,
                format=format,
                meta=not no_meta,
                columns=[name.strip() for name in columns.split(",") if name.strip()] if columns is not None else (),
                cursor=since_cursor,
                files=files,
                keep_endings=keep_endings,
            )

    with _busy(quiet=output == "-"):
        done = run_async(write())
    if since_cursor is not None and not done.whole:
        words = (
            "[yellow]The reader closed the pipe.[/] The cursor was not moved: the next export repeats these changes."
        )
        err.print(styled(words))
    elif since_cursor is not None and not done.records:
        err.print("Nothing has changed: no file was written.")
    elif done.note:
        err.print(styled("[yellow]No record matches.[/] {}", done.note))
    if done.records:
        where = f" written to {visible(done.place)}" if done.place is not None else ""
        err.print(f"{many(done.records, 'record')}{where}", markup=False)
    if done.lost_files:
        lost = many(done.lost_files, "file is", "files are")
        err.print(f"Warning: {lost} no longer in the archive: {visible(done.first_loss)}", style="yellow", markup=False)
    if files is not None:
        err.print(f"{many(done.files, 'file')} written to {visible(str(files))}", markup=False)


@warc_app.command("export")
def warc_verb(
    output: Annotated[
        str, typer.Option("-o", "--output", help="The file: .warc.gz or .warc; s3://bucket/file.")
    ] = "crawl.warc.gz",
    job: Annotated[str | None, typer.Option(help="Pages of this job: its id, or the name of a spider.")] = None,
    spider: Annotated[str | None, typer.Option(help="Pages of this spider.")] = None,
    since: Annotated[str | None, typer.Option(help="Fetched since: 7d, 12h ago, or 2027-01-31T12:00.")] = None,
) -> None:
    """Write archived pages to a WARC file, the newest copy of each."""
    settings = settings_with()
    since_at = typed_moment("--since", since, SystemClock().now())
    check_warc_name(output, job)

    async def write(status: Status | None) -> WarcReport:
        def tell(pages: int) -> None:
            if status is not None:
                status.update(f"Writing ... {many(pages, 'page')}")

        async with open_crawled(settings) as project:
            return await export_pages(project, output, job=job, spider=spider, since=since_at, tell=tell)

    with _busy() as status:
        done = run_async(write(status))
    if done.lost:
        copies = many(done.lost, "page was left out, because it has", "pages were left out, because they have")
        err.print(f"Warning: {copies} no raw copy any more: {visible(done.first_loss)}", style="yellow", markup=False)
    err.print(f"{many(done.pages, 'page')} written to {visible(done.place)}", markup=False)


def _busy(*, quiet: bool = False) -> AbstractContextManager[Status | None]:
    """A status line while the export runs, on a terminal only."""
    return nullcontext() if quiet or not err.is_terminal else err.status("Writing ...")
