"""Who reads the source of a job, on Redis. Fulfils `SowBook`. Time is the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from ...frontier.contract import Sown
from .connection import Server
from .keys import Keyspace


class RedisSowings:
    """`time` replaces the server's clock in tests."""

    def __init__(self, server: Server, keys: Keyspace, time: Callable[[], float] | None) -> None:
        self._server = server
        self._time = time
        self._keys = (keys.book("sowing"), keys.book("sown"), keys.book("troubles"))

    async def sow(self, job: str, sower: str, duration: timedelta) -> bool:
        return bool(await self._server.run("sow", self._keys, self._now(), "sow", job, sower, duration.total_seconds()))

    async def rest(self, job: str, sower: str) -> None:
        await self._server.run("sow", self._keys, self._now(), "rest", job, sower)

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        lines = "".join(f"{site}\n" for site in sites)
        await self._server.run("sow", self._keys, self._now(), "note", job, lines, trouble)

    async def sown(self, job: str) -> Sown:
        _, sites, troubles = self._keys
        lines, trouble = await self._server.call("HGET", sites, job), await self._server.call("HGET", troubles, job)
        return Sown(frozenset((lines or b"").decode().splitlines()), (trouble or b"").decode())

    def _now(self) -> str:
        return "" if self._time is None else repr(self._time())
