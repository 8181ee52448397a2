"""Exports of a project's data: records as JSON Lines, CSV or Parquet, raw pages as WARC.

Formats and destinations are in store/export. This module decides which destination an output names, which records are
exported, and where an export of changes continues.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from ... import __version__
from ...backends.addresses import place_of
from ...clock import SystemClock, iso_time
from ...errors import Misconfigured
from ...model.job import Job, JobState
from ...parse.links import as_texts
from ...parse.spider import Spider
from ...settings import Settings
from ...store.contract import RecordQuery, VisitQuery
from ...store.export import (
    Destination,
    Exported,
    StandardOutput,
    TableShape,
    destination_at,
    export,
    format_of,
    named,
    probe_destination,
)
from ...store.export.destination import CursorFile, ExportCursor
from ...store.warc import export_warc, is_compressed
from ..jobs.jobs import find_job
from ..jobs.outcome import leaves_outputs_alone
from ..open import Project
from .files import FileFolder, JoinedRecords
from .live_lines import LiveLines, is_live
from .records import RecordFilter, query_of, what_there_is

_REMOTE = "s3://"
FEEDS_FOR = timedelta(days=1)  # in this time, a second `gossamer crawl` of a job does not write its feeds again
LOOKED_AT = 1_000  # records whose types are known before a command is recommended
_ANY = "any"  # stands for `{job}` and `{type}` until they are known


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    records: int  # written
    place: str | None  # the file; None is standard output
    whole: bool  # False: the reader disconnected before the end, and the cursor was not moved
    note: str = ""  # a possible reason why no record matches
    files: int = 0  # written beside the records
    lost_files: int = 0  # no longer in the archive
    first_loss: str = ""


class WarcReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export of raw pages."""

    pages: int  # written
    place: str
    lost: int = 0  # pages whose raw copy was pruned or is damaged
    first_loss: str = ""


def destination_of(output: str, *, now: float, **words: str | None) -> Destination:
    """The place that `output` names, with its placeholders filled in (`named`). Raises Misconfigured, MissingExtra."""
    if output.lower().startswith(_REMOTE):
        from ...backends.object.destination import ObjectDestination  # its client is an optional extra

        address, mark, options = output.partition("?")  # an endpoint has no placeholders
        return ObjectDestination(named(address, now=now, **words) + mark + options)
    scheme, found, _ = output.partition("://")
    if found and scheme.isalnum():
        raise Misconfigured(
            f"-o {scheme}://...: only s3:// can be written to, and files. `gossamer crawl -o` and [outputs.NAME] in"
            f" gossamer.toml also write to databases: docs/outputs.md."
        )
    return destination_at(Path(named(output, now=now, **words)))


def outputs_of(output: str | Path | Sequence[str] | None, spider: Spider) -> tuple[str, ...]:
    """Where a crawl writes its records: the user's choice, otherwise the spider's. Raises Misconfigured."""
    if isinstance(output, str | Path):
        return (str(output),)
    outputs = output or as_texts(spider.outputs)
    if not isinstance(outputs, list | tuple) or not all(isinstance(one, str | Path) for one in outputs):
        raise Misconfigured(f"outputs of {spider.name} must be a list of file names, not {outputs!r:.80}.")
    return tuple(map(str, outputs))


def try_outputs(outputs: Sequence[str], spider: Spider, settings: Settings) -> None:
    """Check before a crawl whether its outputs can be written; the job has no id yet. Raises as `destination_of`."""
    from ..outputs.run import is_address, try_address, typed_outputs  # which imports this project's records

    for table in typed_outputs([one for one in outputs if is_address(one)], spider.name).values():
        try_address(settings, table)
    files = [one for one in outputs if not is_address(one)]
    places = [destination_of(one, now=SystemClock().now(), job=_ANY, spider=spider.name, type=_ANY) for one in files]
    if len({str(place) for place in places}) < len(places):
        raise Misconfigured("Two outputs are the same file. Name each of them once.")
    for place in places:
        probe_destination(place)


