"""What every transport does for a proxy: check the addresses at both ends, describe failures, never show the password.

The target is checked here although the proxy dials it: pages must not lead us into private networks through a proxy
that stands inside one. The proxy's own address is checked too, unless its pool may be private.

How a 407 is judged (a plain http request goes to the proxy itself, so the response may be the proxy's or the site's):
the transports ask the proxy once more (proxy_check.py). If it does not let us in, it has refused the password; if it
does, the 407 came from the site.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from datetime import timedelta

from ..errors import AddressRefused, DnsFailed, FetchRefused, ProxyFailed, TimedOut
from ..model.route import Proxy
from ..model.url import is_literal
from .addresses import AddressGuard, GuardedResolver

ANY_ADDRESS = AddressGuard(allow_private=True)
LONGEST_SOCKS_NAME = 255  # bytes: SOCKS5 has one byte for the length
_LOGIN = re.compile(r"(//)[^/?#\s]*@")


def without_login(text: str) -> str:
    """`text` without the user name and password of any URL in it."""
    return _LOGIN.sub(r"\1", text)


def masked_url(href: str) -> str:
    """A URL as messages show it: without user name and password, and shortened."""
    return without_login(href)[:200]


async def check_target(
    proxy: Proxy, host: str, guard: AddressGuard, resolver: GuardedResolver, within: timedelta
) -> str:
    """Return what to ask the proxy for: `host`, or its checked address.

    A proxy in our own network is given the address: if it looked the name up again, it might get another answer and
    reach an internal host. Raises AddressRefused for a private address, and for a name with one among its addresses: an
    outside proxy may pick any of them. An outside proxy also gets a name that does not resolve here; a proxy in our own
    network might know that name as an internal host, so there the name must be allowed. TimedOut when the look-up takes
    too long; FetchRefused for a name that is too long for SOCKS5.
    """
    if proxy.scheme == "socks5":
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
        if not proxy.allow_private:
            return host
        advice = (
            f"The proxy {proxy.address} is in our own network and may know {host} as an internal host. "
            f"If it is intended, add {host!r} to fetch.allow_hosts, or set fetch.allow_private = true."
        )
        if error.__cause__ is not None:  # the name server failed, which may be temporary
            raise DnsFailed(f"{error} {advice}") from error.__cause__
        raise AddressRefused(f"{host} does not resolve here, so where it leads cannot be checked. {advice}") from None
    addresses = [one["host"] for one in found]
    for address in addresses:
        guard.check(host, address)
    if not proxy.allow_private:
        return host
    return next((address for address in addresses if ":" not in address), addresses[0])  # every proxy has IPv4


def unnamed(proxy: Proxy, host: str) -> FetchRefused:
    """The error for a proxy in our own network that this transport cannot give an address to."""
    return FetchRefused(
        f"{host} cannot be requested through {proxy.address}: a proxy in our own network must be given the address "
        "that was checked, and over TLS that is not possible. Use an http:// or socks5:// address of the proxy, or add "
        f"{host!r} to fetch.allow_hosts."
    )


def check_socks_name(host: str) -> None:
    """Raises FetchRefused for a name that is too long."""
    if len(host.encode()) > LONGEST_SOCKS_NAME:
        raise FetchRefused(
            f"{host[:40]}... cannot be requested: the name is longer than the {LONGEST_SOCKS_NAME} bytes that SOCKS5 "
            "can carry."
        )


def guard_for(proxy: Proxy, guard: AddressGuard) -> AddressGuard:
    """The guard that checks the address of the proxy itself."""
    return ANY_ADDRESS if proxy.allow_private else guard


async def addresses_of(
    proxy: Proxy, guard: AddressGuard, resolver: GuardedResolver, within: timedelta
) -> tuple[str, ...]:
    """The addresses at which the proxy may be dialled. Raises ProxyFailed: the page is not to blame for its proxy."""
    judge = guard_for(proxy, guard)
    try:
        if is_literal(proxy.host):
            judge.check(proxy.host, proxy.host)
            return (proxy.host,)
        async with asyncio.timeout(within.total_seconds()):
            found = await resolver.resolve(proxy.host, proxy.port, guard=judge)
    except AddressRefused:
        raise proxy_failed(
            proxy,
            f"it is at a private or reserved address. If it is intended, set proxies.{proxy.pool}.allow_private = true",
        ) from None
    except (DnsFailed, TimeoutError):
        raise proxy_failed(proxy, "its name does not resolve") from None
    return tuple(one["host"] for one in found)


def proxy_failed(proxy: Proxy, what: str, *, status: int | None = None) -> ProxyFailed:
    """The error for a failed proxy. `what` ends its sentence, and must not hold credentials."""
    return ProxyFailed(f"The proxy {proxy.address} (pool {proxy.pool}) failed: {what}.", status=status)


def refused_credentials(proxy: Proxy) -> ProxyFailed:
    return proxy_failed(proxy, "it does not accept the user name or the password", status=407)


def authorization(proxy: Proxy) -> str | None:
    """The value of Proxy-Authorization; None if the proxy needs no login."""
    if not (proxy.username or proxy.password):
        return None
    return "Basic " + b64encode(f"{proxy.username}:{proxy.password}".encode()).decode("ascii")
