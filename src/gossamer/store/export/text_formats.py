"""Records as JSON Lines and CSV, and what both and Parquet share: a record as a row.

A row holds the item's own fields and the store's facts about the record: JSON Lines put those under `_meta`, tables in
columns `_type`, `_site` and so on. If an item has a field of such a name, the item's own value counts. No table is
wider than MAX_COLUMNS: items whose field names come from a page could each add a column. Fields that do not fit go into
the column `_more`, as a JSON object.

CSV is RFC 4180 in UTF-8: the fields of all records as columns, in order of appearance. An object in a field becomes
several columns (`price_amount`, `price_currency`); lists and deeper nesting are JSON. A spreadsheet takes a text that
begins with one of `= + - @`, their wide and small forms, a tab or a line break for a formula and may run it, also
behind what it does not show (blanks, a byte order mark, characters without width) or takes for a separator. Such a text
gets a leading apostrophe; so does one with apostrophes before such a sign: `read_cell` removes exactly one, so every
text comes back unchanged. Numbers stay numbers, including negative ones.
Cells with a character that a spreadsheet may use as a separator are quoted.
"""

from __future__ import annotations

import difflib
import io
import re
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import zstandard

from ...clock import iso_time
from ...errors import Misconfigured
from ...model.record import StoredRecord
from .destination import ByteStream

META = ("type", "site", "key", "url", "job", "spider", "first_seen", "last_changed", "last_checked", "version")
GONE = "gone_since"
TIMES = ("first_seen", "last_changed", "last_checked", GONE)
META_COLUMNS = tuple(f"_{name}" for name in (*META, GONE))

MAX_COLUMNS = 2000
MORE = "_more"
MAX_NESTING = 3  # objects in objects that become columns

PIECE = 256 * 1024  # bytes gathered before they are written
MOST_TOLD = 40  # columns in a message
BATCH_ROWS = 500  # rows in memory when they are read back
BATCH_BYTES = 8 * 1024 * 1024


def meta_of(record: StoredRecord) -> dict[str, Any]:
    """The facts of a record besides its item. `gone_since` is present if it is gone."""
    meta = {name: getattr(record, name) for name in META}
    if record.gone_since is not None:
        meta[GONE] = record.gone_since
    for name in TIMES:
        if name in meta:
            meta[name] = iso_time(meta[name])
    return meta


def json_of(value: Any) -> bytes:  # Any: whatever an item may hold
    return msgspec.json.encode(value)


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """What to write of each record: with or without the store's facts; only these columns, in this order."""

    meta: bool = True
    columns: tuple[str, ...] = ()  # all


WHOLE = TableShape()


