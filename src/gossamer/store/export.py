"""Records out of the store, as JSON Lines or CSV, in flat memory.

A file appears under its name only when it is complete: it is written beside it and renamed at the end. `-` is
standard output. `gossamer crawl -o FILE` is the same export with `RecordQuery(job=...)` when the crawl has ended.

JSON Lines: one object per record, the item's own fields first, then `_meta` with everything else we know of it.
CSV (RFC 4180): the fields of all records as columns, in order of appearance, then `_type`, `_site` and so on; nested
values as JSON. Texts that a spreadsheet would run as a formula get an apostrophe in front. Where an item has a field
called `_meta` or `_type` itself, the item's own value is written.

How it fails: `Misconfigured` for a format or place that cannot be, `BackendUnavailable` for a full disk; then the old
file is untouched. A reader that goes away (`| head`) ends the export without an error.
"""

from __future__ import annotations

import asyncio
import csv
import errno
import io
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, TextIO

import msgspec

from ..errors import BackendUnavailable, GossamerError, Misconfigured
from ..model.record import StoredRecord
from .contract import RecordQuery, RecordStore

CHUNK = 256  # records between two writes
STDOUT = Path("-")

META = ("type", "site", "key", "url", "job", "spider", "first_seen", "last_changed", "last_checked", "version")
_EXTENSIONS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".jl": "jsonl", ".csv": "csv"}

# What Excel, LibreOffice and their kin take for the start of a formula, the full-width forms included.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")


def format_of(target: Path, name: str | None = None) -> str:
    """The format to write: the one that is named, else by the file's extension. Raises Misconfigured."""
    if name is not None:
        if name.lower() in _FORMATS:
            return name.lower()
        raise Misconfigured(f"There is no export format {name!r}. Known: {', '.join(_FORMATS)}.")
    if target == STDOUT:
        return "jsonl"
    found = _EXTENSIONS.get(target.suffix.lower())
    if found is None:
        raise Misconfigured(
            f"The name {str(target)!r} does not tell the format. End it in {', '.join(_EXTENSIONS)}, "
            f"or name one: {', '.join(_FORMATS)}."
        )
    return found


def try_place(target: Path) -> None:
    """Find out now, and not after hours of crawling, whether `target` can be written. Raises Misconfigured."""
    format_of(target)
    if target == STDOUT:
        return
    place = _real_place(target)
    if place.exists() and not place.is_file():
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except OSError as error:
        raise _translate(error, target) from error


async def export(store: RecordStore, query: RecordQuery, target: Path | TextIO, format: str | None = None) -> int:
    """Write the records that match to `target`; return how many. Raises Misconfigured, BackendUnavailable."""
    place = target if isinstance(target, Path) else STDOUT
    write = _FORMATS[format_of(place, format)]
    try:
        with _opened(target) as stream:
            out = _Output(stream)
            try:
                await write(store.records(query), out)
                await out.flush()
            except BrokenPipeError:
                if place != STDOUT:
                    raise
                _close_quietly(stream)
            return out.count
    except OSError as error:
        raise _translate(error, place) from error


