"""The connections of the HTTP transport: dialled at checked addresses only, kept apart by proxy, SOCKS5 included.

A context variable carries the way that the current task takes: aiohttp has no other place for it. A connection is made
by the task that asked for it, and never handed to a waiting task of another proxy.
"""

from __future__ import annotations

import asyncio
import functools
import re
import socket
import time
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import aiohttp
from aiohttp import hdrs
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong
from aiohttp.streams import EMPTY_PAYLOAD

from ..errors import BadResponse
from ..model.route import Proxy
from .addresses import AddressGuard, GuardedResolver
from .contract import Gate
from .proxies import addresses_of
from .socks import line_through


class Leaving:
    """How the current task connects: the host it dials, the guard that checks the address, the proxy, the gate.

    `target` is what to ask the proxy for, if aiohttp does not do it: a name, or the checked address. `deadline` starts
    when the request may be written, and ends `within` seconds later. `anew` demands a connection that was never used;
    `made_anew` is set if no idle one could be reused; `waited` are the seconds spent at the gate.
    """

    __slots__ = ("anew", "deadline", "gate", "guard", "host", "made_anew", "proxy", "target", "waited", "within")

    def __init__(
        self,
        host: str,
        guard: AddressGuard,
        proxy: Proxy | None,
        gate: Gate | None,
        deadline: asyncio.Timeout,
        within: float,
    ) -> None:
        self.host = host
        self.guard = guard
        self.proxy = proxy
        self.gate = gate
        self.deadline = deadline
        self.within = within
        self.target = ""
        self.anew = False
        self.made_anew = False
        self.waited = 0.0


class SentOnce:
    """A client middleware for one request. aiohttp repeats a request whose connection broke, at once and regardless of
    the site's pace; with this it raises the first error instead, and the caller decides."""

    __slots__ = ("_failed",)

    def __init__(self) -> None:
        self._failed: aiohttp.ClientError | None = None

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if self._failed is not None:
            raise self._failed
        try:
            return await handler(request)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            self._failed = error
            raise


_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # a header name
_LONGEST_KEPT = 256 * 1024  # bytes of a head that are kept, to be parsed again
MOMENT = 0.001  # seconds; after a shorter wait at the gate the connection need not be checked again
MAX_INTERIM = 16  # honest servers send 100 or 103 once or twice

leaving: ContextVar[Leaving] = ContextVar("gossamer_leaving")
_plain_key: Callable[[aiohttp.ClientRequest], ConnectionKey] = aiohttp.ClientRequest.connection_key.fget  # type: ignore[attr-defined]


