from __future__ import annotations

import asyncio
import gzip
import inspect
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import client_exceptions, http_exceptions

from gossamer.errors import (
    AddressRefused,
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
from tests.patience import PATIENCE
from tests.sites.hostile import PAGE, HostileSite, hostile_site

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
async def a_bench(guard: AddressGuard = LOOPBACK) -> AsyncIterator[Bench]:
    async with hostile_site(drip=timedelta(milliseconds=20)) as site, AiohttpTransport(guard) as transport:
        yield Bench(site, transport)


async def test_a_page_comes_back_whole_with_its_facts() -> None:
    async with a_bench() as bench:
        response = await bench.get("/plain", User_Agent="Test/1")
    assert (response.status, response.body, response.cut, response.note) == (200, PAGE, False, "")
    assert response.headers.get("etag") == '"one"'
    assert response.wire_bytes == len(PAGE)
    assert response.address == "127.0.0.1"
    assert response.seconds > 0
    assert bench.site.log[0].headers["user-agent"] == "Test/1"


async def test_connections_are_used_again() -> None:
    async with a_bench() as bench:
        for _ in range(5):
            await bench.get("/plain")
    assert bench.site.connections == 1


async def test_the_connection_stands_when_the_request_comes_to_its_gate() -> None:
    async with a_bench() as bench:
        gate = HeldGate(is_open=False)
        asked = asyncio.ensure_future(bench.get("/plain", gate=gate))
        await asyncio.wait_for(gate.reached.wait(), PATIENCE)
        async with asyncio.timeout(PATIENCE):
            while not bench.site.connections:
                await asyncio.sleep(0.001)
        assert bench.site.log == []
        gate.opened.set()
        await asked
    assert bench.site.connections == 1


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
            async with asyncio.timeout(PATIENCE):
                while any(one.is_connected() for one in transport._session.connector._acquired):  # type: ignore[union-attr]
                    await asyncio.sleep(0.001)
            gate.opened.set()
            assert (await fetch).body == b"ok"
            assert gate.steps == ["entered", "withdrew", "entered", "left"]
            assert len(lines) == standing + 1
    assert asked == [2, 3]  # each request came once, over a connection that stood


@pytest.mark.parametrize(
    "path",
    ["/a%2Fb%20c?q=%E9&x=a+b&y=%zz", "/a//b/../c", "/~u/;p=1/(x)'!*", "/caf%C3%A9|x[1]", "/a%0d%0ab?%00"],
)
async def test_the_address_is_sent_exactly_as_given(path: str) -> None:
    async with a_bench() as bench:
        await bench.get(path)
    assert bench.site.log[0].path == path


async def test_a_fragment_is_not_sent() -> None:
    async with a_bench() as bench:
        await bench.get("/plain#part")
    assert bench.site.log[0].path == "/plain"


async def test_redirects_are_not_followed_and_cookies_not_kept() -> None:
    async with a_bench() as bench:
        response = await bench.get("/redirect?to=/plain&cookie=a=b")
        await bench.get("/plain")
    assert (response.status, response.headers.get("location")) == (302, "/plain")
    assert [seen.path for seen in bench.site.log] == ["/redirect?to=/plain&cookie=a=b", "/plain"]
    assert "cookie" not in bench.site.log[1].headers


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/reset-before-headers", ConnectionDropped),
        ("/close-before-headers", ConnectionDropped),
        ("/reset-mid-body", ConnectionDropped),
        ("/short-body", ConnectionDropped),
        ("/short-chunked", ConnectionDropped),
        ("/garbage", BadResponse),
        ("/http09", BadResponse),
        ("/bad-chunked", BadResponse),
        ("/bad-chunked-late", BadResponse),
        ("/two-lengths", BadResponse),
        ("/many-headers", BadResponse),
        ("/wide-headers", BadResponse),
        ("/huge-header", BadResponse),
        ("/huge-status-line", BadResponse),
        ("/hundredfold", BadResponse),
        ("/junk-label", BadResponse),
    ],
)
async def test_a_broken_answer_has_its_own_error(path: str, error: type[Exception]) -> None:
    async with a_bench() as bench:
        with pytest.raises(error) as caught:
            await bench.get(path)
        assert "\n" not in str(caught.value)
        # The transport is as good as new afterwards.
        assert (await bench.get("/plain")).body == PAGE


