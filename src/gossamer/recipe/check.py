"""Reports what each rule of a recipe finds on a page, and the page's likely kind, for authors of recipes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from ..errors import ParseFailed
from ..model.item import Item
from ..model.task import DEFAULT_KIND, Request
from ..parse.page import Page
from .fields import Note
from .links import link_requests, numbered_requests
from .model import Follow, PageKind
from .sources import PageView
from .spider import RecipeSpider, remember, taken_items


class FoundLinks(msgspec.Struct, frozen=True, kw_only=True):
    """The links that a rule found."""

    rule: str
    to: str
    urls: tuple[str, ...]
    fault: str = ""


class PageCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a recipe on a page."""

    kind: str
    notes: tuple[Note, ...]
    links: tuple[FoundLinks, ...]
    items: tuple[Item, ...]
    fault: str = ""  # why reading stopped early

    @property
    def missing(self) -> tuple[Note, ...]:
        """The required fields that were not found."""
        return tuple(note for note in self.notes if note.missing)

    def share(self) -> float:
        """The share of rules that found something, from 0 to 1."""
        found = [note.value not in (None, []) for note in self.notes] + [bool(links.urls) for links in self.links]
        return sum(found) / len(found) if found else 0.0


def check_page(spider: RecipeSpider, kind: str, page: Page) -> PageCheck:
    """Read the page as that kind. A failing rule becomes a fault in the result; nothing raises."""
    rules = spider.recipe.kinds[kind]
    view = PageView(page)
    try:
        taken = taken_items(spider, rules, view)
    except ParseFailed as error:
        return PageCheck(kind=kind, notes=(), links=(), items=(), fault=str(error))
    if not any(note.missing for one in taken for note in one.notes):
        remember(page, taken)
    return PageCheck(
        kind=kind,
        notes=tuple(note for one in taken for note in one.notes),
        links=_links(spider, rules, view),
        items=tuple(one.item for one in taken),
    )


def _links(spider: RecipeSpider, kind: PageKind, view: PageView) -> tuple[FoundLinks, ...]:
    paths = spider.recipe.paths
    rules = (*kind.follow, *((kind.next,) if kind.next is not None else ()))
    found = [_found_links(_label(rule), rule.to, partial(link_requests, rule, paths, view)) for rule in rules]
    numbering = kind.numbering
    if numbering is not None:
        label = f"next by parameter {numbering.parameter}"
        found.append(_found_links(label, kind.name, partial(numbered_requests, numbering, kind.name, view)))
    return tuple(found)


def _label(rule: Follow) -> str:
    return str(rule.source) if rule.source is not None else "the page's own address"


def _found_links(rule: str, to: str, made: Callable[[], Iterable[Request]]) -> FoundLinks:
    try:
        urls = tuple(one.url if one.method == "GET" else f"{one.method} {one.url}" for one in made())
        return FoundLinks(rule=rule, to=to, urls=urls)
    except ParseFailed as error:
        return FoundLinks(rule=rule, to=to, urls=(), fault=str(error))


def likely_kind(spider: RecipeSpider, page: Page) -> str:
    """The kind as which the page was fetched, else that of a start page, else the one whose rules find most."""
    recipe = spider.recipe
    if page.job and page.kind in recipe.kinds:
        return page.kind
    if (page.job and page.kind == DEFAULT_KIND) or page.requested_url in recipe.start or page.url in recipe.start:
        return recipe.start_kind
    checks = [check_page(spider, kind, page) for kind in recipe.kinds]
    return max(checks, key=lambda one: (not one.missing and not one.fault, one.share())).kind
