"""A feed and its entries as values, and the drafts that feeds.py fills while reading. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from html import escape

import msgspec
import turbohtml

from ..errors import InvalidUrl
from ..model.url import parse_url
from .dates import feed_date
from .links import LinkBase
from .xml import XmlEvent

_MARKUP = re.compile(r"<[a-zA-Z/!]|&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]{2,32});")
_WRAPPER = re.compile(r"<(?:\w{1,40}:)?div[^<>]*>(.*)</(?:\w{1,40}:)?div\s*>", re.DOTALL | re.IGNORECASE)
_MAIL_AND_NAME = re.compile(r"[^\s@()]{1,200}@[^\s@()]{1,200}\s{1,5}\(([^()]{1,200})\)")


class Enclosure(msgspec.Struct, frozen=True, kw_only=True):
    """A file that belongs to an entry. `length` is in bytes, if the feed gives it."""

    url: str
    type: str = ""
    length: int | None = None


class FeedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry. `url` is absolute; `title` is plain text; `summary` and `content` are HTML, as the feed has them."""

    id: str = ""
    url: str | None = None
    title: str = ""
    summary: str = ""
    content: str = ""
    author: str = ""
    published: datetime | None = None
    updated: datetime | None = None
    categories: tuple[str, ...] = ()
    enclosures: tuple[Enclosure, ...] = ()


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """A feed. `kind` is rss, rdf, atom or json; `link` is the site's page; `trouble` says what could not be read."""

    kind: str
    title: str = ""
    link: str | None = None
    description: str = ""
    language: str = ""
    updated: datetime | None = None
    entries: tuple[FeedEntry, ...] = ()
    trouble: str | None = None


class FeedField:
    """A field being read: text, or unescaped markup."""

    __slots__ = ("_sources", "_texts", "depth", "has_markup", "key", "kind", "name")

    def __init__(self, key: str, name: str, kind: str) -> None:
        self.key = key  # what it means
        self.name = name  # of the element
        self.kind = kind  # its type attribute
        self.depth = 0
        self.has_markup = False
        self._texts: list[str] = []
        self._sources: list[str] = []

    def text(self, event: XmlEvent) -> None:
        self._texts.append(event.value)
        self._sources.append(event.source or escape(event.value, quote=False))

    def markup(self, event: XmlEvent) -> None:
        self.has_markup = True
        self._sources.append(event.source)

    def value(self) -> str:
        if not self.has_markup:
            return "".join(self._texts).strip()
        source = "".join(self._sources).strip()
        wrapped = _WRAPPER.fullmatch(source) if self.kind == "xhtml" else None
        return wrapped[1].strip() if wrapped else source


class FeedEntryDraft:
    """A feed's head or one entry being read. The first non-empty value of each field counts."""

    def __init__(self, base: LinkBase | None) -> None:
        self.base = base
        self.fields: dict[str, str] = {}
        self.links: list[str] = []  # to pages
        self.other_links: list[str] = []  # to alternate forms
        self.categories: dict[str, None] = {}
        self.enclosures: dict[str, Enclosure] = {}

    def keep(self, field: FeedField, *, is_plain: bool) -> None:
        value = field.value()
        if field.key in ("title", "author", "category"):
            value = " ".join(value.split()) if is_plain and not field.has_markup else plain_text(value)
        if not value:
            return
        if field.key == "category":
            self.categories[value] = None
        else:
            self.fields.setdefault(field.key, value)

    def category(self, name: str) -> None:
        if name := " ".join(name.split()):
            self.categories[name] = None

    def enclose(self, link: str, kind: str, length: str) -> None:
        url = self.absolute(link)
        if url is not None:
            size = int(length) if length.isascii() and length.isdigit() and len(length) < 16 else None
            self.enclosures.setdefault(url, Enclosure(url=url, type=kind, length=size))

    def absolute(self, link: str) -> str | None:
        try:
            return absolute_link(self.base, link.strip()) if link.strip() else None
        except InvalidUrl:
            return None

    def first_link(self, others: Iterable[str] = ()) -> str | None:
        """The first valid address among the links to pages, `others`, and the links to alternate forms."""
        links = (*self.links, *others, *self.other_links)
        return next((url for link in links if (url := self.absolute(link)) is not None), None)

    def date(self, *names: str) -> datetime | None:
        return next((date for name in names if (date := feed_date(self.fields.get(name, ""))) is not None), None)

    def entry(self) -> FeedEntry:
        fields = self.fields
        name = fields.get("id", "")
        looks_like_link = name[:7].lower() == "http://" or name[:8].lower() == "https://"
        url = self.first_link([fields.get("link", ""), name if looks_like_link else "", fields.get("about", "")])
        return FeedEntry(
            id=name or fields.get("about", "") or url or "",
            url=url,
            title=fields.get("title", ""),
            summary=fields.get("summary", ""),
            content=fields.get("content", ""),
            author=author_name(fields.get("author", "")),
            published=self.date("published", "date"),
            updated=self.date("updated"),
            categories=tuple(self.categories),
            enclosures=tuple(self.enclosures.values()),
        )


def absolute_link(base: LinkBase | None, link: str) -> str:
    """The absolute address. Without a base, a relative link raises InvalidUrl."""
    return base.join(link) if base is not None else parse_url(link)


def plain_text(value: str) -> str:
    """HTML as one line of text."""
    if _MARKUP.search(value):
        value = turbohtml.parse(value).text
    return " ".join(value.split())


def author_name(text: str) -> str:
    """The name in an RSS author such as "jane@example.com (Jane Doe)"."""
    match = _MAIL_AND_NAME.fullmatch(text)
    return match[1].strip() if match else text
