"""A PDF as HTML: pages as sections, with headings, paragraphs, lists, tables, links and the document's own metadata.

Needs pypdfium2 (`gossamer[documents]`). How it fails: a file that PDFium cannot open, or that asks for a password,
raises DocumentUnreadable; a broken page is left out. Scanned pages without a text layer have no text: nothing is
recognised.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator
from html import escape
from itertools import groupby
from operator import itemgetter
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from .contract import MOST_PAGES, MOST_TEXT, DocumentUnreadable, MarkupWriter
from .pdf_layout import (
    BlockKind,
    PageWords,
    PdfBlock,
    Word,
    blocks_of,
    body_height,
    running_lines,
    without_bullet,
    without_leaders,
)

_MOST_CHARS = 200_000  # on one page
_MOST_LINKS = 2_000  # on one page
_BOLD = re.compile(r"bold|black|heavy|semibold|demi|cmbx|sfbx", re.IGNORECASE)
_MONO = re.compile(r"mono|courier|consol|typewriter|cmtt|sftt|inconsolata|menlo|terminal", re.IGNORECASE)
_BOLD_WEIGHT = 600
_HYPHENS = ("\x02", "\xad", "\ufffe")
_DATE = re.compile(r"^D?:?(\d{4})(\d\d)?(\d\d)?(\d\d)?(\d\d)?(\d\d)?\s*(?:([+-])(\d\d)'?(\d\d)?'?|Z)?")
_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
_MOST_LEVELS = 4


def pdf_html(body: bytes) -> str:
    """Raises DocumentUnreadable."""
    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == pdfium.FPDF_ERR_PASSWORD:
            raise DocumentUnreadable("It asks for a password.") from error
        raise DocumentUnreadable("It is broken, or no PDF at all.") from error
    try:
        count = len(document)
        pages = list(_pages(document, min(count, MOST_PAGES)))
        return _written(document.get_metadata_dict(skip_empty=True), pages, count)
    finally:
        document.close()


def _pages(document: pypdfium2.PdfDocument, count: int) -> Iterator[PageWords]:
    left = MOST_TEXT
    for number in range(count):
        try:
            page = document[number]
            words = _words(document, page)
            height = max((word.bottom for word in words), default=0.0)
            _, tall = page.get_size()
            page.close()
        except pypdfium2.PdfiumError:
            words, height, tall = [], 0.0, 0.0
        left -= sum(len(word.text) for word in words)
        yield PageWords(words, max(height, tall))
        if left < 0:
            return


# -- words -------------------------------------------------------------------------------------------------------------


def _words(document: pypdfium2.PdfDocument, page: pypdfium2.PdfPage) -> list[Word]:
    """The words of the page that are written in its main direction, in the order of the file."""
    text = page.get_textpage()
    try:
        found = list(_placed_words(text, page.get_height()))
    finally:
        text.close()
    if not found:
        return []
    turns = [turn for turn, _ in found]
    main = max(set(turns), key=turns.count)  # text along the margin is written in another direction
    links = list(_links(document, page))
    width, height = page.get_size()
    words = []
    for turn, word in found:
        if turn == main:
            href = next((href for box, href in links if _inside(word, box)), "") if links else ""
            word = _turned(word, main, width, height) if main else word
            words.append(_linked(word, href) if href else word)
    return words


def _placed_words(text: Any, height: float) -> Iterator[tuple[int, Word]]:
    """Each word with its direction in quarters of a turn."""
    count = min(text.count_chars(), _MOST_CHARS)
    start, letters = -1, list[str]()
    for index in range(count + 1):
        code = pdfium.FPDFText_GetUnicode(text, index) if index < count else 32
        char = chr(code) if code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
        if char in _HYPHENS:  # the hyphen of a word that goes on in the next line
            char = "\xad"
        if char.isspace() or (code < 32 and char != "\xad"):
            if start >= 0 and (word := _word(text, start, index - 1, "".join(letters), height)) is not None:
                yield word
            start = -1
            continue
        if start < 0:
            start, letters = index, []
        letters.append(_LIGATURES.get(char, char))


def _word(text: Any, first: int, last: int, letters: str, height: float) -> tuple[int, Word] | None:
    one, other = pdfium.FS_RECTF(), pdfium.FS_RECTF()
    if not pdfium.FPDFText_GetLooseCharBox(text, first, one):
        return None
    if not pdfium.FPDFText_GetLooseCharBox(text, last, other):
        return None
    left, right = min(one.left, other.left), max(one.right, other.right)
    top, bottom = max(one.top, other.top), min(one.bottom, other.bottom)
    if not all(map(math.isfinite, (left, right, top, bottom))):
        return None
    name = _font(text, first)
    weight = pdfium.FPDFText_GetFontWeight(text, first)
    turn = round(pdfium.FPDFText_GetCharAngle(text, first) / (math.pi / 2)) % 4
    word = Word(
        text=letters,
        left=left,
        right=right,
        top=height - top,
        bottom=height - bottom,
        bold=weight >= _BOLD_WEIGHT or bool(_BOLD.search(name)),
        mono=bool(_MONO.search(name)),
    )
    return turn, word


def _font(text: Any, index: int) -> str:
    flags, name = ctypes.c_int(), ctypes.create_string_buffer(128)
    size = pdfium.FPDFText_GetFontInfo(text, index, name, 128, flags)
    return name.value.decode("utf-8", "replace") if 0 < size <= 128 else ""


def _turned(word: Word, turn: int, width: float, height: float) -> Word:
    """The word on a page that was turned so that its text runs from left to right."""
    if turn == 1:  # downwards
        left, right, top, bottom = word.top, word.bottom, width - word.right, width - word.left
    elif turn == 2:  # upside down
        left, right, top, bottom = width - word.right, width - word.left, height - word.bottom, height - word.top
    else:  # upwards
        left, right, top, bottom = height - word.bottom, height - word.top, word.left, word.right
    return Word(word.text, left, right, top, bottom, word.bold, word.mono, word.href)


def _linked(word: Word, href: str) -> Word:
    return Word(word.text, word.left, word.right, word.top, word.bottom, word.bold, word.mono, href)


def _links(document: pypdfium2.PdfDocument, page: pypdfium2.PdfPage) -> Iterator[tuple[tuple[float, ...], str]]:
    """The links of the page to addresses outside of the document, with their boxes."""
    position, link, height = ctypes.c_int(0), pdfium.FPDF_LINK(), page.get_height()
    for _ in range(_MOST_LINKS):
        if not pdfium.FPDFLink_Enumerate(page, position, link):
            return
        action, box = pdfium.FPDFLink_GetAction(link), pdfium.FS_RECTF()
        if not action or not pdfium.FPDFLink_GetAnnotRect(link, box):
            continue
        size = pdfium.FPDFAction_GetURIPath(document, action, None, 0)
        if not 1 < size < 4_000:
            continue
        address = ctypes.create_string_buffer(size)
        pdfium.FPDFAction_GetURIPath(document, action, address, size)
        href = address.value.decode("utf-8", "replace")
        yield (box.left, box.right, height - box.top, height - box.bottom), href


def _inside(word: Word, box: tuple[float, ...]) -> bool:
    left, right, top, bottom = box
    x, y = (word.left + word.right) / 2, (word.top + word.bottom) / 2
    return left - 1 <= x <= right + 1 and min(top, bottom) - 1 <= y <= max(top, bottom) + 1


# -- HTML --------------------------------------------------------------------------------------------------------------


def _written(facts: dict[str, str], pages: list[PageWords], count: int) -> str:
    running, body = running_lines(pages), body_height(pages)
    blocks = [blocks_of(page, running, body) for page in pages]
    levels = _levels([block.height for page in blocks for block in page if block.kind is BlockKind.HEADING])
    title = facts.get("Title", "").strip() or _first_heading(blocks, levels)
    writer = MarkupWriter(title=title)
    writer.meta("author", facts.get("Author", ""))
    writer.meta("description", facts.get("Subject", ""))
    writer.meta("keywords", facts.get("Keywords", ""))
    writer.meta("generator", facts.get("Creator", "") or facts.get("Producer", ""))
    writer.meta("article:published_time", pdf_date(facts.get("CreationDate", "")), name="property")
    writer.meta("article:modified_time", pdf_date(facts.get("ModDate", "")), name="property")
    writer.meta("pages", str(count))
    for number, page in enumerate(blocks, 1):
        writer.raw(f'<section data-page="{number}">')
        for block in page:
            _write_block(writer, block, levels)
        writer.raw("</section>")
    return writer.html()


def _levels(heights: list[float]) -> list[float]:
    """The heights of headings, the largest first: their places are their levels."""
    return sorted(set(heights), reverse=True)[:_MOST_LEVELS]


def _first_heading(blocks: list[list[PdfBlock]], levels: list[float]) -> str:
    for block in blocks[0] if blocks else ():
        if block.kind is BlockKind.HEADING and levels and block.height == levels[0]:
            return " ".join(word.text for line in block.lines for word in line)[:300]
    return ""


def _write_block(writer: MarkupWriter, block: PdfBlock, levels: list[float]) -> None:
    match block.kind:
        case BlockKind.TABLE:
            writer.table([[words_html([cell]) for cell in row] for row in block.rows])
        case BlockKind.CODE:
            lines = [_code_line(line, block.lines) for line in block.lines]
            writer.raw(f"<pre>{escape(chr(10).join(lines))}</pre>")
        case BlockKind.HEADING:
            level = levels.index(block.height) + 1 if block.height in levels else _MOST_LEVELS
            writer.raw(f"<h{level}>{words_html(block.lines)}</h{level}>")
        case BlockKind.ITEM:
            writer.item(without_bullet(words_html(block.lines)))
        case BlockKind.PARAGRAPH:
            writer.raw(f"<p>{words_html(block.lines)}</p>")


def _code_line(line: list[Word], lines: list[list[Word]]) -> str:
    """The words of a line of code, with as many spaces as their places ask for."""
    letter = max((line[0].right - line[0].left) / max(len(line[0].text), 1), 1.0)
    edge = min(words[0].left for words in lines)
    written, at = "", edge
    for word in line:
        spaces = round((word.left - at) / letter)
        written += " " * min(max(spaces, 1 if written else 0), 80) + word.text
        at = word.right
    return written


def words_html(lines: list[list[Word]]) -> str:
    """The words of the lines as HTML. A word that was divided at the end of a line is whole again."""
    whole: list[tuple[str, str]] = []
    for word in (word for line in lines for word in line):
        if whole and whole[-1][0].endswith("\xad"):
            whole[-1] = whole[-1][0][:-1] + word.text, whole[-1][1]
        else:
            whole.append((word.text, word.href))
    parts = []
    for href, run in groupby(whole, key=itemgetter(1)):
        text = escape(without_leaders(" ".join(text for text, _ in run).replace("\xad", "")))
        parts.append(f'<a href="{escape(href)}">{text}</a>' if href else text)
    return " ".join(parts)


def pdf_date(text: str) -> str:
    """A PDF's date (D:20240131120000+01'00') in ISO 8601; "" for anything else."""
    match = _DATE.match(text.strip())
    if match is None:
        return ""
    year, month, day, hour, minute, second, sign, zone, zone_minute = match.groups()
    written = f"{year}-{month or '01'}-{day or '01'}"
    if hour is None:
        return written
    ends = f"{sign}{zone}:{zone_minute or '00'}" if sign else "Z"
    return f"{written}T{hour}:{minute or '00'}:{second or '00'}{ends}"
