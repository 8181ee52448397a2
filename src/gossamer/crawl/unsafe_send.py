"""Requests that must not be sent twice: POST, PUT, PATCH, DELETE.

Before such a request is written, two notes say that it may be out. The one in the state goes with the task: a worker
that leases it after another worker's death knows that the request may have arrived; `retry` and `bury` clear it. The
state may lose its last writes in a power cut. So the other note is a commit in the record store, which is not lost: it
is asked and written in one step, and the request leaves only if there was none (docs/adr/0085).

How it fails: while the record store does not answer, such requests wait. How it recovers: a request that was sent under
an earlier lease is settled by its stored answer, or becomes a dead letter, `uncertain`.
"""

from __future__ import annotations

import math
import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Protocol

from ..errors import (
    AllProxiesRest,
    BackendUnavailable,
    BudgetSpent,
    ConnectFailed,
    ConnectTimedOut,
    DnsFailed,
    GossamerError,
    Transient,
    Uncertain,
)
from ..fetch.contract import Gate
from ..model.record import Attempt
from ..model.route import FetchOptions
from ..model.task import Lease
from ..store.contract import PageLog, SentNote
from .context import JobContext
from .pacer import TooEarly

NOT_DONE = (408, 425, 429, 503)  # statuses that mean the server did not perform the action
_NOT_SENT = (ConnectFailed, ConnectTimedOut, DnsFailed, AllProxiesRest, BudgetSpent)

UNCERTAIN = (
    "The request was about to be sent, or was sent, when its worker was lost. Whether it arrived is unknown. Check the "
    "site, then replay it (`gossamer dead replay`), or allow repeats with retry_unsafe."
)
ANSWERED = ("done", "redirected")  # outcomes of attempts after which such a request is settled
NEXT_TRY = timedelta(seconds=2)


class AlreadySent(Transient):
    """The request was sent under another lease, which the state may have forgotten."""


class NotNoted(TooEarly):
    """The record store does not answer, so the request must wait."""

    reason = "records away"

    def __init__(self, cause: BackendUnavailable) -> None:
        Transient.__init__(self, f"A request that must not be sent twice is noted before it is sent. {cause}")
        self.wait = NEXT_TRY


class Notes(Protocol):
    """The notes of one request."""

    async def write(self) -> None:
        """Raises AlreadySent, NotNoted, LeaseLost."""
        ...

    async def withdraw(self) -> None:
        """The request may be sent again."""
        ...


class UnsafeSend:
    """One such request in one worker. `notes` are written before it leaves; `repeats`: the user allows the request to
    be repeated when its fate is unknown."""

    def __init__(self, notes: Notes | None, *, repeats: bool) -> None:
        self._notes = notes
        self.repeats = repeats
        self.noted = False
        self.out = False  # it was written, or may have been

    def watch(self, gate: Gate | None) -> Gate:
        """Wrap the gate of the request: entering it writes the note."""
        return _NotedGate(gate, self)

    async def leave(self) -> None:
        if self._notes is not None:
            self.noted = True
            await self._notes.write()
        self.out = True

    async def withdraw(self) -> None:
        """The request was not sent after all, or the server did not perform it: it may be sent again."""
        if self._notes is not None and self.noted:
            await self._notes.withdraw()
            self.noted = False

    def may_repeat(self, failure: GossamerError) -> bool:
        """May the request be repeated after this failure?"""
        if self.repeats or not self.out or isinstance(failure, _NOT_SENT):
            return True
        return getattr(failure, "status", None) in NOT_DONE

    def verdict(self, failure: GossamerError) -> GossamerError:
        """The error to raise for this request: the failure itself, or Uncertain."""
        if self.may_repeat(failure) or getattr(failure, "status", None) is not None:
            return failure
        return Uncertain(f"{failure} The request was sent; whether it arrived is unknown.")


def unsafe_send(context: JobContext, lease: Lease, how: FetchOptions) -> UnsafeSend | None:
    """The watch over the request of a lease; None if it may be sent twice."""
    if how.is_safe:
        return None
    repeats = context.spider.retry_unsafe if how.retry_unsafe is None else how.retry_unsafe
    if repeats is None:
        repeats = context.retry_terms_for(lease.task.site).unsafe
    return UnsafeSend(_LeaseNotes(context, lease, how, repeats=repeats), repeats=repeats)


async def stored_answer(log: PageLog, job: str, fingerprint: bytes, since: float = -math.inf) -> Attempt | None:
    """The attempt whose stored answer settles the request; None if no answer is stored."""
    found = [one for one in await log.attempts(fingerprint, job) if one.at >= since]
    return next((one for one in reversed(found) if one.outcome in ANSWERED), None)


def earliest_answer(context: JobContext, lease: Lease, how: FetchOptions) -> float:
    """Notes and answers before this time belong to an earlier request of the job, which this one may repeat."""
    # The number of a job that the state has lost for good is given out again.
    return lease.task.created_at if how.forced or context.readmits else context.begun_at


class _LeaseNotes:
    """Fulfils `Notes`, for the request of a lease."""

    def __init__(self, context: JobContext, lease: Lease, how: FetchOptions, *, repeats: bool) -> None:
        self._context = context
        self._lease = lease
        self._repeats = repeats
        self._since = earliest_answer(context, lease, how)
        self._owner = secrets.token_hex(16)

    async def write(self) -> None:
        context, task = self._context, self._lease.task
        await context.frontier.note_sent(self._lease)
        if self._repeats:
            return
        await context.durable()  # else the state might forget the whole job, of which a repetition knows nothing
        note = SentNote(job=task.job, fingerprint=task.fingerprint, owner=self._owner, at=context.clock.now())
        try:
            noted = await context.records.note_sent(note, replaces_before=self._since)
        except BackendUnavailable as error:
            context.sink.records_failed()
            raise NotNoted(error) from error
        if not noted:
            raise AlreadySent(f"{task.url} was sent before.")

    async def withdraw(self) -> None:
        task = self._lease.task
        if not self._repeats:
            with suppress(BackendUnavailable):  # then the note stays: the request is not sent again
                await self._context.records.forget_sent(task.job, [task.fingerprint])


class _NotedGate:
    """Fulfils `Gate`."""

    def __init__(self, gate: Gate | None, send: UnsafeSend) -> None:
        self._gate = gate
        self._send = send

    @property
    def is_out(self) -> bool:
        return self._gate.is_out if self._gate is not None else self._send.out

    async def enter(self, address: str = "") -> None:
        if self._gate is not None:
            await self._gate.enter(address)
        await self._send.leave()

    def withdraw(self) -> None:
        self._send.out = False
        if self._gate is not None:
            self._gate.withdraw()

    def left(self, ago: float = 0.0) -> None:
        if self._gate is not None:
            self._gate.left(ago)

    def close(self) -> None:
        if self._gate is not None:
            self._gate.close()
