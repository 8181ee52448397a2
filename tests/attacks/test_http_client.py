"""The attacker is a client of the server, without a key: bytes that parsers read differently, names that are not the
server's, pages of other local servers, and connections that say nothing. A real server on a real socket."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import h11
import pytest

from gossamer.server import connection
from gossamer.server.run import HttpServer, _config
from tests.patience import PATIENCE
from tests.server.serving import Served, listening, serving, settings_of

MOST = 40  # connections at once


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(settings_of(tmp_path, server__public_url="https://scrape.example/api"), worker=False) as opened:
        yield opened


@pytest.fixture
async def port(door: Served) -> AsyncIterator[int]:
    async with listening(HttpServer(_config(door.app))) as port:
        yield port


async def answer_to(port: int, content: bytes, **connection: Any) -> bytes:
    """What comes until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **connection)
    try:
        writer.write(content)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


GOOD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
HOST = b"Host: 127.0.0.1\r\n"
CHUNKED = b"POST /api/v1/scrape HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        GOOD.replace(b"\r\n", b"\n"),
        GOOD.replace(b"127.0.0.1\r\n", b"127.0.0.1\n"),
        GOOD.replace(b"HTTP/1.1\r\n", b"HTTP/1.1\n"),
        GOOD.replace(b"close\r\n\r\n", b"close\n\r\n"),
        GOOD.replace(b"close\r\n\r\n", b"close\r\n\n"),
        GOOD.replace(b"127.0.0.1\r\n", b"127.0.0.1\rX: a\r\n"),
        GOOD.replace(b"close\r\n", b"close\r\n\tfolded\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1\r\n .evil.example\r\n"),
        GOOD.replace(HOST, b" " + HOST),
        GOOD.replace(HOST, b"Host : 127.0.0.1\r\n"),
        GOOD.replace(HOST, HOST + HOST),
        GOOD.replace(HOST, HOST + b"Host: evil.example\r\n"),
        GOOD.replace(HOST, b""),
        GOOD.replace(HOST, b"Host:\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1:80@evil.com\r\n"),
        GOOD.replace(HOST, b"Host: evil.com@127.0.0.1\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1/evil.com\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1, evil.com\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1:80:90\r\n"),
        GOOD.replace(HOST, b"Host: 127.0.0.1:x\r\n"),
        GOOD.replace(HOST, b"Host: [::1]evil.com\r\n"),
        GOOD.replace(b" /healthz", b" http://evil.example/healthz"),
        GOOD.replace(b" /healthz", b" http://127.0.0.1/healthz"),
        GOOD.replace(b" /healthz", b" //127.0.0.1/healthz", 1).replace(b"GET //", b"GET http://"),
        GOOD.replace(b"GET /healthz", b"OPTIONS *"),
        GOOD.replace(b"GET /healthz", b"CONNECT 127.0.0.1:80"),
        GOOD.replace(b" /healthz", b" healthz"),
        CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
        CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
        CHUNKED.replace(b": chunked", b": xchunked") + b"\r\n0\r\n\r\n",
        CHUNKED.replace(b": chunked", b": chunked, identity") + b"\r\n0\r\n\r\n",
        CHUNKED.replace(b": chunked", b":\x0bchunked") + b"\r\n0\r\n\r\n",
        CHUNKED.replace(b"Transfer-Encoding:", b"Transfer-Encoding :") + b"\r\n0\r\n\r\n",
        CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n0\r\n\r\n",
        GOOD.replace(b"close\r\n", b"close\r\nContent-Length: 1\r\nContent-Length: 2\r\n") + b"x",
        GOOD.replace(b"close\r\n", b"close\r\nContent-Length: 0x1\r\n") + b"x",
    ],
)
async def test_a_request_that_parsers_read_differently_gets_a_400(port: int, request_bytes: bytes) -> None:
    said = await answer_to(port, request_bytes)
    assert said.startswith(b"HTTP/1.1 400 "), said[:300]
    assert said.count(b"HTTP/1.1") == 1, said
    assert (await answer_to(port, GOOD)).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("end", [b"0\r\n\n", b"0\r\nX: a\n\r\n", b"0\r\nX: a\r\n b\r\n\r\n", b"0\n\r\n"])
async def test_no_second_request_hides_behind_the_end_of_chunks(door: Served, port: int, end: bytes) -> None:
    head = CHUNKED.replace(b"Connection: close\r\n", b"x-api-key: %s\r\n" % door.key.encode())
    body = b"2\r\n{}\r\n" + end
    said = await answer_to(port, head + b"Content-Type: application/json\r\n\r\n" + body + GOOD)
    assert said.count(b"HTTP/1.1") <= 1, said
    assert b" 200 " not in said, said


