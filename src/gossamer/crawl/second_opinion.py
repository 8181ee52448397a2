"""A failure that can be the fault of this machine is first tried by another one, if another one is alive.

What it does: a page whose name does not resolve, whose host cannot be routed to, whose certificate seems to be expired
or for whose file the disk is full goes back to the queue once, and uses up no attempt. The second time the failure
counts, unless this process has fetched nothing since its failures began while others settle pages: then the machine is
at fault, and the page is passed on again. Such a process is set aside: it leases rarely, so that it does not get ever
more pages because it fails fast, and its heartbeat says so.
How it fails: without another living machine, or without an answer of the state, every failure counts at once.
How it recovers: the first response ends the doubt about this machine.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from datetime import timedelta

from ..clock import Backoff, Clock
from ..errors import FetchFailed, FetchRefused, GossamerError, Transient
from ..frontier.contract import WorkerBook
from ..model.task import Task
from .heartbeat import MISSING_AFTER

PAUSE = timedelta(seconds=2)  # before a page that was passed on can be leased again
STREAK = 3  # failures without a response in between that make this machine a suspect
RESTS = Backoff(first=timedelta(seconds=2), longest=timedelta(seconds=60))  # between two leases of a suspect
LOOK = timedelta(seconds=5)  # how long the knowledge of other machines is used
GRACE = timedelta(
    seconds=30
)  # for which a suspect is one even if others seem to settle nothing: cards are renewed late
MOST = 10_000  # pages that are remembered; the oldest are forgotten
REASON = "another machine tries it first"
UNABLE = ("draining", "clock wrong", "set aside", "spool full", "archive full")  # states of workers that take no page


class SecondOpinion:
    """The pages of one job that this process passes on to other machines."""

    def __init__(self, book: WorkerBook, clock: Clock) -> None:
        self._book = book
        self._clock = clock
        self._passed: OrderedDict[bytes, None] = OrderedDict()  # pages
        self._failures = 0  # since the last response
        self._failing_since = 0.0  # on the monotonic clock
        self._rests = 0
        self._rests_until = float("-inf")
        self._looks = asyncio.Lock()
        self._looked_at = float("-inf")
        self._peers = 0  # workers of other machines that can take a page
        self._peers_settle = False  # some of them settled pages in the last minute

    def succeeded(self) -> None:
        """A response came, whatever it said: this machine can reach sites."""
        self._failures = self._rests = 0
        self._rests_until = float("-inf")

    @property
    def is_set_aside(self) -> bool:
        """Whether this process gets no response at all while other machines are at work."""
        return self._rests > 0 and self._peers > 0

    @property
    def rest(self) -> timedelta | None:
        """How long this process should lease nothing; None if it need not wait."""
        left = self._rests_until - self._clock.monotonic()
        return timedelta(seconds=left) if left > 0 else None

    async def wants(self, task: Task, failure: GossamerError) -> bool:
        """Whether another machine is to try this page before the failure counts."""
        if not isinstance(failure, FetchFailed | FetchRefused) or not failure.may_be_this_machines:
            return False
        async with self._looks:  # journeys that fail together wait for the same answer
            await self._look()
        if not self._peers:
            return False
        now = self._clock.monotonic()
        if self._failures == 0:
            self._failing_since = now
        self._failures += 1
        lately = now - self._failing_since < GRACE.total_seconds()
        suspect = self._failures >= STREAK and (self._peers_settle or lately)
        if task.fingerprint in self._passed and not suspect:
            return False
        if suspect and self.rest is None:  # all failures of one lease are one
            self._rests += 1
            self._rests_until = now + RESTS.pause(self._rests).total_seconds()
        self._passed[task.fingerprint] = None
        while len(self._passed) > MOST:
            self._passed.popitem(last=False)
        return True

    async def _look(self) -> None:
        """Read from the cards whether workers of other machines live, and what they do."""
        now = self._clock.monotonic()
        if now - self._looked_at < LOOK.total_seconds():
            return
        self._looked_at = now
        try:
            cards = await self._book.workers()
        except Transient:
            cards = []
        here, since = socket.gethostname(), self._clock.now() - MISSING_AFTER.total_seconds()
        peers = [one for one in cards if one.host != here and one.seen_at >= since and one.state not in UNABLE]
        self._peers, self._peers_settle = len(peers), any(one.pace > 0 for one in peers)
