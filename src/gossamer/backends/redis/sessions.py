"""Sessions, on Redis. Fulfils `SessionBook`; see lua/*_session.lua. fetch/sessions.py has the rules.

A change is computed here and written if the session is unchanged since it was read; otherwise it is computed again. All
sessions of a project are in one slot: each page of a session reads at most once a second, and writes when a cookie has
changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...errors import BackendUnavailable
from ...fetch.sessions import MOST_SESSIONS, Change, changed
from ...model.session import KeptSession
from .connection import Server
from .keys import Keyspace

TRIES = 200  # of a change that others get ahead of; each time at least one of them succeeded

read_session = msgspec.msgpack.Decoder(KeptSession).decode


class RedisSessions:
    def __init__(self, server: Server, keys: Keyspace) -> None:
        self._server = server
        self._key = keys.book("kept-sessions")
        self._used = keys.book("kept-sessions-used")

    async def session(self, name: str) -> KeptSession | None:
        packed = await self._server.call("HGET", self._key, name)
        return read_session(packed) if packed else None

    async def sessions(self) -> list[KeptSession]:
        found = {name: read_session(packed) async for name, packed in self._server.scan(self._key)}
        return sorted(found.values(), key=lambda one: one.name)

    async def change(self, name: str, change: Change) -> KeptSession:
        for _ in range(TRIES):
            known, now = await self._server.run("read_session", (self._key,), self._server.now(), name)
            before = read_session(known) if known else KeptSession(name=name)
            new = changed(before, change, float(now))
            if new is before or await self._write(new, known or b""):
                return new
        raise BackendUnavailable(f"The session {name} cannot be changed: other workers keep changing it.")

    async def add(self, session: KeptSession) -> None:
        """Store it, unless there is one of that name."""
        await self._write(session, b"")

    async def forget(self, names: Sequence[str]) -> int:
        if not names:
            return 0
        await self._server.call("ZREM", self._used, *names)
        return int(await self._server.call("HDEL", self._key, *names))

    async def forget_unused(self, since: float) -> int:
        names: list[Any] = await self._server.call("ZRANGEBYSCORE", self._used, "-inf", f"({since!r}")
        return await self.forget(names)

    async def _write(self, session: KeptSession, known: bytes) -> bool:
        packed = msgspec.msgpack.encode(session)
        used = repr(session.used_at)
        return bool(
            await self._server.run(
                "write_session", (self._key, self._used), session.name, known, packed, used, MOST_SESSIONS
            )
        )
