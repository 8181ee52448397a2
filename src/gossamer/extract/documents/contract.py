"""What the readers of documents share: the kinds of documents, their bounds, the error for one that cannot be read, and
the HTML that they write, so that selectors, links, tables and Markdown work on a document as on any page."""

from __future__ import annotations

from enum import StrEnum
from html import escape

MOST_PAGES = 5_000  # of a document; the others are left out
MOST_TEXT = 20_000_000  # characters of a document
UNREADABLE = 2  # exit code of the child for a document that cannot be read
MOST_UNPACKED = 400 * 1024**2  # bytes of all files in a packed document


class DocumentKind(StrEnum):
    """Documents that are not markup and have text all the same."""

    PDF = "pdf"
    DOCX = "docx"
    XLSX = "xlsx"
    PPTX = "pptx"
    ODT = "odt"
    ODS = "ods"
    EPUB = "epub"
    MARKDOWN = "markdown"


class DocumentUnreadable(Exception):
    """The document cannot be read; the message is a sentence about it."""


class MarkupWriter:
    """Collects HTML. What comes after MOST_TEXT characters is left out."""

    def __init__(self, title: str = "") -> None:
        self._title = title
        self._metas: list[str] = []
        self._parts: list[str] = []
        self._items: list[str] = []
        self._room = MOST_TEXT

    def meta(self, key: str, content: str, *, name: str = "name") -> None:
        if content := " ".join(content.split())[:1000]:
            self._metas.append(f'<meta {name}="{escape(key)}" content="{escape(content)}">')

    def raw(self, html: str) -> None:
        """Add HTML whose texts are escaped already."""
        self._end_list()
        self._add(html)

    def item(self, html: str) -> None:
        """Add an item; items that follow each other are one list."""
        self._items.append(f"<li>{html}</li>")

    def table(self, rows: list[list[str]]) -> None:
        """Add a table of cells whose texts are escaped already. The first row is the head."""
        self._end_list()
        for index, row in enumerate(rows):
            tag = "td" if index else "th"
            cells = "".join(f"<{tag}>{cell}</{tag}>" for cell in row)
            self._add(f"{'' if index else '<table>'}<tr>{cells}</tr>")
        if rows:
            self._add("</table>")

    def _end_list(self) -> None:
        if self._items:
            items, self._items = self._items, []
            self._add(f"<ul>{''.join(items)}</ul>")

    def _add(self, html: str) -> None:
        self._room -= len(html)
        if self._room >= 0:
            self._parts.append(html)

    def html(self) -> str:
        self._end_list()
        head = f'<meta charset="utf-8"><title>{escape(self._title)}</title>{"".join(self._metas)}'
        return f"<!doctype html><html><head>{head}</head><body>{chr(10).join(self._parts)}</body></html>"
