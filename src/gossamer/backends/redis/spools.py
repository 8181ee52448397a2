"""Notes of results that wait on the disks of workers, in the key `spools` of the book. Fulfils `SpoolBook`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ...store.contract import SpoolNote
from .connection import Server
from .keys import Keyspace


class RedisSpools:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("spools")

    async def note(self, note: SpoolNote) -> None:
        await self._server.call("HSET", self._key, note.name, msgspec.json.encode(note))

    async def give_up(self, name: str) -> SpoolNote | None:
        text = await self._server.run("give_up_spool", (self._key,), name)
        return msgspec.json.decode(text, type=SpoolNote) if text else None

    async def take_away(self, names: Sequence[str]) -> None:
        if names:
            await self._server.call("HDEL", self._key, *names)

    async def notes(self) -> list[SpoolNote]:
        texts = await self._server.call("HVALS", self._key)
        return sorted((msgspec.json.decode(text, type=SpoolNote) for text in texts), key=lambda note: note.name)
