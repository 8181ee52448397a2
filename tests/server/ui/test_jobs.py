"""Jobs in the dashboard: listed, searched, followed while they run, paused, resumed, cancelled, run again."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from gossamer.frontier.contract import DeadFilter, JobTerms
from gossamer.model.task import Candidate
from gossamer.project.jobs.jobs import cancel_job, show_job
from gossamer.project.sites.sites import site_view

from .screen import Screen

pytestmark = pytest.mark.asyncio(loop_scope="module")
SITE = "hand.example"


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
    assert (rows["done"], rows["dead"]) == (view.done, view.dead)
    assert await page.get_by_text("Run again").is_visible()


async def test_filters_stand_in_the_address_and_an_empty_list_says_what_to_do(screen: Screen) -> None:
    await screen.crawl(limit=3)
    page = await screen.person()
    await page.goto("/ui/jobs")
    await page.get_by_label("Search", exact=True).fill("nothing-like-this")
    await page.get_by_role("button", name="Show").click()

    await expect(page.get_by_text("No job matches.")).to_be_visible()
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
    await page.get_by_label("Search", exact=True).fill("half a wor")
    async with screen.client() as client:
        await client.cancel(job)

    await expect(page.get_by_role("row", name=job)).to_be_hidden()
    assert await page.get_by_label("Search", exact=True).input_value() == "half a wor"
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


async def a_job_of_nobody(screen: Screen) -> tuple[str, int]:
    """A job that no key has begun, with an open page; and the number of its dead letter."""
    state = screen.project.state
    job, _ = await state.jobs.open_job("by-hand", JobTerms(), fresh=True)
    for path in ("dead", "open"):
        url = f"http://hand.example/{path}"
        candidate = Candidate(url=url, fingerprint=screen.project.rules.fingerprint(url), site=SITE, shape="/")
        await state.frontier.add(job.id, [candidate])
        if path == "dead":
            (lease,) = (await state.frontier.lease(job.id, "test", 1)).leases
            await state.frontier.bury(lease, "http-500", "It failed.")
    (letter,) = await state.queue.dead(DeadFilter(job=job.id), 2)
    return job.id, letter.id


@pytest.mark.long
async def test_who_may_only_look_sees_no_buttons_and_forms_by_hand_are_refused_and_audited(screen: Screen) -> None:
    job, letter = await a_job_of_nobody(screen)
    pages = {f"/ui/jobs/{job}": 2, f"/ui/dead?job={job}": 4, f"/ui/dead/{job}/{letter}": 2, f"/ui/queue/{SITE}": 4}
    admin, jobs, scrape = await screen.person(), await screen.person("jobs"), await screen.person("scrape", "records")
    assert {path: await forms_on(admin, path) for path in pages} == pages
    no_forms = dict.fromkeys(list(pages)[:3], 0) | {f"/ui/queue/{SITE}": None}
    assert {path: await forms_on(jobs, path) for path in pages} == no_forms
    assert [await forms_on(scrape, path) for path in pages] == [0, None, None, None]

    order = {f"/ui/queue/{SITE}/slow": {"rate": "1/m"}, f"/ui/queue/{SITE}/rest": {"duration": "1h"}}
    for page in (jobs, scrape):
        await page.goto(f"/ui/jobs/{job}")
        before = len(await screen.audited())
        letters = {f"/ui/dead/{verb}": {"job": job, "sure": "true"} for verb in ("replay", "purge")}
        by_hand = {f"/ui/jobs/{job}/{verb}": {"sure": "true"} for verb in ("pause", "cancel")} | letters | order
        for path, fields in by_hand.items():
            token = await page.locator("header input[name=csrf]").get_attribute("value") or ""
            answer = await page.request.post(
                path, form={"csrf": token, **fields}, headers={"origin": screen.address}, max_redirects=0
            )
            assert (path, answer.status) == (path, 403)
        refused = (await screen.audited())[: len(by_hand)]
        assert refused[::-1] == [(f"POST {path}", "", 403) for path in by_hand]
        assert len(await screen.audited()) == before + len(by_hand)

    view = await show_job(screen.project, job)
    assert (view.state, view.paused, view.dead) == ("running", False, 1), "nothing was done"
    assert (await site_view(screen.project, SITE)).overrides == []
    await cancel_job(screen.project, job)
    screen.errors.clear()  # the browser tells of the 403


async def forms_on(page: Page, path: str) -> int | None:
    """How many forms that change something a page has; None for a page that is refused."""
    answer = await page.goto(path)
    assert answer is not None
    assert answer.status in (200, 403)
    count = await page.locator("main form[method=post]").count()
    if answer.status == 403:
        assert count == 0
        return None
    return count


async def test_the_page_of_a_job_says_what_its_failed_pages_have_in_common(screen: Screen) -> None:
    state = screen.project.state
    job, _ = await state.jobs.open_job("by hand", JobTerms(), fresh=True)
    wrong = "Product: 1 field is not as declared: stock should be int but is '{}' (expected int, got str)"
    for number in range(5):
        url = f"http://{SITE}/stock/{number}"
        fingerprint = screen.project.rules.fingerprint(url)
        await state.frontier.add(job.id, [Candidate(url=url, fingerprint=fingerprint, site=SITE, shape="/")])
        (lease,) = (await state.frontier.lease(job.id, "test", 1)).leases
        await state.frontier.bury(lease, "parse", wrong.format(number) if number else "<b>KeyError</b>: 'price'")

    page = await screen.person()
    await page.goto(f"/ui/jobs/{job.id}")
    said = page.locator("section", has_text="What they say").locator("li")
    await expect(said.first).to_contain_text(
        "4 of 5: Product: 1 field is not as declared: stock should be int but is '"
    )
    await expect(said.nth(1)).to_contain_text("<b>KeyError</b>: 'price'")
    await said.first.get_by_role("link", name="an example").click()
    await expect(page.locator("table.dense")).to_contain_text("got str)")
