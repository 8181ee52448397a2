"""Schedules, workers, routes, settings, keys and callbacks in the dashboard."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from msgspec.structs import replace as changed
from playwright.async_api import expect

from gossamer.access.contract import CallbackState
from gossamer.frontier.contract import WorkerCard
from gossamer.model.alert import AlertState, Standing
from gossamer.model.schedule import Term
from gossamer.project.access.callbacks import list_callbacks, register
from gossamer.project.access.keys import LOCAL, Caller, list_keys
from gossamer.project.schedules.changes import add_schedule, new_schedule
from gossamer.project.schedules.schedules import show_schedule
from gossamer.routing.contract import LearnedRoute
from gossamer.schedule.alert_book import AlertStep
from gossamer.settings import ScheduleTable
from tests.patience import until

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]


async def a_schedule(screen: Screen, name: str, **table: str) -> None:
    new = new_schedule(screen.project.settings, name, ScheduleTable(spider="shop", **table))
    await add_schedule(screen.project, new)


async def test_a_schedule_is_paused_resumed_edited_run_and_removed(screen: Screen) -> None:
    await a_schedule(screen, "nightly", cron="0 3 * * *")
    page = await screen.person()
    await page.goto("/ui/schedules")
    row = page.get_by_role("region", name="Schedules").get_by_role("row", name="nightly")
    await row.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("status").filter(has_text="nightly is paused")).to_be_visible()
    assert (await show_schedule(screen.project, "nightly")).paused
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    assert not (await show_schedule(screen.project, "nightly")).paused

    await page.get_by_label("When", exact=True).fill("every 6h")
    await page.get_by_label("Pages a run").fill("4")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("status").filter(has_text="nightly runs every 6")).to_be_visible()
    changed = await show_schedule(screen.project, "nightly")
    assert (changed.trigger, changed.limit, changed.spider) == ("every 6h", 4, "shop")
    await page.get_by_label("When", exact=True).fill("now and then")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    assert (await show_schedule(screen.project, "nightly")).trigger == "every 6h"
    for no_count in ("²", "1000000000000", "0"):
        await page.goto("/ui/schedules/nightly")
        await page.get_by_label("Pages a run").fill(no_count)
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("The limit is a whole number above 0")).to_be_visible()
    assert (await show_schedule(screen.project, "nightly")).limit == 4

    await page.goto("/ui/schedules/nightly")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.get_by_role("status").filter(has_text="has begun")).to_be_visible()
    job = page.url.rpartition("/")[2]
    found = await screen.project.state.jobs.job(job)
    assert found is not None
    assert (found.schedule, found.limit) == ("nightly", 4)
    await page.goto("/ui/schedules/nightly")
    await page.get_by_role("button", name="Remove").click()
    await page.get_by_role("button", name="Remove it").click()
    await expect(page.get_by_role("status").filter(has_text="nightly is removed")).to_be_visible()
    assert "nightly" not in {one.schedule.name for one in await screen.project.state.schedules.schedules()}
    screen.errors.clear()  # the browser tells of the 4xx


async def test_a_schedule_is_added_in_the_browser(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/schedules")
    await page.get_by_text("Add a schedule").click()
    form = page.locator("form[action='/ui/schedules/add']")
    for label, text in (
        ("Name", "mornings"), ("Spider, or", "shop"), ("When", "0 6 * * *"), ("Time zone", "Europe/Berlin"),
        ("Pages a run", "7"), ("Arguments", "color=red\nsize=3"),
    ):  # fmt: skip
        await form.get_by_label(label, exact=label in ("When", "Name")).fill(text)
    await form.get_by_role("button", name="Add it").click()
    await expect(page.get_by_role("status").filter(has_text="mornings runs")).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("mornings")
    added = await show_schedule(screen.project, "mornings")
    assert (added.spider, added.trigger, added.zone, added.limit) == ("shop", "0 6 * * *", "Europe/Berlin", 7)
    assert list(added.arguments) == ["color=red", "size=3"]
    for name, spider, when, words in (
        ("mornings", "shop", "every 1h", "There is a schedule 'mornings' already"),
        ("other", "nothing-like-this", "every 1h", "There is no spider or recipe"),
        ("other", "shop", "when it rains", "when it rains"),
    ):
        await page.goto("/ui/schedules")
        await page.get_by_text("Add a schedule").click()
        await form.get_by_label("Name", exact=True).fill(name)
        await form.get_by_label("Spider, or").fill(spider)
        await form.get_by_label("When", exact=True).fill(when)
        await form.get_by_role("button", name="Add it").click()
        await expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
        await expect(page.locator("main")).to_contain_text(words)
    listed = {one.schedule.name for one in await screen.project.state.schedules.schedules()}
    assert "other" not in listed
    await screen.project.state.schedules.remove("mornings")
    reader = await screen.person("jobs")
    await reader.goto("/ui/schedules")
    assert await reader.locator("main form[method=post]").count() == 0
    screen.errors.clear()  # the browser tells of the 4xx


async def test_the_calendar_of_the_coming_day_lists_the_runs_of_all_schedules(screen: Screen) -> None:
    await a_schedule(screen, "often", every="6h")
    page = await screen.person()
    await page.goto("/ui/schedules")
    lane = page.get_by_role("region", name="Runs of the coming day").get_by_role("row").filter(has_text="often")
    await expect(lane).to_have_count(1)
    marks = await lane.get_by_role("img", name="Runs of often").locator("rect").count()
    assert 4 <= marks <= 5
    await expect(lane.get_by_role("cell").first).to_have_text(str(marks))
    times = await lane.locator("time").all_inner_texts()
    assert len(times) == 3
    assert all(re.fullmatch(r"\d\d:\d\d", one) for one in times), times
    await screen.project.state.schedules.remove("often")


async def test_workers_are_listed_and_one_is_drained(screen: Screen) -> None:
    now = screen.project.clock.now()
    workers = screen.project.state.workers
    card = WorkerCard(
        name="far/4711/1", host="far", pid=4711, version="9.9", started_at=now, seen_at=now, job="shop-1", cpu=0.5,
        memory=123 * 1024 * 1024, in_flight=7, done=42,
    )  # fmt: skip
    await workers.beat(card)
    page = await screen.person()
    await page.goto("/ui/workers")
    row = page.get_by_role("row", name="far/4711")
    for text in ("50.0 %", "123.0 MB", "9.9", "42"):
        await expect(row).to_contain_text(text)
    await row.get_by_role("button", name="Drain").click()
    await expect(page.get_by_text("Let far/4711/1 finish")).to_be_visible()
    assert not await workers.beat(card), "a question changes nothing"
    await page.get_by_role("button", name="Drain it").click()
    await expect(page.get_by_role("status").filter(has_text="was asked to drain")).to_be_visible()
    assert await workers.beat(card)
    await workers.sign_off(card.name)


async def test_learned_routes_are_shown_and_forgotten(screen: Screen) -> None:
    route = LearnedRoute(
        site="walled.example", route="browser", since=screen.project.clock.now(), reason="captcha", blocks=3,
        recheck_at=0.0, patience=60.0,
    )  # fmt: skip
    await screen.project.state.routes.learn(route, instead_of=None)
    await screen.crawl(limit=3)
    page = await screen.person()
    await page.goto("/ui/routes")
    await expect(
        page.get_by_role("region", name="Routes", exact=True).get_by_role("row", name="direct")
    ).to_be_visible()
    row = page.get_by_role("row", name="walled.example")
    await expect(row).to_contain_text("captcha")
    await row.get_by_role("button", name="Forget").click()
    await page.get_by_role("button", name="Forget it").click()
    await expect(page.get_by_role("status").filter(has_text="Forgot 1 learned route")).to_be_visible()
    assert await screen.project.state.routes.learned("walled.example") == []


async def test_settings_are_searched_and_secrets_are_masked(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/settings?q=politeness")
    await expect(page.get_by_role("row", name="politeness.rate")).to_be_visible()
    await page.get_by_label("only what was set").check()
    await page.get_by_role("button", name="Show").click()
    await expect(page.get_by_role("row", name="politeness.robots")).to_be_hidden()
    await expect(page.get_by_role("row", name="politeness.rate")).to_contain_text("unlimited")


async def test_a_key_is_made_shown_once_and_revoked_after_a_question(screen: Screen) -> None:
    page = await screen.person()
    await page.goto("/ui/keys")
    await page.get_by_text("Make a key").click()
    await page.get_by_label("Name", exact=True).fill("visitor")
    await page.get_by_label("Expires after").fill("90d")
    await page.get_by_label("jobs see and begin jobs").check()
    await page.get_by_role("button", name="Make the key").click()
    await expect(page.get_by_role("heading", name="A key for visitor")).to_be_visible()
    text = (await page.locator(".secret code").inner_text()).strip()
    cookies = "".join(str(one) for one in await page.context.cookies())
    assert text not in cookies
    made = next(one for one in await list_keys(screen.project) if one.name == "visitor")
    assert (made.scopes, made.state) == (("jobs",), "active")
    assert made.expires_at is not None
    assert ("POST /ui/keys/add", made.id, 201) in await screen.audited()
    visitor = await screen.person(key=text)
    await visitor.goto("/ui/jobs")
    await expect(visitor.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    await page.get_by_role("link", name="I have copied it").click()
    assert text not in await page.content()
    await page.get_by_text("Make a key").click()
    await page.get_by_label("Name", exact=True).fill("visitor")
    await page.get_by_role("button", name="Make the key").click()
    await expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    assert len([one for one in await list_keys(screen.project) if one.name == "visitor"]) == 1
    screen.errors.clear()  # the browser tells of the 4xx
    await page.goto("/ui/keys")
    await page.get_by_role("row", name="visitor").get_by_role("button", name="Revoke").click()
    await page.get_by_role("button", name="Revoke it").click()
    await expect(page.get_by_role("status").filter(has_text="The key visitor is revoked")).to_be_visible()
    key = next(one for one in await list_keys(screen.project) if one.name == "visitor")
    assert key.state == "revoked"
    await expect(page.get_by_role("region", name="The audit log")).to_contain_text(key.id)


async def test_a_callback_is_sent_again(screen: Screen) -> None:
    job = await screen.crawl(limit=2)
    found = await screen.project.state.jobs.job(job)
    assert found is not None
    owner = Caller(id=LOCAL, name=LOCAL, scopes=frozenset(("admin",)))
    made = await register(screen.project, owner, found, "https://receiver.example/hook")
    given_up = changed(made, ended_at=screen.project.clock.now(), state=CallbackState.FAILED, tries=5)
    await screen.project.state.callbacks.keep(given_up)
    page = await screen.person()
    await page.goto("/ui/callbacks?state=failed")
    row = page.get_by_role("row", name=made.id)
    await expect(row).to_contain_text("receiver.example")
    await row.get_by_role("button", name="Send again").click()
    await expect(page.get_by_role("status").filter(has_text="is sent again")).to_be_visible()

    async def is_due() -> bool:
        return any(one.id == made.id and one.state.value != "failed" for one in await list_callbacks(screen.project))

    await until(is_due, "it is in the outbox again")


async def test_an_alert_that_fires_is_shown_explained_and_silenced(screen: Screen) -> None:
    now = screen.project.clock.now()
    words = "2 workers sent no heartbeat"
    firing = Standing(
        alert="workers", subject="", state=AlertState.FIRING, since=now, began_at=now, words=words, value=2.0
    )
    term = await screen.project.state.ticks.lead("test", timedelta(minutes=5))
    assert isinstance(term, Term)
    await screen.project.state.alerts.settle(term, AlertStep(standings=(firing,)))
    page = await screen.person()
    await page.goto("/ui/alerts")
    row = page.get_by_role("region", name="Alerts").get_by_role("row", name="workers")
    await expect(row).to_contain_text("2 workers sent no heartbeat")
    await expect(row.get_by_text("firing")).to_be_visible()
    await page.locator("select[name=alert]").select_option("workers")
    await page.get_by_label("Why", exact=True).fill("we know")
    await page.get_by_role("button", name="Silence", exact=True).click()
    await expect(page.get_by_role("status").filter(has_text="No messages about workers")).to_be_visible()
    (silence,) = await screen.project.state.alerts.silences()
    assert (silence.alert, silence.reason) == ("workers", "we know")
    await expect(row.get_by_text("silenced")).to_be_visible()
    await page.get_by_role("button", name="End it").click()
    await expect(page.get_by_role("status").filter(has_text="Messages about workers are sent again")).to_be_visible()
    assert await screen.project.state.alerts.silences() == []
    await row.get_by_role("button", name="Silence for 1 h").click()
    await expect(page.get_by_role("status").filter(has_text="No messages about workers")).to_be_visible()
    await expect(row.get_by_role("button")).to_have_count(0)
    await page.get_by_role("button", name="End it").click()
    await expect(row.get_by_role("button")).to_have_count(1)
    await page.get_by_role("region", name="Alerts").get_by_role("link", name="workers").click()
    await expect(page.get_by_role("heading", name="workers", level=1)).to_be_visible()
    await expect(page.get_by_text("2 workers sent no heartbeat")).to_be_visible()


async def test_those_without_the_scope_do_not_see_what_is_for_admins(screen: Screen) -> None:
    page = await screen.person("jobs")
    await page.goto("/ui/workers")
    menu = page.get_by_role("navigation", name="Views")
    for title, there in (("Workers", True), ("Schedules", True), ("Settings", False), ("Keys", False)):
        assert bool(await menu.get_by_role("link", name=title, exact=True).count()) is there, title
    for path in ("/ui/settings", "/ui/keys", "/ui/routes"):
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == 403
    screen.errors.clear()
