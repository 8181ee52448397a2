"""A raw HTTP/1.1 server, quick enough that it never is what a benchmark measures.

Lives here: the protocol (keep-alive, pipelining, late answers) and its start in a process of its own. What is
answered, and what is written down about it, is the caller's `answer` function.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, cast

import uvloop

ROOT = Path(__file__).resolve().parent.parent

# Given the request's path and its whole head: the bytes to send, and after how many seconds.
Answer = Callable[[str, bytes], tuple[bytes, float]]

_END = b"\r\n\r\n"


HTML = "text/html; charset=utf-8"


def response(
    body: bytes, *, status: str = "200 OK", content_type: str = HTML, headers: str = "Cache-Control: no-store\r\n"
) -> bytes:
    """A complete response as bytes, ready to be sent any number of times. `headers` are further lines."""
    date = formatdate(usegmt=True)
    return (
        f"HTTP/1.1 {status}\r\nServer: nginx\r\nDate: {date}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: keep-alive\r\n{headers}\r\n"
    ).encode() + body


def json_response(value: Any) -> bytes:
    return response(json.dumps(value).encode(), content_type="application/json")


NOT_FOUND = response(b"<html><title>404</title><h1>Not here</h1></html>", status="404 Not Found")


class _Connection(asyncio.Protocol):
    """One client. Bodies of requests are not understood: crawlers only GET here."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._unread = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        start = 0
        while (end := data.find(_END, start)) >= 0:
            head = data[start:end]
            start = end + len(_END)
            path = head[head.find(b" ") + 1 : head.find(b" HTTP/")].decode("latin-1")
            reply, seconds = self._answer(path, head)
            if seconds:
                asyncio.get_running_loop().call_later(seconds, self._send, reply, head)
            else:
                self._send(reply, head)
        self._unread = data[start:]

    def _send(self, reply: bytes, head: bytes) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(reply)
        if b"onnection: close" in head:
            self._transport.close()


def serve(answer: Answer, tls: tuple[int, ssl.SSLContext] | None = None) -> None:
    """Serve on a free loopback port for ever, and at a given one over TLS; the first line on stdout is the port."""

    async def listen() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(answer), "127.0.0.1", 0, backlog=1024)
        if tls is not None:
            port, context = tls
            await loop.create_server(lambda: _Connection(answer), "127.0.0.1", port, backlog=1024, ssl=context)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(listen())


class Server:
    """A handle on a running server: its port, and the questions it answers as JSON."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self._pid = pid
        self._connection = HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(self, path: str) -> Any:
        self._connection.request("GET", path)
        return json.loads(self._connection.getresponse().read())

    def cpu(self) -> float:
        """Seconds of CPU that it has used so far."""
        return cpu_of(self._pid)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that the threads of a process have used so far, as finely as the kernel counts them."""
    return sum(int(one.read_text().split()[0]) for one in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


@contextmanager
def started(module: str, *arguments: str) -> Iterator[Server]:
    """Run `python -m module` on the last core until the block ends."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=on_last_core) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise SystemExit(f"The server {module} did not start; see its error above.")
            yield Server(int(line), process.pid)
        finally:
            process.terminate()


CORES = sorted(os.sched_getaffinity(0))


def on_first_core() -> None:
    """The crawler's core. Taken when the module was loaded, before anybody was pinned."""
    os.sched_setaffinity(0, {CORES[0]})


def on_last_core() -> None:
    """The core of the server and the harness."""
    os.sched_setaffinity(0, {CORES[-1]})
