"""Microdata: itemscope, itemprop, itemref, as the standard reads them, in the form that is common for Python.

An item is {"type": ..., "id": ..., "properties": {name: value or list of values}}. An item without properties has
"value" instead: the text of its element. Items nested beyond reason are left out, and a page that wants its text
taken again and again gets empty texts in the end (see layout.py). Nothing raises.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import urljoin

from turbohtml import Document, Element

from .jsonld import DEEPEST
from .layout import Allowance, visible_text

_SPACE = " \t\n\r\f"
_LINKS = {
    **dict.fromkeys(("audio", "embed", "iframe", "img", "source", "track", "video"), "src"),
    **dict.fromkeys(("a", "area", "link"), "href"),
    "object": "data",
}
_VALUES = {"meta": "content", "data": "value", "meter": "value", "time": "datetime"}
_PROPERTY_PRICE = 50


def microdata_items(
    document: Document,
    base_url: str = "",
    *,
    nested: bool = True,
    strict: bool = False,
    with_text: bool = False,
    with_nodes: bool = False,
    with_value: bool = True,
) -> list[dict[str, Any]]:
    """The items of the page, in order. Any: a value is a text, an item, or a list of them.

    `nested=False` gives every item by itself, numbered by `iid`, and `iid_ref` where another one belongs.
    `strict` gives lists even for one type and one value. `with_text` adds `textContent`, `with_nodes` `htmlNode`;
    `with_value=False` leaves out the text that an item without properties has.
    """
    form = _Form(nested, strict, with_text, with_nodes, with_value)
    return _Reading(document, base_url, form).items()


class _Form(NamedTuple):
    """What items look like."""

    nested: bool
    strict: bool
    with_text: bool
    with_nodes: bool
    with_value: bool


class _Reading:
    def __init__(self, document: Document, base_url: str, form: _Form) -> None:
        self._document = document
        self._base_url = base_url
        self._form = form
        self._allowance = Allowance()
        self._scopes = document.select("[itemscope]")
        self._numbers = {scope: number for number, scope in enumerate(self._scopes, start=1)}
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
        """The item; None when it was given already, as part of another one, or lies too deep."""
        if self._form.nested:
            if scope in self._seen or level > DEEPEST:
                return None
            self._seen.add(scope)
        item: dict[str, Any] = {} if self._form.nested else {"iid": self._numbers[scope]}
        types = (scope.attr("itemtype") or "").split()
        if types:
            item["type"] = types if self._form.strict or len(types) > 1 else types[0]
            if name := (scope.attr("itemid") or "").strip():
                item["id"] = name
        properties = self._properties_of(scope, level)
        if properties:
            item["properties"] = {
                name: values if self._form.strict or len(values) > 1 else values[0]
                for name, values in properties.items()
            }
        elif self._form.with_value:
            item["value"] = self._plain_value(scope)
        if self._form.with_text and (text := visible_text(scope, self._allowance)):
            item["textContent"] = text
        if self._form.with_nodes:
            item["htmlNode"] = scope
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
        """The properties that an itemref brings: those of the element of that id and of what lies in its scope."""
        if self._by_id is None:
            self._by_id = {}
            for element in self._document.select("[id]"):
                self._by_id.setdefault(element.attr("id") or "", element)
        target = self._by_id.get(name)
        if target is None or not self._allowance.pay(_PROPERTY_PRICE):
            return []
        own = [target] if target in self._scope_of else []
        if own and target in self._numbers:
            return own  # a whole item, which brings its own properties
        scope = target if target in self._numbers else _above(target, "[itemscope]")
        inner = target.select("[itemprop]")
        if not self._allowance.pay(len(inner)):
            return []
        return own + [element for element in inner if element is not target and self._scope_of[element] == scope]

    def _value(self, element: Element, level: int) -> Any:
        if element not in self._numbers:
            return self._plain_value(element)
        return self._item(element, level + 1) if self._form.nested else {"iid_ref": self._numbers[element]}

    def _plain_value(self, element: Element) -> Any:
        tag = element.tag
        if tag in _LINKS:
            link = (element.attr(_LINKS[tag]) or "").strip(_SPACE) or (element.attr("content") or "").strip(_SPACE)
            return absolute(self._base_url, link) if link else ""
        if tag in _VALUES and (tag != "time" or "datetime" in element.attrs):
            return element.attr(_VALUES[tag]) or ""
        if content := element.attr("content"):  # not in the standard, but in the examples of schema.org
            return content
        if (element.attr("itemprop") or "").endswith(("-input", "-output")):
            return _form_value(element)
        # A text inside a text inside a text ... would be taken once for every level.
        return visible_text(element, self._allowance) if self._levels.get(element, 0) < DEEPEST else ""


def _above(element: Element, selector: str) -> Element | None:
    parent = element.parent
    return parent.closest(selector) if isinstance(parent, Element) else None


def _form_value(element: Element) -> dict[str, Any]:
    """What schema.org's actions say about a field of a form."""
    value: dict[str, Any] = {}
    if "required" in element.attrs:
        value["valueRequired"] = True
    if name := element.attr("name"):
        value["valueName"] = name
    return value


def absolute(base_url: str, link: str) -> str:
    """The address as it is meant, not rewritten as browsers would: names in structured data are compared by letter."""
    try:
        return urljoin(base_url, link)
    except ValueError:
        return link
