"""How a worker copes with failing backends: it goes on slowly, and gives up after a minute without a successful
call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import msgspec

from ..clock import Backoff, Clock
from ..errors import GossamerError

LONGEST_OUTAGE = timedelta(seconds=60)  # how long a backend may fail without one successful call
BACKOFF = Backoff(first=timedelta(milliseconds=250), longest=timedelta(seconds=10))

T = TypeVar("T")


class FailingStage(msgspec.Struct, frozen=True):
    """A stage whose calls fail: none has succeeded since the first failure (`since`)."""

    since: float
    last: float
    error: GossamerError


class Outages:
    """Slows a worker down while a backend fails, and ends it after a minute.

    Stages are counted separately: a queue that answers does not make up for a record store that does not. `tell` is
    called for every failure, with the stage and a message.
    """

    def __init__(self, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._failing: dict[str, FailingStage] = {}  # by stage
        self._pauses = 0  # since the first stage began to fail

    @property
    def pause(self) -> timedelta:
        """The pause before the next call."""
        return BACKOFF.pause(self._pauses + 1)

    async def call(
        self,
        stage: str,
        verb: Callable[[], Awaitable[T]],
        tolerated: type[GossamerError] | tuple[type[GossamerError], ...],
    ) -> T | None:
        """Call a verb of a backend; return None if it raises one of the `tolerated` errors."""
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
        """Pause for a moment if a stage is failing. Raises its error once it has failed for LONGEST_OUTAGE."""
        if not self._failing:
            return
        for stage in self._failing.values():
            # Up to the last failure, not up to now: a stage that was not called since may have recovered.
            if stage.last - stage.since > LONGEST_OUTAGE.total_seconds():
                raise stage.error
        pause = self.pause
        self._pauses += 1
        await self._clock.sleep(pause.total_seconds())
