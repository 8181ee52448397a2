"""The demo shop keeps every promise of its docstring: each oddity, over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
import pytest

from gossamer.clock import Clock, VirtualClock
from gossamer.demo import shop as demo
from gossamer.demo.catalogue import CATEGORIES, Catalogue, Ware
from gossamer.demo.shop import Shop, open_shop
from gossamer.errors import Misconfigured
from gossamer.model.url import UrlRules
from gossamer.settings import DEFAULT_TRACKING


class Answer(msgspec.Struct, frozen=True):
    status: int
    text: str
    headers: Mapping[str, str]

    def links(self, pattern: str = "") -> list[str]:
        return [
            unescape(href) for href in re.findall(r'<a [^>]*?href="([^"]*)"', self.text) if re.search(pattern, href)
        ]


class Customer:
    """A plain client: no redirects, dials loopback, names the host it means."""

    def __init__(self, shop: Shop, session: aiohttp.ClientSession) -> None:
        self.shop = shop
        self._session = session

    async def get(self, address: str, **headers: str) -> Answer:
        """`address` is a path of the shop or a whole URL. Header names are written with underscores."""
        parts = urlsplit(address if "://" in address else f"{self.shop.url.rstrip('/')}{address}")
        target = f"http://127.0.0.1:{parts.port}{parts.path}{'?' if parts.query else ''}{parts.query}"
        sent = {name.replace("_", "-"): value for name, value in headers.items()} | {"Host": parts.netloc}
        async with self._session.get(target, headers=sent, allow_redirects=False) as answer:
            return Answer(answer.status, await answer.text(), answer.headers)

    def ware(self, sku: str) -> Ware:
        return next(ware for ware in (*self.shop.catalogue.wares, *self.shop.catalogue.outlet) if ware.sku == sku)


@asynccontextmanager
async def shopping(revision: int = 1, clock: Clock | None = None) -> AsyncIterator[Customer]:
    async with open_shop(revision=revision, clock=clock) as shop, aiohttp.ClientSession() as session:
        yield Customer(shop, session)


def json_ld(page: Answer) -> dict[str, Any]:
    match = re.search(r'<script type="application/ld\+json">(.*?)</script>', page.text)
    assert match, "no JSON-LD on the page"
    data: dict[str, Any] = json.loads(match[1])
    return data


async def test_listings_and_next_links_lead_to_all_300_products() -> None:
    async with shopping() as customer:
        found: set[str] = set()
        listings = 0
        path: str | None = "/catalogue"
        while path:
            page = await customer.get(path)
            shown = re.findall(r'<li class="card[^"]*"><a href="([^"]+)"', page.text)
            assert len(shown) == 20
            found |= {unescape(href) for href in shown}
            listings += 1
            onward = re.search(r'class="next" href="([^"]+)"', page.text)
            path = unescape(onward[1]) if onward else None

        assert listings == 15
        assert found == {ware.href for ware in customer.shop.catalogue.wares}
        assert len(found) == 300


async def test_the_home_page_leads_to_every_category_and_to_the_outlet() -> None:
    async with shopping() as customer:
        links = (await customer.get("/")).links()
    assert {f"/category/{category.slug}" for category in CATEGORIES} <= set(links)
    assert customer.shop.outlet_url in links


async def test_a_page_number_that_does_not_exist_is_404() -> None:
    async with shopping() as customer:
        answers = [await customer.get(f"/catalogue?page={page}") for page in ("16", "0", "-1", "x", "²", "9" * 5000)]
    assert [answer.status for answer in answers] == [404] * 6


async def test_a_product_page_says_the_same_in_markup_and_in_json_ld() -> None:
    async with shopping() as customer:
        rated = next(ware for ware in customer.shop.catalogue.wares if ware.rating and ware.price)
        page = await customer.get(rated.href)
    data = json_ld(page)
    assert (data["name"], data["sku"], data["brand"]["name"]) == (rated.name, rated.sku, rated.brand)
    assert (Decimal(data["offers"]["price"]), data["offers"]["priceCurrency"]) == (rated.price, "EUR")
    assert data["offers"]["availability"] == f"https://schema.org/{rated.availability}"
    assert Decimal(data["aggregateRating"]["ratingValue"]) == rated.rating
    assert data["aggregateRating"]["reviewCount"] == rated.reviews
    for visible in (f">{rated.name}</h1>", f">€{rated.price:,.2f}</span>", f">{rated.sku}</td>", f">{rated.rating}</"):
        assert visible in page.text


async def test_robots_closes_the_staff_door_and_the_cart_and_names_the_sitemap() -> None:
    async with shopping() as customer:
        robots = (await customer.get("/robots.txt")).text.splitlines()
        home = await customer.get("/")
        sitemap = await customer.get(f"{customer.shop.url}sitemap.xml")
    assert {"Disallow: /admin/", "Disallow: /cart", f"Sitemap: {customer.shop.url}sitemap.xml"} <= set(robots)
    assert {"/admin/", "/cart"} <= set(home.links())
    listed = {unescape(loc) for loc in re.findall("<loc>([^<]+)</loc>", sitemap.text)}
    assert {f"{customer.shop.url.rstrip('/')}{ware.href}" for ware in customer.shop.catalogue.wares} < listed
    assert len(listed) == 300 + len(CATEGORIES) + 1


async def test_the_outlet_is_another_host_on_the_same_port_with_its_own_crawl_delay() -> None:
    async with shopping() as customer:
        outlet = customer.shop.outlet_url
        front = await customer.get(outlet)
        robots = (await customer.get(f"{outlet}robots.txt")).text
        pages = [await customer.get(f"{outlet.rstrip('/')}{href}") for href in front.links("/product/")]
        elsewhere = await customer.get(front.links("/product/")[0])
    assert "Crawl-delay: 1" in robots.splitlines()
    assert [json_ld(page)["sku"] for page in pages] == ["OUT-001", "OUT-002", "OUT-003", "OUT-004"]
    assert elsewhere.status == 404
    assert customer.shop.url in front.links()


async def test_every_category_ends_with_a_link_to_nothing() -> None:
    async with shopping() as customer:
        gone = []
        for category in CATEGORIES:
            last = await customer.get(f"/category/{category.slug}?page=3")
            gone += last.links("-000$")
        answers = [await customer.get(href) for href in gone]
    assert len(set(gone)) == len(CATEGORIES)
    assert [answer.status for answer in answers] == [404] * len(CATEGORIES)


@pytest.mark.parametrize(("sku", "failures"), demo.HEALS_AFTER.items())
async def test_some_products_fail_at_first_and_heal(sku: str, failures: int) -> None:
    async with shopping() as customer:
        tries = [await customer.get(customer.ware(sku).href) for _ in range(failures + 2)]
    assert [answer.status for answer in tries] == [500] * failures + [200, 200]


async def test_one_product_asks_for_a_second_of_rest() -> None:
    async with shopping() as customer:
        first, second = [await customer.get(customer.ware(demo.RESTS).href) for _ in range(2)]
    assert (first.status, first.headers["Retry-After"], second.status) == (503, "1", 200)


async def test_one_page_answers_only_after_a_second_and_a_half() -> None:
    clock = ObservedClock()
    async with shopping(clock=clock) as customer:
        answer = asyncio.ensure_future(customer.get(customer.ware(demo.SLOW).href))
        assert await clock.asked.get() == 1.5
        await customer.get("/")  # the others are served meanwhile
        assert not answer.done()

        clock.advance(1.5)
        assert (await answer).status == 200


class ObservedClock(VirtualClock):
    """Tells when somebody went to sleep on it, and for how long."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: asyncio.Queue[float] = asyncio.Queue()

    async def sleep(self, seconds: float) -> None:
        self.asked.put_nowait(seconds)
        await super().sleep(seconds)


