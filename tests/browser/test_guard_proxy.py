"""The guard proxy without a browser: plain sockets say to it what a browser would, and what no browser would."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gossamer.errors import AddressRefused, BadResponse, ConnectFailed, ConnectionDropped, DnsFailed
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.browser.guard import MARK
from tests.gates import HeldGate
from tests.patience import until
from tests.sites.hostile import PAGE

from .knocking import a_gate, plain, say, token, tunnel
from .showing import CANARY, HOST


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
        turn = HeldGate()
        holder = gate.admit(on_bytes=pieces.append, gate=turn)
        url = site.url("/plain?a=b", HOST)
        answer = await say(gate, plain(url, token(holder), "Proxy-Connection: keep-alive\r\n", "X-Own: 1\r\n"))
        await say(gate, plain(url, token(holder)))
        (first, _) = site.log
        assert answer.endswith(PAGE)
        assert b"Connection: close" in answer
        assert (first.path, first.headers["x-own"]) == ("/plain?a=b", "1")
        assert not [name for name in first.headers if name.startswith("proxy-")]
        assert turn.steps == ["entered", "left"]  # the second request had no gate
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
        await until(lambda: site.seen("/silence"))
        await gate.dismiss(holder)
        assert await waiting == b""
        assert not holder.lines


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
