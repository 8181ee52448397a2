"""The values of RDFa that are no names: texts, times, markup. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from turbohtml import Element, Text

from .rdfa_names import RDF

MARKUP_TYPES = (RDF + "XMLLiteral", RDF + "HTML")
_XSD = "http://www.w3.org/2001/XMLSchema#"
_LONGEST_TIME = 100
_TIMES = (
    ("date", re.compile(r"-?\d{4,9}-\d\d-\d\dZ?")),
    ("dateTime", re.compile(r"-?\d{4,9}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?")),
    ("time", re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,9})?)?Z?")),
    ("gYear", re.compile(r"\d{4,9}")),
    ("gYearMonth", re.compile(r"\d{4,9}-\d\d")),
    (
        "duration",
        re.compile(r"-?P(?=.)(\d{1,9}Y)?(\d{1,9}M)?(\d{1,9}D)?(T(?=.)(\d{1,9}H)?(\d{1,9}M)?([\d.]{1,19}S)?)?"),
    ),
)


def literal(text: str, kind: str | None, language: str) -> dict[str, str]:
    """A literal in expanded JSON-LD. One with a type has no language."""
    if kind:
        return {"@type": kind, "@value": text}
    return {"@language": language, "@value": text} if language else {"@value": text}


def time_type(text: str) -> str | None:
    """The type of a text that is a date, a time or a duration; None for others."""
    if len(text) > _LONGEST_TIME:
        return None
    return next((_XSD + name for name, pattern in _TIMES if pattern.fullmatch(text)), None)


def xml_inside(element: Element, namespaces: Mapping[str, str]) -> str:
    """What is inside an element, as XML that stands by itself: each outer element declares the namespaces in force."""
    declared = "".join(f' {name}="{escape(iri)}"' for name, iri in sorted(namespaces.items()))
    parts: list[str] = []
    for node in element.children:
        if isinstance(node, Text):
            parts.append(escape(node.data, quote=False))
        elif isinstance(node, Element):
            own = "".join(f' {name}="{escape(node.attr(name) or "")}"' for name in node.attrs if name not in namespaces)
            parts.append(f"<{node.tag}{declared}{own}>{node.inner_xml}</{node.tag}>")
    return "".join(parts)
