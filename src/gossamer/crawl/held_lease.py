"""A lease held by this process: whether it is still good, and what happens when it is lost.

The backend's clock decides when a lease ends. A process that was suspended or cut off does not notice, so it counts the
time itself, from the moment at which it sent the request for the lease or its renewal. That moment lies before the
backend's, so a process that keeps to it never works on a task that another worker may have.

A lease owes a turn of its site until a request was written. The turn ends when the page is still out while the site's
next turn comes: then other workers may have the site, and one more request of the same page takes another turn. Turns
of a burst, and those of a job with its own rate, are owed until the lease ends. No turn ends while the journey looks up
what others of this process may be waiting for, with turns of their own (`keeping_turn`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Set
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar

from ..clock import Backoff, Clock
from ..errors import BackendUnavailable, GossamerError, LeaseLost
from ..frontier.contract import RENEWAL, Frontier, LeftTurn
from ..frontier.politeness import TURN_LOOK
from ..model.task import Lease, Pace
from .pacer import Pacer, SiteGate
from .slots import Slot

T = TypeVar("T")
_NEVER = float("-inf")
_SOONEST = 0.1  # seconds; no turn ends earlier after its request: most pages are settled by then

LAST_MOMENT = timedelta(seconds=1)  # margin before a lease ends; for a short lease, a sixth of it
BACKOFF = Backoff(first=timedelta(milliseconds=100), longest=timedelta(seconds=2))


class HeldLease:
    """One lease, from its grant to its settlement. `asked_at` is monotonic time. `on_failure` is called at the first
    failure of a settlement; the settlement is retried as long as the lease can be good, perhaps a minute."""

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
        self.turn = _NEVER  # monotonic; no request of it may leave earlier, see Pacer.enter
        self.turn_number = 1
        self.turn_is_over = False  # from just before it is reported: then no request may leave without another turn
        self.take_turn: Callable[[], Awaitable[None]] | None = None  # given by a journey that makes requests
        self._keeping = 0  # blocks of `keeping_turn`
        self._pace = lease.pace
        self._gates: list[SiteGate] = []  # of requests that may still leave
        self._left_at = _NEVER
        self.slot: Slot | None = None  # the slot of its journey
        self._fetch: asyncio.Task[object] | None = None
        self._on_failure = on_failure

    def prolong(self, asked_at: float) -> None:
        """The lease was renewed; `asked_at` is when the renewal was sent."""
        self._until = asked_at + self._duration

    def lose(self) -> None:
        """Another worker has the task now: cancel the fetch in progress."""
        self.lost = True
        if self._fetch is not None:
            self._fetch.cancel()

    def check(self) -> None:
        """Raise LeaseLost if another worker has the task, or soon may: no request may be made for it then.

        "Soon", because the process may have to wait for a core between this check and the write. The next worker keeps
        its distance from the end of the lease; a request that left later would come too close to its first one.
        """
        if self.lost or self._clock.monotonic() >= self._until - self._last_moment:
            raise self._loss()

    def watch(self, gate: SiteGate) -> None:
        """This gate is for a request of the current turn."""
        if self._pace is not None:
            self._forget_old_gates()
            self._gates.append(gate)

    def end_turn(self, now: float) -> bool:
        """End the turn if a request was written so long ago that the site's next turn comes, and no other is about to
        leave. True if the turn is over. Called many times a second."""
        pace = self._pace
        if self.turn_is_over or self._keeping or pace is None or pace.burst > 1 or pace.gap:
            return self.turn_is_over
        before = now - max(pace.interval, _SOONEST)
        if self.turn <= before:
            self._forget_old_gates()
            self.turn_is_over = not self._gates and _NEVER < self._left_at <= before
        return self.turn_is_over

    def begin_turn(self, number: int, pace: Pace | None, turn: float) -> None:
        """The lease has another turn; `turn` is its moment (Pacer.next_turn)."""
        self.turn_number, self.turn_is_over, self._pace, self._left_at = number, False, pace, _NEVER
        self.turn = max(self.turn, turn)

    @asynccontextmanager
    async def keeping_turn(self, site: str) -> AsyncIterator[None]:
        """The turn does not end inside this block, in which requests of `site` are made under a lock. A page that waits
        for the lock may owe a turn: if the holder needed another one, each would wait for the other."""
        while self.turn_is_over and site == self.lease.task.site and self.take_turn is not None:
            await self.take_turn()
        self._keeping += 1
        try:
            yield
        finally:
            self._keeping -= 1

    def _forget_old_gates(self) -> None:
        for gate in self._gates:
            if not gate.may_leave:
                self._left_at = max(self._left_at, gate.left_at)
        self._gates = [gate for gate in self._gates if gate.may_leave]

    def __enter__(self) -> None:
        """Requests are made inside this block, which ends with LeaseLost as soon as the lease is lost.

        Nothing after it is interrupted: a settlement in progress may have taken effect already, and finds out itself.
        """
        self._fetch = asyncio.current_task()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._fetch = None
        if self.lost and isinstance(error, asyncio.CancelledError):
            raise self._loss() from None

    async def complete(self, call: Callable[[], Awaitable[T]]) -> T:
        """Settle the task as the last step of its journey, and free its slot for another page meanwhile."""
        if self.slot is not None:
            self.slot.settle()
        return await self.settle(call)

    async def settle(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call a settling verb; retry while the backend is unavailable, as long as the lease can be good.

        A page that was fetched, parsed and stored should not be fetched again because the state restarted just then.
        Whether the failed call took effect is unknown; if it did, the repeated one raises LeaseLost.
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
            f"The lease on {self.lease.task.url} was lost before its page came; another worker will fetch it."
        )


class TurnReports:
    """Reports those of `leases`, a set that changes, whose turns are over: other workers may have the sites then.
    `wanted` is set when a lease of a site with a rate joins them. `failed` gets what went wrong, in words."""

    def __init__(
        self, frontier: Frontier, pacer: Pacer, clock: Clock, leases: Set[HeldLease], failed: Callable[[str], None]
    ) -> None:
        self._frontier = frontier
        self._pacer = pacer
        self._clock = clock
        self._leases = leases
        self._failed = failed
        self._reported: dict[HeldLease, int] = {}  # the number of the turn
        self.wanted = asyncio.Event()

    async def run(self) -> None:
        while True:
            await self.wanted.wait()
            await self._clock.sleep(TURN_LOOK.total_seconds())
            if not any(held.lease.pace is not None for held in self._leases):
                self.wanted.clear()
            self._reported = {held: number for held, number in self._reported.items() if held in self._leases}
            now = self._clock.monotonic()
            over = [one for one in self._leases if one.end_turn(now) and self._reported.get(one) != one.turn_number]
            if not over:
                continue
            turns = [LeftTurn(one.lease, one.turn_number, self._pacer.ahead(one.lease.task.site)) for one in over]
            try:
                await self._frontier.left(turns)
            except Exception as error:  # whatever the error, other pages need their reports
                self._failed(str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}")
                await self._clock.sleep(RENEWAL.total_seconds())
            else:
                self._reported |= {held: turn.number for held, turn in zip(over, turns, strict=True)}
