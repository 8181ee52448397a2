"""The documentation as data: its pages, code blocks, tables and links. No opinion on whether they are right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CHANGELOG.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "bench" / "README.md",
        *(ROOT / "docs").rglob("*.md"),
    ]
)

_FENCE = re.compile(r"^```(\w*)[ ]?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r'title="([^"]+)"')
_NOT_RUN = re.compile(r"<!-- not run: .+ -->\n$")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced code block. `title` is the file that it is the text of; `words` is the rest of its info string."""

    language: str
    title: str
    words: str
    code: str
    line: int
    run: bool  # False: an HTML comment before it says why not


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks_of(page: Path) -> list[Block]:
    text = read(page)
    blocks = []
    for match in _FENCE.finditer(text):
        title = _TITLE.search(match[2])
        blocks.append(
            Block(
                language=match[1],
                title=title[1] if title else "",
                words=match[2].strip(),
                code=match[3],
                line=text.count("\n", 0, match.start()) + 2,
                run=not _NOT_RUN.search(text[: match.start()]),
            )
        )
    return blocks


def prose_of(page: Path) -> str:
    """The page without its code blocks."""
    return _FENCE.sub("", read(page))


def links_of(page: Path) -> list[str]:
    return _LINK.findall(prose_of(page))


def anchors_of(page: Path) -> set[str]:
    """What a link to a heading of the page ends in."""
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for _, title in headings_of(page)}


def headings_of(page: Path) -> list[tuple[int, str]]:
    return [(len(marks), title) for marks, title in _HEADING.findall(prose_of(page))]


def sections_of(page: Path) -> dict[str, str]:
    """The text below each heading, up to the next one of any level."""
    parts = _HEADING.split(prose_of(page))
    return dict(zip(parts[2::3], parts[3::3], strict=True))


def tables_of(text: str) -> Iterator[list[list[str]]]:
    """Every table: its rows of cells, the header first. The line of dashes is left out."""
    table: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not all(re.fullmatch(r":?-+:?", cell) for cell in cells):
                table.append(cells)
        elif table:
            yield table
            table = []


def rows_under(text: str, *header: str) -> list[list[str]]:
    """The rows of every table that has this header."""
    return [row for table in tables_of(text) if table[0] == list(header) for row in table[1:]]


def quoted(cell: str) -> list[str]:
    """The texts in backticks."""
    return re.findall(r"`([^`]+)`", cell)
