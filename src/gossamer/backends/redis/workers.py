"""Heartbeats of workers, on Redis. Fulfils `WorkerBook`."""

from __future__ import annotations

import msgspec

from ...frontier.contract import WorkerCard
from .connection import Server
from .keys import Keyspace


class RedisWorkers:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("workers")
        self._drains = keys.book("drains")

    async def beat(self, card: WorkerCard) -> bool:
        await self._server.call("HSET", self._key, card.name, msgspec.json.encode(card))
        return bool(await self._server.call("HEXISTS", self._drains, card.name))

    async def ask_to_drain(self, name: str) -> bool:
        if not await self._server.call("HEXISTS", self._key, name):
            return False
        await self._server.call("HSET", self._drains, name, 1)
        return True

    async def sign_off(self, name: str) -> None:
        await self._server.call("HDEL", self._key, name)
        await self._server.call("HDEL", self._drains, name)

    async def workers(self) -> list[WorkerCard]:
        cards = [msgspec.json.decode(text, type=WorkerCard) for text in await self._server.call("HVALS", self._key)]
        return sorted(cards, key=lambda card: card.name)

    async def forget(self, before: float) -> int:
        faded = [card.name for card in await self.workers() if card.seen_at < before]
        if not faded:
            return 0
        await self._server.call("HDEL", self._drains, *faded)
        return int(await self._server.call("HDEL", self._key, *faded))
