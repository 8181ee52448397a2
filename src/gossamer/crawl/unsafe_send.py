"""Requests that must not be sent twice: POST, PUT, PATCH, DELETE.

That one may have left is noted in the state, durably, before it is written; `retry` and `bury` forget it. Whoever finds
the note after a worker's death knows that nobody knows whether the request arrived.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..errors import AllExitsRest, BudgetSpent, ConnectFailed, ConnectTimedOut, DnsFailed, GossamerError, Uncertain
from ..fetch.contract import Gate
from ..model.route import How
from ..model.task import Lease
from .context import JobContext

NOT_DONE = (408, 425, 429, 503)  # statuses of servers that have not done what they were asked for
_NOT_SENT = (ConnectFailed, ConnectTimedOut, DnsFailed, AllExitsRest, BudgetSpent)

UNCERTAIN = (
    "The request was about to be sent, or was sent, when its worker was lost. Nobody knows whether it arrived. Look at "
    "the site, then replay it (`gossamer dead replay`), or allow it with retry_unsafe."
)
Note = Callable[[], Awaitable[None]]


class UnsafeSend:
    """One such request, in one worker's hands. `note` makes the note; `repeats`: the user allows to send it again when
    its fate is not known."""

    def __init__(self, note: Note | None, *, repeats: bool) -> None:
        self._note = note
        self.repeats = repeats
        self.noted = False
        self.out = False  # it is written, or may be

    def watch(self, gate: Gate | None) -> Gate:
        """The gate for the request: whoever is through it has made the note."""
        return _NotedGate(gate, self)

    async def leave(self) -> None:
        if self._note is not None:
            self.noted = True
            await self._note()
        self.out = True

    def may_repeat(self, failure: GossamerError) -> bool:
        """May the request be made again after this failure?"""
        if self.repeats or not self.out or isinstance(failure, _NOT_SENT):
            return True
        return getattr(failure, "status", None) in NOT_DONE

    def verdict(self, failure: GossamerError) -> GossamerError:
        """What the failure means for this request."""
        if self.may_repeat(failure) or getattr(failure, "status", None) is not None:
            return failure
        return Uncertain(f"{failure} The request was sent, and nobody knows whether it arrived.")


def unsafe_send(context: JobContext, lease: Lease, how: How) -> UnsafeSend | None:
    """What watches over the request of a lease, if it must not be sent twice."""
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
