"""Learned routes, budgets and robots.txt, on Redis. Fulfils `RouteBook`, `BudgetBook` and `RobotsShelf`; see
lua/routes_*.lua.

Both are in one slot. A worker reads them rarely: for a site that blocks, and for requests that cost credits.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Sequence

import msgspec

from ...fetch.robots_shelf import RobotsEntry
from ...model.url import site_of
from ...routing.contract import MOST_PATTERNS, Bound, LearnedRoute
from ..budget_units import credits_in, days_before, units_allowed, units_to_give, units_to_take
from .connection import Server
from .keys import Keyspace

AT_ONCE = 1_000
ROBOTS_KEPT = 7 * 24 * 3600  # seconds after robots.txt was stored

_decode = msgspec.json.Decoder(list[LearnedRoute]).decode


def _read(packed: bytes | None) -> list[LearnedRoute]:
    """The routes of a site, by pattern."""
    return _decode(packed) if packed else []


class RedisRouteBook:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("learned_routes")

    async def learned(self, site: str) -> list[LearnedRoute]:
        return _read(await self._server.call("HGET", self._key, site))

    async def learn(self, learned: LearnedRoute, *, instead_of: LearnedRoute | None) -> bool:
        # Compared here, and again as bytes by the script: bytes that another version has written, with other fields,
        # may mean the same. If another pattern of the site was written in between, it is compared anew.
        while True:
            known = await self._server.call("HGET", self._key, learned.site) or b""
            rows = {row.pattern: row for row in _read(known)}
            if rows.get(learned.pattern) != instead_of:
                return False
            rows[learned.pattern] = learned
            kept = sorted(rows.values(), key=lambda row: (-row.since, row.pattern))[:MOST_PATTERNS]
            new = msgspec.json.encode(sorted(kept, key=lambda row: row.pattern))
            if await self._server.run("routes_learn", (self._key,), learned.site, known, new):
                return True

    async def learned_routes(self, limit: int = 1000) -> list[LearnedRoute]:
        every = {(one.site, one.pattern): one async for one in self.walk()}
        return heapq.nsmallest(limit, every.values(), key=lambda one: (-one.since, one.site, one.pattern))

    async def forget(self, site: str | None = None) -> int:
        if site is None:
            return int(await self._server.run("routes_forget", (self._key,)))
        return int(await self._server.call("HDEL", self._key, site))

    async def walk(self) -> AsyncIterator[LearnedRoute]:
        """Every learned route; one may come twice while they change."""
        async for _, packed in self._server.scan(self._key, AT_ONCE):
            for one in _read(packed):
                yield one


class RedisBudgetBook:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("budgets")

    async def take(self, credits: float, bounds: Sequence[Bound]) -> str | None:
        units = units_to_take(credits)
        words: list[str | int] = []
        for bound in bounds:
            room = units_allowed(bound.limit) - units
            words += [bound.budget, room if room >= 0 else ""]
        if not units or not words:
            return None
        place = int(await self._server.run("routes_take", (self._key,), units, *words))
        return bounds[place - 1].budget if place else None

    async def give_back(self, credits: float, budgets: Sequence[str]) -> None:
        units = units_to_give(credits)
        if units and budgets:
            await self._server.run("routes_give_back", (self._key,), units, *dict.fromkeys(budgets))

    async def spent(self) -> dict[str, float]:
        return {name: credits_in(units) for name, units in sorted((await self.units()).items())}

    async def units(self) -> dict[str, int]:
        """Every budget, in billionths of a token."""
        return {name.decode(): int(units) for name, units in (await self._server.fields(self._key)).items()}

    async def forget_budgets(self, before: str) -> int:
        old = days_before(await self.units(), before)
        return int(await self._server.call("HDEL", self._key, *old)) if old else 0


class RedisRobotsShelf:
    """robots.txt as it was last read, shared by all workers."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def get(self, origin: str) -> RobotsEntry | None:
        packed = await self._server.call("GET", self._key(origin))
        return msgspec.msgpack.decode(packed, type=RobotsEntry) if packed else None

    async def put(self, entry: RobotsEntry) -> None:
        packed = msgspec.msgpack.encode(entry)
        await self._server.call("SET", self._key(entry.origin), packed, "EX", ROBOTS_KEPT)

    def _key(self, origin: str) -> str:
        return self._keys.in_shard(self._keys.shard_of(site_of(f"{origin}/")), f"robots:{origin}")
