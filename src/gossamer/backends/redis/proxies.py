"""Health of proxies, on Redis. Fulfils `ProxyBook`; see lua/proxies_*.lua. All keys are in one slot.

A worker reports every half second and asks for changes every second; neither grows with its pages.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from ...routing.proxies.contract import ProxyAtSite, ProxyHealth, ProxyReport, Renewal, RestTerms
from ...routing.proxies.health import (
    DECAY,
    EASE,
    FAILURE_CAP,
    FORGOTTEN,
    KEPT_AT_SITE,
    MAX_STRIKES,
    REMEMBERED,
    RENEWED,
)
from .connection import Server
from .keys import Keyspace

AT_ONCE = 1_000
_FIGURES = (  # fields of ProxyHealth, in the order of the stored rows
    "tries", "successes", "failures", "bans", "bytes", "credits", "latency", "score", "run", "strikes", "rest_until",
    "changed_at",
)  # fmt: skip
_ROW = struct.Struct(f">{len(_FIGURES)}d")
_AT_SITE = struct.Struct(">4d")  # run, strikes, rest_until, changed_at


class RedisProxyBook:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys
        self._pools = keys.book("pools")

    async def report(self, pool: str, reports: Sequence[ProxyReport], terms: RestTerms) -> None:
        packed = [
            (one.proxy, one.outcome.value, one.times, one.seconds, one.bytes, one.credits, one.words, one.site)
            for one in reports
        ]
        names = ("proxies", "proxies-changed", "proxy-sites", "proxy-sites-changed")
        await self._server.run(
            "proxies_report",
            (*(self._of_pool(name, pool) for name in names), self._pools),
            self._server.now(),
            pool,
            terms.cooldown,
            terms.max_cooldown,
            FAILURE_CAP,
            terms.patience,
            int(terms.bans_rest),
            DECAY,
            EASE,
            MAX_STRIKES,
            FORGOTTEN,
            msgspec.msgpack.encode(packed),
            max(KEPT_AT_SITE, terms.max_cooldown),
        )

    async def health(self, pool: str, since: float = 0.0) -> list[ProxyHealth]:
        rows = await self._changed("proxies", pool, since)
        return sorted((_health(name.decode(), row) for name, row in rows), key=lambda one: one.name)

    async def at_sites(self, pool: str, since: float = 0.0) -> list[ProxyAtSite]:
        rows = await self._changed("proxy-sites", pool, since)
        return sorted((_at_site(name, row) for name, row in rows), key=lambda one: (one.site, one.name))

    async def remember(self, uses: Sequence[tuple[bytes, str]]) -> None:
        pages: dict[bytes, list[str]] = {}
        for fingerprint, name in uses:
            pages.setdefault(fingerprint, []).append(name)
        for fingerprint, names in pages.items():
            await self._server.run(
                "proxies_use", (self._of_page(fingerprint),), self._server.now(), int(REMEMBERED), *names
            )

    async def used(self, fingerprint: bytes) -> tuple[str, ...]:
        key = self._of_page(fingerprint)
        names = await self._server.run("proxies_use", (key,), self._server.now(), int(REMEMBERED))
        return tuple(sorted(name.decode() for name in names))

    async def renew(self, pool: str, session: str, seen: int) -> int:
        keys = (self._of_pool("sessions", pool), self._of_pool("sessions-changed", pool))
        return int(await self._server.run("proxies_renew", keys, self._server.now(), session, seen, RENEWED))

    async def renewals(self, pool: str, since: float = 0.0) -> list[Renewal]:
        since = max(since, await self._server.time() - RENEWED)
        words = await self._server.call(
            "ZRANGEBYSCORE", self._of_pool("sessions-changed", pool), repr(since), "+inf", "WITHSCORES"
        )
        pairs = [(words[at], float(words[at + 1])) for at in range(0, len(words), 2)]
        found = []
        for at in range(0, len(pairs), AT_ONCE):
            some = pairs[at : at + AT_ONCE]
            numbers = await self._server.call("HMGET", self._of_pool("sessions", pool), *(name for name, _ in some))
            found += [
                Renewal(session=name.decode(), generation=int(number), changed_at=changed_at)
                for (name, changed_at), number in zip(some, numbers, strict=True)
                if number is not None
            ]
        return sorted(found, key=lambda one: one.session)

    async def reset(self, pool: str | None = None) -> int:
        known = [] if pool is not None else await self._server.call("SMEMBERS", self._pools)
        count = 0
        for name in [pool] if pool is not None else [name.decode() for name in known]:
            count += int(await self._server.call("HLEN", self._of_pool("proxies", name)))
            kinds = ("proxies", "proxies-changed", "proxy-sites", "proxy-sites-changed")
            await self._server.call("UNLINK", *(self._of_pool(kind, name) for kind in kinds))
        return count

    async def _changed(self, what: str, pool: str, since: float) -> list[tuple[bytes, bytes]]:
        """The rows that have changed since then, each with its name."""
        changed = self._of_pool(f"{what}-changed", pool)
        names = await self._server.call("ZRANGEBYSCORE", changed, repr(since), "+inf")
        found = []
        for at in range(0, len(names), AT_ONCE):
            some = names[at : at + AT_ONCE]
            rows = await self._server.call("HMGET", self._of_pool(what, pool), *some)
            found += [(name, row) for name, row in zip(some, rows, strict=True) if row is not None]
        return found

    def _of_pool(self, what: str, pool: str) -> str:
        return self._keys.book(f"{what}:{pool}")

    def _of_page(self, fingerprint: bytes) -> str:
        return self._keys.book(f"used:{fingerprint.hex()}")


def _health(name: str, packed: bytes) -> ProxyHealth:
    """A proxy's row as lua/proxies_report.lua packs it. A latency below zero means that none has been measured."""
    figures = dict(zip(_FIGURES, _ROW.unpack_from(packed), strict=True))
    if figures["latency"] < 0:
        figures["latency"] = None
    last_error = packed[_ROW.size :].decode("utf-8", "replace")
    return msgspec.convert({**figures, "name": name, "last_error": last_error}, ProxyHealth, strict=False)


def _at_site(key: bytes, packed: bytes) -> ProxyAtSite:
    """A proxy at a site as lua/proxies_report.lua packs it."""
    name, _, site = key.decode().partition("\0")
    run, strikes, rest_until, changed_at = _AT_SITE.unpack(packed)
    return ProxyAtSite(
        name=name, site=site, run=int(run), strikes=int(strikes), rest_until=rest_until, changed_at=changed_at
    )
