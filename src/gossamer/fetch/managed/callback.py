"""The small server that a vendor calls when a batch is ready.

It takes a POST to `.../NAME.SECRET`, where both were made for one batch and told to the vendor alone, and hands the
body on. Everything else is turned away: no such batch 404 (before a byte of the body is read), another verb 405, too
long 413, too slow 408, no sense 400. Nothing that was sent is echoed, and no address is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from aiohttp import web

from .vendor import Vendor

READ_WITHIN = timedelta(seconds=60)

# The batch's name, its secret, and the body; None for the body asks about the address alone.
Receive = Callable[[str, str, bytes | None], bool]


class CallbackReceiver:
    """Listens while entered with `async with`. Raises OSError when the port is taken."""

    def __init__(self, vendor: Vendor, receive: Receive) -> None:
        if vendor.listen is None:
            raise ValueError("the vendor has no callback_listen")
        self._listen = vendor.listen
        self._receive = receive
        app = web.Application(client_max_size=vendor.table.max_answer.bytes)
        app.router.add_post("/{path:.*}", self._take)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, *self._listen).start()
        except OSError:
            await self._runner.cleanup()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.Response:
        # Behind a proxy the path may be longer or shorter than the one we told the vendor; its end is ours.
        name, _, secret = request.match_info["path"].rpartition("/")[2].partition(".")
        if not self._receive(name, secret, None):
            return _answer(404)
        try:
            async with asyncio.timeout(READ_WITHIN.total_seconds()):
                body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return _answer(413)
        except TimeoutError:
            return _answer(408)
        return _answer(200 if self._receive(name, secret, body) else 400)


def _answer(status: int) -> web.Response:
    response = web.Response(status=status)
    if status >= 400:
        response.force_close()  # what was not read of the body is not waited for
    return response
