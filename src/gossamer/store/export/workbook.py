"""Records as an Excel workbook with one sheet. Needs the extra `xlsx`.

The columns are those of CSV. Numbers and yes or no are such cells, texts are never formulas, everything else is JSON.
Excel holds 1,048,576 rows and 32,767 characters in a cell: more rows are refused, longer texts are cut, and characters
that no workbook may hold are left out.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from typing import Any

from ...errors import Misconfigured, MissingExtra
from ...model.record import StoredRecord
from .destination import ByteStream
from .text_formats import WHOLE, Columns, RowBuffer, TableShape, json_of

MOST_ROWS = 1_048_576
LONGEST_CELL = 32_767
_EXACT = 2**53  # Excel has floating point numbers only
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


def workbooks() -> Any:  # Any: the library comes without types
    """The library, imported on first use. Raises MissingExtra."""
    try:
        import openpyxl
        import openpyxl.cell
    except ImportError as error:
        raise MissingExtra("Excel workbooks need one more package: pip install 'gossamer[xlsx]'.") from error
    return openpyxl


class SheetWriter:
    """The columns are known only after the last record, so all rows are written at the end."""

    def __init__(self, stream: ByteStream, shape: TableShape = WHOLE) -> None:
        self._library = workbooks()
        self._stream = stream
        self._columns = Columns(shape=shape, flat=True)
        self._rows = RowBuffer()
        self._taken = 0
        self.count = 0

    def take(self, record: StoredRecord) -> None:
        self._taken += 1
        if self._taken >= MOST_ROWS:
            raise Misconfigured(
                f"A sheet of Excel has {MOST_ROWS:,} rows. Export less of them, or as .csv or .parquet."
            )
        self._rows.put(self._columns.row(record))

    def finish(self) -> None:
        names = self._columns.names()
        book = self._library.Workbook(write_only=True)
        sheet = book.create_sheet("records")
        sheet.freeze_panes = "A2"
        sheet.append([self._cell(sheet, name) for name in names])
        for rows in self._rows.batches():
            for row in rows:
                sheet.append([self._cell(sheet, row.get(name)) for name in names])
                self.count += 1
        with tempfile.TemporaryFile() as file:  # a workbook is a zip file, which is not written from front to back
            book.save(file)
            file.seek(0)
            shutil.copyfileobj(file, _WorkbookSink(self._stream), 256 * 1024)

    def close(self) -> None:
        self._rows.close()

    def _cell(self, sheet: Any, value: Any) -> Any:
        if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) <= _EXACT):
            return value
        text = value if isinstance(value, str) else json_of(value).decode()
        cell = self._library.cell.WriteOnlyCell(sheet, value=_FORBIDDEN.sub("", text)[:LONGEST_CELL])
        cell.data_type = "s"  # never a formula
        return cell


class _WorkbookSink:
    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream

    def write(self, data: bytes, /) -> int:
        self._stream.write(data)
        return len(data)
