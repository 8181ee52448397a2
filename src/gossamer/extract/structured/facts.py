"""`PageFacts`: what a page states for machines (JSON-LD, microdata, <meta>, <link>), each read once per page and shared
by all extractors.

How it fails: an invalid or too deeply nested block is left out; nothing raises. Number, depth and size are limited.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

from turbohtml import Document, Element

from .lenient_json import read_json
from .microdata import DEEPEST, microdata_items
from .things import Thing, things_of

_MOST_TAGS = 2_000  # <meta> or <link> elements
_MOST_BLOCKS = 500  # blocks of one notation that become things


class MetaTag(NamedTuple):
    """A <meta> with content, as on the page; a missing attribute is ""."""

    element: Element
    property: str
    name: str
    http_equiv: str
    content: str


class PageFacts:
    """The facts of one page. The values are shared: do not change them. Any: any JSON."""

    def __init__(self, tree: Document | None, base_url: str) -> None:
        self.tree = tree
        self.base_url = base_url

    @cached_property
    def json_ld(self) -> list[Any]:
        """Every object and list in the JSON-LD of the page, in order."""
        return json_ld_blocks(self.tree) if self.tree is not None else []

    @cached_property
    def microdata(self) -> list[dict[str, Any]]:
        """The items of microdata, in order; types and values are lists, addresses absolute."""
        return microdata_items(self.tree, self.base_url, with_value=False) if self.tree is not None else []

    @cached_property
    def json_ld_things(self) -> list[Thing]:
        """All things in JSON-LD, outer ones before inner ones."""
        return things_of(self.json_ld[:_MOST_BLOCKS], entities=True)

    @cached_property
    def microdata_things(self) -> list[Thing]:
        return things_of(self.microdata[:_MOST_BLOCKS])

    @cached_property
    def metas(self) -> list[MetaTag]:
        """The <meta> elements that have content, in order."""
        if self.tree is None:
            return []
        return [
            MetaTag(
                element,
                element.attr("property") or "",
                element.attr("name") or "",
                element.attr("http-equiv") or "",
                element.attr("content") or "",
            )
            for element in self.tree.select("meta[content]")[:_MOST_TAGS]
        ]

    @cached_property
    def links(self) -> list[tuple[frozenset[str], Element]]:
        """The <link> elements with an address, each with its relations in lower case."""
        if self.tree is None:
            return []
        links = self.tree.select("link[rel][href]")[:_MOST_TAGS]
        return [(frozenset((link.attr("rel") or "").lower().split()), link) for link in links]


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
