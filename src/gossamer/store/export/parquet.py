"""Parquet with a type for every column (kinds.py), zstd, in row groups of bounded size. Needs the extra `parquet`.

Moments are timestamps in UTC with microseconds: the same moment, though the zone it was written in is gone. Money is a
struct of a decimal and a text. A column that has no one type is JSON text, and its field says so
(`gossamer = json` in its metadata); `rows_of` reads such columns as what they were.

How it fails: `MissingExtra` without pyarrow; `OSError` when the stream cannot be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ...errors import MissingExtra
from ...model.record import ItemSchema, StoredRecord
from .kinds import Declared, Kind, Sample, day_of, decimal_of, moment_of
from .places import ByteStream
from .rows import BATCH_ROWS, TIMES, Columns, Shelf, json_of

GROUP_ROWS = 50_000
GROUP_BYTES = 64 * 1024 * 1024  # of a row group, not yet compressed
FORM = b"gossamer"  # the field's metadata
JSON = b"json"

_MOMENTS = frozenset(f"_{name}" for name in TIMES)
_DATETIME: Declared = {"type": "datetime"}
_NOTHING: Declared = {}


def arrow() -> Any:  # Any: pyarrow comes without types
    """The library, loaded when first asked for. Raises MissingExtra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Parquet needs one more package: pip install 'gossamer[parquet]'.") from error
    return pyarrow


class ParquetWriter:
    """Takes all rows, then knows the types, then writes. `schemas` are the declared shapes of items."""

    def __init__(self, stream: ByteStream, schemas: Sequence[ItemSchema] = ()) -> None:
        self._arrow = arrow()
        self._stream = stream
        self._columns = Columns()
        self._samples: dict[str, Sample] = {}
        self._declared = {schema.id: _fields_of(schema) for schema in schemas}
        self._shelf = Shelf()
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        row = self._columns.row(record)
        declared = self._declared.get(record.schema, _NOTHING)
        own, samples = record.data, self._samples
        for name, value in row.items():
            sample = samples.get(name)
            if sample is None:
                sample = samples[name] = Sample()
            if name in own:
                sample.see(value, declared.get(name, _NOTHING))
            else:
                sample.see(value, _DATETIME if name in _MOMENTS else _NOTHING)
        self._shelf.put(row)

    def finish(self) -> None:
        pa = self._arrow
        kinds = {name: self._kind(name) for name in self._columns.names()}
        schema = pa.schema([self._field(name, kind) for name, kind in kinds.items()])
        reads = {name: _reader(kind) for name, kind in kinds.items()}
        out = pa.parquet.ParquetWriter(_Sink(self._stream), schema, compression="zstd")
        held: list[Any] = []
        for rows in self._shelf.batches():
            columns = [_column(rows, name, reads[name]) for name in kinds]
            held.append(
                pa.record_batch(
                    [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
                )
            )
            if sum(len(batch) for batch in held) >= GROUP_ROWS or sum(batch.nbytes for batch in held) >= GROUP_BYTES:
                self._write(out, held, schema)
        self._write(out, held, schema)
        out.close()

    def close(self) -> None:
        self._shelf.close()

    def _kind(self, name: str) -> Kind:
        sample = self._samples.get(name)
        if sample is None:  # no record had a value for it
            return Kind("zoned" if name in _MOMENTS else "text")
        return sample.kind()

    def _field(self, name: str, kind: Kind) -> Any:
        metadata = {FORM: JSON} if kind.word == "json" else None
        return self._arrow.field(name, _type(self._arrow, kind), metadata=metadata)

    def _write(self, out: Any, held: list[Any], schema: Any) -> None:
        if held:
            group = self._arrow.Table.from_batches(held, schema)
            out.write_table(group, row_group_size=len(group))
            self.count += len(group)
            held.clear()


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a file that was written here; JSON text as what it stands for. Raises MissingExtra."""
    pa = arrow()
    with pa.parquet.ParquetFile(path) as file:
        encoded = [field.name for field in file.schema_arrow if (field.metadata or {}).get(FORM) == JSON]
        for batch in file.iter_batches(BATCH_ROWS):
            for row in batch.to_pylist():
                for name in encoded:
                    if row[name] is not None:
                        row[name] = msgspec.json.decode(row[name])
                yield row


class _Sink:
    """What Arrow wants to see of a stream."""

    closed = False

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:  # Any: Arrow's own buffers
        self._stream.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        """The export flushes its stream at the end."""


def _fields_of(schema: ItemSchema) -> Mapping[str, Declared]:
    fields: Mapping[str, Declared] = msgspec.json.decode(schema.definition).get("fields", {})
    return fields


def _column(rows: list[dict[str, Any]], name: str, read: Callable[[Any], Any] | None) -> list[Any]:
    if read is None:
        return [row.get(name) for row in rows]
    return [None if (value := row.get(name)) is None else read(value) for row in rows]


def _type(pa: Any, kind: Kind) -> Any:
    match kind.word:
        case "bool":
            return pa.bool_()
        case "int":
            return pa.int64()
        case "float":
            return pa.float64()
        case "decimal":
            return pa.decimal128(38, kind.scale)
        case "date":
            return pa.date32()
        case "zoned":
            return pa.timestamp("us", tz="UTC")
        case "naive":
            return pa.timestamp("us")
        case "list":
            return pa.list_(_type(pa, kind.inside[0][1]) if kind.inside else pa.string())
        case "struct":
            return pa.struct([pa.field(name, _type(pa, inner)) for name, inner in kind.inside])
    return pa.string()


def _reader(kind: Kind) -> Callable[[Any], Any] | None:
    """From JSON's values to those that Arrow takes; None where they are the same."""
    match kind.word:
        case "json":
            return lambda value: json_of(value).decode()
        case "decimal":
            return decimal_of
        case "date":
            return day_of
        case "zoned" | "naive":
            return moment_of
        case "list":
            inner = _reader(kind.inside[0][1]) if kind.inside else None
            return None if inner is None else _each(inner)
        case "struct":
            readers = {name: read for name, one in kind.inside if (read := _reader(one)) is not None}
            return _parts(readers) if readers else None
    return None


def _each(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: [None if value is None else read(value) for value in values]


def _parts(readers: Mapping[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def read(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: readers[name](inner) if inner is not None and name in readers else inner
            for name, inner in value.items()
        }

    return read
