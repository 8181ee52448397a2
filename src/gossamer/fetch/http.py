"""The HTTP transport, on aiohttp: one request, within limits, every error translated into ours.

What it does: dials checked addresses, keeps connections alive, streams the body up to its limit, decodes it. With an
proxy it dials only the proxy, and keeps the connections of each identity apart.
How it fails: FetchFailed (try later) or FetchRefused (do not); `translated` is the whole list. Through a proxy, a
failure that may be the proxy's is ProxyFailed (`translated_on_proxy`).
How it recovers: a connection that misbehaved is closed and never reused; the next request opens a new one. Nothing is
sent twice: if the server closed a kept-alive connection before it answered, the error is StaleConnection. A request
that must not be repeated gets a new connection, where this cannot happen.
Not its job: redirects, cookies, robots.txt, and the number of connections per site, which the frontier limits.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import BytesIO
from itertools import chain
from typing import Any, Self
from weakref import WeakSet

import aiohttp
from aiohttp import hdrs
from aiohttp.http_exceptions import TransferEncodingError
from yarl import URL

from ..errors import BadResponse, FetchFailed, FetchRefused, GossamerError
from ..model.page import Headers
from ..model.payload import SAFE_METHODS
from ..model.route import Proxy
from .addresses import AddressGuard, GuardedResolver
from .body import BodyDecoder, layers_of, unpacked
from .contract import BodyReceiver, Limits, Response, TransportRequest, storable
from .http_connector import Connector, GatedRequest, Leaving, PeerResponse, SentOnce, leaving
from .http_errors import is_stale, stale, translated, translated_on_proxy
from .http_get import MAX_HEADERS, METHODS, Answer, Getter
from .proxies import addresses_of, authorization, check_target, guard_for, masked_url, unnamed
from .proxy_check import knock

_WIRE_SLACK = 64 * 1024  # allowance for headers and checksums of a compressed body that exactly fills the limit
_SHORT_BODY = 128 * 1024  # bytes; a compressed body below this is read completely before it is decompressed
_BIG_BODY = 1024 * 1024  # bytes; a request body from this size on is written in pieces
_UNSAFE_URL = re.compile(r"[^\x21-\x7e]")


class AiohttpTransport:
    """A connection pool; open while entered with `async with`."""

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
        self._getter: Getter | None = None
        self._watched: WeakSet[asyncio.Future[None]] = WeakSet()  # `closed` futures that have `_note_the_end`
        # A crawl uses one or two Limits objects: their aiohttp timeouts are built once.
        self._timeouts: dict[int, tuple[Limits, aiohttp.ClientTimeout]] = {}

    async def __aenter__(self) -> Self:
        self._resolver = GuardedResolver(self._guard)
        connector = Connector(
            self._resolver,
            self._guard,
            use_dns_cache=False,
            keepalive_timeout=self._keep_alive.total_seconds(),
            limit=0,
            ssl=self._ssl or True,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            request_class=GatedRequest,
            response_class=PeerResponse,
            auto_decompress=False,
            trust_env=False,  # ignore proxies and passwords from the environment
        )
        self._getter = Getter(connector)
        return self

    async def __aexit__(self, *exc: object) -> None:
        session, resolver = self._session, self._resolver
        self._session = self._resolver = self._getter = None
        if session is not None:
            await session.close()
        if resolver is not None:
            await resolver.close()

    async def fetch(self, request: TransportRequest) -> Response:
        """Make the request. Raises FetchFailed or FetchRefused; ProxyFailed when the proxy may have been the cause."""
        proxy = request.proxy
        if self._getter is None:
            raise RuntimeError("The transport is not open; use it inside `async with`.")
        href, limits = request.url, request.limits
        if _UNSAFE_URL.search(href):
            raise FetchRefused(f"{masked_url(href)!a} holds characters that no request may carry.")
        self._guard.check_port(href)
        started = time.perf_counter()
        answer: PeerResponse | Answer | None = None
        way: Leaving | None = None
        try:
            plain = proxy is None and request.method in METHODS and request.body is None
            split = self._getter.split(href) if plain else None
            url = URL(href, encoded=True) if split is None else split[0].url
            async with asyncio.timeout(None) as deadline:
                within = limits.total.total_seconds()
                guard = self._guard if proxy is None else guard_for(proxy, self._guard)
                host = proxy.host if proxy is not None else url.raw_host or ""
                way = Leaving(host, guard, proxy, request.gate, deadline, within)
                way.anew = request.method not in SAFE_METHODS
                leaving.set(way)
                if split is not None:
                    timeout = self._timeout(limits)
                    answer = await self._getter.ask(
                        request.method, *split, request.headers, way, timeout, limits.max_header
                    )
                else:
                    answer = await self._by_client(request, url, way)
                if answer.status == 407 and proxy is not None and not way.target and url.scheme == "http":
                    await self._knock(proxy, limits)  # raises, unless the site itself sent the 407
                pairs = _header_pairs(answer, limits.max_header)
                headers = Headers(pairs)
                taken = request.into is not None and request.into.takes(answer.status, headers)
                into = request.into if taken else None
                if hdrs.TRANSFER_ENCODING in answer.headers and not answer.content.is_eof():
                    with self._told_of_bad_chunks(answer):
                        body, cut, wire, note, packed = await _read(answer, limits.max_body, into)
                else:
                    body, cut, wire, note, packed = await _read(answer, limits.max_body, into)
        except BaseException as error:
            if answer is not None:
                answer.close()
            if isinstance(error, GossamerError) or not isinstance(error, Exception):
                raise
            if answer is None and way is not None and not way.made_anew and is_stale(error, request.method):
                lost: FetchFailed | FetchRefused = stale(href)
            else:
                lost = (
                    translated(error, href, limits)
                    if proxy is None
                    else translated_on_proxy(error, href, limits, proxy)
                )
            if proxy is None:
                raise lost from error
        else:
            if isinstance(answer, Answer):
                answer.close()  # if the connection is not back in the pool by now, it cannot be reused
            return Response(
                url=href,
                status=answer.status,
                headers=headers,
                body=body,
                cut=cut,
                wire_bytes=wire,
                seconds=time.perf_counter() - started - way.waited,
                address=answer.peer,
                note=note,
                taken=taken,
                packed=packed,
            )
        # Raised outside the handler, so without a cause: aiohttp's errors print the headers sent to the proxy.
        raise lost

    async def _by_client(self, request: TransportRequest, url: URL, way: Leaving) -> PeerResponse:
        """Send a request that is not a plain page request through aiohttp's own client."""
        assert self._session is not None
        options: dict[str, Any] = {  # for session.request
            "headers": request.headers,
            "allow_redirects": False,
            "timeout": self._timeout(request.limits),
            "max_line_size": request.limits.max_header,
            "max_field_size": request.limits.max_header,
            "max_headers": MAX_HEADERS,
            "skip_auto_headers": (hdrs.CONTENT_TYPE,),  # do not guess a Content-Type
        }
        if request.body is not None:
            options["data"] = request.body if len(request.body) < _BIG_BODY else BytesIO(request.body)
        if request.proxy is not None:
            way.target = await self._prepare(request.proxy, url, request.limits, options)
        answer = await self._session.request(request.method, url, middlewares=(SentOnce(),), **options)
        assert isinstance(answer, PeerResponse)
        return answer

    async def _knock(self, proxy: Proxy, limits: Limits) -> None:
        assert self._resolver is not None
        await knock(proxy, self._guard, self._resolver, limits.connect, self._ssl)

    async def _prepare(self, proxy: Proxy, url: URL, limits: Limits, options: dict[str, Any]) -> str:
        """Check both addresses, and add the proxy options for aiohttp. Return the target that our Connector must ask
        the proxy for: always for SOCKS5, which aiohttp does not support, and for other proxies if they must be given an
        address; else ""."""
        assert self._resolver is not None
        if url.scheme not in ("http", "https") or not url.raw_host:
            raise FetchRefused(f"{masked_url(str(url))!a} cannot be requested.")
        target = await check_target(proxy, url.raw_host, self._guard, self._resolver, limits.connect)
        await addresses_of(proxy, self._guard, self._resolver, limits.connect)
        if proxy.scheme == "socks5":
            return target
        if target != url.raw_host:
            if proxy.scheme == "https":
                raise unnamed(proxy, url.raw_host)
            return target
        options["proxy"] = URL(proxy.address, encoded=True)
        words = authorization(proxy)
        if words is None:
            return ""
        if url.scheme == "http":  # a plain request goes to the proxy itself, which removes this header
            options["headers"] = (*options["headers"], (hdrs.PROXY_AUTHORIZATION, words))
        else:
            options["proxy_headers"] = {hdrs.PROXY_AUTHORIZATION: words}
        return ""

    @contextmanager
    def _told_of_bad_chunks(self, answer: PeerResponse | Answer) -> Iterator[None]:
        """aiohttp closes the connection at a malformed chunk but leaves the reader waiting; this wakes the reader."""
        closed = answer.wire.closed
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
                total=None,  # `fetch` counts it, from when the request may be written
                connect=limits.connect.total_seconds(),
                sock_read=limits.read.total_seconds(),
            )
            made = self._timeouts[id(limits)] = (limits, timeout)  # keeping the limits alive keeps their id unique
        return made[1]


