"""The guard proxy before real proxies: what leaves through a proxy, and what is not asked of one. Without a browser."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.errors import AddressRefused, ConnectFailed, ProxyFailed, TimedOut
from gossamer.fetch import addresses
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.browser.guard import GuardProxy
from gossamer.model.route import Proxy
from tests.patience import PATIENCE
from tests.services.proxies import ProxyServer, http_proxy, https_proxy, socks_proxy, vouched_for
from tests.sites.hostile import PAGE, hostile_site

from .knocking import a_gate, plain, say, token, tunnel
from .showing import CANARY, GUARD, HOST

SECRET = "pa55-w0rd"
USERS = {"ann": SECRET}
GENERAL_FAILURE, HOST_UNREACHABLE = 1, 4  # as SOCKS5 says it


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_an_proxy_carries_plain_requests_and_tunnels(start: type[ProxyServer]) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as proxy:
            holder = gate.admit(proxy.proxy())
            assert (await say(gate, plain(site.url("/plain", HOST), token(holder)))).endswith(PAGE)
            inside = f"GET /plain HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
            assert (await tunnel(gate, holder, f"{HOST}:{site.port}", inside)).endswith(PAGE)
            assert [one.username for one in proxy.seen(HOST)] == ["ann", "ann"]
            assert len(site.log) == 2
            assert not [seen for seen in site.log if "proxy-authorization" in seen.headers]


async def test_an_proxy_inside_tls(tmp_path: Path) -> None:
    vouched = vouched_for(tmp_path)
    async with hostile_site() as site, GuardProxy(GUARD, tls=vouched.client) as gate:
        with https_proxy(vouched.server, users=USERS) as proxy:
            holder = gate.admit(proxy.proxy())
            assert (await say(gate, plain(site.url("/plain", HOST), token(holder)))).endswith(PAGE)
            assert proxy.seen(HOST)
    async with hostile_site() as site, GuardProxy(GUARD) as strict:  # nobody vouches for it here
        with https_proxy(vouched.server, users=USERS) as proxy:
            holder = strict.admit(proxy.proxy())
            await say(strict, plain(site.url("/plain", HOST), token(holder)))
            assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert site.connections == 0


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
@pytest.mark.parametrize("fault", ["refuse", "close_at_once", "stop", "answer", "password"])
async def test_a_proxy_that_fails_is_told_of_and_never_left_out(start: type[ProxyServer], fault: str) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as server:
            proxy = server.proxy(password="wr0ng-guess") if fault == "password" else server.proxy()
            if fault == "answer":
                server.answer(502 if proxy.scheme == "http" else GENERAL_FAILURE)
            elif fault != "password":
                getattr(server, fault)()
            holder = gate.admit(proxy)
            authority = f"{HOST}:{site.port}"
            await tunnel(gate, holder, authority, "")
            trouble = holder.trouble(authority)
            assert isinstance(trouble, ProxyFailed)
            assert site.connections == 0  # nothing went there directly
            for text in (str(trouble), repr(trouble), repr(holder), repr(proxy)):
                assert not [secret for secret in (SECRET, "wr0ng-guess", holder.password) if secret in text]


async def test_a_target_that_a_proxy_cannot_reach_is_no_failure_of_the_proxy() -> None:
    async with a_gate() as (gate, site):
        with socks_proxy(users=USERS) as proxy:
            proxy.answer(HOST_UNREACHABLE)
            holder = gate.admit(proxy.proxy())
            assert b" 502 " in await tunnel(gate, holder, f"{HOST}:{site.port}", "")
            assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ConnectFailed)


async def test_a_wrong_password_for_a_plain_request_is_the_proxys_failure() -> None:
    async with a_gate() as (gate, site):
        with http_proxy(users=USERS) as proxy:
            holder = gate.admit(proxy.proxy(password="wr0ng-guess"))
            answer = await say(gate, plain(site.url("/plain", HOST), token(holder)))
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert site.connections == 0


@pytest.mark.parametrize("path", ["/close-before-headers", "/reset-before-headers"])
async def test_a_proxy_that_hangs_up_on_a_plain_request_is_told_of(path: str) -> None:
    """In peace or by a reset: it depends on the moment, and the word for it must not."""
    async with a_gate(AddressGuard(allow_hosts=frozenset({"shop.invalid"}))) as (gate, site):
        holder = gate.admit(
            Proxy(pool="test", name="one", scheme="http", host="127.0.0.1", port=site.port, allow_private=True)
        )
        assert await say(gate, plain(f"http://shop.invalid{path}", token(holder))) == b""
        assert isinstance(holder.trouble("shop.invalid:80"), ProxyFailed)


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_an_proxy_is_not_asked_for_a_private_address(start: type[ProxyServer]) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as proxy:
            holder = gate.admit(proxy.proxy())
            for host in (CANARY, "127.0.0.1"):
                assert b" 403 " in await tunnel(gate, holder, f"{host}:{site.port}", "")
                assert b" 403 " in await say(gate, plain(site.url("/plain", host), token(holder)))
            assert (proxy.connections, site.connections) == (0, 0)


async def test_an_proxy_in_a_private_network_must_be_allowed() -> None:
    async with a_gate() as (gate, site):
        with http_proxy(users=USERS) as proxy:
            for host in ("127.0.0.1", CANARY):
                holder = gate.admit(proxy.proxy(allow_private=False, host=host))
                assert b" 502 " in await tunnel(gate, holder, f"{HOST}:{site.port}", "")
                assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert (proxy.connections, site.connections) == (0, 0)


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_name_that_only_the_proxy_knows_is_left_to_it(start: type[ProxyServer]) -> None:
    """To a proxy of the open net (its own name is allowed here), and to a private one where the name is allowed."""
    for allowed, private in ((HOST, False), ("shop.invalid", True)):
        async with a_gate(AddressGuard(allow_hosts=frozenset({allowed}))) as (gate, site):
            with start(leads_to=site.port) as proxy:
                holder = gate.admit(proxy.proxy(allow_private=private, host=None if private else HOST))
                url = "http://shop.invalid/plain"
                assert (await say(gate, plain(url, token(holder)))).endswith(PAGE)
                assert proxy.seen("shop.invalid")


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_private_proxy_is_not_asked_for_a_name_that_nobody_here_knows(
    monkeypatch: pytest.MonkeyPatch, start: type[ProxyServer]
) -> None:
    monkeypatch.setattr(addresses, "_look_up", lambda name: ())
    async with a_gate() as (gate, site):
        with start(leads_to=site.port) as proxy:
            holder = gate.admit(proxy.proxy())
            assert b" 403 " in await say(gate, plain("http://intranet.invalid/plain", token(holder)))
            assert b" 403 " in await tunnel(gate, holder, "intranet.invalid:80", "")
            assert isinstance(holder.trouble("intranet.invalid:80"), AddressRefused)
            assert (proxy.connections, site.connections) == (0, 0)


@pytest.mark.parametrize("private", [True, False])
async def test_one_private_record_is_enough_to_refuse_a_name(monkeypatch: pytest.MonkeyPatch, private: bool) -> None:
    """Nobody here knows which of them the proxy would take."""
    monkeypatch.setattr(addresses, "_look_up", lambda name: ("8.8.8.8", "127.0.0.1"))
    async with a_gate() as (gate, site):
        with http_proxy(leads_to=site.port) as proxy:
            holder = gate.admit(proxy.proxy(allow_private=private, host=None if private else HOST))
            assert b" 403 " in await tunnel(gate, holder, "mixed.example:80", "")
            assert isinstance(holder.trouble("mixed.example:80"), AddressRefused)
            assert (proxy.connections, site.connections) == (0, 0)


async def test_a_slow_name_server_is_no_failure_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def slow(name: str) -> tuple[str, ...]:
        over.wait(PATIENCE)
        return ()

    monkeypatch.setattr(addresses, "_look_up", slow)
    async with a_gate() as (gate, site):
        with http_proxy(leads_to=site.port) as proxy:
            holder = gate.admit(proxy.proxy(), connect=timedelta(seconds=0.2))
            assert b" 502 " in await tunnel(gate, holder, "slow.example:80", "")
            assert isinstance(holder.trouble("slow.example:80"), TimedOut)
            assert proxy.connections == 0
            over.set()


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_proxy_of_our_own_is_given_the_address_that_was_checked(
    start: type[ProxyServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it got the name, it would look it up again, and a name server may have another answer by then."""
    public = "93.184.215.14"
    monkeypatch.setattr(addresses, "_look_up", lambda name: ("2606:2800:21f:cb07::1", public))
    async with hostile_site() as site, GuardProxy(AddressGuard()) as gate:
        with start(users=USERS, leads_to=site.port) as proxy:
            holder = gate.admit(proxy.proxy())
            assert (await say(gate, plain("http://shop.example/plain", token(holder)))).endswith(PAGE)
            inside = "GET /plain HTTP/1.1\r\nHost: shop.example\r\n\r\n"
            assert (await tunnel(gate, holder, "shop.example:443", inside)).endswith(PAGE)
            assert [one.target for one in proxy.passages] == [f"{public}:80", f"{public}:443"]
            assert [seen.headers["host"] for seen in site.log] == ["shop.example", "shop.example"]
