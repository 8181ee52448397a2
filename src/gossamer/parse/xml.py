"""XML with a bound: the HTML parser keeps trees shallow by itself, the XML parser does not."""

from __future__ import annotations

import re

import turbohtml
from turbohtml import Document

_TAG = re.compile(r"<(/?)[^<>!?/][^<>]*?(/?)>")
_DEEPEST = 512  # levels, as browsers allow in HTML; beyond it, questions to the tree take quadratic time


def parse_xml(text: str) -> Document | None:
    """The tree of a well-formed document that is not nested beyond reason, else None."""
    if text.count("</") > _DEEPEST and _too_deep(text):
        return None
    try:
        return turbohtml.parse_xml(text)
    except turbohtml.HTMLParseError:
        return None


def _too_deep(text: str) -> bool:
    depth = 0
    for closing, empty in _TAG.findall(text):
        if closing:
            depth -= 1
        elif not empty:
            depth += 1
            if depth > _DEEPEST:
                return True
    return False
