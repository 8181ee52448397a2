"""Heartbeats of workers, on Redis. Fulfils `WorkerBook`."""

from __future__ import annotations

import msgspec

from ...clock import ServerClock
from ...errors import BadState
from ...frontier.contract import WorkerCard
from .connection import Server
from .keys import Keyspace

FORMAT = 1  # of a state on Redis


def check_format(format: int, where: str) -> None:
    """Raises BadState for a format newer than this version."""
    if format > FORMAT:
        raise BadState(
            f"The state of {where} was written by a newer Gossamer (format {format}, this one knows {FORMAT}). "
            "Upgrade this one, or use another project name."
        )


class RedisWorkers:
    def __init__(self, server: Server, keys: Keyspace, clock: ServerClock | None = None) -> None:
        self._clock = clock
        self._server = server
        self._key = keys.book("workers")
        self._drains = keys.book("drains")
        self._book = keys.book("book")

    async def beat(self, card: WorkerCard) -> bool:
        await self.check_format()
        if self._clock is not None:  # the server's clock may have been set, and this machine may have slept
            asked_at = self._clock.monotonic()
            self._clock.correct(await self._server.time(), asked_at)
        await self._server.call("HSET", self._key, card.name, msgspec.json.encode(card))
        return bool(await self._server.call("HEXISTS", self._drains, card.name))

    async def check_format(self) -> None:
        format = await self._server.call("HGET", self._book, "format")
        if format is not None:
            check_format(int(format), f"this project at {self._server.where}")

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
