"""A mix of 200 domains: the learned router beside "always the dearest route", in pages and in credits."""

from __future__ import annotations

import pytest

from gossamer.model.events import Fetched
from tests.browser.conftest import chromium as chromium

from .crawling import crawled, look
from .routing import Offers, roads

pytestmark = pytest.mark.long

PAGES = 5
MIX = {"open": 146, "direct-shy": 20, "datacenter-shy": 12, "script": 8, "counting:3:2": 8, "fortress": 6}


def domains() -> dict[str, str]:
    kinds = [kind for kind, share in MIX.items() for _ in range(share)]
    return {f"site{number:03}.localhost": kind for number, kind in enumerate(kinds)}


async def test_the_learned_router_gets_the_pages_of_the_dearest_route_at_a_fifth_of_its_price(tmp_path, chromium):
    sites = domains()
    assert len(sites) == 200
    with roads(sites, "datacenter", "residential", "browser", "api", pages=PAGES, datacenter=4) as way:
        # given what the dearest route gets, for every page of every site
        dearest = tmp_path / "dearest"
        dearest.mkdir()
        read = way.settings(dearest, more='[router]\nladder = ["api"]')
        best = await crawled(Offers(way.world.urls()), read)
        best_cost = sum(event.cost for event in best.heard.of(Fetched))
        assert len(best.records) == 200 * PAGES

        # when the router chooses
        learned = tmp_path / "learned"
        learned.mkdir()
        read = way.settings(learned, retry__max_attempts=5, retry__base="200ms", retry__cap="2s")
        left = await crawled(Offers(way.world.urls()), read)
        cost = sum(one.cost for one in await all_attempts(read, way.world.urls()))

        # then it gets almost all of them, all true, for little
        truth = way.world.truth()
        assert {record.key for record in left.records} <= set(truth)
        assert len(left.records) >= 0.95 * len(best.records)
        assert cost <= 0.20 * best_cost, f"{cost:.0f} of {best_cost:.0f} credits"
        left.assert_adds_up()


async def all_attempts(read, urls):
    async def ask(system):
        return [one for url in urls for one in await system.records.attempts(system.rules.fingerprint(url))]

    return await look(read, ask)
