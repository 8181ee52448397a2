"""A running project with its dashboard and people before it: the demo shop, a worker, a server, a real Chromium."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from playwright.async_api import Browser, Page, async_playwright, expect

from gossamer.client import AsyncClient
from gossamer.demo.shop import Shop, open_shop
from gossamer.fetch.browser.chromium import FEATURES_OFF, find_executable, wants_sandbox
from gossamer.project.access.keys import audit_lines
from gossamer.project.open import Project
from gossamer.server.run import HttpServer, _config
from tests.patience import PATIENCE

from ..serving import Served, listening, serving, settings_of

SPIDER = """
from gossamer.demo.spider import DemoShop

class Shop(DemoShop):
    \"\"\"The demo shop, without its outlet.\"\"\"
    name = "shop"
    start_urls = ["{start}"]
    allowed_domains = ["shop.localhost"]
    color: str = ""
    size: int | None = None
"""
ALL = ("scrape", "jobs", "records", "metrics", "admin")
expect.set_options(timeout=PATIENCE * 1000)


class Screen(msgspec.Struct, frozen=True, kw_only=True):
    """`address` is where the dashboard is. `errors` are what browsers complained of, which no test expects."""

    served: Served
    shop: Shop
    browser: Browser
    address: str
    errors: list[str]

    @property
    def project(self) -> Project:
        return self.served.project

    async def guest(self, **how: Any) -> Page:
        """A browser of somebody who is not signed in."""
        context = await self.browser.new_context(base_url=self.address, timezone_id="Europe/Berlin", **how)
        context.set_default_timeout(PATIENCE * 1000)
        page = await context.new_page()
        page.on("console", lambda told: self.errors.append(told.text) if told.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda asked: self._note(asked.url))
        return page

    async def leave(self) -> None:
        """Everybody closes the browser: what they had open asks no more."""
        for context in self.browser.contexts:
            await context.close()

    def _note(self, url: str) -> None:
        if not url.startswith((self.address, "data:", "about:")):
            self.errors.append(f"asked for {url}")

    async def person(self, *scopes: str, key: str | None = None, **how: Any) -> Page:
        """A browser of somebody with a key of these scopes, or of all."""
        page = await self.guest(**how)
        name = f"{'-'.join(scopes) or 'all'} {uuid4().hex[:8]}"
        await sign_in(page, key or await self.served.new_key(name, *(scopes or ALL)))
        return page

    async def crawl(self, **wish: Any) -> str:
        """A job of the shop, run to its end."""
        async with self.client() as client:
            job = (await client.crawl(spider="shop", **wish)).job_id
            await client.wait(job, every=0.05)
        return job

    def client(self) -> AsyncClient:
        return self.served.client()

    async def audited(self) -> list[tuple[str, str, int]]:
        return [(line.action, line.target, line.status) for line in await audit_lines(self.project)]


async def sign_in(page: Page, key: str) -> None:
    await page.goto("/ui/sign-in")
    await page.get_by_label("Key, or the token").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("navigation", name="Views")).to_be_visible()


@asynccontextmanager
async def a_screen(folder: Path, *, worker: bool = True, token: Any = None, **flags: Any) -> AsyncIterator[Screen]:
    async with open_shop() as shop, a_browser() as browser:
        (folder / "spiders").mkdir(exist_ok=True)
        (folder / "spiders" / "shop.py").write_text(SPIDER.format(start=shop.url), encoding="utf-8")
        settings = settings_of(folder, **{"fetch__allow_hosts": ["shop.localhost"], **flags})
        async with (
            serving(settings, worker=worker, token=token) as served,
            listening(HttpServer(_config(served.app))) as port,
        ):
            errors: list[str] = []
            screen = Screen(
                served=served, shop=shop, browser=browser, address=f"http://127.0.0.1:{port}", errors=errors
            )
            try:
                yield screen
            finally:
                served.app.state.dashboard.close()
                await screen.leave()
    assert errors == [], errors


@asynccontextmanager
async def a_browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_executable(),
            chromium_sandbox=wants_sandbox(),
            args=["--disable-background-networking", f"--disable-features={','.join(FEATURES_OFF)}"],
        )
        try:
            yield browser
        finally:
            await browser.close()


def exactly(text: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(text)}$")
