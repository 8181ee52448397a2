"""Machine-readable data in a page: JSON-LD, microdata, Open Graph, Dublin Core, <meta>; as plain JSON values.

`structured_data` is the short form that `page.structured()` gives. `extracted` is the full form, equal to what the
extruct library gives, for those who come from there.

How it fails: a block that makes no sense or is nested beyond reason is left out; nothing raises. What a hostile page
can cost is bounded in time and memory, whatever its elements repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turbohtml import Document

from ..links import base_of
from .jsonld import json_ld_blocks, json_ld_items
from .microdata import microdata_items
from .social import dublin_core, named_metas, open_graph
from .uniform import uniform_microdata, uniform_open_graph

if TYPE_CHECKING:
    from ..page import Page

__all__ = [
    "dublin_core",
    "extracted",
    "json_ld_blocks",
    "json_ld_items",
    "microdata_items",
    "open_graph",
    "structured_data",
]


def structured_data(document: Document | None, base_url: str) -> dict[str, Any]:
    """`json_ld` (list), `microdata` (list of type, id, properties), `opengraph` and `meta` (name to
    content).

    Addresses in microdata and Open Graph are absolute. Blocks that make no sense, or are nested beyond reason,
    are left out.
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
    """Everything, by syntax: `json-ld`, `microdata`, `opengraph`, `dublincore`. Any: it is any JSON.

    `base_url` is where addresses start from; a page knows its own. `uniform` writes microdata and Open Graph as
    JSON-LD is written: @type, @context, properties at the top. RDFa and microformats are not read.
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
        "microdata": uniform_microdata(microdata) if uniform else microdata,
        "opengraph": uniform_open_graph(opengraph) if uniform else opengraph,
        "dublincore": dublin_core(document),
    }


def _plain_item(item: dict[str, Any]) -> dict[str, Any]:
    """The item with a list for every property, and its types as the page writes them."""
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
