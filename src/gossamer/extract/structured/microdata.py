"""Reads microdata (itemscope, itemprop, itemref) by the standard, in the form common in Python.

An item is {"type": [...], "id": ..., "properties": {name: list of values}}. An item without properties has
"value" instead: the visible text of its element, with each block on its own line. Items nested too deeply are left out.
Hostile pages nest elements so that the same text would be collected a thousand times: all texts of a page therefore
share one `_Allowance`, and when it is spent, further texts are empty. Nothing raises.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

from turbohtml import Document, Element, Node, Text

DEEPEST = 50  # levels of nesting; real pages have fewer, and a hostile one could exhaust the stack
_SPACE = " \t\n\r\f"
_LINKS = {
    **dict.fromkeys(("audio", "embed", "iframe", "img", "source", "track", "video"), "src"),
    **dict.fromkeys(("a", "area", "link"), "href"),
    "object": "data",
}
_VALUES = {"meta": "content", "data": "value", "meter": "value", "time": "datetime"}
_PROPERTY_PRICE = 50
_LINE = frozenset((
    "article", "aside", "br", "dd", "details", "div", "dt", "fieldset", "figcaption", "footer", "form", "header", "hr",
    "legend", "li", "main", "nav", "table", "tr",
))  # fmt: skip
_PARAGRAPH = frozenset((
    "blockquote", "dl", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "title", "ul",
))  # fmt: skip
_UNSEEN = frozenset(("script", "style", "link", "meta"))
_SPACES = re.compile(r"\s+")
_CLINGS = tuple(',:;.!?")')
_NODE_PRICE = 20


def microdata_items(
    document: Document,
    base_url: str = "",
    *,
    with_value: bool = True,
) -> list[dict[str, Any]]:
    """The items of the page, in order. Any: a value is a text, an item, or a list of them.

    `with_value=False` leaves out the text of an item without properties. The reader of turbohtml is not used: it
    ignores `content` on elements other than <meta>, which most shops write (63 of 81 pages read differently).
    """
    return _MicrodataReader(document, base_url, with_value).items()


class _MicrodataReader:
    """Reads the items of one page."""

    def __init__(self, document: Document, base_url: str, with_value: bool) -> None:
        self._document = document
        self._base_url = base_url
        self._with_value = with_value
        self._allowance = _Allowance()
        self._scopes = document.select("[itemscope]")
        self._items = frozenset(self._scopes)
        self._scope_of: dict[Element, Element | None] = {}  # of every property
        self._properties: dict[Element, list[Element]] = {}  # of every scope, in order
        self._by_id: dict[str, Element] | None = None
        self._seen: set[Element] = set()
        self._levels: dict[Element, int] = {}  # of properties inside properties
        if self._scopes:
            for element in document.select("[itemprop]"):
                scope = self._scope_of[element] = _above(element, "[itemscope]")
                if scope is not None:
                    self._properties.setdefault(scope, []).append(element)
                    outer = _above(element, "[itemprop]")
                    self._levels[element] = self._levels.get(outer, 0) + 1 if outer is not None else 0

    def items(self) -> list[dict[str, Any]]:
        return [item for scope in self._scopes if (item := self._item(scope, 0)) is not None]

    def _item(self, scope: Element, level: int) -> dict[str, Any] | None:
        """The item; None if it is already part of another one, or nested too deeply."""
        if scope in self._seen or level > DEEPEST:
            return None
        self._seen.add(scope)
        item: dict[str, Any] = {}
        types = (scope.attr("itemtype") or "").split()
        if types:
            item["type"] = types
            if name := (scope.attr("itemid") or "").strip():
                item["id"] = name
        properties = self._properties_of(scope, level)
        if properties:
            item["properties"] = properties
        elif self._with_value:
            item["value"] = self._plain_value(scope)
        return item

    def _properties_of(self, scope: Element, level: int) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        elements = list(self._properties.get(scope, ()))
        for name in (scope.attr("itemref") or "").split():
            elements += self._referred(name)
        for element in elements:
            if not self._allowance.pay(_PROPERTY_PRICE):
                break
            value = self._value(element, level)
            if value is not None:
                for name in (element.attr("itemprop") or "").split():
                    found.setdefault(name, []).append(value)
        return found

    def _referred(self, name: str) -> list[Element]:
        """The properties that an itemref adds: those of the element with that id, and those inside it in its scope."""
        if self._by_id is None:
            self._by_id = {}
            for element in self._document.select("[id]"):
                self._by_id.setdefault(element.attr("id") or "", element)
        target = self._by_id.get(name)
        if target is None or not self._allowance.pay(_PROPERTY_PRICE):
            return []
        own = [target] if target in self._scope_of else []
        if own and target in self._items:
            return own  # a separate item with its own properties
        scope = target if target in self._items else _above(target, "[itemscope]")
        inner = target.select("[itemprop]")
        if not self._allowance.pay(len(inner)):
            return []
        return own + [element for element in inner if element is not target and self._scope_of[element] == scope]

    def _value(self, element: Element, level: int) -> Any:
        return self._item(element, level + 1) if element in self._items else self._plain_value(element)

    def _plain_value(self, element: Element) -> Any:
        tag = element.tag
        if tag in _LINKS:
            link = (element.attr(_LINKS[tag]) or "").strip(_SPACE) or (element.attr("content") or "").strip(_SPACE)
            return _absolute(self._base_url, link) if link else ""
        if tag in _VALUES and (tag != "time" or "datetime" in element.attrs):
            return element.attr(_VALUES[tag]) or ""
        if content := element.attr("content"):  # not in the standard, but in the examples of schema.org
            return content
        if (element.attr("itemprop") or "").endswith(("-input", "-output")):
            return _form_value(element)
        # Nested texts would be collected once per level.
        return _visible_text(element, self._allowance) if self._levels.get(element, 0) < DEEPEST else ""


def _above(element: Element, selector: str) -> Element | None:
    parent = element.parent
    return parent.closest(selector) if isinstance(parent, Element) else None


def _form_value(element: Element) -> dict[str, Any]:
    """The facts that schema.org's actions need about a form field."""
    value: dict[str, Any] = {}
    if "required" in element.attrs:
        value["valueRequired"] = True
    if name := element.attr("name"):
        value["valueName"] = name
    return value


