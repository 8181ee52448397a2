"""A recipe drafted from a page, and from one or two pages behind it. Nothing is fetched here: the caller does that.

    drafting = Drafting(page)
    while drafting.wanted:             # addresses to look at, the best first
        drafting.look(page_or_none)    # one of them, or None when it could not be had
    drafting.draft("shop.toml")

How it fails: it does not. A page of which nothing can be made gets a recipe for its title and text, and where it has
not even these, the recipe says that nothing was recognised.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...page import Page
from ..check import check_page
from ..model import SourceKind
from ..reader import read_recipe
from ..sources import PageView
from ..spider import spider_of
from .fields import DraftField, product_fields
from .groups import Group, best_group, headline_has_price, next_selector, page_parameter
from .writing import DraftKind, recipe_text

_DEEPEST = 3  # pages: home, listing, detail
_TRIES = 3  # links of a list that are tried
_SURE = 0.5  # confidence of a price that makes a product
_BY_SIGHT = ("page", "page script")  # sources of a price that a list of products has as well
_LONG = 600  # characters of text that make an article
_GENERIC = (
    DraftField(name="title", rules=(("css", "title"),), required=True),
    DraftField(name="headline", rules=(("css", "h1"),)),
    DraftField(name="text", rules=(("css", "main"), ("css", "article"), ("css", "body")), type="markdown"),
)


_TRIED = "Every rule found something on the pages that were looked at."
_UNTRIED = "No page behind the list could be had. The rules of [pages.{kind}] were not tried."
_UNRECOGNISED = (
    "Nothing was recognised for [pages.{kind}]: its rule finds nothing on the page that was looked at.\n"
    '# If scripts make the page, it needs a browser: write route = "browser" under [politeness].'
)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """The text of the recipe, and what it was made of: kind of page -> a page of it."""

    text: str
    pages: dict[str, Page]
    summary: str


class _Step(msgspec.Struct, frozen=True):
    """A page on the way from the start to the thing itself. `group` is its list; None: it is the thing."""

    page: Page
    group: Group | None


class Drafting:
    """Pages in the order in which they lead to each other. `wanted` are the next addresses to look at."""

    def __init__(self, page: Page) -> None:
        self._steps: list[_Step] = []
        self.wanted: list[str] = []
        self._add(page)

    def look(self, page: Page | None) -> None:
        """The answer to the first wanted address."""
        self.wanted = self.wanted[1:]
        if page is not None:
            self._add(page)

    def _add(self, page: Page) -> None:
        group = None if _is_thing(page) else best_group(page)
        if group is not None and any(step.group is not None and step.page.url == page.url for step in self._steps):
            group = None
        if len(self._steps) + 1 >= _DEEPEST:
            group = None
        self._steps.append(_Step(page, group))
        self.wanted = [] if group is None else _spread(group.urls)

    def draft(self, ref: str) -> Draft:
        """The recipe; every rule in it finds something on the pages that were looked at, or the text says that it does
        not. `ref` is what commands will call it."""
        kinds, pages = self._kinds()
        start = self._steps[0].page.requested_url or self._steps[0].page.url
        thing = kinds[-1]
        message, remark = _TRIED, ""
        if thing.name not in pages:
            message = _UNTRIED.format(kind=thing.name)
        elif not thing.fields and not thing.auto:
            message, remark = _UNRECOGNISED.format(kind=thing.name), " (nothing was recognised)"
            kinds[-1] = msgspec.structs.replace(thing, fields=_GENERIC[:1])
        return Draft(text=recipe_text(start, kinds, ref, message), pages=pages, summary=f"{_summary(kinds)}{remark}")

    def _kinds(self) -> tuple[list[DraftKind], dict[str, Page]]:
        lists = [step for step in self._steps if step.group is not None]
        things = [step for step in self._steps if step.group is None]
        names = {1: ["listing"], 2: ["home", "listing"]}.get(len(lists), [])
        thing = _thing_kind(things[0].page) if things else DraftKind(name="page", comment="A page.", fields=_GENERIC)
        kinds: list[DraftKind] = []
        pages: dict[str, Page] = {}
        for position, step in enumerate(lists):
            assert step.group is not None
            to = names[position + 1] if position + 1 < len(lists) else thing.name
            following = next_selector(step.page) or ""
            kinds.append(
                DraftKind(
                    name=names[position],
                    comment=f"A list: {len(step.group.urls)} links to {to} pages were on the one that was looked at.",
                    follow=((step.group.selector, to, 8 if to == thing.name else None),),
                    next=following,
                    parameter="" if following else page_parameter(step.page) or "",
                )
            )
            pages[names[position]] = step.page
        if things:
            pages[thing.name] = things[0].page
            thing = _proved(thing, things[0].page)
        return [*kinds, thing], pages


def _spread(urls: tuple[str, ...]) -> list[str]:
    """A few links of a list: its first, its last, and one in the middle. The first is often like all others."""
    return list(dict.fromkeys((urls[0], urls[len(urls) // 2], urls[-1])))[:_TRIES]


def _is_thing(page: Page) -> bool:
    return _product(page) is not None or _is_article(page)


def _product(page: Page) -> Any:
    product = PageView(page).parsed(SourceKind.PRODUCT)
    if product is None or product.title is None:
        return None
    price = product.found.get("price")
    if (price is None or price.confidence < _SURE) and not (product.sku and product.availability):
        return None
    if price is not None and price.source in _BY_SIGHT:
        group = best_group(page)
        if group is not None and group.priced >= 0.5 and not headline_has_price(page, group):
            return None  # a list of priced things, and none of them is the page's own
    return product


def _is_article(page: Page) -> bool:
    data = page.structured()
    typed = data["opengraph"].get("og:type") == "article" or any(
        "Article" in str(block.get("@type")) or "BlogPosting" in str(block.get("@type"))
        for block in data["json_ld"]
        if isinstance(block, dict)
    )
    article = PageView(page).parsed(SourceKind.ARTICLE) if typed else None
    return article is not None and len(article.text) >= _LONG


def _thing_kind(page: Page) -> DraftKind:
    product = _product(page)
    if product is not None:
        fields = tuple(product_fields(page, product))
        sku = next((field for field in fields if field.name == "sku" and field.rules[0][0] != "product"), None)
        return DraftKind(
            name="product",
            comment="A product. A page without a required field, or without its key, becomes a dead letter.",
            key="sku" if sku is not None else "",
            fields=fields,
        )
    if _is_article(page):
        return DraftKind(name="article", comment="An article: title, text, authors, dates.", auto="article")
    return DraftKind(name="page", comment="A page.", fields=_GENERIC)


def _proved(kind: DraftKind, page: Page) -> DraftKind:
    """The kind without the fields that find nothing when the finished recipe is tried on the page."""
    if not kind.fields:
        return kind
    text = recipe_text(page.url, [kind], "draft", _TRIED)
    spider = spider_of(read_recipe(text.encode(), "draft.toml"))()
    found = {note.field for note in check_page(spider, kind.name, page).notes if note.value not in (None, [])}
    fields = tuple(field for field in kind.fields if field.name in found)
    key = kind.key if kind.key in found else ""
    return msgspec.structs.replace(kind, fields=fields, key=key)


def _summary(kinds: list[DraftKind]) -> str:
    return " -> ".join(kind.name for kind in kinds)
