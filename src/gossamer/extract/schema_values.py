"""Fills a JSON Schema from a page without a language model: from its structured data, and from the results of the
product, article and metadata parsers.

What it does: a property gets the value of the same name (`publishedDate`, `published_date` and `datePublished` are
equal) that has, or can be converted to, the type in the schema. How it fails: a property without such a value is null.
Nothing is guessed, and nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

import msgspec

from .links import hrefs
from .markup import Markup

DEEPEST = 5  # levels of the schema that are filled
MOST_FIELDS = 200  # per object of the schema
MOST_ITEMS = 200  # per list
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_SAME = {"headline": "title", "name": "title", "heading": "title", "summary": "description", "body": "text",
         "content": "text", "link": "url", "img": "image", "picture": "image", "photo": "image",
         "cost": "price", "creator": "author", "writer": "author", "authors": "author", "tags": "keywords",
         "stock": "availability", "published": "date published", "published at": "date published",
         "modified": "date modified", "updated": "date modified", "lang": "language"}  # fmt: skip
_TYPED = "@type"

Candidate = tuple[str, Any]  # a name in plain words, and a value; Any: any JSON


def values_by_schema(page: Markup, schema: dict[str, Any]) -> Any:
    """An object that follows the schema."""
    nodes = list(_nodes(page))
    return _fill(schema, nodes, [pair for node in nodes for pair in _candidates(node)], 0)


def _nodes(page: Markup) -> Iterator[dict[str, Any]]:
    """Objects that hold values, the best source first."""
    if (product := page.product()) is not None:
        found = {name: _bare(value) for name, value in _plain(product).items()}
        yield {name: value for name, value in found.items() if value not in (None, "", [])}
    structured = page.structured()
    for block in structured["json_ld"]:
        yield from _objects(block)
    for item in structured["microdata"]:
        if isinstance(item.get("properties"), dict):
            yield {_TYPED: item.get("type"), **item["properties"]}
    if (article := page.article()) is not None:
        yield _plain(article)
    about = _plain(page.metadata())
    yield {**about, "date published": about.get("published"), "date modified": about.get("modified")}
    yield structured["opengraph"]
    links = page.link_base.web_links(hrefs(page.tree)) if page.tree is not None else []
    yield {"url": page.url, "text": page.main_text(), "links": links}


def _plain(value: object) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=str)
    return plain


def _bare(value: Any) -> Any:
    """A value from the product parser without its source."""
    return value.get("value") if isinstance(value, dict) and "value" in value else value


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        value = value.get("@graph")
    if isinstance(value, list):
        for one in value[:MOST_ITEMS]:
            yield from _objects(one) if isinstance(one, dict) else ()


def _candidates(node: dict[str, Any]) -> Iterator[Candidate]:
    """The members of the object by name, then those of the objects inside it."""
    for name, value in node.items():
        yield _words(str(name)), value
    for value in node.values():
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict):
            for name, held in inner.items():
                yield _words(str(name)), held


def _words(name: str) -> str:
    plain = " ".join(word.lower() for word in _WORDS.findall(name.rpartition(":")[2]))
    return _SAME.get(plain, plain)


def _fill(schema: dict[str, Any], nodes: list[dict[str, Any]], candidates: list[Candidate], depth: int) -> Any:
    fields = schema.get("properties")
    if not isinstance(fields, dict) or depth >= DEEPEST:
        return None
    return {
        name: _value(name, wanted if isinstance(wanted, dict) else {}, nodes, candidates, depth)
        for name, wanted in list(fields.items())[:MOST_FIELDS]
    }


def _value(name: str, wanted: dict[str, Any], nodes: list[dict[str, Any]], found: list[Candidate], depth: int) -> Any:
    words = _words(name)
    for known, value in found:
        if known == words and (fitting := _as_wanted(value, wanted, depth)) not in (None, "", [], {}):
            return fitting
    if _kind(wanted) == "object":  # a nested object is filled from the whole page
        filled = _fill(wanted, nodes, found, depth + 1)
        return filled if isinstance(filled, dict) and any(one is not None for one in filled.values()) else None
    return None


def _kind(wanted: dict[str, Any]) -> str:
    kind = wanted.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    if kind is None and isinstance(wanted.get("anyOf"), list):
        arms = [one for one in wanted["anyOf"] if isinstance(one, dict) and one.get("type") != "null"]
        return _kind(arms[0]) if arms else ""
    return kind if isinstance(kind, str) else ("object" if "properties" in wanted else "")


def _as_wanted(value: Any, wanted: dict[str, Any], depth: int) -> Any:
    kind = _kind(wanted)
    if kind == "array":
        items = wanted.get("items")
        inner = items if isinstance(items, dict) else {}
        many = value if isinstance(value, list) else [value]
        return [one for one in (_as_wanted(each, inner, depth + 1) for each in many[:MOST_ITEMS]) if one is not None]
    if isinstance(value, list):
        value = value[0] if value else None
    if kind == "object":
        return _fill(wanted, [value], list(_candidates(value)), depth + 1) if isinstance(value, dict) else None
    if isinstance(value, dict):
        value = next((value[name] for name in ("name", "@value", "url", "@id") if name in value), None)
    chosen = wanted.get("enum")
    typed = _scalar(value, kind)
    return typed if not isinstance(chosen, list) or typed in chosen else None


def _scalar(value: Any, kind: str) -> Any:
    match kind:
        case "string":
            return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
        case "number" | "integer":
            if isinstance(value, str) and (digits := _NUMBER.search(value)) is not None:
                value = float(digits[0].replace(",", ""))
            if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
                return None
            if kind == "integer":
                return int(value) if value == int(value) else None
            return value
        case "boolean":
            if isinstance(value, str) and value.rpartition("/")[2].lower() in ("instock", "in_stock", "true", "yes"):
                return True
            return value if isinstance(value, bool) else None
        case "":
            return value
        case _:
            return None
