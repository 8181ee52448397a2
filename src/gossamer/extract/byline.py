"""Finds the author and date of a page in the short lines around its title.

Used only if the page's metadata gives none. A date needs day, month and year, in a short line that does not mention a
change ("updated"); if a line has several dates, the words before each date decide. A name must follow "by", stand alone
beside the date, precede a role ("Ann Lee, Staff Writer"), be in an <address> or an element whose class names an author,
or link to the page of an author or user. A single word after "by" is a user name if the line has a date. The title is
the <h1>, or the first line equal to the page's stated title. Lines far from the title, and lists of entries with dates
or names, are not read: no name is better than a wrong one.

How it fails: a missing value is None or empty; nothing raises. The cost is linear in the size of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import takewhile
from typing import NamedTuple

from turbohtml import Document

from .article.outline import Outline, Paragraph, outline_of
from .dates import CHANGE, page_date, shown_dates, without_dates

_BEFORE, _AFTER = 5, 14  # lines around the title
_SHORT = 100  # letters of a line with a date or a name
_TITLE = 12  # letters of a title in a line that is not an <h1>
_FIRM = 200  # letters of a paragraph of the article
# "By" in many languages: alone, after a verb ("scritto da"), or as a noun ("Autorin:").
_BY_WORDS = (
    r"(?:(?:article|story|words|post|posted|written|published|authored|asked|created|shared|started|submitted|"
    r"geschrieben|verfasst|veröffentlicht|écrit|rédigé|publié|"
    r"text|texte|escrito|redactado|publicado|geschreven|geplaatst|skrevet|skriven|skrivet|napisał|a cura)\s+)?"
    r"(?:by|von|par|por|di|door|av|af)|(?:scritto|pubblicato|inserito)\s+da|(?:text|tekst|texte|texto|testo|words)\s*:|"
    r"author|autor(?:in|en|a|e|es|ka)?|aut(?:eur|eure|rice|hor)s?|författare|forfatter|kirjoittaja|toimittaja|szerző|"
    r"автор(?:\s+(?:текста|статьи))?|yazar|yazan|συντάκτης|penulis"
)
_BY = re.compile(
    rf"(?:^|[|·•●・–—-]\s*|(?<=\d)\s+(?:uhr,?\s+)?)(?:{_BY_WORDS})(?:\s*:\s*|\s+)(?P<names>[^|·•●・»–—:;()\[\]\d]{{3,80}})",
    re.IGNORECASE,
)
_BY_HAN = re.compile(
    r"(?:^|[|\s])(?:作者|著者|筆者|執筆者?|撰文|記者|记者|文|글)\s*[:：/／]\s*"
    r"(?P<name>[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af・]{2,10})(?=$|[\s|(（])"
)
_BRACKETS = re.compile(r"\([^()]*\)")
_STARTER = re.compile(r"(?:thread|topic|discussion) (?:starter|author|creator)[\s:]*(?P<name>\S{2,30})", re.IGNORECASE)
_PARTS = re.compile(r"\s*[|·•●・–—]\s*")  # of a line with author and date
_NO_PART = re.compile(
    r"\W*(?:\d+\W*(?:min|sec|comment|view|repl|like|share)\w*.{0,12}|read(?:ing)? time.*)?", re.IGNORECASE
)
_LABEL = re.compile(rf"(?:{_BY_WORDS})\s*:?", re.IGNORECASE)
_NAMED = re.compile(r"(?:^|[\W_])(?:author|byline|writer|username|poster)(?:$|[\W_]|s\b|name|link)", re.IGNORECASE)
_HANDLE = re.compile(r"user[-_]?name|(?:^|\s)user(?:$|\s)", re.IGNORECASE)
_NOT_NAMED = re.compile(r"avatar|bio|box|date|time|image|count|title|role|job", re.IGNORECASE)
_AUTHOR_PAGE = re.compile(r"/(?:authors?|contributors?|writers?|byline)/[^/]", re.IGNORECASE)
_USER_PAGE = re.compile(r"/(?:users?|u|members?|profiles?)/[^/?#]|/user-\d|[?&](?:u|uid|user)=\d", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_][\w.'’-]*")
_PARTICLES = frozenset(
    ("al", "bin", "da", "de", "del", "den", "der", "di", "dos", "du", "el", "la", "le", "van", "von")
)
_NO_NAMES = frozenset((
    "about", "account", "admin", "all", "and", "author", "authors", "bilder", "blog", "by", "category", "comments",
    "contact", "date", "follow", "foto", "fotos", "guest", "home", "join", "log", "login", "more", "news", "on",
    "our", "photo", "photos", "posted", "price", "profile", "read", "redacción", "redactie", "redaktion",
    "redazione", "register", "reply", "share", "sign", "staff", "subscribe", "team", "the", "view", "website",
    "written", "your",
))  # fmt: skip
_ROLES = frozenset(
    ("columnist", "contributor", "correspondent", "editor", "journalist", "producer", "reporter", "writer")
)
_NEVER_IN_NAMES = _NO_NAMES | _ROLES
_MOST_DAYS, _MOST_BYLINES = 2, 2  # around a title; with more, the lines are entries of a list


class Byline(NamedTuple):
    authors: tuple[str, ...] = ()
    published: datetime | None = None
    modified: datetime | None = None


def byline_of(tree: Document, titles: frozenset[str] = frozenset(), language: str = "") -> Byline:
    """The byline around the title of the page. `titles` are the titles stated in metadata, for pages without an <h1>,
    in lower case with single spaces. `language` of the page ("en-US") decides whether day or month comes first.
    """
    root = tree.root
    if root is None:
        return Byline()
    outline = outline_of(root)
    lines = [one for one in outline.paragraphs if not outline.struck[one.block]]
    title = _title_at(outline, lines, titles)
    if title is None:
        return Byline()
    near = lines[max(0, title - _BEFORE) : title] + _until_text(lines[title + 1 : title + 1 + _AFTER])
    heading = lines[title].text(outline.struck)
    shown = [(one, text) for one in near if (text := _short_text(outline, one)) and text != heading]
    texts = [(one, part) for one, text in shown for part in text.split("\n")]
    dates: list[tuple[datetime, bool]] = []  # and whether it is the date of a change
    before = ""
    for one, text in texts:
        dates += _dates_in(outline, one, before, text, language)
        before = text
    if len({found.date() for found, _ in dates}) > _MOST_DAYS:
        return Byline()
    published = next((found for found, changed in dates if not changed), None)
    modified = next((found for found, changed in dates if changed), None)
    labelled = False  # the line before was "Written by:"
    found: list[tuple[str, ...]] = []
    for one, text in texts:
        names = _names_in(outline, one, text, language, labelled=labelled, single=len(dates) == 1)
        if names:
            found.append(names)
        labelled = _LABEL.fullmatch(text) is not None
    authors = found[0] if found and len(set(found)) <= _MOST_BYLINES else ()
    return Byline(authors, published, modified)


def _short_text(outline: Outline, line: Paragraph) -> str:
    """The text of a line short enough for a byline, else "". In longer lines text in brackets is left out: the head of
    a post may name there who edited it."""
    text = line.text(outline.struck) if line.letters <= 2 * _SHORT else ""
    if line.letters > _SHORT:
        text = _BRACKETS.sub("", text)
    return text if len(text) <= _SHORT else ""


def _title_at(outline: Outline, lines: list[Paragraph], titles: frozenset[str]) -> int | None:
    """The index of the title's line."""
    headings = [at for at, one in enumerate(lines) if outline.tags[one.block] == "h1" and one.letters > 3]
    stated = [
        at
        for at, one in enumerate(lines)
        if one.letters >= _TITLE and " ".join(one.text(outline.struck).lower().split()) in titles
    ]
    # A short <h1> is the name of the site, unless nothing else is a title.
    firm = [at for at in headings if lines[at].letters >= _TITLE]
    return next(iter([*(at for at in stated if at in headings), *firm, *stated, *headings]), None)


