"""One suite for every transport that speaks HTTP itself: what an exchange is, how it is bounded, how it fails."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import (
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    DnsFailed,
    FetchRefused,
    TimedOut,
    TlsFailed,
)
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits, TransportRequest
from tests.services.proxies import Vouched
from tests.sites.hostile import PAGE, HostileSite, hostile_site, noise, pack

from .transports import HASTY, LIMITS, Opener, ended, get, listener
from .transports import opened as opened
from .transports import site as site
from .transports import vouched as vouched

# --- what comes back --------------------------------------------------------------------------------------------


async def test_a_page_comes_back_whole_with_its_facts(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        response = await get(transport, site.url("/plain"), headers=(("User-Agent", "Test/1"), ("X-Own", "a b")))
    assert (response.status, response.body, response.cut, response.note) == (200, PAGE, False, "")
    assert response.url == site.url("/plain")
    assert response.headers.get("etag") == '"one"'
    assert response.wire_bytes == len(PAGE)
    assert response.address == "127.0.0.1"
    assert response.seconds > 0
    seen = site.log[0].headers
    assert (seen["user-agent"], seen["x-own"], seen["host"]) == ("Test/1", "a b", f"127.0.0.1:{site.port}")


async def test_headers_are_spelled_and_ordered_as_given(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        await get(transport, site.url("/plain"), headers=(("User-Agent", "T"), ("X-B", "1"), ("X-A", "2")))
    lines = [line.partition(b":")[0] for line in site.log[0].raw.split(b"\r\n")[1:]]
    assert lines[0] == b"Host"
    assert [name for name in lines if name in (b"User-Agent", b"X-B", b"X-A")] == [b"User-Agent", b"X-B", b"X-A"]


async def test_a_header_that_comes_twice_is_there_twice(opened: Opener, site: HostileSite) -> None:
    url = site.show("/twice", PAGE, "Set-Cookie: a=1", "Set-Cookie: b=2")
    async with opened() as transport:
        response = await get(transport, url)
    assert [value for name, value in response.headers.pairs if name.lower() == "set-cookie"] == ["a=1", "b=2"]


@pytest.mark.parametrize("status", [201, 404, 407, 410, 429, 500, 503])
async def test_any_status_is_an_answer(opened: Opener, site: HostileSite, status: int) -> None:
    async with opened() as transport:
        response = await get(transport, site.url(f"/status?code={status}"))
    assert (response.status, response.body) == (status, PAGE)


async def test_redirects_are_not_followed_and_cookies_not_kept(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        response = await get(transport, site.url("/redirect?to=/plain&cookie=a=b"))
        await get(transport, site.url("/plain"))
    assert (response.status, response.headers.get("location")) == (302, "/plain")
    assert [seen.path for seen in site.log] == ["/redirect?to=/plain&cookie=a=b", "/plain"]
    assert "cookie" not in site.log[1].headers


async def test_a_head_request_has_no_body(opened: Opener) -> None:
    async with listener(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n") as server, opened() as transport:
        response = await transport.fetch(TransportRequest(url=server.url(), method="HEAD", limits=LIMITS))
        line = await server.line()
    assert (response.status, response.body) == (200, b"")
    assert line.got.startswith(b"HEAD / HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "path", ["/a%2Fb%20c?q=%E9&x=a+b&y=%zz", "/a//b/../c", "/~u/;p=1/(x)'!*", "/caf%C3%A9|x[1]", "/a%0d%0ab?%00"]
)
async def test_the_address_is_sent_exactly_as_given(opened: Opener, site: HostileSite, path: str) -> None:
    async with opened() as transport:
        await get(transport, site.url(path))
    assert site.log[0].path == path


async def test_a_fragment_is_not_sent(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        await get(transport, site.url("/plain#part"))
    assert site.log[0].path == "/plain"


async def test_a_user_name_in_the_address_is_sent_as_authorization(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        await get(transport, site.url("/plain", host="ann:b%40d@127.0.0.1"))
    assert site.log[0].headers["authorization"] == "Basic YW5uOmJAZA=="
    assert site.log[0].headers["host"] == f"127.0.0.1:{site.port}"


# --- bodies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["gzip", "deflate", "br", "zstd", "gzip,br,zstd"])
async def test_packed_pages_are_unpacked(opened: Opener, site: HostileSite, names: str) -> None:
    async with opened() as transport:
        response = await get(transport, site.url(f"/packed?with={names}"))
    assert response.body == PAGE


@pytest.mark.parametrize("names", [["gzip"], ["br"], ["zstd", "gzip"]])
@pytest.mark.parametrize("size", [5_000, 300_000])
async def test_a_packed_body_costs_the_bytes_that_came_over_the_line(
    opened: Opener, site: HostileSite, names: list[str], size: int
) -> None:
    body = noise(size)
    packed = pack(body, names)
    url = site.show("/packed-page", packed, f"Content-Encoding: {', '.join(names)}")
    async with opened() as transport:
        response = await get(transport, url, limits=msgspec.structs.replace(LIMITS, max_body=size))
    assert (response.body, response.cut, response.wire_bytes) == (body, False, len(packed))


async def test_a_chunked_body_is_put_together(opened: Opener) -> None:
    says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-T: 1\r\n\r\n"
    async with listener(says) as server, opened() as transport:
        response = await get(transport, server.url())
    assert (response.body, response.cut) == (b"hello world", False)


@pytest.mark.parametrize(
    ("path", "body", "note"),
    [
        ("/lying-label", PAGE, "not gzip"),
        ("/lying-label?with=utf-8", PAGE, "unknown encoding 'utf-8'"),
        ("/damaged-gzip", PAGE, "damaged gzip"),
        ("/empty", b"", ""),
        ("/empty-gzip", b"", ""),
        ("/binary-as-html", bytes(range(256)) * 16, ""),
        ("/redirect-nowhere", PAGE, ""),
        ("/always-304", b"", ""),
    ],
)
async def test_odd_bodies_are_kept_with_a_note(
    opened: Opener, site: HostileSite, path: str, body: bytes, note: str
) -> None:
    async with opened() as transport:
        response = await get(transport, site.url(path))
    assert (response.body, response.note) == (body, note)


async def test_truncated_gzip_keeps_what_was_decoded(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        response = await get(transport, site.url("/truncated"))
    assert (response.note, response.cut) == ("truncated gzip", True)
    assert len(response.body) > 10_000


async def test_header_bytes_that_are_no_text_become_replacement_characters(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        response = await get(transport, site.url("/header-bytes"))
    assert response.headers.get("x-odd") == "caf\ufffd é"


async def test_the_target_of_a_redirect_keeps_bytes_that_are_no_utf_8(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        response = await get(transport, site.url("/moved-to-latin"))
    assert response.headers.get("location") == "/caf%E9/é"


# --- bounds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/endless", "/endless-chunked", "/endless-gzip"])
async def test_an_endless_body_is_cut_and_marked(opened: Opener, site: HostileSite, path: str) -> None:
    async with opened() as transport:
        response = await get(transport, site.url(path))
        # Then its connection is of no use, and another one is made.
        assert (await get(transport, site.url("/plain"))).body == PAGE
    assert response.cut
    assert len(response.body) <= LIMITS.max_body
    assert response.wire_bytes < 1_000_000
    assert site.connections == 2


async def test_a_body_just_as_long_as_the_limit_is_whole(opened: Opener, site: HostileSite) -> None:
    url = site.show("/full", b"x" * LIMITS.max_body)
    longer = site.show("/fuller", b"x" * (LIMITS.max_body + 1))
    async with opened() as transport:
        whole, cut = await get(transport, url), await get(transport, longer)
    assert (len(whole.body), whole.cut) == (LIMITS.max_body, False)
    assert (len(cut.body), cut.cut) == (LIMITS.max_body, True)


@pytest.mark.parametrize("names", ["gzip", "deflate", "br", "zstd", "gzip,zstd"])
async def test_a_bomb_is_cut_at_the_limit(opened: Opener, site: HostileSite, names: str) -> None:
    async with opened() as transport:
        response = await get(transport, site.url(f"/bomb?with={names}"))
    assert response.cut
    assert 0 < len(response.body) <= LIMITS.max_body


async def test_a_header_of_100_megabytes_is_not_read(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        with pytest.raises(BadResponse, match="max_header"):
            await get(transport, site.url("/huge-header"))
        assert site.sent < 20_000_000  # what fits into the buffers of the sockets


async def test_a_small_limit_on_headers_holds(opened: Opener, site: HostileSite) -> None:
    url = site.show("/wide", PAGE, f"X-Wide: {'w' * 3000}")
    tight = Limits(max_header=2000)
    async with opened() as transport:
        with pytest.raises(BadResponse, match="max_header"):
            await get(transport, url, limits=tight)
        assert (await get(transport, site.url("/plain"), limits=tight)).body == PAGE


@pytest.mark.parametrize("path", ["/silence", "/drip", "/drip-headers"])
async def test_what_takes_too_long_is_a_timeout(opened: Opener, site: HostileSite, path: str) -> None:
    async with opened() as transport:
        with pytest.raises(TimedOut, match=r"_timeout"):
            await get(transport, site.url(path), limits=HASTY)


async def test_a_server_that_only_announces_an_answer_is_given_up(opened: Opener) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with listener(early * 16 + final) as patient, opened() as transport:
        assert (await get(transport, patient.url())).body == b"ok"
    async with listener(early * 17) as endless, opened() as transport:
        # wreq does not tell of interim answers; there the time runs out.
        with pytest.raises(BadResponse if opened.kind == "aiohttp" else TimedOut):
            await get(transport, endless.url(), limits=LIMITS if opened.kind == "aiohttp" else HASTY)
        assert await ended(await endless.line())


async def test_announcements_without_end_are_given_up(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        with pytest.raises((BadResponse, TimedOut), match=r"interim answers|_timeout"):
            await get(transport, site.url("/endless-informational"), limits=HASTY)
        assert (await get(transport, site.url("/plain"))).body == PAGE


async def test_silence_in_the_middle_of_a_body_is_a_timeout(opened: Opener) -> None:
    says = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nand then nothing"
    async with listener(says) as server, opened() as transport:
        with pytest.raises(TimedOut, match=r"silence .*read_timeout"):
            await get(transport, server.url(), limits=Limits(read=timedelta(milliseconds=100)))
        assert await ended(await server.line())


async def test_a_connection_that_never_stands_is_a_timeout(opened: Opener) -> None:
    # A server that never says hello: for TLS that is part of connecting.
    hasty = Limits(connect=timedelta(milliseconds=200))
    async with listener(until=b"no such thing") as server, opened() as transport:
        with pytest.raises(TimedOut, match="no connection within"):
            await get(transport, server.url(scheme="https"), limits=hasty)


async def test_a_deadline_is_no_cancellation_for_the_caller(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        with pytest.raises(TimedOut):
            await get(transport, site.url("/drip"), limits=HASTY)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


# --- failures ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/reset-before-headers", ConnectionDropped),
        ("/close-before-headers", ConnectionDropped),
        ("/reset-mid-body", ConnectionDropped),
        ("/short-body", ConnectionDropped),
        ("/short-chunked", ConnectionDropped),
        ("/garbage", BadResponse),
        ("/http09", BadResponse),
        ("/bad-chunked", BadResponse),
        ("/bad-chunked-late", BadResponse),
        ("/two-lengths", BadResponse),
        ("/many-headers", BadResponse),
        ("/wide-headers", BadResponse),
        ("/huge-status-line", BadResponse),
        ("/hundredfold", BadResponse),
        ("/junk-label", BadResponse),
    ],
)
async def test_a_broken_answer_has_its_own_error(
    opened: Opener, site: HostileSite, path: str, error: type[Exception]
) -> None:
    async with opened() as transport:
        with pytest.raises(error) as caught:
            await get(transport, site.url(path))
        assert type(caught.value) is error
        assert "\n" not in str(caught.value)
        assert len(site.seen(path)) == 1  # and it was asked for once
        # The transport is as good as new afterwards.
        assert (await get(transport, site.url("/plain"))).body == PAGE


async def test_a_refused_connection_is_a_connect_failure(opened: Opener) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        async with opened() as transport:
            with pytest.raises(ConnectFailed, match="refused"):
                await get(transport, f"http://127.0.0.1:{taken.getsockname()[1]}/")


async def test_a_name_that_does_not_resolve_is_a_dns_failure(opened: Opener) -> None:
    async with opened() as transport:
        with pytest.raises(DnsFailed):
            await get(transport, "http://no-such-name.invalid/")


async def test_a_certificate_nobody_vouches_for_is_a_tls_failure(opened: Opener, vouched: Vouched) -> None:
    async with hostile_site(tls=vouched.server) as site, opened() as transport:
        with pytest.raises(TlsFailed, match="certificate"):
            await get(transport, site.url("/plain"))
    assert site.log == []


async def test_a_certificate_for_another_name_is_a_tls_failure(opened: Opener, vouched: Vouched) -> None:
    guard = AddressGuard(allow_hosts=frozenset({"other.localhost"}))
    async with hostile_site(tls=vouched.server) as site, opened(guard, trust=vouched.client) as transport:
        with pytest.raises(TlsFailed):
            await get(transport, site.url("/plain", host="other.localhost"))
    assert site.log == []


async def test_a_certificate_that_is_vouched_for_is_believed(opened: Opener, vouched: Vouched) -> None:
    async with hostile_site(tls=vouched.server) as site, opened(trust=vouched.client) as transport:
        assert (await get(transport, site.url("/plain"))).body == PAGE


@pytest.mark.parametrize("bad", ["/a\r\nX-Evil: 1", "/a\nb", "/a b", "/a\x00", "/a\x7f", "/é", "/\udc80"])
async def test_nothing_can_be_injected_through_the_url(opened: Opener, site: HostileSite, bad: str) -> None:
    async with opened() as transport:
        with pytest.raises(FetchRefused):
            await get(transport, site.url(bad))
    assert site.connections == 0


@pytest.mark.parametrize("bad", ["1\r\nX-Evil: 1", "1\nX-Evil: 1", "1\rX-Evil: 1", "1\x00"])
async def test_nothing_can_be_injected_through_a_header(opened: Opener, site: HostileSite, bad: str) -> None:
    async with opened() as transport:
        with pytest.raises(FetchRefused):
            await get(transport, site.url("/plain"), headers=(("X-Fine", bad),))
        with pytest.raises(FetchRefused):
            await get(transport, site.url("/plain"), headers=((f"X-Name{bad}", "1"),))
    assert site.log == []


@pytest.mark.parametrize("href", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http:///x", "nonsense", ""])
async def test_what_is_no_http_address_is_refused(opened: Opener, href: str) -> None:
    async with opened() as transport:
        with pytest.raises(FetchRefused):
            await get(transport, href)


async def test_a_transport_that_is_not_entered_says_so(opened: Opener) -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await get(opened(), "http://127.0.0.1/")
