"""How often a page changes, learned from the times we checked it. Pure: values in, values out.

Changes are modelled as random events, with a rate per page. A check tells only whether the page changed since the last
one; five changes in between look like one. So dividing changes by time underestimates pages that change often. This
module finds the rate under which the checks are most likely, drawn towards the usual rate of the schedule; the more
checks there are, the weaker the pull. The rate is always defined, also for a page that never changed, or that changed
at every check.

Why this estimator: `python -m bench.recrawl` crawls the same simulated pages with it, with plain division and with the
estimator of Cho and Garcia-Molina for evenly spaced checks. Both leave more copies out of date: after one or two checks
they conclude that a page never changes.

Fails: never. Clocks that jump back teach nothing. Recovers: the past fades, so new habits of a page are learned.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MEMORY = 100  # checks; older ones count less and less
SLOWEST = 1e-11  # changes per second: one in 3,000 years
FASTEST = 1.0
SPREAD = 2.5  # of the logarithm: two pages in three are within a factor of e**2.5 (12) of the median of their schedule
USUAL = 1 / (10 * 86_400)  # the rate if nothing is known: one change in ten days
_USUAL_WEIGHT = 5  # the number of pages that outweighs it
_STEPS = 30  # of bisection: the rate is exact to a ten-millionth
_KEPT = 1 - 1 / MEMORY
_DAY = 86_400.0
_ANYWHERE = 12 * 3600.0  # seconds after UTC at which the last time zone ends its day


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one page. Times are seconds of the clock; the counts are for people.

    The estimate is made from the last four fields, which fade: they are sums over the intervals between two checks.
    """

    first: float
    last: float
    changed: float | None = None  # the last check that found a change
    checks: int = 0  # without the first fetch, which has nothing to compare with
    changes: int = 0
    false_alarms: int = 0  # announced changes that were not found
    alarms: int = 0  # announced changes that were found
    found: float = 0.0  # intervals with a change at an unknown moment
    found_time: float = 0.0  # and their length
    dated: float = 0.0  # changes at a known moment
    quiet_time: float = 0.0  # time in which certainly nothing changed

    @property
    def believes(self) -> bool:
        """Can an announced change (a newer `lastmod` in the sitemap) be trusted on this page?"""
        return self.false_alarms <= self.alarms + 1


class Prior(msgspec.Struct, frozen=True):
    """What is usual: half of the pages change more often than `middle` (per second)."""

    middle: float = USUAL


class ChangeSums(msgspec.Struct, frozen=True):
    """The rates of the pages of a schedule that were checked at least once, as sums that can be added."""

    pages: int = 0
    logarithms: float = 0.0

    def __add__(self, other: ChangeSums) -> ChangeSums:
        return ChangeSums(self.pages + other.pages, self.logarithms + other.logarithms)


def sums_of(rates: Iterable[float]) -> ChangeSums:
    """The sums over the pages with these rates."""
    logarithms = [math.log(_within(rate)) for rate in rates]
    return ChangeSums(len(logarithms), math.fsum(logarithms))


def prior_of(sums: ChangeSums) -> Prior:
    """What a page of this schedule is expected to do. Without pages it is `USUAL`, and moves away from it slowly."""
    total = sums.logarithms + _USUAL_WEIGHT * math.log(USUAL)
    return Prior(_within(math.exp(total / (sums.pages + _USUAL_WEIGHT))))


def seen(rhythm: Rhythm | None, at: float, *, changed: bool, announced: float | None = None) -> Rhythm:
    """The rhythm after a fetch of the page. After the first fetch (`rhythm` None) nothing is known: `changed` is
    ignored.

    `announced` is the moment of a change that was known beforehand, such as a `lastmod` in a sitemap newer than the
    fetch before. It must be passed then: a fetch that waited for the change says less about the rate than one that did
    not. A fetch that is not later than the last one teaches nothing.
    """
    if rhythm is None:
        return Rhythm(first=at, last=at)
    stretch = at - rhythm.last
    if not 0 < stretch < math.inf:
        return rhythm
    dated = changed and announced is not None
    undated = changed and announced is None
    quiet = 0.0 if undated else stretch
    if dated and announced is not None:
        # Whether it changed again after that is unknown, so that time is left out. A site that always says "just now"
        # is thereby measured by plain division: too low for pages that change often, but bounded.
        quiet = min(max(announced - rhythm.last, 0.0), stretch)
    return Rhythm(
        first=rhythm.first,
        last=at,
        changed=at if changed else rhythm.changed,
        checks=rhythm.checks + 1,
        changes=rhythm.changes + changed,
        false_alarms=rhythm.false_alarms + (announced is not None and not changed),
        alarms=rhythm.alarms + dated,
        found=rhythm.found * _KEPT + undated,
        found_time=rhythm.found_time * _KEPT + (stretch if undated else 0.0),
        dated=rhythm.dated * _KEPT + dated,
        quiet_time=rhythm.quiet_time * _KEPT + quiet,
    )


def current_after(lastmod: float) -> float:
    """A copy fetched at this moment or later includes the change that a site dates with `lastmod`.

    Midnight nearly always means a day without a time: the change may have come at any moment of it, in any zone.
    """
    return lastmod + (_DAY + _ANYWHERE if lastmod % _DAY == 0 else 0.0)


def announced_since(fetched_at: float, lastmod: float | None) -> float | None:
    """The moment of a change that the site has announced, if it is later than our copy."""
    return lastmod if lastmod is not None and lastmod > fetched_at else None


def rate(rhythm: Rhythm | None, prior: Prior) -> float:
    """Changes per second: the most likely rate, between `SLOWEST` and `FASTEST`.

    More changes in the same intervals give a higher rate, more quiet time a lower one. A page that was fetched once, or
    never (None), gets the usual rate.
    """
    middle = math.log(_within(prior.middle))
    if rhythm is None or not rhythm.checks:
        return _within(prior.middle)
    # For intervals that ended with a change only the count and the mean length are kept. That is exact if they are
    # equally long, and good if they differ by a few times.
    mean = rhythm.found_time / rhythm.found if rhythm.found > 0 else 0.0
    low, high = math.log(SLOWEST), math.log(FASTEST)
    for _ in range(_STEPS):
        guess = (low + high) / 2
        if _pull(guess, mean, rhythm, middle) > 0:
            low = guess
        else:
            high = guess
    return _within(math.exp((low + high) / 2))


def _pull(logarithm: float, mean: float, rhythm: Rhythm, middle: float) -> float:
    """The slope of the likelihood over the logarithm of the rate. It decreases monotonically, so it has one zero."""
    guess = math.exp(logarithm)
    pull = rhythm.dated - guess * rhythm.quiet_time - (logarithm - middle) / (SPREAD * SPREAD)
    expected = guess * mean
    if rhythm.found > 0 and expected < 700:  # beyond that e**x overflows, and the term vanishes
        pull += rhythm.found * (expected / math.expm1(expected) if expected > 0 else 1.0)
    return pull


def _within(rate: float) -> float:
    return min(max(rate, SLOWEST), FASTEST)
