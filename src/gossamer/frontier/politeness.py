"""How often a site may be visited: pure arithmetic on a token bucket. Used by backends and by the worker's pacer.

The bucket is kept as one number, the theoretical arrival time (TAT): the moment at which it is full again. A
request may start when `now >= tat - (burst - 1) * interval`; it then moves the TAT on by one interval. Over any
span of T seconds no more than `burst + T / interval` requests can start.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache

import msgspec

from ..errors import Misconfigured
from ..model.job import JobPoliteness
from ..units import parse_rate

TERMS_REMEMBERED = 20_000  # the terms of this many sites under a job's own are cached


class SiteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How a site may be visited. `interval` None means no rate limit; `concurrency` None means unlimited.

    These bind the requests of all jobs together. `own_interval` and `own_concurrency` bind those of one job, and are
    set only where they are stricter. `named` are the fields that the site's own table in the settings decides; those of
    them `by_hand` were set by an admin while workers ran, and no job exceeds them. `rests`: no request at all.
    """

    interval: timedelta | None = timedelta(milliseconds=500)
    burst: int = 1
    concurrency: int | None = 4
    own_interval: timedelta | None = None
    own_concurrency: int | None = None
    named: tuple[str, ...] = ()
    by_hand: tuple[str, ...] = ()
    rests: bool = False

    def under(self, job: JobPoliteness) -> SiteTerms:
        """These terms for the requests of one job.

        A slower rate or fewer requests at once bind that job alone. A faster rate, or more at once, counts for the site
        while this job visits it, unless the site's own table says otherwise or the job may only tighten. What was set
        by hand is exceeded by no job.
        """
        return self if job == _NO_WISHES else _under(self, job)

    @property
    def gap(self) -> float:
        """Seconds by which the job's own interval is longer than the site's."""
        if self.own_interval is None:
            return 0.0
        return self.own_interval.total_seconds() - (self.interval.total_seconds() if self.interval is not None else 0.0)

    def own_spacing(self, asked: float | None) -> float | None:
        """Like `spacing`, for two requests of one job."""
        site = self.spacing(asked)
        return site if self.own_interval is None else max(site or 0.0, self.own_interval.total_seconds())

    def spacing(self, asked: float | None) -> float | None:
        """Seconds between two requests: our setting or the site's own crawl-delay (`asked`), whichever is longer."""
        ours = self.interval.total_seconds() if self.interval is not None else None
        if asked is None:
            return ours
        return max(ours or 0.0, asked)

    def burst_under(self, asked: float | None) -> int:
        """No burst with a crawl-delay: it holds between any two requests."""
        return 1 if asked is not None else self.burst


_NO_WISHES = JobPoliteness()


@lru_cache(maxsize=TERMS_REMEMBERED)
def _under(site: SiteTerms, job: JobPoliteness) -> SiteTerms:
    def wished(field: str) -> bool:
        return getattr(job, field) is not None and (field in job.given or field not in site.named)

    def loosens(field: str) -> bool:
        return not job.tightens and field not in site.by_hand

    changes: dict[str, timedelta | int | None] = {}
    if wished("rate"):
        asked = _interval(job.rate or "")
        if asked is not None and (site.interval is None or asked > site.interval):
            changes["own_interval"] = asked
        elif loosens("rate"):
            changes["interval"] = asked
    if wished("burst") and ((job.burst or 1) <= site.burst or loosens("burst")):
        changes["burst"] = job.burst
    if job.concurrency is not None and wished("concurrency"):
        if site.concurrency is None or job.concurrency < site.concurrency:
            changes["own_concurrency"] = job.concurrency
        elif loosens("concurrency"):
            changes["concurrency"] = job.concurrency
    return msgspec.structs.replace(site, **changes)


def _interval(rate: str) -> timedelta | None:
    try:
        return parse_rate(rate).interval
    except ValueError as error:
        raise Misconfigured(f"The rate of the job: {error}.") from error


TermsFor = Callable[[str], SiteTerms]

# A task is leased this long before its turn, and the worker's pacer holds the request until then. Otherwise every
# request would be late by the time that a lease takes, and high rates would never be reached.
HEAD_START = timedelta(milliseconds=20)
REST_LOOK = timedelta(seconds=1)  # how often a site that rests by the settings is looked at again

# Lanes, and jobs (turns.py), share a site that only some of them can have at a time. A lane that was refused and was
# not served for TURN gets its turn: the others leave the site alone for GIVE_WAY, repeatedly until it is served.
# GIVE_WAY is longer than an idle worker waits before it asks again.
TURN = timedelta(seconds=5)
GIVE_WAY = timedelta(milliseconds=500)

# A page in progress that needs one more request asks for a turn this often while other workers owe one, and the site's
# next turn is kept for it until it asks again.
TURN_LOOK = timedelta(milliseconds=50)
TURN_KEPT = timedelta(milliseconds=250)


def earliest_start(tat: float, *, interval: float, burst: int) -> float:
    """When the next request may start."""
    return tat - (burst - 1) * interval


def after_start(tat: float, *, start: float, interval: float) -> float:
    """The bucket after a request that started at `start`."""
    return max(tat, start) + interval
