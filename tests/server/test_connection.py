"""Connections to the server: who is silent does not keep others out. Real sockets, the server's own settings."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from gossamer.errors import Misconfigured
from gossamer.server import connection as connection_module
from gossamer.server.run import HttpServer, _config, listen
from tests.patience import PATIENCE

from .serving import listening

HEAD_SECONDS = 0.5
REQUEST = b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


async def slow_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers after more time than a head may take."""
    await asyncio.sleep(3 * HEAD_SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connection_module, "HEAD_SECONDS", HEAD_SECONDS)
    async with listening(HttpServer(_config(slow_app))) as port:
        yield port


async def left_over(reader: asyncio.StreamReader) -> bytes:
    """What comes until the server closes the connection."""
    async with asyncio.timeout(PATIENCE):
        return await reader.read()


@pytest.mark.parametrize("begin", [b"", b"GET / HTTP/1.1\r\nhost: 127"])
async def test_a_connection_without_a_whole_head_is_closed(port: int, begin: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    assert await left_over(reader) == b""
    writer.close()


async def test_who_sends_a_head_byte_by_byte_gets_no_more_time(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def drip() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(HEAD_SECONDS / 10)

    dripping = asyncio.create_task(drip())
    try:
        with suppress(ConnectionError):  # bytes that come after the end reset it
            assert await left_over(reader) == b""
    finally:
        dripping.cancel()
        writer.close()


MOST = 3


async def quick_app(scope: Any, receive: Any, send: Any) -> None:
    """Answers at once, without a look at the body: much to /much, little to others."""
    size = 64 * 1024 * 1024 if scope["path"] == "/much" else 2
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % size)]})
    for _ in range(0, size, 65536):
        await send({"type": "http.response.body", "body": b"ok" * (min(size, 65536) // 2), "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def capped(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(connection_module, "STALL_SECONDS", HEAD_SECONDS)
    async with listening(HttpServer(_config(quick_app, MOST))) as port:
        yield port


async def test_one_address_has_only_so_many_connections_and_gets_new_ones_when_it_closes_some(capped: int) -> None:
    lines = [await asyncio.open_connection("127.0.0.1", capped) for _ in range(MOST)]
    reader, writer = await asyncio.open_connection("127.0.0.1", capped)
    answer = await left_over(reader)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"server.connections_per_address" in answer
    writer.close()
    elsewhere = await asyncio.open_connection("127.0.0.1", capped, local_addr=("127.0.0.2", 0))
    for reader, writer in (*lines, elsewhere):
        writer.write(REQUEST)
        assert (await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE)).startswith(b"HTTP/1.1 200")
        writer.close()

    async with asyncio.timeout(PATIENCE):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", capped)
            writer.write(REQUEST)
            answer = await reader.read(12)
            writer.close()
            if answer == b"HTTP/1.1 200":
                break


async def test_a_body_that_nobody_wants_does_not_keep_the_connection_open(capped: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", capped)
    writer.write(b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\n")
    await asyncio.wait_for(reader.readuntil(b"ok"), PATIENCE)
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"x")
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1), 0.02)
    writer.close()


async def test_who_does_not_take_an_answer_is_disconnected(capped: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", capped, limit=1024)
    writer.write(REQUEST.replace(b"GET /", b"GET /much"))
    transport: Any = writer.transport
    transport.pause_reading()
    await asyncio.sleep(3 * HEAD_SECONDS)
    transport.resume_reading()
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await asyncio.wait_for(reader.readexactly(64 * 1024 * 1024), PATIENCE)
    writer.close()


@pytest.mark.long
async def test_an_answer_may_take_longer_and_a_connection_is_used_again(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):
            writer.write(REQUEST)
            answer = await reader.readuntil(b"ok")
            assert answer.startswith(b"HTTP/1.1 200")
            await asyncio.sleep(2 * HEAD_SECONDS)  # between two requests there is more time
        writer.write(REQUEST[:20])  # and none for the rest of a head
        assert await reader.read() == b""
    writer.close()


def test_an_address_that_cannot_be_had_is_told_with_what_to_set() -> None:
    busy = r"something else listens there.*server.port.*gossamer serve --port"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Misconfigured, match=busy):
        listen("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(Misconfigured, match=r"server.host.*gossamer serve --host"):
        listen("192.0.2.1", 0)
