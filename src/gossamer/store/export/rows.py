"""A record as a row: its item's own fields, and what else we know of it. Rows that wait until their columns are known.

JSON Lines keep that rest under `_meta`, tables in columns `_type`, `_site` and so on. Where an item has a field of such
a name itself, the item's own value counts. No table is wider than MAX_COLUMNS: items whose field names come from a
page could make a column each. What does not fit is in the column `_more`, as a JSON object.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from typing import Any

import msgspec
import zstandard

from ...clock import iso_time
from ...model.record import StoredRecord

META = ("type", "site", "key", "url", "job", "spider", "first_seen", "last_changed", "last_checked", "version")
GONE = "gone_since"
TIMES = ("first_seen", "last_changed", "last_checked", GONE)
META_COLUMNS = tuple(f"_{name}" for name in (*META, GONE))

MAX_COLUMNS = 2000
MORE = "_more"

PIECE = 256 * 1024  # bytes that are gathered before they are written
BATCH_ROWS = 500  # rows in memory when they are read back
BATCH_BYTES = 8 * 1024 * 1024


def meta_of(record: StoredRecord) -> dict[str, Any]:
    """Everything that is known of a record besides its item. `gone_since` is there for one that is gone."""
    meta = {name: getattr(record, name) for name in META}
    if record.gone_since is not None:
        meta[GONE] = record.gone_since
    for name in TIMES:
        if name in meta:
            meta[name] = iso_time(meta[name])
    return meta


def json_of(value: Any) -> bytes:  # Any: whatever an item may hold
    return msgspec.json.encode(value)


class Columns:
    """The names of a table's columns, in order of appearance."""

    def __init__(self, limit: int = MAX_COLUMNS) -> None:
        self._names: dict[str, None] = {}
        self._limit = limit

    def row(self, record: StoredRecord) -> dict[str, Any]:
        """The record as a row of this table, which has columns for it from now on."""
        row = {f"_{name}": value for name, value in meta_of(record).items()}
        names, rest = self._names, {}
        for name, value in record.data.items():
            if name not in names:
                if len(names) >= self._limit:
                    rest[name] = value
                    continue
                names[name] = None
            row[name] = value
        if rest:
            if MORE in row:  # the item's own field of that name goes along with the rest
                rest[MORE] = row[MORE]
            row[MORE] = rest
        return row

    def names(self) -> list[str]:
        """All of them, the known facts of the record last."""
        tail = META_COLUMNS if len(self._names) < self._limit else (MORE, *META_COLUMNS)
        return [*self._names, *(name for name in tail if name not in self._names)]


class Shelf:
    """Rows on disk between two passes. Reading the store a second time could meet records that changed in between and
    do not fit the columns any more. Compressed: the folder for temporary files may be in memory."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - see close()
        self._in = zstandard.ZstdCompressor(level=1).stream_writer(self._file, closefd=False)

    def close(self) -> None:
        self._file.close()

    def put(self, row: dict[str, Any]) -> None:
        self._in.write(json_of(row) + b"\n")

    def batches(self) -> Iterator[list[dict[str, Any]]]:
        """All rows, in the order they came, few at a time and fewer where they are big. No more can be added."""
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
