"""Decides which addresses may be dialled, and resolves names to them.

Lives here: the check of one address (`AddressGuard`) and the resolver that applies it to every DNS answer
(`GuardedResolver`). Lives in http_connector.py: the last check, on the very address that a socket is opened for, so
that literal addresses, redirects and DNS answers that change between two look-ups cannot get around it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from ipaddress import IPv4Address, ip_address, ip_network

from ..errors import AddressRefused, ConnectFailed, DnsFailed
from ..model.url import authority_of, bad_port_of, host_of, is_literal, port_of
from ..process.limits import USED_UP, are_used_up
from .authorities import aiohttp

# Networks that `is_global` lets through, or judges differently from one Python version to the next.
_CLOSED = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",  # this host
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 hands out cloud credentials
        "168.63.129.16/32",  # Azure's host agent; the address looks public
        "169.254.0.0/16",  # link-local; 169.254.169.254 hands out cloud credentials
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",  # unspecified, loopback, and the deprecated IPv4-compatible form
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",
        "64:ff9b::/96",  # NAT64: leads to the IPv4 address inside
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",  # Teredo and other tunnels
        "2001:db8::/32",
        "2002::/16",  # 6to4
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",  # deprecated site-local
        "ff00::/8",
    )
)


@lru_cache(maxsize=16_384)
def is_public(address: str) -> bool:
    """True for an address of the public internet; False for any other, and for text that is not an address."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if not ip.is_global or ip.is_multicast or ip.is_reserved or ip.is_unspecified:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in block for block in _CLOSED if block.version == 4)
    return not any(ip in block for block in _CLOSED if block.version == 6)