def _note_the_end(closed: asyncio.Future[None]) -> None:
    if not closed.cancelled():
        closed.exception()  # retrieved, or asyncio would log a complaint


def _header_pairs(answer: PeerResponse | Answer, limit: int) -> tuple[tuple[str, str], ...]:
    # aiohttp's names are a subclass of str that serialisers reject.
    pairs = tuple([(str(name), value) for name, value in answer.headers.items()])
    text = "".join(chain.from_iterable(pairs))
    if len(text) > limit:
        raise BadResponse(f"The response headers are longer than the limit of {limit} bytes (fetch.max_header).")
    if text.isascii():
        return pairs
    return storable(pairs)


async def _read(
    answer: PeerResponse | Answer, limit: int, into: BodyReceiver | None = None
) -> tuple[bytes, bool, int, str, bytes]:
    """Return the body (empty if a receiver takes it), whether it was cut, the bytes read from the wire, a note on
    anything odd, and the body as gzip if it was sent that way."""
    if into is not None:
        return *await _stream(answer, into), b""
    if hdrs.CONTENT_ENCODING in answer.headers:
        names, note = layers_of(answer.headers.getall(hdrs.CONTENT_ENCODING))
        if names:
            return await _read_packed(answer, names, limit, note)
    else:
        note = ""
    read = answer.content.readany
    chunks: list[bytes] = []
    size = 0
    while chunk := await read():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            answer.close()  # the rest stays unread, so the connection cannot be reused
            return b"".join(chunks)[:limit], True, size, note, b""
    return (chunks[0] if len(chunks) == 1 else b"".join(chunks)), False, size, note, b""


