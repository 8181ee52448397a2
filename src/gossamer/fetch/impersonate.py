"""The second transport, on wreq: TLS and headers as a browser sends them, HTTP/2, the same limits and errors.

What it does: one request with the profile that the request names, or as a plain client without one.
How it fails: as http.py does; impersonate_errors.py has the whole list. MissingExtra if wreq is not installed.
How it recovers: a connection that misbehaved is closed; a client that could not connect is replaced.

wreq connects and sends in one call, and does not report when it sends. So the request enters its gate first, and
occupies it until the kernel reports when the data was sent (`SentTimes`): soon after on a reused HTTP/1.1 connection,
else when the head of the response arrives.

impersonate_clients.py explains how addresses are checked. For that, wreq and we must agree on the host of a URL, so
URLs in any but the plainest form are refused here.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Self
from urllib.parse import unquote

import msgspec

from ..errors import BadResponse, ConnectFailed, FetchFailed, FetchRefused, GossamerError, ProxyFailed, TimedOut
from ..model.page import Headers
from ..model.payload import SAFE_METHODS
from ..model.url import is_literal
from .addresses import AddressGuard
from .body import BodyDecoder, layers_of
from .browser.guard import MARK
from .contract import Gate, Limits, Response, TransportRequest, storable
from .http_errors import stale
from .impersonate_clients import MAX_CLIENTS, MAX_HEADERS, Clients, IdentityClient, library
from .impersonate_errors import hung_up_on, translated
from .profiles import OWN_HEADERS, Profile, profile_named
from .proxies import masked_url

_WIRE_SLACK = 64 * 1024  # as in http.py
_GATHERED = 64 * 1024  # bytes of a body that are collected for the decoder
_LOOK = 0.02  # seconds between two checks whether a request was sent
_SOON = 0.01  # seconds in which further data does not extend the deadline
_UNSAFE_URL = re.compile(r"[^\x21-\x7e]")
_PLAIN_URL = re.compile(
    r"(https?)://"
    r"(?:([^/?#@\\]*)@)?"  # user name and password
    r"([A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::([0-9]{1,5}))?"
    r"(?=[/?#]|$)"
)

# Some parsers take a host that ends in a number for an IPv4 address; only the usual spelling is accepted.
_NUMBER_AT_THE_END = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
# wreq parses a URL with one of these characters again, by other rules; so they are percent-encoded.
_IN_PATHS = str.maketrans({char: f"%{ord(char):02X}" for char in '"<>`{}\\^'})
_IN_QUERIES = str.maketrans({char: f"%{ord(char):02X}" for char in "\"<>'"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]*")


class _Target(msgspec.Struct, frozen=True):
    url: str  # without user name and password, and with the host spelled exactly as the client knows it
    origin: tuple[str, str, int]
    login: str | None

    @property
    def host(self) -> str:
        return self.origin[1]


class _Prepared(msgspec.Struct, frozen=True):
    """The arguments for wreq. `order` is the order and spelling of the headers over HTTP/1.1."""

    method: Any  # an enum of wreq
    headers: Any  # wreq.HeaderMap
    order: list[str]
    body: dict[str, Any]  # the keyword argument for the body, if there is one


class WreqTransport:
    """Clients by host or proxy; open while entered with `async with`.

    Of `ssl_context` only the trusted authorities are used, and whether it verifies certificates at all.
    """

    def __init__(
        self,
        guard: AddressGuard,
        *,
        keep_alive: timedelta = timedelta(seconds=10),
        ssl_context: ssl.SSLContext | None = None,
        max_clients: int = MAX_CLIENTS,
    ) -> None:
        self._clients = Clients(guard, keep_alive, ssl_context, max_clients)

    async def __aenter__(self) -> Self:
        """Raises MissingExtra."""
        await self._clients.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._clients.close()

    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises FetchFailed or FetchRefused; ProxyFailed when the proxy may have been the cause;
        Misconfigured for a profile that does not exist."""
        if not self._clients.are_open:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        proxy = request.proxy
        target = _target(request.url)
        profile = profile_named(request.profile) if request.profile else None
        prepared = _prepared(request, target, profile)
        started = time.perf_counter()
        client = await self._clients.client_for(target.host, profile, proxy, request.limits)
        if request.gate is not None:
            asked_at = time.perf_counter()
            # wreq picks one of the addresses, and reports it only with the response: the gate gets the first one.
            await request.gate.enter(min(client.addresses) if proxy is None else "")
            started += time.perf_counter() - asked_at
        standing = client.takes_standing(target.origin)
        try:
            return await _made(request, target, prepared, client, self._clients, started, standing)
        except BaseException as error:
            if isinstance(error, GossamerError | asyncio.CancelledError):
                raise
            lost = _told_by_relay(client, target) or translated(error, request.url, request.limits, proxy)
            end = hung_up_on(error)
            if end is not None and client.met(end, standing) and request.method in SAFE_METHODS:
                lost = stale(request.url)
            if lost is None:
                raise
            if isinstance(lost, ConnectFailed | ProxyFailed):
                self._clients.forget(client)
            if proxy is None:
                raise lost from error
        # Raised outside the handler, so without a cause: the driver's error may hold details of the proxy.
        raise lost


