"""How far a job has come, and when it will be done. Values only: the command line draws them.

Counts come from the shared state, so that totals and rate are those of the job, with any number of workers.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import msgspec

from ..model.job import JobCounts

RATE_SPAN = 8.0  # seconds


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job. `eta` covers the known pages; links that are still to be found come on top."""

    total: int
    done: int
    dead: int
    queued: int
    waiting: int
    in_flight: int
    rate: float  # pages per second
    eta: timedelta | None
    storing: int = 0  # results that wait on the disks of workers


class RateEstimator:
    """Computes a rate and an estimate from repeated counts of a job. Remembers the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def progress(self, counts: JobCounts, now: float, limit: int | None = None, *, storing: int = 0) -> JobProgress:
        """The progress at `now` (seconds of a monotonic clock). A job with a limit has no more to do than that."""
        settled = counts.settled
        self._seen.append((now, settled))
        while len(self._seen) > 2 and now - self._seen[1][0] >= RATE_SPAN:
            self._seen.popleft()
        since, before = self._seen[0]
        rate = (settled - before) / (now - since) if now > since else 0.0
        still_open = counts.open
        if limit is not None:
            still_open = min(still_open, max(0, limit - settled))
        return JobProgress(
            total=settled + still_open,
            done=counts.done + counts.unchanged,
            dead=counts.dead,
            queued=counts.queued,
            waiting=counts.waiting,
            in_flight=counts.leased,
            rate=rate,
            eta=timedelta(seconds=still_open / rate) if rate > 0 else None,
            storing=storing,
        )


def describe(progress: JobProgress) -> str:
    """`212/340 pages, 48.3/s, 2 dead, queue 128, eta 0:03`"""
    parts = [f"{progress.done + progress.dead:,}/{progress.total:,} pages", f"{progress.rate:.1f}/s"]
    parts.append(f"{progress.dead:,} dead")
    parts.append(f"queue {progress.queued:,}")
    if progress.waiting:
        parts.append(f"waiting {progress.waiting:,}")
    if progress.storing:
        parts.append(f"storing {progress.storing:,}")
    parts.append(f"eta {short_duration(progress.eta)}")
    return "  ".join(parts)


def short_duration(duration: timedelta | None) -> str:
    """`0:42`, `12:05`, `3:10:00`, `2 days`; a dash if unknown."""
    if duration is None:
        return "-"
    seconds = int(duration.total_seconds() + 0.5)
    if seconds >= 2 * 86_400:
        return f"{seconds // 86_400} days"
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
