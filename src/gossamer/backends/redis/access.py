"""Access over HTTP, on Redis. Fulfils `KeyBook`, `AnswerBook` and `AuditLog`."""

from __future__ import annotations

import msgspec

from ...access.contract import LINES_KEPT, ApiKey, AuditLine, StoredAnswer
from .connection import Server
from .keys import Keyspace

BATCH = 1000  # lines of the audit log in memory while searching for those of one key


class RedisKeys:
    """Use and revocation times are stored beside the key, so that no write of one undoes the other."""

    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys, self._used, self._revoked = (keys.book(name) for name in ("keys", "keys-used", "keys-revoked"))

    async def add(self, key: ApiKey) -> bool:
        return bool(await self._server.call("HSETNX", self._keys, key.id, msgspec.json.encode(key)))

    async def key(self, id: str) -> ApiKey | None:
        names = (self._keys, self._revoked, self._used)
        text, revoked, used = await self._server.together([("HGET", name, id) for name in names])
        return _key(text, revoked, used) if text else None

    async def keys(self) -> list[ApiKey]:
        stored = await self._server.fields(self._keys)
        revoked, used = await self._server.fields(self._revoked), await self._server.fields(self._used)
        found = [_key(text, revoked.get(id), used.get(id)) for id, text in stored.items()]
        return sorted(found, key=lambda key: (key.created_at, key.id))

    async def revoke(self, id: str, at: float) -> bool:
        return bool(await self._server.run("revoke_key", (self._keys, self._revoked), id, repr(at)))

    async def note_use(self, id: str, at: float) -> None:
        await self._server.call("HSET", self._used, id, repr(at))


def _key(text: bytes, revoked: bytes | None, used: bytes | None) -> ApiKey:
    key = msgspec.json.decode(text, type=ApiKey)
    return msgspec.structs.replace(
        key,
        revoked_at=float(revoked) if revoked is not None else key.revoked_at,
        used_at=float(used) if used is not None else key.used_at,
    )


class RedisAnswers:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def claim(self, name: str, digest: str, seconds: float) -> StoredAnswer | None:
        known = await self._server.run("claim_answer", (self._key(name),), self._server.now(), digest, repr(seconds))
        return None if known is None else _answer(known)

    async def answer(self, name: str) -> StoredAnswer | None:
        known = await self._server.call("HMGET", self._key(name), "until", "digest", "status", "body")
        return _answer(known) if known[0] and float(known[0]) > await self._server.time() else None

    async def keep(self, name: str, answer: StoredAnswer, seconds: float) -> None:
        await self._server.run(
            "keep_answer",
            (self._key(name),),
            self._server.now(),
            answer.digest,
            answer.status,
            answer.body,
            repr(seconds),
        )

    async def release(self, name: str) -> None:
        await self._server.call("DEL", self._key(name))

    def _key(self, name: str) -> str:
        return self._keys.book(f"answer:{name}")


def _answer(known: list[bytes]) -> StoredAnswer:
    """`known`: when it expires, its digest, its status and its body."""
    return StoredAnswer(digest=known[1].decode(), status=int(known[2]), body=known[3])


class RedisAudit:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("audit")

    async def note(self, line: AuditLine) -> None:
        length = await self._server.call("LPUSH", self._key, msgspec.json.encode(line))
        if length > LINES_KEPT:
            await self._server.call("LTRIM", self._key, 0, LINES_KEPT - 1)

    async def lines(self, limit: int, *, key: str | None = None) -> list[AuditLine]:
        found: list[AuditLine] = []
        for start in range(0, LINES_KEPT, BATCH):
            texts = await self._server.call("LRANGE", self._key, start, start + BATCH - 1)
            lines = [msgspec.json.decode(text, type=AuditLine) for text in texts]
            found += [line for line in lines if key is None or line.key == key]
            if len(found) >= limit or len(texts) < BATCH:
                break
        return found[:limit]
