"""How often a page changes, learned from the times we checked it. Pure: values in, values out.

Changes are taken as random events with a rate of their own per page. A check tells one thing only: it changed since the
last one, or it did not; five changes in between look like one. So changes divided by time is too low for pages that
change often. What is found here is the rate under which the checks are most likely, drawn towards what is usual in the
schedule, and the less so the more checks there are. Nothing is undefined: a page that never changed, or that changed
at every check, has a rate like any other.

Why this one: `python -m bench.recrawl` crawls the same simulated pages with it, with plain division and with the
estimator of Cho and Garcia-Molina for evenly spaced checks. Both leave more copies out of date: after one or two checks
they believe in pages that never change.

Fails: never. Clocks that jump back teach nothing. Recovers: the past fades, so a page with new habits is learned again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MEMORY = 100  # checks; older ones count for ever less
SLOWEST = 1e-11  # changes per second: one in 3,000 years
FASTEST = 1.0
SPREAD = 2.5  # of the logarithm: two pages in three are within e**2.5 (12 times) of the middle of their schedule
USUAL = 1 / (10 * 86_400)  # where nothing at all is known: a change in ten days
_USUAL_WEIGHT = 5  # pages it takes to outweigh it
_STEPS = 30  # of bisection: the rate is right to a ten-millionth
_KEPT = 1 - 1 / MEMORY
_DAY = 86_400.0
_ANYWHERE = 12 * 3600.0  # seconds by which the last time zone ends its day after UTC


class Rhythm(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one page. Times are seconds of the clock; the counts are for people.

    The last four are what the estimate is made of, and fade: they are sums over the stretches between two checks.
    """

    first: float
    last: float
    changed: float | None = None  # the last check that found a change
    checks: int = 0  # the first fetch does not count: there is nothing to compare it with
    changes: int = 0
    false_alarms: int = 0  # announced changes that were none
    alarms: int = 0  # announced changes that were found
    found: float = 0.0  # stretches with a change at an unknown moment
    found_time: float = 0.0  # and their length
    dated: float = 0.0  # changes whose moment is known
    quiet_time: float = 0.0  # time in which surely nothing changed

    @property
    def believes(self) -> bool:
        """Whether an announced change (a newer `lastmod` in the sitemap) is worth anything on this page."""
        return self.false_alarms <= self.alarms + 1


class Prior(msgspec.Struct, frozen=True):
    """What is usual: half of the pages change more often than `middle` (per second)."""

    middle: float = USUAL


class Sums(msgspec.Struct, frozen=True):
    """The rates of the pages of a schedule that were checked at least once. Sums can be added up."""

    pages: int = 0
    logarithms: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.pages + other.pages, self.logarithms + other.logarithms)


def sums_of(rates: Iterable[float]) -> Sums:
    """The sums over the pages with these rates."""
    logarithms = [math.log(_within(rate)) for rate in rates]
    return Sums(len(logarithms), math.fsum(logarithms))


def prior_of(sums: Sums) -> Prior:
    """What a page of this schedule may be expected to do. With no pages it is `USUAL`, and it leaves that slowly."""
    total = sums.logarithms + _USUAL_WEIGHT * math.log(USUAL)
    return Prior(_within(math.exp(total / (sums.pages + _USUAL_WEIGHT))))


def seen(rhythm: Rhythm | None, at: float, *, changed: bool, announced: float | None = None) -> Rhythm:
    """The rhythm after a fetch of the page. After the first one, of None, nothing is known: `changed` means nothing.

    `announced` is the moment of a change that was known beforehand, as a sitemap's `lastmod` that is newer than the
    fetch before. It must be given then: a fetch that waits for the change says less about the rate than one that does
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
        # Whether it changed again after that is not known, so that time is left out. A site that always says "just
        # now" is measured by plain division then: too low for pages that change often, but never without bounds.
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
    """A copy that was fetched at this moment or later holds the change that a site dates with `lastmod`.

    Midnight is a day without a time, as good as always: the change may have come at any moment of it, in any zone.
    """
    return lastmod + (_DAY + _ANYWHERE if lastmod % _DAY == 0 else 0.0)


def announced_since(fetched_at: float, lastmod: float | None) -> float | None:
    """The moment of a change that a site has announced, when it is later than our copy."""
    return lastmod if lastmod is not None and lastmod > fetched_at else None


def rate(rhythm: Rhythm | None, prior: Prior) -> float:
    """Changes per second: the most likely rate, between `SLOWEST` and `FASTEST`.

    More changes in the same stretches give a greater rate, more quiet time a smaller one. A page that was fetched
    once, or never (None), does what is usual.
    """
    middle = math.log(_within(prior.middle))
    if rhythm is None or not rhythm.checks:
        return _within(prior.middle)
    # Of stretches that ended with a change only the number and the mean length are kept. That is exact where they are
    # equally long, and good where they differ by some times.
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
    """The slope of the likelihood over the logarithm of the rate. It only ever falls, so there is one rate without."""
    guess = math.exp(logarithm)
    pull = rhythm.dated - guess * rhythm.quiet_time - (logarithm - middle) / (SPREAD * SPREAD)
    expected = guess * mean
    if rhythm.found > 0 and expected < 700:  # beyond that e**x is no number, and the term is nothing
        pull += rhythm.found * (expected / math.expm1(expected) if expected > 0 else 1.0)
    return pull


def _within(rate: float) -> float:
    return min(max(rate, SLOWEST), FASTEST)
