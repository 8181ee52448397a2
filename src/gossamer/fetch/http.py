"""The HTTP transport, on aiohttp: one exchange, within limits, every error in our words.

What it does: dials checked addresses, keeps connections alive, streams the body up to its cap, decodes it.
How it fails: FetchFailed (try later) or FetchRefused (do not); `translated` is the whole list.
How it recovers: a connection that misbehaved is closed and never reused; the next exchange dials anew.
Not its job: redirects, cookies, robots.txt, and how many connections a site may see - the frontier grants those.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from itertools import chain
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from aiohttp.http_exceptions import ContentLengthError, HttpProcessingError, LineTooLong, TransferEncodingError
from yarl import URL

from ..errors import (
    BadResponse,
    ConnectFailed,
    ConnectionDropped,
    DnsFailed,
    FetchFailed,
    FetchRefused,
    GossamerError,
    TimedOut,
    TlsFailed,
)
from ..model.page import Headers
from .addresses import AddressGuard, GuardedResolver
from .body import BodyDecoder, layers_of
from .contract import Exchange, Limits, Response

_MAX_HEADERS = 128
_WIRE_SLACK = 64 * 1024  # headers and checksums of a packed body that is just as long as the limit
_UNSAFE_URL = re.compile(r"[^\x21-\x7e]")
# The name that the current task is on its way to, for the check on the socket.
_heading_for: ContextVar[str] = ContextVar("gossamer_heading_for", default="")
# Whom to tell that the request of the current task has left.
_on_sent: ContextVar[Callable[[], None] | None] = ContextVar("gossamer_on_sent", default=None)


class _PeerResponse(aiohttp.ClientResponse):
    """Remembers who answered: the connection is back in the pool before the caller could ask."""

    peer = ""
    wire: Any = None  # the connection's protocol; no public class for it

    def start(self, connection: Any) -> Coroutine[Any, Any, aiohttp.ClientResponse]:  # no public class for it
        self.wire = connection.protocol
        sent = _on_sent.get()
        if sent is not None:
            sent()
        transport = connection.transport
        if transport is not None:
            name = transport.get_extra_info("peername")
            if name:
                self.peer = name[0]
        return super().start(connection)


class AiohttpTransport:
    """A pool of connections; alive while entered with `async with`."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        keep_alive: timedelta = timedelta(seconds=10),
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._guard = guard
        self._keep_alive = keep_alive
        self._ssl = ssl_context
        self._resolver: GuardedResolver | None = None
        self._session: aiohttp.ClientSession | None = None
        self._watched: WeakSet[asyncio.Future[None]] = WeakSet()  # ends of connections that somebody looks at
        # A crawl uses one or two sets of limits, as the same objects: their aiohttp forms are made once.
        self._timeouts: dict[int, tuple[Limits, aiohttp.ClientTimeout]] = {}

    async def __aenter__(self) -> Self:
        self._resolver = GuardedResolver(self._guard)
        connector = aiohttp.TCPConnector(
            resolver=self._resolver,
            use_dns_cache=False,
            socket_factory=self._checked_socket,
            keepalive_timeout=self._keep_alive.total_seconds(),
            limit=0,
            ssl=self._ssl or True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=_PeerResponse,
            auto_decompress=False,
            trust_env=False,  # a proxy or a password from the environment would be a surprise
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def fetch(self, exchange: Exchange) -> Response:
        """Make the exchange. Raises FetchFailed or FetchRefused."""
        session = self._session
        if session is None:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        href, limits = exchange.url, exchange.limits
        if _UNSAFE_URL.search(href):
            raise FetchRefused(f"{href[:200]!a} holds characters that no request may carry.")
        started = time.perf_counter()
        answer: aiohttp.ClientResponse | None = None
        try:
            url = URL(href, encoded=True)
            _heading_for.set(url.raw_host or "")
            _on_sent.set(exchange.on_sent)
            answer = await session.request(
                exchange.method,
                url,
                headers=exchange.headers,
                allow_redirects=False,
                timeout=self._timeout(limits),
                max_line_size=limits.max_header,
                max_field_size=limits.max_header,
                max_headers=_MAX_HEADERS,
            )
            pairs = _header_pairs(answer, limits.max_header)
            if hdrs.TRANSFER_ENCODING in answer.headers and not answer.content.is_eof():
                with self._told_of_bad_chunks(answer):
                    body, cut, wire, note = await _read(answer, limits.max_body)
            else:
                body, cut, wire, note = await _read(answer, limits.max_body)
        except BaseException as error:
            if answer is not None:
                answer.close()
            if isinstance(error, GossamerError) or not isinstance(error, Exception):
                raise
            raise translated(error, href, limits) from error
        return Response(
            url=href,
            status=answer.status,
            headers=Headers(pairs),
            body=body,
            cut=cut,
            wire_bytes=wire,
            seconds=time.perf_counter() - started,
            address=answer.peer if isinstance(answer, _PeerResponse) else "",
            note=note,
        )

    def _checked_socket(self, info: tuple[Any, ...]) -> socket.socket:  # aiohttp's AddrInfoType, not public
        """The last check before dialling: nothing reaches an address but through here."""
        family, kind, protocol, _, address = info
        self._guard.check(_heading_for.get(), str(address[0]))
        return socket.socket(family=family, type=kind, proto=protocol)

    @contextmanager
    def _told_of_bad_chunks(self, answer: aiohttp.ClientResponse) -> Iterator[None]:
        """aiohttp closes the connection at a malformed chunk and leaves the reader waiting; this wakes it."""
        closed = answer.wire.closed if isinstance(answer, _PeerResponse) else None
        if closed is None:
            yield
            return
        if closed not in self._watched:
            self._watched.add(closed)
            closed.add_done_callback(_note_the_end)
        content = answer.content

        def wake(_: object) -> None:
            if not content.is_eof() and content.exception() is None:
                error = aiohttp.ClientPayloadError("malformed chunk")
                error.__cause__ = TransferEncodingError("malformed chunk")
                content.set_exception(error)

        closed.add_done_callback(wake)
        try:
            yield
        finally:
            closed.remove_done_callback(wake)

    def _timeout(self, limits: Limits) -> aiohttp.ClientTimeout:
        made = self._timeouts.get(id(limits))
        if made is None:
            if len(self._timeouts) >= 256:
                self._timeouts.clear()
            timeout = aiohttp.ClientTimeout(
                total=limits.total.total_seconds(),
                connect=limits.connect.total_seconds(),
                sock_read=limits.read.total_seconds(),
            )
            made = self._timeouts[id(limits)] = (limits, timeout)  # holding the limits keeps their id theirs
        return made[1]


def _note_the_end(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()  # looked at, or asyncio would complain in the log


def _header_pairs(answer: aiohttp.ClientResponse, limit: int) -> tuple[tuple[str, str], ...]:
    # Names come as a subclass of str that serialisers do not take.
    pairs = tuple((str(name), value) for name, value in answer.headers.items())
    text = "".join(chain.from_iterable(pairs))
    if len(text) > limit:
        raise BadResponse(f"The response headers are longer than the limit of {limit} bytes (fetch.max_header).")
    if text.isascii():
        return pairs
    # aiohttp leaves lone surrogates for bytes that are no UTF-8; no store would take them.
    return tuple((_clean(name), _clean(value)) for name, value in pairs)


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


async def _read(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool, int, str]:
    """The body, whether it was cut, the bytes read from the wire, and what was odd."""
    if hdrs.CONTENT_ENCODING in answer.headers:
        names, note = layers_of(answer.headers.getall(hdrs.CONTENT_ENCODING))
        if names:
            return await _read_packed(answer, BodyDecoder(names, limit, note), limit)
    else:
        note = ""
    read = answer.content.readany
    chunks: list[bytes] = []
    size = 0
    while chunk := await read():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            answer.close()  # the rest is not wanted, so the connection cannot be used again
            return b"".join(chunks)[:limit], True, size, note
    return (chunks[0] if len(chunks) == 1 else b"".join(chunks)), False, size, note


async def _read_packed(
    answer: aiohttp.ClientResponse, decoder: BodyDecoder, limit: int
) -> tuple[bytes, bool, int, str]:
    read = answer.content.readany
    size = 0
    endless = False
    while chunk := await read():
        size += len(chunk)
        endless = size > limit + _WIRE_SLACK  # packed, it may be no longer than unpacked
        if not decoder.feed(chunk) or endless:
            answer.close()
            break
    body = decoder.finish()
    return body.data, body.cut or endless, size, body.note


def translated(error: Exception, href: str, limits: Limits) -> FetchFailed | FetchRefused:
    """Our word for what aiohttp, the socket or TLS raised. The order matters: the special before the general."""
    where = href[:200]
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    match error:
        case TimeoutError() if isinstance(error, aiohttp.ConnectionTimeoutError):
            return TimedOut(f"{where}: no connection within {limits.connect.total_seconds():g} s.")
        case TimeoutError() if isinstance(error, aiohttp.SocketTimeoutError):
            return TimedOut(f"{where}: silence for {limits.read.total_seconds():g} s (fetch.read_timeout).")
        case TimeoutError():
            return TimedOut(f"{where}: not finished within {limits.total.total_seconds():g} s (fetch.total_timeout).")
        case aiohttp.ClientSSLError() | ssl.SSLError() | ssl.CertificateError() | aiohttp.ServerFingerprintMismatch():
            return TlsFailed(f"{where}: no safe connection ({_inner_words(error)}). Check the site's certificate.")
        case aiohttp.ClientConnectorDNSError() | socket.gaierror():
            return DnsFailed(f"{where}: the name does not resolve ({said}).")
        case aiohttp.ClientConnectorError():
            return _no_connection(where, error.os_error)
        case aiohttp.ClientPayloadError():
            return _broken_payload(where, error, said)
        case aiohttp.ClientConnectionError():
            return ConnectionDropped(f"{where}: the server closed the connection ({said}).")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError():
            return FetchRefused(f"{where} cannot be requested ({said}).")
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return _bad_head(where, error, limits)
        case aiohttp.ClientError():
            return BadResponse(f"{where}: the exchange broke off ({said}).")
        case ConnectionError():
            return ConnectionDropped(f"{where}: the connection broke ({said}).")
        case OSError():
            return _no_connection(where, error)
        case ValueError() | TypeError():
            # A header or an address that aiohttp refuses to write: nothing was sent.
            return FetchRefused(f"{where} cannot be requested ({said}).")
        case _:
            return ConnectionDropped(f"{where}: the exchange failed ({said}).")


def _no_connection(where: str, error: OSError) -> FetchFailed:
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return ConnectFailed(f"{where}: too many open files. Raise `ulimit -n`, or lower crawl.concurrency.")
    said = os.strerror(error.errno) if error.errno else str(error)  # asyncio's own words are about its calls
    return ConnectFailed(f"{where}: no connection ({said}). Is the server running, and the port right?")


def _bad_head(where: str, error: aiohttp.ClientResponseError | HttpProcessingError, limits: Limits) -> BadResponse:
    if any(isinstance(one, LineTooLong) for one in _causes(error)):
        return BadResponse(f"{where}: a response header is longer than {limits.max_header} bytes (fetch.max_header).")
    return BadResponse(f"{where}: what came back is not HTTP ({' '.join(str(error.message).split())[:200]}).")


def _broken_payload(where: str, error: Exception, said: str) -> FetchFailed | FetchRefused:
    for one in _causes(error):
        if isinstance(one, ContentLengthError | OSError):
            break
        if isinstance(one, HttpProcessingError) and "Not enough data" not in str(one):
            return BadResponse(f"{where}: the body is not valid HTTP ({said}).")
    return ConnectionDropped(f"{where}: the connection ended before the body did ({said}).")


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _inner_words(error: Exception) -> str:
    inner = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return " ".join(str(inner).split())[:200]


__all__ = ["AiohttpTransport", "translated"]
