"""Pages in a browser that leaves through real proxies."""

from __future__ import annotations

import asyncio

import pytest

from gossamer.errors import AddressRefused, ProxyFailed
from tests.services.proxies import ProxyServer, http_proxy, socks_proxy

from .showing import CANARY, HOST, OTHER, Show

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]
USERS = {"ann": "pa55-w0rd", "bob": "b0b-w0rd"}


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_everything_of_a_page_leaves_through_its_proxy(show: Show, start: type[ProxyServer]) -> None:
    url = show.page(
        f"<iframe src='{show.url('/rendered', OTHER)}'></iframe><script src=/script.js></script>"
        f"<script>new WebSocket('ws://{HOST}:{show.site.port}/socket')</script>"
    )
    with start(users=USERS, source="127.0.0.7") as proxy:
        before = show.site.connections
        response = await show.get(url, proxy=proxy.proxy(username="bob"))
        assert b"by script" in response.body
        assert {"/page", "/rendered", "/data.json", "/script.js", "/socket"} == {seen.path for seen in show.site.log}
        assert len(proxy.passages) == show.site.connections - before  # and none by another way
        assert {one.username for one in proxy.passages} == {"bob"}
        assert {one.target.rpartition(":")[0] for one in proxy.passages} == {HOST, OTHER}


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
@pytest.mark.parametrize("fault", ["refuse", "stop", "close_at_once"])
async def test_an_proxy_that_fails_is_no_failure_of_the_page(show: Show, start: type[ProxyServer], fault: str) -> None:
    with start(users=USERS) as proxy:
        getattr(proxy, fault)()
        before = show.site.connections
        with pytest.raises(ProxyFailed) as caught:
            await show.get(show.url("/rendered"), proxy=proxy.proxy())
        assert "pa55-w0rd" not in str(caught.value)
        assert show.site.connections == before  # nothing went there directly


async def test_an_proxy_that_dies_under_a_page_is_told_of(show: Show) -> None:
    with http_proxy(users=USERS) as proxy:
        proxy.hang_up_after(0)
        with pytest.raises(ProxyFailed):
            await show.get(show.url("/rendered"), proxy=proxy.proxy())


async def test_two_pages_at_once_keep_their_proxies_apart(show: Show) -> None:
    with http_proxy(users=USERS) as one, socks_proxy(users=USERS) as two:
        pages = await asyncio.gather(
            show.get(show.url("/rendered"), proxy=one.proxy(username="ann")),
            show.get(show.url("/rendered", OTHER), proxy=two.proxy(username="bob")),
            show.get(show.url("/heavy")),
        )
        assert [page.status for page in pages] == [200, 200, 200]
        assert {(passage.username, passage.target.partition(":")[0]) for passage in one.passages} == {("ann", HOST)}
        assert {(passage.username, passage.target.partition(":")[0]) for passage in two.passages} == {("bob", OTHER)}


async def test_the_canary_is_not_reached_through_an_proxy(show: Show) -> None:
    with http_proxy() as proxy:
        with pytest.raises(AddressRefused):
            await show.get(show.canary.url("/", CANARY), proxy=proxy.proxy())
        with pytest.raises(AddressRefused):
            await show.get(show.url("/move/location"), wait=0.5, proxy=proxy.proxy())
        assert show.canary.connections == 0
