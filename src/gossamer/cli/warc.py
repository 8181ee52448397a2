"""`gossamer warc export`: archived pages as WARC files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from .. import __version__
from ..clock import SystemClock
from ..project.jobs import find_job
from ..store.contract import VisitQuery
from ..store.warc import Kept, export_warc, is_compressed
from ..text import many, visible
from .app import app, err, run_async, settings_with
from .look import open_crawled
from .places import output_place
from .typed import typed_moment

warc_app = typer.Typer(help="Raw pages as WARC files, for other tools.", no_args_is_help=True)
app.add_typer(warc_app, name="warc")


@warc_app.command("export")
def export_verb(
    output: Annotated[
        str, typer.Option("-o", "--output", help="The file: .warc.gz or .warc; s3://bucket/file.")
    ] = "crawl.warc.gz",
    job: Annotated[str | None, typer.Option(help="Pages of this job: its id, or the name of a spider.")] = None,
    spider: Annotated[str | None, typer.Option(help="Pages of this spider.")] = None,
    since: Annotated[str | None, typer.Option(help="Fetched since: 7d, 12h ago, or 2027-01-31T12:00.")] = None,
) -> None:
    """Write archived pages to a WARC file, the newest copy of each."""
    settings = settings_with()
    now = SystemClock().now()
    since_at = typed_moment("--since", since, now)
    is_compressed(output_place(output, now=now, job=job).name)

    async def write() -> tuple[Kept, str]:
        async with open_crawled(settings) as project:
            job_id = (await find_job(project, job)).id if job is not None else None
            place = output_place(output, now=now, job=job_id)
            visits = project.records.archived(VisitQuery(spider=spider, job=job_id, since=since_at, failures=None))
            with _telling() as tell:
                kept = await export_warc(
                    visits,
                    project.archive,
                    place,
                    program=f"Gossamer {__version__}",
                    tell=lambda pages: tell(f"Writing ... {many(pages, 'page')}"),
                )
            return kept, str(place)

    kept, where = run_async(write())
    if kept.lost:
        copies = many(kept.lost, "page has no raw copy", "pages have no raw copy")
        err.print(f"Warning: {copies} any more and left out: {visible(kept.first_loss)}", style="yellow", markup=False)
    err.print(f"{many(kept.pages, 'page')} written to {visible(where)}", markup=False)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A line that is written anew while work goes on; on a terminal only."""
    if not err.is_terminal:
        yield lambda text: None
        return
    with err.status("Writing ...") as status:
        yield lambda text: status.update(visible(text))
