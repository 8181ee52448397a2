"""The gatehouse without a browser: plain sockets say to it what a browser would, and what no browser would."""

from __future__ import annotations

import asyncio
import base64
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.errors import (
    AddressRefused,
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    DnsFailed,
    ProxyFailed,
    TimedOut,
)
from gossamer.fetch import addresses
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.gatehouse import MARK, Gatehouse, Pass
from gossamer.model.route import Exit
from tests.services.proxies import ProxyServer, http_proxy, https_proxy, socks_proxy, vouched_for
from tests.sites.hostile import PAGE, HostileSite, hostile_site

from .showing import CANARY, GUARD, HOST

SECRET = "pa55-w0rd"
USERS = {"ann": SECRET}


@asynccontextmanager
async def a_gate(guard: AddressGuard = GUARD) -> AsyncIterator[tuple[Gatehouse, HostileSite]]:
    async with hostile_site() as site, Gatehouse(guard) as gate:
        yield gate, site


def token(holder: Pass) -> str:
    packed = base64.b64encode(f"{holder.username}:{holder.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {packed}\r\n"


async def say(gate: Gatehouse, text: str) -> bytes:
    """Everything that the gatehouse answers until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        writer.write(text.encode("latin-1"))
        return await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()


def plain(url: str, *lines: str) -> str:
    host = url.split("/")[2]
    return f"GET {url} HTTP/1.1\r\nHost: {host}\r\n{''.join(lines)}\r\n"


async def tunnel(gate: Gatehouse, holder: Pass, authority: str, inside: str) -> bytes:
    """What comes back through a tunnel, or what the gatehouse says instead of opening it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{token(holder)}\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        if b" 200 " not in answer:
            return answer
        writer.write(inside.encode())
        return await asyncio.wait_for(reader.readuntil(b"</html>"), 10)
    finally:
        writer.close()


def test_no_browser_is_needed_here(request: pytest.FixtureRequest) -> None:
    """Every fixture that comes by itself is seen here."""
    assert "chromium" not in request.fixturenames


@pytest.mark.parametrize("given", ["", "Proxy-Authorization: Basic !!!\r\n", "Proxy-Authorization: Bearer x\r\n"])
async def test_who_has_no_pass_is_not_let_through(given: str) -> None:
    async with a_gate() as (gate, site):
        answer = await say(gate, plain(site.url("/plain", HOST), given, "Content-Length: 3\r\n"))
        assert answer.startswith(b"HTTP/1.1 407 ")
        assert site.connections == 0


async def test_a_wrong_word_or_a_pass_of_yesterday_is_not_let_through() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        forged = base64.b64encode(f"{holder.username}:guess".encode()).decode()
        close = "Content-Length: 3\r\n"
        url = site.url("/plain", HOST)
        assert b" 407 " in await say(gate, plain(url, f"Proxy-Authorization: Basic {forged}\r\n", close))
        await gate.dismiss(holder)
        assert b" 407 " in await say(gate, plain(url, token(holder), close))
        assert site.connections == 0


async def test_a_plain_request_is_handed_on_without_what_is_ours() -> None:
    async with a_gate() as (gate, site):
        pieces: list[int] = []
        sent: list[int] = []
        holder = gate.admit(on_bytes=pieces.append, on_sent=lambda: sent.append(len(site.log)))
        url = site.url("/plain?a=b", HOST)
        answer = await say(gate, plain(url, token(holder), "Proxy-Connection: keep-alive\r\n", "X-Own: 1\r\n"))
        await say(gate, plain(url, token(holder)))
        (first, _) = site.log
        assert answer.endswith(PAGE)
        assert b"Connection: close" in answer
        assert (first.path, first.headers["x-own"]) == ("/plain?a=b", "1")
        assert not [name for name in first.headers if name.startswith("proxy-")]
        assert sent == [0]  # once, and before the site saw anything
        assert (holder.received, holder.address) == (sum(pieces), "127.0.0.1")
        assert holder.received > 2 * len(PAGE)


async def test_a_tunnel_carries_both_ways_and_is_counted() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        inside = f"GET /plain HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
        answer = await tunnel(gate, holder, f"{HOST}:{site.port}", inside)
        assert answer.endswith(PAGE)
        assert (holder.sent, holder.received) == (len(inside), len(answer))


@pytest.mark.parametrize("host", [CANARY, "127.0.0.1", "[::1]", "localhost", "[::ffff:127.0.0.1]", "0x7f.1"])
async def test_a_refused_address_is_a_403_and_nothing_is_dialled(host: str) -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        authority = f"{host}:{site.port}"
        answer = await say(gate, plain(f"http://{authority}/plain", token(holder)))
        assert answer.startswith(b"HTTP/1.1 403 ")
        assert f"{MARK}: {holder.mark}".encode() in answer
        assert b" 403 " in await tunnel(gate, holder, authority, "")
        upgrade = plain(f"http://{authority}/", token(holder), "Upgrade: websocket\r\n")
        assert b" 403 " in await say(gate, upgrade)
        assert isinstance(holder.trouble(authority), AddressRefused)
        assert holder.refused == [authority]
        assert site.connections == 0


async def test_a_second_request_on_the_same_line_goes_nowhere() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        url = site.url("/plain", HOST)
        await say(gate, plain(url, token(holder)) + plain(site.url("/second", HOST), token(holder)))
        assert [seen.path for seen in site.log] in (["/plain"], [])


async def test_what_goes_wrong_is_told_in_our_words() -> None:
    async with a_gate(AddressGuard(allow_private=True)) as (gate, site):
        holder = gate.admit()
        for path, error in (
            ("/close-before-headers", ConnectionDropped),
            ("/reset-before-headers", ConnectionDropped),
            ("/garbage", BadResponse),
            ("/huge-header", BadResponse),
        ):
            await say(gate, plain(site.url(path), token(holder)))
            assert isinstance(holder.trouble(f"127.0.0.1:{site.port}"), error)
        assert b" 502 " in await say(gate, plain("http://no-such-name.invalid/", token(holder)))
        assert isinstance(holder.trouble("no-such-name.invalid:80"), DnsFailed)
        with socket_that_is_closed() as port:
            assert b" 502 " in await say(gate, plain(f"http://127.0.0.1:{port}/", token(holder)))
        assert isinstance(holder.trouble(f"127.0.0.1:{port}"), ConnectFailed)


@pytest.mark.parametrize(
    "text",
    ["\r\n\r\n", "GET /\r\n\r\n", "GET ftp://site.localhost/ HTTP/1.1\r\n{t}\r\n", "CONNECT :1 HTTP/1.1\r\n{t}\r\n",
     "GET / HTTP/1.1\r\nX: " + "x" * 300_000 + "\r\n\r\n",
     "POST http://site.localhost/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n{t}\r\n"],
)  # fmt: skip
async def test_nonsense_is_hung_up_on(text: str) -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        answer = await say(gate, text.replace("{t}", token(holder)))
        assert b" 200 " not in answer
        assert b"".join(answer.split()[1:2]) in (b"", b"400", b"411", b"502", b"407")
        url = site.url("/plain", HOST)
        assert (await say(gate, plain(url, token(holder)))).endswith(PAGE)  # and others are served


async def test_a_pass_has_only_so_many_bytes() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit(max_bytes=200_000)
        answer = await say(gate, plain(site.url("/endless", HOST), token(holder)))
        assert len(answer) <= 200_000
        assert holder.spent
        assert await say(gate, plain(site.url("/plain", HOST), token(holder))) == b""


async def test_a_dismissed_pass_takes_its_connections_along() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        waiting = asyncio.create_task(say(gate, plain(site.url("/silence", HOST), token(holder))))
        while not site.seen("/silence"):
            await asyncio.sleep(0.01)
        await gate.dismiss(holder)
        assert await waiting == b""
        assert not holder.lines


# --- exits -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_an_exit_carries_plain_requests_and_tunnels(start: type[ProxyServer]) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as proxy:
            holder = gate.admit(proxy.exit())
            assert (await say(gate, plain(site.url("/plain", HOST), token(holder)))).endswith(PAGE)
            inside = f"GET /plain HTTP/1.1\r\nHost: {HOST}\r\n\r\n"
            assert (await tunnel(gate, holder, f"{HOST}:{site.port}", inside)).endswith(PAGE)
            assert [one.username for one in proxy.seen(HOST)] == ["ann", "ann"]
            assert len(site.log) == 2
            assert not [seen for seen in site.log if "proxy-authorization" in seen.headers]


async def test_an_exit_inside_tls(tmp_path: Path) -> None:
    vouched = vouched_for(tmp_path)
    async with hostile_site() as site, Gatehouse(GUARD, tls=vouched.client) as gate:
        with https_proxy(vouched.server, users=USERS) as proxy:
            holder = gate.admit(proxy.exit())
            assert (await say(gate, plain(site.url("/plain", HOST), token(holder)))).endswith(PAGE)
            assert proxy.seen(HOST)
    async with hostile_site() as site, Gatehouse(GUARD) as strict:  # nobody vouches for it here
        with https_proxy(vouched.server, users=USERS) as proxy:
            holder = strict.admit(proxy.exit())
            await say(strict, plain(site.url("/plain", HOST), token(holder)))
            assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert site.connections == 0


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
@pytest.mark.parametrize("fault", ["refuse", "close_at_once", "stop", "answer", "password"])
async def test_an_exit_that_fails_is_told_of_and_never_left_out(start: type[ProxyServer], fault: str) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as proxy:
            exit = proxy.exit(password="wr0ng-guess") if fault == "password" else proxy.exit()
            if fault == "answer":
                proxy.answer(502)
            elif fault != "password":
                getattr(proxy, fault)()
            holder = gate.admit(exit)
            authority = f"{HOST}:{site.port}"
            await tunnel(gate, holder, authority, "")
            trouble = holder.trouble(authority)
            assert isinstance(trouble, ProxyFailed)
            assert site.connections == 0  # nothing went there directly
            for text in (str(trouble), repr(trouble), repr(holder), repr(exit)):
                assert not [secret for secret in (SECRET, "wr0ng-guess", holder.password) if secret in text]


async def test_a_wrong_password_for_a_plain_request_is_the_proxys_failure() -> None:
    async with a_gate() as (gate, site):
        with http_proxy(users=USERS) as proxy:
            holder = gate.admit(proxy.exit(password="wr0ng-guess"))
            answer = await say(gate, plain(site.url("/plain", HOST), token(holder)))
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert site.connections == 0


@pytest.mark.parametrize("path", ["/close-before-headers", "/reset-before-headers"])
async def test_a_proxy_that_hangs_up_on_a_plain_request_is_told_of(path: str) -> None:
    """In peace or by a reset: it depends on the moment, and the word for it must not."""
    async with a_gate(AddressGuard(allow_hosts=frozenset({"shop.invalid"}))) as (gate, site):
        holder = gate.admit(
            Exit(pool="test", name="one", scheme="http", host="127.0.0.1", port=site.port, allow_private=True)
        )
        assert await say(gate, plain(f"http://shop.invalid{path}", token(holder))) == b""
        assert isinstance(holder.trouble("shop.invalid:80"), ProxyFailed)


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_an_exit_is_not_asked_for_a_private_address(start: type[ProxyServer]) -> None:
    async with a_gate() as (gate, site):
        with start(users=USERS) as proxy:
            holder = gate.admit(proxy.exit())
            for host in (CANARY, "127.0.0.1"):
                assert b" 403 " in await tunnel(gate, holder, f"{host}:{site.port}", "")
                assert b" 403 " in await say(gate, plain(site.url("/plain", host), token(holder)))
            assert (proxy.connections, site.connections) == (0, 0)


async def test_an_exit_in_a_private_network_must_be_allowed() -> None:
    async with a_gate() as (gate, site):
        with http_proxy(users=USERS) as proxy:
            for host in ("127.0.0.1", CANARY):
                holder = gate.admit(proxy.exit(allow_private=False, host=host))
                assert b" 502 " in await tunnel(gate, holder, f"{HOST}:{site.port}", "")
                assert isinstance(holder.trouble(f"{HOST}:{site.port}"), ProxyFailed)
            assert (proxy.connections, site.connections) == (0, 0)


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_name_that_only_the_proxy_knows_is_left_to_it(start: type[ProxyServer]) -> None:
    """To a proxy of the open net (its own name is allowed here), and to a private one where the name is allowed."""
    for allowed, private in ((HOST, False), ("shop.invalid", True)):
        async with a_gate(AddressGuard(allow_hosts=frozenset({allowed}))) as (gate, site):
            with start(leads_to=site.port) as proxy:
                holder = gate.admit(proxy.exit(allow_private=private, host=None if private else HOST))
                url = "http://shop.invalid/plain"
                assert (await say(gate, plain(url, token(holder)))).endswith(PAGE)
                assert proxy.seen("shop.invalid")


@pytest.mark.parametrize("start", [http_proxy, socks_proxy])
async def test_a_private_proxy_is_not_asked_for_a_name_that_nobody_here_knows(start: type[ProxyServer]) -> None:
    async with a_gate() as (gate, site):
        with start(leads_to=site.port) as proxy:
            holder = gate.admit(proxy.exit())
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
            holder = gate.admit(proxy.exit(allow_private=private, host=None if private else HOST))
            assert b" 403 " in await tunnel(gate, holder, "mixed.example:80", "")
            assert isinstance(holder.trouble("mixed.example:80"), AddressRefused)
            assert (proxy.connections, site.connections) == (0, 0)


async def test_a_slow_name_server_is_no_failure_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def slow(name: str) -> tuple[str, ...]:
        over.wait(10)
        return ()

    monkeypatch.setattr(addresses, "_look_up", slow)
    async with a_gate() as (gate, site):
        with http_proxy(leads_to=site.port) as proxy:
            holder = gate.admit(proxy.exit(), connect=timedelta(seconds=0.2))
            assert b" 502 " in await tunnel(gate, holder, "slow.example:80", "")
            assert isinstance(holder.trouble("slow.example:80"), TimedOut)
            assert proxy.connections == 0
            over.set()


async def test_a_dot_at_the_end_of_a_name_makes_no_other_place_of_it() -> None:
    async with a_gate() as (gate, site):
        holder = gate.admit()
        assert b" 403 " in await say(gate, plain(site.url("/plain", f"{CANARY}."), token(holder)))
        assert isinstance(holder.trouble(f"{CANARY}.:{site.port}"), AddressRefused)
        assert isinstance(holder.trouble(f"{CANARY}:{site.port}"), AddressRefused)
        assert site.connections == 0


@contextmanager
def socket_that_is_closed() -> Iterator[int]:
    """A port on which nobody listens, kept from others."""
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        yield int(place.getsockname()[1])