class _Output:
    """The text stream that is written to, off the event loop, and how many records it has taken."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.count = 0

    async def write(self, text: str, records: int) -> None:
        await asyncio.to_thread(self.stream.write, text)
        self.count += records

    async def flush(self) -> None:
        await asyncio.to_thread(self.stream.flush)


async def _write_jsonl(records: AsyncIterator[StoredRecord], out: _Output) -> None:
    async for chunk in _chunks(records):
        lines = []
        for record in chunk:
            line = dict(record.data)
            line.setdefault("_meta", _meta(record))
            lines.append(_json(line))
        await out.write("\n".join(lines) + "\n", len(chunk))


async def _write_csv(records: AsyncIterator[StoredRecord], out: _Output) -> None:
    # The columns are known after the last record only. The records wait in a file of our own meanwhile: reading
    # the store a second time could meet records that changed in between and do not fit the columns any more.
    with tempfile.TemporaryFile() as spool:
        columns: dict[str, None] = {}
        async for chunk in _chunks(records):
            rows = [{**{f"_{name}": value for name, value in _meta(r).items()}, **r.data} for r in chunk]
            for record in chunk:
                columns.update(dict.fromkeys(record.data))
            await asyncio.to_thread(spool.write, "".join(f"{_json(row)}\n" for row in rows).encode())
        for name in META:
            columns.setdefault(f"_{name}")
        await asyncio.to_thread(_rows_from_spool, spool, list(columns), out)


def _rows_from_spool(spool: IO[bytes], columns: Sequence[str], out: _Output) -> None:
    spool.seek(0)
    table = csv.writer(out.stream, lineterminator="\r\n")
    table.writerow([_cell(name) for name in columns])
    for line in spool:
        row = msgspec.json.decode(line)
        table.writerow([_cell(row.get(name)) for name in columns])
        out.count += 1


_FORMATS: dict[str, Callable[[AsyncIterator[StoredRecord], _Output], Awaitable[None]]] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
}


def _cell(value: Any) -> str:
    """A value as text for one cell, harmless in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) and not _NUMBER.fullmatch(value) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return _json(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _meta(record: StoredRecord) -> dict[str, Any]:
    meta = {name: getattr(record, name) for name in META}
    for name in ("first_seen", "last_changed", "last_checked"):
        meta[name] = iso_time(meta[name])
    return meta


def iso_time(seconds: float) -> str:
    """ISO 8601 in UTC: 2027-01-31T12:00:00.123Z."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


async def _chunks(records: AsyncIterator[StoredRecord]) -> AsyncIterator[list[StoredRecord]]:
    chunk: list[StoredRecord] = []
    async for record in records:
        chunk.append(record)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


@contextmanager
def _opened(target: Path | TextIO) -> Iterator[TextIO]:
    if not isinstance(target, Path):
        yield target
    elif target == STDOUT:
        with _stdout() as stream:
            yield stream
    else:
        with _complete_file(target) as stream:
            yield stream


@contextmanager
def _stdout() -> Iterator[TextIO]:
    """Standard output as UTF-8 with our own line ends, whatever the locale says."""
    raw = getattr(sys.stdout, "buffer", None)
    if raw is None:  # replaced by something that takes text only
        yield sys.stdout
        return
    sys.stdout.flush()
    stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
    try:
        yield stream
    finally:
        stream.detach()


def _close_quietly(stream: TextIO) -> None:
    """The reader is gone. What is still buffered would complain at the interpreter's end: it goes nowhere instead."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    with suppress(OSError):
        stream.flush()


@contextmanager
def _complete_file(target: Path) -> Iterator[TextIO]:
    """Open a file that takes the name `target` at the end of the block, and only if nothing was raised in it."""
    place = _real_place(target)
    if place.exists() and not place.is_file():  # a pipe or a device: there is nothing to rename
        with place.open("w", encoding="utf-8", newline="") as stream:
            yield stream
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("x", encoding="utf-8", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if place.exists():
            shutil.copymode(place, part)
        part.replace(place)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _real_place(target: Path) -> Path:
    """Where a chain of links ends: the file is replaced, the link stays."""
    try:
        os.fsencode(target)
        place = Path(os.path.realpath(target))
    except ValueError as error:  # NUL, or half a character
        raise Misconfigured(f"{str(target)!a} cannot be the name of a file. Choose another one.") from error
    if place.is_dir():
        raise Misconfigured(f"{target} is a folder. Name a file in it, such as {target / 'items.jsonl'}.")
    return place


def _translate(error: OSError, target: Path) -> GossamerError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return BackendUnavailable(
            f"The export to {target} could not be finished ({error.strerror}). Free some space and export again; "
            f"the records are safe in the store."
        )
    return Misconfigured(f"{target} cannot be written ({error.strerror or error}). Choose another place.")
