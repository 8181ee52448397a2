"""How far a job has come, and when it will be done. Values only: the command line draws them.

Counts come from the shared state, so that totals and rate are those of the job, with any number of workers.
"""

from __future__ import annotations

from collections import deque
from datetime import timedelta

import msgspec

from ..model.job import JobCounts, JobPace

RATE_SPAN = 8.0  # seconds
DISCOVERY_SPAN = 60.0  # seconds over which pages that were found are set against pages that were settled
SHRINKS = 0.2  # of the pages settled: where the queue shrinks by less, no time can be told


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job. `eta` is None while nothing useful can be said: see `time_left`."""

    total: int
    done: int
    dead: int
    queued: int
    waiting: int
    in_flight: int
    rate: float  # pages per second
    eta: timedelta | None
    found: JobPace | None = None  # set while the job finds about as many pages as it settles
    storing: int = 0  # results that wait on the disks of workers


def is_discovering(pace: JobPace, *, limited: bool = False) -> bool:
    """Whether the job finds so many pages that its queue hardly shrinks, or grows. One whose limit is smaller than its
    queue (`limited`) knows its end."""
    return not limited and pace.found > 0 and pace.settled - pace.found < SHRINKS * pace.settled


def time_left(remaining: int, pace: JobPace, *, limited: bool = False, at_least: float = 0.0) -> float | None:
    """In how many seconds the job may be done: its open pages by the rate at which its queue shrank, and never less
    than `at_least`, the time that the limits of its sites demand. None if that says nothing: no page was settled, or
    the job is still discovering.

    >>> time_left(1200, JobPace(settled=600, found=300, seconds=60.0))
    240.0
    """
    shrank = pace.settled - (0 if limited else pace.found)
    if is_discovering(pace, limited=limited) or shrank <= 0 or pace.seconds <= 0:
        return None
    return max(at_least, remaining * pace.seconds / shrank)


class RateEstimator:
    """Computes a rate and an estimate from repeated counts of a job. Remembers the last minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()  # when, pages settled, pages known

    def progress(
        self,
        counts: JobCounts,
        now: float,
        limit: int | None = None,
        *,
        storing: int = 0,
        sealed: bool = True,
        at_least: float = 0.0,
    ) -> JobProgress:
        """The progress at `now` (seconds of a monotonic clock). A job with a limit has no more to do than that; one
        that is not `sealed` is still given pages by its source. `at_least`: as in `time_left`."""
        settled, known = counts.settled, counts.settled + counts.open
        self._seen.append((now, settled, known))
        while len(self._seen) > 2 and now - self._seen[1][0] >= DISCOVERY_SPAN:
            self._seen.popleft()
        recent = next((one for one in reversed(self._seen) if now - one[0] >= RATE_SPAN), self._seen[0])
        rate = (settled - recent[1]) / (now - recent[0]) if now > recent[0] else 0.0
        since, before, known_before = self._seen[0]
        pace = JobPace(settled - before, max(0, known - known_before), now - since)
        remaining = counts.open if limit is None else min(counts.open, max(0, limit - counts.towards_limit))
        limited = remaining < counts.open
        seconds = time_left(remaining, pace, limited=limited, at_least=at_least) if sealed else None
        return JobProgress(
            total=settled + remaining,
            done=counts.done + counts.unchanged,
            dead=counts.dead,
            queued=counts.queued,
            waiting=counts.waiting,
            in_flight=counts.leased,
            rate=rate,
            eta=timedelta(seconds=seconds) if seconds is not None else None,
            found=pace if is_discovering(pace, limited=limited) else None,
            storing=storing,
        )


def describe(progress: JobProgress) -> str:
    """`212/340 pages, 48.3/s, 2 dead, queue 128, eta 0:03`; `still discovering (+64 in the last 8 s)` if so."""
    settled = f"{progress.done + progress.dead:,}"
    parts = [f"{settled} pages" if progress.found else f"{settled}/{progress.total:,} pages", f"{progress.rate:.1f}/s"]
    parts.append(f"{progress.dead:,} dead")
    parts.append(f"queue {progress.queued:,}")
    if progress.waiting:
        parts.append(f"waiting {progress.waiting:,}")
    if progress.storing:
        parts.append(f"storing {progress.storing:,}")
    parts.append(discovering(progress.found) if progress.found else f"eta {short_duration(progress.eta)}")
    return "  ".join(parts)


def discovering(pace: JobPace) -> str:
    """`still discovering (+412 in the last minute)`"""
    span = "minute" if pace.seconds >= DISCOVERY_SPAN - 5 else f"{max(1, round(pace.seconds))} s"
    return f"still discovering (+{pace.found:,} in the last {span})"


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
