"""Backends in trouble, as a worker sees them: it goes on slowly, and gives up after a minute without a good answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import msgspec

from ..clock import Backoff, Clock
from ..errors import GossamerError

LONGEST_OUTAGE = timedelta(seconds=60)  # how long a backend may fail without one good answer
BACKOFF = Backoff(first=timedelta(milliseconds=250), longest=timedelta(seconds=10))

T = TypeVar("T")


class FailingStage(msgspec.Struct, frozen=True):
    """Calls of one stage that failed, with no good one since the first (`since`) of them."""

    since: float
    last: float
    error: GossamerError


class Outages:
    """What a worker does while a backend is in trouble: it goes on slowly, and gives up after a minute.

    Stages are counted apart: a queue that answers does not make up for a record store that does not. `tell` hears of
    every failure: the stage, and words.
    """

    def __init__(self, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._failing: dict[str, FailingStage] = {}  # by stage
        self._pauses = 0  # made since something began to fail

    @property
    def pause(self) -> timedelta:
        """Before the next try."""
        return BACKOFF.pause(self._pauses + 1)

    async def call(
        self,
        stage: str,
        verb: Callable[[], Awaitable[T]],
        tolerated: type[GossamerError] | tuple[type[GossamerError], ...],
    ) -> T | None:
        """Call a verb of a backend; None when it fails in a way that may pass."""
        try:
            answer = await verb()
        except tolerated as error:
            self.failed(stage, error)
            return None
        self.over(stage)
        return answer

    def failed(self, stage: str, error: GossamerError) -> None:
        self._tell(stage, str(error))
        now = self._clock.monotonic()
        if not self._failing:
            self._pauses = 0
        before = self._failing.get(stage)
        self._failing[stage] = FailingStage(since=now if before is None else before.since, last=now, error=error)

    def over(self, stage: str) -> None:
        self._failing.pop(stage, None)

    async def wait(self) -> None:
        """While a stage fails, wait a little. Raises its error when it has failed for LONGEST_OUTAGE."""
        if not self._failing:
            return
        for stage in self._failing.values():
            # Up to the last failure, not up to now: a stage that was not tried since may be well again.
            if stage.last - stage.since > LONGEST_OUTAGE.total_seconds():
                raise stage.error
        pause = self.pause
        self._pauses += 1
        await self._clock.sleep(pause.total_seconds())
