"""What keeps a job from being worked on although it runs: somebody paused it, or its window is closed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from ...clock import Clock
from ...crawl.windows import Gate
from ...errors import Misconfigured
from ...model.job import Job
from ...schedule.windows import parse_windows


class Obstacles:
    """Asked every second for every job, and answered from memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gates: dict[str, Gate] = {}  # by job

    def of(self, job: Job) -> str:
        """In words, for people; empty when there is none."""
        if job.paused:
            return f"it is paused. `gossamer job resume {job.id}` lets it go on."
        if not job.windows:
            return ""
        if job.id not in self._gates:
            try:
                self._gates[job.id] = Gate(parse_windows(job.windows), self._clock)
            except Misconfigured:  # told by whoever opens the job
                return ""
        wait = self._gates[job.id].wait()
        return f"its window opens at {moment(self._clock.now() + wait.total_seconds())}." if wait else ""

    def forget_all_but(self, running: Collection[str]) -> None:
        for job in [job for job in self._gates if job not in running]:
            del self._gates[job]


def moment(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"
