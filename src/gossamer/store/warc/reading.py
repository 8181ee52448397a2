"""The records of a WARC file, one after the other, whoever wrote it: plain, gzip (by record or as a whole) or zstd.

Every length in the file is a claim: nothing is held that is longer than a limit, a block is read in pieces, and where
a claim is wrong the block ends where the next record begins.

How it fails: damage ends the record that it is in, which then tells its `trouble`, or the search for the next one.
How it recovers: reading goes on at the next place that looks like the start of a record; `Damage` says what was left
out. A file that holds no record at all is `Misconfigured`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

import msgspec

from ...errors import Misconfigured
from .packing import PIECE, Broken, Source, Unreadable, find, open_source, packing_of

MAX_LINE = 64 * 1024
MAX_HEAD = 1024 * 1024  # bytes of the fields of a record, or of an HTTP header
MAX_DAMAGES = 1000  # places where a file cannot be unpacked; behind the last one it is left alone

_LENGTH = re.compile(r"[0-9]{1,15}")


class Damage(msgspec.Struct, frozen=True):
    """What is wrong, and at which byte of the file."""

    at: int
    what: str


class Lines:
    """Bytes with line ends among them, from a source of pieces."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._held = b""
        self._at = 0
        self.at_record = False  # what comes next is a record, by the way the file is packed

    def resume(self) -> int:
        """As of the source."""
        return self._source.resume(len(self._held) - self._at)

    def measured(self, length: int) -> int:
        """As of the source."""
        return self._source.measured(len(self._held) - self._at, length)

    def _fill(self) -> None:
        if self._at >= len(self._held):
            self._held, self._at = self._source.more(), 0
            self.at_record = self._source.begins

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; nothing at the end of the file. Raises Unreadable, also where another record begins."""
        self._fill()
        if self.at_record:
            raise Unreadable("a record is shorter than it says")
        piece = self._held[self._at : self._at + size]
        self._at += len(piece)
        return piece

    def line(self, limit: int = MAX_LINE, *, enter: bool = False) -> bytes:
        """A line with its end; a longer one in parts. With `enter` it may be the first one of another record, else that
        raises Unreadable."""
        parts: list[bytes] = []
        room = limit
        while room > 0:
            self._fill()
            if self.at_record:
                if parts:
                    break
                if not enter:
                    raise Unreadable("a record is shorter than it says")
                self.at_record = False
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

    def pass_lines(self) -> bool:
        """Go on to the next line in hand that begins as a record does, or to the last one. Is a line's start known?"""
        found = self._held.find(b"\nWARC/", max(self._at - 1, 0))
        if found < 0:
            found = self._held.rfind(b"\n", max(self._at - 1, 0))
        if found < 0 or self.at_record:
            return self.at_record
        self._at = found + 1
        return True


class WarcRecord:
    """One record. Its block is read through `line` and `read`, before the next record is asked for."""

    def __init__(self, fields: dict[str, str], length: int, lines: Lines) -> None:
        self._fields = fields
        self._left = lines.measured(length)
        self._lines = lines
        # Why the end of the block cannot be read, or not be trusted.
        self.trouble = None if self._left == length else Unreadable("a record is not as long as it says")

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
            piece, self.trouble = b"", error
        if not piece:
            self.trouble = self.trouble or Unreadable("it ends in the middle of a record")
            self._left = 0
        self._left -= len(piece)
        return piece

    def rest(self) -> Iterator[bytes]:
        """What is left of the block, in pieces."""
        while piece := self.read():
            yield piece


def records_of(file: BinaryIO, name: str) -> Iterator[WarcRecord | Damage]:
    """Every record that can be read, and every damage between them. Raises Misconfigured for what is no WARC file."""
    packing = packing_of(file, name)
    lines = Lines(open_source(file, 0, packing))
    found, searching, breaks = False, False, 0
    first_trouble: Unreadable | None = None
    while True:
        try:
            record = _next_record(lines, searching)
            if record is None:
                break
            found, searching = True, False
            yield record
            for _ in record.rest():  # whatever the reader left over
                pass
            if record.trouble is not None:
                raise record.trouble
        except Unreadable as error:
            first_trouble = first_trouble or error
            searching = True
            resume = lines.resume()
            yield Damage(resume, str(error))
            if isinstance(error, Broken):
                breaks += 1
                start = find(file, resume, packing) if breaks < MAX_DAMAGES else -1
                if start < 0:
                    break
                lines = Lines(open_source(file, start, packing))
    if not found:
        raise Misconfigured(f"{name} is no WARC file ({first_trouble}). Is it complete?") from first_trouble


def _next_record(lines: Lines, searching: bool) -> WarcRecord | None:
    """None at the end of the file. `searching`: what is no record may stand before it. Raises Unreadable."""
    begins = True
    while first := lines.line(enter=True):
        if begins and first.startswith(b"WARC/"):
            break
        if first.strip() and not searching:
            raise Unreadable("no record begins where one should")
        begins = lines.pass_lines() if searching else True
    if not first:
        return None
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
