"""From pages to data one can trust: a layout that changes, records that vanish, parsers that are mended. The site's own
log says what was asked of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.journey.commands import QUICK, Said, gossamer
from tests.sites.moving import MovingShop, moving_shop

pytestmark = pytest.mark.long

WITH_WARNINGS, EMPTY, HELD_BACK = 3, 4, 5  # exit codes of crawls

SPIDER = """
from gossamer import Item, Money, Page, Spider

class Thing(Item, key="url"):
    title: str
    price: Money | None = None

class Shop(Spider):
    start_urls = ["{url}"]
    min_quality = {minimum}
    concurrency = 4

    def parse(self, page: Page):
        yield from page.follow_all("li a", self.thing)

    def thing(self, page: Page):
        yield Thing(
            url=page.url,
            title=page.css("{title}::text").get(""),
            price=Money.parse(page.css("{price}::text").get()),
        )
"""


def project(folder: Path, shop: MovingShop, *, title: str = "h1", price: str = ".price", minimum: str = "0.8") -> None:
    toml = QUICK.replace("[fetch]", '[fetch]\nallow_hosts = ["127.0.0.1"]')
    (folder / "gossamer.toml").write_text(toml, encoding="utf-8")
    (folder / "spiders").mkdir(exist_ok=True)
    text = SPIDER.format(url=shop.url, minimum=minimum, title=title, price=price)
    (folder / "spiders" / "shop.py").write_text(text, encoding="utf-8")


async def records(folder: Path, *flags: str) -> list[dict[str, Any]]:
    said = await gossamer(folder, "export", "--format", "jsonl", *flags)
    return sorted((json.loads(line) for line in said.out.splitlines()), key=lambda one: str(one["url"]))


def data_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in one.items() if name != "_meta"} for one in found]


async def well(folder: Path, *words: str, code: int = 0) -> Said:
    said = await gossamer(folder, *words)
    assert said.code == code, said
    return said


async def test_a_changed_layout_closes_the_store_and_everything_is_recovered_without_a_request(tmp_path: Path) -> None:
    broken, fresh = tmp_path / "broken", tmp_path / "fresh"
    broken.mkdir()
    fresh.mkdir()
    with moving_shop(120, change_after=60) as shop:
        # A title that may be empty: nothing fails outright, the records just get worse.
        project(broken, shop)
        lenient = (broken / "spiders" / "shop.py").read_text().replace("title: str\n", 'title: str = ""\n')
        (broken / "spiders" / "shop.py").write_text(lenient, encoding="utf-8")

        crawl = await well(broken, "crawl", "shop", code=HELD_BACK)
        assert "Nothing more is stored" in crawl.err
        waiting = json.loads((await well(broken, "dead", "list", "--json")).out)["by_reason"]
        assert set(waiting) == {"quality"}
        assert 20 < waiting["quality"] <= 60
        spoilt = [one for one in await records(broken) if not one["title"]]
        assert len(spoilt) + waiting["quality"] == 60
        leaked = json.loads((await well(broken, "quality", "--faulty", "--json")).out)
        assert sorted(one["url"] for one in leaked) == [one["url"] for one in spoilt]
        scores = json.loads((await well(broken, "quality", "shop", "--json")).out)
        [title] = [one for one in scores if one["field"] == "title"]
        assert title["faulty"] == 60
        assert title["score"] == 0.5
        asked = len(shop.hits)

        mended = lenient.replace("h1::text", "h1::text, h2::text").replace(".price::text", ".price::text, #cost::text")
        (broken / "spiders" / "shop.py").write_text(mended, encoding="utf-8")
        replay = await well(broken, "dead", "replay", "--reason", "quality")
        assert f"{waiting['quality']} pages parsed again from the archive" in replay.out
        await well(broken, "reparse", "--spider", "shop")
        assert json.loads((await well(broken, "quality", "--faulty", "--json")).out) == []

        assert len(shop.hits) == asked
        assert json.loads((await well(broken, "dead", "list", "--json")).out)["total"] == 0
        status = json.loads((await well(broken, "status", "shop", "--json")).out)
        assert status["adds_up"], status

        project(fresh, shop, title="h1, h2", price=".price, #cost")
        (fresh / "spiders" / "shop.py").write_text(mended, encoding="utf-8")
        await well(fresh, "crawl", "shop")
        assert data_of(await records(broken)) == data_of(await records(fresh))
        assert len(await records(broken)) == 120


async def test_required_fields_that_vanish_are_parse_failures_that_are_parsed_again_from_the_archive(
    tmp_path: Path,
) -> None:
    with moving_shop(30, change_after=20) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop", code=WITH_WARNINGS)
        letters = json.loads((await well(tmp_path, "dead", "list", "--json")).out)
        assert letters["by_reason"] == {"parse": 10}
        assert "Parser version" in letters["dead_letters"][0]["message"]
        asked = len(shop.hits)

        still = await gossamer(tmp_path, "dead", "replay", "--reason", "parse")
        assert still.code == 1
        assert "10 pages failed again" in still.out
        project(tmp_path, shop, title="h1, h2", price=".price, #cost")
        replay = await well(tmp_path, "dead", "replay", "--reason", "parse")

        assert "10 pages parsed again from the archive, without a request: 10 records, 10 new" in replay.out
        assert len(shop.hits) == asked
        assert len(await records(tmp_path)) == 30
        assert all(one["price"] for one in await records(tmp_path))


async def test_what_a_full_crawl_does_not_find_is_gone_and_may_come_back(tmp_path: Path) -> None:
    with moving_shop(6) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop")
        shop.sold_out = {2}
        shop.missing = {3}
        second = await well(tmp_path, "crawl", "shop")
        assert "2 are gone" in second.err

        assert [one["url"][-1] for one in await records(tmp_path)] == ["1", "4", "5", "6"]
        everything = await records(tmp_path, "--gone")
        gone = {one["url"][-1]: one["_meta"]["gone_since"] for one in everything if one["_meta"].get("gone_since")}
        assert set(gone) == {"2", "3"}
        diff = await well(tmp_path, "diff", "shop-1", "shop-2")
        assert "0 added, 0 changed, 2 gone" in diff.out.splitlines()

        shop.sold_out = set()
        shop.missing = set()
        await well(tmp_path, "crawl", "shop")
        assert len(await records(tmp_path)) == 6
        history = json.loads((await well(tmp_path, "history", f"{shop.url}p/2", "--json")).out)
        assert [(one["version"], one["gone"], one["job"]) for one in history[0]["versions"]] == [
            (1, False, "shop-1"),
            (2, True, "shop-2"),
            (3, False, "shop-3"),
        ]


async def test_a_crawl_that_left_pages_out_speaks_only_for_those_it_saw(tmp_path: Path) -> None:
    with moving_shop(6) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop")
        shop.sold_out = {1, 2, 3}
        await well(tmp_path, "crawl", "shop", "--limit", "2")
        assert len(await records(tmp_path)) == 6
        await well(tmp_path, "crawl", "shop", "--depth", "0", code=EMPTY)
        assert len(await records(tmp_path)) == 6


async def test_a_changed_parser_is_tried_first_and_then_makes_new_versions_without_a_request(tmp_path: Path) -> None:
    with moving_shop(40) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop")
        asked = len(shop.hits)
        before = await records(tmp_path)
        nothing = await well(tmp_path, "reparse", "--dry-run")
        assert "0 would be new or changed" in nothing.out

        project(tmp_path, shop, title=".made")
        dry = await well(tmp_path, "reparse", "--dry-run", "--json")
        changes = [json.loads(line) for line in dry.out.splitlines()]
        assert len(changes) == 40
        assert changes[0]["kind"] == "changed"
        assert [one["field"] for one in changes[0]["fields"]] == ["title"]
        assert await records(tmp_path) == before

        await well(tmp_path, "reparse", "--spider", "shop", "--since", "1h")
        after = await records(tmp_path)
        assert {one["title"] for one in after} == {"by hand"}
        assert {one["_meta"]["version"] for one in after} == {2}
        assert len(shop.hits) == asked
        again = await well(tmp_path, "reparse")
        assert "0 new or changed" in again.out
        assert await records(tmp_path) == after


async def test_a_reparse_survives_pages_that_kill_or_hang_their_process(tmp_path: Path) -> None:
    with moving_shop(20) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop")
        spider = tmp_path / "spiders" / "shop.py"
        poison = "\n        if page.url.endswith('/p/7'):\n            import os; os._exit(3)\n        yield Thing("
        spider.write_text(spider.read_text().replace("\n        yield Thing(", poison).replace("h1", ".made"))

        said = await well(tmp_path, "reparse")

        assert "1 could not be parsed" in said.out
        assert "/p/7: the process that parsed it ended with exit code 3" in said.err
        titles = [one["title"] for one in await records(tmp_path)]
        assert titles.count("by hand") == 19
        assert titles.count("Thing 7") == 1


async def test_a_reparse_says_what_is_wrong(tmp_path: Path) -> None:
    with moving_shop(2) as shop:
        project(tmp_path, shop)
        await well(tmp_path, "crawl", "shop")
        (tmp_path / "spiders" / "shop.py").rename(tmp_path / "elsewhere.py")
        missing = await gossamer(tmp_path, "reparse")
        assert missing.code == 1
        assert "no spider 'shop' is here" in missing.err
        await well(tmp_path, "reparse", "--spider", "elsewhere.py")
        assert "There is no spider 'nobody'" in (await gossamer(tmp_path, "reparse", "--spider", "nobody")).one_line()
        assert "is not a time" in (await gossamer(tmp_path, "reparse", "--since", "yesterdayish")).one_line()
        broken = tmp_path / "spiders" / "shop.py"
        broken.write_text("def broken(:\n")
        assert "syntax error" in (await gossamer(tmp_path, "reparse", "--spider", "spiders/shop.py")).one_line()


async def test_pages_that_were_held_back_stay_so_until_the_spider_is_mended(tmp_path: Path) -> None:
    with moving_shop(120, change_after=60) as shop:
        project(tmp_path, shop, title="h1, h2")  # the title is found, the price is not
        await well(tmp_path, "crawl", "shop", code=HELD_BACK)
        waiting = json.loads((await well(tmp_path, "dead", "list", "--json")).out)["by_reason"]["quality"]
        stored = len(await records(tmp_path))

        again = await gossamer(tmp_path, "dead", "replay", "--reason", "quality")
        assert again.code == 1
        assert f"{waiting} pages failed again" in again.out
        assert "as faulty as before" in again.err
        await well(tmp_path, "reparse")
        assert len(await records(tmp_path)) == stored

        project(tmp_path, shop, title="h1, h2", price=".price, #cost")
        await well(tmp_path, "dead", "replay", "--reason", "quality")
        assert len(await records(tmp_path)) == 120
