"""What a run over the archive did, or would do, as `gossamer reparse` prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from ...model.job import Job, JobCounts
from .archive_job import CHANGED, FAILED, LOST, MENDED, NOT_PARSED, RECORDS
from .messages import ReparsedPage

MOST_FAILURES = 20  # kept


class ReparseFailure(msgspec.Struct, frozen=True):
    """A page that could not be parsed."""

    url: str
    message: str


class Report(msgspec.Struct, kw_only=True):
    """Mutable: it grows while pages are parsed."""

    jobs: list[Job] = []  # of a run, as they ended or were left
    pages: int = 0
    records: int = 0
    changed: int = 0
    gone: int = 0
    failed: int = 0
    lost: int = 0  # raw pages that are no longer in the archive
    mended: int = 0  # pages that had failed before; their dead letters stay
    open: int = 0  # pages left to others, or for later
    unknown: Counter[str] = msgspec.field(default_factory=Counter)  # pages of missing spiders
    why: dict[str, str] = {}  # such a spider -> why it is missing
    failures: list[ReparseFailure] = []

    def leave_out(self, spider: str, pages: int, why: str) -> None:
        self.unknown[spider] += pages
        self.why.setdefault(spider, why)

    def add(self, outcome: ReparsedPage) -> None:
        """Add one page of a dry run."""
        self.pages += 1
        self.records += len(outcome.records)
        if not outcome.failure:
            self.mended += outcome.wanted.failure in FAILED
        elif outcome.failure == "lost":
            self.lost += 1
        elif outcome.failure in FAILED:
            self.failed += 1
            if len(self.failures) < MOST_FAILURES:
                self.failures.append(ReparseFailure(outcome.wanted.url, outcome.message))

    def add_job(self, job: Job, counts: JobCounts) -> None:
        """Add all pages of a job, from the counters of its workers on all machines."""
        self.jobs.append(job)
        self.pages += counts.done + counts.dead
        self.open += counts.open
        self.records += counts.stats.get(RECORDS, 0)
        self.changed += counts.stats.get(CHANGED, 0)
        self.mended += counts.stats.get(MENDED, 0)
        self.failed += counts.stats.get(NOT_PARSED, 0) + counts.dead
        self.lost += counts.stats.get(LOST, 0)


Tell = Callable[[Report], None]
