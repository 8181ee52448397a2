"""`StatedFacts`: what a page states for machines (JSON-LD, microdata, <meta>, <link>), each read once per page and
shared by all extractors.

How it fails: an invalid or too deeply nested block is left out; nothing raises. Number, depth and size are limited.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any, NamedTuple

from turbohtml import Document, Element

from ...errors import InvalidUrl
from ..links import LinkBase
from .lenient_json import read_json
from .microdata import DEEPEST, microdata_items
from .things import Thing, things_of

_MOST_TAGS = 2_000  # <meta> or <link> elements
_MOST_BLOCKS = 500  # blocks of one notation that become things

_PREFIX = re.compile(r"(\w{1,100}):\s*(\S+)")
_LONGEST_PREFIXES = 10_000  # characters of a prefix attribute that are read
_OPEN_GRAPH_NAMES = {
    "og": "http://ogp.me/ns#",
    **{name: f"http://ogp.me/ns/{name}#" for name in ("music", "video", "article", "book", "profile", "product")},
}

_ADDRESSES = frozenset(
    ["og:url", "twitter:image", "twitter:image:src", "twitter:player"]
    + [f"og:{kind}{part}" for kind in ("image", "video", "audio") for part in ("", ":url", ":secure_url")]
)

_SOCIAL = ("og:", "twitter:")
_ELEMENTS = "http://purl.org/dc/elements/1.1/"
_TERMS = "http://purl.org/dc/terms/"
_ELEMENT_NAMES = """
    contributor coverage creator date description format identifier language publisher relation rights source
    subject title type
"""
_TERM_NAMES = """
    abstract accessRights accrualMethod accrualPeriodicity accrualPolicy alternative audience available
    bibliographicCitation conformsTo created dateAccepted dateCopyrighted dateSubmitted educationLevel extent
    hasFormat hasPart hasVersion instructionalMethod isFormatOf isPartOf isReferencedBy isReplacedBy isRequiredBy
    isVersionOf issued license mediator medium modified provenance references replaces requires rightsHolder spatial
    tableOfContents temporal valid Agent AgentClass BibliographicResource Collection Frequency LicenseDocument
    LinguisticSystem Location LocationPeriodOrJurisdiction MediaTypeOrExtent MethodOfAccrual MethodOfInstruction
    PeriodOfTime PhysicalMedium PhysicalResource Policy ProvenanceStatement RightsStatement SizeOrDuration Standard
"""
_DUBLIN_CORE = {name.lower(): ("terms", _TERMS + name) for name in _TERM_NAMES.split()} | {
    name: ("elements", _ELEMENTS + name) for name in _ELEMENT_NAMES.split()
}


class MetaTag(NamedTuple):
    """A <meta> with content, as on the page; a missing attribute is ""."""

    element: Element
    property: str
    name: str
    http_equiv: str
    content: str


class StatedFacts:
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


def open_graph(facts: StatedFacts) -> list[dict[str, Any]]:
    """At most one object: the namespaces and the (property, content) pairs, in order. Empty for a page without Open
    Graph.

    Any: a mapping under "namespace", a list of pairs under "properties".
    """
    document = facts.tree
    head = document.select_one("head") if document is not None else None
    root = document.root if document is not None else None
    if head is None or root is None:
        return []
    namespaces = {**_prefixes(root), **_prefixes(head)}
    properties: list[tuple[str, str]] = []
    for tag in facts.metas:
        prefix = tag.property.partition(":")[0]
        if tag.element.parent != head:
            continue
        if prefix in _OPEN_GRAPH_NAMES:
            namespaces[prefix] = _OPEN_GRAPH_NAMES[prefix]
        if prefix in namespaces:
            properties.append((tag.property, tag.content))
    return [{"namespace": namespaces, "properties": properties}] if properties else []


def _prefixes(element: Element) -> dict[str, str]:
    return dict(_PREFIX.findall((element.attr("prefix") or "")[:_LONGEST_PREFIXES]))


def named_metas(facts: StatedFacts) -> tuple[dict[str, str], dict[str, str]]:
    """The content of every <meta> by name: first those of Open Graph and Twitter, then all others, in lower case.

    The first non-empty content of a name counts. Addresses of Open Graph are absolute.
    """
    social: dict[str, str] = {}
    others: dict[str, str] = {}
    base = LinkBase(facts.base_url)
    for tag in facts.metas:
        shared = next((name for name in (tag.property, tag.name) if name.startswith(_SOCIAL)), None)
        if shared is not None and not social.get(shared):
            social[shared] = _absolute(base, tag.content) if shared in _ADDRESSES else tag.content
        name = (tag.name or tag.property or tag.http_equiv).strip().lower()
        if name and not name.startswith(_SOCIAL):
            others.setdefault(name, tag.content)
    return social, others


def _absolute(base: LinkBase, link: str) -> str:
    try:
        return base.join(link.strip()) if link.strip() else ""
    except InvalidUrl:
        return link


def dublin_core(document: Document) -> list[dict[str, Any]]:
    """One object: the declared namespaces, and the elements and terms with all attributes and their URI.

    Any: the attributes of an element are texts.
    """
    found: dict[str, Any] = {"namespaces": {}, "elements": [], "terms": []}
    links = document.select("link[rel]")
    for link in links:
        address, relation = (link.attr("href") or "").strip(), link.attr("rel") or ""
        if "schema" in relation and address in (_ELEMENTS, _TERMS):
            found["namespaces"][relation.replace("schema.", "")] = address
    for attribute, elements in (("name", document.select("meta[name]")), ("rel", links)):
        for element in elements:
            name = (element.attr(attribute) or "").rpartition(".")[2].lower()
            if name in _DUBLIN_CORE:
                kind, uri = _DUBLIN_CORE[name]
                found[kind].append({**_attributes(element), "URI": uri})
    return [found]


def _attributes(element: Element) -> dict[str, str]:
    return {name: element.attr(name) or "" for name in element.attrs}
