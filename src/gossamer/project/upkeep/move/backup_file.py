"""The format of a backup file: the rows of a project's stores and the files of its archive, one after the other.

    "gossamer backup\n"                 so that `file` and `head` recognise it
    length, frame                       repeated; the length is 4 bytes, big-endian
    length, last frame                  the number of rows of each kind, the counts of each store, and a hash of all
                                        bytes before

A frame is MessagePack: the kind of its rows, and the rows as zstd-compressed MessagePack. The first frame is the
header, followed by state, records and archive, in this order. Old files stay readable: fields are only added to rows,
with a default, and FORMAT is raised when that is not enough.

How it fails: `Misconfigured` for a file that is truncated, damaged, or written by a newer version. All of it is decoded
before the first row is used, and no frame is larger than MAX_FRAME: the file may come from a stranger. How it recovers:
a backup is written under another name (`.part`) and renamed when it is complete, so a truncated file is a bad copy.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import zstandard

from ....errors import BackendUnavailable, Misconfigured
from ....frontier.state_rows import (
    DumpedBudget,
    DumpedJob,
    DumpedRobots,
    DumpedRoute,
    DumpedRow,
    DumpedSchedule,
    DumpedSeeds,
    DumpedShape,
    DumpedSite,
    DumpedSpending,
    DumpedUrl,
)
from ....model.record import Tally
from ....model.url import FINGERPRINT_VERSION
from ....store.contract import SentNote
from ....store.durable import sync_folder
from ....store.record_rows import DumpedPage, DumpedRecord, DumpedSchema, ErasedMark
from ....store.record_rules import mend
from .copy import FilePiece, SegmentFile
from .stores import Counts

FORMAT = 2  # since 2 the counts are in the last frame: they are not known before, while workers go on
MAGIC = b"gossamer backup\n"
MAX_FRAME = 2**30  # bytes, compressed or not; a longer frame is damage, not data
FULL_FRAME = 2**26  # bytes, uncompressed; further rows go into the next frame
LEVEL = 3
_ONE_ROW = b"\x91"  # the beginning of a list of one, in MessagePack


class BackupHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. `counts` are those of each store, by role; `fingerprints` is the version of its URL
    fingerprints."""

    format: int
    version: str
    project: str
    fingerprints: int
    made_at: float
    counts: dict[str, Counts] = {}


class _Trailer(msgspec.Struct, frozen=True):
    rows: dict[str, int]
    digest: bytes
    counts: dict[str, Counts] = {}


class _BackupFrame(msgspec.Struct, frozen=True, array_like=True):
    kind: str
    body: bytes


_ROWS: dict[str, dict[str, type[msgspec.Struct]]] = {
    "state": {
        "job": DumpedJob, "shelf": DumpedRow, "schedule": DumpedSchedule, "seeds": DumpedSeeds, "site": DumpedSite,
        "robots": DumpedRobots, "route": DumpedRoute, "spending": DumpedSpending, "budget": DumpedBudget,
        "shape": DumpedShape, "url": DumpedUrl,
    },
    "records": {
        "page": DumpedPage, "record": DumpedRecord, "schema": DumpedSchema, "quality": Tally, "sent": SentNote,
        "erased": ErasedMark,
    },
    "archive": {"segment": SegmentFile, "file": FilePiece},
}  # fmt: skip
_KIND = {row: kind for rows in _ROWS.values() for kind, row in rows.items()}
_ROLE = {kind: role for role, rows in _ROWS.items() for kind in rows}
_DECODERS = {
    kind: msgspec.msgpack.Decoder(list[row])  # type: ignore[valid-type]  # a type that is known at run time
    for row, kind in (*_KIND.items(), (BackupHeader, "header"), (_Trailer, "trailer"))
}


# -- writing -----------------------------------------------------------------------------------------------------


