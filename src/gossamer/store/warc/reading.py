"""The records of a WARC file, one after the other, whoever wrote it: plain, gzip (by record or as a whole) or zstd.

Every length in the file is a claim: nothing is held that is longer than a limit, and a block is read in pieces.

How it fails: damage ends the record that it is in, which then tells its `trouble`, or the search for the next one.
How it recovers: reading goes on at the next place that looks like the start of a record; `Damage` says what was left
out. A file that holds no record at all is `Misconfigured`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, Protocol

import msgspec
import zstandard

from ...errors import Misconfigured

PIECE = 64 * 1024
MAX_LINE = 64 * 1024
MAX_HEAD = 1024 * 1024  # bytes of the fields of a record, or of an HTTP header
MAX_DAMAGES = 1000  # places where a file is damaged; behind the last one it is left alone
ZSTD_WINDOW = 128 * 1024 * 1024

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_START = {"gzip": re.compile(re.escape(_GZIP)), "zstd": re.compile(re.escape(_ZSTD)), "": re.compile(rb"(?<=\n)WARC/")}
_LENGTH = re.compile(r"[0-9]{1,15}")


class Damage(msgspec.Struct, frozen=True):
    """What is wrong, and at which byte of the file."""

    at: int
    what: str


class Unreadable(Exception):
    """Reading cannot go on here."""


class _Source(Protocol):
    def more(self) -> bytes:
        """The next piece, decompressed; nothing at the end. Raises Unreadable."""
        ...

    def resume(self, unread: int) -> int:
        """The byte of the file from which on the next record may be looked for, when this one is damaged. So many bytes
        of the last piece have not been read."""
        ...


class Lines:
    """Bytes with line ends among them, from a source of pieces."""

    def __init__(self, source: _Source) -> None:
        self._source = source
        self._held = b""
        self._at = 0

    def resume(self) -> int:
        """As of the source."""
        return self._source.resume(len(self._held) - self._at)

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; nothing at the end of the file."""
        if self._at >= len(self._held):
            self._held, self._at = self._source.more(), 0
        piece = self._held[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def line(self, limit: int = MAX_LINE) -> bytes:
        """A line with its end; a longer one in parts."""
        parts: list[bytes] = []
        room = limit
        while room > 0:
            if self._at >= len(self._held):
                self._held, self._at = self._source.more(), 0
                if not self._held:
                    break
            end = self._held.find(b"\n", self._at, self._at + room)
            part = self._held[self._at : self._at + room] if end < 0 else self._held[self._at : end + 1]
            parts.append(part)
            self._at += len(part)
            room -= len(part)
            if end >= 0:
                break
        return b"".join(parts)


class WarcRecord:
    """One record. Its block is read through `line` and `read`, before the next record is asked for."""

    def __init__(self, fields: dict[str, str], length: int, lines: Lines) -> None:
        self._fields = fields
        self._left = length
        self._lines = lines
        self.trouble = ""  # why the end of the block cannot be read

    def field(self, name: str) -> str:
        """The value of a named field, or nothing."""
        return self._fields.get(name.lower(), "")

    @property
    def kind(self) -> str:
        return self.field("warc-type").lower()

    def read(self, size: int = PIECE) -> bytes:
        """Up to `size` bytes of the block; nothing at its end, and where it is damaged: then there is `trouble`."""
        return self._take(self._lines.read, size)

    def line(self) -> bytes:
        """A line of it with its end; a very long one in parts."""
        return self._take(self._lines.line, MAX_LINE)

    def _take(self, take: Callable[[int], bytes], size: int) -> bytes:
        if self._left <= 0:
            return b""
        try:
            piece = take(min(size, self._left))
        except Unreadable as error:
            piece, self.trouble = b"", str(error)
        if not piece:
            self.trouble = self.trouble or "it ends in the middle of a record"
            self._left = 0
        self._left -= len(piece)
        return piece

    def rest(self) -> Iterator[bytes]:
        """What is left of the block, in pieces."""
        while piece := self.read():
            yield piece


def records_of(file: BinaryIO, name: str) -> Iterator[WarcRecord | Damage]:
    """Every record that can be read, and every damage between them. Raises Misconfigured for what is no WARC file."""
    packing = _packing_of(file, name)
    start, found, damages = 0, False, 0
    while True:
        lines = Lines(_open(file, start, packing))
        try:
            while (record := _next_record(lines)) is not None:
                found = True
                yield record
                for _ in record.rest():  # whatever the reader left over
                    pass
                if record.trouble:
                    raise Unreadable(record.trouble)
            return
        except Unreadable as error:
            if not found:
                raise Misconfigured(f"{name} is no WARC file ({error}). Is it complete?") from error
            damages += 1
            resume = lines.resume()
            yield Damage(resume, str(error))
            start = _find(file, resume, packing) if damages < MAX_DAMAGES else -1
            if start < 0:
                return


def _next_record(lines: Lines) -> WarcRecord | None:
    """None at the end of the file. Raises Unreadable."""
    first = b"\n"
    while first and not first.strip():
        first = lines.line()
    if not first:
        return None
    if not first.startswith(b"WARC/"):
        raise Unreadable("no record begins where one should")
    fields = {name.lower(): value for name, value in reversed(read_fields(lines.line))}
    length = fields.get("content-length", "")
    if not _LENGTH.fullmatch(length):
        raise Unreadable("a record does not tell its length")
    return WarcRecord(fields, int(length), lines)


def read_fields(line: Callable[[], bytes]) -> list[tuple[str, str]]:
    """`Name: value` lines up to an empty one; a line that begins with a space goes on with the one before.

    Bytes that are not UTF-8 become lone surrogates. Raises Unreadable when they do not end.
    """
    fields: list[tuple[str, str]] = []
    size = 0
    while (raw := line()).strip():
        size += len(raw)
        if size > MAX_HEAD:
            raise Unreadable("a header does not end")
        text = raw.decode("utf-8", "surrogateescape").rstrip("\r\n")
        if text[0] in " \t" and fields:
            fields[-1] = (fields[-1][0], f"{fields[-1][1]} {text.strip()}")
            continue
        name, colon, value = text.partition(":")
        if colon:
            fields.append((name.strip(), value.strip()))
    return fields


def _packing_of(file: BinaryIO, name: str) -> str:
    head = file.read(5)
    if head.startswith(_GZIP):
        return "gzip"
    if head.startswith(_ZSTD):
        return "zstd"
    if head == b"WARC/":
        return ""
    raise Misconfigured(f"{name} is no WARC file: it begins with {head!r}.")


def _open(file: BinaryIO, start: int, packing: str) -> _Source:
    file.seek(start)
    if packing == "gzip":
        return _Gunzip(file)
    return _Unzstd(file) if packing == "zstd" else _Plain(file)


def _find(file: BinaryIO, start: int, packing: str) -> int:
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
    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def more(self) -> bytes:
        return self._file.read(PIECE)

    def resume(self, unread: int) -> int:
        return self._file.tell() - unread


class _Gunzip:
    """Members of gzip, one behind the other."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._inner = zlib.decompressobj(31)
        self._held = b""
        self._begin = file.tell()  # of the member

    def resume(self, unread: int) -> int:
        return self._begin + 1

    def more(self) -> bytes:
        while True:
            if self._inner.eof:
                held = self._inner.unused_data.lstrip(b"\0")  # padding between members
                while not held:
                    piece = self._file.read(PIECE)
                    if not piece:
                        return b""
                    held = piece.lstrip(b"\0")
                self._begin = self._file.tell() - len(held)
                self._inner, self._held = zlib.decompressobj(31), held
            if not self._held:
                self._held = self._file.read(PIECE)
                if not self._held:
                    raise Unreadable("it ends in the middle of a record")
            try:
                out = self._inner.decompress(self._held, PIECE)
            except zlib.error as error:
                raise Unreadable("its compressed data is damaged") from error
            self._held = self._inner.unconsumed_tail
            if out:
                return out


class _Unzstd:
    """Frames of zstd. Damage is met where the reader fails; the next frame is looked for behind it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._inner = context.stream_reader(file, read_size=PIECE, read_across_frames=True, closefd=False)

    def resume(self, unread: int) -> int:
        return self._file.tell()

    def more(self) -> bytes:
        try:
            return self._inner.read(PIECE)
        except zstandard.ZstdError as error:
            raise Unreadable("its compressed data is damaged") from error
