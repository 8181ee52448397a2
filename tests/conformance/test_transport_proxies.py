"""Proxies: every transport leaves through the proxy that it is given, as the one it is given, and in no other way."""

from __future__ import annotations

import asyncio
import base64
import socket
import sys
from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from gossamer.errors import AddressRefused, FetchRefused, ProxyFailed, TimedOut, TlsFailed
from gossamer.fetch import addresses
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Limits
from tests.services.proxies import ProxyServer, Vouched, http_proxy, socks_proxy, vouched_for
from tests.sites.hostile import PAGE, HostileSite

from .transports import LIMITS, USERS, Opener, a_proxy, assert_no_secret, ended, everything_said, get, listener
from .transports import opened as opened
from .transports import proxy as proxy
from .transports import safe_site as safe_site
from .transports import site as site
from .transports import target as target
from .transports import vouched as vouched

HASTY = Limits(connect=timedelta(milliseconds=300), read=timedelta(milliseconds=300), total=timedelta(seconds=3))
PUBLIC = "93.184.215.14"
SHOP = AddressGuard(allow_hosts=frozenset({"shop.example"}))
Conduct = Callable[[ProxyServer], None]

# Python 3.11.2 fails itself over a certificate that it refuses within another TLS connection; 3.11.7 does not.
TLS_IN_TLS_TELLS = sys.version_info >= (3, 11, 7)


# --- leaving ----------------------------------------------------------------------------------------------------


