"""What every transport does about an exit: judge both ends of the way, name the failure, never show the password.

The target is judged here although the proxy dials it: pages must not lead us into private networks through a proxy
that stands inside one. The proxy's own address is judged too, unless its pool may be private.

How a 407 is judged (a plain http request goes to the proxy itself, so the answer may be the proxy's or the site's):
the transports knock at the proxy once more (proxy_check.py). One that does not let us in has refused the
password; when it does let us in, the 407 is the site's own answer.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from datetime import timedelta
from ipaddress import ip_address

from ..errors import AddressRefused, DnsFailed, FetchRefused, ProxyFailed, TimedOut
from ..model.route import Exit
from .addresses import AddressGuard, GuardedResolver

ANY_ADDRESS = AddressGuard(allow_private=True)
LONGEST_SOCKS_NAME = 255  # bytes: SOCKS5 counts them in one
_LOGIN = re.compile(r"(//)[^/?#\s]*@")


def without_login(text: str) -> str:
    """`text`, and no user name or password of any address in it."""
    return _LOGIN.sub(r"\1", text)


def shown(href: str) -> str:
    """An address as messages show it: without user name and password, and not endless."""
    return without_login(href)[:200]


def is_literal(host: str) -> bool:
    """Is it an address and not a name?"""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def check_target(exit: Exit, host: str, guard: AddressGuard, resolver: GuardedResolver, within: timedelta) -> str:
    """What the proxy is to be asked for: `host`, or the address of it that was judged.

    A proxy in our own network is given the address: if it looked the name up again, the answer might be another one by
    then, and lead to a neighbour. Raises AddressRefused for a private address, and for a name that has one among its
    addresses: a proxy out in the world takes whichever it likes. A name that is unknown here is left to such a proxy;
    one in our own network might know it as a neighbour, so there it must be allowed by name. TimedOut when the
    look-up takes too long; FetchRefused for a name that cannot be put into words of SOCKS5."""
    if exit.scheme == "socks5":
        check_socks_name(host)
    if is_literal(host):
        guard.check(host, host)
        return host
    if guard.permits_all(host):
        return host  # wherever it leads
    try:
        async with asyncio.timeout(within.total_seconds()):
            found = await resolver.resolve(host, guard=ANY_ADDRESS)
    except TimeoutError:
        raise TimedOut(f"{host}: no address within {within.total_seconds():g} s.") from None
    except DnsFailed as error:
        if not exit.allow_private:
            return host
        advice = (
            f"The proxy {exit.address} stands in our own network and may know {host} as a neighbour. "
            f"If that is meant, add {host!r} to fetch.allow_hosts, or set fetch.allow_private = true."
        )
        if error.__cause__ is not None:  # the name server is in trouble, which may pass
            raise DnsFailed(f"{error} {advice}") from error.__cause__
        raise AddressRefused(f"{host} does not resolve here, so where it leads cannot be checked. {advice}") from None
    addresses = [one["host"] for one in found]
    for address in addresses:
        guard.check(host, address)
    if not exit.allow_private:
        return host
    return next((address for address in addresses if ":" not in address), addresses[0])  # every proxy has IPv4


def unnamed(exit: Exit, host: str) -> FetchRefused:
    """For a proxy of our own network that cannot be given an address by this transport."""
    return FetchRefused(
        f"{host} is not asked for through {exit.address}: a proxy in our own network must be given the address that "
        "was checked, and over TLS that is not possible. Use an http:// or socks5:// address of the proxy, or add "
        f"{host!r} to fetch.allow_hosts."
    )


def check_socks_name(host: str) -> None:
    """Raises FetchRefused."""
    if len(host.encode()) > LONGEST_SOCKS_NAME:
        raise FetchRefused(
            f"{host[:40]}... cannot be requested: the name is longer than the {LONGEST_SOCKS_NAME} bytes that SOCKS5 "
            "can carry."
        )


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