class BackupWriter:
    """A backup that is being written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = blake2b(digest_size=32)
        self.size = 0  # bytes
        self.counts: dict[str, Counts] = {}  # to be set before it is finished
        self._rows: Counter[str] = Counter()
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._put(MAGIC)

    async def write(self, rows: Sequence[msgspec.Struct]) -> None:
        """Add rows of any kind. Raises BackendUnavailable if the disk is full."""
        await asyncio.to_thread(self._write, rows)

    def _write(self, rows: Sequence[msgspec.Struct]) -> None:
        for row, same in groupby(rows, key=type):
            self.frame(_KIND[row], list(same))

    def frame(self, kind: str, rows: Sequence[msgspec.Struct]) -> None:
        """Add rows of one kind. Raises Misconfigured for a row that is too large for a frame."""
        encoded = _encoded(rows)
        if len(encoded) > FULL_FRAME and len(rows) > 1:
            half = len(rows) // 2
            self.frame(kind, rows[:half])
            self.frame(kind, rows[half:])
            return
        if len(encoded) > MAX_FRAME:
            raise Misconfigured(f"A {kind} of the project has {len(encoded):,} bytes. A backup holds {MAX_FRAME:,}.")
        frame = msgspec.msgpack.encode(_BackupFrame(kind, self._compressor.compress(encoded)))
        self._put(len(frame).to_bytes(4, "big") + frame)
        self._rows[kind] += len(rows)

    def finish(self) -> None:
        """Write the trailer, and sync the file to disk."""
        self.frame("trailer", [_Trailer(dict(self._rows), self._hash.digest(), self.counts)])
        self._file.flush()
        os.fsync(self._file.fileno())

    def _put(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += self._file.write(data)


@contextmanager
def new_backup(path: Path, header: BackupHeader) -> Iterator[BackupWriter]:
    """A backup that appears at `path` when it is complete. Raises Misconfigured, BackendUnavailable."""
    if path.exists():
        raise Misconfigured(f"There is a file {path} already. Name another one, or delete it.")
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)  # of a backup that was killed, or a link that somebody has put there
        # Seeds and pages may hold secrets: only the user may read the file.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Misconfigured(f"{part} cannot be written ({error.strerror}). Name another place.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            writer = BackupWriter(file)
            writer.frame("header", [header])
            yield writer
            writer.finish()
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise BackendUnavailable(f"{part} cannot be written ({error.strerror}). Free some space.") from error
    finally:
        with suppress(OSError):  # it was renamed, or the error being raised says more
            part.unlink(missing_ok=True)


def _encoded(rows: Sequence[msgspec.Struct]) -> bytes:
    try:
        return msgspec.msgpack.encode(rows)
    except UnicodeEncodeError:  # a lone surrogate, which only Redis can hold; every other store would replace it, too
        return msgspec.msgpack.encode(_mended(msgspec.to_builtins(rows, builtin_types=(bytes,))))


def _mended(value: Any) -> Any:  # Any: what to_builtins gives
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, list | tuple):
        return [_mended(one) for one in value]
    if isinstance(value, dict):
        return {_mended(name): _mended(one) for name, one in value.items()}
    return value


# -- reading -----------------------------------------------------------------------------------------------------


class BackupReader:
    """A verified backup. Its rows are read once, role by role, in the order of the file."""

    def __init__(self, path: Path, trailer: _Trailer) -> None:
        self.place = str(path.resolve())
        self._batches = _batches(path)
        header: BackupHeader = next(self._batches)[1][0]
        self.header = msgspec.structs.replace(header, counts=header.counts | trailer.counts)
        self._next = next(self._batches)
        rows = trailer.rows
        self.totals = {  # for the progress
            "state": rows.get("url", 0),
            "records": rows.get("page", 0) + rows.get("record", 0),
            "archive": self.header.counts.get("archive", {}).get("bytes", 0),
        }

    def close(self) -> None:
        self._batches.close()

    async def batches(self, role: str) -> AsyncIterator[Sequence[Any]]:  # Any: rows of that role
        while _ROLE.get(self._next[0]) == role:
            yield self._next[1]
            self._next = await asyncio.to_thread(next, self._batches)


async def open_backup(path: Path) -> BackupReader:
    """Read the file once from start to end, to verify it. Raises Misconfigured."""
    return await asyncio.to_thread(_checked, path)


def _checked(path: Path) -> BackupReader:
    try:
        for _, rows in _batches(path):
            last = rows[0]
        if not isinstance(last, _Trailer) or not last.counts.keys() <= _ROWS.keys():
            raise _torn(path)
        return BackupReader(path, last)
    except FileNotFoundError:
        raise Misconfigured(f"There is no file {path}.") from None
    except OSError as error:
        raise Misconfigured(f"{path} cannot be read ({error.strerror}).") from error


def _batches(path: Path) -> Generator[tuple[str, list[Any]]]:  # Any: rows of that kind
    """The rows of every frame with their kind, the trailer compared with what came before it. Raises Misconfigured."""
    digest = blake2b(digest_size=32)
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            raise Misconfigured(f"{path} is not a backup. `gossamer backup` makes one.")
        digest.update(magic)
        left = os.fstat(file.fileno()).st_size - len(magic)
        first = True
        while length := file.read(4):
            size = int.from_bytes(length, "big")
            left -= len(length) + size
            if len(length) < 4 or not size or size > MAX_FRAME or left < 0:
                raise _torn(path)
            data = file.read(size)
            try:
                kind, rows = _decoded(data)
            except (msgspec.MsgspecError, zstandard.ZstdError, KeyError, ValueError, RecursionError):
                raise _torn(path) from None
            if (kind == "header") is not first or not rows:
                raise _torn(path)
            if first:
                _check_format(path, rows[0])
            elif kind == "trailer" and (rows[0].digest != digest.digest() or file.read(1)):
                raise _torn(path)
            yield kind, rows
            first = False
            digest.update(length + data)
    if first:
        raise _torn(path)


def _decoded(frame: bytes) -> tuple[str, list[Any]]:  # Any: rows of that kind
    """The kind and the rows of a frame. Raises MsgspecError, ZstdError, KeyError, ValueError."""
    kind, body = msgspec.structs.astuple(msgspec.msgpack.decode(frame, type=_BackupFrame))
    # The size that the frame claims would be allocated before a single byte is decompressed.
    size = zstandard.get_frame_parameters(body).content_size
    if size > MAX_FRAME:
        raise ValueError("the frame is too large")
    content = zstandard.ZstdDecompressor().decompress(body)
    if size > FULL_FRAME and content[:1] != _ONE_ROW:  # a row of few bytes takes many times as much as an object
        raise ValueError("the frame has too many rows")
    return kind, _DECODERS[kind].decode(content)


def _check_format(path: Path, header: BackupHeader) -> None:
    if header.format > FORMAT:
        raise Misconfigured(
            f"{path} was made by a newer Gossamer ({header.version}, format {header.format}; this one knows {FORMAT}). "
            f"Upgrade this one."
        )
    if header.fingerprints != FINGERPRINT_VERSION:
        raise Misconfigured(
            f"The URLs in {path} have fingerprints of version {header.fingerprints}, and this Gossamer makes version "
            f"{FINGERPRINT_VERSION}: it would not recognise the pages that were seen. Restore it with the one that "
            f"made it ({header.version})."
        )
    if not header.counts.keys() <= _ROWS.keys():
        raise _torn(path)


def _torn(path: Path) -> Misconfigured:
    return Misconfigured(
        f"{path} is not a whole backup: it was cut short or damaged. Nothing was changed. Use another copy of it."
    )
