"""What the dashboard has others do: a proxy pool is tested and ends its rests, a channel gets a test message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from gossamer.model.route import ProxyOutcome
from gossamer.project.sites.proxies import proxy_pools
from gossamer.routing.proxies.contract import ProxyReport, RestTerms
from tests.server.receiver import receiving

from .screen import Screen, a_screen

pytestmark = [pytest.mark.asyncio, pytest.mark.long]

TABLES = """
[proxies.city]
urls = ["http://127.0.0.1:{good}", "http://127.0.0.1:{bad}"]
allow_private = true

[channels.ops]
kind = "webhook"
url = "{hook}"
allow_private = true
"""


async def _lets_in(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_proxies_are_tested_rests_end_and_a_channel_gets_a_test(chromium: None, tmp_path: Path) -> None:
    proxy = await asyncio.start_server(_lets_in, "127.0.0.1", 0)
    closed = await asyncio.start_server(_lets_in, "127.0.0.1", 0)
    good, bad = (one.sockets[0].getsockname()[1] for one in (proxy, closed))
    closed.close()
    with receiving() as receiver:
        text = TABLES.format(good=good, bad=bad, hook=receiver.url)
        (tmp_path / "gossamer.toml").write_text(text, encoding="utf-8")
        async with proxy, a_screen(tmp_path, worker=False) as screen:
            page = await screen.person()
            await _a_pool_is_tested(screen, page, good)
            await _a_channel_gets_a_test(page)
            assert len(receiver.deliveries) == 1
            assert "This is a test." in receiver.deliveries[0].body.decode()
            receiver.answers.append((500, {}))
            await page.get_by_role("button", name="Send a test").click()
            await expect(page.get_by_role("status").filter(has_text="ops did not take it")).to_be_visible()


async def _a_pool_is_tested(screen: Screen, page: Page, good: int) -> None:
    banned = ProxyReport(proxy=f"http://127.0.0.1:{good}", outcome=ProxyOutcome.BANNED, words="captcha")
    await screen.project.state.proxies.report("city", [banned], RestTerms(cooldown=3600))
    await page.goto("/ui/routes")
    row = page.get_by_role("region", name="Proxies of city").get_by_role("row", name=str(good))
    await expect(row).to_contain_text("resting")
    await page.get_by_role("button", name="Test its proxies").click()
    await expect(page.get_by_role("status").filter(has_text="1 of 2 proxies of city let us in")).to_be_visible()
    (pool,) = await proxy_pools(screen.project)
    assert pool.resting == 1, "a test does not count"
    await page.get_by_role("button", name="End all rests").click()
    await expect(page.get_by_role("status").filter(has_text="The rests of 1 proxy of city are over")).to_be_visible()
    (pool,) = await proxy_pools(screen.project)
    assert pool.resting == 0
    await expect(page.get_by_role("button", name="End all rests")).to_have_count(0)
    reader = await screen.person("metrics")
    await reader.goto("/ui/alerts")
    await expect(reader.get_by_role("rowheader", name="ops")).to_be_visible()
    assert await reader.locator("main form[method=post]").count() == 0


async def _a_channel_gets_a_test(page: Page) -> None:
    await page.goto("/ui/alerts")
    await page.get_by_role("button", name="Send a test").click()
    await expect(page.get_by_role("status").filter(has_text="A test went to ops")).to_be_visible()
