"""Structured data in a page (JSON-LD, microdata, Open Graph, Dublin Core, <meta>) as plain JSON values.

`structured_data` is the short form of `page.structured()`. `extracted` is the full form, equal to the output of the
extruct library, for users who migrate from it.

Reading order: this file (both forms, and JSON-LD), microdata.py, meta_tags.py (Open Graph, Dublin Core, <meta>);
extract/lenient_json.py reads the JSON.

How it fails: an invalid or too deeply nested block is left out; nothing raises. Time and memory are limited, however
often a hostile page repeats its elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from turbohtml import Document

from ..lenient_json import read_json
from ..links import base_of
from .meta_tags import dublin_core, named_metas, open_graph
from .microdata import DEEPEST, microdata_items

if TYPE_CHECKING:
    from ...parse.page import Page

__all__ = [
    "dublin_core",
    "extracted",
    "json_ld_blocks",
    "json_ld_items",
    "microdata_items",
    "open_graph",
    "structured_data",
]

_SCHEMA_ORG = "http://schema.org"


def structured_data(document: Document | None, base_url: str) -> dict[str, Any]:
    """`json_ld` (list), `microdata` (list of type, id, properties), `opengraph` and `meta` (name to content).

    Addresses in microdata and Open Graph are absolute.
    """
    if document is None:
        return {"json_ld": [], "microdata": [], "opengraph": {}, "meta": {}}
    opengraph, meta = named_metas(document, base_url)
    return {
        "json_ld": json_ld_blocks(document),
        "microdata": [_plain_item(item) for item in microdata_items(document, base_url, strict=True, with_value=False)],
        "opengraph": opengraph,
        "meta": meta,
    }


def extracted(source: Page | Document | None, base_url: str = "", *, uniform: bool = False) -> dict[str, list[Any]]:
    """All data, by syntax: `json-ld`, `microdata`, `opengraph`, `dublincore`. Any: it is any JSON.

    `base_url` is the base of relative addresses; a page has its own. `uniform` gives microdata and Open Graph the form
    of JSON-LD: @type, @context, properties at the top. RDFa and microformats are not read.
    """
    if source is None or isinstance(source, Document):
        document = source
    else:
        document = source.tree
        base_url = base_url or base_of(document, source.url).href
    if document is None:
        return {"json-ld": [], "microdata": [], "opengraph": [], "dublincore": []}
    microdata, opengraph = microdata_items(document, base_url), open_graph(document)
    return {
        "json-ld": json_ld_items(document),
        "microdata": [_flat_item(item, with_context=True) for item in microdata] if uniform else microdata,
        "opengraph": _uniform_open_graph(opengraph) if uniform else opengraph,
        "dublincore": dublin_core(document),
    }


def json_ld_blocks(document: Document) -> list[Any]:
    """Every object and list in the JSON-LD of the page, in order. Empty ones, and those nested too deeply, are left
    out. Any: it is any JSON.
    """
    return [
        value
        for script in document.select("script[type]")
        if (script.attr("type") or "").partition(";")[0].strip().lower() == "application/ld+json"
        for value in read_json(script.text)
        if isinstance(value, dict | list) and value and not _too_deep(value)
    ]


def json_ld_items(document: Document) -> list[Any]:
    """Like `json_ld_blocks`, with the entries of top-level lists in place of the lists. Any: it is any JSON."""
    items: list[Any] = []
    for block in json_ld_blocks(document):
        items += [item for item in block if item] if isinstance(block, list) else [block]
    return items


def _too_deep(block: object) -> bool:
    level: list[object] = [block]
    for _ in range(DEEPEST):
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


def _plain_item(item: dict[str, Any]) -> dict[str, Any]:
    """The item with its types as one text, as on the page."""
    plain: dict[str, Any] = {"type": " ".join(item.get("type", ())) or None}
    if "id" in item:
        plain["id"] = item["id"]
    plain["properties"] = {
        name: [_plain_value(value) for value in values] for name, values in item.get("properties", {}).items()
    }
    return plain


def _plain_value(value: Any) -> Any:
    is_item = isinstance(value, dict) and "valueName" not in value and "valueRequired" not in value
    return _plain_item(value) if is_item else value


def _uniform_open_graph(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Open Graph in the form of JSON-LD: of every property the first value that is not empty. Any: the context is a
    mapping, the values are texts.
    """
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
    """An item of microdata in the form of JSON-LD: properties at the top, @type and @context."""
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
    """The vocabulary of a type and the name in it: "http://schema.org/Offer" is "Offer" of "http://schema.org"."""
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