async def _stream(answer: PeerResponse | Answer, into: BodyReceiver) -> tuple[bytes, bool, int, str]:
    """Pass the body to the receiver piece by piece; the receiver sets the limit. A gzip file that its server also
    labels gzip-encoded is left as it is: that is how archives are served."""
    names, note = layers_of(answer.headers.getall(hdrs.CONTENT_ENCODING, ()))
    if names == ("gzip",) and "gzip" in answer.headers.get(hdrs.CONTENT_TYPE, "").lower():
        names = ()
    decoder = BodyDecoder(names, sys.maxsize, note) if names else None
    read = answer.content.readany
    size = 0
    while chunk := await read():
        size += len(chunk)
        if decoder is None:
            await into.write(chunk)
            continue
        for piece in decoder.pieces(chunk):
            await into.write(piece)
        if decoder.ended:
            answer.close()
            break
    if decoder is None:
        return b"", False, size, note
    rest = decoder.finish()
    await into.write(rest.data)
    return b"", rest.cut, size, rest.note


async def _read_packed(
    answer: PeerResponse | Answer, names: tuple[str, ...], limit: int, note: str
) -> tuple[bytes, bool, int, str, bytes]:
    read = answer.content.readany
    keeps = names == ("gzip",)
    chunks: list[bytes] = []
    size = 0
    while size < _SHORT_BODY and (chunk := await read()):
        chunks.append(chunk)
        size += len(chunk)
        if answer.content.at_eof():
            break  # saves one more read
    start = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    if keeps and size < _SHORT_BODY and (body := unpacked(start, limit)) is not None:
        return body, False, size, note, start if size < len(body) else b""  # most pages
    decoder = BodyDecoder(names, limit, note)
    chunk, chunks, size, endless = start, [], 0, False
    while chunk:
        size += len(chunk)
        if keeps:
            chunks.append(chunk)
        endless = size > limit + _WIRE_SLACK  # compressed, it may not be longer than decompressed
        if not decoder.feed(chunk) or endless:
            answer.close()
            break
        chunk = await read()
    decoded = decoder.finish()
    whole = keeps and not (decoded.cut or endless or decoded.note) and size < len(decoded.data)
    return decoded.data, decoded.cut or endless, size, decoded.note, b"".join(chunks) if whole else b""


__all__ = ["AiohttpTransport", "translated", "translated_on_proxy"]
