"""A recipe on a page of the test's own: for the tests of recipes."""

from __future__ import annotations

import asyncio
from textwrap import dedent
from typing import Any

import msgspec

from gossamer.model.item import item_data
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.callbacks import ParsedPage, run_callback
from gossamer.parse.page import Page
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import RecipeSpider, spider_of

URL = "https://shop.example/things/7?ref=a"


def page_of(
    body: str, *, url: str = URL, label: str = "text/html; charset=utf-8", data: dict[str, Any] | None = None
) -> Page:
    return Page(
        Snapshot(
            url=url,
            requested_url=url,
            status=200,
            headers=Headers([("Content-Type", label)]),
            body=body.encode(),
            fetched_at=1_700_000_000.0,
            data=msgspec.json.encode(data).decode() if data else "",
        )
    )


def recipe(text: str, file: str = "shop.toml") -> RecipeSpider:
    """The spider of a recipe."""
    return spider_of(read_recipe(dedent(text).encode(), file))()


def fields(text: str, head: str = "") -> RecipeSpider:
    """A recipe with one page kind that has these fields."""
    return recipe(
        f'start = "https://shop.example/"\n[pages.thing]\n{dedent(head)}\n[pages.thing.fields]\n{dedent(text)}'
    )


def parsed(spider: RecipeSpider, page: Page, kind: str = "parse") -> ParsedPage:
    """What the spider gives for the page."""
    read = Page(page.snapshot, spider=spider)
    return asyncio.run(run_callback(spider, kind, read))


def values(spider: RecipeSpider, page: Page) -> dict[str, Any]:
    """The one item that the page gives, as it would be stored, without its address."""
    (item,) = parsed(spider, page).items
    stored: dict[str, Any] = msgspec.json.decode(item_data(item))
    stored.pop("url", None)
    return stored