async def _made(
    request: TransportRequest,
    target: _Target,
    prepared: _Prepared,
    client: IdentityClient,
    clients: Clients,
    started: float,
    standing: bool,
) -> Response:
    """Send the request and read the response. Raises wreq's errors besides our own."""
    limits, proxy = request.limits, request.proxy
    loop = asyncio.get_running_loop()
    end = loop.time() + limits.total.total_seconds()
    silence = limits.read.total_seconds()
    patience = silence if standing else limits.connect.total_seconds() + silence
    try:
        async with asyncio.timeout_at(min(end, loop.time() + patience)) as deadline:
            with _watched(request.gate, client, clients):
                answer = await client.driver.request(
                    prepared.method, target.url, headers=prepared.headers, orig_headers=prepared.order, **prepared.body
                )
            client.speaks_http2 = client.speaks_http2 or answer.version == library().Version.HTTP_2
            our_end = str(answer.local_addr or "")
            client.met(our_end, False)
            if request.gate is not None:
                request.gate.left(clients.sent_times.seconds_since(our_end) or 0.0)
            status = answer.status.as_int()
            if status == 407 and proxy is not None and proxy.scheme != "socks5" and target.origin[0] == "http":
                await clients.knock(proxy, limits)  # raises, unless the site itself sent the 407
            pairs = _pairs(answer.headers, limits.max_header)
            if client.relay is not None and (MARK.lower(), client.relay.mark) in pairs:
                raise _told_by_relay(client, target) or ConnectFailed(f"{masked_url(request.url)}: no connection.")
            names, note = layers_of(value for name, value in pairs if name == "content-encoding")
            decoder = BodyDecoder(names, limits.max_body, note)
            most = limits.max_body + (_WIRE_SLACK if names else 0)  # compressed, it may not be longer than decompressed
            size = 0
            # wreq yields every chunk separately, and a server may send millions of two bytes each.
            gathered = bytearray()
            async with answer.stream() as stream:
                heard = loop.time()
                deadline.reschedule(min(end, heard + silence))
                async for piece in stream:
                    if not isinstance(piece, memoryview):
                        continue  # trailers
                    size += len(piece)
                    gathered += piece
                    if len(gathered) >= _GATHERED:
                        wanted = decoder.feed(bytes(gathered))
                        gathered.clear()
                        if not wanted:
                            break
                    if size > most:
                        break
                    now = loop.time()
                    if now - heard > _SOON:
                        heard = now
                        deadline.reschedule(min(end, now + silence))
            if gathered:
                decoder.feed(bytes(gathered))
    except TimeoutError as error:
        raise _too_late(masked_url(request.url), limits, loop.time() >= end) from error
    body = decoder.finish()
    data = body.data[: limits.max_body]
    cut = body.cut or size > most
    if not cut:
        client.leaves_standing(target.origin)
    return Response(
        url=request.url,
        status=status,
        headers=Headers(pairs),
        body=data,
        cut=cut,
        wire_bytes=size,  # the compressed body without headers, frames and TLS; http.py counts the same
        seconds=time.perf_counter() - started,
        address=str(answer.remote_addr.ip()) if answer.remote_addr is not None else "",
        note=body.note,
    )


