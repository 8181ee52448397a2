"""Places that an export is written to: a file, standard output, and what others bring (an object store).

A file appears under its name only when it is complete: it is written beside it and renamed at the end.

How it fails: `Misconfigured` for a place that cannot be, `BackendUnavailable` for a full disk; then what was there
before is untouched. How it recovers: nothing is left behind, so the export is simply made again.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol, TextIO

from ...errors import BackendUnavailable, GossamerError, Misconfigured

STDOUT = Path("-")
LONGEST_NAME = 100  # characters of the name that go into the name of its part; file systems end at 255 bytes


class ByteStream(Protocol):
    """Takes bytes, from any one thread at a time."""

    def write(self, data: bytes, /) -> object: ...

    def flush(self) -> object: ...


class Place(Protocol):
    """Where an export goes. `str()` of it is for people."""

    @property
    def name(self) -> str:
        """The file's name; its ending tells the format."""
        ...

    def probe(self) -> None:
        """Find out whether it can be written, and leave nothing behind. Blocks.

        Raises Misconfigured, BackendUnavailable.
        """
        ...

    def opened(self) -> AbstractAsyncContextManager[ByteStream]:
        """A stream whose content takes its place, all at once, at the end of the block, and only if nothing was raised
        in it. Raises Misconfigured, BackendUnavailable, and OSError for what `trouble_with` translates."""
        ...


class FilePlace:
    """A file of this machine. Its folders are made."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @property
    def name(self) -> str:
        return self._path.name

    def is_at(self, path: Path) -> bool:
        """Is it that file, by whatever name or link? Raises Misconfigured."""
        place = _real_place(self._path)
        with suppress(OSError, ValueError):  # one of them is not there, or cannot be
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
            raise trouble_with(error, self) from error

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
    """Standard output, as bytes, whatever the locale says. A reader that goes away (`| head`) is no fault."""

    name = "-"

    def __str__(self) -> str:
        return "standard output"

    def probe(self) -> None:
        """It is there."""

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[ByteStream]:
        raw = getattr(sys.stdout, "buffer", None)
        if raw is None:  # replaced by something that takes text only
            yield _TextBytes(sys.stdout)
            return
        sys.stdout.flush()
        try:
            yield raw
        except BrokenPipeError:
            _close_quietly(raw)
            raise


class _TextBytes:
    """Bytes for a stream that takes text only."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def write(self, data: bytes, /) -> None:
        self._stream.write(self._decoder.decode(data))

    def flush(self) -> None:
        self._stream.flush()


def place_at(target: Path | Place) -> Place:
    """A path as a place; `-` is standard output."""
    if not isinstance(target, Path):
        return target
    return StandardOutput() if target == STDOUT else FilePlace(target)


def trouble_with(error: OSError, place: object) -> GossamerError:
    """What an error of the operating system means for an export to `place`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return BackendUnavailable(
            f"The export to {place} could not be finished ({error.strerror}). Free some space and export again; "
            f"the records are safe in the store."
        )
    return Misconfigured(f"{place} cannot be written ({error.strerror or error}). Choose another place.")


def write_whole(path: Path, content: bytes) -> None:
    """Replace a small file in one step; after a loss of power it is the old one or the new one. Raises OSError."""
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
    """A new name lasts when its folder is written down. Some file systems cannot, and then it lasts without."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _close_quietly(stream: BinaryIO) -> None:
    """The reader is gone. What is still buffered would complain at the interpreter's end: it goes nowhere instead."""
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
    except ValueError as error:  # NUL, or half a character
        raise Misconfigured(f"{str(target)!a} cannot be the name of a file. Choose another one.") from error
    if place.is_dir():
        raise Misconfigured(f"{target} is a folder. Name a file in it, such as {target / 'items.jsonl'}.")
    return place
