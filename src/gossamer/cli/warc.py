"""`gossamer warc`: archived pages out as WARC files, and other people's WARC files in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..clock import SystemClock
from ..errors import Misconfigured
from ..fetch.body import BodyDecoder, layers_of
from ..parse.discovery import is_file_ref
from ..parse.spider import callback_names
from ..project.open import open_project
from ..project.reparse.spiders import Finder, load
from ..settings import Settings
from ..store.contract import VisitQuery
from ..store.warc.taking import Imported, WarcImport
from ..store.warc.writing import Kept, export_warc, is_compressed
from .app import app, err, run_async, settings_with
from .layout import many, visible
from .look import open_crawled
from .places import output_place
from .typed import typed_job, typed_moment

DAMAGES_SHOWN = 5

warc_app = typer.Typer(help="Raw pages as WARC files: for other tools, and from other crawlers.", no_args_is_help=True)
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
            job_id = (await typed_job(project.jobs, job)).id if job is not None else None
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


@warc_app.command("import")
def import_verb(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="WARC files: .warc, .warc.gz, .warc.zst.")],
    spider: Annotated[
        str | None, typer.Option(help="Whose pages they are: this spider parses them. Our own files say it.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Parse them by this callback, or as this kind of page; else the likely one.")
    ] = None,
    job: Annotated[str | None, typer.Option(help="File them under this job; else SPIDER-warc, or as they say.")] = None,
) -> None:
    """Take pages that were archived elsewhere into the archive; `gossamer reparse` makes records of them."""
    settings = settings_with()
    name = _name_of(spider, settings)
    if kind is not None:
        _check_kind(kind, spider, settings)

    async def take() -> Imported:
        async with open_project(settings, to_look=True) as project:
            with _telling() as tell:
                task = WarcImport(
                    project.records,
                    project.archive,
                    project.rules,
                    decode=decoded,
                    max_body=settings.fetch.max_body.bytes,
                    worker=project.worker,
                    clock=project.clock,
                    spider=name,
                    kind=kind,
                    job=job,
                    tell=lambda state: tell(_spelled(state)),
                )
                state = Imported()
                try:
                    for file in files:
                        state = await task.take(file)
                finally:
                    task.close()
            return state

    state = run_async(take())
    for damage in state.damages[:DAMAGES_SHOWN]:
        err.print(f"Warning: damaged: {visible(damage)}", style="yellow", markup=False)
    if state.damaged > DAMAGES_SHOWN:
        err.print(f"Warning: {state.damaged - DAMAGES_SHOWN:,} more damages", style="yellow", markup=False)
    err.print(_spelled(state), markup=False)
    if state.pages > state.barren:
        chosen = f" --spider {visible(spider)}" if spider is not None else ""
        err.print(f"To make records of them: gossamer reparse{chosen}", markup=False)


def _name_of(spider: str | None, settings: Settings) -> str | None:
    """The name under which pages are filed; a file is asked how its spider is called. Raises SpiderNotFound."""
    return Finder(settings, spider).named if spider is not None and is_file_ref(spider) else spider


def _check_kind(kind: str, spider: str | None, settings: Settings) -> None:
    """A wrong one would stay with the pages. Raises Misconfigured, SpiderNotFound."""
    if spider is None:
        raise Misconfigured("--kind is a callback of a spider. Say of which one: --spider NAME.")
    found = Finder(settings, spider)
    names = callback_names(load(found.ref(found.named) or spider, settings))
    if kind not in names:
        raise Misconfigured(f"Spider {found.named} has no callback {visible(kind)!r}; it has {', '.join(names)}.")


def decoded(encodings: Sequence[str], pieces: Iterable[bytes], limit: int) -> tuple[bytes, bool]:
    """A body without its Content-Encoding, and whether its end is missing. Raises BadResponse."""
    names, note = layers_of(encodings)
    decoder = BodyDecoder(names, limit, note)
    taken = 0
    for piece in pieces:
        taken += len(piece)
        if not decoder.feed(piece) or taken > limit:
            break
    body = decoder.finish()
    return body.data[:limit], body.cut or len(body.data) > limit


def _spelled(state: Imported) -> str:
    """What became of the files, in one line; what did not happen is not told."""
    told = [f"{many(state.pages, 'page')} imported"]
    for count, words in (
        (state.known, "known already"),
        (state.cut, "of them cut short"),
        (state.barren, "of them redirects or errors"),
        (state.stripped, "of them without the password in their address"),
        (state.foreign, "not of the web"),
        (state.unresolved, "without the body they refer to"),
        (state.undated, "with no possible date"),
        (state.unreadable, "unreadable"),
        (state.other, "other records"),
    ):
        if count:
            told.append(f"{count:,} {words}")
    return ", ".join(told)


@contextmanager
def _telling() -> Iterator[Callable[[str], None]]:
    """A line that is written anew while work goes on; on a terminal only."""
    if not err.is_terminal:
        yield lambda text: None
        return
    with err.status("Reading ...") as status:
        yield lambda text: status.update(visible(text))
