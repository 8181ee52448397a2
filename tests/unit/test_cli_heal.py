"""`gossamer heal`: the demo shop is redesigned, and its recipe learns its rules again from the records."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal

import pytest

from gossamer.demo.catalogue import Catalogue
from gossamer.demo.shop import open_shop
from tests.patience import PATIENCE
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project

RECIPE = """\
start = "{url}category/kitchen"

[pages.listing]
follow = [{{ css = ".shelf a", to = "product" }}]

[pages.product]
key = "sku"

[pages.product.fields]
sku = ".sku"
title = {{ css = "h1", required = true }}
price = {{ css = ".facts .price", type = "money" }}
brand = {{ css = ".facts .brand" }}
# people's opinion
rating = {{ css = ".score", type = "float" }}
"""


@contextmanager
def served(port: int = 0, **how: bool | int) -> Iterator[int]:
    """The demo shop in a thread; its port."""
    ready, over = threading.Event(), threading.Event()
    found: list[int] = []

    async def serve() -> None:
        async with open_shop(port=port, **how) as shop:  # type: ignore[arg-type]
            found.append(shop.port)
            ready.set()
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield found[0]
    finally:
        over.set()
        thread.join()


def prices(project: ProjectFolder) -> dict[str, Decimal]:
    lines = project.run("export", "--no-meta").lines
    return {one["sku"]: Decimal(one["price"]["amount"]) for one in map(json.loads, lines) if one["price"]}


def shown_prices(revision: int) -> dict[str, Decimal]:
    """What the first shelf of the demo shop's kitchen costs."""
    wares = [one for one in Catalogue(revision).wares if one.category == "kitchen"][:20]
    return {one.sku: one.price for one in wares if one.price is not None}


@pytest.mark.long
def test_values_of_a_wrong_rule_stay_until_right_rules_parse_the_archive_again(project):
    with served() as port:
        url = f"http://shop.localhost:{port}/"
        project.write("gossamer.toml", '[politeness]\nrate = "unlimited"\n[fetch]\nallow_hosts = ["shop.localhost"]\n')
        file = project.write("spiders/shop.toml", RECIPE.format(url=url))
        assert project.run("crawl", "shop", "--quiet").code == 0
    with served(port, redesigned=True, revision=3):
        assert project.run("crawl", "shop", "--quiet").code == 4
    stored, before = prices(project), file.read_text()
    assert project.run("heal", "shop", "--write").code == 0
    healed = file.read_text()
    first = 'price = { type = "money", sources = ['
    file.write_text(healed.replace(first, f'{first} ".pdp-buy",'))
    assert project.run("dead", "replay", "--reason", "parse").code == 0
    wrong = prices(project)
    assert wrong != shown_prices(3)

    file.write_text(healed)
    assert project.run("heal", "shop", "--undo").code == 0
    assert file.read_text() == before
    project.run("reparse", "--spider", "shop")
    assert prices(project) == wrong  # the old rules find nothing on the new pages, and take nothing away

    assert project.run("heal", "shop", "--undo").code == 0  # exchanges the two files again
    assert file.read_text() == healed
    assert project.run("reparse", "--spider", "shop").code == 0
    assert prices(project) == shown_prices(3)
    sku = next(one for one in stored if stored[one] != shown_prices(3)[one])
    (record,) = project.run("history", sku, "--json").json
    assert Decimal(record["versions"][0]["data"]["price"]["amount"]) == stored[sku]


@pytest.mark.long
def test_a_recipe_is_healed_after_a_redesign_replays_the_archive_and_can_be_put_back(project):
    with served() as port:
        url = f"http://shop.localhost:{port}/"
        project.write("gossamer.toml", '[politeness]\nrate = "unlimited"\n[fetch]\nallow_hosts = ["shop.localhost"]\n')
        file = project.write("spiders/shop.toml", RECIPE.format(url=url))
        assert project.run("crawl", "shop", "--quiet").code == 0
        assert "Nothing is broken" in project.run("heal", "shop").out
    with served(port, redesigned=True, revision=3):
        assert project.run("crawl", "shop", "--quiet").code == 4
    before = file.read_text()
    assert project.run("dead", "list", "--json").raw.count(b'"parse"') >= 15

    said = project.run("heal", "shop", "--json").json
    (kind,) = said["kinds"]
    assert {one["field"]: one["decision"] for one in kind["fields"]} == {
        "sku": "heal", "title": "heal", "price": "heal", "brand": "heal", "rating": "heal"
    }  # fmt: skip
    assert file.read_text() == before

    shown = project.run("heal", "shop", "--write")
    assert "Wrote shop.toml" in shown.out
    text = file.read_text()
    assert "# people's opinion" in text
    assert '{ css = ".facts .price" }' in text  # the old source, behind the new one

    replayed = project.run("dead", "replay", "--reason", "parse")
    assert replayed.code == 0, replayed.out + replayed.err
    assert b'"parse"' not in project.run("dead", "list", "--json").raw
    assert prices(project) == shown_prices(3)  # none of those that are struck out
    with served(port, redesigned=True, revision=3):
        assert project.run("crawl", "shop", "--quiet").code == 0
    assert "Nothing is broken" in project.run("heal", "shop").out

    assert project.run("heal", "shop", "--undo").code == 0
    assert file.read_text() == before


