"""The layout of a PDF's page: words with their places become headings, paragraphs, lists, code and tables, in reading
order.

A PDF says where each glyph stands and nothing else. The order in which its program wrote the words is the reading order
in nearly all files, so it decides; places decide what is a line, a cell and a paragraph. Pure: no library, no I/O.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

_GAP = 1.1  # heights of the text between two words, from which on they are two cells of a row
_WIDE_GAP = 2.6  # the same in a line of justified prose, whose words stand far apart
_PITCH = 1.75  # heights of the text from one line to the next, above which a paragraph ends
_HEADING = 1.13  # times the size of the text: a heading
_LONG_CELL = 28  # characters of a cell, from which on a row of two is a line of two columns of prose
_LEAST_ROWS = 3  # rows of a table
_MOST_COLUMNS = 60
_MARGIN = 0.1  # of the page's height: where running titles and page numbers stand
_BULLET = re.compile(r"^(?:[•◦▪▸►‣∙·*\ue000-\uf8ff\ufffd]|[-–—](?=\s)|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)](?=\s))\s*")
_PLAIN_BULLET = re.compile(r"^[•◦▪▸►‣∙·*\ue000-\uf8ff\ufffd–—-]\s*")
_LEADERS = re.compile(r"(?:\s*[.·…]){4,}\s*")
_SENTENCE_END = re.compile(r"[.!?:;]['\"”’)\]]*$")


class Word(msgspec.Struct, frozen=True):
    """A word and its place on the page: `top` is less than `bottom`, both from the upper edge of the page."""

    text: str
    left: float
    right: float
    top: float
    bottom: float
    bold: bool = False
    mono: bool = False
    href: str = ""

    @property
    def height(self) -> float:
        return self.bottom - self.top


class Cell(msgspec.Struct):
    """Words that stand side by side, without a wide gap."""

    words: list[Word]

    @property
    def left(self) -> float:
        return self.words[0].left

    @property
    def right(self) -> float:
        return max(word.right for word in self.words)

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)


class PdfRow(msgspec.Struct):
    """A line across the page: one cell of prose, or several cells."""

    cells: list[Cell]

    @property
    def words(self) -> list[Word]:
        return [word for cell in self.cells for word in cell.words]

    @property
    def top(self) -> float:
        return min(word.top for word in self.words)

    @property
    def bottom(self) -> float:
        return max(word.bottom for word in self.words)

    @property
    def left(self) -> float:
        return min(cell.left for cell in self.cells)

    @property
    def right(self) -> float:
        return max(cell.right for cell in self.cells)

    @property
    def height(self) -> float:
        return Counter(round(word.height * 2) / 2 for word in self.words).most_common(1)[0][0]

    @property
    def text(self) -> str:
        return " ".join(cell.text for cell in self.cells)


class BlockKind(StrEnum):
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    ITEM = "item"  # of a list
    CODE = "code"
    TABLE = "table"


class PdfBlock(msgspec.Struct, frozen=True):
    """A part of the page. `lines` are its words by line; of a table, `rows` holds the words of each cell."""

    kind: BlockKind
    lines: list[list[Word]] = []
    rows: list[list[list[Word]]] = []
    height: float = 0.0


class PageWords(msgspec.Struct, frozen=True):
    """The words of one page in the order of the file, and the page's height."""

    words: list[Word]
    height: float


def rows_of(words: Iterable[Word]) -> list[PdfRow]:
    """Lines of the page, in the order of the file. Words at one height belong together while they follow each other."""
    rows: list[PdfRow] = []
    for word in words:
        row = rows[-1] if rows else None
        last = row.cells[-1].words[-1] if row is not None else None
        if (
            row is None
            or last is None
            or not _beside(last, word)
            or word.right < row.left
            or word.left < last.left - last.height
        ):
            rows.append(PdfRow([Cell([word])]))
        elif word.left - last.right > _gap_of(row, last):
            row.cells.append(Cell([word]))
        else:
            row.cells[-1].words.append(word)
    return _one_row_per_line(rows)


def _gap_of(row: PdfRow, last: Word) -> float:
    """How wide a gap between cells is here: in a line with many words, wider than its other gaps."""
    return (_WIDE_GAP if len(row.cells[-1].words) > 5 and len(row.cells) == 1 else _GAP) * last.height


def _beside(one: Word, other: Word) -> bool:
    """Do the words stand on one line? Super- and subscripts do."""
    common = min(one.bottom, other.bottom) - max(one.top, other.top)
    return common > 0.4 * min(one.height, other.height)