class Looks:
    """A pattern that counts the bytes it is shown."""

    def __init__(self, pattern: re.Pattern[bytes]) -> None:
        self.pattern = pattern
        self.count = 0

    def search(self, text: bytearray, start: int = 0, end: int | None = None) -> re.Match[bytes] | None:
        end = len(text) if end is None else end
        self.count += end - start
        return self.pattern.search(text, start, end)


@pytest.mark.parametrize("content", [b"X: " + b"a" * 8000, b"X:a\r\n" * 1600], ids=["one line", "many lines"])
def test_a_head_that_arrives_byte_by_byte_is_looked_at_once(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    looks = {name: Looks(getattr(connection, name)) for name in ("_WRONG_LINE", "_BLANK_LINE")}
    for name, one in looks.items():
        monkeypatch.setattr(connection, name, one)
    parser = connection.Requests()
    for byte in b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + content:
        parser.receive_data(bytes([byte]))
        assert parser.next_event() is h11.NEED_DATA
    assert all(len(content) <= one.count < 5 * len(content) for one in looks.values())


def read_both(parser: connection.Requests, *pieces: bytes) -> None:
    for piece in pieces:
        parser.receive_data(piece)
        parser.next_event()


@pytest.mark.parametrize("wrong", [b"X: a\n", b"X: a\rb\r\n", b"X: a\r\n b\r\n", b"X: a\r\n\n", b"X: a\n\r\n"])
def test_a_wrong_line_is_seen_wherever_the_head_is_cut(wrong: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + wrong + b"Y: b\r\n\r\n"
    for cut in range(1, len(head)):
        parser = connection.Requests()
        with pytest.raises(h11.RemoteProtocolError):
            read_both(parser, head[:cut], head[cut:])


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "127.0.0.1:8420", "127.0.0.1:", "LOCALHOST", "localhost.", "[::1]", "[::1]:80"]
)
async def test_the_names_of_the_server_are_taken_as_before(port: int, name: str) -> None:
    said = await answer_to(port, GOOD.replace(b"Host: 127.0.0.1", f"Host: {name}".encode()))
    assert said.startswith(b"HTTP/1.1 200 "), said


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:8420", 200),
        ("https://127.0.0.1:8420", 200),
        ("https://scrape.example", 200),
        ("http://127.0.0.1:3000", 403),
        ("http://127.0.0.1", 403),
        ("http://localhost:8420", 403),
        ("https://scrape.example:8443", 403),
        ("http://scrape.example", 403),
        ("http://127.0.0.1:8420.evil.example", 403),
        ("http://127.0.0.1:8420@evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_agents_in_a_browser_are_of_the_servers_own_origin(door: Served, origin: str, status: int) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    headers = {
        "authorization": f"Bearer {door.key}",
        "host": "127.0.0.1:8420",
        "origin": origin,
        "accept": "application/json, text/event-stream",
    }
    async with door.app.router.lifespan_context(door.app):
        answer = await door.http.post("/mcp", json=body, headers=headers)
    assert answer.status_code == status, answer.text


SIGN_IN = b"POST /ui/sign-in HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\n"
FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"


@pytest.mark.parametrize(
    "half",
    [
        b"GET /healthz HTTP/1.1\r\nHost: 127",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n",
        b"POST /api/v1/scrape HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        SIGN_IN + FORM + b"Content-Length: 9\r\n\r\nkey=",
        SIGN_IN + FORM + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
async def test_silent_connections_from_many_addresses_lock_nobody_out(door: Served, half: bytes) -> None:
    """Five times as many connections as the server has, half of them with half a request."""
    async with AsyncExitStack() as stack, listening(HttpServer(_config(door.app, 200, MOST))) as port:
        opened = []
        for number in range(5 * MOST):
            place = (f"127.0.0.{2 + number % 10}", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=place)
            stack.callback(writer.close)
            if number % 2:
                writer.write(half)
            opened.append(reader)
            if number % 10 == 0:
                assert (await answer_to(port, GOOD)).startswith(b"HTTP/1.1 200 ")
        quiet, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        for number in range(2 * MOST):
            place = (f"127.0.0.{2 + number % 10}", 0)
            _, other = await asyncio.open_connection("127.0.0.1", port, local_addr=place)
            stack.callback(other.close)
        writer.write(GOOD)  # idle meanwhile, but the only one of its address
        async with asyncio.timeout(PATIENCE):
            assert (await quiet.read()).startswith(b"HTTP/1.1 200 ")


async def test_a_client_that_waits_between_requests_gives_way_and_others_go_on(door: Served) -> None:
    """Connections that were used, and are kept open without a request, count as idle too."""
    async with AsyncExitStack() as stack, listening(HttpServer(_config(door.app, 200, MOST))) as port:
        for _ in range(2 * MOST):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(GOOD.replace(b"Connection: close\r\n", b""))
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
