"""A lease in this process' hands: whether it can still be counted on, and what happens when it is lost.

The backend's clock decides when a lease ends. A process that was stopped for a while, or cut off, does not hear of it;
so it counts by itself, from the moment at which it asked for the lease or for its renewal. That moment lies before
the backend's, so a process that keeps to it never works on a task that another worker may have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from ..clock import Backoff, Clock
from ..errors import BackendUnavailable, LeaseLost
from ..model.task import Lease
from .slots import Slot

T = TypeVar("T")

LAST_MOMENT = timedelta(seconds=1)  # before the end of a lease; of a short one, a sixth of it
BACKOFF = Backoff(first=timedelta(milliseconds=100), longest=timedelta(seconds=2))


class HeldLease:
    """One lease, from its grant to its settlement. `asked_at` is monotonic time. `on_failure` hears of the
    first failure of a settlement at once; it is made again for as long as the lease can be good, perhaps a minute."""

    def __init__(
        self,
        lease: Lease,
        clock: Clock,
        duration: timedelta,
        asked_at: float,
        on_failure: Callable[[BackendUnavailable], None] | None = None,
    ) -> None:
        self.lease = lease
        self.lost = False  # the backend said so
        self._clock = clock
        self._duration = duration.total_seconds()
        self._last_moment = min(LAST_MOMENT.total_seconds(), self._duration / 6)
        self._until = asked_at + self._duration
        self.asked_at = asked_at
        self.slot: Slot | None = None  # of its journey
        self._fetch: asyncio.Task[object] | None = None
        self._on_failure = on_failure

    def prolong(self, asked_at: float) -> None:
        """The lease was renewed; that was asked for at `asked_at`."""
        self._until = asked_at + self._duration

    def lose(self) -> None:
        """Another worker has the task by now. The fetch under way for it is stopped where it is."""
        self.lost = True
        if self._fetch is not None:
            self._fetch.cancel()

    def check(self) -> None:
        """Raises LeaseLost when the task may be another worker's, or soon: no request may be made for it.

        Soon, because a process may wait for a core between this check and the wire. The worker that gets the site
        keeps its distance from the end of the lease; what left later than that would come too close to its request.
        """
        if self.lost or self._clock.monotonic() >= self._until - self._last_moment:
            raise self._loss()

    def __enter__(self) -> None:
        """Requests are made in this block, and it ends with LeaseLost as soon as the lease is lost.

        After it nothing is cut short: a settlement under way may already have had its effect, and finds out itself.
        """
        self._fetch = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._fetch = None
        if self.lost and isinstance(error, asyncio.CancelledError):
            raise self._loss() from None

    async def complete(self, call: Callable[[], Awaitable[T]]) -> T:
        """Settle the task as the last step of its journey: the slot serves another page meanwhile."""
        if self.slot is not None:
            self.slot.settle()
        return await self.settle(call)

    async def settle(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that settles the task, again while the backend is away, for as long as the lease can be good.

        A page that was fetched, parsed and stored should not be fetched again because the state was restarted just
        then. Whether the lost call had its effect is unknown; the repeated one finds out, and LeaseLost says so.
        """
        failures, deadline = 0, self._clock.monotonic() + self._duration
        while True:
            try:
                return await call()
            except BackendUnavailable as error:
                failures += 1
                if failures == 1 and self._on_failure is not None:
                    self._on_failure(error)
                pause = BACKOFF.pause(failures).total_seconds()
                if self._clock.monotonic() + pause > deadline:
                    raise
            await self._clock.sleep(pause)

    def _loss(self) -> LeaseLost:
        return LeaseLost(
            f"The lease on {self.lease.task.url} was lost before its page was there; others will fetch it."
        )