@pytest.mark.long
def test_healed_rules_are_used_from_the_state_mark_their_values_and_are_left_by_one_command(project):
    with served() as port:
        url = f"http://shop.localhost:{port}/"
        project.write("gossamer.toml", '[politeness]\nrate = "unlimited"\n[fetch]\nallow_hosts = ["shop.localhost"]\n')
        file = project.write("spiders/shop.toml", RECIPE.format(url=url))
        assert project.run("crawl", "shop", "--quiet").code == 0
    stored, before = prices(project), file.read_text()
    with served(port, redesigned=True, revision=3):
        assert project.run("crawl", "shop", "--quiet").code == 4

    applied = project.run("heal", "shop", "--apply", "--json")
    assert applied.code == 0, applied.err
    assert applied.json["rules"] == 1
    assert applied.json["settled"] >= 15
    assert applied.json["failed"] == 0
    assert file.read_text() == before
    assert b'"parse"' not in project.run("dead", "list", "--json").raw
    assert project.run("job", "show", "shop-2", "--json").json["outcome"] == "done"
    assert prices(project) == shown_prices(3)
    sku = next(one for one in stored if stored[one] != shown_prices(3).get(one, stored[one]))
    (record,) = project.run("history", sku, "--json").json
    assert [one["healed"].get("price") for one in record["versions"]] == [None, 1]
    assert "by healed rules" in project.run("history", sku).out
    values = [json.loads(line) for line in project.run("heal", "shop", "--values", "--json").lines]
    assert {one["field"] for one in values} == {"sku", "title", "price", "brand", "rating"}
    changed = next(one for one in values if one["key"] == sku and one["field"] == "price")
    assert Decimal(changed["former"]["amount"]) == stored[sku]

    with served(port, redesigned=True, revision=3):  # every process has the rules, and the next run is clean
        assert project.run("crawl", "shop", "--quiet").code == 0
    assert "Version 1 of its healed rules is in use" in project.run("heal", "shop").out
    assert project.run("reparse", "--spider", "shop").code == 0
    assert prices(project) == shown_prices(3)

    undone = project.run("heal", "shop", "--undo")
    assert undone.code == 0, undone.err
    assert "The file alone holds again" in undone.out
    assert {sku: price for sku, price in prices(project).items() if sku in stored} == stored
    assert project.run("heal", "shop", "--values", "--json").lines == []
    assert project.run("heal", "shop", "--undo").code != 0  # nothing is left to undo

    assert project.run("heal", "shop", "--apply").code == 0
    file.write_text(before.replace("# people's opinion", "# opinions"))
    assert "The healed rules have ended" in project.run("heal", "shop").out


SPIDER = """\
from gossamer import Item, Money, Page, Spider


class Ware(Item, key="title"):
    title: str
    sku: str = ""
    price: Money | None = None


class Shop(Spider):
    start_urls = ["{url}category/kitchen"]

    def parse(self, page: Page):
        yield from page.follow_all(".shelf a", self.ware)

    def ware(self, page: Page):
        facts = page.css(".product .facts")
        yield Ware(
            url=page.url,
            sku=facts.css(".sku::text").get(""),
            title=facts.css("h1::text").get(),
            price=Money.parse(facts.css(".price::text").get()),
        )
"""


@pytest.mark.long
def test_a_spider_in_python_gets_a_diff_that_a_person_applies(project):
    with served() as port:
        url = f"http://shop.localhost:{port}/"
        project.write("gossamer.toml", '[politeness]\nrate = "unlimited"\n[fetch]\nallow_hosts = ["shop.localhost"]\n')
        file = project.write("spiders/shop.py", SPIDER.replace("{url}", url))
        assert project.run("crawl", "shop", "--quiet").code == 0
    with served(port, redesigned=True, revision=3):
        assert project.run("crawl", "shop", "--quiet").code == 4
    before = file.read_text()
    found = project.run("heal", "shop", "--json").json
    assert {one["field"] for one in found["fields"] if one["new"]} == {"title", "price"}
    assert {one["field"] for one in found["fields"]} == {"title", "price", "sku"}  # "Item no.: 7" is no text of its own
    assert file.read_text() == before
    assert "--- a/shop.py" in project.run("heal", "shop").out

    (project.folder / "heal.diff").write_text(found["diff"])
    subprocess.run(["patch", "-p1", "spiders/shop.py", "heal.diff"], check=True, cwd=project.folder)
    assert project.run("dead", "replay", "--reason", "parse").code == 0
    assert b'"parse"' not in project.run("dead", "list", "--json").raw
    by_title = {one.name: one.price for one in Catalogue(3).wares if one.category == "kitchen"}
    lines = [json.loads(line) for line in project.run("export", "--no-meta").lines]
    assert {one["title"]: Decimal(one["price"]["amount"]) for one in lines if one["price"]} == {
        one["title"]: by_title[one["title"]] for one in lines if one["price"]
    }


def test_healed_rules_are_not_applied_to_a_spider_in_python(project):
    project.write("gossamer.toml", "")
    project.write("spiders/one.py", "from gossamer import Spider\nclass One(Spider):\n    start_urls = []\n")
    said = project.run("heal", "one", "--apply")
    assert said.code != 0
    assert "only the rules of recipes" in said.err
