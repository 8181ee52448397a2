"""What was held back from the records is asked for in full the next time. The site's own log says what it sent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer import Item, Page, Spider
from gossamer.pipeline.steps import Drop
from gossamer.schedule.sources import parse_source
from gossamer.settings import Settings
from tests.journey.crawling import crawled, settings_for
from tests.journey.test_scheduled_jobs import SPIDER, ran, settings_in
from tests.sites.catalogue import Catalogue, catalogue


class Thing(Item, key="url"):
    price: str


class Things(Spider):
    held: bool = False  # the step drops every item
    currency: str = "EUR"  # an argument

    def __init__(self, site: Catalogue, currency: str = "EUR") -> None:
        self.start_urls = [site.url]
        self.currency = currency
        self.pipeline = (self.hold,)

    def hold(self, item: Any, page: Any) -> Any:
        return Drop("held") if self.held else item

    def parse(self, page: Page) -> Any:
        yield from page.follow_all("a.p", self.thing)

    def thing(self, page: Page) -> Any:
        yield Thing(url=page.url, price=f"{page.css('b::text').get()} {self.currency}")


def local(folder: Path, **flags: Any) -> Settings:
    return settings_for(folder, fetch__allow_hosts=["127.0.0.1"], **flags)


async def price(site: Catalogue, spider: Spider, read: Settings, **options: Any) -> tuple[str, int]:
    """The price of the first product after a run, and what the site answered to it."""
    site.hits.clear()
    after = await crawled(spider, read, **options)
    [record] = [one for one in after.records if one.url.endswith("/p/1")] or [None]
    [status] = [status for path, status in site.hits if path == "/p/1"]
    return (record.data["price"] if record is not None else ""), status


@pytest.mark.parametrize("dated", [False, True])
async def test_a_price_that_changed_inside_the_guard_is_not_old_for_ever(tmp_path: Path, dated: bool) -> None:
    with catalogue(2) as site:
        site.dated = dated
        assert await price(site, Things(site), local(tmp_path)) == ("10 EUR", 200)
        site.prices[1] = 17
        guarded = local(tmp_path, store__min_rewrite_age="1h")
        assert await price(site, Things(site), guarded) == ("10 EUR", 200)
        assert await price(site, Things(site), guarded) == ("10 EUR", 200)
        assert await price(site, Things(site), local(tmp_path)) == ("17 EUR", 200)
        assert await price(site, Things(site), local(tmp_path)) == ("17 EUR", 304)


async def test_an_item_that_a_step_dropped_is_asked_for_again(tmp_path: Path) -> None:
    with catalogue(1) as site:
        spider = Things(site)
        await crawled(spider, local(tmp_path))
        site.prices[1], spider.held = 17, True
        await price(site, spider, local(tmp_path))
        spider.held = False
        assert await price(site, spider, local(tmp_path)) == ("17 EUR", 200)
        assert await price(site, spider, local(tmp_path)) == ("17 EUR", 304)


async def test_what_a_spider_with_other_arguments_has_read_is_asked_for_in_full(tmp_path: Path) -> None:
    with catalogue(1) as site:
        euros, dollars = {"currency": "EUR"}, {"currency": "USD"}
        await crawled(Things(site), local(tmp_path), arguments=euros)
        assert await price(site, Things(site, "USD"), local(tmp_path), arguments=dollars) == ("10 USD", 200)
        assert await price(site, Things(site, "USD"), local(tmp_path), arguments=dollars) == ("10 USD", 304)


def priced(folder: Path, **flags: Any) -> Settings:
    read = settings_in(folder, **flags)
    (folder / "spiders" / "things.py").write_text(SPIDER.replace("h1", "b"), encoding="utf-8")
    return read


async def test_a_page_that_was_held_back_is_not_fresh(tmp_path: Path) -> None:
    with catalogue(2) as site:
        source = msgspec.json.encode(parse_source({"urls": [f"{site.url}p/{{1..2}}"]}, "here")).decode()
        await ran(priced(tmp_path), "daily", source=source)
        site.prices[1] = 17
        site.hits.clear()
        await ran(priced(tmp_path, **{"store.min_rewrite_age": "1h"}), "daily", source=source)
        assert sorted(status for path, status in site.hits if path.startswith("/p/")) == [200, 304]
        site.hits.clear()
        await ran(priced(tmp_path), "daily", source=source, min_age=timedelta(hours=1))
        assert [path for path, _ in site.hits if path.startswith("/p/")] == ["/p/1"]
