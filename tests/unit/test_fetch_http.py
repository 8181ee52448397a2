"""The transport on aiohttp: what tests/conformance/test_transport.py does not ask of every transport."""

from __future__ import annotations

import asyncio
import gzip
import inspect
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import aiohttp
import msgspec
import pytest
import uvloop
from aiohttp import client_exceptions, http_exceptions

from gossamer.errors import (
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    ConnectTimedOut,
    DnsFailed,
    FetchFailed,
    FetchRefused,
    TimedOut,
    TlsFailed,
)
from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Gate, Limits, Response, TransportRequest
from gossamer.fetch.http import AiohttpTransport, translated
from tests import patience
from tests.gates import HeldGate
from tests.patience import PATIENCE, until
from tests.sites.hostile import PAGE, HostileSite, hostile_site
from tests.sites.hostile_wire import ODD_ANSWERS

LOOPBACK = AddressGuard(allow_hosts=frozenset({"127.0.0.1"}))
LIMITS = msgspec.structs.replace(patience.LIMITS, max_body=100_000)
HASTY = Limits(read=timedelta(milliseconds=150), total=timedelta(milliseconds=400))


class Bench:
    """The hostile site and a transport to it."""

    def __init__(self, site: HostileSite, transport: AiohttpTransport) -> None:
        self.site = site
        self.transport = transport

    async def get(self, path: str, limits: Limits = LIMITS, gate: Gate | None = None, **headers: str) -> Response:
        pairs = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        return await self.transport.fetch(
            TransportRequest(url=self.site.url(path), headers=pairs, limits=limits, gate=gate)
        )


@asynccontextmanager
async def a_bench() -> AsyncIterator[Bench]:
    async with hostile_site(drip=timedelta(milliseconds=20)) as site, AiohttpTransport(LOOPBACK) as transport:
        yield Bench(site, transport)


async def test_the_connection_stands_when_the_request_comes_to_its_gate() -> None:
    async with a_bench() as bench:
        gate = HeldGate(is_open=False)
        asked = asyncio.ensure_future(bench.get("/plain", gate=gate))
        await asyncio.wait_for(gate.reached.wait(), PATIENCE)
        await until(lambda: bench.site.connections)
        assert bench.site.log == []
        gate.opened.set()
        await asked
    assert bench.site.connections == 1


def test_waiting_at_the_gate_is_timed_by_the_clock_of_the_response() -> None:
    """uvloop's own counts whole milliseconds, so that some responses would come before they were asked for."""

    class OneTurn(HeldGate):
        async def enter(self, address: str = "") -> None:
            await asyncio.sleep(0)
            await super().enter(address)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    async def main() -> list[float]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, AiohttpTransport(LOOPBACK) as transport:
            seconds = []
            for _ in range(300):
                _spin(0.0007)  # so that they are asked for at all parts of a millisecond
                response = await transport.fetch(TransportRequest(url=url, limits=LIMITS, gate=OneTurn()))
                seconds.append(response.seconds)
            return seconds

    assert min(uvloop.run(main())) > 0