def _dates_in(
    outline: Outline, line: Paragraph, before: str, text: str, language: str
) -> Iterator[tuple[datetime, bool]]:
    """The days in a line, each with whether it is the date of a change; with several days, the words before each
    decide."""
    found = shown_dates(text, language)
    if len(found) > 1:
        starts = [0, *(one.end for one in found)]
        yield from (
            (one.day, CHANGE.search(text, start, one.start) is not None)
            for one, start in zip(found, starts, strict=False)
        )
    elif day := found[0].day if found else _time_in(outline, line):
        yield day, CHANGE.search(f"{before} {text}") is not None


def _time_in(outline: Outline, line: Paragraph) -> datetime | None:
    """The moment of a <time> in the line, which may read "3 hours ago"."""
    for element, _ in line.pieces[:8]:
        for around in (element, max(outline.parents[element], 0)):
            if outline.tags[around] == "time" and (found := page_date(outline.elements[around].attr("datetime"))):
                return found
    return None


def _until_text(lines: list[Paragraph]) -> list[Paragraph]:
    """The lines before the article's second paragraph: the first one may be a summary above the byline."""
    firm = [at for at, one in enumerate(lines) if one.letters >= _FIRM and one.link_share < 0.3]
    return lines[: firm[1]] if len(firm) > 1 else lines


