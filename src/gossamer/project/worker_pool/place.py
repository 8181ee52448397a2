"""A job that a station serves, and the worker that works on it. Who has a place is decided in places.py."""

from __future__ import annotations

import msgspec

from ...crawl.worker import Worker
from ...model.job import Job
from . import places
from .places import Occupant


class Place(msgspec.Struct, kw_only=True):
    """A job that is served. `worker` is None until it is open."""

    job: Job
    taken_at: float
    worker: Worker | None = None
    width: int = 0
    leaves: bool = False
    waits: bool = False  # it was told for what

    @property
    def in_flight(self) -> int:
        return self.worker.in_flight if self.worker is not None else 0

    @property
    def is_opening(self) -> bool:
        return self.worker is None or self.worker.began_at is None

    def is_steady(self, now: float) -> bool:
        """Has it been at work for a while, and does not just wait?"""
        if self.worker is None or self.worker.began_at is None:
            return False
        return now - self.worker.began_at >= places.SILENT.total_seconds() > self.worker.idle.total_seconds()

    def occupant(self, now: float) -> Occupant:
        """As others see it who want its place. Only of a job that is at work."""
        worker = self.worker
        assert worker is not None
        assert worker.began_at is not None
        return Occupant(
            job=self.job.id,
            idle=worker.idle.total_seconds(),
            worked=now - worker.began_at,
            opening=worker.began_at - self.taken_at,
            priority=self.job.priority,
        )
