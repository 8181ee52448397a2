"""Requests that must not be sent twice: POST, PUT, PATCH, DELETE.

Before such a request is written, the state durably notes that it may have been sent; `retry` and `bury` clear the note.
A worker that finds the note after another worker's death knows that the request may or may not have arrived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..errors import AllExitsRest, BudgetSpent, ConnectFailed, ConnectTimedOut, DnsFailed, GossamerError, Uncertain
from ..fetch.contract import Gate
from ..model.route import FetchOptions
from ..model.task import Lease
from .context import JobContext

NOT_DONE = (408, 425, 429, 503)  # statuses that mean the server did not perform the action
_NOT_SENT = (ConnectFailed, ConnectTimedOut, DnsFailed, AllExitsRest, BudgetSpent)

UNCERTAIN = (
    "The request was about to be sent, or was sent, when its worker was lost. Whether it arrived is unknown. Check the "
    "site, then replay it (`gossamer dead replay`), or allow repeats with retry_unsafe."
)
Note = Callable[[], Awaitable[None]]


class UnsafeSend:
    """One such request in one worker. `note` writes the note; `repeats`: the user allows the request to be repeated
    when its fate is unknown."""

    def __init__(self, note: Note | None, *, repeats: bool) -> None:
        self._note = note
        self.repeats = repeats
        self.noted = False
        self.out = False  # it was written, or may have been

    def watch(self, gate: Gate | None) -> Gate:
        """Wrap the gate of the request: entering it writes the note."""
        return _NotedGate(gate, self)

    async def leave(self) -> None:
        if self._note is not None:
            self.noted = True
            await self._note()
        self.out = True

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
    return UnsafeSend(lambda: context.frontier.note_sent(lease), repeats=repeats)


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
