"""Where an export is written: a file, standard output, or a backend's own (an object store). Its name tells the format
and compression; a cursor file says how far an export that continues from the last one has come.

A file appears under its name only when it is complete: it is written beside it and renamed at the end.

How it fails: `Misconfigured` for an invalid destination, `BackendUnavailable` for a full disk; the old content stays
untouched. How it recovers: nothing is left behind, so the export is simply repeated.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import gzip
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

import msgspec
import zstandard

from ...errors import BackendUnavailable, GossamerError, Misconfigured
from ...units import visible_lines
from ..durable import sync_folder

STDOUT = Path("-")
LONGEST_NAME = 100  # characters of the name kept in the name of its part file; file systems allow 255 bytes


class ByteStream(Protocol):
    """Takes bytes, from any one thread at a time."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


class Destination(Protocol):
    """Where an export goes. Its `str()` is for people."""

    @property
    def name(self) -> str:
        """The file's name; its ending tells the format."""

    def probe(self) -> None:
        """Find out whether it can be written, and leave nothing behind. Blocks.

        Raises Misconfigured, BackendUnavailable.
        """

    def opened(self) -> AbstractAsyncContextManager[ByteStream]:
        """A stream whose content replaces the old one, all at once, at the end of the block, and only if nothing was
        raised in it. Raises Misconfigured, BackendUnavailable, and OSError for `export_error` to translate."""


class FileDestination:
    """A file on this machine. Missing folders are created."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @property
    def name(self) -> str:
        return self._path.name

    @property
    def path(self) -> Path | None:
        """Where it is, behind all links; None for a pipe or a device. Raises Misconfigured."""
        place = _real_place(self._path)
        return None if place.exists() and not place.is_file() else place

    def is_at(self, path: Path) -> bool:
        """Is it that file, under any name or link? Raises Misconfigured."""
        place = _real_place(self._path)
        with suppress(OSError, ValueError):  # one of them does not exist, or cannot
            return place == Path(os.path.realpath(path)) or place.samefile(path)
        return False

    def probe(self) -> None:
        place = _real_place(self._path)
        if place.exists() and not place.is_file():
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place.parent):
                pass
        except OSError as error:
            raise export_error(error, self) from error

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ByteStream]:
        place = _real_place(self._path)
        if place.exists() and not place.is_file():  # a pipe or a device: there is nothing to rename
            with place.open("wb") as device:
                yield device
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f".{place.name[:LONGEST_NAME]}.{secrets.token_hex(4)}.part")
        try:
            with part.open("xb") as stream:
                yield stream
                stream.flush()
                await asyncio.to_thread(os.fsync, stream.fileno())
            if place.exists():
                shutil.copymode(place, part)
            part.replace(place)
            await asyncio.to_thread(_settle_folder, place.parent)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


class StandardOutput:
    """Standard output, as bytes, whatever the locale. A reader that goes away (`| head`) is no error."""

    name = "-"

    def __str__(self) -> str:
        return "standard output"

    def probe(self) -> None:
        """Always possible."""

    @staticmethod
    def stream() -> ByteStream:
        """Its bytes."""
        raw: BinaryIO | None = getattr(sys.stdout, "buffer", None)
        if raw is None:  # replaced by something that takes only text
            return _TextBytes(sys.stdout)
        if sys.stdout.isatty():
            return _TerminalBytes(sys.stdout)
        sys.stdout.flush()
        return raw

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ByteStream]:
        stream = self.stream()
        try:
            yield stream
        except BrokenPipeError:
            if stream is getattr(sys.stdout, "buffer", None):
                _close_quietly(sys.stdout.buffer)
            raise


class _TextBytes:
    """Bytes for a stream that takes only text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def write(self, data: bytes, /) -> None:
        self._stream.write(self._decoder.decode(data))

    def flush(self) -> None:
        self._stream.flush()


class _TerminalBytes(_TextBytes):
    """Bytes for a terminal: control characters are shown as escapes."""

    _end = ""  # half of a line break

    def write(self, data: bytes, /) -> None:
        text = self._end + self._decoder.decode(data)
        self._end = "\r" if text.endswith("\r") else ""
        self._stream.write(visible_lines(text.removesuffix(self._end) if self._end else text))


def destination_at(target: Path | Destination) -> Destination:
    """A path as a destination; `-` is standard output."""
    if not isinstance(target, Path):
        return target
    return StandardOutput() if target == STDOUT else FileDestination(target)