class Columns:
    """The names of a table's columns, in order of appearance. `flat`: an object in a field becomes several columns."""

    def __init__(self, limit: int = MAX_COLUMNS, *, shape: TableShape = WHOLE, flat: bool = False) -> None:
        self._names: dict[str, str] = {}  # each with the item's field that it is, or is a part of
        self._filled: set[str] = set()  # fields that have been something other than an object or null
        self._limit = limit
        self._shape = shape
        self._flat = flat

    def row(self, record: StoredRecord) -> dict[str, Any]:
        """The record as a row of this table, which adds columns for it."""
        row = {f"_{name}": value for name, value in meta_of(record).items()} if self._has_meta() else {}
        names, rest = self._names, {}
        for field, name, value in self._cells(record.data):
            if name not in names:
                if len(names) >= self._limit:
                    rest[name] = value
                    continue
                names[name] = field
            if name == field and value is not None:
                self._filled.add(name)
            row[name] = value
        if rest:
            if MORE in row:  # the item's own field of that name is kept with the rest
                rest[MORE] = row[MORE]
            row[MORE] = rest
        return row

    def names(self) -> list[str]:
        """The requested columns; else all, the store's facts last. Raises Misconfigured for a requested column that no
        record has."""
        tail = META_COLUMNS if self._has_meta() else ()
        tail = tail if len(self._names) < self._limit else (MORE, *tail)
        own = self._own_names()
        there = [*own, *(name for name in tail if name not in self._names)]
        for name in self._shape.columns if self._names else ():
            if name not in there:
                near = difflib.get_close_matches(name, there, n=1)
                hint = f" Did you mean {near[0]}?" if near else ""
                raise Misconfigured(
                    f"No record has a column {name!r}.{hint} There are: {', '.join(there[:MOST_TOLD])}."
                )
        return list(self._shape.columns) or there

    def _own_names(self) -> list[str]:
        """The parts of a field stand together. A field that was only null or an object has no other column."""
        parts: dict[str, list[str]] = {}
        for name, field in self._names.items():
            parts.setdefault(field, []).append(name)
        for field, names in parts.items():
            if len(names) > 1 and field in names and field not in self._filled:
                names.remove(field)
        return [name for names in parts.values() for name in names]

    def _has_meta(self) -> bool:
        return self._shape.meta or any(name.startswith("_") for name in self._shape.columns)

    def _cells(self, data: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
        """The field, the name of the column, and the value."""
        for field, value in data.items():
            if self._flat and isinstance(value, dict) and value:
                parts = dict(_parts(field, value))
                if not parts.keys() & data.keys():  # else the item has a field of that name: that one counts
                    yield from ((field, name, part) for name, part in parts.items())
                    continue
            yield field, field, value


def _parts(name: str, value: dict[str, Any], depth: int = 1) -> Iterator[tuple[str, Any]]:
    for key, part in value.items():
        if isinstance(part, dict) and part and depth < MAX_NESTING:
            yield from _parts(f"{name}_{key}", part, depth + 1)
        else:
            yield f"{name}_{key}", part


class RowBuffer:
    """Rows on disk between two passes. Reading the store a second time could yield records that have changed and no
    longer fit the columns. Compressed, because the folder for temporary files may be in memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see close()
        self._in = zstandard.ZstdCompressor(level=1).stream_writer(self._file, closefd=False)

    def close(self) -> None:
        self._file.close()

    def put(self, row: dict[str, Any]) -> None:
        self._in.write(json_of(row) + b"\n")

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """All rows, in the order they came, in small batches, smaller for big rows. No more can be added."""
        self._in.flush(zstandard.FLUSH_FRAME)
        self._file.seek(0)
        lines = io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(self._file, closefd=False), PIECE)
        batch: list[dict[str, Any]] = []
        size = 0
        for line in lines:
            batch.append(msgspec.json.decode(line))
            size += len(line)
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
        if batch:
            yield batch


class LinesWriter:
    """Writes each record as it comes."""

    def __init__(self, stream: ByteStream, shape: TableShape = WHOLE) -> None:
        self._stream = stream
        self._meta = shape.meta
        self._piece = bytearray()
        self._held = 0
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        line = dict(record.data)
        if self._meta:
            line.setdefault("_meta", meta_of(record))
        self._piece += json_of(line)
        self._piece += b"\n"
        self._held += 1
        if len(self._piece) >= PIECE:
            self._write()

    def finish(self) -> None:
        self._write()

    def close(self) -> None:
        """Nothing to close."""

    def _write(self) -> None:
        if self._piece:
            self._stream.write(bytes(self._piece))
            self.count += self._held
            self._piece.clear()
            self._held = 0


class ArrayWriter(LinesWriter):
    """One JSON array, a record on each line of it."""

    def __init__(self, stream: ByteStream, shape: TableShape = WHOLE) -> None:
        super().__init__(stream, shape)
        self._began = False

    def take(self, record: StoredRecord) -> None:
        if self._began:
            self._piece[-1:] = b",\n"  # in place of the last line end
        else:
            self._piece += b"[\n"
            self._began = True
        super().take(record)

    def finish(self) -> None:
        self._piece += b"]\n" if self._began else b"[]\n"
        self._write()

    def _write(self) -> None:
        """The last byte is kept back: another record may follow it."""
        last = bytes(self._piece[-1:])
        whole = last == b"\n" and self._piece.endswith(b"]\n")
        if not whole:
            del self._piece[-1:]
        super()._write()
        if not whole:
            self._piece += last


GUARD = "'"
# What Excel, LibreOffice and others take for the start of a formula, behind what they drop: apostrophes, separators,
# control characters, blanks, and characters without width.
_FORMULA = re.compile(
    "[';,|"
    r"\x00-\x08\x0b\x0c\x0e-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    r"\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    r"\U000e0000-\U000e0fff]*"
    r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]"
)
_SEPARATORS = re.compile(r"[,;|\t\r\n\"]")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")


def cell_of(value: Any) -> str:  # Any: whatever an item may hold
    """A value as text for one cell, harmless in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"{GUARD}{value}" if _FORMULA.match(value) and not _NUMBER.fullmatch(value) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json_of(value).decode()


def read_cell(cell: str) -> str:
    """The text that was passed to `cell_of`; for other values, its JSON. Null and an empty text are both ""."""
    # A text that begins with an apostrophe was guarded as well, so that this one is ours.
    return cell[1:] if cell.startswith(GUARD) and _FORMULA.match(cell) else cell


def _line(values: Sequence[Any]) -> str:
    return ",".join([_quoted(cell_of(value)) for value in values]) + "\r\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _SEPARATORS.search(cell) else cell


class TableWriter:
    """The columns are known only after the last record, so all rows are written at the end."""

    def __init__(self, stream: ByteStream, shape: TableShape = WHOLE) -> None:
        self._stream = stream
        self._columns = Columns(shape=shape, flat=True)
        self._shelf = RowBuffer()
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        self._shelf.put(self._columns.row(record))

    def finish(self) -> None:
        names = self._columns.names()
        text = io.StringIO()
        text.write(_line(names))
        held = 0
        for rows in self._shelf.batches():
            for row in rows:
                text.write(_line([row.get(name) for name in names]))
                held += 1
                if text.tell() >= PIECE:
                    self._write(text, held)
                    held = 0
        self._write(text, held)

    def close(self) -> None:
        self._shelf.close()

    def _write(self, text: io.StringIO, records: int) -> None:
        self._stream.write(text.getvalue().encode())
        self.count += records
        text.seek(0)
        text.truncate()
