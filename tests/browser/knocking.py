"""Saying to a guard proxy over plain sockets what a browser would, and what no browser would."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gossamer.fetch.addresses import AddressGuard
from gossamer.fetch.browser.guard import GuardProxy, Pass
from tests.patience import PATIENCE
from tests.sites.hostile import HostileSite, hostile_site

from .showing import GUARD


@asynccontextmanager
async def a_gate(guard: AddressGuard = GUARD) -> AsyncIterator[tuple[GuardProxy, HostileSite]]:
    async with hostile_site() as site, GuardProxy(guard) as gate:
        yield gate, site


def token(holder: Pass) -> str:
    packed = base64.b64encode(f"{holder.username}:{holder.password}".encode()).decode()
    return f"Proxy-Authorization: Basic {packed}\r\n"


async def say(gate: GuardProxy, text: str) -> bytes:
    """Everything that the guard proxy answers until it hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    answer = bytearray()
    try:
        writer.write(text.encode("latin-1"))
        while part := await asyncio.wait_for(reader.read(65536), PATIENCE):
            answer += part
    except ConnectionResetError:
        pass  # so a socket is closed whose owner has not read all that we said
    finally:
        writer.close()
    return bytes(answer)


def plain(url: str, *lines: str) -> str:
    host = url.split("/")[2]
    return f"GET {url} HTTP/1.1\r\nHost: {host}\r\n{''.join(lines)}\r\n"


async def tunnel(gate: GuardProxy, holder: Pass, authority: str, inside: str) -> bytes:
    """What comes back through a tunnel, or what the guard proxy says instead of opening it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", gate.port)
    try:
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{token(holder)}\r\n".encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        if b" 200 " not in answer:
            return answer
        writer.write(inside.encode())
        return await asyncio.wait_for(reader.readuntil(b"</html>"), PATIENCE)
    finally:
        writer.close()
