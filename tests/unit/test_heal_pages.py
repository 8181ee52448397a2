# ruff: noqa: E501 - markup is easier to read on one line
"""What `heal` finds in the archive of a project: details, lists, changed addresses, half of a site redesigned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.model.healing import EACH
from gossamer.model.item import content_hash
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.parse.page import Page
from gossamer.project.open import Project, open_project
from gossamer.project.spiders.apply import apply
from gossamer.project.spiders.heal import Healing, chosen_fields, find_healing
from gossamer.project.spiders.rules import write_rules
from gossamer.recipe.induction.decision import Decision
from gossamer.recipe.reader import read_recipe
from gossamer.recipe.spider import RecipeSpider, check_page, spider_of
from gossamer.settings import load

SITE = "https://shop.example"
NAMES = ("Anvil", "Bellows", "Chisel", "Drawknife", "Easel", "File", "Gouge", "Hammer", "Inkwell", "Jointer", "Kiln",
         "Lathe", "Mallet", "Nippers", "Oilstone", "Plane", "Quill", "Rasp", "Scraper", "Trowel")  # fmt: skip

LIST = """\
start = "https://shop.example/list"

[pages.shelf]
item = "Tool"
key = "sku"
each = ".old-card"

[pages.shelf.fields]
sku = ".sku"
title = { css = "h3", required = true }
price = { css = ".price", type = "money", currency = "EUR" }
"""
DETAIL = LIST.replace('each = ".old-card"\n', "").replace("[pages.shelf", "[pages.tool").replace("h3", "h1")


def record(number: int, price: int) -> dict[str, Any]:
    return {"sku": f"T-{number:03}", "title": f"{NAMES[number % 20]} {number}",
            "price": {"amount": f"{price}.50", "currency": "EUR"}}  # fmt: skip


def old_card(one: dict[str, Any]) -> str:
    return (f'<div class=old-card><h3>{one["title"]}</h3><i class=sku>{one["sku"]}</i>'
            f'<b class=price>{one["price"]["amount"]} €</b></div>')  # fmt: skip


def new_card(one: dict[str, Any]) -> str:
    amount = one["price"]["amount"].replace(".", ",")
    return (f'<li class="tile x1"><a href="/t/{one["sku"]}"><span class=name>{one["title"]}</span></a>'
            f'<dl><dt>Art.</dt><dd>{one["sku"]}</dd><dt>Price</dt><dd class=cost>{amount} €</dd></dl></li>')  # fmt: skip


def listing(cards: str) -> str:
    return f"<html><body><nav><ul><li>Home</li><li>Cart</li></ul></nav><ul class=grid>{cards}</ul><p>Example</p></body></html>"


def detail(one: dict[str, Any], *, new: bool) -> str:
    if not new:
        return f"<html><body><h1>{one['title']}</h1><i class=sku>{one['sku']}</i><b class=price>{one['price']['amount']} €</b></body></html>"
    return (f'<html><body><h2 class=heading>{one["title"]}</h2><table><tr><th>Article</th><td>{one["sku"]}</td></tr>'
            f'<tr><th>Costs</th><td>{one["price"]["amount"]} €</td></tr></table></body></html>')  # fmt: skip


async def keep(project: Project, url: str, kind: str, text: str, at: float, records: Sequence[dict[str, Any]]) -> None:
    """A visit as a crawl leaves it; without records, one that could not be parsed."""
    headers = Headers([("content-type", "text/html; charset=utf-8")])
    copy = Snapshot(url=url, requested_url=url, status=200, headers=headers, body=text.encode(), fetched_at=at,
                    kind=kind, job="shop-1")  # fmt: skip
    (ref,) = await project.archive.put([copy])
    fingerprint = project.rules.fingerprint(url)
    stored = []
    for data in records:
        line = msgspec.json.encode(data).decode()
        stored.append(Record(type="Tool", site="shop.example", key=data["sku"], url=url, job="shop-1", spider="shop",
                             data=line, content_hash=content_hash(line), scraped_at=at))  # fmt: skip
    facts = PageFacts(fingerprint=fingerprint, url=url, job="shop-1", fetched_at=at, status=200, archive_ref=ref,
                      spider="shop", failure="" if records else "parse")  # fmt: skip
    attempt = Attempt(at=at, job="shop-1", url=url, fingerprint=fingerprint, site="shop.example", worker="w",
                      attempt=1, outcome="done" if records else "dead", reason="" if records else "parse")  # fmt: skip
    await project.records.save([PageResult(attempt=attempt, page=facts, records=tuple(stored))])


def recipe(text: str) -> RecipeSpider:
    return spider_of(read_recipe(text.encode(), "shop.toml"))()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[], Any]:
    (tmp_path / "gossamer.toml").write_text("")
    (tmp_path / "spiders").mkdir()
    return lambda: open_project(load(start=tmp_path))


def decisions(found: Healing) -> dict[str, Decision]:
    return {one.field: one.decision for kind in found.kinds for one in kind.fields}


def items(spider: RecipeSpider, kind: str, text: str) -> list[Any]:
    headers = Headers([("content-type", "text/html; charset=utf-8")])
    page = Page(Snapshot(url=SITE, requested_url=SITE, status=200, headers=headers, body=text.encode(), fetched_at=1.0))
    return list(check_page(spider, kind, page).items)


async def test_a_list_finds_its_blocks_again_by_the_records_in_them(opened, tmp_path):
    spider = recipe(LIST)
    (tmp_path / "spiders" / "shop.toml").write_text(LIST)
    async with opened() as project:
        now = project.clock.now()
        for page in range(4):
            known = [record(page * 10 + n, 20 + n) for n in range(10)]
            await keep(
                project, f"{SITE}/list?p={page}", "shelf", listing("".join(map(old_card, known))), now - 900, known
            )
        for page in range(4):  # two of ten prices have changed, and two tools are new
            shown = [record(page * 10 + n, 20 + n if n > 1 else 70 + n) for n in range(9)] + [record(90 + page, 33)]
            text = listing("".join(map(new_card, shown)))
            await keep(project, f"{SITE}/list?p={page}", "shelf", text, now - 100, [])
        found = await find_healing(project, spider)
        assert decisions(found) == dict.fromkeys((EACH, "sku", "title", "price"), Decision.HEAL)
        settings = project.settings
    file = write_rules(settings, spider, chosen_fields(found), "2027-01-31")
    healed = recipe(file.read_text())
    assert "# each: healed on 2027-01-31" in file.read_text()
    both = listing(new_card(record(5, 44)) + old_card(record(6, 45)))
    assert [(one.sku, str(one.price)) for one in items(healed, "shelf", both)] == [
        ("T-005", "44.50 EUR"), ("T-006", "45.50 EUR")
    ]  # fmt: skip
    applied = await apply(settings, spider, found, chosen_fields(found), by="local")
    assert applied.fields == [EACH, "sku", "title", "price"]


async def test_fields_within_blocks_that_are_still_found(opened):
    spider = recipe(LIST.replace(".old-card", "ul.grid > li"))
    async with opened() as project:
        now = project.clock.now()
        for page in range(3):
            known = [record(page * 8 + n, 20 + n) for n in range(8)]
            await keep(project, f"{SITE}/l/{page}", "shelf", "<p>before", now - 900, known)
            await keep(project, f"{SITE}/l/{page}", "shelf", listing("".join(map(new_card, known))), now - 9, [])
        found = await find_healing(project, spider)
        assert decisions(found) == dict.fromkeys(("sku", "title", "price"), Decision.HEAL)


async def test_a_list_without_records_is_refused(opened):
    spider = recipe(LIST)
    async with opened() as project:
        now = project.clock.now()
        known = [record(n, 20 + n) for n in range(10)]
        await keep(project, f"{SITE}/list", "shelf", listing("".join(map(old_card, known))), now - 900, known)
        wall = "<html><body><h1>Sign in</h1><form><input name=user></form><ul><li>a</li><li>b</li></ul></body></html>"
        await keep(project, f"{SITE}/list", "shelf", wall, now - 9, [])
        found = await find_healing(project, spider)
        assert decisions(found) == {EACH: Decision.REFUSE}
        assert chosen_fields(found, [EACH]) == []


async def test_details_at_other_addresses_are_known_by_their_keys(opened):
    spider = recipe(DETAIL)
    async with opened() as project:
        now = project.clock.now()
        for n in range(20):
            one = record(n, 20 + n)
            await keep(project, f"{SITE}/old/{n}", "tool", detail(one, new=False), now - 900, [one])
            await keep(project, f"{SITE}/new/{n * 7}-x", "tool", detail(one, new=True), now - 9, [])
        found = await find_healing(project, spider)
        assert decisions(found) == dict.fromkeys(("sku", "title", "price"), Decision.HEAL)
        assert found.kinds[0].known == 20


async def test_half_of_a_site_redesigned_keeps_both_rules(opened, tmp_path):
    spider = recipe(DETAIL)
    (tmp_path / "spiders" / "shop.toml").write_text(DETAIL)
    async with opened() as project:
        now = project.clock.now()
        for n in range(24):
            one = record(n, 20 + n)
            await keep(project, f"{SITE}/{n}", "tool", detail(one, new=False), now - 900, [one])
            again = [] if n % 2 else [one]
            await keep(project, f"{SITE}/{n}", "tool", detail(one, new=bool(n % 2)), now - 9, again)
        found = await find_healing(project, spider)
        assert decisions(found) == dict.fromkeys(("sku", "title", "price"), Decision.HEAL)
        assert (found.kinds[0].pages, found.kinds[0].read) == (12, 24)
        file = write_rules(project.settings, spider, chosen_fields(found), "2027-01-31")
    healed = recipe(file.read_text())
    for new in (False, True):
        (one,) = items(healed, "tool", detail(record(3, 77), new=new))
        assert (one.sku, str(one.price)) == ("T-003", "77.50 EUR")


async def test_blocks_of_records_that_are_not_known_are_not_those_of_a_known_brand(opened, tmp_path):
    spider = recipe(LIST.replace("price =", 'brand = ".brand"\nprice ='))

    def tile(one: dict[str, Any]) -> str:
        return new_card(one).replace("</dl>", f"<dt>Brand</dt><dd>{one['brand']}</dd></dl>")

    def tool(number: int) -> dict[str, Any]:
        return {**record(number, 20 + number), "title": f"Tool {number}", "brand": f"Maker {number % 7}"}

    async with opened() as project:
        now = project.clock.now()
        for page in range(4):
            known = [tool(page * 10 + n) for n in range(4)]
            await keep(project, f"{SITE}/list?p={page}", "shelf", "", now - 900, known)
            text = listing("".join(tile(tool(page * 10 + n)) for n in range(10)))
            await keep(project, f"{SITE}/list?p={page}", "shelf", text, now - 100, [])
        found = await find_healing(project, spider)
    assert decisions(found) == dict.fromkeys((EACH, "sku", "title", "brand", "price"), Decision.HEAL)
    assert {one.known for one in found.kinds[0].fields} == {16}
