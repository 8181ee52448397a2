"""The clients of the second transport: one for each host or proxy, bound to checked addresses.

wreq resolves names itself and accepts no resolver of ours, but a client can be given fixed addresses for a name. So
there is one client for each host, and its name is bound to the addresses that GuardedResolver permits: wreq never asks
the DNS, so an answer that changes later is never used unchecked. A client costs some 30 microseconds and 20 KB, far
less than relaying every page through a proxy of our own. Through a proxy the client has the proxy's name bound in that
way, and the proxy looks up the target, which is checked first (see proxies.py). A proxy in our own network is given the
checked address: a SOCKS5 proxy by wreq itself, an HTTP proxy by our relay, the guard proxy of the browser transport.
Each identity has its own clients: connections and TLS sessions are never shared.

How it fails: AddressRefused, DnsFailed, ProxyFailed, TimedOut. How it recovers: a client that could not connect is
dropped, and the next request looks the name up again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import time
import weakref
from collections import OrderedDict
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from ..errors import MissingExtra, TimedOut
from ..model.route import Proxy
from ..model.url import is_literal
from .addresses import AddressGuard, GuardedResolver
from .browser.guard import GuardProxy, Pass
from .contract import Limits
from .profiles import Profile
from .proxies import addresses_of, check_target
from .proxy_check import knock

if TYPE_CHECKING:
    import wreq

MAX_HEADERS = 128
MAX_CLIENTS = 256  # beyond that the least recently used one is dropped, with its idle connections
_MAX_ORIGINS = 1024  # per client; many sites go through one proxy
_FILES = "/proc/self/fd"
_LAST_DATA_SENT = 44  # offset in the kernel's struct tcp_info: milliseconds, 32 bits
_MOST_KEPT = 4096
TICK = 0.004  # seconds; the resolution of the kernel is this or finer
_LEAST_BUFFER = 8192  # wreq accepts no smaller one
_Key = tuple[str, str, Proxy | None, timedelta, int]
_Origin = tuple[str, str, int]


def library() -> Any:  # the module, which may not be installed
    """Import wreq. Raises MissingExtra."""
    try:
        import wreq
    except ImportError as error:
        raise MissingExtra(
            "TLS profiles need wreq, which is not installed: pip install 'gossamer[profiles]'"
        ) from error
    return wreq


class SentTimes:
    """Finds out when the kernel last sent data on a connection of the driver.

    wreq makes its connections in its own thread and does not report when it sends a request; it does report the local
    end of the connection that answered, `127.0.0.1:49546` or `[::1]:49546`. The kernel knows the rest (Linux: TCP_INFO)
    to a few milliseconds. None, if the connection is gone or the system does not report the time.
    """

    def __init__(self) -> None:
        self._files: dict[str, int] = {}  # local end -> file descriptor, when last seen

    def seconds_since_known(self, end: str) -> float | None:
        """As `seconds_since`, for a connection that was looked up before."""
        file = self._files.get(end)
        return _look(file, end) if file is not None else None

    def seconds_since(self, end: str) -> float | None:
        """How many seconds ago data was last sent."""
        ago = self.seconds_since_known(end)
        if ago is not None:
            return ago
        if len(self._files) >= _MOST_KEPT:
            self._files.clear()
        self._files.pop(end, None)
        with suppress(OSError):
            for name in os.listdir(_FILES):
                ago = _look(int(name), end)
                if ago is not None:
                    self._files[end] = int(name)
                    return ago
        return None


def _look(file: int, end: str) -> float | None:
    try:
        borrowed = socket.socket(fileno=file)
    except OSError:
        return None  # no socket, or closed
    try:
        if borrowed.family not in (socket.AF_INET, socket.AF_INET6) or borrowed.type != socket.SOCK_STREAM:
            return None
        host, port = borrowed.getsockname()[:2]
        if end != (f"[{host}]:{port}" if borrowed.family == socket.AF_INET6 else f"{host}:{port}"):
            return None
        borrowed.getpeername()  # raises if not connected: a listening server has the same address
        told = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_DATA_SENT + 4)
        milliseconds: int = struct.unpack_from("I", told, _LAST_DATA_SENT)[0]
        return milliseconds / 1000
    except (OSError, struct.error):
        return None
    finally:
        borrowed.detach()  # leaves the descriptor open: it is not ours


class IdentityClient:
    """A wreq client, and what we know about it: its addresses, and the connections that should be idle.

    `relay` is its pass at the relay, if it reaches its proxy through the relay.
    """

    def __init__(
        self, driver: wreq.Client, key: _Key, addresses: frozenset[str], keep_alive: timedelta, relay: Pass | None
    ) -> None:
        self.driver = driver
        self.key = key
        self.addresses = addresses
        self.relay = relay
        self._keep_alive = keep_alive.total_seconds()
        self._idle: dict[_Origin, tuple[int, float]] = {}
        self.speaks_http2 = False
        self._ends: dict[str, float] = {}  # local ends of connections, and when each was last used

    def takes_standing(self, origin: _Origin) -> bool:
        """Will the next request reuse an idle connection? An estimate: wreq does not say."""
        count, since = self._idle.get(origin, (0, 0.0))
        if not count or time.monotonic() - since > self._keep_alive:
            self._idle.pop(origin, None)
            return False
        self._idle[origin] = (count - 1, since)
        return True

    def met(self, end: str, unknown: bool) -> bool:
        """Was the connection with this local end used before, and recently? The system reuses ends after a time. Return
        `unknown` if `end` is empty."""
        if not end:
            return unknown
        now, before = time.monotonic(), self._ends.pop(end, float("-inf"))
        if len(self._ends) >= _MAX_ORIGINS:
            self._ends.clear()
        self._ends[end] = now
        return now - before <= 2 * self._keep_alive

    def sent_since(self, moment: float, sent_times: SentTimes) -> float | None:
        """How many seconds ago a request was sent on a reused connection; None if none was sent since `moment`.

        Only if one request is made at a time and all data sent is requests: HTTP/2 has other frames, and requests to
        many sites go through a proxy.
        """
        if self.speaks_http2 or self.key[2] is not None:
            return None
        for end in self._ends:
            ago = sent_times.seconds_since_known(end)
            if ago is not None and time.monotonic() - ago >= moment - TICK:
                return ago
        return None

    def leaves_standing(self, origin: _Origin) -> None:
        if len(self._idle) >= _MAX_ORIGINS:
            self._idle.clear()
        self._idle[origin] = (self._idle.get(origin, (0, 0.0))[0] + 1, time.monotonic())


class Clients:
    """Of `ssl_context` only the trusted authorities are used, and whether it verifies certificates at all."""

    def __init__(
        self, guard: AddressGuard, keep_alive: timedelta, ssl_context: ssl.SSLContext | None, most: int = MAX_CLIENTS
    ) -> None:
        self._guard = guard
        self._most = most
        self._keep_alive = keep_alive
        self._ssl = ssl_context
        self._resolver: GuardedResolver | None = None
        self._runtime: wreq.Runtime | None = None
        self._trust: bool | wreq.CertStore = True
        self._relay: GuardProxy | None = None  # opened on demand
        self._opening = asyncio.Lock()
        self._clients: OrderedDict[_Key, IdentityClient] = OrderedDict()
        self.sent_times = SentTimes()

    @property
    def are_open(self) -> bool:
        return self._resolver is not None

    async def open(self) -> None:
        """Raises MissingExtra."""
        wreq = library()
        context = self._ssl if self._ssl is not None else await asyncio.to_thread(ssl.create_default_context)
        authorities = context.get_ca_certs(binary_form=True)
        if context.verify_mode == ssl.CERT_NONE:
            self._trust = False
        elif authorities:  # else wreq's own list
            self._trust = wreq.CertStore.from_der_certs(authorities)
        self._runtime = wreq.Runtime(workers=1, thread_name="gossamer-wreq")
        self._resolver = GuardedResolver(self._guard)

    async def close(self) -> None:
        resolver, relay, clients = self._resolver, self._relay, tuple(self._clients.values())
        self._resolver = self._runtime = self._relay = None
        self._clients.clear()
        for client in clients:
            client.driver.close()
        if relay is not None:
            await relay.__aexit__(None, None, None)
        if resolver is not None:
            await resolver.close()

    async def client_for(
        self, host: str, profile: Profile | None, proxy: Proxy | None, limits: Limits
    ) -> IdentityClient:
        assert self._resolver is not None
        name, target = host, host
        if proxy is None:
            addresses = await self._addresses(host, limits)
        else:
            target = await check_target(proxy, host, self._guard, self._resolver, limits.connect)
            addresses = await addresses_of(proxy, self._guard, self._resolver, limits.connect)
            name = "" if target == host else f"{host} at {target}"
        key = (profile.name if profile else "", name, proxy, limits.connect, limits.max_header)
        client = self._clients.get(key)
        # Big sites return other addresses each time. The old ones were checked, and stay valid while one of them
        # recurs.
        if client is None or client.addresses.isdisjoint(addresses):
            way, relay = proxy, None
            names = {proxy.host if proxy else host: addresses}
            if proxy is not None and target != host:
                if proxy.scheme == "socks5":
                    names[host] = (target,)
                else:
                    way, relay = await self._relayed(proxy, limits)
            driver = self._made(names, profile, way, limits, named=target == host)
            client = self._clients[key] = IdentityClient(driver, key, frozenset(addresses), self._keep_alive, relay)
            if relay is not None and self._relay is not None:
                # Runs when neither we nor a running request hold the client any more.
                weakref.finalize(client, self._relay.withdraw, relay).atexit = False
            while len(self._clients) > self._most:
                self._clients.popitem(last=False)  # not closed: a request may be using it
        self._clients.move_to_end(key)
        return client

    async def _relayed(self, proxy: Proxy, limits: Limits) -> tuple[Proxy, Pass]:
        """The proxy that leads to the proxy through the relay, which asks the proxy for addresses only, never for
        names."""
        async with self._opening:
            if self._relay is None:
                self._relay = await GuardProxy(self._guard, tls=self._ssl).__aenter__()
        relay = self._relay.admit(proxy, connect=limits.connect)
        way = msgspec.structs.replace(
            proxy,
            scheme="http",
            host="127.0.0.1",
            port=self._relay.port,
            username=relay.username,
            password=relay.password,
        )
        return way, relay

    async def knock(self, proxy: Proxy, limits: Limits) -> None:
        """Return when the proxy lets us in. Raises ProxyFailed."""
        assert self._resolver is not None
        await knock(proxy, self._guard, self._resolver, limits.connect, self._ssl)

    def forget(self, client: IdentityClient) -> None:
        if self._clients.get(client.key) is client:
            del self._clients[client.key]

    async def _addresses(self, host: str, limits: Limits) -> tuple[str, ...]:
        assert self._resolver is not None
        if is_literal(host):
            self._guard.check(host, host)
            return (host,)
        try:
            async with asyncio.timeout(limits.connect.total_seconds()):
                found = await self._resolver.resolve(host)
        except TimeoutError:
            raise TimedOut(f"{host}: no address within {limits.connect.total_seconds():g} s.") from None
        return tuple(one["host"] for one in found)

    def _made(
        self,
        hosts: dict[str, tuple[str, ...]],
        profile: Profile | None,
        proxy: Proxy | None,
        limits: Limits,
        *,
        named: bool,
    ) -> Any:  # wreq.Client
        """A client that has `hosts` bound to these addresses. `named`: the proxy is given the target's name."""
        wreq = library()
        names = wreq.DnsOptions(system_dns=True)
        for host, addresses in hosts.items():
            if not is_literal(host):
                # wreq compares names case-sensitively: impersonate.py always asks for lower case.
                names.add_resolve(host.lower(), [ip_address(address) for address in addresses])
        options: dict[str, Any] = {}
        if profile is not None:
            emulation, platform = getattr(wreq.Profile, profile.emulation), getattr(wreq.Platform, profile.platform)
            options["emulation"] = wreq.Emulation(emulation, platform)
        if proxy is None:
            options["no_proxy"] = True  # not even from the environment
        else:
            address = proxy.address.lower()
            if named:
                address = address.replace("socks5://", "socks5h://")  # "h": the proxy looks up the name
            if proxy.username or proxy.password:
                # In the URL, where wreq decodes percent codes exactly once for every scheme.
                login = f"{quote(proxy.username, safe='')}:{quote(proxy.password, safe='')}"
                address = address.replace("://", f"://{login}@", 1)
            options["proxies"] = [wreq.Proxy.all(address)]
        return wreq.Client(
            runtime=self._runtime,
            dns_options=names,
            redirect=wreq.redirect.Policy.none(),
            referer=False,
            connect_timeout=limits.connect,
            pool_idle_timeout=self._keep_alive,
            http1_options=wreq.Http1Options(
                max_headers=MAX_HEADERS, max_buf_size=max(_LEAST_BUFFER, limits.max_header)
            ),
            tls_verify=self._trust,
            gzip=False,  # body.py decodes, within limits
            brotli=False,
            deflate=False,
            zstd=False,
            **options,
        )
