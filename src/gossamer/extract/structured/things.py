"""`Thing`: a thing of schema.org in one shape, whether the page writes JSON-LD or microdata.

A thing has its types in lower case and its properties as lists; a reference to a thing is that thing. Things beyond the
limits of depth and number are left out. In markup the parser has already decoded entities; many sites put entities into
JSON-LD too, and those are decoded once.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

from ..numbers import count_of, number_of

_MOST = 3000  # things of one page and notation that are read
_DEEPEST = 20
_PREFIX = re.compile(
    r"^(?:https?://)?(?:www\.)?(?:schema\.org|data-vocabulary\.org)/|^[a-z]{2,12}:(?!//)", re.IGNORECASE
)
_TAG = re.compile(r"</?[A-Za-z!][^<>]{0,2000}>")
_REFERENCE = frozenset(("@id", "@type"))
_LONGEST = 20_000  # characters of one text in which entities are decoded; no caller needs more

# A thing under one of these properties is not the page's own.
_OTHERS = frozenset(
    """isrelatedto issimilarto isaccessoryorsparepartfor isconsumablefor itemlistelement item mentions recommendations
    relatedlink review reviews seller manufacturer itemoffered haspart ispartof breadcrumb about""".split()  # noqa: SIM905
)


class Thing:
    """One thing: `types` in lower case, `values(name)` of its properties; `others` is True under another thing, `depth`
    counts the levels of data around it."""

    __slots__ = ("_properties", "depth", "others", "types")

    def __init__(self, properties: dict[str, list[Any]], types: frozenset[str], *, depth: int, others: bool) -> None:
        self._properties = properties
        self.types = types
        self.depth = depth
        self.others = others

    def values(self, *names: str) -> list[Any]:
        """All values of the properties, in the order of the names."""
        return [value for name in names for value in self._properties.get(name.lower(), ())]

    def things(self, *names: str) -> list[Thing]:
        return [value for value in self.values(*names) if isinstance(value, Thing)]

    def text(self, *names: str) -> str:
        """The first value that is text, or the name of the first thing; "" without either."""
        for value in self.values(*names):
            if isinstance(value, Thing):
                # The name must be a text: a thing in its place would cause endless recursion.
                value = "" if "name" in names else value.text("name", "@id", "url")
            if isinstance(value, bool) or value is None:
                continue
            plain = plain_text(str(value))
            if plain:
                return plain
        return ""

    def plain(self, *names: str) -> object:
        """The first value that is a number or a non-empty text; "" without one."""
        for value in self.values(*names):
            if isinstance(value, int | float) and not isinstance(value, bool):
                return value
            if isinstance(value, str) and plain_text(value):
                return plain_text(value)
        return ""

    def number(self, *names: str) -> float | None:
        """The first value that is a number or a text with a number in it; never negative."""
        return next((found for found in map(number_of, self.values(*names)) if found is not None), None)

    def count(self, *names: str) -> int | None:
        """The first value that is a whole number, with any separator of thousands."""
        return next((found for found in map(count_of, self.values(*names)) if found is not None), None)


def plain_text(text: str, longest: int = 2000) -> str:
    """One line without tags; unfilled placeholders ("{{brand}}", "$brand", "null") become ""."""
    text = text[: 4 * longest]
    if "<" in text:
        text = _TAG.sub(" ", text)
    text = " ".join(text.split())[:longest]
    if text.casefold() in ("null", "none", "undefined", "n/a", "nan", "-", "false", "no brand") or re.match(
        r"\{\{|\$\{|\$[a-z]{3}|<%|\[\[|%%", text
    ):
        return ""
    return text


def things_of(notation: Any, *, entities: bool = False) -> list[Thing]:
    """All things in a page's data of one notation, outer ones before inner ones. `entities`: decode entities in
    texts."""
    reader = _ThingReader(entities)
    if isinstance(notation, list):
        reader.by_id = {
            node["@id"]: node
            for node in _graph(notation)
            if isinstance(node.get("@id"), str) and not node.keys() <= _REFERENCE
        }
        for node in notation:
            reader.read(node, reader.by_id, depth=0, others=False)
    return reader.found


def _graph(nodes: list[Any]) -> Iterator[dict[str, Any]]:
    for node in nodes[:_MOST]:
        if isinstance(node, dict):
            yield node
            inner = node.get("@graph")
            if isinstance(inner, list):
                yield from (each for each in inner[:_MOST] if isinstance(each, dict))


class _ThingReader:
    """Collects the things of one notation."""

    __slots__ = ("_entities", "by_id", "found")

    def __init__(self, entities: bool) -> None:
        self._entities = entities
        self.by_id: dict[str, Any] = {}
        self.found: list[Thing] = []

    def read(self, node: Any, by_id: dict[str, Any], *, depth: int, others: bool) -> Any:
        """Add the thing and the things inside it. Return the thing, or the plain value."""
        if isinstance(node, list):
            if depth > _DEEPEST:
                return []
            return [self.read(each, by_id, depth=depth + 1, others=others) for each in node[:_MOST]]
        if isinstance(node, dict) and "@value" in node:
            node = node["@value"]
        if not isinstance(node, dict):
            return self._decoded(node)
        if depth > _DEEPEST or len(self.found) >= _MOST:
            return None
        if isinstance(node.get("@id"), str) and node.keys() <= _REFERENCE:
            known = by_id.get(node["@id"])
            if known is not None and known is not node:
                return self.read(known, {}, depth=depth + 1, others=others)
            if len(node) == 1:
                return self._decoded(node["@id"])
        properties: dict[str, list[Any]] = {}
        inside = node.get("properties") if isinstance(node.get("properties"), dict) else None
        types = _types(node.get("type" if inside is not None else "@type"))
        thing = Thing(properties, types, depth=depth, others=others)
        self.found.append(thing)
        for name, value in (inside if inside is not None else node).items():
            short = _PREFIX.sub("", str(name)).lower()
            if short == "@graph" and isinstance(value, list):
                for each in value[:_MOST]:
                    self.read(each, by_id, depth=depth + 1, others=others)
                continue
            if short == "articlebody":  # often HTML, in which entities have their place
                properties.setdefault(short, []).extend(value if isinstance(value, list) else [value])
                continue
            away = others or short in _OTHERS
            read = self.read(value, by_id, depth=depth + 1, others=away)
            properties.setdefault(short, []).extend(read if isinstance(read, list) else [read])
        return thing

    def _decoded(self, value: Any) -> Any:
        return html.unescape(value[:_LONGEST]) if self._entities and isinstance(value, str) and "&" in value else value


def _types(types: Any) -> frozenset[str]:
    listed = types if isinstance(types, list) else str(types or "").split()
    return frozenset(_PREFIX.sub("", str(each)).rsplit("/", 1)[-1].rsplit("#", 1)[-1].lower() for each in listed[:10])
