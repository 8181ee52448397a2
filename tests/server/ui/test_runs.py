"""The page of a run: its log, its code, its addresses; and two runs side by side."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gossamer.model.events import Buried, JobBegun
from gossamer.project.access.keys import OWNER
from gossamer.project.jobs.run_log import LogQuery, RunLog, run_log
from tests.patience import until

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_the_log_of_a_run_grows_while_somebody_reads_it(screen: Screen) -> None:
    job = await screen.crawl(limit=3)
    page = await screen.person()
    await page.goto(f"/ui/jobs/{job}")
    log = page.get_by_role("log", name="Log of the job")
    await expect(log).to_contain_text("A worker begins, with version")
    await expect(log).to_contain_text("The job has ended: done")

    clock = screen.project.clock
    async with RunLog(screen.project.state.shelf, clock, "elsewhere/1/1") as writer:
        writer.emit(JobBegun(at=clock.now(), job=job, name="shop"))
        writer.emit(
            Buried(
                at=clock.now(), job=job, url=f"{screen.shop.url}odd", reason="parse", attempt=1,
                message="<b>no title</b>", detail="Traceback (most recent call last):\n  ValueError: price",
            )
        )  # fmt: skip
    await expect(log).to_contain_text("given up, parse: <b>no title</b>")
    await log.get_by_text("Traceback").first.click()
    await expect(log).to_contain_text("ValueError: price")
    await page.get_by_role("link", name="Errors", exact=True).click()
    await expect(log).not_to_contain_text("A worker begins")


async def test_each_page_is_logged_from_a_click_on_until_the_way_back(screen: Screen) -> None:
    first, settings = await screen.crawl(limit=3), screen.project.live
    page = await screen.person()
    await page.goto(f"/ui/jobs/{first}")
    await page.get_by_role("link", name="With each page").click()
    await page.get_by_role("button", name="Log each page for 1 h").click()
    await expect(page.get_by_text("gossamer.toml says info")).to_be_visible()
    await until(lambda: settings.now.log.level == "debug")
    jobs: list[str] = []

    async def logged_in_detail() -> bool:  # once the worker, too, has seen it
        jobs.append(await screen.crawl(limit=3))
        view = await run_log(screen.project, OWNER, LogQuery(job=jobs[-1], level="debug"))
        return any(line.event == "Completed" for line in view.lines)

    await until(logged_in_detail)
    await page.goto(f"/ui/jobs/{jobs[-1]}?level=debug")
    log = page.get_by_role("log", name="Log of the job")
    await expect(log).to_contain_text("outcome ")
    await page.get_by_role("button", name="Go back").click()
    await until(lambda: settings.now.log.level == "info")
    await page.get_by_role("link", name="Everything", exact=True).click()
    await expect(log).not_to_contain_text("outcome ")


async def test_each_state_of_a_run_leads_to_its_addresses(screen: Screen) -> None:
    job = await screen.crawl()
    page = await screen.person(java_script_enabled=False)
    await page.goto(f"/ui/jobs/{job}")
    row = page.get_by_role("region", name="How it adds up").get_by_role("row", name="dropped")
    await row.get_by_role("link").click()
    await expect(page.get_by_role("region", name="Addresses").locator("tbody tr").first).to_contain_text("scope")
    await page.get_by_role("link", name="Done", exact=True).click()
    await expect(page.get_by_text("200 addresses shown.")).to_be_visible()
    await page.get_by_role("link", name="Next page").click()
    await expect(page.get_by_text("First page")).to_be_visible()


async def test_two_runs_are_seen_side_by_side(screen: Screen) -> None:
    before, after = await screen.crawl(limit=3), await screen.crawl(limit=60)
    page = await screen.person()
    await page.goto(f"/ui/jobs/{after}")
    await page.get_by_role("link", name=f"Compare with {before}").click()
    await expect(page.get_by_role("row", name="total")).to_be_visible()
    await expect(page.get_by_role("heading", name="added")).to_contain_text("0 changed, 0 gone")
    differing = page.get_by_role("region", name="Records that differ").locator("tbody tr")
    await expect(differing.first).to_contain_text("title: ")
    async with screen.client() as client:
        found = await client.call("get_jobs_before_compare_after", before=before, after=after)
        assert {one["name"]: one["after"] for one in found["figures"]}["total"] > 8
        await page.goto(f"/ui/jobs/{after}")  # the log is written every two seconds
        await expect(page.get_by_role("log")).to_contain_text("The job has ended: done")
        log = await client.call("get_jobs_job_log", job=after, limit=2)
        assert log["lines"][-1]["message"].startswith("The job has ended: done")
        assert len(log["codes"]) == 1
