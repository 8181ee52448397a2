"""One suite for every transport that speaks HTTP itself: methods, bodies and headers arrive as they were meant,
directly and through proxies, and what must not be sent twice is not."""

from __future__ import annotations

import pytest

from gossamer.errors import ConnectFailed, FetchFailed, FetchRefused
from gossamer.fetch.contract import TransportRequest
from tests.services.proxies import Vouched
from tests.sites.api import ApiSite, api_site

from .transports import LIMITS, Opener, a_proxy
from .transports import opened as opened
from .transports import vouched as vouched


def post(site: ApiSite, path: str = "/echo", **told: object) -> TransportRequest:
    fields = {"method": "POST", "body": b'{"a":1}', "headers": (("Content-Type", "application/json"),), **told}
    return TransportRequest(url=site.url(path), limits=LIMITS, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_a_method_and_its_body_arrive(opened: Opener, method: str) -> None:
    async with api_site() as site, opened() as transport:
        response = await transport.fetch(post(site, method=method))
    (asked,) = site.log
    assert (response.status, asked.method, asked.body) == (200, method, b'{"a":1}')
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["content-length"] == "7"


async def test_an_empty_body_and_a_body_of_a_megabyte_arrive(opened: Opener) -> None:
    async with api_site() as site, opened() as transport:
        await transport.fetch(post(site, body=b"", headers=()))
        await transport.fetch(post(site, body=None, headers=()))
        await transport.fetch(post(site, "/sink", body=b"x" * 1_500_000, headers=(("X-Own", "1"),)))
    empty, none, long = site.log
    for asked in (empty, none):
        assert (asked.body, asked.headers.get("content-length", "0")) == (b"", "0")
        assert "content-type" not in asked.headers
    assert len(long.body) == 1_500_000


async def test_a_head_and_an_options_bring_an_answer(opened: Opener) -> None:
    async with api_site() as site, opened() as transport:
        for method in ("HEAD", "OPTIONS"):
            response = await transport.fetch(TransportRequest(url=site.url("/page"), method=method, limits=LIMITS))
            assert response.status == 200
    assert [asked.method for asked in site.log] == ["HEAD", "OPTIONS"]


async def test_a_post_without_an_answer_is_sent_once(opened: Opener) -> None:
    async with api_site() as site, opened() as transport:
        site.hang = {"/order"}
        await transport.fetch(TransportRequest(url=site.url("/page"), limits=LIMITS))  # a connection that stands
        with pytest.raises(FetchFailed):
            await transport.fetch(post(site, "/order"))
    assert site.lines() == ["GET /page", "POST /order"]


async def test_a_post_after_a_connection_went_stale_arrives_once(opened: Opener) -> None:
    async with api_site() as site, opened() as transport:
        site.close_idle = True
        await transport.fetch(TransportRequest(url=site.url("/page"), limits=LIMITS))
        try:
            await transport.fetch(post(site))
        except FetchFailed:
            assert (
                opened.kind == "wreq"
            )  # it takes up connections by itself; then nobody knows, and nothing is repeated
    assert site.lines() in (["GET /page", "POST /echo"], ["GET /page"])


async def test_a_port_where_nobody_listens_is_known_not_to_have_got_it(opened: Opener) -> None:
    async with api_site() as site:
        request = post(site)
    async with opened() as transport:
        with pytest.raises(ConnectFailed):
            await transport.fetch(request)


@pytest.mark.parametrize("header", [("X-A", "a\r\nHost: evil"), ("X-A", "\x00")])
async def test_a_header_that_would_be_two_is_not_sent(opened: Opener, header: tuple[str, str]) -> None:
    async with api_site() as site, opened() as transport:
        with pytest.raises(FetchRefused):
            await transport.fetch(post(site, headers=(header,)))
    assert site.log == []


@pytest.mark.parametrize("scheme", ["http", "socks5"])
async def test_a_body_goes_through_a_proxy(opened: Opener, vouched: Vouched, scheme: str) -> None:
    with a_proxy(scheme, vouched) as proxy:
        async with api_site() as site, opened() as transport:
            response = await transport.fetch(post(site, proxy=proxy.proxy()))
    assert response.status == 200
    assert [(asked.method, asked.body) for asked in site.log] == [("POST", b'{"a":1}')]
