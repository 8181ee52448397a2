"""What a worker does while a backend is in trouble: it goes on slowly, and gives up after a minute.

Stages are counted apart: a queue that answers does not make up for a record store that does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import msgspec

from ..clock import Backoff, Clock
from ..errors import GossamerError

T = TypeVar("T")

PATIENCE = timedelta(seconds=60)  # how long a backend may fail without one good answer
BACKOFF = Backoff(first=timedelta(milliseconds=250), longest=timedelta(seconds=10))


class Failing(msgspec.Struct, frozen=True):
    """Calls of one stage that failed, with no good one since the first (`since`) of them."""

    since: float
    last: float
    error: GossamerError


class Patience:
    """Of one worker. `tell` hears of every failure: the stage, and words."""

    def __init__(self, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._failing: dict[str, Failing] = {}  # by stage
        self._pauses = 0  # made since something began to fail

    @property
    def pause(self) -> timedelta:
        """Before the next try."""
        return BACKOFF.pause(self._pauses + 1)

    async def sheltered(
        self,
        stage: str,
        call: Callable[[], Awaitable[T]],
        tolerated: type[GossamerError] | tuple[type[GossamerError], ...],
    ) -> T | None:
        """Make a call to a backend; None when it fails in a way that may pass."""
        try:
            answer = await call()
        except tolerated as error:
            self.failed(stage, error)
            return None
        self.went_well(stage)
        return answer

    def failed(self, stage: str, error: GossamerError) -> None:
        self._tell(stage, str(error))
        now = self._clock.monotonic()
        if not self._failing:
            self._pauses = 0
        before = self._failing.get(stage)
        self._failing[stage] = Failing(since=now if before is None else before.since, last=now, error=error)

    def went_well(self, stage: str) -> None:
        self._failing.pop(stage, None)

    async def sit_out(self) -> None:
        """While a stage fails, wait a little. Raises its error when it has failed for PATIENCE."""
        if not self._failing:
            return
        for stage in self._failing.values():
            # Up to the last failure, not up to now: a stage that nobody tried since may be well again.
            if stage.last - stage.since > PATIENCE.total_seconds():
                raise stage.error
        pause = self.pause
        self._pauses += 1
        await self._clock.sleep(pause.total_seconds())
