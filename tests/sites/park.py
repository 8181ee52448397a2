"""The park's server: `python -m tests.sites.park --plan JSON --log FILE`. Prints {"port": N}, then serves.

Plain sockets, because the crawler is what is measured, in a process of its own, because the crawlers of the tests get
killed. Every request is one JSON line in the log, written with one unbuffered write the moment the request is
complete: what the log says has happened, whatever dies afterwards.

The time of a request is the kernel's: on loopback a packet is stamped while its sender still is in send(). A park that
waits for a core makes no two requests look closer than they were sent.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from email.utils import formatdate
from functools import partial

import msgspec
import uvloop

from . import http2
from .grounds import Grounds, html_of, sitemap_of
from .lines import SO_TIMESTAMPNS, Line, TlsLine, handshake_delay, server_context

REASONS = {200: "OK", 304: "Not Modified", 404: "Not Found", 405: "Method Not Allowed", 429: "Too Many Requests"}
MAX_HEAD = 64 * 1024
LOGGED = ("user-agent", "if-none-match", "x-forwarded-for", "via", "cookie", "accept-encoding")


class Ledger:
    """The log, and what the park remembers of its visitors."""

    def __init__(self, file: str) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.times: Counter[tuple[str, str]] = Counter()  # (host, odd path) -> requests so far
        self.in_progress: Counter[str] = Counter()  # host -> requests that wait for their answer
        self.given: defaultdict[str, list[float]] = defaultdict(
            list
        )  # host -> when pages were given, of the last second
        self.connections = 0
        self.on_standing = 0  # requests on connections that had served before
        self.pages = 0  # that it was asked for, of all hosts
        self.held: list[Callable[[], None]] = []  # answers that wait for more of these

    def write(self, **entry: object) -> None:
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")
        self.pages += entry["path"] != "/robots.txt"


class Visit:
    """One visitor: requests one after the other over one line that is kept alive."""

    def __init__(self, grounds: Grounds, hosts: frozenset[str], ledger: Ledger, line: Line) -> None:
        self._grounds = grounds
        self._hosts = hosts
        self._ledger = ledger
        self._line = line
        self._buffer = b""
        self._wall = 0.0  # when the last of it came
        self._answering: str | None = None  # the host whose answer is on its way
        ledger.connections += 1
        self._number = ledger.connections
        self._served = 0

    def readable(self) -> None:
        came = self._line.read()
        if came is None:
            self._let_go()
            self._line.close()
            return
        data, wall = came
        if not data:
            return  # of TLS alone
        self._buffer += data
        self._wall = wall
        if self._answering is None:
            self._next_request()

    def _is_dropped(self) -> bool:
        """Is this request one of those that get no answer? Those on a new connection are not: the client would know
        that nobody dropped an idle one; unless the plan says so."""
        self._served += 1
        if self._grounds.drop_every is None or (self._served == 1 and not self._grounds.drop_new):
            return False
        self._ledger.on_standing += 1
        return self._ledger.on_standing % self._grounds.drop_every == 0

    def _note(self, host: str, path: str, status: int, method: str, headers: dict[str, str]) -> None:
        self._ledger.in_progress[host] += 1
        self._ledger.write(
            at=self._wall + time.monotonic() - time.time(), wall=self._wall,
            host=host, path=path, status=status, method=method,
            connection=self._number, peer=self._line.peer, in_progress=self._ledger.in_progress[host],
            headers={name: headers[name] for name in LOGGED if name in headers},
        )  # fmt: skip

    def _next_request(self) -> None:
        head, mark, rest = self._buffer.partition(b"\r\n\r\n")
        if not mark:
            if len(self._buffer) > MAX_HEAD:
                self._line.close()
            return
        self._buffer = rest
        start, *lines = head.decode("latin-1").split("\r\n")
        method, _, target = start.partition(" ")
        path = target.partition(" ")[0]
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        host = headers.get("host", "").partition(":")[0].lower()
        dropped = self._is_dropped()
        status, extra, body = (0, [], b"") if dropped else self._answer(method, host, path, headers)
        self._note(host, path, status, method, headers)
        self._answering = host
        if dropped:
            self._let_go()
            self._line.close()
            return
        head_only = method == "HEAD" or status == 304
        lines = [
            f"HTTP/1.1 {status} {REASONS.get(status, 'Internal Server Error')}",
            "Content-Type: text/plain; charset=utf-8" if path == "/robots.txt" else "Content-Type: text/html",
            *extra,
        ]
        if self._is_last():
            lines.append("Connection: close")
        if status != 304:
            lines.append(f"Content-Length: {len(body)}")
        response = "\r\n".join((*lines, "", "")).encode() + (b"" if head_only else body)
        latency = self._grounds.latency(host)
        if self._ledger.pages >= self._grounds.held_until:
            while self._ledger.held:
                self._ledger.held.pop()()
        elif path == self._grounds.held:
            self._ledger.held.append(partial(self._send, response))
            return
        if latency:
            asyncio.get_running_loop().call_later(latency, self._send, response)
        else:
            self._send(response)

    def _send(self, response: bytes) -> None:
        if not self._line.is_open:
            return
        self._line.write(response)
        self._let_go()
        if self._is_last():
            self._line.close()
        elif self._buffer:
            self._next_request()

    def _is_last(self) -> bool:
        return self._grounds.close_every is not None and self._served >= self._grounds.close_every

    def _let_go(self) -> None:
        if self._answering is not None:
            self._ledger.in_progress[self._answering] -= 1
            self._answering = None

    def _answer(self, method: str, host: str, path: str, headers: dict[str, str]) -> tuple[int, list[str], bytes]:
        """Status, further header lines, body."""
        grounds = self._grounds
        kind, number = self._corner(path)
        if kind == "order" and number >= grounds.orders:
            return 404, [], b"not found"
        if method not in (("POST",) if kind == "order" else ("GET", "HEAD")):
            return 405, [], b"only GET, and POST for orders"
        if path == "/robots.txt":
            text = grounds.robots_txt(host)
            return (404, [], b"no robots.txt") if text is None else (200, [], text.encode())
        if path == "/sitemap.xml":
            return 200, [], sitemap_of(grounds, host)
        if host not in self._hosts or kind is None:
            return 404, [], b"not found"
        if grounds.throttle is not None:
            now = time.monotonic()
            given = self._ledger.given[host] = [at for at in self._ledger.given[host] if now - at < 1]
            if len(given) >= grounds.throttle:
                return 429, [], b"slower, please"
            given.append(now)
        if kind == "page":
            if number >= grounds.page_count(host):
                return 404, [], b"not found"
            if grounds.validators:
                tag = f'"{host}-{number}"'
                fresh = headers.get("if-none-match") == tag
                lines = [f"ETag: {tag}", f"Last-Modified: {formatdate(1_700_000_000, usegmt=True)}"]
                return (304, lines, b"") if fresh else (200, lines, html_of(grounds, host, path))
            return 200, [], html_of(grounds, host, path)
        self._ledger.times[host, path] += 1
        times = self._ledger.times[host, path]
        if kind == "flaky" and times <= grounds.flaky_times:
            return 500, [], b"not now"
        if kind == "retry-after" and times == 1:
            return 429, [f"Retry-After: {grounds.retry_after}"], b"slower, please"
        return 200, [], html_of(grounds, host, path)

    def _corner(self, path: str) -> tuple[str | None, int]:
        if path == "/":
            return "page", 0
        parts = path.split("/")
        if len(parts) == 3 and parts[1] in ("page", "flaky", "retry-after", "order") and parts[2].isdecimal():
            # One address per page: /page/0 and /page/007 do not exist.
            if parts[2] != str(int(parts[2])) or parts[1:] == ["page", "0"]:
                return None, 0
            return parts[1], int(parts[2])
        return None, 0


class Http2Visit(Visit):
    """A visitor who may speak HTTP/2. Header blocks stay packed: the handshake told the host, the path is not known."""

    _greeted = False

    def _next_request(self) -> None:
        if not self._line.is_http2:
            super()._next_request()
            return
        if not self._greeted:
            if len(self._buffer) < len(http2.PREFACE):
                return
            self._greeted = True
            self._buffer = self._buffer.removeprefix(http2.PREFACE)
            self._line.write(http2.frame(http2.SETTINGS))
        while self._line.is_open and len(self._buffer) >= 9:
            size, kind, flags = int.from_bytes(self._buffer[:3], "big"), self._buffer[3], self._buffer[4]
            if len(self._buffer) < 9 + size:
                return
            stream, payload = int.from_bytes(self._buffer[5:9], "big"), self._buffer[9 : 9 + size]
            self._buffer = self._buffer[9 + size :]
            if kind == http2.SETTINGS and not flags & http2.ACK:
                self._line.write(http2.frame(http2.SETTINGS, http2.ACK))
            elif kind == http2.PING and not flags & http2.ACK:
                self._line.write(http2.frame(http2.PING, http2.ACK, payload=payload))
            elif kind == http2.HEADERS:
                self._take(stream)

    def _take(self, stream: int) -> None:
        host = self._line.server_name
        dropped = self._is_dropped()
        self._note(host, "", 0 if dropped else 200, "GET", {})
        if dropped:
            self._ledger.in_progress[host] -= 1
            self._line.close()
            return
        asyncio.get_running_loop().call_later(self._grounds.latency(host), self._show, host, stream)

    def _show(self, host: str, stream: int) -> None:
        self._ledger.in_progress[host] -= 1
        if self._line.is_open:
            head = http2.OK + http2.header(b"content-type", b"text/html")
            self._line.write(
                http2.frame(http2.HEADERS, http2.END_HEADERS, stream, head)
                + http2.frame(http2.DATA, http2.END_STREAM, stream, http2.PAGE)
            )


class Gate:
    """A port of the park. While it is shut nobody listens there."""

    def __init__(self, port: int, enter: Callable[[socket.socket], Line]) -> None:
        self._enter = enter
        self._server: socket.socket | None = None
        self._lines: set[Line] = set()
        self.port = port
        self.open()

    def open(self) -> None:
        if self._server is not None:
            return
        self._server = socket.create_server(("127.0.0.1", self.port), backlog=4096)
        self.port = self._server.getsockname()[1]
        self._server.setblocking(False)
        # for its connections too, from their first byte on
        self._server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        asyncio.get_running_loop().add_reader(self._server, self._accept, self._server)

    def shut(self) -> None:
        if self._server is not None:
            asyncio.get_running_loop().remove_reader(self._server)
            self._server.close()
            self._server = None
        for line in self._lines:
            line.close()
        self._lines.clear()

    def _accept(self, server: socket.socket) -> None:
        with suppress(BlockingIOError):
            while True:
                sock, _ = server.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._lines = {line for line in self._lines if line.is_open} if len(self._lines) > 1000 else self._lines
                self._lines.add(self._enter(sock))


async def serve(
    grounds: Grounds, log: str, ports: tuple[int, int], stop_with_stdin: bool, certificate: str = "", key: str = ""
) -> None:
    loop = asyncio.get_running_loop()
    ledger = Ledger(log)
    stop = asyncio.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sign, stop.set)
    if stop_with_stdin:
        # The starter holds the other end: when it dies, however it dies, the park closes.
        loop.add_reader(sys.stdin.fileno(), stop.set)
    hosts = frozenset(grounds.host_names())
    tls = server_context(certificate, key, http2=grounds.http2) if grounds.tls else None
    visit = Http2Visit if grounds.http2 else Visit

    def enter(sock: socket.socket) -> Line:
        line = Line(sock) if tls is None else TlsLine(sock, tls, handshake_delay(grounds.handshake_ms))
        loop.add_reader(sock, visit(grounds, hosts, ledger, line).readable)
        return line

    gate, apart = (Gate(port, enter) for port in ports)
    loop.add_signal_handler(signal.SIGUSR1, apart.shut)
    loop.add_signal_handler(signal.SIGUSR2, apart.open)
    print(json.dumps({"port": gate.port, "apart": apart.port, "pid": os.getpid()}), flush=True)
    await stop.wait()
    gate.shut()
    apart.shut()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.sites.park", description=__doc__)
    parser.add_argument("--log", required=True, help="file to which each request is appended as a JSON line")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free one")
    parser.add_argument("--port-apart", type=int, default=0, help="of the hosts that can go away; 0 takes any free one")
    parser.add_argument("--pages", type=int, help="pages per host")
    parser.add_argument("--hosts", type=int, help="site0.localhost, site1.localhost ...")
    parser.add_argument("--links", type=int, help="links per page")
    parser.add_argument("--body-bytes", type=int, help="size of a page, about")
    parser.add_argument("--latency-ms", type=int, help="time to answer")
    parser.add_argument("--plan", default="{}", help="any field of tests.sites.grounds.Grounds, as a JSON object")
    parser.add_argument("--certificate", default="", help="PEM file, for a plan with tls")
    parser.add_argument("--key", default="", help="its key, PEM")
    parser.add_argument("--stop-with-stdin", action="store_true", help="end when standard input is closed")
    flags = parser.parse_args()
    plan = json.loads(flags.plan)
    for name in ("pages", "hosts", "links", "body_bytes", "latency_ms"):
        if getattr(flags, name) is not None:
            plan[name] = getattr(flags, name)
    grounds = msgspec.convert(plan, Grounds)
    uvloop.run(
        serve(grounds, flags.log, (flags.port, flags.port_apart), flags.stop_with_stdin, flags.certificate, flags.key)
    )


if __name__ == "__main__":
    main()
