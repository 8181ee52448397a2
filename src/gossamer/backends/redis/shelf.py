"""The shelf on Redis. Fulfils `Shelf`; lua/shelf_commit.lua writes, and says how a row is packed.

All kinds are in one slot of a cluster, so that one commit may change several.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from math import isnan, nan

from ...errors import LeaseLost
from ...model.schedule import Term
from ...model.shelf import Change, DropRow, Put, ShelfRow, Trim
from .connection import Server
from .keys import Keyspace

STAMP = 8  # bytes
HEAD = struct.Struct(f">{STAMP}sdd")  # stands before the value: stamp, when it ends, the time by which it is listed
IDS_AT_ONCE = 5000
ANY = b"*"


class RedisShelf:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._keys = keys

    async def get(self, kind: str, key: str) -> ShelfRow | None:
        found = await self._rows(kind, [key.encode()])
        return found[0] if found else None

    async def rows(self, kind: str) -> AsyncIterator[ShelfRow]:
        now = await self._server.time()
        async for key, packed in self._server.scan(self.key_of(kind)):
            if (row := unpack_row(key, packed)).until is None or row.until > now:
                yield row

    async def timed(
        self,
        kind: str,
        *,
        after: float | None = None,
        until: float | None = None,
        limit: int,
        newest: bool = False,
        prefix: str = "",
        each: int | None = None,
        group: int = 0,
    ) -> list[ShelfRow]:
        earliest = "-inf" if after is None else f"({after!r}"
        latest = "+inf" if until is None else repr(until)
        verb, ends = ("ZREVRANGEBYSCORE", (latest, earliest)) if newest else ("ZRANGEBYSCORE", (earliest, latest))
        begin, found = prefix.encode(), list[ShelfRow]()
        taken: Counter[str] = Counter()
        start = 0
        chooses = bool(begin) or each is not None
        while len(found) < limit:
            size = IDS_AT_ONCE if chooses else limit - len(found)
            keys = await self._server.call(verb, self._times(kind), *ends, "LIMIT", start, size)
            chosen: list[bytes] = []
            for key in keys:
                name = key.decode()[:group]
                if key.startswith(begin) and (each is None or taken[name] < each):
                    taken[name] += 1
                    chosen.append(key)
            found += await self._rows(kind, chosen[: limit - len(found)])
            start += len(keys)
            if len(keys) < size:
                break
        return found

    async def count(self, kind: str) -> int:
        return int(await self._server.call("HLEN", self.key_of(kind)))

    async def time(self) -> float:
        return await self._server.time()

    async def commit(self, changes: Sequence[Change], term: Term | None = None) -> bool:
        kinds = list(dict.fromkeys(change.kind for change in changes))
        keys = [self._keys.book("leader")]
        for kind in kinds:
            keys += self._of(kind)
        words: list[str | bytes | int] = []
        for change in changes:
            words += _words(change, kinds.index(change.kind))
        leader, token = ("", "") if term is None else (term.leader, term.token)
        done = await self._server.run("shelf_commit", keys, self._server.now(), leader, token, *words)
        if done == -1:
            raise LeaseLost(f"{leader} does not lead the schedulers any more; nothing was changed.")
        return bool(done)

    async def clear(self, kinds: Sequence[str]) -> None:
        """Delete every row of these kinds."""
        for kind in kinds:
            await self._server.call("UNLINK", *self._of(kind))

    async def _rows(self, kind: str, keys: Sequence[bytes]) -> list[ShelfRow]:
        """The rows of these keys that have not expired, in this order."""
        if not keys:
            return []
        packed = await self._server.call("HMGET", self.key_of(kind), *keys)
        found = [unpack_row(key, row) for key, row in zip(keys, packed, strict=True) if row is not None]
        if all(row.until is None for row in found):
            return found
        now = await self._server.time()
        return [row for row in found if row.until is None or row.until > now]

    def _of(self, kind: str) -> tuple[str, str, str]:
        return self.key_of(kind), self._times(kind), self.key_of(f"{kind}:until")

    def key_of(self, kind: str) -> str:
        """The hash with the rows of a kind."""
        return self._keys.book(f"shelf:{kind}")

    def _times(self, kind: str) -> str:
        return self.key_of(f"{kind}:at")


def unpack_row(key: bytes, packed: bytes) -> ShelfRow:
    stamp, until, at = HEAD.unpack_from(packed)
    value = packed[HEAD.size :]
    return ShelfRow(key=key.decode(), value=value, stamp=stamp, at=None if isnan(at) else at, until=until or None)


def _words(change: Change, kind: int) -> tuple[str | bytes | int, ...]:
    """The six words of a change, as the script reads them."""
    match change:
        case Put():
            time = nan if change.at is None else change.at
            packed = HEAD.pack(os.urandom(STAMP), change.until or 0.0, time) + change.value
            at = "" if change.at is None else repr(change.at)
            return "put", kind, change.key, ANY if change.expects is None else change.expects, packed, at
        case DropRow():
            return "drop", kind, change.key, ANY if change.expects is None else change.expects, b"", ""
        case Trim():
            return "trim", kind, str(change.keep), ANY, b"", ""
