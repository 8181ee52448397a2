"""The facts in <meta> and <link>: Open Graph, Dublin Core, and all other names. Nothing raises."""

from __future__ import annotations

import re
from typing import Any

from turbohtml import Document, Element

from ...errors import InvalidUrl
from ..links import LinkBase
from .facts import PageFacts

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


def open_graph(facts: PageFacts) -> list[dict[str, Any]]:
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


def named_metas(facts: PageFacts) -> tuple[dict[str, str], dict[str, str]]:
    """The content of every <meta> by name: first those of Open Graph and Twitter, then all others, in lower case.

    The first non-empty content of a name counts. Addresses of Open Graph are absolute.
    """
    social: dict[str, str] = {}
    others: dict[str, str] = {}
    base = LinkBase(facts.base_url)
    for tag in facts.metas:
        shared = next((name for name in (tag.property, tag.name) if name.startswith(_SOCIAL)), None)
        if shared is not None and not social.get(shared):
            social[shared] = _joined(base, tag.content) if shared in _ADDRESSES else tag.content
        name = (tag.name or tag.property or tag.http_equiv).strip().lower()
        if name and not name.startswith(_SOCIAL):
            others.setdefault(name, tag.content)
    return social, others


def _joined(base: LinkBase, link: str) -> str:
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
