"""What every transport does about an exit: judge both ends of the way, name the failure, never show the password.

The target is judged here although the proxy dials it: pages must not lead us into private networks through a proxy
that stands inside one. The proxy's own address is judged too, unless its pool may be private.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import timedelta
from ipaddress import ip_address

from ..errors import AddressRefused, DnsFailed, ProxyFailed
from ..model.route import Exit
from .addresses import AddressGuard, GuardedResolver

ANY_ADDRESS = AddressGuard(allow_private=True)


def is_literal(host: str) -> bool:
    """Is it an address and not a name?"""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def check_target(host: str, guard: AddressGuard, resolver: GuardedResolver, within: timedelta) -> None:
    """Raises AddressRefused for a private address, and for a name that leads to nothing else."""
    if is_literal(host):
        guard.check(host, host)
        return
    try:
        async with asyncio.timeout(within.total_seconds()):
            await resolver.resolve(host)
    except (DnsFailed, TimeoutError):
        # The proxy looks names up itself, and may know some that are unknown here.
        return


def guard_for(exit: Exit, guard: AddressGuard) -> AddressGuard:
    """Who judges the address of the proxy itself."""
    return ANY_ADDRESS if exit.allow_private else guard


async def addresses_of(
    exit: Exit, guard: AddressGuard, resolver: GuardedResolver, within: timedelta
) -> tuple[str, ...]:
    """Where the proxy may be dialled. Raises ProxyFailed: the page is not to blame for its proxy."""
    judge = guard_for(exit, guard)
    try:
        if is_literal(exit.host):
            judge.check(exit.host, exit.host)
            return (exit.host,)
        async with asyncio.timeout(within.total_seconds()):
            found = await resolver.resolve(exit.host, exit.port, guard=judge)
    except AddressRefused:
        raise proxy_failed(
            exit,
            f"it is at a private or reserved address. If that is meant, set proxies.{exit.pool}.allow_private = true",
        ) from None
    except (DnsFailed, TimeoutError):
        raise proxy_failed(exit, "its name does not resolve") from None
    return tuple(one["host"] for one in found)


def proxy_failed(exit: Exit, what: str, *, status: int | None = None) -> ProxyFailed:
    """`what` continues the sentence; it must not hold credentials."""
    return ProxyFailed(f"The proxy {exit.address} (pool {exit.pool}) failed: {what}.", status=status)


def refused_credentials(exit: Exit) -> ProxyFailed:
    return proxy_failed(exit, "it does not accept the user name or the password", status=407)


def authorization(exit: Exit) -> str | None:
    """The value of Proxy-Authorization; None for who needs none."""
    if not (exit.username or exit.password):
        return None
    return "Basic " + b64encode(f"{exit.username}:{exit.password}".encode()).decode("ascii")
