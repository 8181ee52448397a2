"""Spacing of this process' requests, site by site, at the moment they leave.

A lease reserves a place in the site's bucket; between the grant and the wire a busy loop may lose milliseconds.
Two requests that were granted one second apart could leave 0.9 s apart. So the worker that holds leases of a site
counts starts itself, with the same bucket arithmetic, and tells the frontier at settling how far ahead it is. Requests
that no lease was taken for (robots.txt, a hop after a cookie) are counted here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec

from ..clock import Clock
from ..errors import Transient
from ..frontier.politeness import after_start, earliest_start
from ..model.task import Lease

MAX_HOLD = timedelta(seconds=5)  # a longer wait is spent in the queue, not in a worker's slot
MARGIN = 0.02  # share of an interval that is waited longer: what leaves on time may arrive a little closer
MAX_MARGIN = timedelta(milliseconds=5)


def with_margin(interval: float) -> float:
    """The distance that is kept so that the target sees no smaller one than `interval`."""
    return interval + min(MARGIN * interval, MAX_MARGIN.total_seconds())


class TooEarly(Transient):
    """The site's pace does not allow a request soon. `wait` is how long it will take."""

    reason = "pace"

    def __init__(self, wait: timedelta) -> None:
        super().__init__(f"the site's pace allows the next request in {wait.total_seconds():.1f} s")
        self.wait = wait


class _SitePace(msgspec.Struct):
    tat: float
    interval: float | None
    burst: int
    rest_until: float = 0.0
    last_start: float = float("-inf")
    leases: int = 0


class Pacer:
    """One per process. Keeps a site only while leases of it are in hand: memory is bounded by concurrency."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sites: dict[str, _SitePace] = {}

    def enter(self, lease: Lease) -> None:
        """A lease was granted just now."""
        pace, site = lease.pace, self._sites.get(lease.task.site)
        if site is None:
            site = _SitePace(0.0, None, 1)
            self._sites[lease.task.site] = site
            if pace is not None:
                # The bucket as it was before this very grant, which is counted when the request leaves.
                site.tat = self._clock.monotonic() + pace.ahead - pace.interval
        if pace is not None:
            site.interval = max(with_margin(pace.interval), site.interval or 0.0)
            site.burst = pace.burst
        site.leases += 1

    async def start(self, name: str, asked: timedelta | None = None) -> Callable[[], None]:
        """Return when a request to the site may be made. `asked` is the site's own crawl-delay. Raises TooEarly.

        What is returned is to be called when the request really leaves: a connection may have to be made first,
        and the next request, on a connection that stands, would come too close to it.
        """
        site = self._sites[name]
        if asked is not None and with_margin(asked.total_seconds()) > (site.interval or 0.0):
            # Learned in the middle of things: the request before this one counts with the new distance.
            site.interval, site.burst = with_margin(asked.total_seconds()), 1
            site.tat = max(site.tat, site.last_start + site.interval)
        now = self._clock.monotonic()
        start = max(now, site.rest_until)
        if site.interval is not None:
            start = max(start, earliest_start(site.tat, interval=site.interval, burst=site.burst))
        wait = start - now
        if wait > MAX_HOLD.total_seconds():
            raise TooEarly(timedelta(seconds=wait))
        if site.interval is not None:
            site.tat = after_start(site.tat, start=start, interval=site.interval)
        site.last_start = start
        if wait > 0:
            await self._clock.sleep(wait)
        return partial(self._left, site, start)

    def _left(self, site: _SitePace, start: float) -> None:
        late = self._clock.monotonic() - start
        if late > 0:
            site.tat += late
            site.last_start += late

    def rest(self, name: str, duration: timedelta) -> None:
        """The site wants to be left alone: every journey of this process that holds a lease of it waits too."""
        site = self._sites.get(name)
        if site is not None:
            site.rest_until = max(site.rest_until, self._clock.monotonic() + duration.total_seconds())

    def ahead(self, name: str) -> timedelta:
        """How far the bucket is drawn on, from now; zero without a limit."""
        site = self._sites.get(name)
        if site is None or site.interval is None:
            return timedelta(0)
        return timedelta(seconds=max(0.0, site.tat - self._clock.monotonic()))

    def leave(self, lease: Lease) -> None:
        """The lease was settled."""
        site = self._sites.get(lease.task.site)
        if site is not None:
            site.leases -= 1
            if site.leases <= 0:
                del self._sites[lease.task.site]
