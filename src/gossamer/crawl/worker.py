"""A worker: many journeys at once in one process, for one job. Draining, renewing, waiting for troubled backends.

What it does: leases as many tasks as it has free slots, starts a journey for each, renews leases in hand.
How it fails: a backend that stays unreachable for a minute ends it with that error; journeys never do.
How it recovers: what it had in hand is given back when it can say so, and comes back by itself when it cannot.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

from ..errors import GossamerError, Transient
from ..frontier.contract import Frontier, LeaseBatch
from ..model import events
from ..model.record import PageFacts
from ..model.task import Lease
from ..store.contract import RecordStore
from .journey import Crew, Journey
from .slots import Slots

T = TypeVar("T")

POLL = timedelta(milliseconds=250)  # how long an idle worker trusts that neighbours added nothing
PATIENCE = timedelta(seconds=60)  # how long a backend may stay away
FIRST_PAUSE = timedelta(milliseconds=250)
LONGEST_PAUSE = timedelta(seconds=10)
RENEWALS = 3  # per lease duration


class Worker:
    """Runs until its job is drained or `drain` is called."""

    def __init__(
        self,
        crew: Crew,
        frontier: Frontier,
        records: RecordStore,
        *,
        concurrency: int,
        lease_duration: timedelta,
        drain_within: timedelta,
        conditional: bool,
    ) -> None:
        self._crew = crew
        self._frontier = frontier
        self._records = records
        self._slots = Slots(concurrency)
        self._lease_duration = lease_duration
        self._drain_within = drain_within
        self._conditional = conditional
        self._in_hand: dict[int, Lease] = {}
        self._journeys: set[asyncio.Task[None]] = set()
        self._draining = asyncio.Event()
        self._trouble_since: float | None = None
        self._trouble: Transient | None = None
        self._pause = FIRST_PAUSE

    @property
    def in_flight(self) -> int:
        return len(self._journeys)

    @property
    def draining(self) -> asyncio.Event:
        """Set when the worker was told to drain."""
        return self._draining

    def resize(self, concurrency: int) -> None:
        """Make that many journeys at once from now on."""
        self._slots.resize(concurrency)

    def drain(self) -> None:
        """Take no more work; `run` returns when what is in hand has ended or the time for it is over."""
        self._draining.set()
        self._slots.changed.set()

    async def run(self) -> bool:
        """Work. True when the job has nothing left to do, False when drained early. Raises Transient."""
        renewing = asyncio.create_task(self._renew(), name="renew leases")
        try:
            drained = await self._work()
            await self._wait_for_journeys(None if drained else self._drain_within)
            return drained
        finally:
            renewing.cancel()
            await self._cancel_journeys()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _work(self) -> bool:
        slots = self._slots
        while not self._draining.is_set():
            slots.changed.clear()
            if slots.free == 0:
                await slots.changed.wait()
                continue
            await self._sit_out_trouble()
            batch = await self._sheltered("lease", self._lease)
            if batch is None:
                continue
            if batch.leases:
                await self._start(batch.leases)
            elif batch.drained:
                return True
            else:
                await self._wait_for_change(batch.wait)
        return False

    async def _lease(self) -> LeaseBatch:
        crew = self._crew
        return await self._frontier.lease(crew.job, crew.worker, self._slots.free)

    async def _start(self, leases: tuple[Lease, ...]) -> None:
        for lease in leases:
            self._in_hand[lease.task.id] = lease
        known: dict[bytes, PageFacts] = {}
        if self._conditional and not self._crew.sink.away:  # a store that is away would hold up every lease
            fingerprints = [lease.task.fingerprint for lease in leases]
            known = await self._sheltered("records", lambda: self._records.facts(fingerprints)) or {}
        for lease in leases:
            journey = Journey(self._crew, lease, known.get(lease.task.fingerprint))
            task = asyncio.create_task(self._accompany(journey, lease), name=lease.task.url)
            self._journeys.add(task)
            task.add_done_callback(self._journeys.discard)

    async def _accompany(self, journey: Journey, lease: Lease) -> None:
        """Run a journey; give its task back when it could not be finished through no fault of the page."""
        slot = self._slots.take(lease.task.site)
        try:
            await journey.run()
            self._trouble = self._trouble_since = None
        except asyncio.CancelledError:
            await self._give_back(lease, timedelta(0), "the worker stopped")
            raise
        except Transient as error:
            self._troubled("journey", error)
            await self._give_back(lease, self._pause, error.reason)
        except Exception as error:
            # A defect of ours, and the same page would meet it again: to the dead letters, so that it is seen.
            self._emit_trouble("journey", f"{type(error).__name__}: {error} (at {lease.task.url})")
            await self._bury(lease, "".join(traceback.format_exception(error)))
        finally:
            self._in_hand.pop(lease.task.id, None)
            slot.leave()

    async def _bury(self, lease: Lease, message: str) -> None:
        try:
            await self._frontier.bury(lease, "internal-error", message)
        except GossamerError as error:
            self._emit_trouble("bury", str(error))

    async def _give_back(self, lease: Lease, delay: timedelta, reason: str) -> None:
        try:
            await asyncio.shield(self._frontier.release(lease, delay, reason))
        except GossamerError as error:
            # It will come back by itself when the lease expires.
            self._emit_trouble("release", str(error))

    async def _sheltered(self, stage: str, call: Callable[[], Awaitable[T]]) -> T | None:
        """Make a call to a backend; None when it is away."""
        try:
            return await call()
        except Transient as error:
            self._troubled(stage, error)
            return None

    def _troubled(self, stage: str, error: Transient) -> None:
        self._emit_trouble(stage, str(error))
        self._trouble = error
        if self._trouble_since is None:
            self._trouble_since = self._crew.clock.monotonic()
            self._pause = FIRST_PAUSE

    async def _sit_out_trouble(self) -> None:
        """While a backend is away, take work slowly. Raises its error when it has been away for PATIENCE."""
        if self._trouble is None or self._trouble_since is None:
            return
        if self._crew.clock.monotonic() - self._trouble_since > PATIENCE.total_seconds():
            raise self._trouble
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        await self._crew.clock.sleep(pause.total_seconds())

    def _emit_trouble(self, stage: str, message: str) -> None:
        crew = self._crew
        crew.events.emit(events.Trouble(at=crew.clock.now(), job=crew.job, stage=stage, message=message))

    async def _wait_for_change(self, wait: timedelta | None) -> None:
        """Until a slot is freed (settling feeds the queue), the queue says so, or a neighbour may have added."""
        seconds = POLL.total_seconds() if wait is None else min(wait.total_seconds(), POLL.total_seconds())
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._slots.changed.wait()
        except TimeoutError:
            return

    async def _renew(self) -> None:
        """Keep what is in hand ours, and learn what is not any more."""
        crew = self._crew
        while True:
            await crew.clock.sleep(self._lease_duration.total_seconds() / RENEWALS)
            held = list(self._in_hand.values())
            if not held:
                continue
            try:
                await self._frontier.renew(held)
            except Transient as error:
                self._emit_trouble("renew", str(error))

    async def _wait_for_journeys(self, within: timedelta | None) -> None:
        if self._journeys:
            await asyncio.wait(self._journeys, timeout=within.total_seconds() if within is not None else None)

    async def _cancel_journeys(self) -> None:
        journeys = list(self._journeys)
        for journey in journeys:
            journey.cancel()
        await asyncio.gather(*journeys, return_exceptions=True)
