"""Looking at a page through a recipe: what each rule finds, and which kind of page it probably is. For people."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from ...errors import ParseFailed
from ...model.item import Item
from ...model.task import DEFAULT_KIND
from ..page import Page
from .going import followed
from .model import Follow, PageKind, Paths
from .paging import numbered
from .sources import Look
from .spider import RecipeSpider, remember, takings_of
from .taking import Note


class Links(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule for links found."""

    rule: str
    to: str
    urls: tuple[str, ...]
    fault: str = ""


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A page as the recipe sees it."""

    kind: str
    notes: tuple[Note, ...]
    links: tuple[Links, ...]
    items: tuple[Item, ...]
    fault: str = ""  # why it could not be read to the end

    @property
    def missing(self) -> tuple[Note, ...]:
        """The required fields that were not found."""
        return tuple(note for note in self.notes if note.missing)

    def share(self) -> float:
        """How much of what the rules look for is there, from 0 to 1."""
        found = [note.value not in (None, []) for note in self.notes] + [bool(links.urls) for links in self.links]
        return sum(found) / len(found) if found else 0.0


def see(spider: RecipeSpider, kind: str, page: Page) -> Seen:
    """The page, read as a page of that kind. What a rule cannot do is told, not raised."""
    rules = spider.recipe.kinds[kind]
    look = Look(page)
    try:
        takings = takings_of(spider, rules, look)
    except ParseFailed as error:
        return Seen(kind=kind, notes=(), links=(), items=(), fault=str(error))
    if not any(note.missing for taking in takings for note in taking.notes):
        remember(page, takings)
    return Seen(
        kind=kind,
        notes=tuple(note for taking in takings for note in taking.notes),
        links=_links(spider, rules, look),
        items=tuple(taking.item for taking in takings),
    )


def _links(spider: RecipeSpider, kind: PageKind, look: Look) -> tuple[Links, ...]:
    paths = spider.recipe.paths
    rules = (*kind.follow, *((kind.next,) if kind.next is not None else ()))
    found = [_told(str(rule.source), rule.to, partial(_followed, rule, paths, look)) for rule in rules]
    numbering = kind.numbering
    if numbering is not None:
        label = f"next by parameter {numbering.parameter}"
        found.append(_told(label, kind.name, partial(numbered, numbering, look)))
    return tuple(found)


def _followed(rule: Follow, paths: Paths, look: Look) -> list[str]:
    return [request.url for request in followed(rule, paths, look)]


def _told(rule: str, to: str, urls: Callable[[], list[str]]) -> Links:
    try:
        return Links(rule=rule, to=to, urls=tuple(urls()))
    except ParseFailed as error:
        return Links(rule=rule, to=to, urls=(), fault=str(error))


def likely_kind(spider: RecipeSpider, page: Page) -> str:
    """The kind that the page was fetched as, else that of a start page, else the one whose rules find most."""
    recipe = spider.recipe
    if page.job and page.kind in recipe.kinds:
        return page.kind
    if (page.job and page.kind == DEFAULT_KIND) or page.requested_url in recipe.start or page.url in recipe.start:
        return recipe.start_kind
    seen = [see(spider, kind, page) for kind in recipe.kinds]
    return max(seen, key=lambda one: (not one.missing and not one.fault, one.share())).kind
