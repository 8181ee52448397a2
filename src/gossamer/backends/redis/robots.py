"""robots.txt as it was last read, on Redis: shared by all workers, deleted a week after it was stored."""

from __future__ import annotations

import msgspec

from ...fetch.robots_shelf import RobotsEntry
from ...model.url import site_of
from .connection import Server
from .keys import Keyspace

KEPT = 7 * 24 * 3600  # seconds


class RedisRobotsShelf:
    """Fulfils `RobotsShelf`."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def get(self, origin: str) -> RobotsEntry | None:
        packed = await self._server.call("GET", self._key(origin))
        return msgspec.msgpack.decode(packed, type=RobotsEntry) if packed else None

    async def put(self, entry: RobotsEntry) -> None:
        packed = msgspec.msgpack.encode(entry)
        await self._server.call("SET", self._key(entry.origin), packed, "EX", KEPT)

    def _key(self, origin: str) -> str:
        return self._keys.in_shard(self._keys.shard_of(site_of(f"{origin}/")), f"robots:{origin}")
