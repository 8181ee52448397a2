"""The transports that the suite runs against, and servers that tell when a connection ended."""

from __future__ import annotations

import asyncio
import base64
import ssl
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import msgspec
import pytest

from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.contract import Gate, Limits, Response, Transport, TransportRequest
from gossamer.fetch.http import AiohttpTransport
from gossamer.fetch.impersonate import WreqTransport
from gossamer.model.route import Proxy
from tests import patience
from tests.patience import PATIENCE, until
from tests.services.proxies import ProxyServer, Vouched, http_proxy, https_proxy, socks_proxy, vouched_for
from tests.sites.hostile import HostileSite, hostile_site

LOOPBACK = AddressGuard(allow_hosts=frozenset({"127.0.0.1"}))
LIMITS = msgspec.structs.replace(patience.LIMITS, max_body=100_000)
HASTY = Limits(read=timedelta(milliseconds=150), total=timedelta(milliseconds=400))

KINDS: dict[str, Callable[..., AiohttpTransport | WreqTransport]] = {
    "aiohttp": AiohttpTransport,
    "wreq": WreqTransport,
}


class Opener:
    """Opens transports of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(
        self,
        guard: AddressGuard = LOOPBACK,
        *,
        keep_alive: timedelta = timedelta(seconds=10),
        trust: ssl.SSLContext | None = None,
    ) -> AiohttpTransport | WreqTransport:
        return KINDS[self.kind](guard, keep_alive=keep_alive, ssl_context=trust)


@pytest.fixture(params=list(KINDS))
def opened(request: pytest.FixtureRequest) -> Opener:
    return Opener(request.param)


@pytest.fixture
async def site() -> AsyncIterator[HostileSite]:
    async with hostile_site(drip=timedelta(milliseconds=20)) as running:
        yield running


@pytest.fixture(scope="session")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> Vouched:
    return vouched_for(tmp_path_factory.mktemp("tls"), "shop.example", "other.example")


USERS = {"ann": "s3cret-pa55", "bob": "b0b-pa55"}


@contextmanager
def a_proxy(scheme: str, vouched: Vouched, **options: object) -> Iterator[ProxyServer]:
    match scheme:
        case "http":
            opening = http_proxy(users=USERS, **options)  # type: ignore[arg-type]
        case "https":
            opening = https_proxy(vouched.server, users=USERS, **options)  # type: ignore[arg-type]
        case _:
            opening = socks_proxy(users=USERS, **options)  # type: ignore[arg-type]
    with opening as proxy:
        yield proxy


@pytest.fixture(params=["http", "https", "socks5"])
def proxy(request: pytest.FixtureRequest, vouched: Vouched) -> Iterator[ProxyServer]:
    with a_proxy(request.param, vouched) as running:
        yield running


@pytest.fixture
async def safe_site(vouched: Vouched) -> AsyncIterator[HostileSite]:
    async with hostile_site(tls=vouched.server) as running:
        yield running


@pytest.fixture(params=["plain", "tls"])
def target(request: pytest.FixtureRequest, site: HostileSite, safe_site: HostileSite) -> HostileSite:
    """The site that would also answer who comes directly: a canary for every way round the proxy."""
    return site if request.param == "plain" else safe_site


def everything_said(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(error)]) + repr(error.__context__)


def assert_no_secret(said: str) -> None:
    for name, password in USERS.items():
        assert password not in said
        assert base64.b64encode(f"{name}:{password}".encode()).decode() not in said


async def get(
    transport: Transport,
    url: str,
    *,
    proxy: Proxy | None = None,
    limits: Limits = LIMITS,
    headers: tuple[tuple[str, str], ...] = (),
    gate: Gate | None = None,
) -> Response:
    return await transport.fetch(TransportRequest(url=url, proxy=proxy, limits=limits, headers=headers, gate=gate))


@dataclass
class Line:
    """One connection as a server sees it."""

    got: bytes = b""
    begun: asyncio.Event = field(default_factory=asyncio.Event)  # the head of a request is there
    ended: asyncio.Event = field(default_factory=asyncio.Event)  # the client hung up


@dataclass
class Listener:
    """A server that says the same to everybody and then waits for the client to hang up."""

    port: int = 0
    lines: list[Line] = field(default_factory=list)

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def line(self, number: int = 0) -> Line:
        """That connection, once a request came over it."""
        await until(lambda: len(self.lines) > number)
        await asyncio.wait_for(self.lines[number].begun.wait(), PATIENCE)
        return self.lines[number]


@asynccontextmanager
async def listener(
    says: bytes = b"", *, host: str = "127.0.0.1", port: int = 0, until: bytes = b"\r\n\r\n"
) -> AsyncIterator[Listener]:
    """`says` goes out when what came in contains `until`."""
    made = Listener()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line()
        made.lines.append(line)
        try:
            while data := await reader.read(65536):
                line.got += data
                if until in line.got and not line.begun.is_set():
                    line.begun.set()
                    writer.write(says)
        except OSError:
            pass  # a reset is an end, too
        finally:
            line.ended.set()
            writer.close()

    server = await asyncio.start_server(serve, host, port)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        with suppress(asyncio.CancelledError):
            await server.wait_closed()


async def ended(line: Line) -> bool:
    """Wait until the client has hung up. False when it does not."""
    try:
        async with asyncio.timeout(PATIENCE):
            await line.ended.wait()
    except TimeoutError:
        return False
    return True
