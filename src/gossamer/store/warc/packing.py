"""The bytes of a WARC file, unpacked: plain, members of gzip, or frames of zstd, one behind the other.

How it fails: `Broken` where the file cannot be unpacked; `find` looks for the next place where it may go on.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

import zstandard

from ...errors import Misconfigured

PIECE = 64 * 1024
PACKED_PIECE = 8 * 1024
ZSTD_WINDOW = 128 * 1024 * 1024
ZSTD_INPUT = 512  # bytes that are unpacked at a time: 16 MB at most come of them
LONGEST_START = 16  # bytes by which the start of a record is known

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_START = {"gzip": re.compile(re.escape(_GZIP)), "zstd": re.compile(re.escape(_ZSTD)), "": re.compile(rb"(?<=\n)WARC/")}
_FIRST = re.compile(rb"[\r\n]*WARC/")
_BEHIND = re.compile(rb"\r?\n\r?\n|\r?\n?WARC/")  # what follows a block


class Unreadable(Exception):
    """Reading cannot go on here."""


class Broken(Unreadable):
    """The file cannot be unpacked from here on."""


class Source(Protocol):
    begins: bool  # the last piece is the start of a packed part, and a record begins there

    def more(self) -> bytes:
        """The next piece, decompressed; nothing at the end. Raises Broken."""
        ...

    def resume(self, unread: int) -> int:
        """The byte of the file from which on the next record may be looked for, when this one is damaged. So many bytes
        of the last piece have not been read."""
        ...

    def measured(self, unread: int, length: int) -> int:
        """How long the block is that begins here and says to have that length."""
        ...


def packing_of(file: BinaryIO, name: str) -> str:
    head = file.read(5)
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_ZSTD):
        return "zstd"
    if head == b"WARC/":
        return ""
    raise Misconfigured(f"{name} is no WARC file: it begins with {head!r}.")


def open_source(file: BinaryIO, start: int, packing: str) -> Source:
    file.seek(start)
    if packing == "gzip":
        return _Packed(file, _Member)
    return _Packed(file, _Frame) if packing == "zstd" else _Plain(file)


def find(file: BinaryIO, start: int, packing: str) -> int:
    """Where the next record may begin, from byte `start` on; -1 when there is none."""
    overlap = 8
    file.seek(max(start - 1, 0))
    at, held = file.tell(), b""
    while piece := file.read(1024 * 1024):
        held += piece
        match = _START[packing].search(held, 1 if at < start else 0)
        if match is not None:
            return at + match.start()
        at += len(held) - min(overlap, len(held))
        held = held[-overlap:]
    return -1


class _Plain:
    begins = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def more(self) -> bytes:
        return self._file.read(PIECE)

    def resume(self, unread: int) -> int:
        return self._file.tell() - unread

    def measured(self, unread: int, length: int) -> int:
        """As long as it says, if that leads to the end of a record; else up to the next place where one begins."""
        file, place = self._file, self._file.tell()
        begin = place - unread
        try:
            size = file.seek(0, os.SEEK_END)
            if begin + length == size:
                return length
            if begin + length < size:
                file.seek(begin + length)
                if _BEHIND.match(file.read(LONGEST_START)):
                    return length
            following = find(file, begin, "")
            if following < 0:
                return length
            file.seek(max(begin, following - 4))
            gap = file.read(following - file.tell())
            return following - begin - len(gap) + len(gap.rstrip(b"\r\n"))
        finally:
            file.seek(place)


class _Part(Protocol):
    """One packed part."""

    @property
    def ended(self) -> bool: ...

    def unpack(self, packed: bytes) -> tuple[bytes, bytes]:
        """A piece of it, and what is not unpacked yet. Raises zlib.error, ZstdError."""
        ...


class _Member:
    """Of gzip."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def ended(self) -> bool:
        return self._inner.eof

    def unpack(self, packed: bytes) -> tuple[bytes, bytes]:
        out = self._inner.decompress(packed, PIECE)
        return out, self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail


class _Frame:
    """Of zstd."""

    def __init__(self) -> None:
        self._inner = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).decompressobj()

    @property
    def ended(self) -> bool:
        return self._inner.eof

    def unpack(self, packed: bytes) -> tuple[bytes, bytes]:
        out = self._inner.decompress(packed[:ZSTD_INPUT])
        rest = packed[ZSTD_INPUT:]
        return out, self._inner.unused_data + rest if self._inner.eof else rest


class _Packed:
    """Packed parts, one behind the other. Usually each is a record, and then its end is the end of that record."""

    def __init__(self, file: BinaryIO, new: Callable[[], _Part]) -> None:
        self._file = file
        self._new = new
        self._part: _Part | None = None
        self._held = b""
        self._begin = file.tell()  # of the part
        self.begins = False

    def resume(self, unread: int) -> int:
        return self._begin + 1

    def measured(self, unread: int, length: int) -> int:
        return length  # found out by reading

    def more(self) -> bytes:
        self.begins = False
        out, first = b"", False
        while True:
            if self._part is None:
                if not self._pass_padding():
                    return b""
                self._begin = self._file.tell() - len(self._held)
                self._part, first = self._new(), True
            if not self._held:
                self._held = self._file.read(PACKED_PIECE)
                if not self._held:
                    raise Broken("it ends in the middle of a record")
            try:
                piece, self._held = self._part.unpack(self._held)
            except (zlib.error, zstandard.ZstdError) as error:
                raise Broken("its compressed data is damaged") from error
            out += piece
            if self._part.ended:
                self._part = None
            if out and (not first or len(out) >= LONGEST_START or self._part is None):
                self.begins = first and _FIRST.match(out) is not None
                return out

    def _pass_padding(self) -> bool:
        """Go to the next part; False where there is none."""
        self._held = self._held.lstrip(b"\0")
        while not self._held:
            piece = self._file.read(PACKED_PIECE)
            if not piece:
                return False
            self._held = piece.lstrip(b"\0")
        return True
