"""The park is the judge of other tests, so it is judged first."""

from __future__ import annotations

import asyncio
import os
import re
import select
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import wreq

from tests.patience import PATIENCE, until
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


async def test_over_tls_the_handshake_takes_its_time_and_the_request_is_stamped_when_it_is_sent() -> None:
    with park(pages=3, tls=True, handshake_ms=[400, 450]) as ground:
        assert ground.certificate is not None
        trust = ssl.create_default_context(cafile=ground.certificate)
        began = time.monotonic()
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", ground.port, ssl=trust, server_hostname=ground.hosts[0]
        )
        connected = time.monotonic()
        sent = []
        for path in ("/", "/page/1"):
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {ground.hosts[0]}:{ground.port}\r\n\r\n".encode())
            sent.append(time.monotonic())
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.findall(rb"Content-Length: (\d+)", head)[0]))
        writer.close()

        assert connected - began >= 0.4
        first, second = ground.hits()
        assert (first.path, second.path, first.connection) == ("/", "/page/1", second.connection)
        assert connected <= first.at <= sent[0] + PATIENCE
        assert sent[0] < second.at


async def test_http2_is_logged_by_host_and_without_paths() -> None:
    with park(hosts=2, tls=True, http2=True) as ground:
        assert ground.certificate is not None
        store = wreq.CertStore.from_der_certs(
            ssl.create_default_context(cafile=ground.certificate).get_ca_certs(binary_form=True)
        )
        client = wreq.Client(tls_verify=store, no_proxy=True)
        for host in (0, 1, 1):
            answer = await client.get(ground.url(host, "/page/7"))
            assert "Hello" in await answer.text()
        assert [(hit.host, hit.status) for hit in ground.hits()] == [
            ("site0.localhost", 200), ("site1.localhost", 200), ("site1.localhost", 200),
        ]  # fmt: skip


async def test_requests_on_standing_connections_are_dropped_after_they_were_logged() -> None:
    with park(pages=9, drop_every=2) as ground:
        answered = 0
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
            while not reader.at_eof():
                writer.write(f"GET / HTTP/1.1\r\nHost: {ground.hosts[0]}\r\n\r\n".encode())
                head = await reader.readline()
                answered += bool(head)
                while len(head) > 2:
                    head = await reader.readline()
                    if head.startswith(b"Content-Length"):
                        size = int(head.split()[1])
                if not reader.at_eof():
                    await reader.readexactly(size)
            writer.close()

        # of those on a connection that had served before every other one
        assert [hit.status for hit in ground.hits()] == [200, 200, 0, 200, 200, 0]
        assert answered == 4


async def test_hosts_that_are_apart_go_away_alone_and_come_back_where_they_were() -> None:
    with park(pages=2, hosts=2, apart=["site1.localhost"], edition=3) as ground:
        assert ground.url(0).rpartition(":")[2] != ground.url(1).rpartition(":")[2]

        async def answers(port: int) -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return False
            writer.close()
            return True

        async def become(reachable: bool) -> None:
            async def is_so() -> bool:
                return await answers(ground.port_apart) == reachable

            await until(is_so, f"reachable: {reachable}")

        reader, _ = await asyncio.open_connection("127.0.0.1", ground.port_apart)
        ground.go_away()
        assert await reader.read() == b""  # who was there is sent away, too
        await become(reachable=False)
        assert await answers(ground.port)
        ground.come_back()
        await become(reachable=True)
        assert {record["title"].partition(", ")[2] for record in ground.truth().values()} == {"edition 3"}


async def test_a_connection_is_closed_after_as_many_answers_as_announced() -> None:
    with park(pages=3, close_every=2) as ground:
        reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
        writer.write(f"GET /robots.txt HTTP/1.1\r\nHost: {ground.hosts[0]}\r\n\r\n".encode() * 3)
        answer = await reader.read()
        assert answer.count(b"HTTP/1.1 404") == 2
        assert answer.count(b"Connection: close") == 1


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
