"""The outbox of callbacks, on Redis. Fulfils `CallbackBook`. lua/keep_callback.lua writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from ...access.contract import CALLBACKS_KEPT, RECEIVER, Callback, CallbackSecret, CallbackState
from .connection import Server
from .keys import Keyspace

Secrets = tuple[CallbackSecret, ...]
IDS_AT_ONCE = 5000
CALLBACK_KEYS = ("callbacks", "callbacks-open", "callbacks-ended")


class RedisCallbacks:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = tuple(keys.book(name) for name in CALLBACK_KEYS)
        self._callbacks, self._open, self._ended = self._keys
        self._secrets = keys.book("callback-secrets")

    async def enter(self, callback: Callback) -> bool:
        return await self._keep(callback, new=True)

    async def keep(self, callback: Callback) -> None:
        await self._keep(callback, new=False)

    async def _keep(self, callback: Callback, *, new: bool) -> bool:
        at = callback.next_at if callback.state.open else callback.ended_at or 0.0
        if callback.state is CallbackState.WAITING:
            at = 0.0
        text = msgspec.json.encode(callback)
        is_open = int(callback.state.open)
        done = await self._server.run(
            "keep_callback", self._keys, callback.id, text, is_open, repr(at), int(new), CALLBACKS_KEPT
        )
        return bool(done)

    async def callback(self, id: str) -> Callback | None:
        text = await self._server.call("HGET", self._callbacks, id)
        return msgspec.json.decode(text, type=Callback) if text else None

    async def waiting(self, limit: int) -> list[Callback]:
        return await self._some(await self._server.call("ZRANGEBYSCORE", self._open, 0, 0, "LIMIT", 0, limit))

    async def due(self, until: float, limit: int, each: int | None = None) -> list[Callback]:
        if each is None:
            return await self._some(await self._due_ids(until, 0, limit))
        chosen: list[bytes] = []
        taken: Counter[bytes] = Counter()
        start = 0
        while len(chosen) < limit and (ids := await self._due_ids(until, start, IDS_AT_ONCE)):
            for id in ids:
                taken[id[:RECEIVER]] += 1
                if taken[id[:RECEIVER]] <= each:
                    chosen.append(id)
            start += len(ids)
        return await self._some(chosen[:limit])

    async def _due_ids(self, until: float, start: int, limit: int) -> Sequence[bytes]:
        found: Sequence[bytes] = await self._server.call(
            "ZRANGEBYSCORE", self._open, "(0", repr(until), "LIMIT", start, limit
        )
        return found

    async def ended(self, limit: int) -> list[Callback]:
        return await self._some(await self._server.call("ZREVRANGE", self._ended, 0, limit - 1))

    async def pending(self) -> int:
        return int(await self._server.call("ZCARD", self._open))

    async def _some(self, ids: Sequence[bytes]) -> list[Callback]:
        if not ids:
            return []
        texts = await self._server.call("HMGET", self._callbacks, *ids)
        return [msgspec.json.decode(text, type=Callback) for text in texts if text]

    async def everything(self) -> list[Callback]:
        """Every callback, open or finished, unordered."""
        found = await self._server.fields(self._callbacks)
        return [msgspec.json.decode(text, type=Callback) for text in found.values()]

    async def secrets(self, owner: str) -> Secrets:
        text = await self._server.call("HGET", self._secrets, owner)
        return msgspec.json.decode(text, type=Secrets) if text else ()

    async def enter_secrets(self, owner: str, secrets: Secrets) -> bool:
        return bool(await self._server.call("HSETNX", self._secrets, owner, msgspec.json.encode(secrets)))

    async def keep_secrets(self, owner: str, secrets: Secrets) -> None:
        await self._server.call("HSET", self._secrets, owner, msgspec.json.encode(secrets))

    async def all_secrets(self) -> list[tuple[str, Secrets]]:
        found = await self._server.fields(self._secrets)
        return [(owner.decode(), msgspec.json.decode(text, type=Secrets)) for owner, text in found.items()]
