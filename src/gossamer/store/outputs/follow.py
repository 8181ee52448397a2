"""Follows the records and writes what changes to one output.

What it does: takes the lease of the output, reads the records that were stored since its cursor, in portions, writes
each portion, and moves the cursor. The record store is the buffer: while a target is away, nothing is kept in memory,
and no crawl waits for it. How it fails: a target that is away is tried again after growing pauses; one that is
misconfigured stops the output, with a sentence, until a person resumes it or its settings change; a row that it refuses
is noted among the dead rows. An error that nobody foresaw counts as a target that is away; a table gets a batch half
as large next, in case that was the reason. How it recovers: the cursor moves after the write, so that what a crash
interrupts is written again, to the same effect. A process that lost its lease is refused by the fence, in the state and
in the target.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from secrets import token_hex
from typing import Any, Protocol

import msgspec

from ...clock import Backoff, Clock, iso_time
from ...errors import GossamerError, LeaseLost, Misconfigured
from ...model.output import OUTPUT, DeadRow, OutputProgress
from ...model.record import ItemSchema
from ...model.shelf import ABSENT, Shelf
from ...units import discreet
from ..contract import Records
from .book import OutputBook, dead_key, rewound
from .contract import Batch, Change, ColumnsWidened, Output, Refused, Unforeseen, write_in_parts
from .plan import Plan
from .portions import Portions

log = logging.getLogger("gossamer.outputs")
LOOK = timedelta(seconds=1)  # between two looks for something new
LEASE_FOR = timedelta(seconds=20)
RENEWED_EVERY = timedelta(seconds=5)
AWAY = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=60))
HURRIED = timedelta(seconds=1)  # the longest pause of one that has to hurry, and whose target is away
MOST_HALVINGS = 16
MOST_ALTERED = 20
ERASURES_AT_ONCE = 100  # orders
LONGEST_REASON = 500


class Leases(Protocol):
    async def claim(self, job: str, worker: str, duration: timedelta) -> bool: ...

    async def release(self, job: str, worker: str) -> None: ...


def lease_of(output: str) -> str:
    """The name of the lease of whoever writes an output."""
    return f"@@output/{output}"  # no site and no job has such a name


class Abandoned(Exception):
    """A person has given an order meanwhile, or another process writes: the batch in progress does not count."""


class Follower:
    """One output, followed by this process for as long as it holds the lease. `open` opens the target."""

    def __init__(
        self,
        name: str,
        plan: Plan,
        open: Callable[[], Awaitable[Output]],
        *,
        source: Records,
        shelf: Shelf,
        leases: Leases,
        clock: Clock,
        worker: str,
        keeps_history: bool = False,
        linger: timedelta = timedelta(0),
        rewinds: bool = False,
        look: timedelta = LOOK,
    ) -> None:
        """`linger`: what is new waits this long for more. `rewinds`: other settings begin at the first record again."""
        self.name = name
        self._plan = plan
        self._open = open
        self._source = source
        self._shelf = shelf
        self._leases = leases
        self._clock = clock
        self._worker = f"{worker}/{token_hex(4)}"
        self._portions = Portions(source, plan, keeps_history=keeps_history)
        self._linger = linger.total_seconds()
        self._rewinds = rewinds
        self._look = look.total_seconds()
        self._book = OutputBook(shelf)
        self._output: Output | None = None
        self._progress: OutputProgress | None = None
        self._dead: set[str] = set()
        self._hurried = asyncio.Event()
        self._wrote = False
        self._halvings = 0  # of batches, since the target last took one
        self._said = ""  # why it stands still, as the log has it
        self._waits_since: float | None = None  # for a batch to fill

    @property
    def lease(self) -> str:
        return lease_of(self.name)

    def hurry(self) -> None:
        """Write what there is, however little."""
        self._hurried.set()

    def under_these_settings(self, known: OutputProgress) -> OutputProgress:
        """Where the output stands for this follower: one that was written by other settings is tried again, and may
        begin at the first record."""
        if known.terms in ("", self._plan.terms):
            return known
        known = msgspec.structs.replace(known, misconfigured=False, error="", error_at=None)
        return rewound(known) if self._rewinds else known

    async def run(self) -> None:
        """Follow until cancelled; wait while another process does."""
        pauses = AWAY.pauses()
        try:
            while True:
                pause = self._look
                try:
                    if await self._leases.claim(self.lease, self._worker, LEASE_FOR):
                        await self._with_lease(self._follow())
                except LeaseLost as error:
                    log.warning("%s", error)
                except Misconfigured as error:
                    await self._note(str(error), misconfigured=True)
                except Exception as error:  # not only Transient: nothing unforeseen ends it, unseen and for good
                    if self._wrote:
                        self._wrote, self._said, pauses = False, "", AWAY.pauses()
                    pause = next(pauses).total_seconds()
                    if self._hurried.is_set():
                        pause = min(pause, HURRIED.total_seconds())
                    mistake = None if isinstance(error, GossamerError) else error
                    why = f"{type(error).__name__}: {discreet(str(error))[:LONGEST_REASON]}." if mistake else str(error)
                    await self._note(why, f" It is tried again in {pause:.0f} s.", mistake=mistake)
                    await self._pause_with_lease(pause)
                    continue
                await self._pause(pause)
        finally:
            await self._leave()

    async def catch_up(self) -> bool:
        """Write everything that there is now; False if another process holds the output, or it stands still. Raises
        Transient, Misconfigured, LeaseLost."""
        self.hurry()
        if not await self._leases.claim(self.lease, self._worker, LEASE_FOR):
            return False
        try:
            return bool(await self._with_lease(self._to_the_end()))
        finally:
            await self._leave()

    # -- the lease -----------------------------------------------------------------------------------------------

    async def _with_lease(self, work: Any) -> Any:
        """Renew the lease beside the work; LeaseLost when it is lost."""
        working = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait({working}, timeout=RENEWED_EVERY.total_seconds())
                if done:
                    return working.result()
                if not await self._leases.claim(self.lease, self._worker, LEASE_FOR):
                    raise LeaseLost(f"Another process has taken the output {self.name} over.")
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await self._close()

    async def _pause_with_lease(self, seconds: float) -> None:
        """Wait for a target that is away. People see by the lease that somebody does."""
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            await self._pause(min(left, RENEWED_EVERY.total_seconds()), hurried=HURRIED)
            if self._hurried.is_set():
                return
            with suppress(GossamerError):  # the state may be what is away
                await self._leases.claim(self.lease, self._worker, LEASE_FOR)

    async def _leave(self) -> None:
        await self._close()
        with suppress(GossamerError):  # the lease ends by itself
            await self._leases.release(self.lease, self._worker)

    async def _close(self) -> None:
        output, self._output, self._progress = self._output, None, None
        if output is not None:
            with suppress(GossamerError, OSError):
                await output.close()

    async def _begin(self) -> OutputProgress:
        """Take the output over: with a greater fence than any process before."""
        fence = int(await self._shelf.time() * 1000)

        def taken(known: OutputProgress | None) -> OutputProgress:
            known = self.under_these_settings(known or OutputProgress(name=self.name, id=token_hex(8)))
            began = known.began_at if known.began_at is not None else self._clock.now()
            return msgspec.structs.replace(
                known, fence=max(known.fence + 1, fence), terms=self._plan.terms, began_at=began
            )

        progress = await self._book.progress.change(self.name, taken)
        assert progress is not None
        self._progress = progress
        self._dead = {
            dead_key(row.output, (row.type, row.site, row.key)) for row in await self._book.dead_rows(self.name)
        }
        return progress

    # -- following -----------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            if not await self._step():
                await self._pause(self._look)

    async def _to_the_end(self) -> bool:
        while await self._step():
            pass
        progress = self._progress
        return progress is not None and not progress.paused and not progress.misconfigured

    async def _step(self) -> bool:
        """Write one batch; False if there is nothing to do now."""
        try:
            progress = await self._current()
            if progress.paused or progress.misconfigured:
                return False
            if await self._erase(progress):
                return True
            return await self._write_next(progress)
        except Abandoned:
            return True

    async def _current(self) -> OutputProgress:
        """The progress as it is now. Raises LeaseLost if another process has taken over."""
        mine = self._progress or await self._begin()
        now = await self._book.progress.get(self.name)
        if now is None:  # removed by hand
            self._progress = None
            return await self._begin()
        if now.fence != mine.fence:
            raise LeaseLost(f"Another process has taken the output {self.name} over.")
        self._progress = now
        return now

    async def _target(self) -> Output:
        if self._output is None:
            self._output = await self._open()
        return self._output

    async def _write_next(self, progress: OutputProgress) -> bool:
        newest = await self._source.cursor()
        if progress.upto is None:
            if newest == progress.after:
                await self._note_all_written(progress)
                return False
            if self._lingers():
                return False
            progress = await self._commit(progress, upto=newest)
        output = await self._target()
        try:
            changes, beyond, count, whole = await self._portions.read(progress, output, self._halvings)
        except Misconfigured as error:
            if progress.after is None:
                raise
            # The cursor is of another record store, or of one that was restored: begin anew.
            log.warning("The output %s begins anew: %s", self.name, error)
            await self._commit(progress, after=None, upto=None, beyond=0, passed=0)
            return True
        self._waits_since = None
        if changes:
            batch = Batch(
                number=progress.batches + 1, fence=progress.fence, changes=changes, schemas=await self._schemas()
            )
            try:
                await self._note_refused(changes, await self._write(output, batch))
            except ColumnsWidened as told:
                log.warning("The output %s begins anew: %s", self.name, told)
                altered = (*progress.altered, f"{iso_time(self._clock.now())}: {told}")[-MOST_ALTERED:]
                await self._commit(progress, after=None, upto=None, beyond=0, passed=0, altered=altered)
                return True
        self._wrote = True
        if whole:
            await self._commit(progress, changes=len(changes), after=progress.upto, upto=None, beyond=0, passed=0)
        else:
            await self._commit(progress, changes=len(changes), beyond=beyond, passed=progress.passed + count)
        return True

    async def _write(self, output: Output, batch: Batch) -> list[Refused]:
        try:
            refused = await write_in_parts(output, batch)
        except ColumnsWidened:
            raise
        except Exception as error:
            if not output.numbered and (isinstance(error, Unforeseen) or not isinstance(error, GossamerError)):
                self._halvings = min(self._halvings + 1, MOST_HALVINGS)
            raise
        self._halvings = max(self._halvings - 1, 0)
        return refused

    def _lingers(self) -> bool:
        """Whether to wait for more before the next file. What waits is not read yet: nothing is kept."""
        if not self._linger or self._hurried.is_set():
            return False
        now = self._clock.monotonic()
        if self._waits_since is None:
            self._waits_since = now
        return now - self._waits_since < self._linger

    async def _schemas(self) -> list[ItemSchema]:
        return [schema for schema, _ in await self._source.schemas() if self._plan.wants(schema.type)]

    async def _erase(self, progress: OutputProgress) -> bool:
        """Erase what was ordered. After what was in progress at that time, so that nothing brings it back."""
        waiting = [one for one in await self._book.erasures.all() if self.name in one.waiting][:ERASURES_AT_ONCE]
        if not waiting:
            return False
        output = await self._target()
        # Rows of types that it no longer wants are still in the target; a receiver of messages is told only of its own.
        records = [record for erasure in waiting for record in erasure.records]
        changes = [self._plan.erase(record) for record in records if output.mirrors or self._plan.wants(record.type)]
        if changes:
            number = progress.batches + 1
            await write_in_parts(output, Batch(number=number, fence=progress.fence, changes=changes))
            keys = [dead_key(self.name, change.identity) for change in changes]
            await self._book.note_dead([], [key for key in keys if key in self._dead])
            self._dead.difference_update(keys)
        for erasure in waiting:
            await self._book.erased(erasure, self.name)
        await self._commit(progress, changes=len(changes))
        return True

    async def _note_refused(self, changes: Sequence[Change], refused: Sequence[Refused]) -> None:
        now = self._clock.now()
        dead = [
            DeadRow(
                output=self.name,
                type=type,
                site=site,
                key=key,
                url=str(one.change.row.get(self._plan.column("_url") or "", "") or ""),
                reason=one.reason[:LONGEST_REASON],
                at=now,
            )
            for one in refused
            for type, site, key in (one.change.identity,)
        ]
        keys = {dead_key(self.name, one.change.identity) for one in refused}
        mended = [key for change in changes if (key := dead_key(self.name, change.identity)) in self._dead - keys]
        self._dead = (self._dead - set(mended)) | keys
        await self._book.note_dead(dead, mended)

    async def _commit(self, before: OutputProgress, *, changes: int | None = None, **fields: Any) -> OutputProgress:
        """Move on, unless a person has given an order or another process has taken over meanwhile."""
        now = self._clock.now()
        if changes is not None:
            fields |= {"batches": before.batches + 1, "written": before.written + changes, "written_at": now}
        row = await self._shelf.get(OUTPUT, self.name)
        known = self._book.progress.read(row) if row is not None else None
        if known is None or known.epoch != before.epoch:
            raise Abandoned
        if known.fence != before.fence:
            raise LeaseLost(f"Another process has taken the output {self.name} over.")
        new = msgspec.structs.replace(known, **fields, error="", error_at=None)
        put = self._book.progress.put(self.name, new, expects=row.stamp if row is not None else ABSENT)
        if not await self._shelf.commit([put]):
            raise Abandoned
        self._progress = new
        return new

    async def _note_all_written(self, progress: OutputProgress) -> None:
        """Note now and then that nothing is left."""
        now = self._clock.now()
        if progress.error or progress.all_written_at is None or (progress.written_at or 0.0) >= progress.all_written_at:
            await self._commit(progress, all_written_at=now)

    async def _note(
        self, why: str, next: str = "", *, misconfigured: bool = False, mistake: Exception | None = None
    ) -> None:
        """Note why it stands still, and log it once. Never raises: the state may be what is away."""
        error = why + next

        def noted(known: OutputProgress | None) -> OutputProgress | None:
            if known is None or known.error == error:
                return known
            return msgspec.structs.replace(known, error=error, error_at=self._clock.now(), misconfigured=misconfigured)

        if why != self._said:
            self._said = why
            stands = "has stopped" if misconfigured else "waits"
            log.warning("The output %s %s: %s", self.name, stands, error, exc_info=mistake)
        with suppress(GossamerError):
            await self._book.progress.change(self.name, noted)

    async def _pause(self, seconds: float, *, hurried: timedelta = timedelta(milliseconds=50)) -> None:
        """Wait; no longer than this if it has to hurry."""
        if self._hurried.is_set():
            await self._clock.sleep(min(seconds, hurried.total_seconds()))
            return
        waiting = asyncio.ensure_future(self._hurried.wait())
        try:
            await asyncio.wait(
                {waiting, sleeping := asyncio.ensure_future(self._clock.sleep(seconds))},
                return_when=asyncio.FIRST_COMPLETED,
            )
            sleeping.cancel()
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