async def test_the_old_catalogue_redirects_to_the_new_one() -> None:
    async with shopping() as customer:
        answer = await customer.get("/old-catalogue")
        home = await customer.get("/")
    assert (answer.status, answer.headers["Location"]) == (301, "/catalogue")
    assert "/old-catalogue" in home.links()


async def test_one_product_is_linked_under_three_addresses_that_are_the_same_page() -> None:
    rules = UrlRules(tracking=DEFAULT_TRACKING)
    async with shopping() as customer:
        written = (await customer.get("/")).links("/product/")
        pages = [await customer.get(link) for link in written]
    assert len(set(written)) == 3
    assert any("utm_source" in link for link in written)
    assert any("#" in link for link in written)
    assert len({rules.canonical(f"{customer.shop.url.rstrip('/')}{link}") for link in written}) == 1
    assert len({page.text for page in pages}) == 1


async def test_one_product_page_has_lost_its_product() -> None:
    async with shopping() as customer:
        page = await customer.get(customer.ware(demo.BROKEN).href)
    assert page.status == 200
    for lost in ('class="title"', 'class="price"', 'class="sku"', "ld+json"):
        assert lost not in page.text


@pytest.mark.parametrize("path", ["/", "/catalogue?page=2", "/category/kitchen", "product"])
async def test_every_page_answers_304_while_it_is_unchanged(path: str) -> None:
    async with shopping() as customer:
        path = customer.shop.catalogue.wares[0].href if path == "product" else path
        first = await customer.get(path)
        by_tag = await customer.get(path, If_None_Match=first.headers["ETag"])
        by_date = await customer.get(path, If_Modified_Since=first.headers["Last-Modified"])
        stale_tag = await customer.get(path, If_None_Match='"old"', If_Modified_Since=first.headers["Last-Modified"])
        stale_date = await customer.get(path, If_Modified_Since="Thu, 01 Jan 2026 00:00:00 GMT")
    assert (by_tag.status, by_tag.text, by_tag.headers["ETag"]) == (304, "", first.headers["ETag"])
    assert (by_date.status, stale_tag.status, stale_date.status) == (304, 200, 200)


