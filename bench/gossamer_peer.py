"""The bench site crawled with Gossamer: the spider a user would write, run by `gossamer crawl`.

The addresses are not known before the server runs, so they come from the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from gossamer import Item, Page, Spider


class Product(Item, key="url"):
    title: str
    price: str
    description: str
    sku: str


class Shop(Spider):
    start_urls = os.environ["BENCH_START"].split()

    def parse(self, page: Page) -> Iterator[object]:
        yield Product(
            url=page.url,
            title=page.css("h1.product-title::text").get(),
            price=page.css(".price .amount::text").get(),
            description=page.css("#description::text").get(),
            sku=page.css(".sku::text").get(),
        )
        yield from page.follow_all("a")
