"""One form for all: microdata and Open Graph written as JSON-LD is, with @type and @context."""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin, urlsplit

_SCHEMA_ORG = "http://schema.org"


def uniform_microdata(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items with their properties at the top. Any: a value is a text, an item, or a list of them."""
    return [_flat_item(item, with_context=True) for item in items]


def uniform_open_graph(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first value of every property that is not empty. Any: the context is a mapping, the values are texts."""
    flat_objects: list[dict[str, Any]] = []
    for found in objects:
        flat: dict[str, Any] = {}
        for name, content in found["properties"]:
            if name not in flat or (content.strip() and not flat[name].strip()):
                flat[name] = content
        if kind := flat.pop("og:type", None):
            flat["@type"] = kind
        flat["@context"] = found["namespace"]
        flat_objects.append(flat)
    return flat_objects


def _flat_item(item: dict[str, Any], *, with_context: bool) -> dict[str, Any]:
    kind = item.get("type")
    if not kind:
        return item
    flat = {name: value for name, value in item.items() if name not in ("type", "properties")}
    context, flat["@type"] = (_SCHEMA_ORG, kind) if isinstance(kind, list) else _context_of(kind)
    if with_context:
        flat["@context"] = context
    for name, value in item.get("properties", {}).items():
        flat[name] = [_flat_value(one) for one in value] if isinstance(value, list) else _flat_value(value)
    return flat


def _flat_value(value: Any) -> Any:
    return _flat_item(value, with_context=False) if isinstance(value, dict) else value


def _context_of(kind: str) -> tuple[str, str]:
    """A type's vocabulary and its name in it: "http://schema.org/Offer" is "Offer" of "http://schema.org"."""
    try:
        parts = urlsplit(kind)
    except ValueError:
        return _SCHEMA_ORG, kind
    if not parts.netloc or not parts.path:
        return _SCHEMA_ORG, kind
    site = f"{parts.scheme}://{parts.netloc}"
    if parts.fragment:
        return urljoin(site, parts.path), parts.fragment.strip("/")
    return site, parts.path.strip("/")
