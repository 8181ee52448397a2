"""A worker: many journeys at once in one process, for one job. Draining, renewing, waiting for failing backends.

What it does: leases as many tasks as it has free slots, starts a journey for each, renews the leases it holds.
How it fails: a backend that fails for a minute without one successful call ends it with that error; journeys never do.
How it recovers: it gives back its tasks if the backend answers; otherwise their leases expire.
A lost lease ends its journey before the next request: another worker has the page.
A page that a worker had in progress when it died is a suspect, and is tried apart from others (quarantine.py).
While the window of its job is closed it leases nothing, and checks every second whether the job is over; it does the
same while there is no room for results, neither in the store nor on disk, while this machine's clock is wrong, and
while it is set aside (second_opinion.py).
"""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial
from typing import Protocol

from ..errors import BackendUnavailable, GossamerError, LeaseLost, Misconfigured, Transient
from ..frontier.contract import RENEWAL, Frontier, LeaseBatch
from ..model import events
from ..model.record import PageFacts
from ..model.task import Lease, Task
from ..store.contract import RecordStore
from .context import JobContext
from .file_journey import FileJourney
from .heartbeat import clock_is_wrong
from .held_lease import HeldLease, TurnReports
from .journey import Journey
from .outages import Outages
from .quarantine import FEW, Quarantine, chosen
from .session_journey import SessionFileJourney, SessionJourney
from .side_requests import allow_requests_of_start
from .slots import Slot, Slots

POLL = timedelta(milliseconds=250)  # how long an idle worker assumes that other workers added nothing
LOOK = timedelta(seconds=1)  # between two looks at a job whose window is closed
RENEWALS = 3  # at least this many per lease duration
SUSPECT = "was in the hands of a worker that died, and waits to be tried apart from others"
OURS = (Transient, Misconfigured)  # failures of our own backends, or of access to them; never the page's


class AnyJourney(Protocol):
    """Takes one lease to its settlement."""

    async def run(self) -> None:
        """Raises errors of our own (OURS); every other outcome is settled."""
        ...


MakeJourney = Callable[[JobContext, HeldLease, PageFacts | None], AnyJourney]


