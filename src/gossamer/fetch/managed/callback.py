"""The small server that a vendor calls when a batch is ready.

It takes a POST to `.../NAME.SECRET`, both of which were made for one batch and are known to the vendor alone, and
passes the body on. Everything else is rejected: unknown batch 404 (before a byte of the body is read), another method
405, too long 413, too slow 408, invalid 400. Nothing that was sent is echoed, and no URL is logged.

The port may be open to the world, so it must withstand floods: the number of connections is limited, further ones are
closed at once. Each carries one request, with separate time limits for its head and its body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler

from .vendor import Vendor

CONNECTIONS = 100
HEAD_WITHIN = timedelta(seconds=10)
BODY_WITHIN = timedelta(seconds=30)

# The batch's name, its secret, and the body; with None for the body only the name and secret are checked.
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
        self._arriving = 0  # connections that the server does not know of yet
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

    async def __aexit__(self, *exc: object) -> None:
        if self._listener is not None:
            self._listener.close()
        for timer in self._heads.values():
            timer.cancel()
        self._heads.clear()
        await self._runner.cleanup()

    def _meet(self) -> asyncio.BaseProtocol:
        """The protocol for a new connection."""
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

        # asyncio reports the connection to the server in a later callback, right after this.
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
        response.force_close()  # wait neither for the rest of the body nor for a second request
        return response

    async def _take(self, request: web.Request) -> web.Response:
        # Behind a proxy the path may be longer or shorter than the one given to the vendor; only its end counts.
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
    """Closes a connection beyond the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            transport.abort()


def _answer(status: int) -> web.Response:
    return web.Response(status=status)
