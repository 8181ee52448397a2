"""The port for callbacks cannot be filled up, and a long callback does not hold up everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import aiohttp
import pytest

from gossamer.fetch.managed import answers
from gossamer.fetch.managed.answers import read, read_in_parts
from gossamer.fetch.managed.callback import CallbackReceiver
from tests.patience import PATIENCE, until
from tests.services.ports import free_port
from tests.services.vendors import job_vendor
from tests.unit.managed import described, exchange, pages, transport_to, with_callbacks

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def listening(port: int, **limits: Any) -> AsyncIterator[list[bytes]]:
    """A receiver that takes whatever is sent to /batch.secret."""
    taken: list[bytes] = []

    async def receive(name: str, secret: str, body: bytes | None) -> bool:
        if body is not None:
            taken.append(body)
        return (name, secret) == ("batch", "secret")

    vendor = described(
        'preset = "finedata"\nurl = "https://api.example.com"\nkey = "abcdefgh"\nallow_private = true\n'
        + with_callbacks(port)
    )
    async with CallbackReceiver(vendor, receive, **limits):
        yield taken


@asynccontextmanager
async def connections(port: int, count: int) -> AsyncIterator[list[Stream]]:
    streams = list(await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(count))))
    try:
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def ended(stream: Stream) -> bytes:
    """What came before the other side closed the connection."""
    async with asyncio.timeout(PATIENCE):
        try:
            return await stream[0].read()
        except ConnectionResetError:
            return b""


async def post(port: int, path: str, body: bytes = b"{}") -> int:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE)) as client,
        client.post(f"http://127.0.0.1:{port}{path}", data=body) as answer,
    ):
        return answer.status


async def until_posted(port: int) -> None:
    """Post until the receiver takes it."""

    async def is_taken() -> bool:
        with suppress(aiohttp.ClientError):
            return await post(port, "/hook/batch.secret") == 200
        return False

    await until(is_taken)


async def test_more_connections_than_the_limit_are_closed_at_once() -> None:
    port = free_port()
    async with listening(port, connections=3) as taken:
        async with connections(port, 8) as streams:
            reads = [asyncio.create_task(ended(stream)) for stream in streams]
            await until(lambda: sum(task.done() for task in reads) >= 5)
            assert sum(task.done() for task in reads) == 5
            for task in reads:
                task.cancel()
            await asyncio.gather(*reads, return_exceptions=True)

        # Those who leave make room.
        await until_posted(port)
    assert taken == [b"{}"]


@pytest.mark.parametrize("begin", [b"", b"POST /hook/batch.secret HTTP/1.1\r\nHost: a\r\nX-A: "])
async def test_a_head_that_does_not_come_is_not_waited_for(begin: bytes) -> None:
    port = free_port()
    soon = timedelta(milliseconds=500)
    async with listening(port, head_within=soon) as taken, connections(port, 1) as (stream,):
        stream[1].write(begin)
        assert await ended(stream) == b""
        await until_posted(port)
    assert taken == [b"{}"]


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    port = free_port()
    soon = timedelta(milliseconds=100)
    async with listening(port, body_within=soon) as taken, connections(port, 1) as (stream,):
        stream[1].write(b"POST /hook/batch.secret HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123")
        async with asyncio.timeout(PATIENCE):
            assert (await stream[0].readline()).split()[1] == b"408"
    assert taken == []


async def test_a_slow_body_has_longer_than_the_head() -> None:
    port = free_port()
    soon = timedelta(seconds=2)
    async with listening(port, head_within=soon) as taken, connections(port, 2) as (idle, slow):
        slow[1].write(b"POST /hook/batch.secret HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\n\r\n123")
        await ended(idle)  # by then the time for a head is over
        slow[1].write(b"456")
        assert (await ended(slow)).split()[1] == b"200"
    assert taken == [b"123456"]


@pytest.mark.parametrize(
    ("words", "code"),
    [("POST /hook/batch.secret", b"200"), ("POST /hook/nobody.secret", b"404"), ("GET /hook/batch.secret", b"405")],
)
async def test_a_connection_carries_one_request(words: str, code: bytes) -> None:
    port = free_port()
    async with listening(port), connections(port, 1) as (stream,):
        stream[1].write(f"{words} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
        assert (await ended(stream)).split()[1] == code


# -- long ones ----------------------------------------------------------------------------------------------


class Turns:
    """Counts how often others had their turn while it was entered."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Turns:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.count += 1


LONG = b"x" * 100_000
RESULTS = b",".join(b'{"id": "%d", "html": "%s"}' % (number, LONG) for number in range(20))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (b'{"state": "done", "results": [%s], "n": {"a": [1]}}' % RESULTS, ("results",)),
        (b'{"job": {"results": [%s], "b": null}, "c": 1.5}' % RESULTS, ("job", "results")),
    ],
)
async def test_a_long_list_of_results_is_read_one_by_one(body: bytes, path: tuple[str, ...]) -> None:
    async with Turns() as turns:
        found = await read_in_parts(body, path)
    assert found == read(body)
    assert turns.count >= 20


@pytest.mark.parametrize(
    "body",
    [
        b"[%s]" % RESULTS,
        b'{"result": [%s]}' % RESULTS,
        b'{"results": {"a": [%s]}}' % RESULTS,
        b'{"results": [%s, "\\ud800"]}' % RESULTS,
        b'{"results": [1]}',
    ],
)
async def test_another_shape_is_read_as_ever(body: bytes) -> None:
    assert await read_in_parts(body, ("results",)) == read(body)


@pytest.mark.parametrize("body", [b'{"results": [%s}' % RESULTS, b"[" * 2_000_000, b'{"results": [%s' % RESULTS])
async def test_long_garbage_is_garbage(body: bytes) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        await read_in_parts(body, ("results",))


def test_json_without_an_end_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def second(body: bytes) -> None:
        raise AssertionError("read for the second time")

    monkeypatch.setattr(answers.json, "loads", second)
    with pytest.raises(ValueError, match="not JSON"):
        read(b'{"results": [%s' % RESULTS)


async def test_others_have_their_turn_while_pages_are_handed_out() -> None:
    async with job_vendor() as server, transport_to(server, with_callbacks(free_port())) as transport:
        server.callbacks = 0
        urls = pages(server, 20)
        waiting = [asyncio.create_task(transport.fetch(exchange(url))) for url in urls]
        await until(lambda: bool(server.jobs))
        name, _, secret = server.log[0].json["callback_url"].rpartition("/")[2].partition(".")
        whole = await server.finished("job-0")
        body = b'{"results": [%s]}' % b",".join(
            b'{"id": "%s", "status": "completed", "result": {"body": "%s"}}' % (one["id"].encode(), LONG)
            for one in whole["results"]
        )
        desk = transport._desk
        assert desk is not None
        async with Turns() as turns:
            assert await desk.receive(name, secret, body)
        assert {len(one.body) for one in await asyncio.gather(*waiting)} == {100_000}
    assert turns.count >= 40
