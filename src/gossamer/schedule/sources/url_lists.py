"""Lists of URLs from files and programs: plain lines, CSV, JSON Lines, with or without gzip. In flat memory, whatever
the size.

How it fails: a file that is not in its format raises SourceFailed. A line without a valid URL is left out and counted;
the first few are reported, by their numbers: whatever else a file holds, its lines are not shown.
"""

from __future__ import annotations

import csv
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

from ...errors import InvalidUrl, SourceFailed
from ...model.url import parse_url
from .contract import SourceBatch, SourceEntry
from .gzip_file import GZIP, Damaged, TooLarge, is_packed, unpacked

LONGEST_LINE = 1024 * 1024  # bytes
LONGEST_URL = 8_192  # characters
LARGEST_FILE = 4 * 1024 * 1024 * 1024  # bytes, as it is and decompressed
MOST_TOLD = 5  # bad lines that are reported one by one
AT_ONCE = 500  # entries in one batch

_PIECE = 65_536
_COMMENT = re.compile(r"(?:^|\s)#.*")
_DELIMITERS = "\t;,"
_UNREADABLE = "it is not UTF-8 text, or much too long."
_OTHER_CODES = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16


def open_list(path: Path) -> BinaryIO:
    """Open a file of URLs. Raises SourceFailed."""
    try:
        # Without blocking: a pipe without a writer would hold us for ever.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise SourceFailed(
            f"{path} cannot be read ({error.strerror}). Create it, or fix `file` of the schedule."
        ) from error
    facts = os.fstat(number)
    if stat.S_ISREG(facts.st_mode) and facts.st_size <= LARGEST_FILE:
        return os.fdopen(number, "rb")
    os.close(number)
    if stat.S_ISREG(facts.st_mode):
        raise SourceFailed(f"{path} is larger than {LARGEST_FILE >> 30} GiB. Split it into several schedules.")
    raise SourceFailed(f"{path} is not a regular file. To read from a program, use `command`.")


def read_list(file: BinaryIO, name: str, *, form: str, column: str) -> Iterator[SourceBatch]:
    """The URLs in `file`, which messages call `name`. Raises SourceFailed."""
    bad = _BadLines(name)
    lines = _lines(file, name)
    if form == "csv":
        found = _from_csv(lines, name, column, bad)
    elif form == "jsonl":
        found = _from_json(lines, column, bad)
    else:
        found = _from_text(lines, bad)
    entries: list[SourceEntry] = []
    for number, address in found:
        try:
            if len(address) > LONGEST_URL:
                bad.note(number, f"it is longer than {LONGEST_URL:,} characters.")
                continue
            entries.append(SourceEntry(url=parse_url(address)))
        except InvalidUrl:
            bad.note(number, "it is not an http or https URL.")
        if len(entries) >= AT_ONCE:
            yield SourceBatch(listed=tuple(entries))
            entries.clear()
    yield SourceBatch(listed=tuple(entries), skipped=bad.count - len(bad.told), troubles=tuple(bad.told))


class _BadLines:
    def __init__(self, name: str) -> None:
        self._name = name
        self.count = 0
        self.told: list[str] = []

    def note(self, number: int, words: str) -> None:
        self.count += 1
        if len(self.told) < MOST_TOLD:
            self.told.append(f"{self._name} line {number}: {words}")


class _ListLine(msgspec.Struct, frozen=True):
    number: int
    text: str | None  # None: it is not text, or too long


def _lines(file: BinaryIO, name: str) -> Iterator[_ListLine]:
    for number, raw in enumerate(_raw_lines(_pieces(file, name)), start=1):
        if number == 1 and raw is not None:
            if raw.startswith(_OTHER_CODES):
                raise SourceFailed(f"{name} is not UTF-8 text. Save it as UTF-8.")
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        try:
            yield _ListLine(number, raw.decode() if raw is not None else None)
        except UnicodeDecodeError:
            yield _ListLine(number, None)


def _raw_lines(pieces: Iterator[bytes]) -> Iterator[bytes | None]:
    """Lines with their ends, which may be LF, CR LF or CR. None for one that is too long."""
    rest, is_too_long = b"", False
    for piece in pieces:
        *whole, rest = (rest + piece).splitlines(keepends=True)
        if rest.endswith(b"\n"):  # a CR waits, because a LF may follow
            whole.append(rest)
            rest = b""
        for line in whole:
            yield None if is_too_long or len(line) > LONGEST_LINE else line
            is_too_long = False
        if len(rest) > LONGEST_LINE:
            rest, is_too_long = rest[-1:], True
    if rest or is_too_long:
        yield None if is_too_long else rest


def _pieces(file: BinaryIO, name: str) -> Iterator[bytes]:
    if not is_packed(file):
        yield from iter(lambda: file.read(_PIECE), b"")
        return
    is_first = True
    try:
        for piece in unpacked(file, max_bytes=LARGEST_FILE):
            if is_first and piece.startswith(GZIP):
                raise SourceFailed(f"{name} is packed with gzip twice. Unpack it once.")
            is_first = False
            yield piece
    except Damaged as error:
        raise SourceFailed(f"{name} is packed with gzip and damaged ({error}). Compress it again.") from error
    except TooLarge as error:
        raise SourceFailed(f"{name} unpacks to more than {error}. Split it into several schedules.") from error


def _readable(lines: Iterator[_ListLine], bad: _BadLines) -> Iterator[str]:
    for line in lines:
        if line.text is None:
            bad.note(line.number, _UNREADABLE)
        yield line.text or "\n"


def _from_text(lines: Iterator[_ListLine], bad: _BadLines) -> Iterator[tuple[int, str]]:
    for line in lines:
        if line.text is None:
            bad.note(line.number, _UNREADABLE)
        elif address := _COMMENT.sub("", line.text).strip():
            yield line.number, address


def _from_json(lines: Iterator[_ListLine], field: str, bad: _BadLines) -> Iterator[tuple[int, str]]:
    # Only this field is decoded: the others may be of any size and depth.
    objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
    texts = msgspec.json.Decoder(str)
    for line in lines:
        if line.text is not None and not line.text.strip():
            continue
        try:
            yield line.number, texts.decode(objects.decode(line.text or "")[field])
        except KeyError:
            bad.note(line.number, f"it has no field {field!r}.")
        except (msgspec.DecodeError, RecursionError):
            bad.note(line.number, f"it is not a JSON object with a text in {field!r}.")


def _from_csv(lines: Iterator[_ListLine], name: str, column: str, bad: _BadLines) -> Iterator[tuple[int, str]]:
    head = next((line for line in lines if line.text is None or line.text.strip()), None)
    if head is None:
        return
    text = head.text or ""
    delimiter = max(_DELIMITERS, key=text.count)
    names = [one.strip().lower() for one in next(csv.reader([text], delimiter=delimiter), [])]
    if column.lower() not in names:
        raise SourceFailed(f"{name} has no column {column!r} among the {len(names)} of its first line. Set `column`.")
    place = names.index(column.lower())
    # Strict, because a quote that is never closed would silently swallow the lines after it.
    rows = csv.reader(_readable(lines, bad), delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise SourceFailed(
                f"{name} is not CSV from line {head.number + rows.line_num} on: {error}. Fix its quotes."
            ) from error
        if row is None:
            return
        number = head.number + rows.line_num
        if len(row) > place and row[place].strip():
            yield number, row[place].strip()
        elif row:
            bad.note(number, f"its column {column!r} is empty.")
