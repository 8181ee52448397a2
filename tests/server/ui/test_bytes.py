"""What an open tab of the overview costs the network: little while nothing happens, and not much while a crawl runs."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from .screen import Screen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
SECONDS = 15.0
KB = 1024


async def bytes_per_second(screen: Screen, cookies: dict[str, str]) -> float:
    """Of a tab that has just shown the page: the first event brings it up to date and is not counted."""
    received, began = 0, None
    headers = {"accept-encoding": "gzip", "sec-fetch-site": "same-origin"}
    async with (
        httpx.AsyncClient(base_url=screen.address, cookies=cookies, timeout=None) as client,
        client.stream("GET", "/ui/live/overview", headers=headers) as answer,
    ):
        assert answer.headers["content-encoding"] == "gzip"
        pieces = answer.aiter_raw()
        while began is None or time.monotonic() - began < SECONDS:
            try:
                piece = await asyncio.wait_for(anext(pieces), SECONDS)
            except TimeoutError:
                break
            if began is not None:
                received += len(piece)
            elif len(piece) > 200:
                began = time.monotonic()
    assert began is not None
    return received / SECONDS


async def test_an_open_overview_takes_two_kilobytes_a_second_idle_and_ten_busy(screen: Screen) -> None:
    await screen.crawl(limit=30)
    page = await screen.person()
    cookies = {one["name"]: one["value"] for one in await page.context.cookies()}
    first = await page.request.get("/ui/overview")
    assert first.headers["content-encoding"] == "gzip"

    assert await bytes_per_second(screen, cookies) < 2 * KB
    async with screen.client() as client:
        job = (await client.crawl(spider="shop")).job_id
        assert await bytes_per_second(screen, cookies) < 10 * KB
        await client.wait(job, every=0.2)