def _spin(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


async def test_a_connection_that_ends_while_the_request_waits_is_replaced_before_its_turn_is_spent() -> None:
    lines: list[asyncio.StreamWriter] = []
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines.append(writer)
        number = len(lines)
        while await reader.read(65536):
            asked.append(number)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    async with server, AiohttpTransport(LOOPBACK) as transport:
        for gate in (HeldGate(is_open=False), HeldGate(is_open=False)):  # on a new connection, and on a kept one
            fetch = asyncio.ensure_future(transport.fetch(TransportRequest(url=url, limits=LIMITS, gate=gate)))
            await asyncio.wait_for(gate.reached.wait(), PATIENCE)
            standing = len(lines)
            lines[-1].close()
            await lines[-1].wait_closed()
            # the news of it reaches us before we hear that the gate is open
            acquired = transport._session.connector._acquired  # type: ignore[union-attr]
            await until(lambda acquired=acquired: not any(one.is_connected() for one in acquired))
            gate.opened.set()
            assert (await fetch).body == b"ok"
            assert gate.steps == ["entered", "withdrew", "entered", "left"]
            assert len(lines) == standing + 1
    assert asked == [2, 3]  # each request came once, over a connection that stood


async def test_an_answer_with_too_many_headers_is_told_as_such() -> None:
    async with a_bench() as bench:
        with pytest.raises(BadResponse, match="too many headers"):
            await bench.get("/many-headers")


async def test_interim_answers_without_end_do_not_hold_the_loop() -> None:
    async with a_bench() as bench:
        with pytest.raises(BadResponse, match="more than 16 interim answers"):
            await bench.get("/endless-informational")
        assert (await bench.get("/plain")).body == PAGE


async def test_a_cancelled_fetch_leaves_as_cancelled() -> None:
    async with a_bench() as bench:
        fetch = asyncio.ensure_future(bench.get("/drip"))
        await until(lambda: bench.site.seen("/drip"))
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch


async def test_a_body_that_came_as_gzip_in_good_order_can_be_kept_so() -> None:
    async with a_bench() as bench:
        packed = await bench.get("/packed?with=gzip")
        others = [await bench.get(path) for path in ("/plain", "/packed?with=br", "/damaged-gzip", "/lying-label")]
    assert gzip.decompress(packed.packed) == packed.body
    assert packed.wire_bytes == len(packed.packed)
    assert [response.packed for response in others] == [b""] * 4


@pytest.mark.parametrize("path", ODD_ANSWERS)
async def test_an_odd_answer_is_read_as_browsers_do_and_ends_its_connection(path: str) -> None:
    async with a_bench() as bench:
        response = await bench.get(path)
        assert (response.status, response.body) == (200, b"0123456789")
        assert (await bench.get("/plain")).body == PAGE


async def test_tls_to_a_server_that_speaks_none_is_a_tls_failure() -> None:
    async with a_bench() as bench:
        with pytest.raises((TlsFailed, ConnectFailed, ConnectionDropped, TimedOut)) as caught:
            await bench.transport.fetch(
                TransportRequest(url=bench.site.url("/plain").replace("http:", "https:"), limits=HASTY)
            )
        assert caught.value.__cause__ is not None


def _every_error() -> Iterator[Exception]:
    """One of each error that aiohttp can raise at a client, and of those beneath it."""
    for module in (client_exceptions, http_exceptions):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, Exception) and kind.__module__ == module.__name__:
                yield _made(kind)
    yield from (OSError(5, "I/O"), ConnectionResetError(104, "reset"), socket.gaierror(-2, "no"), TimeoutError())
    yield from (ssl.SSLError(1, "tls"), ssl.SSLCertVerificationError("bad"), ValueError("x"), TypeError("x"))
    yield from (UnicodeError("x"), RuntimeError("x"), asyncio.IncompleteReadError(b"", 5), AssertionError())


def _made(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind)
    error.args = ("made for the test",)
    key = aiohttp.client_reqrep.ConnectionKey("h", 80, False, True, None, None, None)
    beneath = OSError(111, "Connection refused")
    for name, value in {
        "_conn_key": key, "_os_error": beneath, "_certificate_error": beneath, "_path": "p", "message": "m",
        "_url": "u", "_description": "d", "status": 400, "headers": None, "request_info": None,
        "history": (), "host": "h", "port": 1, "expected": b"", "got": b"",
    }.items():  # fmt: skip
        try:
            setattr(error, name, value)
        except AttributeError:  # a property of this class; it has what it needs
            continue
    if isinstance(error, client_exceptions.ClientResponseError):
        error.request_info = aiohttp.RequestInfo("http://h/", "GET", None, "http://h/")  # type: ignore[arg-type]
    return error


@pytest.mark.parametrize("error", list(_every_error()), ids=lambda error: type(error).__name__)
def test_no_error_of_the_driver_comes_through_unmapped(error: Exception) -> None:
    ours = translated(error, "http://h/", LIMITS)
    assert isinstance(ours, FetchFailed | FetchRefused)
    assert type(ours) not in (FetchFailed,)
    assert str(ours).startswith("http://h/")


def test_the_walk_over_the_errors_of_aiohttp_finds_them() -> None:
    kinds = {type(error) for error in _every_error()}
    named = {getattr(aiohttp, name) for name in aiohttp.__all__}
    of_the_client = {kind for kind in named if inspect.isclass(kind) and issubclass(kind, aiohttp.ClientError)}
    assert of_the_client
    assert of_the_client <= kinds


@pytest.mark.parametrize(
    ("error", "ours"),
    [
        (aiohttp.ConnectionTimeoutError(), ConnectTimedOut),
        (aiohttp.SocketTimeoutError(), TimedOut),
        (aiohttp.ServerDisconnectedError(), ConnectionDropped),
        (_made(aiohttp.ClientConnectorDNSError), DnsFailed),
        (_made(aiohttp.ClientConnectorCertificateError), TlsFailed),
        (_made(aiohttp.ClientConnectorSSLError), TlsFailed),
        (_made(aiohttp.ClientConnectorError), ConnectFailed),
        (aiohttp.InvalidURL("x"), FetchRefused),
        (OSError(24, "Too many open files"), ConnectFailed),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_errors_become_the_word_that_fits(error: Exception, ours: type[Exception]) -> None:
    assert type(translated(error, "http://h/", LIMITS)) is ours
