"""Reads sitemaps as a stream: XML sitemaps and indexes, plain lists of addresses, RSS and Atom; gzipped or not.

How it fails: a file that is not a sitemap, or declares its own entities, raises ParseFailed with the reason. If a file
is truncated, too long, or a damaged gzip stream, the entries read so far are kept, and `trouble` says so. Invalid and
overlong addresses are counted in `skipped`. Invalid and future dates become None; their text is kept.

Memory does not grow with the file: each entry is yielded as soon as it is complete.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from ..errors import InvalidUrl, ParseFailed
from .dates import feed_date
from .links import LinkBase
from .xml import END, START, TextStream, XmlEvent, XmlStream, attributes_of, resolve_entities

if TYPE_CHECKING:
    from .markup import Markup

__all__ = ["ChildSitemap", "Sitemap", "SitemapEntry", "SitemapReader", "sitemap_of"]

MOST_BYTES = 50 * 1024 * 1024  # unpacked: the limit of the protocol
LONGEST_URL = 8_192  # characters; the protocol allows 2,048, which many sitemaps ignore
_PIECE = 65_536  # bytes unpacked per step
_CLOCKS_DIFFER = timedelta(days=1)
_GZIP = b"\x1f\x8b"
_MOST_PARTS = 10_000  # gzip members of a file; block compressors write one per 64 KB

_KINDS = {
    "urlset": "urlset",
    "url": "urlset",
    "sitemapindex": "index",
    "sitemap": "index",
    "rss": "rss",
    "rdf": "rss",
    "channel": "rss",
    "feed": "atom",
}
_ENTRIES = frozenset(["url", "sitemap", "item", "entry"])

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


class SitemapReader:
    """Takes bytes in chunks of any size and yields entries. `url` is the sitemap's own address.

    Exhaust the generators of `feed` and `close`. Once `done` is True, further bytes are ignored.
    """

    def __init__(
        self,
        url: str,
        *,
        max_bytes: int = MOST_BYTES,
        max_url: int = LONGEST_URL,
        now: datetime | None = None,
    ) -> None:
        self.kind = ""  # known after the first element or line
        self.skipped = 0
        self.trouble: str | None = None
        self.done = False
        self._url = url
        self._base = LinkBase(url)
        self._max_url = max_url
        self._newest = (now or datetime.now(UTC)) + _CLOCKS_DIFFER
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._head = b""
        self._unpacker: zlib._Decompress | None = None
        self._parts = 0
        self._started = self._looked = False
        self._text = TextStream()
        self._xml = XmlStream()
        self._line = ""
        self._read = 0
        self._root = ""
        self._prefix = ""
        self._draft: SitemapEntryDraft | None = None

    def feed(self, chunk: bytes) -> Iterator[SitemapEntry | ChildSitemap]:
        """The entries completed by these bytes. Raises ParseFailed."""
        if self.done:
            return
        if not self._started:
            self._head += chunk
            if len(self._head) < len(_GZIP):
                return
            chunk, self._head, self._started = self._head, b"", True
            if chunk.startswith(_GZIP):
                self._unpacker = zlib.decompressobj(31)
        # In slices, because each step copies the unused rest of its input.
        for at in range(0, len(chunk), _PIECE):
            for piece in self._unpacked(chunk[at : at + _PIECE]):
                if len(piece) > self._left:
                    piece = piece[: self._left]
                    self._end_with(f"it is longer than {self._max_bytes:,} bytes; the rest was left out")
                self._left -= len(piece)
                yield from self._take(self._text.feed(piece))
                if self.done:
                    return
            if self.done:
                return

    def close(self) -> Iterator[SitemapEntry | ChildSitemap]:
        """The entries still open. Raises ParseFailed if the file is not a sitemap."""
        yield from self._take(self._text.feed(self._head, final=True))
        if self._unpacker is not None and not self._unpacker.eof:
            self._end_with("its gzip stream ends too early; what came before was read")
        if self.kind == "text":
            yield from self._lines("\n")
        elif self._looked:
            yield from self._scan("", final=True)
            cut = self._xml.close()
            if self._draft is not None:
                # An address cut off by the end of the file would lead elsewhere; one followed by a tag is complete.
                self._draft.close_field(whole=cut.startswith("<"))
                entry = self._finished()
                if entry is not None:
                    yield entry
            if self._root:
                self._end_with(f"it ends before </{self._root}>; what came before was read")
        self.done = True
        if not self._read and self.kind in ("", "text"):
            raise ParseFailed(f"{self._url} is not a sitemap: it lists no address.")

    def _end_with(self, trouble: str) -> None:
        self.trouble = self.trouble or f"{self._url} is not complete: {trouble}."
        self.done = True

    def _unpacked(self, chunk: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield chunk
            return
        while True:
            unpacker = self._unpacker
            try:
                piece = unpacker.decompress(chunk, _PIECE)
            except zlib.error as error:
                if not self._read:
                    raise ParseFailed(f"{self._url} is packed with gzip and damaged: {error}.") from error
                self._end_with("its gzip stream is damaged; what came before was read")
                return
            if piece:
                yield piece
            chunk = unpacker.unconsumed_tail
            if unpacker.eof:
                chunk = unpacker.unused_data
                if not chunk.startswith(_GZIP):
                    self.done = len(chunk) >= len(_GZIP)  # zeros or other padding after the end
                    return
                self._parts += 1
                if self._parts >= _MOST_PARTS:
                    self._end_with(f"it is packed in more than {_MOST_PARTS:,} parts; the rest was left out")
                    return
                self._unpacker = zlib.decompressobj(31)  # a file may consist of several gzip members
            elif not chunk and len(piece) < _PIECE:
                return

    def _take(self, text: str) -> Iterator[SitemapEntry | ChildSitemap]:
        if not self._looked:
            text = text.lstrip("\ufeff \t\r\n")
            if not text:
                return
            self._looked = True
            if text[0] != "<":
                self.kind = "text"
        if self.kind == "text":
            yield from self._lines(text)
            return
        at = 0
        while at < len(text):
            if self.kind == "urlset" and not self._prefix and self._draft is None and self._xml.idle:
                while plain := PLAIN_ENTRY.match(text, at):
                    at = plain.end()
                    entry = self._entry_of(SitemapEntryDraft.of_plain(plain))
                    if entry is not None:
                        yield entry
            stop = text.find("</url>", at) + 6
            yield from self._scan(text[at:stop] if stop > 5 else text[at:])
            at = stop if stop > 5 else len(text)

    def _scan(self, text: str, *, final: bool = False) -> Iterator[SitemapEntry | ChildSitemap]:
        try:
            for event in self._xml.feed(text, final=final):
                entry = self._on(event)
                if entry is not None:
                    yield entry
        except ParseFailed as refusal:
            raise ParseFailed(f"{self._url}: {refusal}") from None

    def _lines(self, text: str) -> Iterator[SitemapEntry]:
        *lines, self._line = (self._line + text).replace("\r", "\n").split("\n")
        if len(self._line) > LONGEST_FIELD:
            raise ParseFailed(f"{self._url} is not a sitemap: it begins with {self._line[:60]!r}.")
        for line in lines:
            address = line.strip("\ufeff \t")
            if not address:
                continue
            if address[:4].lower() != "http":
                self.skipped += 1
                if not self._read and self.skipped > 100:
                    raise ParseFailed(f"{self._url} is not a sitemap: it begins with {address[:60]!r}.")
            elif (loc := self._absolute(address)) is not None:
                self._read += 1
                yield SitemapEntry(loc=loc)

    def _on(self, event: XmlEvent) -> SitemapEntry | ChildSitemap | None:
        """The entry completed by the event, if any."""
        kind, name, value, _ = event
        draft = self._draft
        if kind == START:
            prefix, _, local = name.rpartition(":")
            if not self.kind:
                self._begin(local, prefix)
            if local in _ENTRIES and prefix == self._prefix_of(local):
                if draft is not None and draft.field == "loc":
                    return None  # <loc><url>...</url></loc>, which some programs write
                entry = self._finished()
                self._draft = SitemapEntryDraft(local, prefix)
                return entry
            if draft is not None:
                draft.start(local, prefix, event)
        elif kind == END:
            if name == self._root:
                self._root = ""
            prefix, _, local = name.rpartition(":")
            if draft is None:
                return None
            if local == draft.kind and prefix == draft.prefix and draft.field != "loc":
                return self._finished()
            if local == draft.field:
                draft.close_field()
        elif draft is not None:
            draft.write(value)
        return None

    def _begin(self, local: str, prefix: str) -> None:
        if local not in _KINDS:
            raise ParseFailed(f"This is not a sitemap: its first element is <{local[:40]}>.")
        self.kind = _KINDS[local]
        self._prefix = prefix
        if local not in _ENTRIES:
            self._root = f"{prefix}:{local}" if prefix else local

    def _prefix_of(self, local: str) -> str:
        """The prefix of entries: that of the root, except in RDF, whose items have none."""
        return "" if local == "item" else self._prefix

    def _finished(self) -> SitemapEntry | ChildSitemap | None:
        draft, self._draft = self._draft, None
        return self._entry_of(draft) if draft is not None else None

    def _entry_of(self, draft: SitemapEntryDraft) -> SitemapEntry | ChildSitemap | None:
        """The entry; None without a valid address."""
        address = draft.address()
        loc = self._absolute(address) if address else None
        if loc is None:
            self.skipped += draft.is_cut and not address
            return None
        text = draft.date_text()
        lastmod = feed_date(text)
        if lastmod is not None and lastmod > self._newest:
            lastmod = None
        self._read += 1
        if draft.kind == "sitemap":
            return ChildSitemap(loc=loc, lastmod=lastmod, lastmod_text=text)
        return SitemapEntry(
            loc=loc,
            lastmod=lastmod,
            lastmod_text=text,
            changefreq=draft.fields.get("changefreq", "").lower() or None,
            priority=draft.priority(),
            alternates=self._alternates(draft) if draft.alternates else (),
        )

    def _alternates(self, draft: SitemapEntryDraft) -> tuple[tuple[str, str], ...]:
        found = ((language, self._absolute(link, counted=False)) for language, link in draft.alternates)
        return tuple((language, href) for language, href in found if href is not None)

    def _absolute(self, address: str, *, counted: bool = True) -> str | None:
        try:
            loc = self._base.join(address) if len(address) <= self._max_url else None
        except InvalidUrl:
            loc = None
        if loc is None and counted:
            self.skipped += 1
        return loc


def sitemap_of(page: Markup) -> Sitemap:
    """A fetched page as a sitemap. Raises ParseFailed."""
    reader = SitemapReader(page.url, now=datetime.fromtimestamp(page.fetched_at, UTC))
    urls: list[SitemapEntry] = []
    children: list[ChildSitemap] = []
    for entries in (reader.feed(page.body), reader.close()):
        for entry in entries:
            if isinstance(entry, ChildSitemap):
                children.append(entry)
            else:
                urls.append(entry)
    trouble = reader.trouble
    if page.cut and trouble is None:
        trouble = f"{page.url} was longer than the crawl allows; what came before was read."
    return Sitemap(
        kind=reader.kind, urls=tuple(urls), children=tuple(children), skipped=reader.skipped, trouble=trouble
    )


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
