"""Where a page leads: the links of the follow rules and the next page. Pages with a number: paging.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from ...errors import InvalidUrl
from ...model.task import Request
from ..selectors import Selector
from .model import Follow, PageKind, Paths, Recipe
from .paging import numbered
from .sources import Look, Place, find
from .taking import Note, take_one

NO_DATA: Mapping[str, Any] = MappingProxyType({})  # any JSON


def onward(recipe: Recipe, kind: PageKind, look: Look) -> Iterator[Request]:
    """Every request that a page gives, in the order of the rules. The next page of a list gets what this one was given
    (`page.data`). Raises ParseFailed for a senseless page count and for more links than are taken."""
    for rule in kind.follow:
        yield from followed(rule, recipe.paths, look)
    if kind.next is not None:
        # To the same list, so with what was said about it; a page of another kind gets nothing.
        given = look.page.data if kind.next.to == kind.name else {}
        yield from followed(kind.next, recipe.paths, look, given)
    if kind.numbering is not None:
        data = look.page.data
        for url in numbered(kind.numbering, look):
            yield Request(url=url, kind=kind.name, priority=kind.numbering.priority, data=data)


def followed(rule: Follow, paths: Paths, look: Look, given: Mapping[str, Any] = NO_DATA) -> list[Request]:
    """The links of one rule, each once, with what is `given` and what the rule carries along. What leads nowhere, and
    what a pattern keeps out, is left out. Raises ParseFailed for more links than are taken."""
    page = look.page
    carried = dict(given)
    if rule.data:
        place, notes = Place(look), list[Note]()
        carried |= {field.name: take_one(field, place, notes, field.name) for field in rule.data}
    urls: dict[str, None] = {}
    for raw in find(rule.source, Place(look)):
        href = _href_of(raw)
        if not href:
            continue
        try:
            url = page.urljoin(href).partition("#")[0]
        except InvalidUrl:
            continue
        path = _path_of(url)
        if paths.admit(path) and rule.paths.admit(path):
            urls[url] = None
    return [Request(url=url, kind=rule.to, priority=rule.priority, data=carried, fetcher=rule.route) for url in urls]


def _href_of(raw: Any) -> str:
    if isinstance(raw, Selector):
        return raw.root if isinstance(raw.root, str) else raw.attrib.get("href", "")
    return raw if isinstance(raw, str) else ""


def _path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
