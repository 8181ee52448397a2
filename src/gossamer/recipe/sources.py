"""Finds the raw values on a page that a source points to. values.py converts them.

A source finds a list of selectors, texts or plain JSON values; a source that finds nothing gives an empty list, never
an error. More values than the limit raise ParseFailed, because silently dropped values would go unnoticed.

A path into structured data (`Product.offers.price`, `opengraph.og:title`) begins with `opengraph` or `meta` and a name,
or with a schema.org type, which is looked up in JSON-LD, then in microdata; every further word is a property. A list on
the path means each of its entries. An object at the end stands for its name or value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import msgspec
from turbohtml import Document, Element

from ..errors import ParseFailed
from ..extract.media import Media
from ..parse.page import Page
from ..parse.selectors import Selector
from .labels import LabelIndex
from .model import RecipeSource, SourceKind

MOST = 10_000  # values from one source in one part
_JSON_START = re.compile(r"[{\[]")
_DIGITS = re.compile(r"\d+")
_WHOLE = re.compile(r"(\d)[.,]?(?=\D*$)")
_ESCAPED = re.compile(r'(?:[^"\\]|\\.)*')
_NEAR = 1000  # JSON must begin within this many characters after its mark
_DECODER = json.JSONDecoder(strict=False)
NOTHING = msgspec.UNSET


class PageView:
    """A page being read by a recipe. Expensive views (JSON, structured data, parsers) are computed once."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self._known: dict[str, Any] = {}  # by kind: each has its own type

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        if name not in self._known:
            self._known[name] = work()
        return self._known[name]

    def json(self) -> Any:
        """The page as JSON, or NOTHING."""
        return self.once("json", self._read_json)

    def _read_json(self) -> Any:
        if self.page.media in (Media.HTML, Media.XML, Media.DOCUMENT, Media.BINARY):
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
        """The product or article that the ready-made parser finds on the page, or None."""
        return self.once(what.value, lambda: _ready_parser(what)(self.page))


def _ready_parser(what: SourceKind) -> Callable[[Page], Any]:
    """The parser, imported only if a recipe uses it."""
    if what is SourceKind.PRODUCT:
        from ..extract.product import product_of

        return product_of
    from ..extract.article import article_of

    return article_of


class PagePart(msgspec.Struct, frozen=True):
    """The scope of rules: an element of the page, a piece of its JSON, or the whole page."""

    view: PageView
    element: Selector | None = None
    node: Any = NOTHING  # any JSON


def find(source: RecipeSource, part: PagePart, *, all_count: bool = True) -> list[Any]:
    """All values that the source points to, in order. With `all_count` False the search may stop after the first ones.

    Raises ParseFailed for more values than the limit, and for JSON that is too deep to be searched.
    """
    found = _values_at(source, part)
    if source.cents is not None:
        found = _with_cents(found, source.cents.selector, part)
    if source.before or (source.after and source.kind is not SourceKind.JSON):
        found = (text for value in found if (text := between(_plain(value), source.after, source.before)))
    pattern = source.regex
    if pattern is not None and source.kind is not SourceKind.REGEX:
        found = (match for value in found for match in _matches(pattern, _plain(value)))
    values = list(islice(found, MOST + 1))
    if len(values) > MOST and all_count:
        raise too_many(source, part.view.page)
    return values[:MOST]


def too_many(source: RecipeSource, page: Page) -> ParseFailed:
    return ParseFailed(f"{source} finds more than {MOST:,} values on {page.url}, and more are not taken. Narrow it.")


def parts_of(source: RecipeSource, part: PagePart, *, all_count: bool) -> list[PagePart]:
    """The parts that a source points to: all of them for `each`, the first one for `within`. Raises like `find`."""
    return [
        PagePart(part.view, element=found) if isinstance(found, Selector) else PagePart(part.view, node=found)
        for found in find(source, part, all_count=all_count)
    ]


def _values_at(source: RecipeSource, part: PagePart) -> Iterator[Any]:
    kind = source.kind
    if kind in (SourceKind.CSS, SourceKind.XPATH):
        selected = _selected(source, part)
        yield from selected if source.json is None else _inside(source, selected)
    elif kind is SourceKind.JSON:
        document = part.node
        if document is NOTHING:
            document = part.view.json_after(source.after) if source.after else part.view.json()
        if document is not NOTHING:
            yield from _json_values(source, document)
    elif kind is SourceKind.LABEL:
        yield from _labelled(source, part)
    elif kind is SourceKind.REGEX and source.regex is not None:
        yield from _matches(source.regex, _text_of(part))
    elif kind is SourceKind.STRUCTURED:
        yield from structured_values(part.view.structured(), source.name)
    elif kind in (SourceKind.PRODUCT, SourceKind.ARTICLE):
        parsed = part.view.parsed(kind)
        value = getattr(parsed, source.name, None)
        yield from value if isinstance(value, list | tuple) else () if value is None else (value,)
    elif kind is SourceKind.CONSTANT:
        yield from source.constant if isinstance(source.constant, list) else (source.constant,)
    elif kind is SourceKind.URL:
        page = part.view.page
        yield page.requested_url if source.name == "requested" else page.url
    elif kind is SourceKind.DATA and source.name in part.view.page.data:
        yield part.view.page.data[source.name]


def _selected(source: RecipeSource, part: PagePart) -> list[Selector]:
    if part.node is not NOTHING:
        return []
    if source.css is not None:
        selector = source.css.selector
        return list(part.element.css(selector) if part.element is not None else part.view.page.css(selector))
    expression = source.xpath or "."
    return list((part.element or part.view.page.selector).xpath(expression))


