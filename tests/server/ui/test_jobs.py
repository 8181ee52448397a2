"""Jobs in the dashboard: listed, searched, followed while they run, paused, resumed, cancelled, run again."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gossamer.project.jobs import show_job

from .screen import Screen, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_job_is_found_in_the_list_and_its_page_adds_up(screen: Screen) -> None:
    job = await screen.crawl(limit=30)
    page = await screen.person()
    await page.goto("/ui/jobs?q=shop")
    await page.get_by_role("link", name=job).click()

    view = await show_job(screen.project, job)
    await expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    table = page.locator("section", has_text="How it adds up").locator("tr")
    rows = {
        await row.locator("th").inner_text(): int((await row.locator("td").inner_text()).replace(",", ""))
        for row in await table.all()
    }
    found = rows.pop("links found")
    assert found == sum(rows.values())
    assert (rows["done"], rows["given up"]) == (view.done, view.dead)
    assert await page.get_by_text("Run again").is_visible()


async def test_filters_stand_in_the_address_and_an_empty_list_says_what_to_do(screen: Screen) -> None:
    await screen.crawl(limit=3)
    page = await screen.person()
    await page.goto("/ui/jobs")
    await page.get_by_label("Search").fill("nothing-like-this")
    await page.get_by_role("button", name="Show").click()

    await expect(page.get_by_text("No job is like that.")).to_be_visible()
    assert "q=nothing-like-this" in page.url
    await page.get_by_role("link", name="Show all jobs").click()
    await expect(page.get_by_role("row")).not_to_have_count(0)


async def test_a_running_job_is_paused_resumed_and_cancelled_and_the_page_follows_it(screen: Screen) -> None:
    async with screen.client() as client:
        begun = (await client.crawl(url="http://shop.localhost:9/")).job_id  # nobody listens there: it goes on trying
        await client.pause(begun)
    page = await screen.person()
    await page.goto(f"/ui/jobs/{begun}")

    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("status").filter(has_text=f"{begun} is going on")).to_be_visible()
    assert not (await show_job(screen.project, begun)).paused

    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert (await show_job(screen.project, begun)).paused

    await page.get_by_role("button", name="Cancel").click()
    await expect(page.get_by_role("heading", name="Are you sure?")).to_be_visible()
    assert not (await show_job(screen.project, begun)).finished, "a question changes nothing"
    await page.get_by_role("link", name="No, go back").click()
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel the job").click()
    await expect(page.get_by_text(f"{begun} is cancelled")).to_be_visible()
    assert (await show_job(screen.project, begun)).state == "cancelled"
    done = [(action, target) for action, target, _ in await screen.audited() if f"/ui/jobs/{begun}" in action]
    assert done == [(f"POST /ui/jobs/{begun}/{verb}", begun) for verb in ("cancel", "pause", "resume")]


async def test_a_job_is_run_again_with_its_spider_and_limit(screen: Screen) -> None:
    job = await screen.crawl(limit=4)
    page = await screen.person()
    await page.goto(f"/ui/jobs/{job}")
    await page.get_by_role("button", name="Run again").click()

    await expect(page.get_by_role("status").filter(has_text="has begun")).to_be_visible()
    again = page.url.rpartition("/")[2]
    assert again != job
    view = await show_job(screen.project, again)
    assert (view.spider, view.limit) == ("shop", 4)


async def test_the_page_of_a_job_moves_by_itself_and_keeps_what_is_open(screen: Screen) -> None:
    page = await screen.person()
    async with screen.client() as client:
        job = (await client.crawl(url="http://shop.localhost:9/")).job_id
    await page.goto("/ui/jobs?state=running")
    await expect(page.get_by_role("row", name=job)).to_be_visible()
    await page.get_by_label("Search").fill("half a wor")
    async with screen.client() as client:
        await client.cancel(job)

    await expect(page.get_by_role("row", name=job)).to_be_hidden()
    assert await page.get_by_label("Search").input_value() == "half a wor"
    assert await page.evaluate("document.activeElement.name") == "q"


async def test_jobs_of_other_keys_are_not_there(screen: Screen) -> None:
    job = await screen.crawl(limit=2)
    page = await screen.person("jobs", "scrape")
    await page.goto("/ui/jobs")
    await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    assert await page.get_by_role("link", name=job).count() == 0

    answer = await page.goto(f"/ui/jobs/{job}")
    assert answer is not None
    assert answer.status == 404
    screen.errors.clear()  # the browser tells that of every page that is not there


async def test_a_key_without_the_scope_sees_no_buttons(screen: Screen) -> None:
    async with screen.client() as client:
        job = (await client.crawl(url="http://shop.localhost:9/")).job_id

        async def is_taken_up() -> bool:
            return (await show_job(screen.project, job)).standing != "unserved"

        await until(is_taken_up, "a worker has it")
        page = await screen.person("scrape", "records")
        await page.goto("/ui/jobs")
        assert await page.get_by_role("button", name="Pause").count() == 0
        await client.cancel(job)
