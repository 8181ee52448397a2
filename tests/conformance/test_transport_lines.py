"""Which addresses a transport dials, and what it does with its connections."""

from __future__ import annotations

import asyncio
import socket
from datetime import timedelta

import pytest

from gossamer.errors import AddressRefused, ConnectionDropped, DnsFailed, FetchRefused
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Response
from tests.services.proxies import http_proxy
from tests.sites.hostile import PAGE, HostileSite

from .transports import LOOPBACK, Opener, ended, get, listener
from .transports import opened as opened
from .transports import site as site

# --- addresses --------------------------------------------------------------------------------------------------

_LOOPBACK_NAMES = [
    "127.0.0.1", "localhost", "shop.localhost", "LOCALHOST", "localhost.", "[::1]", "[::ffff:127.0.0.1]",
    "[::127.0.0.1]", "0.0.0.0",
]  # fmt: skip


@pytest.mark.parametrize("host", _LOOPBACK_NAMES)
async def test_no_private_address_is_dialled_by_whatever_name(opened: Opener, site: HostileSite, host: str) -> None:
    async with opened(AddressGuard()) as transport:
        with pytest.raises(AddressRefused):
            await get(transport, site.url("/plain", host=host))
    assert site.connections == 0


@pytest.mark.parametrize(
    "host",
    [
        "127.1", "2130706433", "0x7f.1", "0x7f000001", "017700000001", "127.0.0.1.", "127.0.0.1..",
        "public.example\\@127.0.0.1", "public.example@127.0.0.1", "127.0.0.1%2eexample", "[::1%25lo]",
    ],
)  # fmt: skip
async def test_odd_spellings_of_loopback_are_not_dialled(opened: Opener, site: HostileSite, host: str) -> None:
    async with opened(AddressGuard()) as transport:
        with pytest.raises((FetchRefused, DnsFailed)):
            await get(transport, site.url("/plain", host=host))
    assert site.connections == 0


async def test_a_name_whose_answer_is_private_is_not_dialled(
    opened: Opener, site: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", 0))])
    async with opened(LOOPBACK) as transport:
        with pytest.raises(AddressRefused, match=r"rebound\.example leads to 127"):
            await get(transport, site.url("/plain", host="rebound.example"))
    assert site.connections == 0


class _OnlyTheFirst(AddressGuard):
    """Lets 127.0.0.1 through as if it were public, and nothing else."""

    def permits(self, host: str, address: str) -> bool:
        return address == "127.0.0.1"


async def test_an_answer_that_changes_after_the_check_leads_nowhere(
    opened: Opener, site: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["127.0.0.1"])

    def look_up(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(0, 0, 0, "", (next(answers, "127.0.0.2"), 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with listener(host="127.0.0.2", port=site.port) as canary, opened(_OnlyTheFirst()) as transport:
        response = await get(transport, site.url("/plain", host="rebound.example"))
    assert response.address == "127.0.0.1"
    assert site.log[0].headers["host"] == f"rebound.example:{site.port}"
    assert canary.lines == []


@pytest.mark.parametrize(
    "host", ["shop.example", "SHOP.Example", "shop.example.", "xn--bcher-kva.example", "a_b.example"]
)
async def test_names_are_looked_up_by_us_alone(
    opened: Opener, site: HostileSite, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    # Nobody else knows these names: whoever asked the system's own resolver would find nothing.
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", 0))])
    async with opened(_OnlyTheFirst()) as transport:
        assert (await get(transport, site.url("/plain", host=host))).body == PAGE


async def test_a_redirect_to_a_private_address_is_not_dialled(opened: Opener, site: HostileSite) -> None:
    async with listener() as canary, opened() as transport:
        response = await get(transport, site.url(f"/redirect?to={canary.url(host='localhost')}"))
    assert response.status == 302
    assert canary.lines == []


async def test_an_allowed_host_is_dialled_beside_refused_ones(opened: Opener, site: HostileSite) -> None:
    async with opened(AddressGuard(allow_hosts=frozenset({"localhost"}))) as transport:
        allowed, refused = site.url("/plain", host="localhost"), site.url("/plain")
        results = await asyncio.gather(*(get(transport, url) for url in (allowed, refused) * 5), return_exceptions=True)
    assert [type(result) for result in results] == [Response, AddressRefused] * 5


async def test_an_address_of_the_newer_kind_is_dialled_when_it_may_be(opened: Opener) -> None:
    if not socket.has_ipv6 or not _has_loopback_v6():
        pytest.skip("this machine has no IPv6")
    says = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with listener(says, host="::1") as server, opened(AddressGuard(allow_hosts=frozenset({"::1"}))) as transport:
        response = await get(transport, server.url(host="[::1]"))
        line = await server.line()
    assert (response.body, response.address) == (b"ok", "::1")
    assert f"Host: [::1]:{server.port}\r\n".encode() in line.got


def _has_loopback_v6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


# --- connections ------------------------------------------------------------------------------------------------


async def test_connections_are_used_again(opened: Opener, site: HostileSite) -> None:
    async with opened() as transport:
        for _ in range(5):
            await get(transport, site.url("/plain"))
    assert site.connections == 1


async def test_a_connection_that_the_server_ended_is_replaced(opened: Opener, site: HostileSite) -> None:
    url = site.show("/last", PAGE, "Connection: close")
    async with opened() as transport:
        for _ in range(3):
            assert (await get(transport, url)).body == PAGE
    assert len(site.log) == 3


async def test_a_request_that_is_cut_off_on_a_fresh_connection_is_not_made_again(
    opened: Opener, site: HostileSite
) -> None:
    async with opened() as transport:
        with pytest.raises(ConnectionDropped):
            await get(transport, site.url("/close-before-headers"))
    assert len(site.log) == 1


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nsome"])
async def test_a_cancelled_fetch_leaves_as_cancelled_and_hangs_up(opened: Opener, says: bytes) -> None:
    async with listener(says) as server, opened() as transport:
        fetch = asyncio.ensure_future(get(transport, server.url()))
        line = await server.line()
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        assert await ended(line)


async def test_leaving_ends_the_idle_connections(opened: Opener) -> None:
    async with listener(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as server:
        async with opened() as transport:
            await get(transport, server.url())
            line = await server.line()
            assert not line.ended.is_set()
        assert await ended(line)


async def test_an_idle_connection_ends_with_its_time(opened: Opener) -> None:
    says = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    async with listener(says) as server, opened(keep_alive=timedelta(milliseconds=100)) as transport:
        await get(transport, server.url())
        assert await ended(await server.line())


async def test_proxies_of_the_environment_are_not_used(
    opened: Opener, site: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with http_proxy() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        async with opened() as transport:
            assert (await get(transport, site.url("/plain"))).body == PAGE
        assert proxy.connections == 0
