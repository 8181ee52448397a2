"""How often a site may be visited: pure arithmetic on a token bucket. Used by backends and by the worker's pacer.

The bucket is kept as one number, the theoretical arrival time (TAT): the moment at which it is full again. A
request may start when `now >= tat - (burst - 1) * interval`; it then moves the TAT on by one interval. Over any
span of T seconds no more than `burst + T / interval` requests can start.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec


class SiteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a site may be visited. `interval` None means no rate limit; `concurrency` None means unlimited."""

    interval: timedelta | None = timedelta(milliseconds=500)
    burst: int = 1
    concurrency: int | None = 4

    def spacing(self, asked: float | None) -> float | None:
        """Seconds between two requests: our setting or the site's own crawl-delay (`asked`), whichever is longer."""
        ours = self.interval.total_seconds() if self.interval is not None else None
        if asked is None:
            return ours
        return max(ours or 0.0, asked)

    def burst_under(self, asked: float | None) -> int:
        """No burst with a crawl-delay: it holds between any two requests."""
        return 1 if asked is not None else self.burst


TermsFor = Callable[[str], SiteTerms]

# A task is leased this long before its turn, and the worker's pacer holds the request until then. Otherwise every
# request would be late by the time that a lease takes, and high rates would never be reached.
HEAD_START = timedelta(milliseconds=20)

# Lanes, and jobs (turns.py), share a site that only some of them can have at a time. A lane that was refused and was
# not served for TURN gets its turn: the others leave the site alone for GIVE_WAY, repeatedly until it is served.
# GIVE_WAY is longer than an idle worker waits before it asks again.
TURN = timedelta(seconds=5)
GIVE_WAY = timedelta(milliseconds=500)


def earliest_start(tat: float, *, interval: float, burst: int) -> float:
    """When the next request may start."""
    return tat - (burst - 1) * interval


def after_start(tat: float, *, start: float, interval: float) -> float:
    """The bucket after a request that started at `start`."""
    return max(tat, start) + interval
