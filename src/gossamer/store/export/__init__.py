"""Records out of the store, as JSON Lines, CSV or Parquet, in flat memory.

    form.py      which format and compression a name asks for, and what `{time}` in it stands for
    places.py    where it is written: a file, standard output, or what is brought from elsewhere
    lines.py     JSON Lines        table.py  CSV        parquet.py, kinds.py  Parquet and its types
    rows.py      a record as a row, and the rows that wait for their columns
    progress.py  how far an export that goes on from the last one has come

`gossamer crawl -o FILE` is the same export with `RecordQuery(job=...)` when the crawl has ended.

How it fails: `Misconfigured` for a format or place that cannot be, `BackendUnavailable` for a full disk; then the old
file is untouched. A reader that goes away (`| head`) ends the export without an error, and `Exported.whole` is False.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from ...model.record import ItemSchema, StoredRecord
from ..contract import RecordQuery
from .form import Form, form_of, named, packed
from .lines import LinesWriter
from .parquet import ParquetWriter, arrow
from .places import STDOUT, ByteStream, FilePlace, Place, StandardOutput, place_at, trouble_with
from .rows import META
from .table import TableWriter, read_cell

__all__ = [
    "META",
    "STDOUT",
    "Exported",
    "FilePlace",
    "Form",
    "Place",
    "StandardOutput",
    "export",
    "form_of",
    "named",
    "place_at",
    "read_cell",
    "try_place",
]

CHUNK = 256  # records that are handled in one go, off the event loop


class Source(Protocol):
    """What an export needs of a record store."""

    def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]: ...

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]: ...


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """How many records were written. Not `whole`: the reader went away before the end."""

    records: int
    whole: bool = True


class Writer(Protocol):
    """One format. `take` and `finish` run off the event loop; what is not written before `finish` is after it."""

    count: int

    def take(self, record: StoredRecord) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


def try_place(target: Path | Place, format: str | None = None) -> None:
    """Find out now, and not after hours of crawling, whether `target` can be written. Blocks.

    Raises Misconfigured, BackendUnavailable.
    """
    place = place_at(target)
    if form_of(place.name, format).format == "parquet":
        arrow()
    place.probe()


async def export(
    store: Source,
    query: RecordQuery,
    target: Path | Place,
    format: str | None = None,
    *,
    even_empty: bool = True,
) -> Exported:
    """Write the records that match to `target`. Raises Misconfigured, BackendUnavailable.

    Unless `even_empty`, nothing is written where no record matches: what was there before stays.
    """
    place = place_at(target)
    form = form_of(place.name, format)
    schemas = [schema for schema, _ in await store.schemas(query.type)] if form.format == "parquet" else []
    records = store.records(query)
    first = await anext(records, None)
    if first is None and not even_empty:
        return Exported(records=0)
    try:
        return await _write(first, records, place, form, schemas)
    except OSError as error:
        raise trouble_with(error, place) from error


async def _write(
    first: StoredRecord | None,
    rest: AsyncIterator[StoredRecord],
    place: Place,
    form: Form,
    schemas: Sequence[ItemSchema],
) -> Exported:
    count = 0
    try:
        async with place.opened() as stream, packed(stream, form.compression) as inner:
            writer = _writer(form.format, inner, schemas)
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


def _writer(format: str, stream: ByteStream, schemas: Sequence[ItemSchema]) -> Writer:
    if format == "parquet":
        return ParquetWriter(stream, schemas)
    return TableWriter(stream) if format == "csv" else LinesWriter(stream)


def _take(writer: Writer, records: Sequence[StoredRecord]) -> None:
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