def live_lines(
    project: Project, job: str, spider: Spider, outputs: Sequence[str], *, meta: bool = True
) -> dict[str, LiveLines]:
    """The outputs that are written while the crawl goes on."""
    source, now = JoinedRecords(project.records, project.rules), project.clock.now()
    found = {}
    for output in outputs:
        if "{type}" not in output:
            place = destination_of(output, now=now, job=job, spider=spider.name)
            if is_live(place) and (isinstance(place, StandardOutput) or getattr(place, "path", None) is not None):
                found[output] = LiveLines(
                    place, source, project.records.cursor, job, project.clock, TableShape(meta=meta)
                )
    return found


async def write_outputs(
    project: Project, job: str, spider: Spider, outputs: Sequence[str], *, gone: bool | None, meta: bool = True
) -> None:
    """Write the records of a job to each of the outputs; for an output with `{type}`, to one file per type. Raises
    Misconfigured for a table of several types."""
    source, now = JoinedRecords(project.records, project.rules), project.clock.now()
    types: list[str] = []
    if any("{type}" in one or is_table(one) for one in outputs):
        found = {record.type async for record in project.records.records(RecordQuery(job=job, gone=gone))}
        types = sorted(found)
    for output in outputs:
        for kind in types if "{type}" in output else [None]:
            place = destination_of(output, now=now, job=job, spider=spider.name, type=kind)
            if kind is None and is_table(output):
                refuse_several(output, types)
            shape = TableShape(meta=meta)
            await export(source, RecordQuery(job=job, type=kind, gone=gone), place, shape=shape)


def is_table(output: str, format: str | None = None) -> bool:
    """Whether all records would share the columns of one sheet."""
    form = format_of(output.partition("?")[0], format).format
    return form in ("csv", "xlsx")


def refuse_several(output: str, types: Sequence[str]) -> None:
    """Raises Misconfigured for a sheet of several types, whose columns would be those of all of them."""
    if len(types) > 1:
        stem, dot, ending = output.rpartition(".")
        raise Misconfigured(
            f"{output}: items of {len(types)} types ({', '.join(types[:5])}) do not fit one table. Export one of them:"
            f" gossamer export --type {types[0]} -o {output}; or crawl into a file for each:"
            f" -o '{stem}-{{type}}{dot}{ending}'."
        )


async def table_command(project: Project, job: str) -> str:
    """A command that writes the records of the job as a table: of one type, if its first records are of several."""
    types: set[str] = set()
    count = 0
    async for record in project.records.records(RecordQuery(job=job, gone=False)):
        types.add(record.type)
        count += 1
        if count == LOOKED_AT:
            break
    only = f" --type {shlex.quote(min(types))}" if len(types) > 1 else ""
    return f"gossamer export --job {job}{only} -o items.csv"


async def write_feeds(project: Project, job: Job, spider: Spider) -> list[str]:
    """Let the spider write its own kind of outputs, once, when the job has ended; return where they are."""
    if type(spider)._write_feeds is Spider._write_feeds:
        return []
    known = await project.state.jobs.job(job.id)
    if known is None or known.state is JobState.RUNNING or await leaves_outputs_alone(project, job.id):
        return []
    # No worker reads the seeds of an ended job, so their lease decides which process writes.
    if not await project.state.seeds.claim(job.id, project.worker, FEEDS_FOR):
        return []
    source = JoinedRecords(project.records, project.rules)
    return await spider._write_feeds(source.records(RecordQuery(job=job.id, gone=False)))


def is_binary_output(output: str, format: str | None = None, job: str | None = None) -> bool:
    """Whether the export would write a binary format to standard output. Raises Misconfigured for a name without a
    known format."""
    place = destination_of(output, now=SystemClock().now(), job=job or _ANY, spider=_ANY, type=_ANY)
    return format_of(place.name, format).format in ("parquet", "xlsx") and isinstance(place, StandardOutput)


