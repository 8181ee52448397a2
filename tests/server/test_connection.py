"""Connections to the server: who is silent does not keep others out. Real sockets, the server's own settings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from gossamer.server import connection as connection_module
from gossamer.server.run import Server, _config, listen
from tests.patience import PATIENCE

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
    server = Server(_config(slow_app))
    with listen("127.0.0.1", 0) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        yield listener.getsockname()[1]
        server.should_exit = True
        await serving


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
