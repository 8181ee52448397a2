"""Reads tables of a page as rows of texts.

A cell that spans rows or columns is repeated in each of them. A nested table is a separate table, not text of its cell.
Layout tables are left out unless requested.

How it fails: a table larger than `MOST_COLUMNS` or `MOST_CELLS` is truncated, short rows are filled with "". The
`tables()` of turbohtml has no such limits (3,000 short rows under one rowspan gave 3 million cells), and takes scripts
and nested tables as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from turbohtml import Element, Node, Text

MOST_COLUMNS = 1_000
MOST_CELLS = 200_000  # per table, after spans are expanded
MOST_TABLES = 1_000
_LONGEST_CELL = 100_000
_MOST_NODES = 300_000  # of one table
_UNSEEN = frozenset(("script", "style", "noscript", "template", "table"))
_BREAKS = frozenset((
    "br", "div", "dd", "dl", "dt", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "ul",
))  # fmt: skip
_GROUPS = frozenset(("thead", "tbody", "tfoot"))


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table of texts. `header` is empty if the table has none; all rows have the same length."""

    header: list[str]
    rows: list[list[str]]
    caption: str | None = None

    def records(self) -> list[dict[str, str]]:
        """The rows as dicts by column name.

        A column without a name becomes column_1, column_2 and so on by its position. Repeated names are numbered:
        price, price_2.
        """
        width = max((len(row) for row in self.rows), default=0)
        names: dict[str, int] = {}
        for place in range(width):
            plain = (self.header[place] if place < len(self.header) else "") or f"column_{place + 1}"
            name, copies = plain, 1
            while name in names:
                copies += 1
                name = f"{plain}_{copies}"
            names[name] = place
        return [{name: row[place] for name, place in names.items()} for row in self.rows]


def tables_in(nodes: Iterable[object], *, layout: bool = False) -> list[Table]:
    """The tables among the nodes and inside them, in document order. `layout=True` keeps layout tables."""
    found: dict[Element, None] = {}
    for node in nodes:
        if isinstance(node, Element):
            for table in (node,) if node.tag == "table" else node.select("table"):
                found[table] = None
        if len(found) > MOST_TABLES:
            break
    tables = (_table_of(table, layout=layout) for table in list(found)[:MOST_TABLES])
    return [table for table in tables if table is not None]


def _table_of(element: Element, *, layout: bool) -> Table | None:
    lines = list(_lines(element))
    grid = _Grid()
    for line in lines:
        grid.add(line)
    rows = grid.rows()
    if not rows or (not layout and _arranges(element, lines, rows)):
        return None
    heads = _header_rows(lines)
    caption = next((part for part in _parts(element) if part.tag == "caption"), None)
    return Table(
        header=_header_row(rows[:heads]),
        rows=rows[heads:],
        caption=(" ".join(caption.text[:_LONGEST_CELL].split()) or None) if caption is not None else None,
    )


def _parts(table: Element) -> Iterator[Element]:
    return (part for part in table.children if isinstance(part, Element))


class _Line(msgspec.Struct):
    """A <tr>: its cells and its group (thead, tbody, tfoot)."""

    cells: list[Element]
    group: str


def _lines(table: Element) -> Iterator[_Line]:
    """The rows of the table without those of nested tables; head first, foot last, as displayed."""
    groups: dict[str, list[_Line]] = {"thead": [], "tbody": [], "tfoot": []}
    count = 0
    for part in _parts(table):
        name = part.tag if part.tag in _GROUPS else "tbody"
        for row in part.children if part.tag in _GROUPS else (part,):
            if isinstance(row, Element) and row.tag == "tr" and count < MOST_CELLS:
                cells = [cell for cell in row.children if isinstance(cell, Element) and cell.tag in ("td", "th")]
                if cells:
                    count += 1
                    groups[name].append(_Line(cells, name))
    for lines in groups.values():
        yield from lines


class _Grid:
    """Expands spans: every cell is copied into all positions that it covers."""

    def __init__(self) -> None:
        self._rows: list[list[str]] = []
        self._below: dict[int, tuple[int, str]] = {}  # columns still covered by a cell from above: (rows left, text)
        self._room = MOST_CELLS
        self._nodes = _MOST_NODES

    def add(self, line: _Line) -> None:
        if self._room <= 0:
            return
        row: list[str] = []
        below: dict[int, tuple[int, str]] = {}
        for cell in line.cells:
            self._cover(row, below)
            text, used = _cell_text(cell, self._nodes)
            self._nodes -= used
            down = _span(cell, "rowspan")
            for _ in range(min(_span(cell, "colspan"), MOST_COLUMNS - len(row))):
                if down > 1:
                    below[len(row)] = (down - 1, text)
                row.append(text)
        self._cover(row, below)
        self._below = below
        self._room -= len(row)
        self._rows.append(row)

    def _cover(self, row: list[str], below: dict[int, tuple[int, str]]) -> None:
        """Fill the next positions that cells from above cover."""
        while len(row) in self._below and len(row) < MOST_COLUMNS:
            left, text = self._below[len(row)]
            if left > 1:
                below[len(row)] = (left - 1, text)
            row.append(text)

    def rows(self) -> list[list[str]]:
        """The rows, all of one length. A span below the last row is cut."""
        width = max(map(len, self._rows), default=0)
        width = min(width, max(1, MOST_CELLS // max(1, len(self._rows))))
        return [row[:width] + [""] * (width - len(row)) for row in self._rows]


def _span(cell: Element, name: str) -> int:
    """How many rows or columns a cell covers; 1 for an invalid value. rowspan=0 means down to the end."""
    value = (cell.attr(name) or "").strip()
    if not (value.isascii() and value.isdigit()):
        return 1
    number = int(value[:9])
    if number == 0 and name == "rowspan":
        return MOST_CELLS
    return max(number, 1)


def _cell_text(cell: Element, budget: int) -> tuple[str, int]:
    """The text of a cell, and how many nodes were visited."""
    parts: list[str] = []
    stack: list[Node] = [cell]
    used = size = 0
    while stack and used < budget and size < _LONGEST_CELL:
        node = stack.pop()
        used += 1
        if isinstance(node, Text):
            parts.append(node.data[:_LONGEST_CELL])
            size += len(parts[-1])
        elif isinstance(node, Element) and node.tag not in _UNSEEN:
            if node.tag in _BREAKS:
                parts.append(" ")
            stack.extend(reversed(node.children))
    return " ".join("".join(parts)[:_LONGEST_CELL].split()), used


def _header_rows(lines: list[_Line]) -> int:
    """The number of header rows: those of the <thead>, else a first row with only <th>."""
    heads = sum(1 for line in lines if line.group == "thead")
    if heads:
        return heads
    first = lines[0].cells
    return 1 if len(lines) > 1 and len(first) > 1 and all(cell.tag == "th" for cell in first) else 0


def _header_row(heads: list[list[str]]) -> list[str]:
    """The header as one row: stacked names are joined without repetition."""
    return [" ".join(dict.fromkeys(name for name in column if name)) for column in zip(*heads, strict=True)]


def _arranges(element: Element, lines: list[_Line], rows: list[list[str]]) -> bool:
    """Is this a layout table: one with a presentation role, a single row or column, or page parts in its cells?"""
    if (element.attr("role") or "").strip().lower() in ("presentation", "none"):
        return True
    if any(cell.tag == "th" for line in lines for cell in line.cells):
        return False
    if any(part.tag in ("caption", "thead") for part in _parts(element)):
        return False
    if len(rows) < 2 or len(rows[0]) < 2:
        return True
    return element.select_one("td table, td form, td h1, td nav") is not None
