"""The connections of the HTTP transport: dialled at checked addresses only, kept apart by exit, SOCKS5 included.

Which way the current task takes travels in a context variable: aiohttp has no other place for it. A connection is
made by the task that asked for it, never handed to a waiting one of another exit.
"""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey

from ..errors import BadResponse
from ..model.route import Exit
from .addresses import AddressGuard, GuardedResolver
from .contract import Gate
from .exits import addresses_of
from .socks import line_through


class Leaving:
    """How the current task leaves: whom it dials, who judges that address, as whom, through which gate.

    `target` is what the exit is asked for where it is not left to aiohttp: a name, or the address that was checked.
    `deadline` begins when the request may be written, and ends `within` seconds later. `anew` wants a connection that
    never served; `made_anew` is set when there was none to take up again; `waited` are the seconds spent at the gate.
    """

    __slots__ = ("anew", "deadline", "exit", "gate", "guard", "host", "made_anew", "target", "waited", "within")

    def __init__(
        self,
        host: str,
        guard: AddressGuard,
        exit: Exit | None,
        gate: Gate | None,
        deadline: asyncio.Timeout,
        within: float,
    ) -> None:
        self.host = host
        self.guard = guard
        self.exit = exit
        self.gate = gate
        self.deadline = deadline
        self.within = within
        self.target = ""
        self.anew = False
        self.made_anew = False
        self.waited = 0.0


class SentOnce:
    """A client middleware for one request. aiohttp repeats a request whose connection broke off, at once and whatever
    the site's pace; with this it raises the first error instead, and the caller decides.
    """

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


MOMENT = 0.001  # seconds in which a connection that stood stands
MAX_INTERIM = 16  # 100 and 103, once or twice, are all that honest servers send

leaving: ContextVar[Leaving] = ContextVar("gossamer_leaving")
_plain_key: Callable[[aiohttp.ClientRequest], ConnectionKey] = aiohttp.ClientRequest.connection_key.fget  # type: ignore[attr-defined]


def _peer(transport: asyncio.BaseTransport | None) -> str:
    """The address at the other end, as far as it is known."""
    name = transport.get_extra_info("peername") if transport is not None else None
    return str(name[0]) if name else ""


class PeerResponse(aiohttp.ClientResponse):
    """Remembers who answered: the connection is back in the pool before the caller could ask."""

    peer = ""
    wire: Any = None  # the connection's protocol; no public class for it

    def start(self, connection: Any) -> Coroutine[Any, Any, aiohttp.ClientResponse]:  # no public class for it
        self.wire = connection.protocol
        gate = leaving.get().gate
        if gate is not None:
            # uvloop hands what is written to the kernel when all that is due just now has run.
            self._loop.call_soon(gate.left)
        self.peer = _peer_of(connection)
        return super().start(connection)


class AnswerReader(ResponseHandler):
    """Reads answers off a connection, and loses patience with a server that only ever announces one.

    aiohttp skips interim answers (1xx) without end, and without letting anybody else run.
    """

    _interim = 0
    peer = ""  # the address at the other end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.peer = _peer(transport)

    async def read(self) -> Any:  # (head, body), of classes that are not public
        read = await super().read()
        status = read[0].code
        if 100 <= status < 200 and status != 101:
            self._interim += 1
            if self._interim > MAX_INTERIM:
                raise BadResponse(f"The server sent more than {MAX_INTERIM} interim answers (1xx), and no final one.")
        else:
            self._interim = 0
        return read


class Request(aiohttp.ClientRequest):
    """Its connection belongs to the exit, credentials included: no other identity is ever given it."""

    @property
    def connection_key(self) -> ConnectionKey:
        key, exit = _plain_key(self), leaving.get().exit
        # The exit itself takes the place of a mere hash of what the proxy is told; it does not print its password.
        return key if exit is None else key._replace(proxy_headers_hash=exit)  # type: ignore[arg-type]


class _Resolver(AbstractResolver):
    """Asks the shared resolver, with the judge of the current task."""

    def __init__(self, resolver: GuardedResolver) -> None:
        self._resolver = resolver

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return await self._resolver.resolve(host, port, family, guard=leaving.get().guard)

    async def close(self) -> None:
        """The transport closes what is shared."""


def _peer_of(connection: aiohttp.connector.Connection) -> str:
    protocol = connection.protocol
    return protocol.peer if isinstance(protocol, AnswerReader) else ""


def _is_good(connection: aiohttp.connector.Connection) -> bool:
    protocol = connection.protocol
    return protocol is not None and protocol.is_connected() and not protocol.should_close


class Connector(aiohttp.TCPConnector):
    """aiohttp's own, and lines through proxies that it cannot make: SOCKS5, and to an address that we name."""

    def __init__(self, resolver: GuardedResolver, guard: AddressGuard, **options: Any) -> None:  # aiohttp's own
        super().__init__(resolver=_Resolver(resolver), socket_factory=self._checked_socket, **options)
        self._factory = functools.partial(AnswerReader, loop=self._loop)  # type: ignore[assignment]  # partial is invariant
        self._names = resolver
        self._guard = guard

    def _checked_socket(self, info: tuple[Any, ...]) -> socket.socket:  # aiohttp's AddrInfoType, not public
        """The last check before dialling: nothing reaches an address but through here."""
        family, kind, protocol, _, address = info
        way = leaving.get()
        way.guard.check(way.host, str(address[0]))
        return socket.socket(family=family, type=kind, proto=protocol)

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        """A connection that stands, for a request that is written at once: it is through its gate."""
        way, clock = leaving.get(), self._loop.time
        while True:
            way.made_anew = False
            connection = await super().connect(req, traces, timeout)
            if way.anew and not way.made_anew:
                connection.close()
                continue
            now = asked_at = clock()
            if way.gate is None:
                break
            try:
                await way.gate.enter(_peer_of(connection) if way.exit is None else "")
            except BaseException:
                connection.release()
                raise
            now = clock()
            way.waited += now - asked_at
            if now - asked_at < MOMENT or _is_good(connection):
                break
            way.gate.withdraw()  # the server hung up while we waited
            connection.close()
        way.deadline.reschedule(now + way.within)
        return connection

    async def _create_connection(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> ResponseHandler:
        way = leaving.get()
        way.made_anew = True
        exit = way.exit
        if exit is None or not way.target:
            return await super()._create_connection(req, traces, timeout)
        within = timedelta(seconds=timeout.connect or 0)
        addresses = await addresses_of(exit, self._guard, self._names, within)
        host, port = req.url.raw_host, req.url.port
        assert host is not None
        assert port is not None
        line = await line_through(exit, addresses, way.target, port, self._checked_socket)
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
