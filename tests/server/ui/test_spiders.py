"""Spiders are run with arguments, and selectors are tried, from the dashboard."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gossamer.project.jobs.jobs import show_job

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_the_arguments_that_a_spider_takes_are_named(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/spiders")
    await expect(page.get_by_role("region", name="shop")).to_contain_text("Takes color=, size=.")


async def test_a_spider_is_run_from_the_list(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/spiders")
    card = page.get_by_role("region", name="shop")
    await card.get_by_label("Pages at most").fill("3")
    await card.get_by_role("button", name="Run shop").click()

    await expect(page.get_by_text("has begun")).to_be_visible()
    job = await show_job(screen.project, page.url.rpartition("/")[2])
    assert (job.spider, job.limit) == ("shop", 3)
    assert ("POST /ui/spiders/run", job.id, 303) in await screen.audited()


async def test_an_argument_that_the_spider_does_not_have_is_told(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/spiders")
    await page.get_by_label("Arguments of shop").fill("colour=blue")
    await page.get_by_role("button", name="Run shop").click()
    await expect(page.get_by_text("colour")).to_be_visible()
    await expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    screen.errors.clear()  # the browser tells of the 422


async def test_a_selector_is_tried_on_a_page_that_is_fetched_once(screen: Screen) -> None:
    asked = screen.shop.url
    page = await screen.person("scrape")
    await page.goto("/ui/try")
    await page.get_by_label("Address of a page").fill(asked)
    await page.get_by_label("Selector").fill(".tiles a")
    await page.get_by_role("button", name="Try").click()
    await expect(page.get_by_role("heading", name="matches")).to_be_visible()
    first = page.url

    await page.get_by_label("Selector").fill("title")
    await page.get_by_role("button", name="Try").click()
    await page.wait_for_url(lambda url: url != first)
    await expect(page.get_by_role("heading", name="1 match")).to_be_visible()
    async with screen.client() as client:
        jobs = [job for job in (await client.jobs()).jobs if job.id.startswith("scrape")]
    assert len(jobs) == 1


async def test_a_selector_that_cannot_be_is_told(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/try")
    await page.get_by_label("Address of a page").fill(screen.shop.url)
    await page.get_by_label("Selector").fill("a[[")
    await page.get_by_role("button", name="Try").click()
    await expect(page.locator(".trouble")).to_be_visible()


async def test_a_private_address_is_refused(screen: Screen) -> None:
    page = await screen.person("scrape")
    await page.goto("/ui/try")
    await page.get_by_label("Address of a page").fill("http://127.0.0.1:1/")
    await page.get_by_role("button", name="Try").click()
    await expect(page.get_by_text("is a private or reserved address")).to_be_visible()
    screen.errors.clear()
