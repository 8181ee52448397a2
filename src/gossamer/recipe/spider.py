"""Makes a spider class from a recipe, with one callback per page kind. No user code runs.

How it fails: a page without its required fields, or with an implausible page count, raises ParseFailed with every rule,
what it found and why that is unusable. How it recovers: correct the recipe and parse the page again; the version of the
spider is a hash of the recipe's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import msgspec

from ..errors import ParseFailed
from ..model.healing import FILE
from ..model.item import Item, item_key
from ..model.task import DEFAULT_KIND, Request
from ..parse.page import Page
from ..parse.spider import Answer, ItemStep, Spider
from .fields import Note, Shape, TakenItem, shape_of, take
from .links import fill_request, link_requests, numbered_requests, requests_from
from .model import Follow, PageKind, Recipe, type_name
from .sources import PagePart, PageView, parts_of

_MOST_NAMED = 5  # faults listed in one message


def unread(item: Item, page: Page) -> list[str] | None:
    """The quality rule of every recipe: a value that is on the page but cannot be converted is a fault of its item."""
    return page._unread.get(item_key(item)) if page._unread else None


class RecipeSpider(Spider):
    """Base class of spiders made from recipes."""

    name = "recipe"
    quality_rules: Sequence[ItemStep] = (unread,)
    recipe: ClassVar[Recipe]
    rules_version: ClassVar[int] = FILE  # of the healed rules above those of the file (overlay.py)
    _shapes: ClassVar[dict[str, Shape]] = {}
    _source_text: ClassVar[str] = ""  # what spider_version hashes


def remember(page: Page, taken: Sequence[TakenItem]) -> None:
    """Keep the unconverted values of a page's items for the quality rule, which gets only page and item."""
    page._unread = {item_key(one.item): faults for one in taken if (faults := one.faults())}


def spider_of(recipe: Recipe, healed: Mapping[str, Mapping[str, int]] | None = None) -> type[RecipeSpider]:
    """The spider class of a recipe. `healed` are, by page kind, the fields with healed rules and their versions."""
    healed = healed or {}
    politeness = recipe.politeness
    namespace: dict[str, Any] = {
        "__doc__": recipe.summary,
        "__module__": __name__,
        "name": recipe.name,
        "recipe": recipe,
        "_source_text": recipe.text,
        "_shapes": {
            kind.name: shape_of(kind.item, kind.fields, kind.key, healed.get(kind.name))
            for kind in recipe.kinds.values()
            if kind.item
        },
        "start_urls": recipe.start,
        "_start_requests": _start_requests(recipe),
        "headers": recipe.headers,
        "allowed_domains": recipe.scope.domains,
        "max_depth": recipe.scope.depth,
        "limit": recipe.scope.limit,
        "handle_statuses": politeness.statuses,
        "rate": politeness.rate,
        "burst": politeness.burst,
        "concurrency": politeness.site_concurrency or politeness.concurrency,
        "robots": politeness.robots,
        "max_attempts": politeness.attempts,
        "fetcher": politeness.route,
        "proxy_pool": politeness.proxy_pool,
    }
    namespace |= msgspec.structs.asdict(recipe.expected)
    if recipe.quality.minimum is not None:
        namespace["min_quality"] = recipe.quality.minimum
    for kind in recipe.kinds.values():
        namespace[kind.name] = _callback(kind)
    namespace[DEFAULT_KIND] = _callback(recipe.kinds[recipe.start_kind])
    return type(type_name(recipe.name) or "Recipe", (RecipeSpider,), namespace)


def _start_requests(recipe: Recipe) -> list[Request]:
    pairs = zip(recipe.start, recipe.start_requests, strict=True)
    made = [fill_request(Request(url=url), how, {}) for url, how in pairs]
    return [request for request in made if request is not None]


def _callback(kind: PageKind) -> Callable[[RecipeSpider, Page], Answer]:
    def callback(self: RecipeSpider, page: Page) -> Iterator[Item | Request]:
        view = PageView(page)
        taken = taken_items(self, kind, view)
        notes = [note for one in taken for note in one.notes]
        if any(note.missing for note in notes):
            raise _failure(self.recipe, kind, page, notes)
        remember(page, taken)
        yield from (one.item for one in taken)
        yield from requests_from(self.recipe, kind, view)

    callback.__name__ = kind.name
    callback.__qualname__ = kind.name
    return callback


def taken_items(spider: RecipeSpider, kind: PageKind, view: PageView) -> list[TakenItem]:
    """The items of a page, complete or not, with the notes of every rule. A page without any matching part gives one
    item without values, and a note that says so."""
    if not kind.item:
        return []
    shape = spider._shapes[kind.name]
    place = kind.each or kind.within
    parts = parts_of(place, PagePart(view), all_count=kind.each is not None) if place is not None else [PagePart(view)]
    if not parts:
        if kind.each is not None and kind.allow_empty:
            return []
        rule = f"{'each' if kind.each else 'within'} {place}"
        note = Note(field=kind.item, rule=rule, found=None, value=None, missing=True)
        return [TakenItem(item=shape.make(dict.fromkeys(field.name for field in kind.fields)), notes=[note])]
    taken = []
    for index, part in enumerate(parts if kind.each is not None else parts[:1]):
        notes: list[Note] = []
        item = take(shape, kind.fields, part, notes, f"[{index}]" if kind.each is not None else "")
        if not any(field.name == "url" for field in kind.fields):
            item.url = view.page.url
        taken.append(TakenItem(item=item, notes=notes))
    return taken


def _failure(recipe: Recipe, kind: PageKind, page: Page, notes: list[Note]) -> ParseFailed:
    missing = [note for note in notes if note.missing]
    sentences = [note.sentence() for note in missing[:_MOST_NAMED]]
    rest = len(missing) - len(sentences)
    count = "1 required field is" if len(missing) == 1 else f"{len(missing)} required fields are"
    more = f"; and {rest} more" if rest else ""
    found = [f"{note.field}: {note.rule} found {note.found!r}" for note in notes if not note.missing and note.found]
    return ParseFailed(
        f"{recipe.file}, pages.{kind.name}: {count} missing on {page.url}: {'; '.join(sentences)}{more}",
        detail="\n".join(found[:_MOST_NAMED]) or "No rule of this kind found anything on the page.",
        type=kind.item,
        fields=[note.field.rpartition("].")[2].partition(".")[0].partition("[")[0] for note in missing],
    )


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
