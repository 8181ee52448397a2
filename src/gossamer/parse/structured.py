"""Machine-readable data in a page: JSON-LD, microdata, Open Graph, <meta>; as plain JSON values."""

from __future__ import annotations

from typing import Any

from turbohtml import Document, MicrodataItem

_DEEPEST = 50  # levels of nesting that are kept; no honest page has more, and a hostile one could exhaust the stack


def structured_data(document: Document | None, base_url: str) -> dict[str, Any]:
    """`json_ld` (list), `microdata` (list of type, id, properties), `opengraph` and `meta` (name to content).

    Addresses in microdata and Open Graph are absolute. Blocks that are not valid JSON, or nested beyond reason,
    are left out.
    """
    if document is None:
        return {"json_ld": [], "microdata": [], "opengraph": {}, "meta": {}}
    found = document.structured_data(base_url)
    return {
        "json_ld": [block for block in found.json_ld if block and not _too_deep(block)],
        "microdata": [_plain_item(item, 0) for item in found.microdata],
        "opengraph": dict(found.opengraph),
        "meta": _meta(document, found.opengraph),
    }


def _too_deep(block: object) -> bool:
    level: list[object] = [block]
    for _ in range(_DEEPEST):
        inner: list[object] = []
        for value in level:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        if not inner:
            return False
        level = inner
    return True


def _plain_item(item: MicrodataItem, level: int) -> dict[str, Any]:
    plain: dict[str, Any] = {"type": item.type}
    if item.id is not None:
        plain["id"] = item.id
    properties: dict[str, list[Any]] = {}
    for name, values in item.properties.items():
        properties[name] = [
            value if isinstance(value, str) else _plain_item(value, level + 1)
            for value in values
            if isinstance(value, str) or level < _DEEPEST
        ]
    plain["properties"] = properties
    return plain


def _meta(document: Document, opengraph: dict[str, str]) -> dict[str, str]:
    """The first content of every named <meta>, Open Graph left out."""
    meta: dict[str, str] = {}
    for element in document.select("meta[content]"):
        name = (element.attr("name") or element.attr("property") or element.attr("http-equiv") or "").strip().lower()
        if name and name not in opengraph:
            meta.setdefault(name, element.attr("content") or "")
    return meta
