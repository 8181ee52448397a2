"""Reads feeds (RSS 0.9x, 1.0 (RDF) and 2.0, Atom, JSON Feed) into one form.

Made for real-world feeds: undeclared entities, wrong encoding labels, unescaped HTML, dates in every spelling, unclosed
tags. Such feeds are read as far as their meaning is clear, and `trouble` says what could not be read.

How it fails: a text that is not a feed, or declares its own entities, raises ParseFailed with the reason. Reading never
recurses, and every step passes over the text once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import InvalidUrl, ParseFailed
from .feed_entries import Enclosure, Feed, FeedEntry, FeedEntryDraft, FeedField, absolute_link
from .links import LinkBase
from .media import charset_label
from .xml import END, START, XmlEvent, XmlStream, attributes_of, decode_xml

if TYPE_CHECKING:
    from .markup import Markup

__all__ = ["Enclosure", "Feed", "FeedEntry", "parse_feed"]

_MOST_ENTRIES = 10_000
_MOST_EVENTS = 1_000_000  # tags and texts
# Fields of a word or a line. If another field begins inside one, its end tag is missing.
_SHORT = frozenset(["title", "id", "link", "author", "published", "updated", "date", "category", "language"])
_KINDS = {"rss": "rss", "channel": "rss", "rdf": "rdf", "feed": "atom"}
_ENTRIES = frozenset(["item", "entry"])
_ASIDES = frozenset(["image", "textinput", "source", "skiphours", "skipdays"])  # things with a title of their own
_ENDS = frozenset(["item", "entry", "channel", "rss", "feed", "rdf:rdf"])
# Meanings of elements, by name without prefix; some names count only with the given prefix.
_MEANINGS = {
    "title": "title",
    "dc:title": "title",
    "guid": "id",
    "id": "id",
    "dc:identifier": "id",
    "link": "link",
    "description": "summary",
    "dc:description": "summary",
    "summary": "summary",
    "subtitle": "summary",
    "tagline": "summary",
    "itunes:summary": "summary",
    "content": "content",
    "content:encoded": "content",
    "author": "author",
    "dc:creator": "author",
    "creator": "author",
    "itunes:author": "author",
    "managingeditor": "author",
    "pubdate": "published",
    "published": "published",
    "issued": "published",
    "created": "published",
    "dc:date": "date",
    "dcterms:created": "published",
    "updated": "updated",
    "modified": "updated",
    "lastbuilddate": "updated",
    "dcterms:modified": "updated",
    "category": "category",
    "dc:subject": "category",
    "language": "language",
    "dc:language": "language",
}


def parse_feed(source: Markup | bytes | str, base_url: str = "") -> Feed:
    """Parse a feed; addresses become absolute. For a page its own address is the base. Raises ParseFailed."""
    if isinstance(source, bytes):
        text = decode_xml(source)
    elif isinstance(source, str):
        text = source
    else:
        base_url = base_url or source.url
        text = decode_xml(source.body, charset_label(source.content_type) or "")
    name = base_url or "This text"
    base = LinkBase(base_url) if base_url else None
    if text.lstrip("\ufeff \t\r\n")[:1] == "{":
        return _json_feed(text, name, base)
    try:
        return _XmlFeed(base).read(text)
    except ParseFailed as refusal:
        raise ParseFailed(f"{name} is not a feed that can be read. {refusal}") from None


class _XmlFeed:
    def __init__(self, base: LinkBase | None) -> None:
        self._kind = ""
        self._root = ""
        self._prefix = ""
        self._head = FeedEntryDraft(base)
        self._draft: FeedEntryDraft | None = None  # the open entry
        self._field: FeedField | None = None
        self._aside = ""
        self._entries: list[FeedEntry] = []
        self._left_out = 0

    def read(self, text: str) -> Feed:
        stream = XmlStream()
        events = 0
        for event in stream.feed(text, final=True):
            events += 1
            if events > _MOST_EVENTS:
                break
            if event.kind == START:
                self._start(event)
            elif event.kind == END:
                self._end(event)
            elif self._field is not None:
                self._field.text(event)
        if not self._kind:
            raise ParseFailed(f"It has no elements; it begins with {text.strip()[:60]!r}.")
        is_cut = bool(self._root) or not stream.idle or events > _MOST_EVENTS
        self._close_field()
        self._close_entry()
        trouble = "The feed ends too early, or is too large; what came before was read." if is_cut else None
        if self._left_out:
            trouble = f"The feed has more than {_MOST_ENTRIES:,} entries; {self._left_out:,} were left out."
        head = self._head
        return Feed(
            kind=self._kind,
            title=head.fields.get("title", ""),
            link=head.first_link([head.fields.get("link", "")]),
            description=head.fields.get("summary", ""),
            language=head.fields.get("language", ""),
            updated=head.date("updated", "published", "date"),
            entries=tuple(self._entries),
            trouble=trouble,
        )

    def _start(self, event: XmlEvent) -> None:
        prefix, _, local = event.name.rpartition(":")
        is_own = prefix in ("", self._prefix)
        is_entry = is_own and local in _ENTRIES
        field = self._field
        if field is not None and field.key in _SHORT and event.name != field.name and is_own and local in _MEANINGS:
            self._close_field()
            field = None
        if field is not None and not is_entry:
            if event.name == field.name:
                field.depth += 1
            field.markup(event)
        elif not self._kind:
            self._begin(event, local, prefix)
        elif is_entry:
            self._close_field()
            self._close_entry()
            self._open_entry(event)
        elif not self._aside:
            if is_own and local in _ASIDES:
                self._aside = event.name
            else:
                self._part(event, local, prefix)

    def _begin(self, event: XmlEvent, local: str, prefix: str) -> None:
        if local not in _KINDS:
            raise ParseFailed(f"Its first element is <{event.name[:40]}>.")
        self._kind = _KINDS[local]
        self._root = event.name
        self._prefix = "" if self._kind == "rdf" else prefix
        self._head.base = self._base_inside(event, self._head.base)
        if language := attributes_of(event).get("xml:lang"):
            self._head.fields["language"] = language

    def _open_entry(self, event: XmlEvent) -> None:
        self._draft = FeedEntryDraft(self._base_inside(event, self._head.base))
        if about := attributes_of(event).get("rdf:about"):
            self._draft.fields["about"] = about

    def _base_inside(self, event: XmlEvent, base: LinkBase | None) -> LinkBase | None:
        declared = attributes_of(event).get("xml:base") if "xml:base" in event.value else None
        try:
            return LinkBase(absolute_link(base, declared)) if declared else base
        except InvalidUrl:
            return base

    def _part(self, event: XmlEvent, local: str, prefix: str) -> None:
        """Handle the start of an element in the head or an entry."""
        draft = self._draft or self._head
        attributes = attributes_of(event) if event.value else {}
        if local == "link" and "href" in attributes:
            self._link(draft, attributes)
        elif local == "enclosure" or event.name == "media:content":
            link = attributes.get("url") or attributes.get("href") or attributes.get("rdf:resource", "")
            draft.enclose(link, attributes.get("type", ""), attributes.get("length") or attributes.get("filesize", ""))
        elif local == "category" and "term" in attributes:
            draft.category(attributes.get("label") or attributes["term"])
        elif local == "author" and self._kind == "atom":
            return  # <name> inside it is the field
        else:
            own = prefix in ("", self._prefix)
            meaning = _MEANINGS.get(local if own else event.name)
            if local == "name" and own and self._kind == "atom":
                meaning = "author"
            if meaning is not None:
                self._field = FeedField(meaning, event.name, attributes.get("type", "").lower())

    def _link(self, draft: FeedEntryDraft, attributes: dict[str, str]) -> None:
        relation = attributes.get("rel", "alternate").lower()
        if relation == "enclosure":
            draft.enclose(attributes["href"], attributes.get("type", ""), attributes.get("length", ""))
        elif relation == "alternate":
            is_page = "html" in attributes.get("type", "html")
            (draft.links if is_page else draft.other_links).append(attributes["href"])

    def _end(self, event: XmlEvent) -> None:
        field = self._field
        if field is not None:
            if event.name == field.name:
                field.depth -= 1
                if field.depth < 0:
                    self._close_field()
                elif event.source:
                    field.markup(event)
                return
            if event.name not in _ENDS:
                if event.source:
                    field.markup(event)
                return
            self._close_field()
        if event.name == self._aside:
            self._aside = ""
        local = event.name.rpartition(":")[2]
        if local in _ENTRIES:
            self._close_entry()
        elif event.name == self._root:
            self._root = ""

    def _close_field(self) -> None:
        field, self._field = self._field, None
        if field is not None:
            is_plain = self._kind == "atom" and field.kind in ("", "text", "text/plain")
            (self._draft or self._head).keep(field, is_plain=is_plain)

    def _close_entry(self) -> None:
        draft, self._draft = self._draft, None
        self._aside = ""
        if draft is None:
            return
        if len(self._entries) < _MOST_ENTRIES:
            self._entries.append(draft.entry())
        else:
            self._left_out += 1


class _JsonFeed(msgspec.Struct):
    """The members of JSON Feed that are read. Any: a feed may hold anything, so every value is checked."""

    version: Any = ""
    title: Any = ""
    home_page_url: Any = ""
    description: Any = ""
    language: Any = ""
    items: list[Any] = []


def _json_feed(text: str, name: str, base: LinkBase | None) -> Feed:
    try:
        feed = msgspec.json.decode(text, type=_JsonFeed)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ParseFailed(f"{name} is not a feed that can be read. It is not a JSON Feed: {error}.") from None
    if "jsonfeed.org" not in _text(feed.version) and not feed.items:
        raise ParseFailed(f"{name} is not a feed that can be read. It is JSON without `items`.")
    items = [item for item in feed.items if isinstance(item, dict)]
    left_out = len(items) - _MOST_ENTRIES
    return Feed(
        kind="json",
        title=" ".join(_text(feed.title).split()),
        link=FeedEntryDraft(base).first_link([_text(feed.home_page_url)]),
        description=_text(feed.description),
        language=_text(feed.language),
        entries=tuple(_json_entry(item, FeedEntryDraft(base)) for item in items[:_MOST_ENTRIES]),
        trouble=f"{left_out:,} entries were left out." if left_out > 0 else None,
    )


def _json_entry(item: dict[str, Any], draft: FeedEntryDraft) -> FeedEntry:
    draft.links = [_text(item.get("url")), _text(item.get("external_url"))]
    authors = _as_list(item.get("authors")) or [item.get("author")]
    names = [_text(author.get("name")) for author in authors if isinstance(author, dict)]
    draft.fields = {
        "id": _text(item.get("id")),
        "title": " ".join(_text(item.get("title")).split()),
        "summary": _text(item.get("summary")),
        "content": _text(item.get("content_html")) or _text(item.get("content_text")),
        "author": ", ".join(name for name in names if name),
        "published": _text(item.get("date_published")),
        "updated": _text(item.get("date_modified")),
    }
    for tag in _as_list(item.get("tags")):
        draft.category(_text(tag))
    for file in _as_list(item.get("attachments")):
        if isinstance(file, dict):
            draft.enclose(_text(file.get("url")), _text(file.get("mime_type")), _text(file.get("size_in_bytes")))
    return draft.entry()


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
