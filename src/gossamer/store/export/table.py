"""CSV (RFC 4180, UTF-8): the fields of all records as columns, in order of appearance; nested values as JSON.

A spreadsheet takes a text that begins with one of `= + - @`, their full-width forms, a tab or a line end for a formula
and may run it. Such a text gets an apostrophe in front, and so does one that begins with apostrophes before such a
sign: `read_cell` takes exactly one away again, and every text comes back as it was. Numbers stay numbers, negative
ones too. Cells that hold what a spreadsheet may separate by, a comma or not, are in quotation marks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import Any

from ...model.record import StoredRecord
from .places import ByteStream
from .rows import PIECE, Columns, Shelf, json_of

GUARD = "'"
# What Excel, LibreOffice and their kin take for the start of a formula.
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_SEPARATORS = re.compile(r"[,;|\t\r\n\"]")
_NUMBER = re.compile(r"[+-]?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?")


def cell_of(value: Any) -> str:  # Any: whatever an item may hold
    """A value as text for one cell, harmless in a spreadsheet."""
    if value is None:
        return ""
    if isinstance(value, str):
        return f"{GUARD}{value}" if _looks_like_formula(value) and not _NUMBER.fullmatch(value) else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return json_of(value).decode()


def read_cell(cell: str) -> str:
    """The text that `cell_of` was given. Of any other value: its JSON. Nothing and an empty text are both ""."""
    return cell[1:] if cell.startswith(GUARD) and _looks_like_formula(cell) else cell


def _looks_like_formula(text: str) -> bool:
    """Also behind apostrophes: what is guarded already is guarded once more, so that a reader can tell."""
    return text.startswith(_FORMULA) or (text.startswith(GUARD) and text.lstrip(GUARD).startswith(_FORMULA))


def _line(values: Sequence[Any]) -> str:
    return ",".join([_quoted(cell_of(value)) for value in values]) + "\r\n"


def _quoted(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _SEPARATORS.search(cell) else cell


class TableWriter:
    """The columns are known after the last record only, so all rows are written at the end."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._columns = Columns()
        self._shelf = Shelf()
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
