"""The demo spider brings home everything that the demo shop has to give, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from gossamer import Money
from gossamer.clock import VirtualClock
from gossamer.demo.catalogue import CURRENCY, Ware
from gossamer.demo.pages import SHELF_WORDS
from gossamer.demo.shop import BROKEN, HEALS_AFTER, USUAL_PORT, Shop, open_shop
from gossamer.demo.spider import DemoShop, Product
from gossamer.errors import ParseFailed
from gossamer.model.item import validate
from gossamer.model.page import Headers, Snapshot
from gossamer.model.task import Request
from gossamer.model.url import UrlRules
from gossamer.parse.callbacks import run_callback
from gossamer.parse.page import Page
from gossamer.settings import DEFAULT_TRACKING


class Walk:
    """The plainest possible crawl: one page after the other, so that spider and shop are tested and nothing else."""

    def __init__(self, shop: Shop) -> None:
        self.products: dict[str, Product] = {}
        self.failed: list[str] = []
        self.statuses: Counter[int] = Counter()
        self._spider = DemoShop()
        self._rules = UrlRules(tracking=DEFAULT_TRACKING)
        self._queue = [Request(url=shop.url)]
        self._seen: set[str] = set()

    async def go(self, session: aiohttp.ClientSession) -> None:
        while self._queue:
            request = self._queue.pop()
            canonical = self._rules.canonical(request.url)
            if canonical not in self._seen:
                self._seen.add(canonical)
                await self._visit(session, request)

    async def _visit(self, session: aiohttp.ClientSession, request: Request) -> None:
        snapshot = await self._fetch(session, request)
        if snapshot.status in (500, 503):
            snapshot = await self._fetch(session, request)
        if snapshot.status == 500:
            snapshot = await self._fetch(session, request)
        if snapshot.status == 301:
            self._queue.append(
                msgspec.structs.replace(request, url=f"{snapshot.url[: -len('/old-catalogue')]}/catalogue")
            )
        if snapshot.status != 200:
            return
        page = Page(snapshot, spider=self._spider)
        parsed = await run_callback(self._spider, request.kind, page)
        self._queue += parsed.requests
        for item in parsed.items:
            assert isinstance(item, Product)
            try:
                validate(item)
            except ParseFailed:
                self.failed.append(request.url)
            else:
                self.products[item.sku] = item

    async def _fetch(self, session: aiohttp.ClientSession, request: Request) -> Snapshot:
        parts = urlsplit(request.url)
        target = f"http://127.0.0.1:{parts.port}{parts.path}{'?' if parts.query else ''}{parts.query}"
        async with session.get(target, headers={"Host": parts.netloc}, allow_redirects=False) as answer:
            self.statuses[answer.status] += 1
            return Snapshot(
                url=request.url,
                requested_url=request.url,
                status=answer.status,
                headers=Headers(tuple(answer.headers.items())),
                body=await answer.read(),
                fetched_at=0.0,
                kind=request.kind,
            )


class HurriedClock(VirtualClock):
    """Whoever sleeps on it wakes at once."""

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


def expected(ware: Ware) -> Mapping[str, Any]:
    return {
        "title": ware.name,
        "brand": ware.brand,
        "availability": SHELF_WORDS[ware.availability],
        "price": Money(ware.price, CURRENCY) if ware.price is not None else None,
        "rating": float(ware.rating) if ware.rating is not None else None,
        "reviews": ware.reviews,
    }


async def test_the_spider_finds_every_readable_product_and_reads_it_right() -> None:
    async with open_shop(clock=HurriedClock()) as shop, aiohttp.ClientSession() as session:
        walk = Walk(shop)
        await walk.go(session)

    found = {
        sku: {name: getattr(product, name) for name in expected(shop.catalogue.wares[0])}
        for sku, product in walk.products.items()
    }
    readable = [ware for ware in (*shop.catalogue.wares, *shop.catalogue.outlet) if ware.sku != BROKEN]
    assert found == {ware.sku: expected(ware) for ware in readable}
    assert len(found) == 299 + 4
    assert [url.lower().endswith(BROKEN.lower()) for url in walk.failed] == [True]
    assert walk.statuses[404] == 6
    assert walk.statuses[500] == sum(HEALS_AFTER.values())
    assert (walk.statuses[503], walk.statuses[301]) == (1, 1)


def test_the_spider_starts_where_the_shop_usually_is() -> None:
    assert DemoShop.start_urls == [f"http://shop.localhost:{USUAL_PORT}/"]
    assert DemoShop.name == "demo-shop"