def _absolute(base_url: str, link: str) -> str:
    """The absolute address without a browser's normalisation: names in structured data are compared exactly."""
    try:
        return urljoin(base_url, link)
    except ValueError:
        return link


class _Allowance:
    """A budget for reading a page: a character costs about one, a node twenty."""

    def __init__(self) -> None:
        self.left = 10_000_000

    def pay(self, price: int) -> bool:
        """True while the budget lasts. A cost above the rest uses up the rest."""
        self.left -= price
        return self.left > 0


def _visible_text(element: Element, allowance: _Allowance) -> str:
    """The text of an element as a reader sees it: each block on its own line, no scripts, spaces between words that
    would touch. "" when the allowance is spent.
    """
    sheet = _TextSheet()
    stack: list[Node | str] = [element]  # a string is the name of an element that ends here
    while stack:
        node = stack.pop()
        if isinstance(node, str):
            sheet.edge(node)
        elif isinstance(node, Text):
            if not allowance.pay(_NODE_PRICE + len(node.data)):
                return ""
            sheet.write(node.data)
        elif isinstance(node, Element) and (node is element or node.tag not in _UNSEEN):
            if not allowance.pay(_NODE_PRICE):
                return ""
            sheet.edge(node.tag)
            stack.append(node.tag)
            stack.extend(reversed(node.children))
    return sheet.text()


class _TextSheet:
    """Collects pieces of text and the edges of elements between them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._piece: list[str] = []  # text since the last edge
        self._before = ""  # the last piece as in the source
        self._lines = 2  # line ends just written; starts as after a paragraph

    def write(self, text: str) -> None:
        self._piece.append(text)

    def edge(self, tag: str) -> None:
        if self._piece:
            self._flush()
        wanted = 2 if tag in _PARAGRAPH else 1 if tag in _LINE else 0
        if wanted > self._lines:
            self._parts.append("\n" * (wanted - self._lines))
            self._lines = wanted

    def text(self) -> str:
        self._flush()
        return "".join(self._parts).strip()

    def _flush(self) -> None:
        source = "".join(self._piece)
        self._piece = []
        words = _SPACES.sub(" ", source.strip())
        if not words:
            return
        if self._lines == 0 and self._needs_space(words):
            self._parts.append(" ")
        self._parts.append(words)
        self._before = source
        self._lines = 0

    def _needs_space(self, words: str) -> bool:
        if self._before[-1:].isspace():
            return True
        return not words.startswith(_CLINGS) and not self._before.endswith("(")
