"""A job: one run of one spider. Its identity, its settings that all workers must share, its counts."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from .task import UrlState


class JobState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """`name` is what the user typed (spider or URL); `id` is unique per run: `books-3`."""

    id: str
    name: str
    state: JobState
    created_at: float
    finished_at: float | None = None
    limit: int | None = None  # pages to hand out at most, None is unlimited
    depth: int | None = None  # steps that links are followed from the seeds, None is unlimited
    ending: str = ""  # why it finished: "done", "limit", "replaced"


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many URLs of a job are in each state. `discovered` is every link ever offered, duplicates included.

    Always: discovered == queued + waiting + leased + done + unchanged + dropped + dead + duplicates.
    """

    discovered: int = 0
    duplicates: int = 0
    queued: int = 0
    waiting: int = 0
    leased: int = 0
    done: int = 0
    unchanged: int = 0
    dropped: int = 0
    dead: int = 0
    retries: int = 0

    @property
    def open(self) -> int:
        return self.queued + self.waiting + self.leased

    @property
    def settled(self) -> int:
        return self.done + self.unchanged + self.dead

    def in_state(self, state: UrlState) -> int:
        value: int = getattr(self, state.value)
        return value


def slug(name: str) -> str:
    """A name that is safe in job ids and file names."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("https://").removeprefix("http://"))
    return plain.strip("-")[:40].strip("-") or "job"
