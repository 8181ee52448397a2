"""A recipe crawls the demo shop as the shop's own spider in Python does; so does one that was drafted from a page.
Recipes also ask by POST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gossamer.demo.shop import BROKEN, SHOP_HOST, open_shop
from gossamer.demo.spider import DemoShop
from gossamer.parse.discovery import load_spider
from gossamer.parse.spider import Spider
from tests.journey.commands import QUICK, gossamer
from tests.journey.crawling import Aftermath, crawled, settings_for
from tests.sites.api import PAGES, PER_PAGE, ApiSite, api_site

RECIPE = """\
start = "{url}"

[pages.listing]
follow = [{{ css = ".shelf a, .gone a", to = "product", priority = 8 }}]
next = "a.next"

[pages.product]
key = "sku"
within = ".product .facts"

[pages.product.fields]
sku = ".sku"
title = {{ css = "h1", required = true }}
brand = {{ css = ".brand", required = true }}
availability = {{ css = ".stock", required = true }}
price = {{ css = ".price", type = "money" }}
rating = {{ css = ".score", type = "float" }}
reviews = {{ css = ".reviews", type = "int", default = 0 }}
"""


class Shelf(DemoShop):
    """The shop's spider, for one category."""

    name = "shelf"
    parse = DemoShop.listing


async def crawl(spider: Spider, folder) -> Aftermath:
    return await crawled(spider, settings_for(folder, fetch__allow_hosts=[SHOP_HOST], retry__max_attempts=4))


def stored(left: Aftermath) -> dict[str, dict[str, Any]]:
    return {record.key: record.data for record in left.records}


async def test_a_recipe_stores_what_the_spider_in_python_stores(tmp_path):
    for name in ("python", "recipe"):
        (tmp_path / name / "spiders").mkdir(parents=True)
    async with open_shop() as shop:
        # Given a spider in Python and a recipe for the same shelf
        start = f"{shop.url}category/garden"
        own = Shelf()
        own.start_urls = [start]
        (tmp_path / "recipe" / "spiders" / "shelf.toml").write_text(RECIPE.format(url=start))
        recipe = load_spider("shelf", tmp_path / "recipe", "spiders")()

        # When both have crawled it
        by_spider, by_recipe = await crawl(own, tmp_path / "python"), await crawl(recipe, tmp_path / "recipe")

    # Then they have stored the same, and failed on the same pages
    assert len(by_spider.records) == 49
    assert stored(by_recipe) == stored(by_spider)
    assert {record.type for record in by_recipe.records} == {"Product"}
    reasons = {url: letter.reason for url, letter in by_recipe.letters.items()}
    assert reasons == {url: letter.reason for url, letter in by_spider.letters.items()}
    # And the failure names the fields and the rules
    (lost,) = [letter for url, letter in by_recipe.letters.items() if url.lower().endswith(BROKEN.lower())]
    assert "spiders/shelf.toml, pages.product: 4 required fields are missing" in lost.message
    assert "title: css h1 found nothing" in lost.message


@pytest.mark.long
async def test_a_drafted_recipe_crawls_the_shelf_that_it_was_drafted_from(tmp_path):
    (tmp_path / "gossamer.toml").write_text(QUICK.replace("max_attempts = 2", "max_attempts = 4"))
    async with open_shop() as shop:
        # Given a draft from the first page of a shelf
        start = f"{shop.url}category/garden"
        drafted = await gossamer(tmp_path, "new", "garden", "--recipe", start)
        assert (drafted.code, drafted.out.splitlines()[0]) == (
            0,
            "Wrote spiders/garden.toml: listing -> product. Next:",
        )

        # Then it passes its check on that page, and the crawl brings home every ware that can be read
        checked = await gossamer(tmp_path, "check", "garden", start)
        crawling = await gossamer(tmp_path, "crawl", "garden", "--quiet", "-o", "garden.jsonl")

    # The shelf has a page that cannot be read: the outcome tells it, also under --quiet.
    assert (checked.code, crawling.code) == (0, 3), (checked, crawling)
    assert "garden-1: done with warnings: " in crawling.err
    assert "20 links to product" in checked.out
    lines = (tmp_path / "garden.jsonl").read_text().splitlines()
    assert len(lines) == 49
    assert all('"currency":"EUR"' in line or '"price":null' in line for line in lines)


