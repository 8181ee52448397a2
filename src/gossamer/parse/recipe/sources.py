"""Finding raw values on a page: what stands where a source points to. Types come later, in values.py.

What is found is a list of selectors, texts, or plain JSON values; nothing found is an empty list, never an error. More
than is taken from a page is a ParseFailed: what is left out silently is missed by nobody.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec

from ...errors import ParseFailed
from ..media import Media
from ..page import Page
from ..selectors import Selector
from .model import Source, SourceKind
from .structured_path import structured_values

MOST = 10_000  # values taken from one source at one place
_JSON_START = re.compile(r"[{\[]")
_NEAR = 1000  # characters after a mark within which its JSON must begin
_DECODER = json.JSONDecoder(strict=False)
NOTHING = msgspec.UNSET


class Look:
    """A page while a recipe reads it. What is costly is worked out once."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._known: dict[str, Any] = {}  # by what it is: each is of its own type

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = work()
        return self._known[name]

    def json(self) -> Any:
        """The page as JSON, or NOTHING when it is none."""
        return self.once("json", self._read_json)

    def _read_json(self) -> Any:
        if self.page.media in (Media.HTML, Media.XML, Media.BINARY):
            return NOTHING
        try:
            return self.page.json()
        except ParseFailed:
            return NOTHING

    def json_after(self, mark: str) -> Any:
        """The first JSON object or list that begins soon after `mark` in the source, or NOTHING."""
        return self.once(f"after {mark}", lambda: _json_after(self.page.text, mark))

    def structured(self) -> dict[str, Any]:
        found: dict[str, Any] = self.once("structured", self.page.structured)
        return found

    def parsed(self, what: SourceKind) -> Any:
        """What the ready parser for products or articles made of the page; None when it is no such page."""
        return self.once(what.value, lambda: _ready_parser(what)(self.page))


def _ready_parser(what: SourceKind) -> Callable[[Page], Any]:
    """Imported only where a recipe asks for it."""
    if what is SourceKind.PRODUCT:
        from ..product import product_of

        return product_of
    from ..article import article_of

    return article_of


class Place(msgspec.Struct, frozen=True):
    """Where rules look: an element of the page, a piece of its JSON, or the page."""

    look: Look
    element: Selector | None = None
    node: Any = NOTHING  # any JSON


def find(source: Source, place: Place, *, all_count: bool = True) -> list[Any]:
    """All that the source points to, in order. `all_count` False is for those who need only the first ones.

    Raises ParseFailed for more values than are taken, and for JSON that is too deep to be searched.
    """
    found = _found(source, place)
    pattern = source.regex
    if pattern is not None and source.kind is not SourceKind.REGEX:
        found = (part for value in found for part in _matches(pattern, _plain(value)))
    values = list(islice(found, MOST + 1))
    if len(values) > MOST and all_count:
        raise too_many(source, place.look.page)
    return values[:MOST]


def too_many(source: Source, page: Page) -> ParseFailed:
    return ParseFailed(f"{source} finds more than {MOST:,} values on {page.url}, and more are not taken. Narrow it.")


def places(source: Source, place: Place, *, all_count: bool) -> list[Place]:
    """The places that a source leads to: all count for `each`, the first one for `within`. Raises as `find` does."""
    return [
        Place(place.look, element=found) if isinstance(found, Selector) else Place(place.look, node=found)
        for found in find(source, place, all_count=all_count)
    ]


def _found(source: Source, place: Place) -> Iterator[Any]:
    kind = source.kind
    if kind in (SourceKind.CSS, SourceKind.XPATH):
        selected = _selected(source, place)
        yield from selected if source.json is None else _inside(source, selected)
    elif kind is SourceKind.JSON:
        document = place.node
        if document is NOTHING:
            document = place.look.json_after(source.after) if source.after else place.look.json()
        if document is not NOTHING:
            yield from _json_values(source, document)
    elif kind is SourceKind.REGEX and source.regex is not None:
        yield from _matches(source.regex, _text_of(place))
    elif kind is SourceKind.STRUCTURED:
        yield from structured_values(place.look.structured(), source.name)
    elif kind in (SourceKind.PRODUCT, SourceKind.ARTICLE):
        parsed = place.look.parsed(kind)
        value = getattr(parsed, source.name, None)
        yield from value if isinstance(value, list | tuple) else () if value is None else (value,)
    elif kind is SourceKind.CONSTANT:
        yield from source.constant if isinstance(source.constant, list) else (source.constant,)
    elif kind is SourceKind.URL:
        page = place.look.page
        yield page.requested_url if source.name == "requested" else page.url
    elif kind is SourceKind.DATA and source.name in place.look.page.data:
        yield place.look.page.data[source.name]


def _selected(source: Source, place: Place) -> list[Selector]:
    if place.node is not NOTHING:
        return []
    if source.css is not None:
        selector = source.css.selector
        return list(place.element.css(selector) if place.element is not None else place.look.page.css(selector))
    expression = source.xpath or "."
    return list((place.element or place.look.page.selector).xpath(expression))


def _inside(source: Source, selected: list[Selector]) -> Iterator[Any]:
    """The values in JSON that stands in an attribute or a script."""
    for selector in selected:
        root = selector.root
        text = root if isinstance(root, str) else root.text
        try:
            document = msgspec.json.decode(text.strip())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        yield from _json_values(source, document)


def _json_values(source: Source, document: Any) -> Iterator[Any]:
    try:
        for match in source.json.finditer(document):
            yield match.obj
    except Exception as error:  # the library's own, which is not imported just for its name; the JSON is too deep
        raise ParseFailed(
            f"json {source.json_text} cannot be followed here: {str(error).partition(chr(10))[0]}"
        ) from error


def _json_after(text: str, mark: str) -> Any:
    at = text.find(mark)
    end = at + len(mark)
    start = _JSON_START.search(text, end, end + _NEAR) if at >= 0 else None
    if start is None:
        return NOTHING
    try:
        return _DECODER.raw_decode(text, start.start())[0]
    except (ValueError, RecursionError):
        return NOTHING


def _text_of(place: Place) -> str:
    if place.element is not None:
        return str(place.element.get())
    if place.node is not NOTHING:
        return _plain(place.node)
    return place.look.page.text


def _plain(value: Any) -> str:
    """A found value as text for a regex."""
    if isinstance(value, Selector):
        return value.text
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[str]:
    """The group named `extract`, else the first group, else the whole match; of every match."""
    group: str | int = "extract" if "extract" in pattern.groupindex else 1 if pattern.groups else 0
    for match in pattern.finditer(text):
        part = match[group]
        if part is not None:
            yield part
