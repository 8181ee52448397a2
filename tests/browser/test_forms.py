"""What Chromium sends for the forms of tests/sites/forms.json; tests/unit/test_forms.py compares us with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from playwright.async_api import Page, async_playwright

from gossamer.fetch.browser.chromium import find_executable, wants_sandbox
from tests.patience import PATIENCE
from tests.sites.forms import CASES, ENTER, PAGE, SCRIPTS, Case, told

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("chromium")]


class FormSite:
    """Shows one page, and keeps what is sent anywhere else."""

    def __init__(self) -> None:
        self.shown = Case("", "", "")
        self.sent: asyncio.Queue[str] = asyncio.Queue()
        self.opened = False

    async def answer(self, request: web.Request) -> web.Response:
        if request.method == "GET" and request.raw_path == PAGE and not self.opened:
            self.opened = True
            label = f"text/html; charset={self.shown.charset}"
            return web.Response(body=self.shown.source, headers={"Content-Type": label})
        if request.path != "/favicon.ico":
            content_type = request.headers.get("Content-Type", "")
            self.sent.put_nowait(told(request.method, request.raw_path, content_type, await request.read()))
        return web.Response(text="thank you")


@asynccontextmanager
async def a_form_site() -> AsyncIterator[tuple[FormSite, str]]:
    site = FormSite()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        tcp = web.TCPSite(runner, "127.0.0.1", 0)
        await tcp.start()
        yield site, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def sent_by_chromium(tab: Page, site: FormSite, root: str, case: Case) -> str:
    site.shown, site.opened = case, False
    await tab.goto(f"{root}{PAGE}")
    async with tab.expect_navigation(timeout=PATIENCE * 1000):
        if case.script == ENTER:
            await tab.press("#here", "Enter")
        else:
            await tab.evaluate(f"() => {{ setTimeout(() => {{ {SCRIPTS.get(case.script, case.script)} }}, 0) }}")
    return await asyncio.wait_for(site.sent.get(), PATIENCE)


async def test_chromium_sends_what_the_table_says() -> None:
    async with a_form_site() as (site, root), async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=find_executable(), chromium_sandbox=wants_sandbox())
        try:
            tab = await browser.new_page()
            sent = {case.name: await sent_by_chromium(tab, site, root, case) for case in CASES}
        finally:
            await browser.close()
    assert sent == {case.name: case.sent for case in CASES}