async def test_a_page_is_fetched_through_the_proxy(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    async with opened(trust=vouched.client) as transport:
        response = await get(transport, target.url("/plain"), proxy=proxy.proxy())
    assert (response.status, response.body, response.wire_bytes) == (200, PAGE, len(PAGE))
    assert response.address == "127.0.0.1"
    assert [(one.username, one.target) for one in proxy.passages] == [("ann", f"127.0.0.1:{target.port}")]
    assert target.connections == 1
    # What is for the proxy does not reach the site.
    assert_no_secret(target.log[0].raw.decode("latin-1"))
    assert not [name for name in target.log[0].headers if name.startswith("proxy-")]


async def test_a_name_that_only_the_proxy_knows_is_fetched(opened: Opener, site: HostileSite, vouched: Vouched) -> None:
    for scheme in ("http", "https", "socks5"):
        with a_proxy(scheme, vouched, leads_to={"shop.example": site.port}) as proxy:
            async with opened(SHOP, trust=vouched.client) as transport:
                response = await get(transport, "http://shop.example/plain", proxy=proxy.proxy())
        assert response.body == PAGE
        assert site.log[-1].headers["host"] == "shop.example"
        assert proxy.passages[0].target == "shop.example:80"


async def test_a_safe_site_by_a_name_that_only_the_proxy_knows(
    opened: Opener, safe_site: HostileSite, vouched: Vouched
) -> None:
    for scheme in ("http", "https", "socks5"):
        with a_proxy(scheme, vouched, leads_to={"shop.example": safe_site.port}) as proxy:
            async with opened(SHOP, trust=vouched.client) as transport:
                assert (await get(transport, "https://shop.example/plain", proxy=proxy.proxy())).body == PAGE


async def test_a_proxy_without_passwords_is_used_without(opened: Opener, site: HostileSite) -> None:
    for opening in (http_proxy, socks_proxy):
        with opening() as proxy:
            async with opened() as transport:
                assert (await get(transport, site.url("/plain"), proxy=proxy.proxy())).body == PAGE
            assert [one.username for one in proxy.passages] == [""]


async def test_odd_passwords_arrive_as_they_are(opened: Opener, site: HostileSite) -> None:
    users = {"ann-session-7-country-de": "p:a@s/s%20?#ß"}
    for opening in (http_proxy, socks_proxy):
        with opening(users=users) as proxy:
            async with opened() as transport:
                assert (await get(transport, site.url("/plain"), proxy=proxy.proxy())).body == PAGE
            assert [one.username for one in proxy.passages] == list(users)


async def test_a_proxy_with_a_name_is_looked_up_by_us(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched
) -> None:
    with_name = proxy.proxy(host="localhost")
    async with opened(trust=vouched.client) as transport:
        assert (await get(transport, site.url("/plain"), proxy=with_name)).body == PAGE
    assert len(proxy.passages) == 1


async def test_a_proxys_name_is_looked_up_by_us_alone(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", 0))])
    async with opened(trust=vouched.client) as transport:
        assert (await get(transport, site.url("/plain"), proxy=proxy.proxy(host="Other.Example"))).body == PAGE
    assert len(proxy.passages) == 1


async def test_exclusions_of_the_environment_do_not_count(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "*")
    async with opened(trust=vouched.client) as transport:
        await get(transport, target.url("/plain"), proxy=proxy.proxy())
    assert len(proxy.passages) == target.connections == 1


# --- identities -------------------------------------------------------------------------------------------------


async def test_identities_never_share_a_connection(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    ann, bob = proxy.proxy(username="ann"), proxy.proxy(username="bob")
    async with opened(trust=vouched.client) as transport:
        for chosen in (ann, bob, None, ann, bob, None, bob, ann, None):
            assert (await get(transport, target.url("/plain"), proxy=chosen)).body == PAGE
        # Ann's connection, Bob's, and the direct one; each of them used again and again.
        assert target.connections == 3
        assert proxy.connections == 2
        await asyncio.gather(*(get(transport, target.url("/plain"), proxy=chosen) for chosen in (ann, bob, None) * 5))
    users_of = {
        number: {one.username for one in proxy.passages if one.connection == number}
        for number in {one.connection for one in proxy.passages}
    }
    assert all(len(users) == 1 for users in users_of.values())
    assert {user for users in users_of.values() for user in users} == {"ann", "bob"}


async def test_another_password_is_another_identity(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    async with opened(trust=vouched.client) as transport:
        assert (await get(transport, target.url("/plain"), proxy=proxy.proxy())).body == PAGE
        with pytest.raises(ProxyFailed):
            await get(transport, target.url("/plain"), proxy=proxy.proxy(password="wrong"))
    assert len(target.log) == 1


# --- failures of the proxy ----------------------------------------------------------------------------------------

_CONDUCTS: dict[str, Conduct] = {
    "refuses": lambda proxy: proxy.refuse(),
    "hangs up at once": lambda proxy: proxy.close_at_once(),
    "is gone": lambda proxy: proxy.stop(),
}


@pytest.mark.parametrize("conduct", list(_CONDUCTS))
async def test_a_proxy_that_fails_is_told_from_a_site_that_fails(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched, conduct: str
) -> None:
    _CONDUCTS[conduct](proxy)
    async with opened(trust=vouched.client) as transport:
        with pytest.raises(ProxyFailed) as caught:
            await get(transport, target.url("/plain"), proxy=proxy.proxy())
        assert target.connections == 0
        assert proxy.address in str(caught.value)
        assert_no_secret(everything_said(caught.value))
        # When it is well again, so are we.
        proxy.behave()
        if conduct == "is gone":
            proxy.start()
        assert (await get(transport, target.url("/plain"), proxy=proxy.proxy())).body == PAGE


async def test_a_wrong_password_is_said_to_be_one(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    wrong = "wr0ng-pa55"
    async with opened(trust=vouched.client) as transport:
        with pytest.raises(ProxyFailed, match="user name or the password") as caught:
            await get(transport, target.url("/plain"), proxy=proxy.proxy(password=wrong))
    assert caught.value.status == 407
    assert target.connections == 0
    # A plain request might have got its 407 from the site: there the proxy is asked a second time.
    plain = target.url("/").startswith("http:") and proxy.scheme != "socks5"
    assert proxy.refused == ["ann"] * (2 if plain else 1)
    said = everything_said(caught.value)
    assert wrong not in said
    assert base64.b64encode(f"ann:{wrong}".encode()).decode() not in said


@pytest.mark.parametrize("status", [403, 502, 503, 504])
async def test_a_tunnel_that_is_not_made_is_the_proxys_failure(
    opened: Opener, safe_site: HostileSite, vouched: Vouched, status: int
) -> None:
    for scheme in ("http", "https"):
        with a_proxy(scheme, vouched) as proxy:
            proxy.answer(status)
            async with opened(trust=vouched.client) as transport:
                with pytest.raises(ProxyFailed) as caught:
                    await get(transport, safe_site.url("/plain"), proxy=proxy.proxy())
        assert_no_secret(everything_said(caught.value))
    assert safe_site.connections == 0


@pytest.mark.parametrize("size", [0, 40, 5000])
async def test_a_proxy_that_dies_on_the_way_is_the_proxys_failure(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched, size: int
) -> None:
    url = target.show("/long", b"x" * 50_000)
    proxy.hang_up_after(size)
    async with opened(trust=vouched.client) as transport:
        with pytest.raises(ProxyFailed) as caught:
            await get(transport, url, proxy=proxy.proxy())
    assert_no_secret(everything_said(caught.value))
    assert len(proxy.passages) == 1
    assert target.connections <= 1  # and nobody came another way; a TLS site counts who finished the handshake


async def test_a_site_that_hangs_up_behind_a_proxy_uses_up_no_try(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched
) -> None:
    async with opened(trust=vouched.client) as transport:
        for path in ("/close-before-headers", "/short-body", "/reset-mid-body"):
            with pytest.raises(ProxyFailed):
                await get(transport, site.url(path), proxy=proxy.proxy())
    assert site.connections == len(proxy.passages) == 3


async def test_a_proxy_that_hangs_is_given_up(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    proxy.hang()
    async with opened(trust=vouched.client) as transport:
        with pytest.raises((ProxyFailed, TimedOut)) as caught:
            await get(transport, target.url("/plain"), proxy=proxy.proxy(), limits=HASTY)
    assert target.connections == 0
    assert_no_secret(everything_said(caught.value))


async def test_a_proxy_that_nobody_vouches_for_is_not_told_the_password(
    opened: Opener, target: HostileSite, vouched: Vouched, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = vouched_for(tmp_path_factory.mktemp("stranger"))
    with a_proxy("https", stranger) as proxy:
        async with opened(trust=vouched.client) as transport:
            with pytest.raises(ProxyFailed, match="no secure connection to it"):
                await get(transport, target.url("/plain"), proxy=proxy.proxy())
        assert (proxy.passages, proxy.refused) == ([], [])
    assert target.connections == 0


async def test_a_site_that_nobody_vouches_for_is_no_failure_of_the_proxy(
    opened: Opener, safe_site: HostileSite, vouched: Vouched, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stranger = vouched_for(tmp_path_factory.mktemp("stranger"))
    for scheme in ("http", "https", "socks5") if TLS_IN_TLS_TELLS else ("http", "socks5"):
        with a_proxy(scheme, stranger) as proxy:
            async with opened(trust=stranger.client) as transport:
                with pytest.raises(TlsFailed):
                    await get(transport, safe_site.url("/plain"), proxy=proxy.proxy())
    assert safe_site.log == []


async def test_what_is_no_proxy_at_all_is_a_failed_proxy(opened: Opener, safe_site: HostileSite) -> None:
    for scheme in ("http", "socks5"):
        async with listener(b"SSH-2.0-nonsense\r\n\r\n", until=b"") as stranger:
            with http_proxy(users=USERS) as model:
                proxy = msgspec.structs.replace(model.proxy(), scheme=scheme, port=stranger.port)
            async with opened() as transport:
                with pytest.raises(ProxyFailed) as caught:
                    await get(transport, safe_site.url("/plain"), proxy=proxy)
            assert_no_secret(everything_said(caught.value))
    assert safe_site.connections == 0


async def test_answers_of_the_site_are_answers_through_a_proxy_too(
    opened: Opener, proxy: ProxyServer, target: HostileSite, vouched: Vouched
) -> None:
    async with opened(trust=vouched.client) as transport:
        for status in (403, 404, 429, 503):
            response = await get(transport, target.url(f"/status?code={status}"), proxy=proxy.proxy())
            assert response.status == status


@pytest.mark.parametrize("path", ["/garbage", "/wide-headers", "/bad-chunked"])
async def test_nonsense_of_the_site_is_not_the_proxys_failure(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched, path: str
) -> None:
    async with opened(trust=vouched.client) as transport:
        with pytest.raises(FetchRefused):
            await get(transport, site.url(path), proxy=proxy.proxy())


async def test_limits_hold_through_a_proxy(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched
) -> None:
    async with opened(trust=vouched.client) as transport:
        endless = await get(transport, site.url("/endless"), proxy=proxy.proxy())
        bomb = await get(transport, site.url("/bomb?with=br"), proxy=proxy.proxy())
        with pytest.raises(TimedOut):
            await get(transport, site.url("/drip"), proxy=proxy.proxy(), limits=Limits(total=timedelta(seconds=1)))
    assert endless.cut
    assert bomb.cut
    assert max(len(endless.body), len(bomb.body)) <= LIMITS.max_body


async def test_a_cancelled_fetch_hangs_up_behind_the_proxy(
    opened: Opener, proxy: ProxyServer, vouched: Vouched
) -> None:
    async with listener() as server, opened(trust=vouched.client) as transport:
        fetch = asyncio.ensure_future(get(transport, server.url(), proxy=proxy.proxy()))
        line = await server.line()
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch
        assert await ended(line)


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "[::ffff:127.0.0.1]"])
async def test_a_private_target_is_refused_before_the_proxy_is_dialled(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched, host: str
) -> None:
    async with opened(AddressGuard(), trust=vouched.client) as transport:
        with pytest.raises((AddressRefused, FetchRefused)):
            await get(transport, site.url("/plain", host=host), proxy=proxy.proxy())
    assert (proxy.connections, site.connections) == (0, 0)


async def test_a_private_proxy_is_dialled_only_when_its_pool_may_be_private(
    opened: Opener, proxy: ProxyServer, vouched: Vouched
) -> None:
    for host in ("127.0.0.1", "localhost"):
        async with opened(AddressGuard(), trust=vouched.client) as transport:
            with pytest.raises(ProxyFailed, match="allow_private"):
                await get(
                    transport, "http://shop.example/", proxy=proxy.proxy(host=host, allow_private=False, pool="cheap")
                )
    assert proxy.connections == 0


async def test_a_proxy_whose_name_does_not_resolve_has_failed(opened: Opener, proxy: ProxyServer) -> None:
    async with opened(SHOP) as transport:
        with pytest.raises(ProxyFailed, match="does not resolve"):
            await get(transport, "http://shop.example/", proxy=proxy.proxy(host="no-such-name.invalid"))


async def test_that_a_proxy_may_be_private_opens_nothing_else(
    opened: Opener, proxy: ProxyServer, site: HostileSite, vouched: Vouched
) -> None:
    async with opened(AddressGuard(), trust=vouched.client) as transport:
        results = await asyncio.gather(
            *(get(transport, site.url("/plain"), proxy=chosen) for chosen in (proxy.proxy(), None) * 5),
            return_exceptions=True,
        )
    assert {type(result) for result in results} == {AddressRefused}
    assert site.connections == 0


# --- names that lead elsewhere the second time --------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["http", "socks5"])
@pytest.mark.parametrize("secure", [False, True], ids=["http", "https"])
async def test_a_proxy_of_our_own_is_given_the_address_that_was_checked(
    opened: Opener,
    scheme: str,
    secure: bool,
    site: HostileSite,
    safe_site: HostileSite,
    vouched: Vouched,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it got the name, it would look it up again, and the name server may have another answer by then."""
    monkeypatch.setattr(addresses, "_look_up", lambda name: ("2606:2800:21f:cb07::1", PUBLIC))
    place = safe_site if secure else site
    with a_proxy(scheme, vouched, leads_to={PUBLIC: place.port}) as proxy:
        async with opened(AddressGuard(), trust=vouched.client) as transport:
            for _ in range(2):
                response = await get(transport, f"{place.scheme}://shop.example/plain", proxy=proxy.proxy())
                assert response.body == PAGE
        assert {one.target for one in proxy.passages} == {f"{PUBLIC}:{443 if secure else 80}"}
        assert {one.username for one in proxy.passages} == {"ann"}
    assert [seen.headers["host"] for seen in place.log] == ["shop.example", "shop.example"]
    assert_no_secret(place.log[0].raw.decode("latin-1"))


async def test_a_proxy_of_our_own_that_does_not_let_us_through_to_an_address_is_told_of(
    opened: Opener, vouched: Vouched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "_look_up", lambda name: (PUBLIC,))
    with a_proxy("http", vouched) as proxy:
        for conduct in (proxy.refuse, lambda: proxy.answer(503)):
            conduct()
            async with opened(AddressGuard(), trust=vouched.client) as transport:
                for url in ("http://shop.example/plain", "https://shop.example/plain"):
                    with pytest.raises(ProxyFailed) as caught:
                        await get(transport, url, proxy=proxy.proxy())
                    assert_no_secret(everything_said(caught.value))
