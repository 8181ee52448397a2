"""Recipes: check one, show what each of its rules finds on a page, and draft one from a page. `gossamer check` starts
here; spider_check.py does the same for spiders in Python.

Every value has the shape that `--json` prints. Nothing is stored.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from ...clock import SystemClock
from ...errors import FetchFailed, FetchRefused, Misconfigured, ParseFailed
from ...extract.media import Media
from ...model.url import host_of, site_of
from ...parse.discovery import RECIPE_ENDINGS, is_file_ref, list_spiders, load_spider, made_spider
from ...parse.page import Page
from ...parse.spider import Spider as Spider
from ...parse.spider import compose_name, is_spider_name, spider_name_of
from ...pipeline.quality_rules import Fault
from ...pipeline.steps import Dropped, Piped
from ...recipe.draft import RecipeDraft, detail_links, draft_recipe
from ...recipe.fields import Note
from ...recipe.model import PageKind
from ...recipe.spider import FoundLinks, PageCheck, check_page, likely_kind
from ...recipe.spider import RecipeSpider as RecipeSpider  # for the commands, which import the project alone
from ...recipe.table import BadRecipe, suggestion
from ...settings import FILE_NAME, Settings
from ..pipelines import pipeline_of
from .check import (
    LINKS_TOLD,
    CheckedSpider,
    RecordFound,
    SpiderCheck,
    check_spider,
    demand_callback,
    record_found,
    spider_view,
)
from .scaffold import check_name

_BY_HAND = {
    Media.JSON: " docs/recipes.md has a recipe for JSON to start from.",
    Media.XML: " For a feed or a sitemap, use a schedule, or `page.feed()` in a spider.",
}
LONGEST_PAUSE = 5.0  # seconds between two requests, because a person waits

FieldNote: TypeAlias = Note  # what a rule found for a field


class LineFault(msgspec.Struct, frozen=True):
    """A fault of a recipe, with its line."""

    line: int | None
    message: str


class RecipeFaults(msgspec.Struct, frozen=True, kw_only=True):
    """A recipe that cannot be used, and all its faults."""

    recipe: str  # the file
    valid: bool = False
    faults: list[LineFault]

    def lines(self) -> list[str]:
        """Every fault with its line, in order of appearance."""
        return [
            f"{self.recipe}{f', line {one.line}' if one.line is not None else ''}: {one.message}" for one in self.faults
        ]


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of page."""

    item: str | None  # the type of its records
    fields: list[str]
    optional: list[str]  # those that may be missing
    leads_to: list[str]  # kinds of pages


class RecipeView(msgspec.Struct, frozen=True, kw_only=True):
    """A good recipe."""

    recipe: str  # the file
    valid: bool = True
    name: str
    start: list[str]
    kinds: dict[str, KindView]