async def test_a_later_revision_changes_some_prices_and_their_validators() -> None:
    async with shopping() as customer:
        before = customer.shop.catalogue
        changed = next(w for w in before.wares if w.price != Catalogue(2).find(w.slug).price)  # type: ignore[union-attr]
        first = await customer.get(changed.href)
    async with shopping(revision=2) as customer:
        headers = {"If_None_Match": first.headers["ETag"]}
        second = await customer.get(changed.href, **headers)
        by_date = await customer.get(changed.href, If_Modified_Since=first.headers["Last-Modified"])
    assert (second.status, by_date.status) == (200, 200)
    assert json_ld(first)["offers"]["price"] != json_ld(second)["offers"]["price"]

    after = Catalogue(2)
    moved = [old.sku for old, new in zip(before.wares, after.wares, strict=True) if old.price != new.price]
    assert 15 <= len(moved) <= 75
    assert [ware.href for ware in before.wares] == [ware.href for ware in after.wares]
    assert Catalogue(2).wares == after.wares


async def test_a_taken_port_is_refused_with_the_next_step() -> None:
    async with open_shop() as shop:
        with pytest.raises(Misconfigured, match=rf"Port {shop.port} is already in use. Choose another with --port"):
            async with open_shop(port=shop.port):
                pass


async def test_where_no_port_is_named_the_shop_takes_the_usual_one_or_a_free_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with open_shop() as elsewhere:
        usual = elsewhere.port
    monkeypatch.setattr("gossamer.demo.shop.USUAL_PORT", usual)
    async with open_shop(port=None) as first, open_shop(port=None) as second:
        assert first.port == usual
        assert second.port != usual


@pytest.mark.parametrize("port", [-1, 70_000])
async def test_an_impossible_port_is_refused(port: int) -> None:
    with pytest.raises(Misconfigured, match="Choose another"):
        async with open_shop(port=port):
            pass


async def test_revision_zero_is_refused() -> None:
    with pytest.raises(Misconfigured, match="the first one is 1"):
        async with open_shop(revision=0):
            pass