async def export_records(
    project: Project,
    wanted: RecordFilter,
    output: str,
    *,
    format: str | None = None,
    meta: bool = True,
    columns: Sequence[str] = (),
    cursor: Path | None = None,
    files: Path | None = None,
    keep_endings: bool = False,
) -> ExportReport:
    """Write the matching records, and the files they name into the folder `files`; existing files are replaced.

    `meta` adds what the store knows about a record besides its item; `columns` are those of a table. With a `cursor`
    file, only what was stored since the last export with that file, including records that are gone; if nothing is new,
    no file is written. With `keep_endings` files keep the endings that sites gave them, also those of programs. Raises
    Misconfigured, BackendUnavailable.
    """
    query = await query_of(project, wanted)
    place = destination_of(output, now=project.clock.now(), job=query.job, spider=query.spider, type=query.type)
    note = ""
    shape = TableShape(meta=meta, columns=tuple(columns))
    folder = FileFolder(files, project.archive, keep_endings=keep_endings) if files is not None else None
    if folder is not None:
        await folder.open()
    source = JoinedRecords(project.records, project.rules, folder)
    if query.type is None and is_table(output, format):
        refuse_several(output, sorted({record.type async for record in project.records.records(query)}))
    if cursor is not None:
        done = await _export_changes(project, source, query, wanted, place, format, shape, cursor)
    else:
        done = await export(source, query, place, format, shape=shape)
        if not done.records and done.whole:
            note = await what_there_is(project, query)
    shown = None if isinstance(place, StandardOutput) else str(place)
    return ExportReport(
        records=done.records,
        place=shown,
        whole=done.whole,
        note=note,
        files=folder.written if folder is not None else 0,
        lost_files=len(folder.lost) if folder is not None else 0,
        first_loss=next(iter(folder.lost.values()), "") if folder is not None else "",
    )


async def _export_changes(
    project: Project,
    source: JoinedRecords,
    query: RecordQuery,
    wanted: RecordFilter,
    place: Destination,
    format: str | None,
    shape: TableShape,
    path: Path,
) -> Exported:
    file = CursorFile(path)
    file.check_place(place)
    kept = file.read()
    cursor = await project.records.cursor()
    # As the user wrote them: the newest job of a spider is a different one each time.
    filters = {"job": wanted.job, "spider": wanted.spider, "type": wanted.type, "site": wanted.site}
    now = ExportCursor(
        cursor=cursor,
        records=place_of(project.settings, "records"),
        filters={name: value for name, value in filters.items() if value is not None},
        told_at=iso_time(project.clock.now()),
    )
    if kept is not None:
        file.check(kept, now)
    changed = msgspec.structs.replace(query, gone=None, after=kept.cursor if kept is not None else None, upto=cursor)
    done = await export(source, changed, place, format, shape=shape, even_empty=False)
    if done.whole:
        file.keep(now)
    return done


async def export_pages(
    project: Project,
    output: str,
    *,
    job: str | None = None,
    spider: str | None = None,
    since: float | None = None,
    tell: Callable[[int], None] = lambda pages: None,
) -> WarcReport:
    """Write archived pages to a WARC file, the newest copy of each. `tell` is called with the number of pages so far.

    Raises Misconfigured, BackendUnavailable.
    """
    job_id = (await find_job(project, job)).id if job is not None else None
    place = destination_of(output, now=project.clock.now(), job=job_id)
    visits = project.records.archived(VisitQuery(spider=spider, job=job_id, since=since, failures=None))
    kept = await export_warc(visits, project.archive, place, program=f"Gossamer {__version__}", tell=tell)
    return WarcReport(pages=kept.pages, place=str(place), lost=kept.lost, first_loss=kept.first_loss)


def check_warc_name(output: str, job: str | None = None) -> None:
    """Raises Misconfigured for a name that is not that of a WARC file."""
    is_compressed(destination_of(output, now=SystemClock().now(), job=job).name)