class LinksFound(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule for links found."""

    rule: str
    to: str  # the kind of page behind them
    count: int
    first: list[str]
    fault: str | msgspec.UnsetType = msgspec.UNSET


class RecipeCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What the rules of a recipe find on a page."""

    recipe: str  # the file
    valid: bool = True
    url: str
    status: int
    bytes: int  # of the body
    kind: str  # the kind of page it was parsed as
    kinds: list[str]  # of the recipe
    fields: list[FieldNote]
    links: list[LinksFound]
    records: list[RecordFound]
    dropped: list[Dropped]  # items that a step of the pipeline dropped
    quality: list[Fault]
    refusal: str | None  # why the page would be a parse failure


class RecipeDrafted(msgspec.Struct, frozen=True, kw_only=True):
    """A draft that was written. `ref` is its name for other commands."""

    file: Path
    name: str
    ref: str
    summary: str


# -- checking ----------------------------------------------------------------------------------------------------


def load_for_check(settings: Settings, ref: str, folder: Path) -> Spider | RecipeFaults:
    """A recipe or a spider by its name in the project, or by its path from `folder`. Raises SpiderNotFound."""
    try:
        return made_spider(load_spider(ref, folder if is_file_ref(ref) else settings.root, settings.spiders))
    except BadRecipe as error:
        return RecipeFaults(recipe=error.file, faults=[LineFault(one.line, one.message) for one in error.faults])


def recipe_spider(loaded: Spider) -> RecipeSpider:
    """The spider, if it is a recipe. Raises Misconfigured."""
    if not isinstance(loaded, RecipeSpider):
        raise Misconfigured(f"{loaded.name} is a spider in Python; only the rules of recipes can be learned again.")
    return loaded


def loaded_view(spider: Spider) -> RecipeView | CheckedSpider:
    """A recipe or a spider that loads, described without a page."""
    return recipe_view(spider) if isinstance(spider, RecipeSpider) else spider_view(spider)


def demand_kind_of(spider: Spider, kind: str | None) -> None:
    """Raises Misconfigured if the recipe has no such kind of page, or the spider no such callback."""
    if isinstance(spider, RecipeSpider):
        demand_kind(spider, kind)
    else:
        demand_callback(spider, kind)


async def check_on(
    settings: Settings, spider: Spider, page: Page, kind: str | None = None, data: str | None = None
) -> RecipeCheck | SpiderCheck:
    """What a recipe or a spider finds on a page. Raises FetchRefused and Misconfigured."""
    if isinstance(spider, RecipeSpider):
        return await check_recipe(settings, spider, page, kind)
    return await check_spider(settings, spider, page, kind, data)


def recipe_view(spider: RecipeSpider) -> RecipeView:
    recipe = spider.recipe
    return RecipeView(
        recipe=recipe.file,
        name=recipe.name,
        start=list(recipe.start),
        kinds={kind.name: _kind_view(kind) for kind in recipe.kinds.values()},
    )


def _kind_view(kind: PageKind) -> KindView:
    turns = kind.next is not None or kind.numbering is not None
    return KindView(
        item=kind.item or None,
        fields=[field.name for field in kind.fields],
        optional=[field.name for field in kind.fields if not field.required],
        leads_to=list(dict.fromkeys([rule.to for rule in kind.follow] + ([kind.name] if turns else []))),
    )


def demand_kind(spider: RecipeSpider, kind: str | None) -> None:
    """Raises Misconfigured if the recipe has no such kind of page."""
    if kind is not None and kind not in spider.recipe.kinds:
        raise Misconfigured(f"{spider.recipe.file} has no page kind {kind!r}.{suggestion(kind, spider.recipe.kinds)}")


async def check_recipe(settings: Settings, spider: RecipeSpider, fetched: Page, kind: str | None = None) -> RecipeCheck:
    """Parse a page by the rules for that kind of page, or for the likely one. Raises FetchRefused for an error
    response."""
    if fetched.status >= 400 and fetched.status not in spider.handle_statuses:
        raise FetchRefused(f"{fetched.url} answered {fetched.status}; there is nothing to read.", status=fetched.status)
    page = Page(fetched.snapshot, spider=spider)
    seen = check_page(spider, kind or likely_kind(spider, page), page)
    piped, refusal = await _piped(settings, spider, seen, page)
    return RecipeCheck(
        recipe=spider.recipe.file,
        url=page.url,
        status=page.status,
        bytes=len(page.body),
        kind=seen.kind,
        kinds=list(spider.recipe.kinds),
        fields=list(seen.notes),
        links=[_links_found(links) for links in seen.links],
        records=[record_found(record) for record in piped.records],
        dropped=piped.dropped,
        quality=list(piped.inspection.faults),
        refusal=refusal or None,
    )


async def _piped(settings: Settings, spider: RecipeSpider, seen: PageCheck, page: Page) -> tuple[Piped, str]:
    """The records that would be stored, and why none would be."""
    if seen.fault or seen.missing:
        names = ", ".join(dict.fromkeys(note.field for note in seen.missing[:LINKS_TOLD]))
        more = f" and {len(seen.missing) - LINKS_TOLD} more" if len(seen.missing) > LINKS_TOLD else ""
        return Piped([], []), seen.fault or f"required and not found: {names}{more}"
    try:
        piped = await pipeline_of(settings, spider).run(
            seen.items, page, spider=spider.name, job="", now=page.fetched_at
        )
    except ParseFailed as error:
        return Piped([], []), str(error)
    return piped, next((links.fault for links in seen.links if links.fault), "")


def _links_found(links: FoundLinks) -> LinksFound:
    return LinksFound(
        rule=links.rule,
        to=links.to,
        count=len(links.urls),
        first=list(links.urls[:LINKS_TOLD]),
        fault=links.fault or msgspec.UNSET,
    )


# -- drafting ----------------------------------------------------------------------------------------------------


async def draft(
    settings: Settings,
    url: str,
    name: str | None,
    *,
    folder: Path,
    fetch: Callable[[str], Awaitable[Page]],
    tell: Callable[[str], None] = lambda words: None,
) -> RecipeDrafted:
    """Fetch the page and one that it links to, at the site's pace, and write a recipe into the project's spiders
    folder, or outside of a project into `folder`. Nothing is overwritten. Raises Misconfigured, FetchFailed,
    FetchRefused."""
    file, name, ref, shown = place_for(settings, url, name, folder)
    drafted = await _drafted(settings, url, ref, fetch, tell)
    write_draft(file, drafted.text)
    return RecipeDrafted(file=shown, name=name, ref=ref, summary=drafted.summary)


def place_for(
    settings: Settings, url: str, name: str | None, folder: Path, *, python: bool = False
) -> tuple[Path, str, str, Path]:
    """Where a new recipe goes, or with `python` a new spider, its name, what commands call it, and its path as people
    see it. Raises Misconfigured if there is one already."""
    name = name or _name_for(url)
    name = check_name(name).spider if python else _checked_name(name)
    in_project = (settings.root / FILE_NAME).is_file()
    file = _free_place(settings.root / settings.spiders if in_project else folder, name, python=python)
    shown = file.relative_to(folder) if file.is_relative_to(folder) else file
    return file, name, name if in_project else str(shown), shown


def new_recipe(settings: Settings, url: str, name: str) -> tuple[str, Path]:
    """The name of a new recipe of the project, and its file: in the folder of its spiders, wherever the server was
    started. Without a name it has that of the site. Raises Misconfigured if either is taken."""
    file = _free_place(settings.root / settings.spiders, _checked_name(name or _name_for(url)), python=False)
    spider = spider_name_of(file.stem)
    taken = next((one for one in list_spiders(settings.root, settings.spiders).spiders if one.name == spider), None)
    if taken is not None:
        raise Misconfigured(f"{spider} is the name of a spider already: {taken.path.name}. Choose another one.")
    return spider, file


def write_draft(file: Path, text: str) -> None:
    """Write a new recipe or spider; nothing is overwritten. Raises Misconfigured."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise _taken(file) from None
    except OSError as error:
        raise Misconfigured(
            f"{file} cannot be written ({error.strerror}). Go to a folder that you may write to."
        ) from error


def _name_for(url: str) -> str:
    """`https://www.book-shop.example/` becomes book-shop; a host without a registrable domain gives its first label, an
    IP address all of its numbers."""
    site = site_of(url)
    host = site if "." in site and not site.endswith(".localhost") else host_of(url)
    words = host.removeprefix("www.").lower()
    first = words if words.replace(".", "").isdigit() else words.partition(".")[0]
    return re.sub(r"[^a-z0-9]+", "-", first).strip("-") or "site"


def _checked_name(name: str) -> str:
    name = compose_name(name)
    if not is_spider_name(name):
        raise Misconfigured(f"{name[:80]!a} cannot be a recipe's name. Use letters, digits, - and _, as in book-shop.")
    return name


def _free_place(folder: Path, name: str, *, python: bool) -> Path:
    module = folder / f"{name.replace('-', '_')}.py"
    for file in (*(folder / f"{name}{ending}" for ending in RECIPE_ENDINGS), *((module,) if python else ())):
        if file.exists():
            raise _taken(file)
    return module if python else folder / f"{name}.toml"


def _taken(file: Path) -> Misconfigured:
    return Misconfigured(
        f"{file} exists already and was not changed. Give the new one another name: gossamer new NAME ..."
    )


async def _drafted(
    settings: Settings,
    url: str,
    ref: str,
    fetch: Callable[[str], Awaitable[Page]],
    tell: Callable[[str], None],
) -> RecipeDraft:
    first = await fetch(url)
    if first.status >= 400:
        raise FetchRefused(
            f"{first.url} answered {first.status}; a recipe cannot be drafted from it.", status=first.status
        )
    if first.media is not Media.HTML:
        raise Misconfigured(
            f"{first.url} is {first.content_type or 'no HTML'}; drafts are made from HTML pages."
            f"{_BY_HAND.get(first.media, '')}"
        )
    clock, interval = SystemClock(), settings.politeness.rate.interval
    details: list[Page] = []
    for link in detail_links(first):
        await clock.sleep(min(interval.total_seconds(), LONGEST_PAUSE) if interval is not None else 0.0)
        tell(f"Looking at {link}")
        try:
            page = await fetch(link)
        except (FetchFailed, FetchRefused) as error:
            tell(f"  {error}")
            continue
        if page.status < 400 and page.media is Media.HTML:
            details.append(page)
    return draft_recipe(first, details, ref)