def _told_by_relay(client: IdentityClient, target: _Target) -> FetchFailed | FetchRefused | None:
    """The last failure between the relay and the target; None if the last tunnel was opened."""
    if client.relay is None:
        return None
    _, host, port = target.origin
    trouble = client.relay.trouble(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return trouble if isinstance(trouble, FetchFailed | FetchRefused) else None


@contextmanager
def _watched(gate: Gate | None, client: IdentityClient, clients: Clients) -> Iterator[None]:
    """While waiting for the response, check whether the request was sent: the next request need not wait for the
    head."""
    if gate is None:
        yield
        return
    loop, entered_at = asyncio.get_running_loop(), time.monotonic()
    next_look: asyncio.TimerHandle | None = None

    def look() -> None:
        nonlocal next_look
        ago = client.sent_since(entered_at, clients.sent_times)
        if ago is None:
            next_look = loop.call_later(_LOOK, look)
        else:
            gate.left(ago)

    next_look = loop.call_later(_LOOK, look)
    try:
        yield
    finally:
        next_look.cancel()


def _too_late(where: str, limits: Limits, at_the_end: bool) -> TimedOut:
    if at_the_end:
        return TimedOut(f"{where}: not finished within {limits.total.total_seconds():g} s ({limits.total_from}).")
    return TimedOut(f"{where}: silence for {limits.read.total_seconds():g} s (fetch.read_timeout).")


def _target(href: str) -> _Target:
    """Raises FetchRefused for a URL that wreq might parse differently."""
    found = None if _UNSAFE_URL.search(href) else _PLAIN_URL.match(href)
    if found is None:
        raise FetchRefused(f"{masked_url(href)!a} cannot be requested: it is not a plain http or https address.")
    scheme, login, host, port = found.groups()
    number = int(port) if port else (443 if scheme == "https" else 80)
    if not 0 < number < 65536:
        raise FetchRefused(f"{masked_url(href)!a} cannot be requested: there is no port {number}.")
    host = host.lower()
    if _NUMBER_AT_THE_END.search(host) and not is_literal(host):
        raise FetchRefused(f"{masked_url(href)!a} cannot be requested: {host!a} is an odd spelling of an address.")
    place = host if port is None else f"{host}:{number}"
    path, mark, query = href[found.end() :].partition("#")[0].partition("?")
    url = f"{scheme}://{place}{path.translate(_IN_PATHS)}{mark}{query.translate(_IN_QUERIES)}"
    return _Target(url, (scheme, host.strip("[]"), number), login)


def _prepared(request: TransportRequest, target: _Target, profile: Profile | None) -> _Prepared:
    """Raises FetchRefused for a request that wreq cannot send."""
    wreq = library()
    method = getattr(wreq.Method, request.method.upper(), None)
    if method is None:
        raise FetchRefused(f"{masked_url(request.url)} cannot be requested with {request.method[:20]!a}.")
    headers = wreq.HeaderMap()
    names = []
    for name, value in request.headers:
        # wreq would silently leave out a header that it cannot send.
        if not (_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value)):
            raise FetchRefused(f"{masked_url(request.url)} cannot be requested: the header {name!a} is not valid.")
        if profile is None or name.lower() not in OWN_HEADERS or name.lower() in request.chosen:
            headers.append(name, value)
            names.append(name)
    if target.login is not None and "authorization" not in headers:
        headers.append("Authorization", _basic(target.login))
        names.append("Authorization")
    body = {"body": request.body} if request.body is not None else {}
    if profile is None:
        return _Prepared(method, headers, ["Host", *names], body)
    known = {name.lower() for name in profile.order}
    return _Prepared(method, headers, [*profile.order, *(name for name in names if name.lower() not in known)], body)


def _basic(login: str) -> str:
    name, _, password = login.partition(":")
    return "Basic " + b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode("ascii")


def _pairs(headers: Any, limit: int) -> tuple[tuple[str, str], ...]:  # wreq.HeaderMap
    pairs = storable(
        (bytes(name).decode("ascii"), bytes(value).decode("utf-8", "surrogateescape")) for name, value in headers
    )
    if len(pairs) > MAX_HEADERS or sum(len(name) + len(value) for name, value in pairs) > limit:
        raise BadResponse(
            f"There are more than {MAX_HEADERS} response headers, or more than {limit} bytes (fetch.max_header)."
        )
    return pairs


__all__ = ["WreqTransport", "translated"]
