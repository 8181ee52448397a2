"""The dashboard of a fleet: state in Valkey, records in PostgreSQL, which goes away under open pages and comes back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Page, expect

from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Candidate
from gossamer.project.access.callbacks import register
from gossamer.project.access.keys import LOCAL, Caller
from gossamer.project.dead_letters.attempts import AttemptFilter, list_attempts
from gossamer.project.dead_letters.dead_letters import DeadLetterChoice, list_letters
from gossamer.project.jobs.jobs import cancel_job, show_job
from gossamer.project.schedules.changes import add_schedule, new_schedule
from gossamer.server.ui.templates import after_host
from gossamer.server.ui.views import VIEWS
from gossamer.settings import ScheduleTable
from gossamer.store.contract import RecordQuery
from tests.services.postgres import PostgresServer
from tests.services.valkey import running_valkey

from .screen import Screen, a_screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def test_pages_work_on_valkey_and_postgresql_and_say_what_is_missing_while_records_are_away(
    chromium: None, lone_postgres: PostgresServer, tmp_path: Path
) -> None:
    with running_valkey() as valkey:
        stores = {"state": valkey.address(), "records": lone_postgres.address()}
        async with a_screen(tmp_path, project="fleet", **stores) as screen:
            done = await screen.crawl()
            async with screen.client() as client:
                begun = (await client.crawl(url="http://shop.localhost:9/")).job_id
                await client.pause(begun)
            page = await screen.person()
            await _counts_are_those_of_the_project(screen, page, done)
            await _a_job_is_resumed_and_paused(screen, page, begun)
            await _a_record_is_shown(screen, page)
            await _every_view_shows_what_there_is(screen, page, done)

            open_tab = await screen.person()
            await open_tab.goto("/ui/overview")
            await expect(open_tab.locator("#connection")).to_have_text("Live")
            lone_postgres.stop()
            await expect(open_tab.locator("#region-charts .trouble")).to_contain_text("a store of the project")
            await expect(_tile(open_tab, "Jobs running")).to_contain_text("1 paused")
            await expect(open_tab.get_by_role("region", name="Jobs that run now")).to_contain_text(begun)
            await page.goto(f"/ui/jobs/{done}")
            await expect(page.get_by_text("The record store does not answer")).to_be_visible()
            await expect(_tile(page, "Dead letters")).to_contain_text(str((await show_job(screen.project, done)).dead))
            await page.goto("/ui/records")
            await expect(page.locator("#region-listed .trouble")).to_contain_text("a store of the project")

            lone_postgres.start()
            await expect(open_tab.locator(".trouble")).to_have_count(0)
            await expect(open_tab.get_by_role("img", name="Pages per second")).to_be_visible()

            await page.reload()
            await expect(page.locator("tbody tr").first).to_be_visible()
            await cancel_job(screen.project, begun)


async def _counts_are_those_of_the_project(screen: Screen, page: Page, done: str) -> None:
    await page.goto("/ui/overview")
    await expect(_tile(page, "Jobs running")).to_contain_text("1 paused")
    dead = (await show_job(screen.project, done)).dead
    await expect(_tile(page, "Dead letters").locator("dd")).to_have_text(str(dead))
    await expect(page.get_by_role("img", name="Pages per second")).to_be_visible()
    await expect(page.get_by_text("Nothing was fetched in this time.")).to_have_count(0)


async def _a_job_is_resumed_and_paused(screen: Screen, page: Page, job: str) -> None:
    await page.goto(f"/ui/jobs/{job}")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not (await show_job(screen.project, job)).paused
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert (await show_job(screen.project, job)).paused


async def _a_record_is_shown(screen: Screen, page: Page) -> None:
    (wanted, *_) = [
        one async for one in screen.project.records.records(RecordQuery(type="Product", gone=False, newest=True))
    ]
    await page.goto("/ui/records?type=Product")
    await page.get_by_role("link", name=wanted.key, exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(wanted.key)
    await expect(page.get_by_role("region", name="Versions")).to_contain_text("First seen.")


async def _every_view_shows_what_there_is(screen: Screen, page: Page, done: str) -> None:
    project = screen.project
    table = ScheduleTable(spider="shop", every="6h")
    await add_schedule(project, new_schedule(project.settings, "six-hourly", table))
    job = await project.state.jobs.job(done)
    assert job is not None
    owner = Caller(id=LOCAL, name=LOCAL, scopes=frozenset(("admin",)))
    await register(project, owner, job, "https://receiver.example/hook")
    waiting, _ = await project.state.jobs.open_job("waiting", JobTerms(), fresh=True)
    await project.state.jobs.pause_job(waiting.id, True)
    url = "https://waits.example/"
    page_there = Candidate(url=url, fingerprint=project.rules.fingerprint(url), site="waits.example", shape="/")
    await project.state.frontier.add(waiting.id, [page_there])
    letter = (await list_letters(project, DeadLetterChoice(job=done), limit=1)).dead_letters[0]
    (tried, *_) = (await list_attempts(project, AttemptFilter(job=done, outcome="done"), limit=1)).attempts
    shows = {
        "/ui/jobs": done,
        f"/ui/jobs/{done}": "What became of its items",
        f"/ui/jobs/{done}?level=error": "given up",
        f"/ui/jobs/{done}/pages?state=done": "shop.localhost",
        f"/ui/jobs/{waiting.id}/compare/{done}": "pages per second",
        "/ui/boards/spiders": "shop",
        "/ui/boards/sites": "shop.localhost",
        f"/ui/copies?url={quote(tried.url, safe='')}&selector=title": done,
        f"/ui/outline?url={quote(tried.url, safe='')}": "Take it as",
        "/ui/search?q=shop.local": "shop.localhost",
        "/ui/outputs": "Outputs",
        "/ui/overrides": "Set by hand",
        "/ui/disk": "Disks",
        "/ui/spiders": "The demo shop, without its outlet.",
        "/ui/queue": "waits.example",
        "/ui/queue/waits.example": "is paused",
        "/ui/queue/shop.localhost": "Attempts at shop.localhost in the last day",
        "/ui/dead": after_host(letter.url),
        f"/ui/dead?job={done}&reason={letter.reason}": after_host(letter.url),
        f"/ui/dead/{done}/{letter.id}": letter.message.splitlines()[0],
        "/ui/schedules": "six-hourly",
        "/ui/schedules/six-hourly": "every 6",
        "/ui/quality": "whole item",
        "/ui/try": "Selector",
        f"/ui/why?url={quote(tried.url, safe='')}": done,
        "/ui/attempts": "direct",
        f"/ui/attempts?job={done}&outcome=done": tried.url,
        f"/ui/attempts/page?url={quote(tried.url, safe='')}&job={done}": "Waiting, then the request",
        "/ui/notes": "Notes",
        "/ui/alerts": "Silences",
        "/ui/incidents": "Incidents",
        "/ui/workers": "Pages in flight",
        "/ui/routes": "direct",
        "/ui/callbacks": "receiver.example",
        "/ui/keys": "all",
        "/ui/settings?q=records": "records",
    }
    apart = {"/ui/overview", "/ui/records", "/ui/record"}  # the other steps are about these
    left = {view.path for view in VIEWS if "{" not in view.path} - {path.partition("?")[0] for path in shows} - apart
    assert left == set()
    for path, words in shows.items():
        await page.goto(path)
        await expect(page.locator("main"), path).to_contain_text(words)
        assert await page.locator(".trouble", has_text="This part").count() == 0, path
    await cancel_job(project, waiting.id)


def _tile(page: Page, name: str):
    return page.locator(".tile", has_text=name)