def _names_in(
    outline: Outline, line: Paragraph, text: str, language: str, *, labelled: bool, single: bool
) -> tuple[str, ...]:
    """The names in a line. `labelled`: the previous line ends in "by:"; `single`: only one line around has a date."""
    rest = without_dates(text, language)
    dated = rest != text
    if found := _BY.search(rest):
        names = re.split(r"\s*(?:,|&|\b(?:and|und|et|y|e|en|och|og|i|a|и|та|ve)\b)\s*", found["names"].strip(" -"))
        first, *others = map(_leading_name, names)
        if _is_name(first):
            return (first, *(name for name in others if _is_name(name)))[:5]
        word = rest[found.start("names") :].split()[0].rstrip(",:")
        if dated and _is_name(word, handle=True):
            return (word,)
    if found := _BY_HAN.search(rest):
        return (found["name"],)
    if labelled and _is_name(text):
        return (text,)
    if found := _STARTER.fullmatch(text):
        return (found["name"],)
    parts = [part.strip(" ,-") for part in _PARTS.split(rest) if not _NO_PART.fullmatch(part)]
    if dated and len(parts) == 1 and _is_name(parts[0]):
        return (parts[0],)
    name, _, role = text.partition(", ")
    if _is_name(name) and _ROLES & set(role.lower().split()) and len(role) <= _SHORT // 2:
        return (name,)
    block = line.block
    pieces = [(element, " ".join(piece.split())) for element, piece in line.pieces[:8] if piece.strip()]
    if single and _time_in(outline, line) is not None:
        others = [piece for element, piece in pieces if outline.tags[element] != "time" and _WORD.search(piece)]
        if len(others) == 1 and _is_name(others[0]):
            return (others[0],)
    for element, piece in [*pieces, (block, text)]:
        for around in (element, max(outline.parents[element], 0)):
            if outline.tags[around] == "address" and _is_name(piece):
                return (piece,)
            href = (outline.elements[around].attr("href") or "")[:500] if outline.tags[around] == "a" else ""
            if _AUTHOR_PAGE.search(href) and _is_name(piece):
                return (piece,)
            if _USER_PAGE.search(href) and _is_name(piece, handle=True):
                return (piece,)
            called = " ".join(str(outline.elements[around].attr(key) or "") for key in ("class", "itemprop", "rel"))[
                :300
            ]
            handle = _HANDLE.search(called) is not None
            if (handle or _NAMED.search(called)) and not _NOT_NAMED.search(called) and _is_name(piece, handle=handle):
                return (piece,)
    return ()


def _leading_name(text: str) -> str:
    """The words before the first one that cannot be part of a name: "Ann Lee on", "Ann Lee for the News"."""
    words = list(takewhile(lambda word: word[0].isupper() or word.lower() in _PARTICLES, text.split()))
    while words and words[-1].lower() in _PARTICLES:
        words.pop()
    return " ".join(words)


def _is_name(text: str, *, handle: bool = False) -> bool:
    """True for two to five capitalised words, and for one word that the page marks as a user name."""
    words = text.split()
    if handle and len(words) == 1:
        return 2 <= len(text) <= 30 and "@" not in text[1:] and text.lower() not in _NO_NAMES
    plain = {word.lower().strip(".,") for word in words}
    if not 2 <= len(words) <= 5 or len(text) > 50 or plain & _NEVER_IN_NAMES:
        return False
    if sum(word[0].isupper() for word in words) < 2:
        return False
    return all(
        _WORD.fullmatch(word.rstrip(",")) and (word[0].isupper() or word.lower() in _PARTICLES) for word in words
    )
