"""Parquet with a type for every column, zstd, in row groups of bounded size. Needs the extra `parquet`.

Moments are timestamps in UTC with microseconds: the same moment, without the zone it was written in. Money is a struct
of a decimal and a text. A column without a single type is JSON text, and its field says so (`gossamer = json` in its
metadata); `rows_of` decodes such columns.

How it fails: `MissingExtra` without pyarrow; `OSError` if the stream cannot be written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from ...errors import MissingExtra
from ...model.record import ItemSchema, StoredRecord
from .destination import ByteStream
from .text_formats import BATCH_ROWS, TIMES, WHOLE, Columns, RowBuffer, TableShape, json_of

GROUP_ROWS = 50_000
GROUP_BYTES = 64 * 1024 * 1024  # of a row group, uncompressed
FORM = b"gossamer"  # the field's metadata
JSON = b"json"

_MOMENTS = frozenset(f"_{name}" for name in TIMES)
_DATETIME: Declared = {"type": "datetime"}
_NOTHING: Declared = {}


def arrow() -> Any:  # Any: pyarrow comes without types
    """The library, imported on first use. Raises MissingExtra."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtra("Parquet needs one more package: pip install 'gossamer[parquet]'.") from error
    return pyarrow


class ParquetWriter:
    """Takes all rows, then knows the types, then writes. `schemas` are the declared schemas of items."""

    def __init__(self, stream: ByteStream, schemas: Sequence[ItemSchema] = (), shape: TableShape = WHOLE) -> None:
        self._arrow = arrow()
        self._stream = stream
        self._columns = Columns(shape=shape)
        self._samples: dict[str, ColumnSample] = {}
        self._declared = {schema.id: _fields_of(schema) for schema in schemas}
        self._shelf = RowBuffer()
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        row = self._columns.row(record)
        declared = self._declared.get(record.schema, _NOTHING)
        own, samples = record.data, self._samples
        for name, value in row.items():
            sample = samples.get(name)
            if sample is None:
                sample = samples[name] = ColumnSample()
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
        if sample is None:  # no record has a value for it
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
    """The rows of a file written here, with JSON text decoded. Raises MissingExtra."""
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
    """What Arrow needs from a stream."""

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
    """Converts JSON values to those that Arrow takes; None if they are the same."""
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


Declared: TypeAlias = Mapping[str, Any]  # the description of one field: {"type": "list", "of": {"type": "text"}}

TEXTUAL = frozenset({"text", "decimal", "date", "zoned", "naive"})
SCALES = (4, 9, 18)  # digits after the point: few steps, so that files of many days have the same type
DIGITS = 38
MAX_LEVELS = 8
MAX_FIELDS = 64  # per struct

_EXACT = 2**53  # integers up to here are exact as floats
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,60}(\.[0-9]{1,60})?")
_MONEY = {"amount": {"type": "decimal"}, "currency": {"type": "text"}}


class Kind(msgspec.Struct, frozen=True):
    """The type of a column, or of its elements. `scale` is for a decimal, `inside` for a list or a struct."""

    word: str
    scale: int = 0
    inside: tuple[tuple[str, Kind], ...] = ()


