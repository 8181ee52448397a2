"""The park is the judge of other tests, so it is judged first."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.sites import Park, park
from tests.sites.running import ROOT


class Visitor:
    """A plain client that asks the loopback address and names the host in the Host header."""

    def __init__(self, session: aiohttp.ClientSession, ground: Park) -> None:
        self._session = session
        self._park = ground

    async def get(self, path: str, host: int = 0, etag: str = "") -> tuple[int, str, Mapping[str, str]]:
        headers = {"Host": self._park.hosts[host]} | ({"If-None-Match": etag} if etag else {})
        async with self._session.get(f"http://127.0.0.1:{self._park.port}{path}", headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers

    async def walk(self, host: int = 0) -> dict[str, str]:
        """Follow every link from the front gate; return path -> text of what gave a page at last."""
        found: dict[str, str] = {}
        waiting, seen = ["/"], {"/"}
        while waiting:
            path = waiting.pop()
            status, text, _ = await self.get(path, host)
            if status in (429, 500):
                waiting.append(path)
            elif status == 200:
                found[path] = text
                fresh = set(re.findall(r'href="([^"]+)"', text)) - seen
                seen |= fresh
                waiting += sorted(fresh)
        return found


@asynccontextmanager
async def visiting(ground: Park) -> AsyncIterator[Visitor]:
    async with aiohttp.ClientSession() as session:
        yield Visitor(session, ground)


def field(text: str, name: str) -> str:
    match = re.search(rf'class="{name}">([^<]+)<', text)
    assert match, f"no {name} on the page"
    return match[1]


async def test_a_walk_from_the_gate_finds_exactly_the_truth() -> None:
    with park(pages=60, hosts=2, flaky=2, flaky_times=2, rate_limited=1, missing=3) as ground:
        async with visiting(ground) as visitor:
            walks = [await visitor.walk(0), await visitor.walk(1)]

        seen: dict[str, dict[str, Any]] = {}
        for host, walk in enumerate(walks):
            for path, text in walk.items():
                sku, price = field(text, "sku"), field(text, "price").removesuffix(" EUR")
                url = ground.url(host, path)
                seen[sku] = {"sku": sku, "title": field(text, "title"), "price": price, "path": path, "url": url}
        assert seen == ground.truth()
        assert len(seen) == 2 * (60 + 2 + 1)


async def test_the_log_holds_every_request_with_its_status_in_order() -> None:
    with park(pages=5, flaky_times=2, retry_after="7") as ground:
        async with visiting(ground) as visitor:
            for path in ("/", "/flaky/9", "/flaky/9", "/flaky/9", "/missing/1", "/page/5", "/page/0"):
                await visitor.get(path)
            first, second = await visitor.get("/retry-after/3"), await visitor.get("/retry-after/3")

        hits = ground.hits()
        assert [hit.status for hit in hits] == [200, 500, 500, 200, 404, 404, 404, 429, 200]
        assert (first[0], first[2]["Retry-After"], second[0]) == (429, "7", 200)
        assert hits[0].host == "site0.localhost"
        assert "aiohttp" in hits[0].user_agent
        assert [hit.at for hit in hits] == sorted(hit.at for hit in hits)
        assert ground.hits(path="/flaky/9") == hits[1:4]


@pytest.mark.parametrize(
    ("plan", "status", "lines"),
    [
        ({}, 404, []),
        ({"robots": "User-agent: *\nDisallow: /page/3"}, 200, ["User-agent: *", "Disallow: /page/3"]),
        ({"crawl_delay": 0.5}, 200, ["User-agent: *", "Crawl-delay: 0.5"]),
    ],
)
async def test_robots_says_what_the_plan_says(plan: dict[str, Any], status: int, lines: list[str]) -> None:
    with park(pages=3, **plan) as ground:
        async with visiting(ground) as visitor:
            answer = await visitor.get("/robots.txt")
        assert answer[0] == status
        assert status == 404 or answer[1].split("\n")[: len(lines)] == lines
        assert ground.hits() == []
        assert len(ground.hits(robots=True)) == 1


async def test_hosts_have_their_own_size_and_latency() -> None:
    big, slow = {"site1.localhost": 9}, {"site1.localhost": 40}
    with park(pages=3, hosts=2, body_bytes=5_000, pages_of=big, latency_ms_of=slow) as ground:
        async with visiting(ground) as visitor:
            small, large = await visitor.get("/page/8", 0), await visitor.get("/page/8", 1)
        assert (small[0], large[0]) == (404, 200)
        assert len(large[1]) == 5_000
        assert ground.grounds.latency("site1.localhost") == 0.04
        assert ground.grounds.latency("site0.localhost") == 0


async def test_validators_turn_a_second_visit_into_304() -> None:
    with park(pages=3, validators=True) as ground:
        async with visiting(ground) as visitor:
            _, _, headers = await visitor.get("/page/1")
            again = await visitor.get("/page/1", etag=headers["ETag"])
            other = await visitor.get("/page/2", etag=headers["ETag"])
        assert (again[0], again[1], other[0]) == (304, "", 200)


def test_the_park_is_gone_after_the_block_even_when_the_test_failed() -> None:
    with pytest.raises(RuntimeError, match="a test failed"), park(pages=1) as ground:
        raise RuntimeError("a test failed")
    with pytest.raises(ProcessLookupError):
        os.kill(ground.pid, 0)


STARTER = """
import signal
from tests.sites import park
with park(pages=1) as ground:
    print(ground.pid, flush=True)
    signal.pause()
"""


def test_the_park_ends_when_its_starter_is_killed() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], cwd=ROOT, stdout=subprocess.PIPE)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    ground = os.pidfd_open(pid)
    starter.kill()
    starter.wait()
    starter.stdout.close()

    ended, _, _ = select.select([ground], [], [], 10)  # readable once the process is gone
    os.close(ground)
    assert ended, "the park outlived its starter"
