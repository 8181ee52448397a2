"""Everything is found from the head of every page; the manual of the API needs no key; charts are read together."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from gossamer.frontier.queue_values import DeadFilter
from gossamer.store.contract import RecordQuery

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_the_search_finds_what_the_project_has_by_name_address_and_key(screen: Screen) -> None:
    job = await screen.crawl(limit=5)
    await screen.crawl()
    (letter,) = await screen.project.state.queue.dead(DeadFilter(), 1)
    async with screen.client() as client:
        kinds = [(hit["kind"], hit["name"]) for hit in await client.call("get_search", q="shop")]
        assert ("spider", "shop") in kinds
        assert ("site", "shop.localhost") in kinds
        assert any(kind == "job" for kind, _ in kinds)
        hits = await client.call("get_search", q=letter.url)
        assert [hit["kind"] for hit in hits][:2] == ["page", "dead letter"]
        loud = letter.url.replace("http://shop.localhost", "HTTP://SHOP.localhost")
        assert [hit["name"] for hit in await client.call("get_search", q=loud)][:2] == [letter.url] * 2
        record = await anext(screen.project.records.records(RecordQuery()))
        assert record.key in [hit["name"] for hit in await client.call("get_search", q=record.key)]
        assert await client.call("get_search", q="https://nowhere.example/") == []

    page = await screen.person()
    await page.goto("/ui/settings")
    await page.keyboard.press("/")
    await page.keyboard.type(job)
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name=job).click()
    await page.wait_for_url(f"**/ui/jobs/{job}")


async def test_the_manual_of_the_api_shows_every_endpoint_without_key_or_script(screen: Screen) -> None:
    page = await screen.guest(java_script_enabled=False)
    await page.goto("/docs")
    document = (await screen.served.http.get("/openapi.json")).json()
    count = sum(len(methods) for methods in document["paths"].values())
    await expect(page.locator(".manual details")).to_have_count(count)
    scrape = page.locator("#post_scrape")
    await scrape.locator("summary").click()
    await expect(scrape.get_by_role("row", name="url *").first).to_contain_text("text, length at most 2,083")
    await expect(scrape).to_contain_text("Scope: scrape.")


async def test_a_moment_is_marked_on_every_chart_and_a_part_of_the_time_is_chosen_by_dragging(screen: Screen) -> None:
    await screen.crawl(limit=5)
    page = await screen.person(viewport={"width": 1440, "height": 1600})
    await page.goto("/ui/overview?range=day")
    charts = page.locator("svg.chart")
    shown = await charts.count()
    assert shown >= 4
    hits = charts.first.locator(".hit")
    await hits.nth(100).hover()
    await expect(page.locator("line.cross")).to_have_count(shown)
    begin, end = [await hits.nth(n).bounding_box() for n in (100, 120)]
    assert begin is not None
    assert end is not None
    await page.mouse.move(begin["x"] + 1, begin["y"] + 40)
    await page.mouse.down()
    await page.mouse.move(end["x"] + 1, end["y"] + 40)
    await expect(page.locator("rect.chosen")).to_have_count(1)
    await page.mouse.up()
    await page.wait_for_url(re.compile(r"since=\d+&until=\d+"))
    await expect(page.get_by_role("link", name="All of the last day")).to_be_visible()
    await page.get_by_role("link", name="All of the last day").click()
    await expect(page.get_by_role("heading", name="The last day")).to_be_visible()
