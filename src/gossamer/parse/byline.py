"""Who wrote a page and when, as readers see it: in the short lines around its title.

Read only where the page's metadata is silent. A date must have day, month and year, a line with it must be short and
must not speak of a change ("updated"); a name must follow "by", stand in an element that is called after authors, or
link to the page of an author. Lines far from the title, and lists of dated entries, are not read: nothing is better
than a wrong name.

How it fails: what is not found is None or empty; nothing raises. Costs grow with the size of the page.
"""

from __future__ import annotations

import re
from datetime import datetime
from itertools import pairwise
from typing import NamedTuple

from turbohtml import Document

from .article.outline import Outline, Paragraph, outline_of
from .dates import shown_date

_BEFORE, _AFTER = 5, 14  # lines around the title
_SHORT = 100  # letters of a line with a date or a name
_FIRM = 200  # letters of a paragraph of the text itself
_CHANGED = re.compile(r"updat|modifi|revis|review|edited|copyright|©|aktualisiert|mis à jour|actualizado", re.I)
_BY = re.compile(
    r"(?:^|[|·•–—-]\s*)(?:(?:article|story|words|post|posted|written|published|authored)\s+)?"
    r"(?:by|author|von|par|por)\b\s*:?\s+(?P<names>[^|·•–—:;()\[\]\d]{3,80})",
    re.IGNORECASE,
)
_LABEL = re.compile(r"(?:(?:written|posted|published|authored)\s+)?(?:by|author|von|par|por)\s*:?", re.IGNORECASE)
_NAMED = re.compile(r"(?:^|[\W_])(?:author|byline|writer|username|poster)(?:$|[\W_]|s\b|name|link)", re.IGNORECASE)
_NOT_NAMED = re.compile(r"avatar|bio|box|date|time|image|count|title|role|job", re.IGNORECASE)
_AUTHOR_PAGE = re.compile(r"/(?:authors?|contributors?|writers?|byline|people|team)/[^/]", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][\w.'’-]*")
_PARTICLES = frozenset(
    ("al", "bin", "da", "de", "del", "den", "der", "di", "dos", "du", "el", "la", "le", "van", "von")
)
_NO_NAMES = frozenset((
    "about", "admin", "all", "and", "author", "authors", "blog", "by", "comments", "contact", "follow", "guest", "home",
    "more", "news", "our", "posted", "profile", "read", "share", "staff", "subscribe", "team", "the", "view", "website",
    "written", "your",
))  # fmt: skip
_MOST_DAYS = 2  # around a title; with more, the lines are entries of a list


class Byline(NamedTuple):
    authors: tuple[str, ...] = ()
    published: datetime | None = None
    modified: datetime | None = None


def byline_of(tree: Document) -> Byline:
    """What stands around the <h1> of the page."""
    root = tree.root
    if root is None:
        return Byline()
    outline = outline_of(root)
    lines = [one for one in outline.paragraphs if not outline.struck[one.block]]
    title = next((at for at, one in enumerate(lines) if _in_heading(outline, one)), None)
    if title is None:
        return Byline()
    near = lines[max(0, title - _BEFORE) : title] + _until_text(lines[title + 1 : title + 1 + _AFTER])
    texts = [(one, one.text(outline.struck)) for one in near if one.letters <= _SHORT]
    dates = [(text, found) for _, text in texts if (found := shown_date(text)) is not None]
    published = modified = None
    if len({found for _, found in dates}) <= _MOST_DAYS:
        before = {text: lead for (_, lead), (_, text) in pairwise([(None, ""), *texts])}
        changes = [(found, _CHANGED.search(f"{before[text]} {text}") is not None) for text, found in dates]
        published = next((found for found, changed in changes if not changed), None)
        modified = next((found for found, changed in changes if changed), None)
    labelled = False  # the line before was "Written by:"
    for one, text in texts:
        names = _names_in(outline, one, text, labelled)
        if names:
            return Byline(names, published, modified)
        labelled = _LABEL.fullmatch(text) is not None
    return Byline((), published, modified)


def _in_heading(outline: Outline, line: Paragraph) -> bool:
    return outline.tags[line.block] == "h1" and line.letters > 3


def _until_text(lines: list[Paragraph]) -> list[Paragraph]:
    """The lines up to the second paragraph of the text: the first may be a summary above the byline."""
    firm = [at for at, one in enumerate(lines) if one.letters >= _FIRM and one.link_share < 0.3]
    return lines[: firm[1]] if len(firm) > 1 else lines


def _names_in(outline: Outline, line: Paragraph, text: str, labelled: bool) -> tuple[str, ...]:
    if found := _BY.search(text):
        names = re.split(r"\s*(?:,|&|\band\b|\bund\b|\bet\b)\s*", found["names"].strip())
        people = [name for name in names if _is_name(name)]
        if people and _is_name(names[0]):
            return tuple(people[:5])
    if labelled and _is_name(text):
        return (text,)
    block = line.block
    pieces = [(element, " ".join(piece.split())) for element, piece in line.pieces[:8] if piece.strip()]
    for element, piece in [*pieces, (block, text)]:
        if outline.tags[element] == "a" and _is_name(piece):
            href = outline.elements[element].attr("href") or ""
            if _AUTHOR_PAGE.search(href[:500]):
                return (piece,)
        for around in (element, max(outline.parents[element], 0)):
            called = " ".join(str(outline.elements[around].attr(key) or "") for key in ("class", "itemprop", "rel"))[
                :300
            ]
            if _NAMED.search(called) and not _NOT_NAMED.search(called) and _is_name(piece, handle="username" in called):
                return (piece,)
    return ()


def _is_name(text: str, *, handle: bool = False) -> bool:
    """True for two to five words that begin with capitals; for one word where the page calls it a user's name."""
    words = text.split()
    if handle and len(words) == 1:
        return 2 <= len(text) <= 30 and text.lower() not in _NO_NAMES
    if not 2 <= len(words) <= 5 or len(text) > 50 or any(word.lower().strip(".,") in _NO_NAMES for word in words):
        return False
    return all(
        _WORD.fullmatch(word.rstrip(",")) and (word[0].isupper() or word.lower() in _PARTICLES) for word in words
    )
