"""Values in a page's structured data by a short path: `Product.offers.price`, `opengraph.og:title`.

The path begins with `opengraph` or `meta` and a name, or with a schema.org type, which is looked for in JSON-LD, then
in microdata; every further word goes into a property. On the way a list means each of its entries. At the end an object
stands for its name or value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_FLAT = ("opengraph", "meta")
_MOST_NODES = 20_000  # objects and lists looked at for one path
_DEEPEST = 60


def structured_values(data: dict[str, Any], path: str) -> list[Any]:
    """All that stands at the path, in order."""
    first, _, rest = path.partition(".")
    if first.lower() in _FLAT:
        value = data.get(first.lower(), {}).get(rest)
        return [value] if value not in (None, "") else []
    steps = rest.split(".") if rest else []
    for family in ("json_ld", "microdata"):
        for item in _of_type(data.get(family, []), first.lower()):
            found = [value for end in _descend([item], steps) for value in _plain(end)]
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


def _plain(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for entry in value:
            if not isinstance(entry, list):
                yield from _plain(entry)
    elif isinstance(value, dict):
        for name in ("@value", "name", "value", "url", "@id", "id"):
            inner = _property(value, name)
            for entry in inner if isinstance(inner, list) else [inner]:
                if isinstance(entry, str | int | float) and entry != "":
                    yield entry
                    return
    elif value is not None and value != "":
        yield value
