"""The second transport beyond what all transports share: profiles, HTTP/2, its clients, and wreq's errors."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import sys
import time
import tracemalloc
from datetime import timedelta

import pytest
import wreq

from gossamer.errors import (
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    FetchRefused,
    Misconfigured,
    MissingExtra,
)
from gossamer.fetch import impersonate_clients
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.body import ACCEPT_ENCODING
from gossamer.fetch.contract import Limits, TransportRequest
from gossamer.fetch.impersonate import WreqTransport
from gossamer.fetch.profiles import PROFILES, profile_named
from gossamer.model.route import Proxy
from tests.conformance.transports import LIMITS, LOOPBACK, listener
from tests.conformance.transports import vouched as vouched
from tests.gates import HeldGate
from tests.patience import PATIENCE, until
from tests.services.proxies import Vouched, http_proxy
from tests.sites import park
from tests.sites.hostile import PAGE, Call, hostile_site
from tests.sites.http2 import http2_site

OURS = (
    ("User-Agent", "Gossamer/1"),
    ("Accept", "text/ours"),
    ("Accept-Language", "tlh"),
    ("Accept-Encoding", "gzip"),
    ("Cookie", "a=1"),
    ("X-Api", "7"),
    ("If-None-Match", '"x"'),
)


async def seen_with(profile: str | None) -> tuple[bytes, dict[str, str]]:
    """The request as a site gets it over HTTP/1.1."""
    async with hostile_site() as site, WreqTransport(LOOPBACK) as transport:
        await transport.fetch(TransportRequest(url=site.url("/plain"), headers=OURS, profile=profile, limits=LIMITS))
    return site.log[0].raw, site.log[0].headers


# --- profiles ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(PROFILES))
def test_every_profile_is_one_that_wreq_knows(name: str) -> None:
    profile = profile_named(name)
    assert hasattr(wreq.Profile, profile.emulation)
    assert hasattr(wreq.Platform, profile.platform)


def test_an_unknown_profile_is_named_with_those_that_there_are() -> None:
    with pytest.raises(Misconfigured, match=r"'chrom'.*Did you mean 'chrome'\?.*firefox, safari"):
        profile_named("chrom")


async def test_an_unknown_profile_reaches_nobody() -> None:
    async with hostile_site() as site, WreqTransport(LOOPBACK) as transport:
        with pytest.raises(Misconfigured, match="chrome"):
            await transport.fetch(TransportRequest(url=site.url("/plain"), profile="netscape"))
    assert site.connections == 0


@pytest.mark.parametrize("name", list(PROFILES))
async def test_a_profile_keeps_its_own_words_and_takes_the_rest(name: str) -> None:
    raw, headers = await seen_with(name)
    assert headers["user-agent"].startswith("Mozilla/5.0")
    assert headers["accept"].startswith("text/html")
    assert headers["accept-language"] != "tlh"
    assert "Gossamer" not in raw.decode()
    assert (headers["cookie"], headers["x-api"], headers["if-none-match"]) == ("a=1", "7", '"x"')
    # What a profile says it can unpack, we can.
    asked = {word.strip() for word in headers["accept-encoding"].split(",")}
    assert asked <= {word.strip() for word in ACCEPT_ENCODING.split(",")}
    assert len(asked) > 1


@pytest.mark.parametrize(
    ("name", "mark", "order"),
    [
        ("chrome", "Windows NT.*Chrome/", ["Host", "sec-ch-ua", "User-Agent", "Accept", "Accept-Encoding", "Cookie"]),
        ("chrome-android", "Android.*Chrome/.*Mobile", ["Host", "sec-ch-ua", "User-Agent", "Accept-Encoding"]),
        ("edge", "Edg/", ["Host", "sec-ch-ua", "User-Agent", "Accept", "Accept-Encoding"]),
        ("firefox", "Firefox/", ["Host", "User-Agent", "Accept", "Accept-Language", "Accept-Encoding", "Cookie"]),
        ("safari", "Macintosh.*Version/.*Safari/", ["Host", "Sec-Fetch-Dest", "User-Agent", "Accept"]),
        ("safari-ios", "iPhone.*Safari/", ["Host", "Sec-Fetch-Dest", "User-Agent", "Accept"]),
    ],
)
async def test_headers_come_in_the_order_and_spelling_of_the_browser(name: str, mark: str, order: list[str]) -> None:
    raw, headers = await seen_with(name)
    names = [line.partition(":")[0] for line in raw.decode().split("\r\n")[1:] if line]
    assert [one for one in names if one in order] == order
    assert names[0] == "Host"
    assert len({one.lower() for one in names}) == len(names)  # nothing twice
    assert re.search(mark, headers["user-agent"])


async def test_without_a_profile_it_sends_what_it_is_given() -> None:
    raw, headers = await seen_with(None)
    names = [line.partition(":")[0] for line in raw.decode().split("\r\n")[1:] if line]
    assert names == ["Host", *(name for name, _ in OURS)]
    assert headers["user-agent"] == "Gossamer/1"


async def test_profiles_greet_differently_over_tls() -> None:
    """The first message of TLS, by its ciphers: what tells a browser from a script."""
    greetings = {}
    for name in (None, "chrome", "firefox", "safari"):
        async with listener(until=b"\x16\x03") as server, WreqTransport(LOOPBACK) as transport:
            fetch = asyncio.ensure_future(
                transport.fetch(TransportRequest(url=server.url(scheme="https"), profile=name, limits=LIMITS))
            )
            greetings[name] = _ciphers((await server.line()).got)
            fetch.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetch
    assert all(greetings.values())
    assert len(set(greetings.values())) == len(greetings)


def _ciphers(hello: bytes) -> bytes:
    """The list of ciphers in a ClientHello, without the random ones (GREASE)."""
    start = 5 + 4 + 2 + 32
    start += 1 + hello[start]
    size = int.from_bytes(hello[start : start + 2], "big")
    ciphers = hello[start + 2 : start + 2 + size]
    pairs = [ciphers[at : at + 2] for at in range(0, size, 2)]
    return b"".join(pair for pair in pairs if not (pair[0] == pair[1] and pair[0] & 0x0F == 0x0A))


# --- HTTP/2 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", [None, "chrome", "firefox", "safari"])
async def test_pages_come_over_one_connection_of_http2(vouched: Vouched, profile: str | None) -> None:
    async with (
        http2_site(vouched.file, vouched.key) as site,
        WreqTransport(LOOPBACK, ssl_context=vouched.client) as transport,
    ):
        exchange = TransportRequest(url=site.url(), headers=OURS, profile=profile, limits=LIMITS)
        first = await transport.fetch(exchange)
        await asyncio.gather(*(transport.fetch(exchange) for _ in range(5)))
    assert (first.status, first.body, first.headers.get("x-own")) == (200, PAGE, "two")
    assert site.connections == 1
    assert len({stream for _, stream in site.streams}) == 6


@pytest.mark.parametrize(
    ("conduct", "error"),
    [
        ("reset", ConnectionDropped),
        ("goaway", ConnectionDropped),
        ("half", ConnectionDropped),
        ("nonsense", BadResponse),
        ("many-headers", BadResponse),
        ("wide-header", BadResponse),
        ("endless-headers", BadResponse),
    ],
)
async def test_what_goes_wrong_in_http2_has_its_own_error(
    vouched: Vouched, conduct: str, error: type[Exception]
) -> None:
    tight = Limits(max_header=4000)
    async with (
        http2_site(vouched.file, vouched.key) as site,
        WreqTransport(LOOPBACK, ssl_context=vouched.client) as transport,
    ):
        await transport.fetch(TransportRequest(url=site.url(), profile="chrome", limits=tight))
        site.conduct = conduct
        with pytest.raises(error):
            await transport.fetch(TransportRequest(url=site.url(), profile="chrome", limits=tight))
        assert len(site.streams) == 2
        site.conduct = ""
        assert (await transport.fetch(TransportRequest(url=site.url(), profile="chrome", limits=tight))).body == PAGE


async def test_http2_goes_through_a_proxy(vouched: Vouched) -> None:
    async with (
        http2_site(vouched.file, vouched.key) as site,
        WreqTransport(LOOPBACK, ssl_context=vouched.client) as transport,
    ):
        with http_proxy(users={"ann": "secret"}) as proxy:
            exchange = TransportRequest(url=site.url(), profile="chrome", limits=LIMITS, proxy=proxy.proxy())
            assert (await transport.fetch(exchange)).body == PAGE
            assert len(proxy.passages) == 1
    assert len(site.streams) == 1


# --- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["/plain", '/a"b<c>', "/a?b'c", "?x", "#x", ""])
@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "0X7F000001", "017700000001", "127.0.0.1.", "0177.0.0.1"]
)
async def test_an_address_in_an_odd_spelling_is_refused_even_where_all_are_allowed(host: str, tail: str) -> None:
    # wreq would read it by rules of its own, past the names that it is bound to.
    async with hostile_site() as site, WreqTransport(AddressGuard(allow_private=True)) as transport:
        with pytest.raises(FetchRefused, match="odd spelling"):
            await transport.fetch(TransportRequest(url=site.url(tail, host=host), limits=LIMITS))
    assert site.connections == 0


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('/a"b<c>d`e{f}g\\h^i|j', "/a%22b%3Cc%3Ed%60e%7Bf%7Dg%5Ch%5Ei|j"),
        ("/../a/./b", "/../a/./b"),
        ("/a?b=\"<>'", "/a?b=%22%3C%3E%27"),
        ("/a?b={c}|d^e`f\\g?h", "/a?b={c}|d^e`f\\g?h"),
        ("?a=1", "/?a=1"),
    ],
)
async def test_what_wreq_would_read_twice_is_written_as_browsers_write_it(given: str, sent: str) -> None:
    async with hostile_site() as site, WreqTransport(LOOPBACK) as transport:
        await transport.fetch(TransportRequest(url=site.url(given), limits=LIMITS))
    assert site.log[0].path == sent


# --- clients ----------------------------------------------------------------------------------------------------


async def test_profiles_do_not_share_connections() -> None:
    async with hostile_site() as site, WreqTransport(LOOPBACK) as transport:
        for profile in ("chrome", "firefox", "chrome", None, "firefox", None):
            await transport.fetch(TransportRequest(url=site.url("/plain"), profile=profile, limits=LIMITS))
    assert site.connections == 3


async def test_many_hosts_do_not_fill_the_memory() -> None:
    anywhere = AddressGuard(allow_private=True)
    long = timedelta(seconds=PATIENCE)
    async with hostile_site() as site, WreqTransport(anywhere, keep_alive=long, max_clients=8) as transport:

        async def connections_after(number: int) -> int:
            url = site.url("/plain", host=f"h{number}.localhost")
            assert (await transport.fetch(TransportRequest(url=url, limits=LIMITS))).body == PAGE
            return site.connections

        assert [await connections_after(number) for number in range(30)] == list(range(1, 31))
        # The last eight are remembered with their connections, those before them are not.
        assert [await connections_after(number) for number in range(22, 30)] == [30] * 8
        assert await connections_after(21) == 31


async def test_a_client_that_goes_does_not_take_a_page_with_it() -> None:
    anywhere = AddressGuard(allow_private=True)
    async with (
        hostile_site(drip=timedelta(milliseconds=5)) as site,
        WreqTransport(anywhere, max_clients=1) as transport,
    ):
        slow = asyncio.ensure_future(
            transport.fetch(TransportRequest(url=site.url("/drip", host="slow.localhost"), limits=Limits(max_body=50)))
        )
        await until(lambda: site.seen("/drip"))
        for number in range(3):
            await transport.fetch(TransportRequest(url=site.url("/plain", host=f"h{number}.localhost"), limits=LIMITS))
        response = await slow
    assert (response.cut, len(response.body)) == (True, 50)


async def test_passes_at_the_relay_go_with_their_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check_target(*_: object) -> str:
        return "203.0.113.7"

    monkeypatch.setattr(impersonate_clients, "check_target", check_target)
    proxy = Proxy(pool="p", name="n", scheme="http", host="127.0.0.1", port=9, allow_private=True)
    clients = impersonate_clients.Clients(AddressGuard(), timedelta(minutes=1), None, most=2)
    await clients.open()
    try:
        first = await clients.client_for("h0.example", None, proxy, LIMITS)
        for number in range(1, 6):
            last = await clients.client_for(f"h{number}.example", None, proxy, LIMITS)
        assert clients._relay is not None
        passes = clients._relay._passes
        # The last two, and that of a client which was pushed out while a request has it.
        assert len(passes) == 3
        assert first.relay in passes.values()
        del first
        clients.forget(last)
        del last
        assert len(passes) == 1
    finally:
        await clients.close()


async def test_a_client_that_could_not_connect_is_made_anew() -> None:
    long = timedelta(seconds=PATIENCE)
    async with hostile_site() as site, WreqTransport(LOOPBACK, keep_alive=long) as transport:
        await transport.fetch(TransportRequest(url=site.url("/plain"), limits=LIMITS))
        with pytest.raises(ConnectFailed):
            await transport.fetch(TransportRequest(url=f"http://127.0.0.1:{_closed_port()}/", limits=LIMITS))
        assert (await transport.fetch(TransportRequest(url=site.url("/plain"), limits=LIMITS))).body == PAGE
    assert site.connections == 2  # the one that stood went with its client


def _closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("latency_ms", [0, 400])
async def test_the_kernel_tells_when_a_request_left(tls: bool, latency_ms: int) -> None:
    with park(pages=9, tls=tls, latency_ms=latency_ms, handshake_ms=(200, 300)) as ground:
        trust = ssl.create_default_context(cafile=ground.certificate) if tls else None
        async with WreqTransport(AddressGuard(allow_private=True), ssl_context=trust) as transport:
            for number in range(1, 4):  # on a new connection, and on one that stands
                gate = ToldGate()
                await transport.fetch(TransportRequest(url=ground.url(0, f"/page/{number}"), limits=LIMITS, gate=gate))
                seen = ground.hits()[-1].at
                assert -0.006 <= gate.left_at - seen <= 0.3  # the kernel counts in steps of 4 ms


async def test_a_request_on_a_connection_that_stood_is_told_before_its_answer_comes() -> None:
    told = asyncio.Event()

    async def answer_when_told(call: Call) -> None:
        await told.wait()
        await call.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    async with hostile_site() as site, WreqTransport(LOOPBACK) as transport:
        site.shown["/held"] = answer_when_told
        await transport.fetch(TransportRequest(url=site.url("/plain"), limits=LIMITS, gate=HeldGate()))
        gate = HeldGate()
        asked = asyncio.ensure_future(
            transport.fetch(TransportRequest(url=site.url("/held"), limits=LIMITS, gate=gate))
        )
        await until(lambda: gate.is_out)
        assert [seen.path for seen in site.log] == ["/plain", "/held"]
        told.set()
        assert (await asked).body == b"ok"


class ToldGate(HeldGate):
    left_at = 0.0

    def left(self, ago: float = 0.0) -> None:
        super().left(ago)
        self.left_at = time.monotonic() - ago


async def test_a_request_whose_answer_does_not_come_keeps_its_turn() -> None:
    gate = HeldGate()
    async with listener() as silent, WreqTransport(LOOPBACK) as transport:
        waiting = asyncio.ensure_future(transport.fetch(TransportRequest(url=silent.url(), limits=LIMITS, gate=gate)))
        await silent.line()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    assert gate.steps == ["entered"]  # who made the gate closes it


async def test_without_wreq_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wreq", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[profiles\]'"):
        await WreqTransport(LOOPBACK).__aenter__()


# --- bodies -----------------------------------------------------------------------------------------------------


async def test_a_body_in_tiny_chunks_takes_little_more_than_its_length() -> None:
    page = b"ab" * 50_000
    says = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"2\r\nab\r\n" * 50_000 + b"0\r\n\r\n"
    async with listener(says) as server, WreqTransport(LOOPBACK) as transport:
        tracemalloc.start()
        try:
            response = await transport.fetch(TransportRequest(url=server.url(), limits=LIMITS))
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (response.body, response.cut) == (page, False)
    assert peak < 12 * len(page)  # the server's own buffers among it
