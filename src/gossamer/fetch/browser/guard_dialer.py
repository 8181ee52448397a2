"""Opens the connections of the guard proxy: to a checked address, or through an exit that was checked as well.

How it fails: AddressRefused before anything is dialled, DnsFailed, ConnectFailed, TimedOut, and ProxyFailed for every
failure of an exit. No message holds a user name or a password. It is stateless, so there is nothing to recover.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from ...errors import AddressRefused, ConnectFailed, DnsFailed, GossamerError, ProxyFailed, TimedOut
from ...model.route import Exit
from ..addresses import AddressGuard, GuardedResolver
from ..exits import ANY_ADDRESS, check_target
from ..http_errors import no_connection
from ..socks import ask_connect, ask_for_line

BUFFER = 256 * 1024  # per direction of a connection
_MAX_ADDRESSES = 4  # per name, tried in turn


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """An open connection. `absolute` means that requests must name the absolute URL: the other end is a proxy."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    address: str
    absolute: bool = False


class Dialer:
    """Opens connections. The name is looked up once, and the very address that was checked is dialled."""

    def __init__(self, guard: AddressGuard, resolver: GuardedResolver, tls: ssl.SSLContext | None = None) -> None:
        self._guard = guard
        self._resolver = resolver
        self._tls = tls

    async def dial(self, host: str, port: int, exit: Exit | None, *, tunnel: bool, within: timedelta) -> Line:
        """Connect to `host`. Through an HTTP exit this is a tunnel, or the proxy itself for plain requests. If the
        proxy must be given an address, plain requests use a tunnel too, since they name their host."""
        seconds = within.total_seconds()
        target = host
        if exit is not None:
            # With its own timeout: a slow name server is not a failure of the proxy.
            target = await check_target(exit, host, self._guard, self._resolver, within)
        try:
            async with asyncio.timeout(seconds):
                if exit is None:
                    found = await self._resolver.resolve(host, port)
                    addresses = [str(one["host"]) for one in found]
                    return await self._open(self._guard, host, addresses, port)
                return await self._through(exit, target, port, tunnel or target != host)
        except TimeoutError as error:
            if exit is not None:
                raise ProxyFailed(f"Proxy {exit.address}: no way to {host} within {seconds:g} s.") from error
            raise TimedOut(f"{host}:{port}: no connection within {seconds:g} s.") from error

    async def _through(self, exit: Exit, host: str, port: int, tunnel: bool) -> Line:
        line = await self._proxy(exit)
        try:
            async with _told_of(exit):
                if exit.scheme == "socks5":
                    await ask_for_line(_sender(line), line.reader.readexactly, exit, host, port)
                elif tunnel:
                    await ask_connect(_sender(line), line.reader.readexactly, exit, host, port)
                else:
                    return msgspec.structs.replace(line, absolute=True)
        except BaseException:
            line.writer.close()
            raise
        return line

    async def _proxy(self, exit: Exit) -> Line:
        guard = ANY_ADDRESS if exit.allow_private else self._guard
        async with _told_of(exit):
            addresses = await self._addresses_of(exit)
            tls = None
            if exit.scheme == "https":
                tls = self._tls or ssl.create_default_context()
            try:
                return await self._open(guard, exit.host, addresses, exit.port, tls)
            except ConnectFailed as error:
                if error.is_not_the_sites_fault:
                    raise
                raise ProxyFailed(f"Proxy {exit.address}: {error}") from error

    async def _addresses_of(self, exit: Exit) -> list[str]:
        try:
            if not exit.allow_private:
                return [str(one["host"]) for one in await self._resolver.resolve(exit.host, exit.port)]
            if exit.host == "localhost" or exit.host.endswith(".localhost"):
                return ["127.0.0.1", "::1"]
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(exit.host, exit.port)
            return list(dict.fromkeys(str(one[4][0]) for one in found))
        except AddressRefused as error:
            raise ProxyFailed(
                f"Proxy {exit.address} is at a private address. If it is intended, set allow_private = true in "
                f"[proxies.{exit.pool}]."
            ) from error
        except (DnsFailed, OSError, UnicodeError) as error:
            raise ProxyFailed(f"Proxy {exit.address}: its name does not resolve.") from error

    async def _open(
        self, guard: AddressGuard, host: str, addresses: list[str], port: int, tls: ssl.SSLContext | None = None
    ) -> Line:
        failure: OSError | None = None
        for address in addresses[:_MAX_ADDRESSES]:
            guard.check(host, address)
            try:
                reader, writer = await asyncio.open_connection(
                    address, port, limit=BUFFER, ssl=tls, server_hostname=host if tls else None
                )
            except OSError as error:
                failure = failure or error
                continue
            return Line(reader=reader, writer=writer, address=address)
        raise no_connection(f"{host}:{port}", failure or OSError("no address answered"))


@asynccontextmanager
async def _told_of(exit: Exit) -> AsyncIterator[None]:
    """A failure between us and the proxy counts as the proxy's failure."""
    try:
        yield
    except (GossamerError, asyncio.CancelledError, TimeoutError):
        raise
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
        raise ProxyFailed(f"Proxy {exit.address} hung up, or sent an unexpected response.") from error
    except (OSError, ValueError) as error:
        raise ProxyFailed(f"Proxy {exit.address} cannot be used ({type(error).__name__}).") from error


def proxy_authorization(exit: Exit) -> str:
    """The Proxy-Authorization header line, or nothing."""
    if not (exit.username or exit.password):
        return ""
    packed = base64.b64encode(f"{exit.username}:{exit.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {packed}\r\n"


def refused_by(exit: Exit, status: int) -> ProxyFailed:
    """Our error for a status that the proxy itself returned."""
    if status == 407:
        return ProxyFailed(f"Proxy {exit.address} refuses our user name or password (407).", status=status)
    return ProxyFailed(f"Proxy {exit.address} does not let us through (status {status}).", status=status)


def _sender(line: Line) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        line.writer.write(data)
        await line.writer.drain()

    return send