def _one_row_per_line(rows: list[PdfRow]) -> list[PdfRow]:
    """Join a row to the one before it where both stand at one height: tables that the file writes cell by cell."""
    joined: list[PdfRow] = []
    for row in rows:
        before = joined[-1] if joined else None
        if before is not None and _beside(before.words[-1], row.words[0]) and before.right <= row.left:
            before.cells.extend(row.cells)
        else:
            joined.append(row)
    return joined


def running_lines(pages: Sequence[PageWords]) -> frozenset[str]:
    """Running titles and page numbers: lines in the margins that several pages share, with digits as `#`."""
    seen: Counter[str] = Counter()
    for page in pages:
        marginal = {fold_running(row.text) for row in rows_of(page.words) if in_margin(row, page.height)}
        seen.update(marginal)
    least = max(3, len(pages) // 8)
    return frozenset(line for line, pages_with in seen.items() if pages_with >= least)


def in_margin(row: PdfRow, height: float) -> bool:
    return row.bottom < height * _MARGIN or row.top > height * (1 - _MARGIN)


def fold_running(text: str) -> str:
    """A line with its numbers, Arabic or Roman, made equal."""
    return re.sub(r"\b(?:[ivxlc]+|\d+)\b", "#", text.strip().lower())[:200]


def body_height(pages: Iterable[PageWords]) -> float:
    """The height that most characters of the document have."""
    sizes: Counter[float] = Counter()
    for page in pages:
        for word in page.words:
            sizes[round(word.height * 2) / 2] += len(word.text)
    return sizes.most_common(1)[0][0] if sizes else 10.0


def blocks_of(page: PageWords, running: frozenset[str], body: float) -> list[PdfBlock]:
    """The page in blocks, in reading order, without running titles."""
    rows = [
        row for row in rows_of(page.words) if not (in_margin(row, page.height) and fold_running(row.text) in running)
    ]
    blocks: list[PdfBlock] = []
    at = 0
    while at < len(rows):
        end = _table_end(rows, at)
        if end - at < 2:
            end = at + 1
            while end < len(rows) and _table_end(rows, end) - end < 2:
                end += 1
            blocks += _prose(rows[at:end], body)
        elif _is_list(rows[at:end]):
            blocks += _prose([PdfRow([Cell(row.words)]) for row in rows[at:end]], body)
        elif _is_two_columns(rows[at:end]):
            for column in _columns_of_prose(rows[at:end]):
                blocks += _prose(column, body)
        else:
            blocks.append(_table(rows[at:end]))
        at = end
    return blocks


# -- tables ------------------------------------------------------------------------------------------------------------


def _table_end(rows: list[PdfRow], start: int) -> int:
    """The end of the run of rows with several cells in the same columns that begins here; `start` if none does."""
    end, several, first = start, 0, rows[start]
    if len(first.cells) < 2:
        return start
    spans: list[tuple[float, float]] = []
    while end < len(rows):
        row = rows[end]
        near = end == start or 0 <= row.top - rows[end - 1].bottom + row.height < 3.2 * row.height
        if not near:
            break
        if len(row.cells) > 1:
            merged = _merge_spans([*spans, *((cell.left, cell.right) for cell in row.cells)])
            if len(merged) < 2 or (spans and len(merged) < min(len(spans), len(row.cells)) - 1):
                break
            spans, several = merged, several + 1
        elif not (end > start and _continues_cell(row, rows[end - 1], spans)):
            break
        end += 1
    while end > start and len(rows[end - 1].cells) < 2 and rows[end - 1].left <= spans[0][0]:
        end -= 1
    return end if several >= _LEAST_ROWS and len(spans) <= _MOST_COLUMNS else start


def _merge_spans(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The parts of the page's width that the cells cover: the columns."""
    merged: list[tuple[float, float]] = []
    for left, right in sorted(spans):
        if merged and left < merged[-1][1] - 0.5:
            merged[-1] = merged[-1][0], max(right, merged[-1][1])
        else:
            merged.append((left, right))
    return merged


def _continues_cell(row: PdfRow, before: PdfRow, spans: list[tuple[float, float]]) -> bool:
    """Is the row a further line of one cell of the row before it?"""
    cell = row.cells[0]
    close = row.top - before.bottom < 0.7 * row.height
    return close and any(left - 2 <= cell.left and cell.right <= right + 2 for left, right in spans[1:])


def _is_list(rows: list[PdfRow]) -> bool:
    """Do the first cells hold nothing but bullets and numbers?"""
    firsts = [row.cells[0].text for row in rows if len(row.cells) == 2]
    return len(firsts) == sum(1 for row in rows if len(row.cells) > 1) and all(
        not any(char.isalnum() for char in text) or _BULLET.fullmatch(f"{text} ") for text in firsts
    )


def _is_two_columns(rows: list[PdfRow]) -> bool:
    """Is this prose in two columns that the file writes line by line across both?"""
    pairs = [row for row in rows if len(row.cells) == 2]
    if len(pairs) < 0.7 * len(rows) or len(pairs) < _LEAST_ROWS:
        return False
    long = sum(1 for row in pairs if all(len(cell.text) >= _LONG_CELL for cell in row.cells))
    return long > 0.6 * len(pairs)


def _columns_of_prose(rows: list[PdfRow]) -> list[list[PdfRow]]:
    edge = min(row.cells[1].left for row in rows if len(row.cells) == 2)
    columns: list[list[PdfRow]] = [[], []]
    for row in rows:
        for cell in row.cells:
            columns[cell.left >= edge - 1].append(PdfRow([cell]))
    return columns


def _table(rows: list[PdfRow]) -> PdfBlock:
    columns = _merge_spans([(cell.left, cell.right) for row in rows for cell in row.cells])
    written: list[list[list[Word]]] = []
    for row in rows:
        cells: list[list[Word]] = [[] for _ in columns]
        for cell in row.cells:
            index = next(i for i, (left, right) in enumerate(columns) if left <= cell.left <= right)
            cells[index] += cell.words
        if len(row.cells) < 2 and written:  # a further line of a cell
            for known, more in zip(written[-1], cells, strict=True):
                known += more
        else:
            written.append(cells)
    return PdfBlock(BlockKind.TABLE, rows=written)


# -- prose -------------------------------------------------------------------------------------------------------------


def _prose(rows: list[PdfRow], body: float) -> list[PdfBlock]:
    """Headings, paragraphs, items of lists and code, from lines that follow each other."""
    groups: list[tuple[BlockKind, list[PdfRow]]] = []
    right = max((row.right for row in rows), default=0.0)
    for before, row in pairwise([None, *rows]):
        assert row is not None
        kind = _kind_of(row, body)
        if before is None or not groups or not _goes_on(groups[-1][0], groups[-1][1], row, kind, right):
            groups.append((kind, [row]))
        else:
            groups[-1][1].append(row)
    return [
        PdfBlock(kind, lines=[row.words for row in lines], height=max(row.height for row in lines))
        for kind, lines in groups
    ]


def _kind_of(row: PdfRow, body: float) -> BlockKind:
    words = row.words
    if row.height > _HEADING * body and any(char.isalpha() for word in words for char in word.text):
        return BlockKind.HEADING
    if all(word.mono for word in words):
        return BlockKind.CODE
    text = row.text
    if (_BULLET.match(text) and len(text) > 3) or (len(row.cells) > 1 and row.cells[-1].text.isdecimal()):
        return BlockKind.ITEM
    if all(word.bold for word in words) and len(text) < 100 and not text.endswith((".", ",", ";")):
        return BlockKind.HEADING
    return BlockKind.PARAGRAPH


def _goes_on(kind: BlockKind, lines: list[PdfRow], row: PdfRow, next_kind: BlockKind, right: float) -> bool:
    """Does the row continue the block, in the same column of the page?"""
    before = lines[-1]
    pitch = row.bottom - before.bottom
    if pitch <= 0 or row.left > before.right or row.right < before.left:  # another column
        return False
    close = pitch < _PITCH * max(row.height, before.height)
    if kind is BlockKind.CODE or next_kind is BlockKind.CODE:
        return kind is next_kind and pitch < 2.6 * row.height
    if kind is BlockKind.HEADING:
        return next_kind is BlockKind.HEADING and close and abs(row.height - before.height) < 0.6
    if next_kind is not BlockKind.PARAGRAPH or not close:
        return False
    if kind is BlockKind.ITEM:
        return row.left > lines[0].left + 1
    # A first line that is indented, after a line that ends short, begins another paragraph.
    indented = row.left > before.left + 0.8 * row.height
    short = before.right < right - 0.15 * (right - before.left) and bool(_SENTENCE_END.search(before.text))
    return not (short or (indented and len(lines) > 1))


def without_bullet(text: str) -> str:
    """The text of an item without its bullet; a number stays."""
    return _PLAIN_BULLET.sub("", text)


def without_leaders(text: str) -> str:
    """The text without rows of dots, as between a title and its page in a table of contents."""
    return _LEADERS.sub(" ", text)
