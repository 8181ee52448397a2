"""The health of one worker process for Prometheus: memory, event loop lag, connections, pages in progress.

What it does: runs a tiny HTTP server that answers only `GET /metrics`. Metrics of the whole project are served by the
server's /metrics (metrics.py). How it fails: Misconfigured if the port is taken or invalid; it closes the connection of
a client that sends nothing, or too much.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import msgspec

from ... import __version__
from ...clock import Clock
from ...crawl.heartbeat import memory_in_use
from ...errors import Misconfigured, MissingExtra
from ...units import visible

LOOPBACK = "127.0.0.1"
MOST_CLIENTS = 16  # at once
MOST_HEAD = 8192  # bytes of a request
CLIENT_WITHIN = timedelta(seconds=10)
LAG_EVERY = timedelta(milliseconds=500)
LAGS = 60  # samples kept: half a minute

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker pool reports about itself."""

    in_flight: int  # pages
    jobs: int
    spool_bytes: int
    draining: bool


class HealthAddress(msgspec.Struct, frozen=True):
    """The address that serves a worker's metrics: loopback, unless an address was given."""

    host: str
    port: int

    def moved(self, by: int) -> str:
        """The address with the port raised by `by`, as it is typed."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port + by}"


def health_address(text: str) -> HealthAddress:
    """From `9100` or `10.0.0.5:9100`. Raises Misconfigured."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 65_536 or (colon and not host):
        raise Misconfigured(f"{visible(text)!r} is not a port. Write --metrics-port 9100, or 10.0.0.5:9100.")
    return HealthAddress(host.strip("[]") or LOOPBACK, int(port))


@asynccontextmanager
async def telling_health(address: HealthAddress, read: Callable[[], Health], clock: Clock) -> AsyncIterator[None]:
    """Serve the metrics for the duration of the block. Raises Misconfigured; MissingExtra without prometheus-client."""
    try:
        import prometheus_client as _  # noqa: F401 - what tells that the extra is there
    except ImportError as error:
        raise MissingExtra("--metrics-port needs a package: pip install 'gossamer[server]'") from error
    lags: deque[float] = deque([0.0], maxlen=LAGS)
    room = asyncio.Semaphore(MOST_CLIENTS)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if room.locked():
                return
            async with room, asyncio.timeout(CLIENT_WITHIN.total_seconds()):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(head, read(), max(lags)))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # a client that disconnected or sent no request
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await listen(address, answer)
    watching = asyncio.create_task(_measure_lag(lags, clock), name="loop lag")
    try:
        async with server:
            yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def listen(address: HealthAddress, answer: Answer) -> asyncio.Server:
    """A server at that address, with `answer` for each client. Raises Misconfigured."""
    try:
        return await asyncio.start_server(answer, address.host, address.port, limit=MOST_HEAD)
    except OSError as error:
        why = "something else listens there" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise Misconfigured(
            f"The worker cannot listen on {address.moved(0)} ({why}). Choose another port: --metrics-port."
        ) from error


async def _measure_lag(lags: deque[float], clock: Clock) -> None:
    pause = LAG_EVERY.total_seconds()
    while True:
        before = clock.monotonic()
        await asyncio.sleep(pause)
        lags.append(max(0.0, clock.monotonic() - before - pause))


def _answer(head: bytes, health: Health, lag: float) -> bytes:
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    if method not in (b"GET", b"HEAD"):
        return _response("405 Method Not Allowed", b"GET /metrics\n")
    if path != b"/metrics":
        return _response("404 Not Found", b"There is /metrics.\n")
    body = _exposition(health, lag)
    return _response("200 OK", body, bare=method == b"HEAD")


def _response(status: str, body: bytes, *, bare: bool = False) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if bare else body)


def _exposition(health: Health, lag: float) -> bytes:
    from prometheus_client import CollectorRegistry, Gauge, generate_latest

    registry = CollectorRegistry(auto_describe=False)

    def tell(name: str, words: str, value: float) -> None:
        Gauge(name, words, registry=registry).set(value)

    tell("gossamer_worker_memory_bytes", "Resident memory of this process.", memory_in_use())
    tell("gossamer_worker_loop_lag_seconds", "The longest that the loop was late in half a minute.", lag)
    if (sockets := _open_sockets()) is not None:
        tell("gossamer_worker_connections", "Sockets that this process has open.", sockets)
    tell("gossamer_worker_in_flight", "Pages that this process has in progress.", health.in_flight)
    tell("gossamer_worker_jobs", "Jobs that this process works on.", health.jobs)
    tell("gossamer_worker_spool_bytes", "Results on this disk that are not stored yet.", health.spool_bytes)
    tell("gossamer_worker_draining", "1 while this process finishes what it has begun.", health.draining)
    info = Gauge("gossamer_build_info", "The version of Gossamer.", ("version",), registry=registry)
    info.labels(__version__).set(1)
    return bytes(generate_latest(registry))


def _open_sockets() -> int | None:
    """None if the system does not tell."""
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return None
    found = 0
    for name in names:
        with suppress(OSError):  # closed meanwhile
            found += os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    return found
