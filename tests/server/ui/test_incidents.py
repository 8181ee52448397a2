"""Six things that go wrong, each from the message of its alert to the repair: by links and buttons, in four clicks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page, expect

from gossamer.frontier.contract import JobTerms, WorkerCard
from gossamer.model.alert import AlertTerms, Finding, Notice
from gossamer.model.alert_table import ALERTS
from gossamer.model.incident import Subject, SubjectKind
from gossamer.model.record import day_of
from gossamer.model.route import ProxyOutcome
from gossamer.monitor.alerts import look
from gossamer.project.alerts.channels import webhook_body
from gossamer.routing.contract import Bound
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from gossamer.settings.alert_tables import ChannelTable
from tests.services.valkey import running_valkey
from tests.unit.commandline import candidate

from .screen import Screen, a_screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
AT_ONCE = AlertTerms(wait=timedelta(0))
SITE = "blocked.example"
PROXY = "http://192.0.2.7:8080"
FLAGS: dict[str, Any] = {
    "proxies__homes": {"urls": [PROXY, "http://192.0.2.8:8080"]},
    "routes__homes": {"pool": "homes", "price": 2},
    "router__budget_day": 100,
}


class Clicks:
    """A person who got the message of an alert: opens its link, and then only clicks."""

    def __init__(self, screen: Screen, page: Page) -> None:
        self.screen, self.page, self.count = screen, page, 0

    async def open(self, message: dict[str, Any]) -> None:
        """The first click: the address in the message."""
        address = message["data"]["subjects"][0]["url"]
        assert address.startswith(self.screen.address)
        self.count += 1
        await self.page.goto(address)

    async def click(self, role: Any, name: str) -> None:
        self.count += 1
        await self.page.get_by_role(role, name=name).first.click()

    async def says(self, words: str) -> None:
        await expect(self.page.get_by_role("status").filter(has_text=words)).to_be_visible()
        assert self.count <= 4


async def fire(screen: Screen, alert: str, subject: str, finding: Finding) -> dict[str, Any]:
    """The leading scheduler finds it; what a webhook gets."""
    state = screen.project.state
    term = await state.ticks.lead("far/1/x", timedelta(seconds=600))
    assert term is not None
    step = look(
        dict.fromkeys(ALERTS, AT_ONCE),
        {alert: {subject: finding}},  # and nothing is known of the others
        await state.alerts.standings(),
        incidents=await state.alerts.recent_incidents(screen.project.clock.now()),
        channels={"hook": ChannelTable(kind="webhook")},
        now=screen.project.clock.now(),
    )
    await state.alerts.settle(term, step)
    notice: Notice = step.notices[0]
    server = msgspec.structs.replace(screen.project.settings.server, public_url=screen.address)
    return webhook_body(notice, msgspec.structs.replace(screen.project.settings, server=server))  # type: ignore[return-value]


@asynccontextmanager
async def on(where: str, folder: Path) -> AsyncIterator[Screen]:
    if where == "sqlite":
        async with a_screen(folder, worker=False, **FLAGS) as screen:
            yield screen
        return
    with running_valkey() as valkey:
        async with a_screen(folder, worker=False, state=valkey.address(), project="incidents", **FLAGS) as screen:
            yield screen


async def bury(screen: Screen, name: str, site: str, reason: str, message: str, count: int = 12) -> str:
    """A job whose pages were given up; one more page is open."""
    state = screen.project.state
    job, _ = await state.jobs.open_job(name, JobTerms(), fresh=False)
    pages = [candidate(f"https://{site}/{number}") for number in range(count)]
    await state.frontier.add(job.id, pages)
    await state.jobs.seal_seeds(job.id)
    left = count
    while left:
        leases = (await state.frontier.lease(job.id, "w", left)).leases
        for lease in leases:
            await state.frontier.bury(lease, reason, f"{message} on {lease.task.url}")
        left -= len(leases)
    return job.id


@pytest.mark.parametrize("where", ["sqlite", "valkey"])
async def test_from_the_message_to_the_repair_in_four_clicks(chromium: None, tmp_path: Path, where: str) -> None:
    async with on(where, tmp_path) as screen:
        page = await screen.person()
        await _a_changed_layout(screen, page)
        await _a_site_that_blocks(screen, page)
        await _a_dead_proxy(screen, page)
        await _a_full_budget(screen, page)
        await _a_stuck_job(screen, page)
        await _a_dead_worker(screen, page)
        await _the_list_and_an_incident_on_a_phone(screen, page)


async def _a_changed_layout(screen: Screen, page: Page) -> None:
    job = await bury(screen, "books", "books.example", "parse", "Book: 1 field is not as declared: price is missing")
    finding = Finding(1.0, f"{job} failed: not one item", mark=job, cause=Subject(SubjectKind.SPIDER, "books"))
    person = Clicks(screen, page)
    await person.open(await fire(screen, "jobs", "books", finding))
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Spider books")
    await expect(page.get_by_text("price is missing").first).to_be_visible()
    await expect(page.get_by_role("link", name="Look at a page that failed")).to_be_visible()
    await person.click("button", "Fetch again")
    await person.click("button", "Try 12 dead letters again")
    await person.says("12 dead letters back in the queue")
    assert (await screen.project.state.jobs.counts(job)).dead == 0


async def _a_site_that_blocks(screen: Screen, page: Page) -> None:
    await bury(screen, "blocked", SITE, "http-403", "answered 403")
    person = Clicks(screen, page)
    await person.open(await fire(screen, "success", SITE, Finding(0.02, "2% of 244 requests succeeded.")))
    await person.click("button", "Let it rest for an hour")
    await person.says(SITE)
    assert screen.project.settings.domain(SITE).rest
    person = Clicks(screen, page)
    errors = await fire(screen, "errors", SITE, Finding(0.9, "90% failed"))
    await person.open(errors)
    await expect(page.get_by_role("region", name="Alerts").get_by_role("row")).to_have_count(3)  # one incident
    await person.click("button", "Go on as the settings say")
    await person.says(f"{SITE} goes on as the settings say")
    person, incident = Clicks(screen, page), errors["data"]["subjects"][0]["url"]
    await page.goto(incident)
    await person.click("button", "Always take the route homes")
    await person.says(f"domains.{SITE}.route is homes from now on")
    await person.click("button", f"Take back domains.{SITE}.route")
    await person.says(f"domains.{SITE}.route is as the settings say: not set")


async def _a_dead_proxy(screen: Screen, page: Page) -> None:
    proxies = screen.project.state.proxies
    await proxies.report("homes", [ProxyReport(proxy=PROXY, outcome=ProxyOutcome.BANNED)], RestTerms(cooldown=3600.0))
    person = Clicks(screen, page)
    await person.open(await fire(screen, "proxies", "homes", Finding(1.0, "All proxies rest, of 1")))
    await person.click("button", f"Leave {PROXY} out")
    await person.says(f"proxies.homes.skip.{PROXY} is yes from now on")
    assert screen.project.settings.proxies["homes"].skip == (PROXY,)
    await person.click("button", "End the rests of its proxies")
    await person.says("homes are over")
    assert await proxies.health("homes") == []
    await page.goto("/ui/routes")
    await page.get_by_role("row", name=PROXY).get_by_role("button", name="Use it again").click()
    await expect(page.get_by_role("row", name=PROXY).get_by_role("button", name="Leave out")).to_be_visible()
    assert screen.project.settings.proxies["homes"].skip == ()


async def _a_full_budget(screen: Screen, page: Page) -> None:
    today = day_of(screen.project.clock.now())
    assert await screen.project.state.budgets.take(100.0, [Bound(f"day/{today}", 100.0)]) is None
    cause = Subject(SubjectKind.BUDGET, "day")
    person = Clicks(screen, page)
    await person.open(await fire(screen, "budget", f"day/{today}", Finding(0.0, "0 of 100 are left", cause=cause)))
    await person.click("button", "Allow twice as much, 200 credits for 24h")
    await person.says("router.budget_day is 200 from now on")
    assert screen.project.settings.router.budget_day == 200
    await page.get_by_role("link", name="What was spent, and where").first.click()
    await expect(page.get_by_text("gossamer.toml says 100")).to_be_visible()
    await page.get_by_role("button", name="Go back").click()
    await person.says("router.budget_day is as the settings say: 100")
    assert screen.project.settings.router.budget_day == 100


async def _a_stuck_job(screen: Screen, page: Page) -> None:
    state = screen.project.state
    job, _ = await state.jobs.open_job("stuck", JobTerms(), fresh=False)
    await state.frontier.add(job.id, [candidate("https://stuck.example/1")])
    person = Clicks(screen, page)
    await person.open(await fire(screen, "stalled", job.id, Finding(900.0, "No progress for 15 min.", mark=job.id)))
    await person.click("button", "Cancel it")
    await person.click("button", "Cancel the job")
    await person.says("is cancelled")


async def _a_dead_worker(screen: Screen, page: Page) -> None:
    workers = screen.project.state.workers
    at = screen.project.clock.now() - 600
    await workers.beat(WorkerCard(name="far/4711/1", host="far", pid=4711, version="9", started_at=at, seen_at=at))
    message = await fire(screen, "workers", "", Finding(1.0, "1 worker sent no heartbeat: far/4711/1."))
    person = Clicks(screen, page)
    await person.open(message)
    await person.click("button", "far/4711/1 is gone for good: forget it")
    await person.says("far/4711/1 is forgotten")
    assert await workers.workers() == []
    await page.goto(message["data"]["subjects"][0]["url"])
    await page.get_by_label("It is over, because").fill("the machine was sold")
    await page.get_by_role("button", name="Close it").click()
    await expect(page.get_by_text("It is closed as soon as a scheduler looks")).to_be_visible()
    (closing,) = await screen.project.state.alerts.closings()
    assert closing.reason == "the machine was sold"


async def _the_list_and_an_incident_on_a_phone(screen: Screen, page: Page) -> None:
    await page.goto("/ui/incidents")
    rows = page.get_by_role("region", name="Incidents").get_by_role("row")
    await expect(rows).to_have_count(1 + 6)
    await page.set_viewport_size({"width": 390, "height": 844})
    for address in ("/ui/incidents", "/ui/dead"):
        await page.goto(address)
        wider = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not wider, address