def is_own(address: str) -> bool:
    """Is it an address of this machine? A service that listens there may trust local clients. Interfaces come and go,
    so a result is kept for a minute."""
    return _is_own(address, int(time.monotonic() // 60))


@lru_cache(maxsize=16_384)
def _is_own(address: str, minute: int) -> bool:
    """Ask the kernel: to one of its own addresses it would send from that very address. Nothing is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return ip_address(probe.getsockname()[0]) == ip_address(address)
    except OSError:
        return False  # no route to it


class AddressGuard:
    """Decides which addresses may be dialled. `allow_hosts` are names that may lead to any address, except those in the
    networks `deny`; an entry `host:port` permits that port although browsers refuse it, and that port alone of a host
    that is this machine or a private address. `switch` is the setting behind `allow_private`, named in messages; "" if
    there is none."""

    def __init__(
        self,
        allow_private: bool = False,
        allow_hosts: frozenset[str] = frozenset(),
        deny: Iterable[str] = (),
        *,
        allow_own: bool = False,
        switch: str = "fetch.allow_private",
    ) -> None:
        self._allow_private = allow_private
        self._switch = switch
        self._allow_hosts = frozenset(_plain(host) for host in allow_hosts)
        self._ports: dict[str, set[int]] = {}  # of local hosts of which only these are allowed
        for host, port in (entry.rpartition(":")[::2] for entry in self._allow_hosts):
            name = _plain(host)
            if port.isdecimal() and name not in self._allow_hosts and _is_local(name):
                self._ports.setdefault(name, set()).add(int(port))
        self._deny = tuple(ip_network(block) for block in deny)
        self._allow_own = allow_own  # permits the public addresses of this machine

    def permits(self, host: str, address: str) -> bool:
        """May `address` be dialled for a request to `host`?"""
        if self._denies(address):
            return False
        if self._allow_private or _plain(host) in self._allow_hosts or _plain(host) in self._ports:
            return True
        return is_public(address) and (self._allow_own or not is_own(address))

    def permits_all(self, host: str) -> bool:
        """May `host` lead to any address at all?"""
        return not self._deny and (self._allow_private or _plain(host) in self._allow_hosts)

    def check_port(self, url: str) -> None:
        """Raises AddressRefused for a port that is not for the web: a mail server may take a request for commands. And
        for other ports of a private address than those that are allowed."""
        allowed = self._ports.get(_plain(host_of(url))) if self._ports and not self._allow_private else None
        if allowed is not None and port_of(url) not in allowed:
            raise AddressRefused(
                f"{authority_of(url)} is a private or reserved address, allowed with port "
                f"{', '.join(map(str, sorted(allowed)))} only. If it is intended, add {host_of(url)!r} to "
                f"fetch.allow_hosts in gossamer.toml."
            )
        port = bad_port_of(url)
        if port is not None and _plain(authority_of(url)) not in self._allow_hosts:
            raise AddressRefused(
                f"Port {port} is not for web pages, and browsers refuse it. If it is intended, add "
                f"{authority_of(url)!r} to fetch.allow_hosts in gossamer.toml."
            )

    def _denies(self, address: str) -> bool:
        if not self._deny:
            return False
        try:
            ip = ip_address(address.partition("%")[0])
        except ValueError:
            return True
        mapped = getattr(ip, "ipv4_mapped", None) or ip
        return any(one in block for block in self._deny for one in (ip, mapped))

    def check(self, host: str, address: str) -> None:
        """Raises AddressRefused unless `permits`."""
        if not self.permits(host, address):
            raise self.refusal(host, address)

    def refusal(self, host: str, address: str) -> AddressRefused:
        name = _plain(host)
        what = f"{address} is" if name in ("", address) else f"{name} leads to {address},"
        if self._denies(address):
            return AddressRefused(f"{what} an address that fetch.deny forbids.")
        kind = "an address of this machine" if is_public(address) else "a private or reserved address"
        other = f", or set {self._switch} = true" if self._switch else ""
        intended = f"If it is intended, add {name or address!r} to fetch.allow_hosts in gossamer.toml{other}."
        return AddressRefused(f"{what} {kind}. {intended}")


def _is_local(host: str) -> bool:
    """Is it this machine, or a private address as written? Where other names lead is known when they are looked up."""
    return host == "localhost" or host.endswith(".localhost") or (is_literal(host) and not is_public(host))


def _plain(host: str) -> str:
    return host.strip("[]").rstrip(".").lower()


_LOOPBACK = ("127.0.0.1", "::1")
KEPT = 60.0  # seconds that an answer is kept


def no_file_left(where: str) -> ConnectFailed:
    """The error for a site that cannot be reached or looked up because this process has no file descriptor left."""
    failure = ConnectFailed(f"{where}: too many open files. Raise `ulimit -n`, or lower crawl.concurrency.")
    failure.is_not_the_sites_fault = True
    return failure


class GuardedResolver(aiohttp.abc.AbstractResolver):
    """Resolves names to addresses that the guard permits.

    Look-ups run in the resolver's own threads (the loop's pool is small, and dead names hold a thread for seconds).
    Answers are kept for a minute, names that do not exist for a tenth of it; beyond `max_names` the oldest are dropped.
    Concurrent look-ups of one name are merged. How it fails: DnsFailed, AddressRefused.
    """

    def __init__(self, guard: AddressGuard, *, max_names: int = 4096, threads: int = 32) -> None:
        self._guard = guard
        self._max_names = max_names
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="gossamer-dns")
        self._known: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()
        self._under_way: dict[str, asyncio.Future[tuple[str, ...]]] = {}

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
        *,
        guard: AddressGuard | None = None,
    ) -> list[aiohttp.abc.ResolveResult]:
        """The permitted addresses. `guard` replaces the resolver's own: a proxy may have a guard of its own."""
        judge = guard or self._guard
        addresses = await self._addresses(_plain(host))
        permitted = [address for address in addresses if judge.permits(host, address)]
        if not permitted:
            raise judge.refusal(host, addresses[0])
        return [
            aiohttp.abc.ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in permitted
        ]

    async def close(self) -> None:
        # A hanging look-up must not delay the end of the crawl: its thread ends by itself.
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _addresses(self, name: str) -> tuple[str, ...]:
        if name == "localhost" or name.endswith(".localhost"):
            return _LOOPBACK  # RFC 6761: never ask the DNS for it
        known = self._known.get(name)
        if known is not None and known[0] > time.monotonic():
            found = known[1]
        else:
            look_up = self._under_way.get(name)
            if look_up is None:
                look_up = asyncio.get_running_loop().run_in_executor(self._pool, _look_up, name)
                self._under_way[name] = look_up
                look_up.add_done_callback(lambda done: self._keep(name, done))
            try:
                # Shielded: a caller that times out must not cancel the look-up that others wait for.
                found = await asyncio.shield(look_up)
            except (OSError, UnicodeError) as error:
                if isinstance(error, OSError) and error.errno in USED_UP:
                    raise no_file_left(name) from error
                raise DnsFailed(
                    f"{name} could not be looked up: {error}. The name server may be unreachable."
                ) from error
        if not found:
            raise DnsFailed(f"The name {name} does not resolve. Check the spelling, or whether the site still exists.")
        return found

    def _keep(self, name: str, look_up: asyncio.Future[tuple[str, ...]]) -> None:
        self._under_way.pop(name, None)
        if look_up.cancelled() or look_up.exception() is not None:
            return
        found = look_up.result()
        self._known[name] = (time.monotonic() + (KEPT if found else KEPT / 10), found)
        self._known.move_to_end(name)
        while len(self._known) > self._max_names:
            self._known.popitem(last=False)


_NO_SUCH_NAME = frozenset(code for code in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None)) if code is not None)


def _look_up(name: str) -> tuple[str, ...]:
    """All addresses of a name; empty if it does not exist. Runs in a thread; raises OSError, UnicodeError."""
    try:
        answers = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except socket.gaierror as error:
        if error.errno not in _NO_SUCH_NAME:
            raise
        if are_used_up():  # getaddrinfo reports this, too, when it cannot open a socket
            raise OSError(errno.EMFILE, "too many open files") from error
        return ()
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))
