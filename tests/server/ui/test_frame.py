"""What holds for every view: without a script, by keyboard, for a screen reader, when the server or a store is away."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from html import unescape
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect

from gossamer.errors import BackendUnavailable
from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Candidate
from gossamer.project.access.sign_in import SignIns
from gossamer.server.run import HttpServer, _config, listen
from gossamer.server.ui.sign_in import COOKIE
from gossamer.server.ui.views import VIEWS

from ..serving import serving, settings_of
from .screen import Screen, a_browser, sign_in

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
# Every text of the line about the connection, in the order in which a person sees them.
NOTE_CONNECTION = """() => {
    const line = document.getElementById("connection");
    window.told = [];
    new MutationObserver(() => window.told.push(line.textContent)).observe(line, { childList: true });
}"""
PLAIN = [view for view in VIEWS if "{" not in view.path]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(screen: Screen, scheme: str) -> None:
    job = await screen.crawl(limit=40)
    page = await screen.person(color_scheme=scheme)
    found = {}
    for path in (*(view.path for view in PLAIN if view.path != "/ui/record"), f"/ui/jobs/{job}"):
        await page.goto(path)
        result = await Axe().run(page)
        serious = [one for one in result.response["violations"] if one["impact"] in ("serious", "critical")]
        if serious:
            found[path] = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in serious]
    assert found == {}


@pytest.mark.parametrize("width", [390, 2560])
async def test_no_view_is_wider_than_the_screen(screen: Screen, width: int) -> None:
    job = await screen.crawl(limit=20)
    page = await screen.person(viewport={"width": width, "height": 900})
    for path in (*(view.path for view in PLAIN if view.path != "/ui/record"), f"/ui/jobs/{job}"):
        await page.goto(path)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path


async def test_pages_and_forms_work_without_a_script(screen: Screen) -> None:
    page = await screen.person(java_script_enabled=False)
    await page.goto("/ui/spiders")
    await page.get_by_label("Pages at most").last.fill("2")
    await page.get_by_role("button", name="Run shop").click()
    await expect(page.get_by_text("has begun")).to_be_visible()
    await expect(page.locator("time").first).to_contain_text("UTC")


async def test_times_are_those_of_the_reader_with_the_exact_moment_on_hover(screen: Screen) -> None:
    job = await screen.crawl(limit=1)
    page = await screen.person()
    await page.goto(f"/ui/jobs/{job}")
    time = page.locator("dt:has-text('Started') + dd time")
    await expect(time).to_contain_text("ago")
    title = await time.get_attribute("title") or ""
    assert "GMT+1" in title or "CET" in title or "GMT+2" in title or "CEST" in title
    assert (await time.get_attribute("datetime") or "").endswith("Z")


async def test_the_keyboard_alone_goes_everywhere(screen: Screen) -> None:
    page = await screen.person()
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", name="Jobs")).to_be_visible()
    await page.keyboard.press("/")
    assert await page.evaluate("document.activeElement.name") == "q"
    await page.locator("main").focus()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await page.goto("/ui/jobs")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    assert await page.evaluate("document.activeElement.id") == "main"


async def test_a_store_that_is_away_leaves_the_rest_of_the_page(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise BackendUnavailable("The record store does not answer.")

    page = await screen.person()
    monkeypatch.setattr(type(screen.project.records), "figures", away)
    await page.goto("/ui/overview")
    await expect(page.locator("#region-charts .trouble")).to_contain_text("does not answer")
    await expect(page.get_by_text("Jobs running")).to_be_visible()
    await expect(page.locator("#region-now .trouble")).to_have_count(0)

    monkeypatch.undo()
    await expect(page.locator("#region-charts .trouble")).to_have_count(0)


async def test_a_value_that_cannot_be_read_from_an_address_is_told(screen: Screen) -> None:
    page = await screen.person()
    answer = await page.goto("/ui/overview?range=century")
    assert answer is not None
    assert answer.status == 422
    await expect(page.get_by_text("range")).to_be_visible()
    screen.errors.clear()


async def test_a_server_that_is_started_again_is_found_by_the_open_tab(chromium: None, tmp_path: Path) -> None:
    async with serving(settings_of(tmp_path), worker=False) as served, a_browser() as browser:
        with listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
            server, running = _begun(served.app, listener)
            page = await browser.new_page(base_url=f"http://127.0.0.1:{port}")
            await sign_in(page, served.key)
            await expect(page.locator("#connection")).to_have_text("Live")
            await page.evaluate(NOTE_CONNECTION)
            served.app.state.dashboard.close()
            server.should_exit = True
            await running
        await expect(page.locator("#connection")).to_contain_text("No connection")
        from gossamer.project.pages.results import PageReader
        from gossamer.server.app import make_app

        async with PageReader(served.project) as pages:
            app = make_app(served.project, pages)
            with listen("127.0.0.1", port) as listener:
                server, running = _begun(app, listener)
                await served.client().crawl(url="https://shop.example/")
                await expect(page.get_by_role("link", name=re.compile("shop-example"))).to_be_visible()
                await expect(page.locator("#connection")).to_have_text("Live")
                assert await page.evaluate("window.told") == [
                    "No connection. Trying again …",
                    "Connected again",
                    "Live",
                ]
                app.state.dashboard.close()
                server.should_exit = True
                await running


def _begun(app: object, listener) -> tuple[HttpServer, asyncio.Task[None]]:
    server = HttpServer(_config(app))
    return server, asyncio.create_task(server.serve(sockets=[listener]))


@pytest.mark.parametrize("scopes", [("scrape",), ("jobs",), ("records",), ("metrics",)])
async def test_no_link_leads_where_the_key_may_not_go(screen: Screen, scopes: tuple[str, ...]) -> None:
    key = await screen.served.new_key(f"only {scopes[0]}", *scopes)
    job, _ = await screen.project.state.jobs.open_job("by-hand", JobTerms(spider="shop"), fresh=False)
    url = f"{screen.shop.url}nothing"
    page = Candidate(url=url, fingerprint=screen.project.rules.fingerprint(url), site="shop.localhost", shape="/")
    await screen.project.state.frontier.add(job.id, [page])
    begun = await SignIns(screen.project, None).begin(key)
    assert begun is not None
    headers = {"cookie": f"{COOKIE}={begun[1]}", "accept": "text/html"}
    places = [view.path for view in PLAIN if view.is_open_to(begun[0])]
    waiting, refused, seen = [f"{path}?url={url}" for path in places], list[str](), Counter[str]()
    while waiting:
        address = waiting.pop()
        kind = re.sub(r"/ui/(\w+)/.*", r"/ui/\1/*", address.partition("?")[0])
        seen[kind] += 1
        if seen[kind] > 3:
            continue
        answer = await screen.served.http.get(address, headers=headers)
        if answer.status_code == 403:
            refused.append(address)
        waiting += [unescape(one) for one in re.findall(r'href="(/ui/(?!assets)[^"]*)"', answer.text)]
    assert refused == []
    assert len(seen) >= len(places)
