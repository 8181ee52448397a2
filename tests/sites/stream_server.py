"""A server for the sites that write their answers byte by byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Converse = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def stream_server(converse: Converse, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on a free port of 127.0.0.1, which is yielded, until left; then every connection is cut."""
    at_work: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        at_work.add(task)
        try:
            await converse(reader, writer)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            at_work.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(at_work):
            task.cancel()
        while at_work:
            await asyncio.wait(tuple(at_work))
        with suppress(asyncio.CancelledError):
            await server.wait_closed()
