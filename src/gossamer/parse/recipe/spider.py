"""A recipe as a spider: a class with one callback for each kind of page. No code of the user's is in it.

How it fails: a page without its required fields, and a page count beyond all reason, are ParseFailed with every rule,
what it found and why that will not do. How it recovers: mend the recipe and parse the page again; the version of the
spider is a hash of the recipe's text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from ...errors import ParseFailed
from ...model.item import Item, item_key
from ...model.task import DEFAULT_KIND, Request
from ..page import Page
from ..spider import Answer, ItemStep, Spider
from .going import onward
from .items import Shape, shape_of
from .model import PageKind, Recipe
from .sources import Look, Place, places
from .taking import Note, Taking, take

_MOST_TOLD = 20  # faults named in one message


def unread(item: Item, page: Page) -> list[str] | None:
    """The quality rule of every recipe: a value that stands on the page and cannot be read is a fault of its item."""
    return page._unread.get(item_key(item)) if page._unread else None


class RecipeSpider(Spider):
    """Base of the spiders that recipes make."""

    name = "recipe"
    quality_rules: Sequence[ItemStep] = (unread,)
    recipe: ClassVar[Recipe]
    _shapes: ClassVar[dict[str, Shape]] = {}
    _source_text: ClassVar[str] = ""  # what spider_version hashes


def remember(page: Page, takings: Sequence[Taking]) -> None:
    """Keep the unread values of a page's items for the quality rule, which sees page and item alone."""
    page._unread = {item_key(taking.item): told for taking in takings if (told := taking.faults())}


def spider_of(recipe: Recipe) -> type[RecipeSpider]:
    """The spider class of a recipe."""
    namespace: dict[str, Any] = {
        "__doc__": recipe.summary,
        "__module__": __name__,
        "name": recipe.name,
        "recipe": recipe,
        "_source_text": recipe.text,
        "_shapes": {
            kind.name: shape_of(kind.item, kind.fields, kind.key) for kind in recipe.kinds.values() if kind.item
        },
        "start_urls": recipe.start,
        "allowed_domains": recipe.domains,
        "handle_statuses": recipe.statuses,
        "rate": recipe.rate,
        "burst": recipe.burst,
        "concurrency": recipe.concurrency,
        "robots": recipe.robots,
        "max_depth": recipe.depth,
        "max_attempts": recipe.attempts,
        "limit": recipe.limit,
        "fetcher": recipe.route,
        "proxy_pool": recipe.proxy_pool,
    }
    if recipe.minimum is not None:
        namespace["min_quality"] = recipe.minimum
    for kind in recipe.kinds.values():
        namespace[kind.name] = _callback(kind)
    namespace[DEFAULT_KIND] = _callback(recipe.kinds[recipe.start_kind])
    words = "".join(word[:1].upper() + word[1:] for word in recipe.name.replace("_", "-").split("-"))
    return type(words or "Recipe", (RecipeSpider,), namespace)


def _callback(kind: PageKind) -> Callable[[RecipeSpider, Page], Answer]:
    def callback(self: RecipeSpider, page: Page) -> Iterator[Item | Request]:
        look = Look(page)
        takings = takings_of(self, kind, look)
        notes = [note for taking in takings for note in taking.notes]
        if any(note.missing for note in notes):
            raise _failure(self.recipe, kind, page, notes)
        remember(page, takings)
        yield from (taking.item for taking in takings)
        yield from onward(self.recipe, kind, look)

    callback.__name__ = kind.name
    callback.__qualname__ = kind.name
    return callback


def takings_of(spider: RecipeSpider, kind: PageKind, look: Look) -> list[Taking]:
    """The items of a page, whole or not, with what every rule found. A page on which there is no place for an item
    gives one without values, and the note that says so."""
    if not kind.item:
        return []
    shape = spider._shapes[kind.name]
    spot = kind.each or kind.within
    spots = places(spot, Place(look), all_count=kind.each is not None) if spot is not None else [Place(look)]
    if not spots:
        if kind.each is not None and kind.allow_empty:
            return []
        rule = f"{'each' if kind.each else 'within'} {spot}"
        note = Note(field=kind.item, rule=rule, found=None, value=None, missing=True)
        return [Taking(item=shape.make(dict.fromkeys(field.name for field in kind.fields)), notes=[note])]
    takings = []
    for index, place in enumerate(spots if kind.each is not None else spots[:1]):
        notes: list[Note] = []
        item = take(shape, kind.fields, place, notes, f"[{index}]" if kind.each is not None else "")
        if not any(field.name == "url" for field in kind.fields):
            item.url = look.page.url
        takings.append(Taking(item=item, notes=notes))
    return takings


def _failure(recipe: Recipe, kind: PageKind, page: Page, notes: list[Note]) -> ParseFailed:
    missing = [note for note in notes if note.missing]
    told = [note.sentence() for note in missing[:_MOST_TOLD]]
    rest = len(missing) - len(told)
    count = "1 required field is" if len(missing) == 1 else f"{len(missing)} required fields are"
    more = f"; and {rest} more" if rest else ""
    found = [f"{note.field}: {note.rule} found {note.found!r}" for note in notes if not note.missing and note.found]
    return ParseFailed(
        f"{recipe.file}, pages.{kind.name}: {count} missing on {page.url}: {'; '.join(told)}{more}",
        detail="\n".join(found[:_MOST_TOLD]) or "No rule of this kind found anything on the page.",
        type=kind.item,
        fields=[note.field.rpartition("].")[2].partition(".")[0].partition("[")[0] for note in missing],
    )