def export_error(error: OSError, place: object) -> GossamerError:
    """The error to raise for an operating system error of an export to `place`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return BackendUnavailable(
            f"The export to {place} could not be finished ({error.strerror}). Free some space and export again; "
            f"the records are safe in the store."
        )
    return Misconfigured(f"{place} cannot be written ({error.strerror or error}). Choose another place.")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a small file in one step; after a power cut it is the old one or the new one. Raises OSError."""
    part = path.with_name(f".{path.name[:LONGEST_NAME]}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        _settle_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _settle_folder(folder: Path) -> None:
    with suppress(OSError):  # some file systems cannot; there the name lasts without it
        sync_folder(folder)


def _close_quietly(stream: BinaryIO) -> None:
    """The reader is gone. Discard what is still buffered, which would raise when the interpreter exits."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    with suppress(OSError):
        stream.flush()


def _real_place(target: Path) -> Path:
    """Where a chain of links ends: the file is replaced, the link stays."""
    try:
        os.fsencode(target)
        place = Path(os.path.realpath(target))
    except ValueError as error:  # NUL, or a lone surrogate
        raise Misconfigured(f"{str(target)!a} cannot be a file name. Choose another one.") from error
    if place.is_dir():
        raise Misconfigured(f"{target} is a folder. Name a file in it, such as {target / 'items.jsonl'}.")
    return place


FORMATS = ("jsonl", "json", "csv", "parquet", "xlsx")
ENDINGS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".jl": "jsonl", ".json": "json", ".csv": "csv",
    ".parquet": "parquet", ".xlsx": "xlsx"}  # fmt: skip
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
ZSTD_LEVEL = 3

_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


class ExportFormat(msgspec.Struct, frozen=True):
    """How records are written. `compression` is gzip, zstd or empty."""

    format: str
    compression: str = ""


def format_of(name: str, format: str | None = None) -> ExportFormat:
    """The format of a file of that name: as named, else by the name's ending. Raises Misconfigured."""
    stem, compression = name.lower(), ""
    for ending, word in COMPRESSIONS.items():
        if stem.endswith(ending):
            stem, compression = stem.removesuffix(ending), word
    if format is not None and format.lower() not in FORMATS:
        raise Misconfigured(f"There is no export format {format!r}. Known: {', '.join(FORMATS)}.")
    found = format.lower() if format is not None else _by_ending(name, stem)
    if found in ("parquet", "xlsx") and compression:
        raise Misconfigured(
            f"{'Parquet' if found == 'parquet' else 'Excel'} is compressed inside; end {name!r} in just .{found}."
        )
    return ExportFormat(found, compression)


def _by_ending(name: str, stem: str) -> str:
    if name == "-":
        return "jsonl"
    for ending, format in ENDINGS.items():
        if stem.endswith(ending):
            return format
    raise Misconfigured(
        f"The name {name!r} does not tell the format. End it in {', '.join(ENDINGS)} (and {' or '.join(COMPRESSIONS)} "
        f"after it, for compression), or name one: {', '.join(FORMATS)}."
    )


def named(target: str, *, now: float, **given: str | None) -> str:
    """Fill `{time}`, `{date}` or `{day}` (UTC), `{job}`, `{spider}` and `{type}` into the target. Raises Misconfigured
    for any other word, and for one without a value here."""
    moment = datetime.fromtimestamp(now, UTC)
    day = moment.strftime("%Y-%m-%d")
    nothing = dict.fromkeys(("job", "spider", "type"))
    words = {"time": moment.strftime("%Y%m%dT%H%M%SZ"), "date": day, "day": day, **nothing, **given}

    def fill(match: re.Match[str]) -> str:
        word = match[1]
        if word not in words:
            raise Misconfigured(
                f"{match[0]} in {target!r} is unknown. There are {', '.join(f'{{{one}}}' for one in words)}."
            )
        value = words[word]
        if value is None:
            raise Misconfigured(f"{target!r} holds {match[0]}, but no {word} is named. Add --{word}, or leave it out.")
        return re.sub(r"[^A-Za-z0-9._-]+", "-", value).lstrip(".") or "-"  # `..` would lead out of the folder

    return _PLACEHOLDER.sub(fill, target)


@asynccontextmanager
async def packed(stream: ByteStream, compression: str) -> AsyncIterator[ByteStream]:
    """A stream that compresses into `stream`; its trailer is written when the block ends without an error."""
    if not compression:
        yield stream
        return
    packer: gzip.GzipFile | zstandard.ZstdCompressionWriter
    if compression == "gzip":
        # No name and no time: equal records make equal files.
        packer = gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0)
    else:
        compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
        packer = compressor.stream_writer(stream, closefd=False)  # type: ignore[arg-type]  # it only writes
    yield packer
    await asyncio.to_thread(packer.close)


LONGEST = 64 * 1024  # bytes of a cursor file


class ExportCursor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an export has written from which store (`records`), with which filters, up to which cursor."""

    cursor: str
    records: str
    filters: dict[str, str] = {}
    told_at: str = ""


class CursorFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> ExportCursor | None:
        """The stored cursor; None before the first export. Raises Misconfigured."""
        try:
            with self._path.open("rb") as file:
                content = file.read(LONGEST + 1)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Misconfigured(
                f"The cursor in {str(self._path)!r} cannot be read ({error}). Name another file."
            ) from error
        try:
            return msgspec.json.decode(content, type=ExportCursor)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Misconfigured(
                f"{self._path} is not the cursor of an export. Name another file, or delete it to export everything."
            ) from error

    def keep(self, progress: ExportCursor) -> None:
        """Replace the file. Raises Misconfigured, BackendUnavailable."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, msgspec.json.format(msgspec.json.encode(progress), indent=2) + b"\n")
        except OSError as error:
            raise export_error(error, self._path) from error

    def check_place(self, place: Destination) -> None:
        """The export and the cursor must be different files. Raises Misconfigured."""
        if isinstance(place, FileDestination) and place.is_at(self._path):
            raise Misconfigured(
                f"{place} cannot hold the export and the cursor. Name another file for the cursor: --since-cursor FILE."
            )

    def check(self, kept: ExportCursor, now: ExportCursor) -> None:
        """An export can continue only from the same store and filters. Raises Misconfigured."""
        if kept.records != now.records:
            raise Misconfigured(
                f"The cursor in {self._path} belongs to the records in {kept.records}, not {now.records}. "
                f"Name another file for these."
            )
        if kept.filters != now.filters:
            said = " ".join(f"--{name} {value}" for name, value in kept.filters.items()) or "no filter"
            raise Misconfigured(
                f"The cursor in {self._path} was made with {said}. Export with the same filters, or name another file."
            )