class Worker:
    """Runs until its job is drained or `drain` is called. Works only on tasks of `lanes`; None: on all.

    `quarantine` is shared by all workers of the process. `max_deliveries` is the job's. `is_over` says whether the job
    has ended or has nothing left; it is called while the window of the job is closed. `journey` makes the journeys of a
    job that fetches nothing; None: pages are fetched. `pages` are all that are left of a job whose pages lead to no
    others: with these it asks for no more until one of them ends. `is_taken` says whether other workers have all pages;
    it is called when there is none to begin with, and then `run` ends.
    """

    def __init__(
        self,
        context: JobContext,
        frontier: Frontier,
        records: RecordStore,
        *,
        concurrency: int,
        lease_duration: timedelta,
        drain_within: timedelta,
        lanes: frozenset[str] | None = None,
        quarantine: Quarantine | None = None,
        max_deliveries: int = 5,
        is_over: Callable[[], Awaitable[bool]] | None = None,
        look: timedelta = LOOK,
        journey: MakeJourney | None = None,
        pages: int | None = None,
        is_taken: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        self._context = context
        self._journey = journey
        self._pages = pages
        self._is_taken = is_taken
        self._frontier = frontier
        self._records = records
        self._slots = Slots(concurrency)
        self._lease_duration = lease_duration
        self._drain_within = drain_within
        self._lanes = lanes
        self._quarantine = quarantine or Quarantine()
        self._max_deliveries = max_deliveries
        self._is_over = is_over
        self._look = look
        self._looked_at = -math.inf  # when `is_over` was last called
        self._epoch = ""  # of the state, see LeaseBatch
        self.doubted = asyncio.Event()  # the epoch has changed: the last writes may be lost
        self._careful = False  # suspects were met: the next lease asks for only a few tasks
        self._in_progress: set[HeldLease] = set()
        self._journeys: set[asyncio.Task[None]] = set()
        self._turns = TurnReports(
            frontier, context.pacer, context.clock, self._in_progress, lambda words: self._emit_trouble("turns", words)
        )
        self._draining = asyncio.Event()
        self._leaving = False  # `stand_down` was called
        self.stays: Callable[[], None] = lambda: None  # called when it is known that `is_taken` does not end it
        self._began_at: float | None = None
        self._idle_since: float | None = None  # since when it has had no page and found no work
        self._due_at = 0.0  # when an idle worker expects work
        self.reads_source: Callable[[], bool] | None = None  # whether this process is reading the job's source
        self._unsettled = ""  # the last error of a settlement
        self._outages = Outages(context.clock, self._emit_trouble)

    @property
    def in_flight(self) -> int:
        return len(self._journeys)

    @property
    def draining(self) -> asyncio.Event:
        """Set when `drain` was called."""
        return self._draining

    @property
    def is_set_aside(self) -> bool:
        return self._context.second_opinion is not None and self._context.second_opinion.is_set_aside

    @property
    def began_at(self) -> float | None:
        """When it began to lease tasks, on the monotonic clock; None before that."""
        return self._began_at

    @property
    def idle(self) -> timedelta:
        """How long it has had no page in progress and found no work; zero while it works."""
        since = self._idle_since
        return timedelta(seconds=self._context.clock.monotonic() - since) if since is not None else timedelta(0)

    @property
    def due_in(self) -> timedelta:
        """How long an idle worker expects to stay idle, unless work is added."""
        return timedelta(seconds=max(0.0, self._due_at - self._context.clock.monotonic()))

    def requests_of_start(self) -> AbstractContextManager[None]:
        """A context in which the code that makes the seeds can make requests."""
        return allow_requests_of_start(self._context)

    def resize(self, concurrency: int) -> None:
        """Run up to this many journeys at once from now on."""
        self._slots.resize(concurrency)

    def on_settling(self, call: Callable[[], None]) -> None:
        """Call this whenever a page is done: its site may have room for one of another worker."""
        self._slots.settling = call

    def look_again(self) -> None:
        """Work was added: lease it now instead of waiting for the next poll."""
        self._slots.changed.set()

    def drain(self) -> None:
        """Take no more work; `run` returns when the pages in progress are settled, or when the time for draining is
        over."""
        self._draining.set()
        self._slots.changed.set()

    def stand_down(self) -> None:
        """Take no more work for now; `run` returns when the pages in progress are settled, without a time limit."""
        self._leaving = True
        self._slots.changed.set()

    async def run(self) -> bool:
        """Work. True if the job has nothing left to do, False if drained early. Raises Transient, Misconfigured."""
        renewing = asyncio.create_task(self._renew(), name="renew leases")
        reporting = asyncio.create_task(self._turns.run(), name="report turns")
        self._began_at = self._context.clock.monotonic()
        try:
            drained = await self._work()
            if not drained:
                await self._wait_until_drained()
            await self._wait_for_journeys(None if drained else self._drain_within)
            return drained
        finally:
            renewing.cancel()
            reporting.cancel()
            await self._cancel_journeys()
            await asyncio.gather(renewing, reporting, return_exceptions=True)

    async def _work(self) -> bool:
        slots = self._slots
        while not self._draining.is_set() and not self._leaving:
            slots.changed.clear()
            if slots.free == 0:
                await slots.changed.wait()
                continue
            sink = self._context.sink
            if sink.full if self._journey is None else sink.spool_full:
                if await self._found_over():
                    return True
                await self._wait_for_change(None, self._look)
                continue
            opinion = self._context.second_opinion
            rest = opinion.rest if opinion is not None else None
            if rest or clock_is_wrong(self._context.clock):
                if await self._found_over():
                    return True
                await self._wait_for_change(rest, self._look)
                continue
            await self._outages.wait()
            closed = self._context.windows.job.wait() if self._context.windows is not None else None
            if closed:
                if await self._found_over():
                    return True
                await self._wait_for_change(closed, self._look)
                continue
            if not self._quarantine.free.is_set():
                await self._until(self._quarantine.free)
                continue
            with self._quarantine.entered():  # tasks being leased count as in progress
                asked_at = self._context.clock.monotonic()
                batch = await self._outages.call("lease", self._lease, Transient)
                suspects = await self._start(batch.leases, asked_at) if batch is not None and batch.leases else []
            if suspects:
                await self._try_apart(suspects)
            elif batch is not None and batch.leases and len(batch.leases) == self._pages == len(self._journeys):
                await self._wait_for_an_end()  # of a page that moved or is tried again, more comes
                if not self._journeys and await self._found_over():
                    return True
            elif batch is None or batch.leases:
                continue
            elif batch.drained:
                return True
            elif self._is_taken is not None:
                if await self._outages.call("job", self._is_taken, Transient):
                    return False
                self._stay()
            else:
                await self._wait_for_change(batch.wait)
        return False

    def _stay(self) -> None:
        self._is_taken = None
        self.stays()

    async def _lease(self) -> LeaseBatch:
        context, wanted = self._context, min(FEW, self._slots.free) if self._careful else self._slots.free
        batch = await self._frontier.lease(context.job, context.worker, wanted, self._lanes)
        if batch.epoch != self._epoch:
            self._epoch = batch.epoch
            context.admission.forget()
            self.doubted.set()
        return batch

    async def _start(self, leases: tuple[Lease, ...], asked_at: float) -> list[HeldLease]:
        """Start the journeys. Return the suspects that must now be tried apart from all others."""
        self._idle_since = None
        if self._is_taken is not None:
            self._stay()
        held_leases = [
            HeldLease(lease, self._context.clock, self._lease_duration, asked_at, self._settling_failed)
            for lease in leases
        ]
        self._in_progress.update(held_leases)
        suspects = [held for held in held_leases if held.lease.delivery > 1]
        self._careful = bool(suspects)
        now = chosen(suspects, self._max_deliveries) if suspects and self._quarantine.take() else []
        try:
            known = await self._known(tuple(held.lease for held in held_leases if held.lease.delivery == 1))
            for held in held_leases:
                if held.lease.delivery == 1:
                    self._quarantine.enter()
                    self._start_journey(held, known).add_done_callback(lambda _: self._quarantine.leave())
            await asyncio.gather(*(self._put_off(held) for held in suspects if held not in now))
        except BaseException:
            if now:
                self._quarantine.give_back()
            raise
        return now

    def _start_journey(self, held: HeldLease, known: dict[bytes, PageFacts]) -> asyncio.Task[None]:
        context, task = self._context, held.lease.task
        make = self._journey or _kind_of_journey(task)
        journey = make(context, held, known.get(task.fingerprint))
        # Before the journey's first step, because the next lease counts the free slots.
        slot = held.slot = self._slots.take(task.site)
        held.turn = context.pacer.enter(held.lease)
        if held.lease.pace is not None:
            self._turns.wanted.set()
        making = asyncio.create_task(self._run_journey(journey, held), name=task.url)
        self._journeys.add(making)
        making.add_done_callback(partial(self._journey_ended, held, slot))
        return making

    async def _try_apart(self, suspects: list[HeldLease]) -> None:
        """Work on these once no other page is in progress in this process, and lease nothing more until they are
        settled."""
        try:
            await self._until(self._quarantine.empty)
            known = await self._known(tuple(suspect.lease for suspect in suspects))
        except BaseException:
            self._quarantine.give_back()
            raise
        if self._draining.is_set():
            self._quarantine.give_back()
            await asyncio.gather(*map(self._put_off, suspects))
            return
        trying = asyncio.gather(*(self._start_journey(one, known) for one in suspects), return_exceptions=True)
        trying.add_done_callback(lambda _: self._quarantine.give_back())
        await self._until(self._quarantine.free)

    async def _put_off(self, suspect: HeldLease) -> None:
        """Give a suspect back. It uses up no delivery, and stays a suspect."""
        self._context.pacer.enter(suspect.lease)
        try:
            await self._give_back(suspect, timedelta(0), SUSPECT)
        finally:
            self._context.pacer.leave(suspect.lease)
            self._in_progress.discard(suspect)

    async def _until(self, event: asyncio.Event) -> None:
        """Wait until the event is set, or the worker is told to drain."""
        waiting = [asyncio.ensure_future(one.wait()) for one in (event, self._draining)]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _known(self, leases: tuple[Lease, ...]) -> dict[bytes, PageFacts]:
        """Look up the facts of the pages. Returns none while the record store does not answer, which would hold up
        every lease; none for a page whose newest result is in the spool, which the store does not have yet; and none in
        jobs that fetch nothing."""
        sink = self._context.sink
        if self._journey is not None:
            return {}
        asked = [lease.task.fingerprint for lease in leases if not sink.holds(lease.task.fingerprint)]
        if asked and sink.records_away:
            self._outages.over("records")  # a store that is not called does not fail
        if not asked or sink.records_away:
            return {}
        known = await self._outages.call("records", lambda: self._records.facts(asked), OURS)
        if known is None:
            sink.records_failed()
        return known or {}

    async def _run_journey(self, journey: AnyJourney, held: HeldLease) -> None:
        """Run a journey; give its task back if it could not be finished through no fault of the page."""
        url = held.lease.task.url
        try:
            await journey.run()
            self._outages.over("journey")
            self._unsettled = ""
        except asyncio.CancelledError:
            await self._give_back(held, timedelta(0), "the worker stopped")
            raise
        except OURS as error:
            self._outages.failed("journey", error)
            await self._give_back(held, self._outages.pause, error.reason)
        except Exception as error:
            # A bug of ours, and the same page would trigger it again: bury it, so that it is seen.
            self._emit_trouble("journey", f"{_words(error)} (at {url})")
            await self._bury(held, "".join(traceback.format_exception(error)))

    def _journey_ended(self, held: HeldLease, slot: Slot, journey: asyncio.Task[None]) -> None:
        """The journey is over, even if it was cancelled before its first step."""
        self._journeys.discard(journey)
        self._in_progress.discard(held)
        self._context.pacer.leave(held.lease)
        slot.leave()

    async def _bury(self, held: HeldLease, message: str) -> None:
        try:
            await self._frontier.bury(held.lease, "internal-error", message, paced_ahead=self._paced_ahead(held))
        except LeaseLost as lost:
            self._emit_lapsed(held, lost)
        except GossamerError as error:
            self._emit_trouble("bury", str(error))

    async def _give_back(self, held: HeldLease, delay: timedelta, reason: str) -> None:
        if held.lost:
            return
        try:
            await asyncio.shield(self._frontier.release(held.lease, delay, reason, paced_ahead=self._paced_ahead(held)))
        except LeaseLost as lost:
            self._emit_lapsed(held, lost)
        except GossamerError as error:
            # The task comes back by itself when the lease expires.
            self._emit_trouble("release", str(error))

    def _settling_failed(self, error: BackendUnavailable) -> None:
        """Report at once that the state does not accept settlements, not when they are given up; the same message
        once."""
        if str(error) != self._unsettled:
            self._unsettled = str(error)
            self._emit_trouble("settle", f"{error} Pages that are done are settled when it answers.")

    def _paced_ahead(self, held: HeldLease) -> timedelta:
        return self._context.pacer.ahead(held.lease.task.site)

    def _emit_trouble(self, stage: str, message: str) -> None:
        context = self._context
        context.events.emit(events.Trouble(at=context.clock.now(), job=context.job, stage=stage, message=message))

    def _emit_lapsed(self, held: HeldLease, lost: LeaseLost) -> None:
        context, task = self._context, held.lease.task
        lapsed = events.LeaseLapsed(
            at=context.clock.now(), job=context.job, url=task.url, site=task.site, message=str(lost)
        )
        context.events.emit(lapsed)

    async def _found_over(self) -> bool:
        """Check about once a second whether the job has ended or has nothing to wait for. False while the state does
        not answer."""
        now = self._context.clock.monotonic()
        if self._is_over is None or now - self._looked_at < self._look.total_seconds():
            return False
        self._looked_at = now
        return await self._outages.call("job", self._is_over, Transient) or False

    async def _wait_for_change(self, wait: timedelta | None, at_most: timedelta = POLL) -> None:
        """Wait until a slot is freed (settling adds links), a page is due, or other workers may have added one."""
        seconds = at_most.total_seconds() if wait is None else min(wait.total_seconds(), at_most.total_seconds())
        now = self._context.clock.monotonic()
        self._due_at = now + (seconds if wait is None else wait.total_seconds())
        if self._idle_since is None and not self._journeys:
            self._idle_since = now
        try:
            async with asyncio.timeout(max(seconds, 0.001)):
                await self._slots.changed.wait()
        except TimeoutError:
            return

    async def _renew(self) -> None:
        """Renew the held leases, and learn which were lost."""
        context = self._context
        while True:
            await context.clock.sleep(min(self._lease_duration / RENEWALS, RENEWAL).total_seconds())
            in_progress = list(self._in_progress)
            if not in_progress:
                continue
            asked_at = context.clock.monotonic()
            try:
                lost = await self._frontier.renew([held.lease for held in in_progress])
            except Exception as error:  # whatever the error, the held leases need the next renewal
                self._emit_trouble("renew", _words(error))
                continue
            gone = frozenset(lost)
            for held in in_progress:
                if held.lease in gone:
                    held.lose()
                else:
                    held.prolong(asked_at)

    async def _wait_until_drained(self) -> None:
        """After standing down: wait until no page is in progress, or the worker is told to drain after all."""
        while self._journeys and not self._draining.is_set():
            await self._wait_for_an_end()

    async def _wait_for_an_end(self) -> None:
        """Wait until a page in progress ends, or the worker is told to drain."""
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait({draining, *self._journeys}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            draining.cancel()

    async def _wait_for_journeys(self, within: timedelta | None) -> None:
        if self._journeys:
            await asyncio.wait(self._journeys, timeout=within.total_seconds() if within is not None else None)

    async def _cancel_journeys(self) -> None:
        journeys = list(self._journeys)
        for journey in journeys:
            journey.cancel()
        await asyncio.gather(*journeys, return_exceptions=True)


def _kind_of_journey(task: Task) -> type[Journey]:
    if not task.how:
        return Journey  # most pages
    options = task.options()
    if options.session is None:
        return Journey if options.file is None else FileJourney
    return SessionJourney if options.file is None else SessionFileJourney


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, GossamerError) else f"{type(error).__name__}: {error}"
