"""Who reads the source of a job, on Redis. Fulfils `SeedBook`. Time is the server's clock."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta

from ...frontier.contract import SeedFindings
from .connection import Server
from .keys import Keyspace

AT_ONCE = 1_000  # sites


class RedisSeedBook:
    """`time` replaces the server's clock in tests."""

    def __init__(self, server: Server, keys: Keyspace, time: Callable[[], float] | None) -> None:
        self._server = server
        self._time = time
        self._book = keys.book

    async def claim(self, job: str, worker: str, duration: timedelta) -> bool:
        return bool(
            await self._server.run("sow", self._keys(job), self._now(), "sow", job, worker, duration.total_seconds())
        )

    async def release(self, job: str, worker: str) -> None:
        await self._server.run("sow", self._keys(job), self._now(), "rest", job, worker)

    async def note(self, job: str, sites: Iterable[str], trouble: str = "") -> None:
        named = list(sites)
        for start in range(0, max(len(named), 1), AT_ONCE):
            part = named[start : start + AT_ONCE]
            await self._server.run("sow", self._keys(job), self._now(), "note", job, trouble, *part)

    async def findings(self, job: str) -> SeedFindings:
        _, sites, troubles = self._keys(job)
        found, trouble = await self._server.call("SMEMBERS", sites), await self._server.call("HGET", troubles, job)
        return SeedFindings(frozenset(site.decode() for site in found), (trouble or b"").decode())

    def _keys(self, job: str) -> tuple[str, str, str]:
        return self._book("sowing"), self._book(f"sown:{job}"), self._book("troubles")

    def _now(self) -> str:
        return "" if self._time is None else repr(self._time())
