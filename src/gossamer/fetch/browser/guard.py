"""The guard proxy: a browser's only way to the network. A proxy on loopback, inside the worker's own process.

What it does: takes CONNECT and plain requests from holders of a pass, checks the address, dials that very address (or
the proxy of the pass), and counts the traffic.
How it fails: the browser gets a 403, 407 or 502; the pass records the actual error, so that the transport can raise it.
A broken connection affects no other.
How it recovers: every connection is new; dismissing a pass closes its connections.

A plain request gets its own connection to the site: responses are forwarded with `Connection: close`, so that the
browser cannot send a request for another host over a connection whose address was checked for the first.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ssl
from collections.abc import Callable
from datetime import timedelta
from typing import Self
from urllib.parse import urlsplit

from ...errors import AddressRefused, GossamerError
from ...model.route import Proxy
from ..addresses import AddressGuard, GuardedResolver
from ..contract import Gate
from .guard_dialer import BUFFER, Dialer, Line, proxy_authorization
from .guard_traffic import (
    HOP_BY_HOP,
    MARK,
    ForeignSite,
    Pairs,
    Pass,
    SpentError,
    answer,
    both_ways,
    bring_answer,
    first_of,
    has_no_body,
    origin_form,
    read_head,
    send_body,
)

_HEAD_PATIENCE = 30.0  # seconds for a browser to send its request


class GuardProxy:
    """Listens on a free port of 127.0.0.1 while entered. `tls` is for proxies that speak TLS."""

    def __init__(self, guard: AddressGuard, *, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._tls = tls
        self._passes: dict[str, Pass] = {}
        self._lines: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._resolver: GuardedResolver | None = None
        self._dialer: Dialer | None = None
        self.port = 0

    async def __aenter__(self) -> Self:
        self._resolver = GuardedResolver(self._guard)
        self._dialer = Dialer(self._guard, self._resolver, self._tls)
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=BUFFER)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        server, resolver = self._server, self._resolver
        self._server = self._resolver = self._dialer = None
        self._passes.clear()
        if server is not None:
            server.close()
        await _end(self._lines)
        if resolver is not None:
            await resolver.close()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def admit(
        self,
        proxy: Proxy | None = None,
        *,
        on_bytes: Callable[[int], None] | None = None,
        gate: Gate | None = None,
        max_bytes: int | None = None,
        max_requests: int | None = None,
        connect: timedelta = timedelta(seconds=10),
        home: str | None = None,
    ) -> Pass:
        """Create a pass. All its traffic goes through `proxy`, if there is one.

        `on_bytes` is called for every piece received from the network. Once its connection is open, the first request
        waits for the `gate`. `home` is the site of the page: the page may make only a limited number of requests to any
        other site.
        """
        made = Pass(proxy, on_bytes, gate, max_bytes, max_requests, connect, home)
        self._passes[made.username] = made
        return made

    async def dismiss(self, given: Pass) -> None:
        """Invalidate the pass and close its connections."""
        self.withdraw(given)
        await _end(given.lines)

    def withdraw(self, given: Pass) -> None:
        """Let the pass open no more connections; open ones continue."""
        self._passes.pop(given.username, None)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        holder: Pass | None = None
        try:
            while True:
                async with asyncio.timeout(_HEAD_PATIENCE):
                    line, headers = await read_head(reader)
                holder = self._holder(headers)
                if holder is None:
                    asking = ("Proxy-Authenticate", 'Basic realm="guard"')
                    if not await answer(writer, 407, asking, keep=has_no_body(headers)):
                        return
                    continue
                holder.lines.add(task)
                await self._serve(holder, line, headers, reader, writer)
                return
        except (OSError, EOFError, ValueError, TimeoutError, SpentError, asyncio.CancelledError):
            pass  # one side hung up, sent garbage, or was cut off
        finally:
            if holder is not None:
                holder.lines.discard(task)
            self._lines.discard(task)
            writer.close()

    def _holder(self, headers: Pairs) -> Pass | None:
        given = next((value for name, value in headers if name.lower() == "proxy-authorization"), "")
        scheme, _, packed = given.partition(" ")
        if scheme.lower() != "basic":
            return None
        try:
            username, _, password = base64.b64decode(packed.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        holder = self._passes.get(username)
        if holder is None or not hmac.compare_digest(holder.password.encode(), password.encode()):
            return None
        return holder

    async def _serve(
        self,
        holder: Pass,
        line: str,
        headers: Pairs,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        method, target, _ = line.split(" ", 2)
        tunnel = method == "CONNECT"
        parts = urlsplit(f"//{target}" if tunnel else target)
        host = (parts.hostname or "").rstrip(".")
        if not host or not host.isascii() or (not tunnel and parts.scheme != "http"):
            await answer(writer, 400, keep=False)
            return
        port = parts.port or (443 if tunnel else 80)
        if holder.calls_home(host):
            await answer(writer, 403, keep=False)
            return
        abroad = holder.asking(host, tunnel=tunnel)
        async with holder.place_at(host, tunnel=tunnel):
            await self._carry(holder, host, port, line, headers, reader, writer, abroad)

    async def _carry(
        self,
        holder: Pass,
        host: str,
        port: int,
        line: str,
        headers: Pairs,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        abroad: ForeignSite | None,
    ) -> None:
        """Connect, and forward the traffic."""
        method, target, _ = line.split(" ", 2)
        tunnel = method == "CONNECT"
        authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        assert self._dialer is not None
        try:
            far = await self._dialer.dial(host, port, holder.proxy, tunnel=tunnel, within=holder.connect)
            while not tunnel and not await self._leaves(holder, far):
                far = await self._dialer.dial(host, port, holder.proxy, tunnel=tunnel, within=holder.connect)
        except GossamerError as error:
            holder.note(authority, error)
            status = 403 if isinstance(error, AddressRefused) else 502
            await answer(writer, status, (MARK, holder.mark), keep=False)
            return
        holder.forgive(authority)
        holder.address = holder.address or far.address
        try:
            if tunnel:
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                await both_ways(holder, reader, writer, far, abroad)
            else:
                await self._plain(holder, authority, method, target, headers, reader, writer, far, abroad)
        finally:
            far.writer.close()

    async def _leaves(self, holder: Pass, far: Line) -> bool:
        """Wait until a plain request may be written to the connection; False if the connection was closed meanwhile."""
        left = False
        try:
            left = await holder.first_leaves(lambda: not far.reader.at_eof())
        finally:
            if not left:
                far.writer.close()
        return left

    async def _plain(
        self,
        holder: Pass,
        authority: str,
        method: str,
        target: str,
        headers: Pairs,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far: Line,
        abroad: ForeignSite | None,
    ) -> None:
        """Forward one request with an absolute URL, return its response, and end both connections."""
        if any(name.lower() == "transfer-encoding" for name, _ in headers):
            await answer(writer, 411, keep=False)
            return
        upgrade = any(name.lower() == "upgrade" for name, _ in headers)
        short = target if far.absolute else origin_form(target)
        kept = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]
        kept.append(("Connection", "Upgrade" if upgrade else "close"))
        head = f"{method} {short} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in kept)
        if far.absolute and holder.proxy is not None:
            head += proxy_authorization(holder.proxy)
        packed = head.encode("latin-1") + b"\r\n"
        holder.sending(len(packed), abroad)
        far.writer.write(packed)
        if upgrade:
            await both_ways(holder, reader, writer, far, abroad)
            return
        length = int(next((value for name, value in headers if name.lower() == "content-length"), "0"))
        up = asyncio.create_task(send_body(holder, reader, far.writer, length, abroad))
        down = asyncio.create_task(bring_answer(holder, authority, far, writer, bodiless=method == "HEAD"))
        await first_of(up, down)


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    for task in tuple(tasks):
        task.cancel()
    waiting = tuple(tasks)
    if waiting:
        await asyncio.wait(waiting)


__all__ = ["MARK", "GuardProxy", "Pass"]
