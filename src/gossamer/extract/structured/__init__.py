"""Structured data in a page (JSON-LD, microdata, Open Graph, Dublin Core, <meta>) as plain JSON values.

`structured_data` is the short form of `page.structured()`. `extruct_data` is the full form, equal to the output of the
extruct library, for users who migrate from it.

Reading order: this file (both forms), facts.py (what is read of a page, once; Open Graph, Dublin Core, <meta>),
lenient_json.py, microdata.py, things.py (JSON-LD and microdata in one shape).

How it fails: an invalid or too deeply nested block is left out; nothing raises. Time and memory are limited, however
often a hostile page repeats its elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from turbohtml import Document

from .facts import StatedFacts, dublin_core, named_metas, open_graph
from .microdata import microdata_items

if TYPE_CHECKING:
    from ..markup import Markup

_SCHEMA_ORG = "http://schema.org"


def structured_data(facts: StatedFacts) -> dict[str, Any]:
    """`json_ld` (list), `microdata` (list of type, id, properties), `opengraph` and `meta` (name to content).

    Addresses in microdata and Open Graph are absolute.
    """
    opengraph, meta = named_metas(facts)
    return {
        "json_ld": facts.json_ld,
        "microdata": [_plain_item(item) for item in facts.microdata],
        "opengraph": opengraph,
        "meta": meta,
    }


def extruct_data(
    source: Markup | Document | None, base_url: str = "", *, uniform: bool = False
) -> dict[str, list[Any]]:
    """All data, by syntax: `json-ld`, `microdata`, `opengraph`, `dublincore`. Any: it is any JSON.

    `base_url` is the base of relative addresses; a page has its own. `uniform` gives microdata and Open Graph the form
    of JSON-LD: @type, @context, properties at the top. RDFa and microformats are not read.
    """
    if source is None or isinstance(source, Document):
        facts = StatedFacts(source, base_url)
    else:
        facts = StatedFacts(source.tree, base_url) if base_url else source.facts
    if facts.tree is None:
        return {"json-ld": [], "microdata": [], "opengraph": [], "dublincore": []}
    microdata = [_short_item(item) for item in microdata_items(facts.tree, facts.base_url)]
    opengraph = open_graph(facts)
    return {
        "json-ld": json_ld_items(facts),
        "microdata": [_flat_item(item, with_context=True) for item in microdata] if uniform else microdata,
        "opengraph": _uniform_open_graph(opengraph) if uniform else opengraph,
        "dublincore": dublin_core(facts.tree),
    }


def json_ld_items(facts: StatedFacts) -> list[Any]:
    """The JSON-LD of the page, with the entries of top-level lists in place of the lists. Any: it is any JSON."""
    items: list[Any] = []
    for block in facts.json_ld:
        items += [item for item in block if item] if isinstance(block, list) else [block]
    return items


def _short_item(item: dict[str, Any]) -> dict[str, Any]:
    """The item with lists only where there are several types or values."""
    short = dict(item)
    if "type" in item:
        short["type"] = item["type"] if len(item["type"]) > 1 else item["type"][0]
    if "properties" in item:
        short["properties"] = {
            name: [_short_value(value) for value in values] if len(values) > 1 else _short_value(values[0])
            for name, values in item["properties"].items()
        }
    return short


def _short_value(value: Any) -> Any:
    return _short_item(value) if isinstance(value, dict) and not _is_form_value(value) else value


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
    return _plain_item(value) if isinstance(value, dict) and not _is_form_value(value) else value


def _is_form_value(value: dict[str, Any]) -> bool:
    """Is this what an action needs of a form field, and no item?"""
    return "valueName" in value or "valueRequired" in value


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
