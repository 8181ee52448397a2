"""Checks that a proxy is reachable and lets us in, without fetching anything. For `gossamer proxies check`.

We log in to a SOCKS5 proxy and disconnect. We ask an HTTP proxy for a tunnel to a name that cannot exist: any response
but 407 means that we are let in. How it fails: ProxyFailed, in words without credentials.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from ..errors import ProxyFailed
from ..model.route import Proxy
from ..process.limits import USED_UP
from .addresses import AddressGuard, GuardedResolver, no_file_left
from .proxies import addresses_of, authorization, proxy_failed, refused_credentials
from .socks import ask_for_line

NOWHERE = "gossamer.invalid"  # RFC 6761: this name never exists
MAX_LINE = 4096


class _LetIn(Exception):
    """The proxy has accepted our login; the rest of the dialogue is skipped."""


async def knock(
    proxy: Proxy,
    guard: AddressGuard,
    resolver: GuardedResolver,
    within: timedelta,
    ssl_context: ssl.SSLContext | None = None,
) -> None:
    """Return when the proxy lets us in. Raises ProxyFailed; ConnectFailed if this process has no file descriptor
    left."""
    addresses = await addresses_of(proxy, guard, resolver, within)
    try:
        async with asyncio.timeout(within.total_seconds()):
            reader, writer = await _dial_any(proxy, addresses, ssl_context)
            try:
                if proxy.scheme == "socks5":
                    await _knock_socks(proxy, reader, writer)
                else:
                    await _knock_http(proxy, reader, writer)
            finally:
                writer.close()
                with suppress(OSError):  # it hung up first
                    await writer.wait_closed()
    except TimeoutError:
        raise proxy_failed(proxy, f"no answer within {within.total_seconds():g} s") from None
    except ssl.SSLError as error:
        raise proxy_failed(proxy, f"TLS to it failed ({error.reason or type(error).__name__})") from None
    except OSError as error:
        if error.errno in USED_UP:
            raise no_file_left(proxy.address) from None
        raise proxy_failed(proxy, f"no connection to it ({error.strerror or type(error).__name__})") from None


async def _dial_any(
    proxy: Proxy, addresses: Sequence[str], context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers. If none does, raises the failure of the last."""
    for address in addresses[:-1]:
        with suppress(OSError):
            return await _dial(proxy, address, context)
    return await _dial(proxy, addresses[-1], context)


async def _dial(
    proxy: Proxy, address: str, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if proxy.scheme != "https":
        return await asyncio.open_connection(address, proxy.port, limit=MAX_LINE)
    trust = context or ssl.create_default_context()
    return await asyncio.open_connection(address, proxy.port, limit=MAX_LINE, ssl=trust, server_hostname=proxy.host)


async def _knock_socks(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async def send(data: bytes) -> None:
        if NOWHERE.encode() in data:
            raise _LetIn  # this is the request for a tunnel, which follows a successful login
        writer.write(data)
        await writer.drain()

    with suppress(_LetIn):
        await ask_for_line(send, reader.readexactly, proxy, NOWHERE, 443)


async def _knock_http(proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    lines = [f"CONNECT {NOWHERE}:443 HTTP/1.1", f"Host: {NOWHERE}:443"]
    told = authorization(proxy)
    if told is not None:
        lines.append(f"Proxy-Authorization: {told}")
    writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode())
    try:
        first = await reader.readline()
    except ValueError:
        first = b"?"  # a line without end
    if not first:
        raise proxy_failed(proxy, "it hung up without a response")
    words = first.split()
    if not words[:1] or not words[0].startswith(b"HTTP/1.") or len(words) < 2 or not words[1].isdigit():
        raise _no_http(proxy)
    if words[1] == b"407":
        raise refused_credentials(proxy)


def _no_http(proxy: Proxy) -> ProxyFailed:
    return proxy_failed(proxy, "its response is not HTTP. Is it a SOCKS5 proxy?")