def _labelled(source: RecipeSource, part: PagePart) -> Iterator[Any]:
    """What stands beside the label, in the elements of `css` or in the whole part."""
    if part.node is not NOTHING:
        return
    if source.css is not None:
        for scope in _selected(source, part):
            if isinstance(scope.root, Element):
                yield from LabelIndex(scope.root).beside(source.label)
        return
    root = part.element.root if part.element is not None else part.view.page.tree
    if part.element is None and isinstance(root, Document):
        yield from part.view.once("labels", lambda: LabelIndex(root)).beside(source.label)
    elif isinstance(root, Element):
        yield from part.view.once(f"labels {root.css_path()}", lambda: LabelIndex(root)).beside(source.label)


def _with_cents(found: Iterator[Any], selector: str, part: PagePart) -> Iterator[Any]:
    """Prices whose cents are another element: "12" and "99"."""
    cents = part.element.css(selector) if part.element is not None else part.view.page.css(selector)
    digits = _DIGITS.search(cents.text if cents else "")
    for value in found:
        text = _plain(value).strip()
        number = _WHOLE.search(text)
        if number is None or digits is None:
            if text:
                yield text
        else:
            yield f"{text[: number.end(1)]}.{digits[0]}{text[number.end() :]}"


def between(text: str, after: str, before: str) -> str:
    """The part of the text behind `after` and in front of `before`; "" if one of them is not there."""
    _, found, rest = text.partition(after) if after else ("", " ", text)
    if found and before:
        rest, found, _ = rest.partition(before)
    return rest.strip() if found else ""


def _inside(source: RecipeSource, selected: list[Selector]) -> Iterator[Any]:
    """The values in the JSON of an attribute or a script."""
    for selector in selected:
        root = selector.root
        text = root if isinstance(root, str) else root.text
        try:
            document = msgspec.json.decode(text.strip())
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        yield from _json_values(source, document)


def _json_values(source: RecipeSource, document: Any) -> Iterator[Any]:
    try:
        for match in source.json.finditer(document):
            yield match.obj
    except Exception as error:  # an error of the library, not imported just for its name: the JSON is too deep
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
        return _json_in_string(text, start.start())


def _json_in_string(text: str, start: int) -> Any:
    """The JSON of a string that begins there, as in JSON.parse("{\\"a\\": 1}")."""
    escaped = _ESCAPED.match(text, start)
    if escaped is None or "\\" not in escaped[0]:
        return NOTHING
    try:
        return _DECODER.raw_decode(json.loads(f'"{escaped[0]}"', strict=False))[0]
    except (ValueError, RecursionError):
        return NOTHING


def _text_of(part: PagePart) -> str:
    if part.element is not None:
        return str(part.element.get())
    if part.node is not NOTHING:
        return _plain(part.node)
    return part.view.page.text


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


_FLAT = ("opengraph", "meta")
_MOST_NODES = 20_000  # objects and lists visited for one path
_DEEPEST = 60


def structured_values(data: dict[str, Any], path: str) -> list[Any]:
    """The values at the path, in order."""
    first, _, rest = path.partition(".")
    if first.lower() in _FLAT:
        value = data.get(first.lower(), {}).get(rest)
        return [value] if value not in (None, "") else []
    steps = rest.split(".") if rest else []
    for family in ("json_ld", "microdata"):
        for item in _of_type(data.get(family, []), first.lower()):
            found = [value for end in _descend([item], steps) for value in _end_values(end)]
            if found:
                return found
    return []


def _of_type(blocks: list[Any], wanted: str) -> Iterator[dict[str, Any]]:
    """Every object of that type, outer ones first."""
    level: list[Any] = list(blocks)
    seen = 0
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for value in level:
            seen += 1
            if seen > _MOST_NODES:
                return
            if isinstance(value, dict):
                if wanted in _types(value):
                    yield value
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return
        level = [value for value in inner if isinstance(value, dict | list)]


def _types(item: dict[str, Any]) -> set[str]:
    """The last words of its types, in lower case: `https://schema.org/Product` is `product`."""
    given = item.get("@type", item.get("type"))
    names = given if isinstance(given, list | tuple) else str(given).split() if isinstance(given, str) else []
    return {str(name).replace("#", "/").rpartition("/")[2].rpartition(":")[2].lower() for name in names}


def _descend(values: list[Any], steps: list[str]) -> list[Any]:
    for step in steps:
        inner: list[Any] = []
        for value in values[:_MOST_NODES]:
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, dict):
                    found = _property(item, step)
                    inner += found if isinstance(found, list) else [] if found is None else [found]
        values = inner
    return values


def _property(item: dict[str, Any], name: str) -> Any:
    table = item.get("properties") if isinstance(item.get("properties"), dict) else item
    assert isinstance(table, dict)
    if name in table:
        return table[name]
    folded = name.lower()
    return next((value for key, value in table.items() if key.lower() == folded), None)


def _end_values(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, list):
                yield from _end_values(entry)
    elif isinstance(value, dict):
        for name in ("@value", "name", "value", "url", "@id", "id"):
            inner = _property(value, name)
            for entry in inner if isinstance(inner, list) else [inner]:
                if isinstance(entry, str | int | float) and entry != "":
                    yield entry
                    return
    elif value is not None and value != "":
        yield value
