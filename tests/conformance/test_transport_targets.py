"""What lies behind a proxy: which targets a proxy is asked for at all, and what of its answers is the target's own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import timedelta

import pytest

from gossamer.errors import AddressRefused, ConnectFailed, DnsFailed, FetchFailed, FetchRefused, ProxyFailed, TimedOut
from gossamer.fetch import addresses
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits
from tests.services.proxies import ProxyServer, Vouched, http_proxy, socks_proxy
from tests.sites.hostile import PAGE, HostileSite

from .transports import PATIENCE, USERS, Opener, a_proxy, assert_no_secret, everything_said, get, listener
from .transports import opened as opened
from .transports import proxy as proxy
from .transports import safe_site as safe_site
from .transports import site as site
from .transports import target as target
from .transports import vouched as vouched

PUBLIC = "93.184.216.34"
Answers = list[tuple[int, int, int, str, tuple[str, int]]]


def look_ups(*addresses: str) -> Callable[..., Answers]:
    """A name server that gives everybody these addresses; none for a name that does not exist."""

    def look_up(*_: object, **__: object) -> Answers:
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return [(0, 0, 0, "", (address, 0)) for address in addresses]

    return look_up


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("addresses", [(PUBLIC, "127.0.0.1"), ("127.0.0.1", PUBLIC), (PUBLIC, "::1")], ids=str)
async def test_one_private_address_among_public_ones_is_enough_to_refuse(
    opened: Opener,
    proxy: ProxyServer,
    vouched: Vouched,
    monkeypatch: pytest.MonkeyPatch,
    addresses: tuple[str, ...],
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", look_ups(*addresses))
    async with opened(AddressGuard(), trust=vouched.client) as transport:
        with pytest.raises(AddressRefused, match=r"mixed\.example leads to (127|::1)"):
            await get(transport, "http://mixed.example/", proxy=proxy.proxy())
    assert proxy.connections == 0


async def test_a_name_with_public_addresses_alone_is_asked_for_through_the_proxy(
    opened: Opener, site: HostileSite, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "socks5"):
        with a_proxy(scheme, vouched, leads_to={PUBLIC: site.port}) as proxy, monkeypatch.context() as patched:
            patched.setattr(addresses, "_look_up", lambda name: (PUBLIC,))
            async with opened(AddressGuard(), trust=vouched.client) as transport:
                response = await get(transport, "http://shop.example/plain", proxy=proxy.proxy())
        assert response.body == PAGE


async def test_a_name_unknown_here_is_not_asked_of_a_proxy_in_our_own_network(
    opened: Opener, site: HostileSite, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https", "socks5"):
        with a_proxy(scheme, vouched, leads_to=site.port) as proxy, monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", look_ups())
            async with opened(AddressGuard(), trust=vouched.client) as transport:
                with pytest.raises(AddressRefused, match=r"'intranet' to fetch\.allow_hosts"):
                    await get(transport, "http://intranet/plain", proxy=proxy.proxy())
        assert proxy.connections == 0
    assert site.connections == 0


async def test_a_name_server_in_trouble_lets_nobody_through_and_is_asked_again_later(
    opened: Opener, proxy: ProxyServer, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(*_: object, **__: object) -> Answers:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with opened(AddressGuard(), trust=vouched.client) as transport:
        with pytest.raises(DnsFailed, match=r"fetch\.allow_hosts"):
            await get(transport, "http://intranet/plain", proxy=proxy.proxy())
    assert proxy.connections == 0


class _LetsProxiesBe(AddressGuard):
    """Takes the loopback address of a test proxy for a public one."""

    def permits(self, host: str, address: str) -> bool:
        return (host, address) == ("127.0.0.1", "127.0.0.1") or super().permits(host, address)


async def test_a_name_unknown_here_is_left_to_a_proxy_out_in_the_world(
    opened: Opener, site: HostileSite, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for scheme in ("http", "https", "socks5"):
        with a_proxy(scheme, vouched, leads_to={"far.example": site.port}) as proxy, monkeypatch.context() as patched:
            patched.setattr(socket, "getaddrinfo", look_ups())
            async with opened(_LetsProxiesBe(), trust=vouched.client) as transport:
                response = await get(transport, "http://far.example/plain", proxy=proxy.proxy(allow_private=False))
        assert response.body == PAGE


async def test_a_look_up_that_takes_too_long_is_the_pages_time_out(
    opened: Opener, proxy: ProxyServer, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()

    def look_up(*_: object, **__: object) -> Answers:
        over.wait(PATIENCE)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        async with opened(AddressGuard(), trust=vouched.client) as transport:
            hasty = Limits(connect=timedelta(milliseconds=100))
            with pytest.raises(TimedOut, match=r"slow\.example: no address"):
                await get(transport, "http://slow.example/", proxy=proxy.proxy(), limits=hasty)
    finally:
        over.set()
    assert proxy.connections == 0


async def test_a_name_that_is_too_long_for_socks_is_refused_before_dialling(opened: Opener) -> None:
    host = ("a" * 60 + ".") * 5 + "example"
    with socks_proxy(users=USERS) as proxy:
        async with opened(AddressGuard(allow_hosts=frozenset({host}))) as transport:
            with pytest.raises(FetchRefused, match="255 bytes"):
                await get(transport, f"http://{host}/", proxy=proxy.proxy())
        assert proxy.connections == 0


# --- answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "kind"), [(3, ConnectFailed), (4, ConnectFailed), (5, ConnectFailed), (6, TimedOut)])
async def test_a_target_that_the_proxy_cannot_reach_is_the_targets_failure(
    opened: Opener, target: HostileSite, vouched: Vouched, word: int, kind: type[FetchFailed]
) -> None:
    with socks_proxy(users=USERS) as proxy:
        proxy.answer(word)
        async with opened(trust=vouched.client) as transport:
            with pytest.raises(kind, match=rf"127\.0\.0\.1:{target.port}.*says the proxy") as caught:
                await get(transport, target.url("/plain"), proxy=proxy.proxy())
    assert_no_secret(everything_said(caught.value))
    assert target.connections == 0


@pytest.mark.parametrize("word", [1, 2, 7, 8, 99])
async def test_what_the_proxy_itself_cannot_do_is_its_own_failure(
    opened: Opener, target: HostileSite, vouched: Vouched, word: int
) -> None:
    with socks_proxy(users=USERS) as proxy:
        proxy.answer(word)
        async with opened(trust=vouched.client) as transport:
            # The address of a page must not be taken for a word of the proxy.
            with pytest.raises(ProxyFailed) as caught:
                await get(transport, target.url("/Socks(ConnectionRefused)"), proxy=proxy.proxy())
    assert_no_secret(everything_said(caught.value))
    assert target.connections == 0


@pytest.mark.parametrize("head", ["", 'Proxy-Authenticate: Basic realm="x"\r\n'], ids=["plain", "in a proxy's words"])
async def test_a_site_that_answers_407_is_not_taken_for_the_proxy(opened: Opener, head: str, vouched: Vouched) -> None:
    says = f"HTTP/1.1 407 No\r\n{head}Content-Length: 2\r\n\r\nno".encode()
    for scheme in ("http", "https", "socks5"):
        with a_proxy(scheme, vouched) as proxy:
            async with listener(says) as server, opened(trust=vouched.client) as transport:
                response = await get(transport, server.url(), proxy=proxy.proxy())
            assert (response.status, response.body) == (407, b"no")
            assert proxy.refused == []


async def test_a_proxy_that_no_longer_takes_the_password_is_not_taken_for_the_site(
    opened: Opener, site: HostileSite
) -> None:
    with http_proxy(users=USERS) as proxy:
        async with opened() as transport:
            assert (await get(transport, site.url("/plain"), proxy=proxy.proxy())).body == PAGE
            proxy.refuse()
            with pytest.raises(ProxyFailed, match="user name or the password"):
                await get(transport, site.url("/plain"), proxy=proxy.proxy())
    assert len(site.log) == 1
