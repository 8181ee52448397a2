"""The queue, dead letters, the story of a URL and the log of attempts in the dashboard."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import expect

from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Candidate
from gossamer.project.dead_letters.attempts import AttemptFilter, list_attempts
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, letter_of, list_letters
from gossamer.project.jobs.jobs import cancel_job, show_job
from gossamer.project.sites.sites import site_view
from tests.patience import until

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
SHOP = "shop.localhost"


async def test_the_queue_says_for_each_site_why_it_waits_and_leads_to_its_page(screen: Screen) -> None:
    async with screen.client() as client:
        job = (await client.crawl(spider="shop")).job_id
        await client.pause(job)
    page = await screen.person()
    await page.goto(f"/ui/queue?job={job}")

    row = page.get_by_role("row", name=SHOP)
    await expect(row.get_by_text("paused", exact=True)).to_be_visible()
    await expect(row).to_contain_text(f"{job} is paused")
    await row.get_by_role("link", name=SHOP).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(SHOP)
    await expect(page.get_by_role("row", name=job)).to_contain_text("is paused")
    await cancel_job(screen.project, job)


async def test_sites_are_sorted_in_both_directions(screen: Screen) -> None:
    job, _ = await screen.project.state.jobs.open_job("sorted", JobTerms(), fresh=True)
    await screen.project.state.jobs.pause_job(job.id, True)
    for count, site in enumerate(("a.example", "b.example", "c.example"), 1):
        urls = [f"https://{site}/{n}" for n in range(count)]
        pages = [
            Candidate(url=url, fingerprint=screen.project.rules.fingerprint(url), site=site, shape="/") for url in urls
        ]
        await screen.project.state.frontier.add(job.id, pages)
    page = await screen.person()
    for sort, wanted in (("site", "abc"), ("-site", "cba"), ("-queued", "cba"), ("queued", "abc")):
        await page.goto(f"/ui/queue?job={job.id}&sort={sort}")
        assert await page.locator("tbody th").all_inner_texts() == [f"{one}.example" for one in wanted], sort
    await cancel_job(screen.project, job.id)


async def test_the_page_of_a_site_shows_its_robots_txt_also_of_another_port_and_its_attempts(screen: Screen) -> None:
    await screen.crawl(limit=5)
    page = await screen.person()
    await page.goto(f"/ui/queue/{SHOP}?range=hour")
    await page.get_by_text(f"{screen.shop.url}robots.txt: 200").click()
    await expect(page.get_by_text("Disallow: /cart")).to_be_visible()
    await expect(page.get_by_role("img", name=f"Attempts at {SHOP} in the last hour")).to_be_visible()
    await page.get_by_role("link", name="Month").click()
    await expect(page.get_by_role("img", name=f"Attempts at {SHOP} in the last month")).to_be_visible()


async def test_a_site_is_slowed_down_rests_and_goes_on_by_hand(screen: Screen) -> None:
    page = await screen.person()
    await page.goto(f"/ui/queue/{SHOP}")
    await page.get_by_label("Rate", exact=True).fill("6/m")
    await page.get_by_role("button", name="Set the rate").click()
    await expect(page.get_by_role("status").filter(has_text="is asked at 6/m")).to_be_visible()
    await page.get_by_label("No request for").fill("2h")
    await page.get_by_role("button", name="Let it rest").click()
    await expect(page.get_by_role("status").filter(has_text="rests until")).to_be_visible()

    view = await site_view(screen.project, SHOP)
    by_hand = {one.key: (one.value, one.until is not None) for one in view.overrides}
    assert by_hand == {f"domains.{SHOP}.rate": ("6/m", False), f"domains.{SHOP}.rest": ("yes", True)}
    assert view.spacing == 10.0
    await page.get_by_role("button", name="Let it go on").click()
    await expect(page.get_by_role("button", name="Let it go on")).to_be_hidden()
    assert (await site_view(screen.project, SHOP)).overrides == []
    await page.get_by_label("Rate", exact=True).fill("quickly")
    await page.get_by_role("button", name="Set the rate").click()
    await expect(page.get_by_text("is not a rate")).to_be_visible()
    screen.errors.clear()  # the browser tells of the 4xx


@pytest.mark.long
async def test_dead_letters_are_found_by_filter_counted_replayed_and_purged(screen: Screen) -> None:
    job = await screen.crawl()
    letters = await list_letters(screen.project, DeadLetterChoice(job=job), limit=100)
    assert len(letters.by_reason) > 1, letters.by_reason
    reason, count = next((name, many) for name, many in letters.by_reason.items() if not name.startswith("http"))
    page = await screen.person()
    await page.goto(f"/ui/dead?job={job}")
    await expect(page.get_by_text(f"{letters.total} dead letters like that")).to_be_visible()
    missing = next(one for one in letters.dead_letters if one.message == f"{one.url} answered 404.")
    pages = page.get_by_role("region", name="Dead letters")
    row = pages.get_by_role("row").filter(has=page.get_by_title(missing.url, exact=True))
    await expect(row.get_by_role("cell", name="answered 404.", exact=True)).to_be_visible()  # its page is named once
    await page.get_by_label("Reason").select_option(reason)
    await page.get_by_role("button", name="Show").click()
    await expect(pages.get_by_role("row")).to_have_count(count + 1)

    await page.get_by_role("button", name="Forget").first.click()  # all of them; further ones are of their groups
    await expect(page.locator("p.question")).to_contain_text(f"Forget {count} dead letter")
    assert (await show_job(screen.project, job)).dead == letters.total, "a question changes nothing"
    await page.get_by_role("button", name=f"Forget {count} dead letter").click()
    await expect(page.get_by_role("status").filter(has_text="forgotten")).to_be_visible()
    assert (await show_job(screen.project, job)).dead == letters.total - count

    left = await list_letters(screen.project, DeadLetterChoice(job=job), limit=100)
    target = next(one for one in left.dead_letters if one.reason.startswith("http"))
    before = len(await screen.project.records.attempts(bytes.fromhex(target.fingerprint)))
    await page.goto(f"/ui/dead?job={job}&reason={target.reason}")
    await page.get_by_role("button", name="Try again").first.click()
    await page.get_by_role("button", name=f"Try {left.by_reason[target.reason]} dead letter").click()
    await expect(page.get_by_role("status").filter(has_text="back in the queue")).to_be_visible()

    async def is_tried_again() -> bool:
        return len(await screen.project.records.attempts(bytes.fromhex(target.fingerprint))) > before

    await until(is_tried_again, "the worker has asked for the page again")


@pytest.mark.long
async def test_all_dead_letters_are_reached_page_by_page(screen: Screen) -> None:
    job, _ = await screen.project.state.jobs.open_job("many", JobTerms(max_urls_per_pattern=None), fresh=True)
    urls = [f"https://many{n % 40}.example/{n}" for n in range(250)]
    found = [
        Candidate(url=url, fingerprint=screen.project.rules.fingerprint(url), site=url.split("/")[2], shape="/")
        for url in urls
    ]
    frontier = screen.project.state.frontier
    await frontier.add(job.id, found)
    while leases := (await frontier.lease(job.id, "w", 100)).leases:
        await asyncio.gather(*(frontier.bury(lease, "http-404", "It is gone.") for lease in leases))
    page = await screen.person()
    await page.goto(f"/ui/dead?job={job.id}")
    await expect(page.get_by_text("250 dead letters like that")).to_be_visible()
    heads = page.get_by_role("region", name="Dead letters").locator("tbody th")
    whole = "all => all.map(one => one.title)"
    shown = await heads.evaluate_all(whole)
    assert len(shown) == 100
    while await page.get_by_role("link", name="Next page").count():
        async with page.expect_navigation():
            await page.get_by_role("link", name="Next page").click()
        shown += await heads.evaluate_all(whole)
    assert (len(shown), sorted(shown)) == (250, sorted(urls))
    await page.goto(f"/ui/dead?job={job.id}")
    await expect(page.get_by_role("heading", name="Domains with the most")).to_be_visible()
    site = await page.locator("table.narrow tbody th").first.inner_text()
    await page.locator("table.narrow tbody a").first.click()
    await expect(page.get_by_label("Domain")).to_have_value(site)
    sites = page.get_by_role("region", name="Dead letters").locator("td:nth-child(3)")
    assert set(await sites.all_inner_texts()) == {site}
    await page.goto(f"/ui/dead?job={job.id}&after=nonsense")
    await expect(page.get_by_text("nonsense is not a place in the list")).to_be_visible()


async def test_one_letter_shows_its_attempts_and_its_raw_page_inert(screen: Screen) -> None:
    job = await screen.crawl()
    letters = (await list_letters(screen.project, DeadLetterChoice(job=job), limit=100)).dead_letters
    letter = next(one for one in letters if one.reason.startswith("http"))  # an answer came, and was archived
    page = await screen.person()
    await page.goto(f"/ui/dead/{job}/{letter.id}")

    await expect(page.get_by_role("heading", level=1)).to_contain_text(letter.url)
    attempts = page.get_by_role("region", name="Attempts").get_by_role("row")
    logged = (await letter_of(screen.project, job, str(letter.id))).attempts_log
    await expect(attempts).to_have_count(1 + len(logged))
    answer = await page.request.get(f"/ui/dead/{job}/{letter.id}/frame")
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox; frame-ancestors 'self'"
    await page.get_by_text("As it would look").click()
    inside = page.frame_locator("iframe.page").locator("body")
    await expect(inside).to_be_visible()
    assert await page.locator("iframe.page").get_attribute("sandbox") == ""
    assert [one for one in screen.errors if "Content Security Policy" not in one and "sandboxed" not in one] == []
    screen.errors.clear()  # what the frame was kept from


async def test_why_tells_the_story_of_a_url_as_a_timeline(screen: Screen) -> None:
    job = await screen.crawl(limit=5)
    page = await screen.person()
    await page.goto("/ui/why")
    await page.get_by_label("URL").fill(screen.shop.url)
    await page.get_by_role("button", name="Show").click()

    await expect(page.get_by_role("link", name=job).first).to_be_visible()
    rows = page.get_by_role("region", name="Timeline").get_by_role("row")
    await expect(rows.filter(has_text="as a seed").first).to_be_visible()
    await expect(rows.filter(has_text="try 1 of").first).to_be_visible()
    await page.goto("/ui/why?url=https://nobody.example/x")
    await expect(page.get_by_text("No job knows")).to_be_visible()


async def test_attempts_are_filtered_and_one_page_is_drawn_as_bars(screen: Screen) -> None:
    job = await screen.crawl(limit=6)
    page = await screen.person()
    await page.goto(f"/ui/attempts?job={job}")
    every = (await list_attempts(screen.project, AttemptFilter(job=job), limit=100)).attempts
    outcome = every[0].outcome
    alike = [one for one in every if one.outcome == outcome]
    await page.get_by_label("Outcome").select_option(outcome)
    await page.get_by_role("button", name="Show").click()
    rows = page.get_by_role("region", name="Attempts").get_by_role("row")
    await expect(rows).to_have_count(1 + len(alike))

    await rows.nth(1).get_by_role("link").first.click()
    await expect(page.get_by_role("heading", name="Attempts for one page")).to_be_visible()
    await expect(page.locator("svg.meter").first).to_be_visible()
    await page.goto("/ui/attempts?reason=moon")
    await expect(page.get_by_text("No attempt matches.")).to_be_visible()


async def test_the_log_of_attempts_names_no_job_of_another_key(screen: Screen) -> None:
    job = await screen.crawl(limit=2)
    page = await screen.person("jobs", "records")
    for wanted in (job, job[:-2]):  # the second is near enough for a hint
        answer = await page.goto(f"/ui/attempts?job={wanted}")
        assert answer is not None
        assert answer.status == 404
        assert f"{job}?" not in await answer.text()
        await expect(page.get_by_text("There is no job of that id here.")).to_be_visible()
    screen.errors.clear()


async def test_what_only_an_admin_may_do_is_not_offered_to_others(screen: Screen) -> None:
    page = await screen.person("jobs")
    await page.goto("/ui/queue")
    await expect(page.get_by_role("heading", name="Queue")).to_be_visible()
    answer = await page.goto(f"/ui/queue/{SHOP}")
    assert answer is not None
    assert answer.status == 403
    await page.goto("/ui/dead")
    await expect(page.get_by_text("needs the scope admin")).to_be_visible()
    screen.errors.clear()
