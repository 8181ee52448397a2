"""A cable between a program and its server, which a test can freeze, cut or let answer nonsense. TCP on loopback; with
a TLS context the program speaks TLS to it, whatever its server can."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 65536


class Cable:
    """Forwards to `target`. `freeze` holds every byte back, `cut` ends and refuses lines, `answer` replies itself."""

    def __init__(self, target: int, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._answer: bytes | None = None
        self._lines: set[asyncio.StreamWriter] = set()
        self.answered = 0
        self.port = 0

    def freeze(self) -> None:
        self._do(self._flowing.clear)

    def cut(self) -> None:
        self._do(self._cut)

    def answer(self, reply: bytes) -> None:
        """Send this to whoever says something, and hang up."""

        def speak() -> None:
            self._cut()
            self._refusing, self._answer = False, reply

        self._do(speak)

    def mend(self) -> None:
        def mended() -> None:
            self._refusing, self._answer = False, None
            self._flowing.set()

        self._do(mended)

    def _do(self, change: object) -> None:
        done = threading.Event()

        def call() -> None:
            change()  # type: ignore[operator]
            done.set()

        self._loop.call_soon_threadsafe(call)
        done.wait()

    def _cut(self) -> None:
        self._refusing = True
        for line in tuple(self._lines):
            line.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines.add(writer)
        try:
            if self._refusing:
                return
            if self._answer is not None:
                await reader.read(CHUNK)
                self.answered += 1
                writer.write(self._answer)
                await writer.drain()
                return
            there, away = await asyncio.open_connection("127.0.0.1", self._target)
            self._lines.add(away)
            await asyncio.gather(self._carry(reader, away), self._carry(there, writer))
        except OSError:
            return
        finally:
            self._lines.discard(writer)
            writer.close()

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(CHUNK):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            return
        finally:
            self._lines.discard(sink)
            sink.close()

    def _run(self, ready: threading.Event, stop: asyncio.Event) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
            self.port = server.sockets[0].getsockname()[1]
            ready.set()
            await stop.wait()
            server.close()
            self._cut()
            self._flowing.set()

        self._loop.run_until_complete(serve())
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(task)
        self._loop.close()


@contextmanager
def cable_to(port: int, tls: ssl.SSLContext | None = None) -> Iterator[Cable]:
    cable = Cable(port, tls)
    ready, stop = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=cable._run, args=(ready, stop), name="cable", daemon=True)
    thread.start()
    ready.wait()
    try:
        yield cable
    finally:
        cable._loop.call_soon_threadsafe(stop.set)
        thread.join(10)
