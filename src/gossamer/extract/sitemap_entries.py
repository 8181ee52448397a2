"""A sitemap and its entries as values, and the draft of an entry that sitemaps.py fills while reading. Pure."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from .xml import XmlEvent, attributes_of, resolve_entities

LONGEST_FIELD = 20_000  # characters
_MOST_ALTERNATES = 500  # of one entry
_FIELDS = {
    "url": frozenset(["loc", "lastmod", "changefreq", "priority"]),
    "sitemap": frozenset(["loc", "lastmod"]),
    "item": frozenset(["link", "guid", "pubdate", "date"]),
    "entry": frozenset(["updated", "published", "modified", "issued"]),
}

# Nearly all entries of nearly all sitemaps look like this, and one match is much cheaper than twenty events. All other
# entries are read event by event.
PLAIN_ENTRY = re.compile(
    r"\s*<url>\s*<loc>([^<>]{1,4000})</loc>"
    r"((?:\s*<(?:lastmod|changefreq|priority)>[^<>]{0,100}</(?:lastmod|changefreq|priority)>)*)\s*</url>"
)
_PLAIN_FIELD = re.compile(r"<(\w+)>([^<>]*)</\1>")


class SitemapEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A page listed in a sitemap. `loc` is absolute; `lastmod_text` is the date as written."""

    loc: str
    lastmod: datetime | None = None
    lastmod_text: str = ""
    changefreq: str | None = None
    priority: float | None = None
    alternates: tuple[tuple[str, str], ...] = ()  # (language, address)


class ChildSitemap(msgspec.Struct, frozen=True, kw_only=True):
    """A sitemap listed in an index."""

    loc: str
    lastmod: datetime | None = None
    lastmod_text: str = ""


class Sitemap(msgspec.Struct, frozen=True, kw_only=True):
    """A whole sitemap. `kind` is urlset, index, rss, atom or text; `trouble` says what could not be read, if
    anything."""

    kind: str
    urls: tuple[SitemapEntry, ...]
    children: tuple[ChildSitemap, ...]
    skipped: int = 0
    trouble: str | None = None


class SitemapEntryDraft:
    """An entry being read."""

    __slots__ = (
        "_bare", "_bare_size", "_parts", "_size", "alternates", "field", "fields", "is_cut", "kind", "links", "prefix",
    )  # fmt: skip

    def __init__(self, kind: str, prefix: str) -> None:
        self.kind = kind
        self.prefix = prefix
        self.field = ""  # the open one
        self.fields: dict[str, str] = {}
        self.links: list[str] = []  # of an Atom entry
        self.alternates: list[tuple[str, str]] = []
        self.is_cut = False  # a text was too long and was dropped: a truncated address would lead elsewhere
        self._parts: list[str] = []
        self._bare: list[str] = []  # text outside of all fields, where some sites write the address
        self._size = self._bare_size = 0

    @classmethod
    def of_plain(cls, plain: re.Match[str]) -> SitemapEntryDraft:
        draft = cls("url", "")
        draft.fields["loc"] = resolve_entities(plain[1]).strip()
        for name, text in _PLAIN_FIELD.findall(plain[2]):
            draft.fields.setdefault(name, resolve_entities(text).strip())
        return draft

    def start(self, local: str, prefix: str, event: XmlEvent) -> None:
        if local == "link" and self.kind != "item":
            self._link(attributes_of(event))
        elif local in _FIELDS[self.kind] and (prefix == self.prefix or (self.kind == "item" and local == "date")):
            self.close_field()
            self.field = local
            self._parts, self._size = [], 0

    def _link(self, link: dict[str, str]) -> None:
        href, relation = link.get("href", ""), link.get("rel", "alternate")
        if not href or relation != "alternate" or len(self.links) + len(self.alternates) >= _MOST_ALTERNATES:
            return
        if self.kind == "entry":
            self.links.append(href)
        else:
            self.alternates.append((link.get("hreflang", ""), href))

    def write(self, text: str) -> None:
        if not self.field:
            self._bare_size += len(text)
            if self._bare_size <= LONGEST_FIELD:
                self._bare.append(text)
            elif self.kind in ("url", "sitemap"):
                self.is_cut = True
            return
        self._size += len(text)
        if self._size <= LONGEST_FIELD:
            self._parts.append(text)

    def close_field(self, *, whole: bool = True) -> None:
        if self.field and self._size > LONGEST_FIELD:
            self.is_cut = True
        elif self.field and whole:
            self.fields.setdefault(self.field, "".join(self._parts).strip())
        self.field = ""

    def address(self) -> str:
        fields = self.fields
        if self.kind == "entry":
            return self.links[0] if self.links else ""
        if self.kind == "item":
            guid = fields.get("guid", "")
            return fields.get("link") or (guid if guid[:4].lower() == "http" else "")
        return fields.get("loc") or ("" if self.is_cut else "".join(self._bare).strip())

    def date_text(self) -> str:
        names = ("lastmod", "pubdate", "date", "updated", "modified", "published", "issued")
        return next((text for name in names if (text := self.fields.get(name))), "")[:100]

    def priority(self) -> float | None:
        try:
            number = float(self.fields.get("priority", ""))
        except ValueError:
            return None
        return number if 0.0 <= number <= 1.0 else None
