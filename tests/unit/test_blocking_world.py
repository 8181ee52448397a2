"""The world that refuses is the judge of the router, so it is judged first; and its walls are walls to `judge`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp
import pytest

from gossamer.fetch.contract import Response
from gossamer.model.page import Headers
from gossamer.routing.blocks import judge
from tests.services.proxies import http_proxy
from tests.sites.blocking import World, blocking_world, looks_like_a_browser

DIRECT, DATACENTER, RESIDENTIAL, MANAGED = "127.0.0.1", "127.0.1.4", "127.0.2.4", "127.0.3.4"
CHROME = [
    ("host", "shop.localhost"),
    ("sec-ch-ua", '"Chromium";v="140", "Not=A?Brand";v="24"'),
    ("sec-ch-ua-platform", '"Windows"'),
    ("user-agent", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0"),
    ("accept", "text/html"),
    ("sec-fetch-mode", "navigate"),
    ("accept-language", "en"),
]


class Visitor:
    """A plain client that dials from the address it is given."""

    def __init__(self, session: aiohttp.ClientSession, world: World) -> None:
        self._session = session
        self._world = world

    async def get(
        self, domain: str, path: str = "/page/1", headers: Mapping[str, str] | None = None, proxy: str | None = None
    ) -> Response:
        url = f"http://127.0.0.1:{self._world.port}{path}"
        named = {**(headers or {}), "Host": domain}
        async with self._session.get(url, headers=named, proxy=proxy) as answer:
            return Response(
                url=url, status=answer.status, headers=Headers(answer.headers.items()), body=await answer.read()
            )


@asynccontextmanager
async def coming_from(address: str, world: World) -> AsyncIterator[Visitor]:
    connector = aiohttp.TCPConnector(local_addr=(address, 0))
    async with aiohttp.ClientSession(connector=connector) as session:
        yield Visitor(session, world)


@pytest.mark.parametrize(
    ("kind", "welcome"),
    [
        ("open", (DIRECT, DATACENTER, RESIDENTIAL, MANAGED)),
        ("direct-shy", (DATACENTER, RESIDENTIAL, MANAGED)),
        ("datacenter-shy", (RESIDENTIAL, MANAGED)),
        ("fortress", (MANAGED,)),
        ("profiled", (MANAGED,)),
        ("script", ()),
        ("login", ()),
    ],
)
async def test_each_kind_serves_its_own_visitors_and_shows_a_wall_to_the_rest(
    kind: str, welcome: tuple[str, ...]
) -> None:
    domains = {f"a{n}.localhost": kind for n in range(6)}  # all three sorts of walls are among them
    with blocking_world(domains, pages=3) as world:
        truth = world.truth()
        for address in (DIRECT, DATACENTER, RESIDENTIAL, MANAGED):
            async with coming_from(address, world) as visitor:
                for domain in domains:
                    answer = await visitor.get(domain)
                    block = judge(answer)
                    got = next((sku for sku in truth if sku.encode() in answer.body), None)
                    assert (got is not None, block is None) == (address in welcome, address in welcome), block
                    assert got is None or truth[got]["url"] == world.url(domain, 1)
        hits = world.hits()

    assert [hit.proxy for hit in hits] == [a for a in (DIRECT, DATACENTER, RESIDENTIAL, MANAGED) for _ in domains]
    assert {hit.verdict == "page" for hit in hits if hit.proxy in welcome} <= {True}
    assert len(truth) == (0 if kind == "login" else 18)


async def test_a_proxy_is_known_by_the_address_that_it_dials_from() -> None:
    with (
        blocking_world({"shy.localhost": "datacenter-shy"}) as world,
        http_proxy(source=RESIDENTIAL) as home,
        http_proxy(source=DATACENTER) as rack,
    ):
        async with coming_from(DIRECT, world) as visitor:
            forged = {"X-Forwarded-For": RESIDENTIAL, "Via": RESIDENTIAL, "X-Rendered": "yes"}
            await visitor.get("shy.localhost", headers=forged)
            await visitor.get("shy.localhost", proxy=rack.url)
            through_home = await visitor.get("shy.localhost", proxy=home.url)

        assert [(hit.proxy, hit.through, hit.verdict == "page") for hit in world.hits()] == [
            (DIRECT, "direct", False),
            (DATACENTER, "datacenter", False),
            (RESIDENTIAL, "residential", True),
        ]
        assert b"shy-page-0000001" in through_home.body


async def test_a_counting_site_shuts_one_proxy_out_for_a_while_and_no_other() -> None:
    with blocking_world({"count.localhost": "counting:2:600"}) as world:
        async with coming_from(DATACENTER, world) as one, coming_from(RESIDENTIAL, world) as other:
            statuses = [(await one.get("count.localhost")).status for _ in range(5)]
            fresh = await other.get("count.localhost")
        async with coming_from(MANAGED, world) as vendor:
            vendors = [(await vendor.get("count.localhost")).status for _ in range(5)]

    assert statuses == [200, 200, 429, 403, 403]
    assert fresh.status == 200
    assert vendors == [200] * 5


async def test_a_counting_site_opens_again() -> None:
    with blocking_world({"count.localhost": "counting:1:0"}) as world:
        async with coming_from(DATACENTER, world) as visitor:
            answers = [await visitor.get("count.localhost") for _ in range(4)]

    assert [answer.status for answer in answers] == [200, 429, 200, 429]
    assert answers[1].headers.get("Retry-After") == "0"


async def test_the_data_of_a_shell_is_the_record_of_its_page() -> None:
    with blocking_world({"app.localhost": "script"}, pages=3) as world:
        async with coming_from(DIRECT, world) as visitor:
            shell = await visitor.get("app.localhost", "/page/2")
            data = await visitor.get("app.localhost", "/data.json?page=2")
        async with coming_from(MANAGED, world) as vendor:
            rendered = await vendor.get("app.localhost", "/page/2", {"X-Rendered": "yes"})
        block = judge(shell)

    assert block is not None
    assert block.kind == "shell"
    assert b"app-page-0000002" not in shell.body
    assert b"app-page-0000002" in data.body
    assert b"app-page-0000002" in rendered.body
    assert judge(rendered) is None


async def test_other_paths_other_hosts_and_robots_are_not_there() -> None:
    with blocking_world({"a.localhost": "fortress"}, pages=3) as world:
        async with coming_from(MANAGED, world) as visitor:
            asked = [("a.localhost", "/page/3"), ("a.localhost", "/x"), ("b.localhost", "/page/1")]
            statuses = [(await visitor.get(*one)).status for one in (*asked, ("a.localhost", "/robots.txt"))]

        assert statuses == [404] * 4
        assert [hit.verdict for hit in world.hits()] == ["missing"] * 3
        assert len(world.hits(robots=True)) == 4


def test_a_browser_is_one_whose_headers_agree() -> None:
    firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
    swapped = [*CHROME[:1], CHROME[3], *CHROME[1:3], *CHROME[4:]]
    assert looks_like_a_browser(CHROME)
    assert looks_like_a_browser([("user-agent", firefox), ("accept-language", "en"), ("sec-fetch-mode", "navigate")])
    assert not looks_like_a_browser(swapped)
    assert not looks_like_a_browser([*CHROME[:1], *CHROME[3:]])  # Chrome without its hints
    assert not looks_like_a_browser([*CHROME[:2], ("sec-ch-ua-platform", '"macOS"'), *CHROME[3:]])
    assert not looks_like_a_browser([(n, v.replace("140", "139") if n == "sec-ch-ua" else v) for n, v in CHROME])
    assert not looks_like_a_browser(
        [("user-agent", "gossamer/0.1"), ("accept-language", "en"), ("sec-fetch-mode", "x")]
    )


async def test_the_headers_of_a_browser_open_a_profiled_site() -> None:
    with blocking_world({"picky.localhost": "profiled"}) as world:
        async with coming_from(DIRECT, world) as visitor:
            answer = await visitor.get("picky.localhost", headers=dict(CHROME[1:]))
            plain = await visitor.get("picky.localhost")

    assert b"picky-page-0000001" in answer.body
    assert plain.status == 403


def test_names_and_kinds_that_cannot_be_are_refused() -> None:
    for domains in ({"shop.example": "open"}, {"a.localhost": "opne"}):
        with pytest.raises(ValueError, match="localhost"), blocking_world(domains):
            pass