async def test_an_answer_with_too_many_headers_is_told_as_such() -> None:
    async with a_bench() as bench:
        with pytest.raises(BadResponse, match="more headers than are taken"):
            await bench.get("/many-headers")


async def test_a_header_of_100_megabytes_is_not_read() -> None:
    async with a_bench() as bench:
        with pytest.raises(BadResponse):
            await bench.get("/huge-header")
        assert bench.site.sent < 20_000_000  # what fits into the buffers of the sockets


@pytest.mark.parametrize("path", ["/silence", "/drip", "/drip-headers"])
async def test_what_takes_too_long_is_a_timeout(path: str) -> None:
    async with a_bench() as bench:
        with pytest.raises(TimedOut, match=r"_timeout"):
            await bench.get(path, HASTY)


async def test_interim_answers_without_end_do_not_hold_the_loop() -> None:
    async with a_bench() as bench:
        with pytest.raises(BadResponse, match="more than 16 interim answers"):
            await bench.get("/endless-informational")
        assert (await bench.get("/plain")).body == PAGE


async def test_a_deadline_is_no_cancellation_for_the_caller() -> None:
    async with a_bench() as bench:
        with pytest.raises(TimedOut):
            await bench.get("/drip", HASTY)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_cancelled_fetch_leaves_as_cancelled() -> None:
    async with a_bench() as bench:
        fetch = asyncio.ensure_future(bench.get("/drip"))
        while not bench.site.seen("/drip"):
            await asyncio.sleep(0)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch


@pytest.mark.parametrize("path", ["/endless", "/endless-chunked", "/endless-gzip"])
async def test_an_endless_body_is_cut_and_marked(path: str) -> None:
    async with a_bench() as bench:
        response = await bench.get(path)
    assert response.cut
    assert len(response.body) <= LIMITS.max_body
    assert response.wire_bytes < 1_000_000


@pytest.mark.parametrize("names", ["gzip", "deflate", "br", "zstd", "gzip,zstd"])
async def test_a_bomb_is_cut_at_the_limit(names: str) -> None:
    async with a_bench() as bench:
        response = await bench.get(f"/bomb?with={names}")
    assert response.cut
    assert 0 < len(response.body) <= LIMITS.max_body


@pytest.mark.parametrize("names", ["gzip", "deflate", "br", "zstd", "gzip,br,zstd"])
async def test_packed_pages_are_unpacked(names: str) -> None:
    async with a_bench() as bench:
        response = await bench.get(f"/packed?with={names}")
    assert response.body == PAGE
    assert response.wire_bytes != len(PAGE)


@pytest.mark.parametrize(
    ("path", "body", "note"),
    [
        ("/lying-label", PAGE, "not gzip"),
        ("/lying-label?with=utf-8", PAGE, "unknown encoding 'utf-8'"),
        ("/damaged-gzip", PAGE, "damaged gzip"),
        ("/empty", b"", ""),
        ("/empty-gzip", b"", ""),
        ("/binary-as-html", bytes(range(256)) * 16, ""),
        ("/redirect-nowhere", PAGE, ""),
        ("/always-304", b"", ""),
    ],
)
async def test_odd_bodies_are_kept_with_a_note(path: str, body: bytes, note: str) -> None:
    async with a_bench() as bench:
        response = await bench.get(path)
    assert (response.body, response.note) == (body, note)


async def test_a_body_that_came_as_gzip_in_good_order_can_be_kept_so() -> None:
    async with a_bench() as bench:
        packed = await bench.get("/packed?with=gzip")
        others = [await bench.get(path) for path in ("/plain", "/packed?with=br", "/damaged-gzip", "/lying-label")]
    assert gzip.decompress(packed.packed) == packed.body
    assert packed.wire_bytes == len(packed.packed)
    assert [response.packed for response in others] == [b""] * 4


async def test_truncated_gzip_keeps_what_was_decoded() -> None:
    async with a_bench() as bench:
        response = await bench.get("/truncated")
    assert response.note == "truncated gzip"
    assert response.cut
    assert len(response.body) > 10_000


async def test_header_bytes_that_are_no_text_become_replacement_characters() -> None:
    async with a_bench() as bench:
        response = await bench.get("/header-bytes")
    assert response.headers.get("x-odd").encode().decode() == "caf\ufffd é"


async def test_the_target_of_a_redirect_keeps_bytes_that_are_no_utf_8() -> None:
    async with a_bench() as bench:
        response = await bench.get("/moved-to-latin")
    assert response.headers.get("location") == "/caf%E9/é"


