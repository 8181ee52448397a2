"""The small server that a vendor calls when a batch is ready.

It takes a POST to `.../NAME.SECRET`, where both were made for one batch and told to the vendor alone, and hands the
body on. Everything else is turned away: no such batch 404 (before a byte of the body is read), another verb 405, too
long 413, too slow 408, no sense 400. Nothing that was sent is echoed, and no address is logged.

The port may be open to the world, so nobody can fill it: the number of connections is limited, more are closed at
once. Each carries one request, whose head and body must be there within a time of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

from .vendor import Vendor

CONNECTIONS = 100
HEAD_WITHIN = timedelta(seconds=10)
BODY_WITHIN = timedelta(seconds=30)

# The batch's name, its secret, and the body; None for the body asks about the address alone.
Receive = Callable[[str, str, bytes | None], Awaitable[bool]]


class CallbackReceiver:
    """Listens while entered with `async with`. Raises OSError when the port is taken."""

    def __init__(
        self,
        vendor: Vendor,
        receive: Receive,
        *,
        connections: int = CONNECTIONS,
        head_within: timedelta = HEAD_WITHIN,
        body_within: timedelta = BODY_WITHIN,
    ) -> None:
        if vendor.listen is None:
            raise ValueError("the vendor has no callback_listen")
        self._listen = vendor.listen
        self._receive = receive
        self._connections = connections
        self._head_within = head_within.total_seconds()
        self._body_within = body_within.total_seconds()
        self._heads: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}  # connections without a request so far
        self._arriving = 0  # connections that the server is not told of yet
        self._listener: asyncio.Server | None = None
        app = web.Application(client_max_size=vendor.table.max_answer.bytes, middlewares=[self._only_one])
        app.router.add_post("/{path:.*}", self._take)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            self._listener = await asyncio.get_running_loop().create_server(self._meet, *self._listen)
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        for timer in self._heads.values():
            timer.cancel()
        self._heads.clear()
        await self._runner.cleanup()

    def _meet(self) -> asyncio.BaseProtocol:
        """Who answers on a new connection."""
        server = self._runner.server
        if server is None or len(server.connections) + self._arriving >= self._connections:
            return _TurnedAway()
        connection = server()
        loop = asyncio.get_running_loop()

        def give_up() -> None:
            self._heads.pop(connection, None)
            connection.force_close()

        def arrived() -> None:
            self._arriving -= 1

        # asyncio makes the connection known in a later turn, right after this.
        self._arriving += 1
        loop.call_soon(arrived)
        self._heads[connection] = loop.call_later(self._head_within, give_up)
        return connection

    @web.middleware
    async def _only_one(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        timer = self._heads.pop(request.protocol, None)
        if timer is not None:
            timer.cancel()
        try:
            response = await handler(request)
        except web.HTTPException as error:
            response = _answer(error.status)
        response.force_close()  # what was not read of the body is not waited for, and no second request either
        return response

    async def _take(self, request: web.Request) -> web.Response:
        # Behind a proxy the path may be longer or shorter than the one we told the vendor; its end is ours.
        name, _, secret = request.match_info["path"].rpartition("/")[2].partition(".")
        if not await self._receive(name, secret, None):
            return _answer(404)
        try:
            async with asyncio.timeout(self._body_within):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _answer(413)
        except TimeoutError:
            return _answer(408)
        return _answer(200 if await self._receive(name, secret, body) else 400)


class _TurnedAway(asyncio.Protocol):
    """One too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _answer(status: int) -> web.Response:
    return web.Response(status=status)
