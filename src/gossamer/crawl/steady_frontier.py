"""A frontier whose settling verbs sit out a backend that is away, for as long as the lease can still be good.

A page that was fetched, parsed and stored deserves better than to be fetched again because the state was restarted
just then. Whether the lost call had its effect is unknown; the repeated one finds out, and LeaseLost says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from ..clock import Backoff, Clock
from ..errors import BackendUnavailable
from ..frontier.contract import Added, Frontier, LeaseBatch
from ..model.task import Candidate, Lease, UrlState

T = TypeVar("T")

BACKOFF = Backoff(first=timedelta(milliseconds=100), longest=timedelta(seconds=2))
NONE = timedelta(0)


class SteadyFrontier:
    """Fulfils `Frontier`. Adding, leasing and renewing fail as they do: their callers know what to do."""

    def __init__(self, frontier: Frontier, clock: Clock, *, lease_duration: timedelta) -> None:
        self._frontier = frontier
        self._clock = clock
        self._patience = lease_duration.total_seconds()

    async def add(self, job: str, candidates: Sequence[Candidate]) -> Added:
        return await self._frontier.add(job, candidates)

    async def lease(self, job: str, worker: str, n: int, lanes: frozenset[str] | None = None) -> LeaseBatch:
        return await self._frontier.lease(job, worker, n, lanes)

    async def renew(self, leases: Sequence[Lease]) -> list[Lease]:
        return await self._frontier.renew(leases)

    async def complete(
        self,
        lease: Lease,
        state: UrlState,
        reason: str = "",
        discovered: Sequence[Candidate] = (),
        *,
        redirect: str | None = None,
        duplicates: int = 0,
        paced_ahead: timedelta = NONE,
    ) -> Added:
        return await self._insist(
            lambda: self._frontier.complete(
                lease, state, reason, discovered, redirect=redirect, duplicates=duplicates, paced_ahead=paced_ahead
            )
        )

    async def retry(self, lease: Lease, delay: timedelta, reason: str, *, paced_ahead: timedelta = NONE) -> None:
        await self._insist(lambda: self._frontier.retry(lease, delay, reason, paced_ahead=paced_ahead))

    async def bury(self, lease: Lease, reason: str, message: str, *, paced_ahead: timedelta = NONE) -> None:
        await self._insist(lambda: self._frontier.bury(lease, reason, message, paced_ahead=paced_ahead))

    async def release(
        self,
        lease: Lease,
        delay: timedelta,
        reason: str,
        *,
        paced_ahead: timedelta = NONE,
        lane: str | None = None,
    ) -> None:
        await self._insist(lambda: self._frontier.release(lease, delay, reason, paced_ahead=paced_ahead, lane=lane))

    async def slow_down(self, site: str, *, interval: timedelta | None, rest: timedelta) -> None:
        await self._insist(lambda: self._frontier.slow_down(site, interval=interval, rest=rest))

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        pauses = BACKOFF.pauses()
        deadline = self._clock.monotonic() + self._patience
        while True:
            pause = next(pauses)
            try:
                return await call()
            except BackendUnavailable:
                if self._clock.monotonic() + pause.total_seconds() > deadline:
                    raise
            await self._clock.sleep(pause.total_seconds())
