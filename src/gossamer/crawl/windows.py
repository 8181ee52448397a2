"""When pages may be fetched: the windows of a job and of its sites, checked for every lease and cached in memory.

Outside the job's windows a worker leases none of its tasks. A page of a site whose window is closed goes back to the
queue until it opens, and the whole site rests for all workers; other sites are not held up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

from ..clock import Clock
from ..model.job import Job, JobTerms
from ..model.windows import Window, closes_at, is_open, opens_at, parse_windows
from ..settings import Settings

WINDOW = "window"  # the reason of a page that waits for a window
NEXT_LOOK = timedelta(minutes=1)  # how often a closed window is checked
LOOK_AGAIN = timedelta(hours=1)  # an answer is cached no longer than this: clocks get set
REMEMBERED = 20_000  # sites

WindowsOf = Callable[[str], Sequence[Window]]


class OpenTimes:
    """The open times of one set of windows. An empty set is always open."""

    def __init__(self, windows: Sequence[Window], clock: Clock) -> None:
        self._windows = tuple(windows)
        self._clock = clock
        self._opens = 0.0  # when the next window opens, if none is open
        self._looked_at = 0.0
        self._sure_until = 0.0

    def wait(self) -> timedelta:
        """How long until a window opens; zero if one is open."""
        if not self._windows:
            return timedelta(0)
        now = self._clock.now()
        if not self._looked_at <= now < self._sure_until:  # earlier than the last look: the clock was put back
            self._look(now)
        return timedelta(seconds=max(0.0, self._opens - now))

    def _look(self, now: float) -> None:
        self._looked_at = now
        latest = now + LOOK_AGAIN.total_seconds()
        if is_open(self._windows, now):
            self._opens = now
            self._sure_until = min(closes_at(self._windows, now) or latest, latest)
        else:
            self._opens = opens_at(self._windows, now) or latest
            self._sure_until = min(self._opens, latest)


class JobWindows:
    """The windows of one job, and of the sites that have their own."""

    def __init__(self, job: Sequence[Window], windows_of: WindowsOf, clock: Clock) -> None:
        self.job = OpenTimes(job, clock)
        self._windows_of = windows_of
        self._clock = clock
        self._sites: dict[str, OpenTimes | None] = {}

    def wait_for(self, site: str) -> timedelta:
        """How long until pages of the site may be fetched; zero if they may now."""
        if site not in self._sites:
            windows = self._windows_of(site)
            self._sites[site] = OpenTimes(windows, self._clock) if windows else None
            if len(self._sites) > REMEMBERED:
                del self._sites[next(iter(self._sites))]
        times = self._sites[site]
        return times.wait() if times is not None else timedelta(0)


def job_windows(settings: Settings, terms: Job | JobTerms | None, clock: Clock) -> JobWindows:
    """The windows of the job, or of a job with these terms, and of the sites that set windows in their table."""

    def windows_of(site: str) -> tuple[Window, ...]:
        text = settings.domain(site).windows
        return parse_windows(text) if text else ()

    own = terms.windows if terms is not None else ""
    return JobWindows(parse_windows(own) if own else (), windows_of, clock)
