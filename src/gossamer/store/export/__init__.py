"""Records out of the store, as JSON Lines, JSON, CSV, Parquet or an Excel workbook, in flat memory.

    destination.py   where an export goes (a file, standard output, or a backend's own), the format and compression by
                     its name, and the cursor file of an export that continues from the last one
    text_formats.py  a record as a row; JSON Lines and CSV
    parquet.py       Parquet and the types of its columns

`gossamer crawl -o FILE` is the same export with `RecordQuery(job=...)` when the crawl has ended.

How it fails: `Misconfigured` for an invalid format or destination, `BackendUnavailable` for a full disk; then the old
file is untouched. A reader that goes away (`| head`) ends the export without an error, and `Exported.whole` is False.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ...errors import Misconfigured
from ...model.record import ItemSchema, StoredRecord
from ..contract import RecordQuery
from .destination import (
    STDOUT,
    ByteStream,
    Destination,
    ExportFormat,
    FileDestination,
    StandardOutput,
    destination_at,
    export_error,
    format_of,
    named,
    packed,
)
from .parquet import ParquetWriter, arrow
from .text_formats import WHOLE, ArrayWriter, LinesWriter, TableShape, TableWriter, read_cell
from .workbook import SheetWriter, workbooks

__all__ = [
    "STDOUT",
    "Destination",
    "ExportFormat",
    "Exported",
    "FileDestination",
    "StandardOutput",
    "TableShape",
    "destination_at",
    "export",
    "format_of",
    "named",
    "probe_destination",
    "read_cell",
]

CHUNK = 256  # records handled at once, off the event loop


class RecordSource(Protocol):
    """What an export needs from a record store."""

    def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]: ...

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]: ...


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """How many records were written. Not `whole`: the reader went away before the end."""

    records: int
    whole: bool = True


class FormatWriter(Protocol):
    """Writes one format. `take` and `finish` run off the event loop; after `finish` everything is written."""

    count: int

    def take(self, record: StoredRecord) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


def probe_destination(target: Path | Destination) -> None:
    """Find out now, and not after hours of crawling, whether `target` can be written. Blocks.

    Raises Misconfigured, BackendUnavailable.
    """
    place = destination_at(target)
    if format_of(place.name, None).format == "parquet":
        arrow()
    if format_of(place.name, None).format == "xlsx":
        workbooks()
    place.probe()


async def export(
    store: RecordSource,
    query: RecordQuery,
    target: Path | Destination,
    format: str | None = None,
    *,
    shape: TableShape = WHOLE,
    even_empty: bool = True,
) -> Exported:
    """Write the matching records to `target`, which is replaced. Raises Misconfigured, BackendUnavailable.

    Unless `even_empty`, nothing is written if no record matches: the old content stays.
    """
    place = destination_at(target)
    form = format_of(place.name, format)
    if shape.columns and form.format in ("jsonl", "json"):
        raise Misconfigured("Columns can be chosen only for tables (.csv, .parquet); JSON Lines have all fields.")
    schemas = [schema for schema, _ in await store.schemas(query.type)] if form.format == "parquet" else []
    records = store.records(query)
    first = await anext(records, None)
    if first is None and not even_empty:
        return Exported(records=0)
    try:
        return await _write(first, records, place, form, schemas, shape)
    except OSError as error:
        raise export_error(error, place) from error


async def _write(
    first: StoredRecord | None,
    rest: AsyncIterator[StoredRecord],
    place: Destination,
    form: ExportFormat,
    schemas: Sequence[ItemSchema],
    shape: TableShape,
) -> Exported:
    count = 0
    try:
        async with place.opened() as stream, packed(stream, form.compression) as inner:
            writer = _writer(form.format, inner, schemas, shape)
            try:
                async for chunk in _chunks(first, rest):
                    await asyncio.to_thread(_take, writer, chunk)
                await asyncio.to_thread(writer.finish)
                await asyncio.to_thread(inner.flush)
            finally:
                count = writer.count
                writer.close()
    except BrokenPipeError:
        if not isinstance(place, StandardOutput):
            raise
        return Exported(records=count, whole=False)
    return Exported(records=count)


def _writer(format: str, stream: ByteStream, schemas: Sequence[ItemSchema], shape: TableShape) -> FormatWriter:
    if format == "parquet":
        return ParquetWriter(stream, schemas, shape)
    if format == "xlsx":
        return SheetWriter(stream, shape)
    if format == "json":
        return ArrayWriter(stream, shape)
    return TableWriter(stream, shape) if format == "csv" else LinesWriter(stream, shape)


def _take(writer: FormatWriter, records: Sequence[StoredRecord]) -> None:
    for record in records:
        writer.take(record)


async def _chunks(first: StoredRecord | None, rest: AsyncIterator[StoredRecord]) -> AsyncIterator[list[StoredRecord]]:
    chunk = [] if first is None else [first]
    async for record in rest:
        chunk.append(record)
        if len(chunk) >= CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
