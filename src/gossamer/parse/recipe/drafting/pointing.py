"""CSS selectors that will still fit tomorrow: by class, id and itemprop, never by position, never by what a build tool
made up. A selector is only given when it was tried on the page."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turbohtml import Element

from ...page import Page

_MADE_UP = re.compile(
    r"\d|^(?:css|sc|jsx|emotion|chakra|svelte|astro|col|row|grid|flex|mt|mb|ml|mr|pt|pb|px|py)-|__.*__.*__"
)
_NAME = re.compile(r"[A-Za-z][A-Za-z_-]{1,29}")
_STATES = frozenset({"active", "selected", "current", "first", "last", "odd", "even", "off", "on", "hidden", "visible"})
_ANCESTORS = 4


def stable_classes(element: Element) -> list[str]:
    """The classes that a person gave to the kind of thing, in order."""
    names = (element.attr("class") or "").split()
    return [name for name in names[:12] if _NAME.fullmatch(name) and not _MADE_UP.search(name) and name not in _STATES]


def ancestors(element: Element, most: int) -> Iterator[Element]:
    """The elements around it, the nearest first, up to `most`; html and body are left out."""
    parent = element.parent
    for _ in range(most):
        if not isinstance(parent, Element) or parent.tag in ("html", "body"):
            return
        yield parent
        parent = parent.parent


def selector_for(page: Page, element: Element) -> str | None:
    """A short selector whose only match is the element; else one whose first match it is; else None."""
    first_match = None
    for selector in _candidates(element):
        found = page.css(selector)
        if not found or not _same(found[0].root, element):
            continue
        if len(found) == 1:
            return selector
        first_match = first_match or selector
    return first_match


def _same(one: object, other: Element) -> bool:
    return one is other or (isinstance(one, Element) and one.css_path == other.css_path)


def _candidates(element: Element) -> Iterator[str]:
    own = list(_own_names(element))
    yield from own
    for ancestor in ancestors(element, _ANCESTORS):
        for outer in _own_names(ancestor):
            if outer != ancestor.tag:
                yield from (f"{outer} {name}" for name in own)


def _own_names(element: Element) -> Iterator[str]:
    prop = element.attr("itemprop")
    if prop and _NAME.fullmatch(prop):
        yield f'[itemprop="{prop}"]'
    if element.tag == "h1":
        yield "h1"
    identity = element.attr("id") or ""
    if _NAME.fullmatch(identity) and not _MADE_UP.search(identity):
        yield f"#{identity}"
    for name in stable_classes(element):
        yield f".{name}"
    if element.tag != "h1":
        yield element.tag
