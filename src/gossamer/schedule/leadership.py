"""`Lead`: of any number of schedulers one leads. Whether this one does, and how it stays the leader.

What it does: requests the lead and renews it in time, in its own task, so that nothing else a leader does can cost it
the lead. Each answer also gives the time of the backend's clock.
How it fails: Transient, if the state does not answer. A leader that was silent for TERM no longer leads, whether it
knows that or not: what it writes then is refused.
How it recovers: it asks again; if the leader dies, another one leads within TERM and a second.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from ..clock import Clock, ServerClock
from ..errors import LeaseLost, Transient
from ..model.events import EventSink, Leading
from ..model.schedule import Term
from .contract import TickBook

TERM = timedelta(seconds=6)  # by the backend's clock; a leader that is silent for longer no longer leads
RENEW = timedelta(seconds=2)


class Lead:
    """The lead of the scheduler `name`, which must be unique."""

    def __init__(
        self, ticks: TickBook, clock: Clock, events: EventSink, name: str, *, renew: timedelta = RENEW
    ) -> None:
        self._ticks = ticks
        self._clock = clock
        self._events = events
        self._name = name
        self._renew = renew.total_seconds()
        self._asking = asyncio.Lock()
        self._term: Term | None = None
        self._renewed_at = -math.inf  # on this machine's clock

    @property
    def held(self) -> bool:
        """Is it held, as far as this process knows?"""
        return self._term is not None

    @property
    def term(self) -> Term:
        """The current term. Raises LeaseLost."""
        if self._term is None:
            raise LeaseLost(f"{self._name} no longer leads the schedulers; nothing was changed.")
        return self._term

    async def keep(self) -> bool:
        """Become the leader, or stay it. False while another one leads. Raises Transient."""
        async with self._asking:
            asked_at = self._clock.monotonic()
            if self._term is not None and asked_at - self._renewed_at < self._renew:
                return True
            term = await self._ticks.lead(self._name, TERM)
            if term is None:
                self.lose()
                return False
            if self._term is None or self._term.token != term.token:
                self.lose()
                self._events.emit(Leading(at=self._clock.now(), leader=self._name, leads=True, term=term.token))
            self._term, self._renewed_at = term, asked_at
            if isinstance(self._clock, ServerClock):
                self._clock.correct(term.until - TERM.total_seconds(), asked_at)
            return True

    async def stay(self, end: asyncio.Event, tell: Callable[[Exception], None]) -> None:
        """Renew it as long as it is held, until `end`."""
        while not end.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._renew):
                    await end.wait()
            if self.held and not end.is_set():
                try:
                    await self.keep()
                except Exception as error:  # no error may end the scheduler
                    tell(error)

    def lose(self) -> None:
        """The backend said that the term is over."""
        term, self._term = self._term, None
        if term is not None:
            self._events.emit(Leading(at=self._clock.now(), leader=self._name, leads=False, term=term.token))

    async def resign(self) -> None:
        """Let the next scheduler lead at once. Does nothing if this one does not lead."""
        async with self._asking:
            term = self._term
            if term is not None:
                self.lose()
                with suppress(Transient):  # then the term ends by itself
                    await self._ticks.resign(term)
