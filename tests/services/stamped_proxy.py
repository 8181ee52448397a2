"""A CONNECT proxy that knows when its client's bytes arrived: `python -m tests.services.stamped_proxy --log FILE`.

    with stamped_proxy() as proxy:
        proxy.address           # for the crawler
        proxy.as_sent(hits)     # the site's log, with the times at which the requests came to the proxy

What a crawler promises of its pace it can keep up to the proxy: how long that takes to pass a request on is beyond it.
So the witness of a crawl through a proxy is the proxy. It is a process of its own with the kernel's times, like the
park. What it carries is encrypted; which bytes were a request is told by the park, which notes the port that each came
from. A client of HTTP/1.1 sends nothing between a request and its answer, hence the request is what came last on that
tunnel before the park had it.

How it fails: a request without its tunnel in the log is an AssertionError.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import uvloop

from tests.sites.lines import SO_TIMESTAMPNS, Line
from tests.sites.running import ROOT, Hit, whole_lines

HEAD_END = b"\r\n\r\n"
REFUSED = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
CONNECTED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Carried(msgspec.Struct, frozen=True):
    """Bytes of a client: the port from which they went on to the site, and when they came (wall clock)."""

    port: int
    came: float


class StampedProxy:
    """A running proxy, as the test sees it."""

    def __init__(self, port: int, pid: int, log: Path) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.pid = pid
        self._log = log

    def as_sent(self, hits: Sequence[Hit]) -> list[Hit]:
        """The same requests with the times at which they reached the proxy."""
        by_port: dict[int, list[float]] = defaultdict(list)
        for carried in msgspec.json.Decoder(Carried).decode_lines(whole_lines(self._log)):
            by_port[carried.port].append(carried.came)
        sent = []
        for hit in hits:
            came = by_port[hit.peer]
            place = bisect_right(came, hit.wall)
            assert place, f"{hit.host}{hit.path} did not come through the proxy"
            delay = hit.wall - came[place - 1]
            sent.append(msgspec.structs.replace(hit, at=hit.at - delay, wall=hit.wall - delay))
        return sent


@contextmanager
def stamped_proxy() -> Iterator[StampedProxy]:
    """Run the proxy for the time of the block. It ends with the test run, however that ends."""
    with tempfile.TemporaryDirectory(prefix="proxy-") as folder:
        log = Path(folder) / "carried.jsonl"
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.services.stamped_proxy", "--log", str(log)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        with process:  # leaving it closes standard input, and waits
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"The proxy did not start (exit code {process.wait()}); see the messages above."
            yield StampedProxy(json.loads(line)["port"], process.pid, log)
            process.terminate()


class Tunnel:
    """One client, and from its CONNECT on the site."""

    def __init__(self, log: int, sock: socket.socket) -> None:
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._client = Line(sock)
        self._site: Line | None = None
        self._port = 0
        self._head = b""
        self._loop.add_reader(sock, self._from_client)

    def _from_client(self) -> None:
        came = self._client.read()
        if came is None:
            self._close()
            return
        data, at = came
        if self._site is None:
            self._head += data
            if HEAD_END in self._head:
                self._connect()
        elif data:
            os.write(self._log, msgspec.json.encode(Carried(self._port, at)) + b"\n")  # before it goes on
            self._site.write(data)

    def _connect(self) -> None:
        method, target, _ = self._head.split(b" ", 2)
        try:
            if method != b"CONNECT":
                raise ConnectionRefusedError
            sock = socket.create_connection(("127.0.0.1", int(target.rpartition(b":")[2])), timeout=10)
        except OSError:
            self._client.write(REFUSED)
            self._close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._site, self._port = Line(sock), sock.getsockname()[1]
        self._loop.add_reader(sock, self._from_site)
        self._client.write(CONNECTED)

    def _from_site(self) -> None:
        assert self._site is not None
        came = self._site.read()
        if came is None:
            self._close()
        elif came[0]:
            self._client.write(came[0])

    def _close(self) -> None:
        self._client.close()
        if self._site is not None:
            self._site.close()


async def serve(log: str) -> None:
    loop = asyncio.get_running_loop()
    notes = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    server.setblocking(False)
    server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)  # for its connections too, from their first byte on

    def accept() -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = server.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                Tunnel(notes, sock)

    loop.add_reader(server, accept)
    stop = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), stop.set)  # the starter holds the other end
    print(json.dumps({"port": server.getsockname()[1]}), flush=True)
    await stop.wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.services.stamped_proxy", description=__doc__)
    parser.add_argument("--log", required=True, help="file to which each arrival is appended as a JSON line")
    uvloop.run(serve(parser.parse_args().log))


if __name__ == "__main__":
    main()