class ColumnSample:
    """What the values of one column have been so far, in memory that does not grow with their number."""

    __slots__ = ("_children", "_declared", "_level", "_scale", "_unlike", "_whole", "_wide", "_words")

    def __init__(self, level: int = 0) -> None:
        self._words: set[str] = set()
        self._level = level
        self._wide = False  # an integer that a float cannot hold
        self._whole = 0  # digits before the point, of decimals
        self._scale = 0
        self._children: dict[str, ColumnSample] | None = None
        self._unlike = False  # objects with different fields
        self._declared: Declared | None = None

    def see(self, value: Any, declared: Declared = _NOTHING) -> None:  # Any: whatever JSON holds
        if declared is not self._declared:
            self._declared = declared if self._declared in (None, declared) else _NOTHING
        if value is None:
            return
        kind = type(value)
        if kind is str:
            self._words.add(self._word_of(value, declared.get("type")) if declared else "text")
        elif kind is bool:
            self._words.add("bool")
        elif kind is int:
            exact = -_EXACT <= value <= _EXACT
            fits = "float" if exact and declared.get("type") == "float" else "int"
            self._words.add(fits if _INT_MIN <= value <= _INT_MAX else "json")
            self._wide = self._wide or not exact
        elif kind is float:
            self._words.add("float")
        elif self._level >= MAX_LEVELS:
            self._words.add("json")
        elif kind is list:
            self._words.add("list")
            self._see_list(value, declared.get("of") or _NOTHING)
        else:
            self._words.add("struct")
            self._see_object(value, declared)

    def _word_of(self, text: str, wanted: object) -> str:
        if wanted == "datetime":
            moment = moment_of(text)
            return "text" if moment is None else ("zoned" if moment.tzinfo is not None else "naive")
        if wanted == "date":
            return "text" if day_of(text) is None else "date"
        if wanted == "decimal":
            number = decimal_of(text)
            if number is None:
                return "text"
            whole, _, fraction = text.strip("+-").partition(".")
            self._whole, self._scale = max(self._whole, len(whole)), max(self._scale, len(fraction))
            return "decimal"
        return "text"

    def _see_list(self, values: list[Any], declared: Declared) -> None:
        inside = self._inside("item")
        inside.see(None, declared)  # an empty list has a type too, if it is declared
        for value in values:
            inside.see(value, declared)

    def _see_object(self, value: dict[str, Any], declared: Declared) -> None:
        if self._unlike:
            return
        fields = _MONEY if value.keys() == _MONEY.keys() else declared.get("fields") or _NOTHING
        known = self._children
        # A list's only child is called "item": a column of lists and objects becomes JSON anyway.
        if not 0 < len(value) <= MAX_FIELDS or (known is not None and known.keys() != value.keys()):
            self._unlike, self._children = True, None
            return
        for name, inner in value.items():
            self._inside(name).see(inner, fields.get(name) or _NOTHING)

    def _inside(self, name: str) -> ColumnSample:
        if self._children is None:
            self._children = {}
        if name not in self._children:
            self._children[name] = ColumnSample(self._level + 1)
        return self._children[name]

    def kind(self) -> Kind:
        """The narrowest type that fits all values."""
        words = self._words
        if not words:
            return _declared_kind(self._declared or _NOTHING)
        if words == {"int", "float"} and not self._wide:
            return Kind("float")
        if words == {"decimal"}:
            scale = next((scale for scale in SCALES if scale >= self._scale), None)
            fits = scale is not None and self._whole + scale <= DIGITS
            return Kind("decimal", scale or 0) if fits else Kind("text")
        if words <= TEXTUAL and len(words) > 1:
            return Kind("text")
        if len(words) > 1 or words == {"json"} or (words == {"struct"} and self._unlike):
            return Kind("json")
        (word,) = words
        if word not in ("list", "struct"):
            return Kind(word)
        inside = tuple((name, child.kind()) for name, child in (self._children or {}).items())
        return Kind("json") if any(kind.word == "json" for _, kind in inside) else Kind(word, 0, inside)


def _declared_kind(declared: Declared) -> Kind:
    """The type of a column without any value."""
    word = declared.get("type")
    if word in ("bool", "int", "float", "date"):
        return Kind(word)
    if word == "decimal":
        return Kind("decimal", SCALES[0])
    if word == "money":
        return Kind("struct", 0, tuple((name, _declared_kind(inner)) for name, inner in _MONEY.items()))
    if word == "list":
        return Kind("list", 0, (("item", _declared_kind(declared.get("of") or _NOTHING)),))
    return Kind("zoned") if word == "datetime" else Kind("text")


def moment_of(text: str) -> datetime | None:
    """A date and time as items write them, in UTC if it names a zone. None for any other text."""
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February; the year 0 somewhere
        return None


def day_of(text: str) -> date | None:
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def decimal_of(text: str) -> Decimal | None:
    """A plain decimal number; None for any other text, including exponents."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None