def _peer(transport: asyncio.BaseTransport | None) -> str:
    """The remote address, if known."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if name else ""


class PeerResponse(aiohttp.ClientResponse):
    """Remembers the remote address: the connection is back in the pool before the caller can ask for it."""

    peer = ""
    wire: Any = None  # the connection's protocol; aiohttp has no public class for it

    def start(self, connection: Any) -> Coroutine[Any, Any, aiohttp.ClientResponse]:  # Any: no public class
        self.wire = connection.protocol
        gate = leaving.get().gate
        if gate is not None:
            # uvloop passes written data to the kernel at the end of the current loop iteration.
            self._loop.call_soon(gate.left)
        self.peer = _peer_of(connection)
        return super().start(connection)


class AnswerParser:
    """Wraps aiohttp's parser, which rejects heads that browsers accept, and extra bytes after a body in the same
    packet.

    Browsers skip lines that are not headers, accept a length that is repeated, prefer chunked encoding to a length, and
    read no further than the length says. A connection is closed after a response that needed this: nobody knows what
    else the server would send on it.
    """

    __slots__ = ("_anew", "_fault", "_head", "_last", "_left", "_parser")

    def __init__(self, parser: Any, anew: Callable[[], Any], last: Callable[[], None]) -> None:  # Any: no public class
        self._parser = parser
        self._anew = anew  # makes another aiohttp parser
        self._last = last  # marks the connection to be closed after this response
        self._head: bytes | None = b""  # the head so far; None once it was parsed
        self._fault: BadHttpMessage | None = None  # why the parser rejected a head that is still incomplete
        self._left: int | None = None  # bytes of the body still to come, if its length is known

    def feed_data(self, data: bytes) -> tuple[Any, bool, bytes]:
        if self._head is not None:
            return self._feed_head(data)
        if self._left is not None:
            if len(data) > self._left:
                data = data[: self._left]
                self._last()
            self._left -= len(data)
        read: tuple[Any, bool, bytes] = self._parser.feed_data(data)
        return read

    def _feed_head(self, data: bytes) -> tuple[Any, bool, bytes]:
        assert self._head is not None
        came = self._head = self._head + data
        try:
            if self._fault is not None:
                raise self._fault
            read: tuple[Any, bool, bytes] = self._parser.feed_data(data)
        except LineTooLong:
            raise
        except BadHttpMessage as error:
            if not came.startswith(b"HTTP/") or len(came) > _LONGEST_KEPT:
                raise
            if b"\r\n\r\n" not in came:
                self._fault = error
                return (), False, b""  # the rest of the head is still to come
            mended = mended_answer(came)
            if mended is None:
                raise
            self._parser, self._fault = self._anew(), None
            read = self._parser.feed_data(mended)
            self._last()
        if read[0]:
            message, body = read[0][-1]
            length = message.headers.get(hdrs.CONTENT_LENGTH)
            if length is not None and not message.chunked and body is not EMPTY_PAYLOAD:
                self._left = int(length) - body.total_bytes
            self._head = None
        elif len(came) > _LONGEST_KEPT:
            self._head = None
        return read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)


def mended_answer(came: bytes) -> bytes | None:
    """Rewrite a response with a complete head the way browsers read it; None if the end of its body cannot be
    determined."""
    head, end, body = came.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    kept: list[bytes] = []
    lengths: set[bytes] = set()
    chunked = False
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.rstrip(b" \t")
        if line[:1] in (b" ", b"\t"):  # continues the previous header
            kept.append(line)
        elif colon and _TOKEN.fullmatch(name):
            if name.lower() == b"content-length":
                lengths.update(part.strip() for part in value.split(b","))
            else:
                chunked = chunked or (name.lower() == b"transfer-encoding" and value.strip().lower() == b"chunked")
                kept.append(name + b":" + value)
    if lengths and not chunked:
        length = lengths.pop()
        if lengths or not length.isdigit() or len(length) > 15:
            return None
        kept.append(b"Content-Length: " + length)
        body = body[: int(length)]
    return b"\r\n".join((status, *kept)) + end + body


class AnswerReader(ResponseHandler):
    """Reads responses from a connection, and gives up on a server that sends interim responses without end.

    aiohttp skips any number of interim responses (1xx), without yielding to other tasks.
    """

    _interim = 0
    peer = ""  # the remote address

    def set_response_params(self, **params: Any) -> None:  # Any: aiohttp's signature
        super().set_response_params(**params)
        plain = super().set_response_params

        def anew() -> Any:
            ours = self._parser
            plain(**params)
            fresh, self._parser = self._parser, ours
            return fresh

        self._parser = AnswerParser(self._parser, anew, self.force_close)  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = _peer(transport)

    async def read(self) -> Any:  # (head, body), whose classes are not public
        read = await super().read()
        status = read[0].code
        if 100 <= status < 200 and status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadResponse(f"The server sent more than {MAX_INTERIM} interim answers (1xx), and no final one.")
        else:
            self._interim = 0
        return read


class GatedRequest(aiohttp.ClientRequest):
    """Ties its connection to the proxy, credentials included: no other identity ever gets that connection."""

    @property
    def connection_key(self) -> ConnectionKey:
        key, proxy = _plain_key(self), leaving.get().proxy
        # The proxy itself, rather than a mere hash of the proxy's headers; it does not print its password.
        return key if proxy is None else key._replace(proxy_headers_hash=proxy)  # type: ignore[arg-type]


class _Resolver(AbstractResolver):
    """Asks the shared resolver, with the address guard of the current task."""

    def __init__(self, resolver: GuardedResolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port, family, guard=leaving.get().guard)

    async def close(self) -> None:
        """The transport closes the shared resolver."""


def _peer_of(connection: aiohttp.connector.Connection) -> str:
    protocol = connection.protocol
    return protocol.peer if isinstance(protocol, AnswerReader) else ""


def _is_good(connection: aiohttp.connector.Connection) -> bool:
    protocol = connection.protocol
    return protocol is not None and protocol.is_connected() and not protocol.should_close


class Connector(aiohttp.TCPConnector):
    """aiohttp's connector, plus tunnels that it cannot make: SOCKS5, and to an address that we choose."""

    def __init__(self, resolver: GuardedResolver, guard: AddressGuard, **options: Any) -> None:  # Any: aiohttp's own
        super().__init__(resolver=_Resolver(resolver), socket_factory=self._checked_socket, **options)
        self._factory = functools.partial(AnswerReader, loop=self._loop)  # type: ignore[assignment]  # partial is invariant
        self._names = resolver
        self._guard = guard

    def _checked_socket(self, info: tuple[Any, ...]) -> socket.socket:  # aiohttp's AddrInfoType, not public
        """The last check before dialling: every socket is made here."""
        family, kind, protocol, _, address = info
        way = leaving.get()
        way.guard.check(way.host, str(address[0]))
        return socket.socket(family=family, type=kind, proto=protocol)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """Return an open connection for a request that has passed its gate and is written at once."""
        way = leaving.get()
        while True:
            way.made_anew = False
            connection = await super().connect(req, traces, timeout)
            if way.anew and not way.made_anew:
                connection.close()
                continue
            if way.gate is None:
                break
            asked_at = time.perf_counter()
            try:
                await way.gate.enter(_peer_of(connection) if way.proxy is None else "")
            except BaseException:
                connection.release()
                raise
            # By the clock that the response is timed with: uvloop's own counts whole milliseconds.
            waited = time.perf_counter() - asked_at
            way.waited += waited
            if waited < MOMENT or _is_good(connection):
                break
            way.gate.withdraw()  # the server hung up while we waited
            connection.close()
        way.deadline.reschedule(self._loop.time() + way.within)
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        way = leaving.get()
        way.made_anew = True
        proxy = way.proxy
        if proxy is None or not way.target:
            return await super()._create_connection(req, traces, timeout)
        within = timedelta(seconds=timeout.connect or 0)
        addresses = await addresses_of(proxy, self._guard, self._names, within)
        host, port = req.url.raw_host, req.url.port
        assert host is not None
        assert port is not None
        line = await line_through(proxy, addresses, way.target, port, self._checked_socket)
        context = self._get_ssl_context(req)
        try:
            _, protocol = await self._wrap_existing_connection(
                self._factory,
                req=req,
                timeout=timeout,
                ssl=context,
                sock=line,
                server_hostname=host.rstrip(".") if context else None,
            )
        except BaseException:
            line.close()
            raise
        return protocol
