"""Opens the connections of the guard proxy: to a checked address, or through a proxy that was checked as well.

How it fails: AddressRefused before anything is dialled, DnsFailed, ConnectFailed, TimedOut, and ProxyFailed for every
failure of a proxy. No message holds a user name or a password. It is stateless, so there is nothing to recover.
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
from ...model.route import Proxy
from ..addresses import AddressGuard, GuardedResolver
from ..http_errors import no_connection
from ..proxies import ANY_ADDRESS, check_target
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

    async def dial(self, host: str, port: int, proxy: Proxy | None, *, tunnel: bool, within: timedelta) -> Line:
        """Connect to `host`. Through an HTTP proxy this is a tunnel, or the proxy itself for plain requests. If the
        proxy must be given an address, plain requests use a tunnel too, since they name their host."""
        seconds = within.total_seconds()
        self._guard.check_port(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        target = host
        if proxy is not None:
            # With its own timeout: a slow name server is not a failure of the proxy.
            target = await check_target(proxy, host, self._guard, self._resolver, within)
        try:
            async with asyncio.timeout(seconds):
                if proxy is None:
                    found = await self._resolver.resolve(host, port)
                    addresses = [str(one["host"]) for one in found]
                    return await self._open(self._guard, host, addresses, port)
                return await self._through(proxy, target, port, tunnel or target != host)
        except TimeoutError as error:
            if proxy is not None:
                raise ProxyFailed(f"Proxy {proxy.address}: no way to {host} within {seconds:g} s.") from error
            raise TimedOut(f"{host}:{port}: no connection within {seconds:g} s.") from error

    async def _through(self, proxy: Proxy, host: str, port: int, tunnel: bool) -> Line:
        line = await self._proxy(proxy)
        try:
            async with _told_of(proxy):
                if proxy.scheme == "socks5":
                    await ask_for_line(_sender(line), line.reader.readexactly, proxy, host, port)
                elif tunnel:
                    await ask_connect(_sender(line), line.reader.readexactly, proxy, host, port)
                else:
                    return msgspec.structs.replace(line, absolute=True)
        except BaseException:
            line.writer.close()
            raise
        return line

    async def _proxy(self, proxy: Proxy) -> Line:
        guard = ANY_ADDRESS if proxy.allow_private else self._guard
        async with _told_of(proxy):
            addresses = await self._addresses_of(proxy)
            tls = None
            if proxy.scheme == "https":
                tls = self._tls or ssl.create_default_context()
            try:
                return await self._open(guard, proxy.host, addresses, proxy.port, tls)
            except ConnectFailed as error:
                if error.is_not_the_sites_fault:
                    raise
                raise ProxyFailed(f"Proxy {proxy.address}: {error}") from error

    async def _addresses_of(self, proxy: Proxy) -> list[str]:
        try:
            if not proxy.allow_private:
                return [str(one["host"]) for one in await self._resolver.resolve(proxy.host, proxy.port)]
            if proxy.host == "localhost" or proxy.host.endswith(".localhost"):
                return ["127.0.0.1", "::1"]
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(proxy.host, proxy.port)
            return list(dict.fromkeys(str(one[4][0]) for one in found))
        except AddressRefused as error:
            raise ProxyFailed(
                f"Proxy {proxy.address} is at a private address. If it is intended, set allow_private = true in "
                f"[proxies.{proxy.pool}]."
            ) from error
        except (DnsFailed, OSError, UnicodeError) as error:
            raise ProxyFailed(f"Proxy {proxy.address}: its name does not resolve.") from error

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
async def _told_of(proxy: Proxy) -> AsyncIterator[None]:
    """A failure between us and the proxy counts as the proxy's failure."""
    try:
        yield
    except (GossamerError, asyncio.CancelledError, TimeoutError):
        raise
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
        raise ProxyFailed(f"Proxy {proxy.address} hung up, or sent an unexpected response.") from error
    except (OSError, ValueError) as error:
        raise ProxyFailed(f"Proxy {proxy.address} cannot be used ({type(error).__name__}).") from error


def proxy_authorization(proxy: Proxy) -> str:
    """The Proxy-Authorization header line, or nothing."""
    if not (proxy.username or proxy.password):
        return ""
    packed = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {packed}\r\n"


def refused_by(proxy: Proxy, status: int) -> ProxyFailed:
    """Our error for a status that the proxy itself returned."""
    if status == 407:
        return ProxyFailed(f"Proxy {proxy.address} refuses our user name or password (407).", status=status)
    return ProxyFailed(f"Proxy {proxy.address} does not let us through (status {status}).", status=status)


def _sender(line: Line) -> Callable[[bytes], Awaitable[None]]:
    async def send(data: bytes) -> None:
        line.writer.write(data)
        await line.writer.drain()

    return send