NUMBERED = """
start = {{ url = "{url}/offers", json = {{ page = 0 }}, headers = {{ X-Kind = "first" }} }}

[headers]
X-Key = "key ${{API_KEY}}"

[pages.offers]
each = {{ json = "$.items[*]" }}
key = "number"
fields.number = {{ json = "$", type = "int" }}

[pages.offers.next]
parameter = "page"
first = 0
pages = {{ json = "$.pages" }}
request = {{ json = {{ page = "{{page}}" }} }}
"""
BY_CURSOR = """
start = {{ url = "{url}/graphql", json = {{ query = "query($after: Int) {{ list }}", variables = {{ after = 0 }} }} }}

[pages.offers]
each = {{ json = "$.data.list.nodes[*]" }}
key = "number"
fields.number = {{ json = "$", type = "int" }}

[pages.offers.next]
data = {{ after = {{ json = "$.data.list.next", type = "int" }} }}
request = {{ json = {{ query = "query($after: Int) {{ list }}", variables = {{ after = "{{after}}" }} }} }}
"""
SEARCH = """
start = "{url}/"

[[pages.front.follow]]
css = "title"
regex = "GET (/)"
to = "found"
data = {{ word = "title" }}
request.form = {{ q = "<{{word}}>", token = "${{API_KEY}}" }}

[pages.found]
fields.asked = {{ css = "title", required = true }}
"""


async def by_recipe(text: str, folder: Path, site: ApiSite, monkeypatch) -> Aftermath:
    monkeypatch.setenv("GOSSAMER_SECRET_API_KEY", "k&y")
    (folder / "offers.toml").write_text(text.format(url=site.url("")))
    recipe = load_spider(str(folder / "offers.toml"), folder, "spiders")()
    return await crawled(recipe, settings_for(folder, fetch__allow_hosts=["127.0.0.1"]))


@pytest.mark.parametrize(
    ("text", "path", "count"), [(NUMBERED, "/offers", PAGES * PER_PAGE), (BY_CURSOR, "/graphql", PAGES)]
)
async def test_a_recipe_reads_lists_that_are_paged_by_post(tmp_path, monkeypatch, text, path, count):
    async with api_site() as site:
        left = await by_recipe(text, tmp_path, site, monkeypatch)

    left.assert_adds_up()
    assert {record.data["number"] for record in left.records} == set(range(count))
    assert site.lines() == [f"POST {path}"] * PAGES
    assert len({asked.body for asked in site.log if asked.method == "POST"}) == PAGES
    if text == NUMBERED:
        assert {asked.headers["x-key"] for asked in site.log if asked.method == "POST"} == {"key k&y"}
        assert [asked.headers.get("x-kind") for asked in site.log if asked.method == "POST"].count("first") == 1


async def test_a_recipe_fills_in_a_form_and_its_secret_is_nowhere_but_on_the_wire(tmp_path, monkeypatch):
    async with api_site() as site:
        left = await by_recipe(SEARCH, tmp_path, site, monkeypatch)

    assert site.lines() == ["GET /", "POST /"]
    assert site.log[-1].body == b"q=%3CGET+%2F%3E&token=k%26y"
    assert [record.data["asked"] for record in left.records] == ["POST /"]
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.suffix == ".db")
    assert b"API_KEY" in kept
    assert b"k&y" not in kept
    assert b"k%26y" not in kept


async def test_check_asks_as_the_recipe_does(tmp_path):
    async with api_site() as site:
        (tmp_path / "offers.toml").write_text(NUMBERED.format(url=site.url("")))
        said = await gossamer(
            tmp_path, "check", "offers.toml", site.url("/offers"), environ={"GOSSAMER_SECRET_API_KEY": "k"}
        )

    assert said.code == 0, said
    assert [(asked.line, asked.headers["x-key"]) for asked in site.log if asked.path == "/offers"] == [
        ("POST /offers", "key k")
    ]
    assert f"{PAGES - 1} links to offers" in said.out
    assert f"POST {site.url('/offers')}" in said.out