@pytest.mark.parametrize("bad", ["/a\r\nX-Evil: 1", "/a\nb", "/a b", "/a\x00", "/a\x7f", "/é", "/\udc80"])
async def test_nothing_can_be_injected_through_the_url(bad: str) -> None:
    async with a_bench() as bench:
        with pytest.raises(FetchRefused):
            await bench.get(bad)
    assert bench.site.log == []


@pytest.mark.parametrize("bad", ["1\r\nX-Evil: 1", "1\nX-Evil: 1", "1\rX-Evil: 1", "1\x00"])
async def test_nothing_can_be_injected_through_a_header(bad: str) -> None:
    async with a_bench() as bench:
        with pytest.raises(FetchRefused):
            await bench.get("/plain", X_Fine=bad)
        with pytest.raises(FetchRefused):
            await bench.get("/plain", **{f"X-Name{bad}": "1"})
    assert bench.site.log == []


@pytest.mark.parametrize("href", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http:///x", "nonsense", ""])
async def test_what_is_no_http_address_is_refused(href: str) -> None:
    async with AiohttpTransport(LOOPBACK) as transport:
        with pytest.raises(FetchRefused):
            await transport.fetch(TransportRequest(url=href))


async def test_a_refused_connection_is_a_connect_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        async with AiohttpTransport(LOOPBACK) as transport:
            with pytest.raises(ConnectFailed):
                await transport.fetch(
                    TransportRequest(url=f"http://127.0.0.1:{taken.getsockname()[1]}/", limits=LIMITS)
                )


async def test_a_name_that_does_not_resolve_is_a_dns_failure() -> None:
    async with AiohttpTransport(LOOPBACK) as transport:
        with pytest.raises(DnsFailed):
            await transport.fetch(TransportRequest(url="http://no-such-name.invalid/", limits=LIMITS))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "shop.localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"])
async def test_no_private_address_is_dialled_by_whatever_name(host: str) -> None:
    async with a_bench(AddressGuard()) as bench:
        with pytest.raises(AddressRefused):
            await bench.transport.fetch(TransportRequest(url=bench.site.url("/plain", host=host), limits=LIMITS))
    assert bench.site.connections == 0


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "017700000001", "127.0.0.1.", "127.0.0.1.."])
async def test_odd_spellings_of_loopback_are_not_dialled(host: str) -> None:
    async with a_bench(AddressGuard()) as bench:
        with pytest.raises((FetchRefused, DnsFailed)):
            await bench.transport.fetch(TransportRequest(url=bench.site.url("/plain", host=host), limits=LIMITS))
    assert bench.site.connections == 0


async def test_a_name_whose_answer_is_private_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", 0))])
    async with a_bench(LOOPBACK) as bench:
        with pytest.raises(AddressRefused, match=r"rebound\.example leads to 127"):
            await bench.transport.fetch(
                TransportRequest(url=bench.site.url("/plain", host="rebound.example"), limits=LIMITS)
            )
    assert bench.site.connections == 0


async def test_an_allowed_host_is_dialled_beside_refused_ones() -> None:
    async with a_bench(AddressGuard(allow_hosts=frozenset({"localhost"}))) as bench:
        allowed = TransportRequest(url=bench.site.url("/plain", host="localhost"), limits=LIMITS)
        refused = TransportRequest(url=bench.site.url("/plain"), limits=LIMITS)
        results = await asyncio.gather(
            *(bench.transport.fetch(exchange) for exchange in (allowed, refused) * 5), return_exceptions=True
        )
    assert [type(result) for result in results] == [Response, AddressRefused] * 5


async def test_a_transport_that_is_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await AiohttpTransport(LOOPBACK).fetch(TransportRequest(url="http://127.0.0.1/"))


@pytest.fixture(scope="module")
def self_signed(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("the openssl command, which makes the test's certificate, is not installed")
    folder: Path = tmp_path_factory.mktemp("tls")
    made = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command = [openssl, "req", *made, "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


async def test_a_certificate_nobody_vouches_for_is_a_tls_failure(self_signed: ssl.SSLContext) -> None:
    async with hostile_site(tls=self_signed) as site, AiohttpTransport(LOOPBACK) as transport:
        with pytest.raises(TlsFailed, match="certificate"):
            await transport.fetch(TransportRequest(url=site.url("/plain"), limits=LIMITS))
    assert site.log == []


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
