"""The boards in the browser: what needs attention is seen first, and leads to the run."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.unit.test_boards import fill

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_a_run_is_a_square_that_leads_to_it(screen: Screen) -> None:
    job = await screen.crawl(limit=3)
    page = await screen.person()
    await page.goto("/ui/boards/spiders")
    row = page.get_by_role("row", name="shop")
    await expect(row.locator(".square").last).to_have_attribute("title", re.compile(f"{job}: done, 3 pages, "))
    await row.locator(".square").last.click()
    await page.wait_for_url(f"**/ui/jobs/{job}")

    await page.goto("/ui/boards/sites?sort=name")
    await expect(page.locator("#connection")).to_have_text("Live")
    await expect(page.get_by_role("row", name="shop.localhost").locator(".square.ok").last).to_be_visible()


async def test_a_board_is_filtered_and_sorted_without_a_script(screen: Screen) -> None:
    await fill(screen.project, 60)
    page = await screen.person(java_script_enabled=False)
    await page.goto("/ui/boards/sites")
    await expect(page.locator("tbody tr").first).to_contain_text("failed")
    await page.get_by_label("State").select_option("failing")
    await page.get_by_role("button", name="Show").click()
    await expect(page.locator("tbody tr")).to_have_count(12)
    await page.get_by_role("link", name="Records").last.click()
    await expect(page.locator("tbody tr").first).to_contain_text("site-55.example")


async def test_a_board_by_an_unknown_column_says_so(screen: Screen) -> None:
    page = await screen.person()
    answer = await page.goto("/ui/boards/sites?sort=colour")
    assert answer is not None
    assert answer.status == 422
    await expect(page.get_by_text("cannot be sorted by colour")).to_be_visible()
    screen.errors.clear()  # the browser tells of the 422
