"""The best intervals that a budget pays for, computed from rates that nobody can know; `bench.recrawl` goes by them.

A budget is best spent when one fetch more would bring the same everywhere. So there is a price: the time of freshness,
in seconds, that a fetch has to bring. From the price follows the interval of every page, and from the budget the price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from gossamer.schedule.change_rate import SLOWEST
from gossamer.schedule.recrawl import RecrawlBounds

DAY = 86_400.0
_STEPS_PER_DOUBLING = 64  # rates that differ by less than a hundredth are priced together
_CHEAPEST, _DEAREST = 1e-6, 1 / SLOWEST
_BISECTIONS = 60
_STILL = -1_000_000  # the group of the pages that do not change


def freshness(rate: float, interval: float) -> float:
    """The share of time in which a page is fresh that is fetched at this interval."""
    changes = rate * interval
    return -math.expm1(-changes) / changes if changes > 0 else 1.0


def interval_for(rate: float, price: float, bounds: RecrawlBounds) -> float:
    """The interval after which a fetch of this page brings its price, within the bounds."""
    if rate <= 0:
        return bounds.longest
    share = price * rate
    if share >= 1:
        return bounds.longest  # it never brings that much
    return min(max(_changes_for(share) / rate, bounds.shortest), bounds.longest)


def price_for(rates: Iterable[float], per_day: float, bounds: RecrawlBounds) -> float:
    """The price at which pages with these rates take `per_day` fetches.

    It is 0 where the budget is more than can be spent, and endless where it does not even pay for the longest interval.
    Where no price takes the budget exactly (all pages alike, and too quick to follow) it is one that takes more: the
    limit of `due` keeps the budget then. Its cost is one pass over the rates; memory does not grow with them.
    """
    if not per_day >= 0:
        raise ValueError(f"A budget of {per_day:g} fetches per day cannot be kept.")
    groups = _priced_together(rates)
    if _fetches_per_day(groups, 0.0, bounds) <= per_day:
        return 0.0
    if _fetches_per_day(groups, math.inf, bounds) >= per_day:
        return math.inf
    low, high = _CHEAPEST, _DEAREST
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if _fetches_per_day(groups, middle, bounds) >= per_day:
            low = middle
        else:
            high = middle
    return low


def purse(carried: float, per_day: float, elapsed: float) -> float:
    """Fetches that may be made now: what was left over and what came in since, but a day's budget at most."""
    return min(carried + per_day * max(elapsed, 0.0) / DAY, max(per_day, 1.0))


def eased(price: float, saved: float, per_day: float) -> float:
    """The price while so many fetches are saved: lower the more there are, so that none are lost for want of takers."""
    if per_day <= 0:
        return price
    left = 1 - max(saved, 0.0) / per_day
    return price * left if left > 0 else 0.0


def _priced_together(rates: Iterable[float]) -> list[tuple[float, int]]:
    """Rates, and how many pages have about that one. There are no more than some thousands, whatever the pages.

    The greatest rate stands for its group: a price that is right for the mean is too high for the quicker half, and
    where pages are too quick to follow, that half would get nothing.
    """
    pages: dict[int, int] = {}
    greatest: dict[int, float] = {}
    log, floor, width = math.log2, math.floor, _STEPS_PER_DOUBLING
    for rate in rates:
        group = floor(log(rate) * width) if rate > SLOWEST else _STILL
        pages[group] = pages.get(group, 0) + 1
        if rate > greatest.get(group, 0.0):
            greatest[group] = rate
    return [(greatest[group] if group != _STILL else 0.0, count) for group, count in pages.items()]


def _fetches_per_day(groups: Iterable[tuple[float, int]], price: float, bounds: RecrawlBounds) -> float:
    return DAY * math.fsum(pages / interval_for(rate, price, bounds) for rate, pages in groups)


def _changes_for(share: float) -> float:
    """The x for which 1 - (1 + x) * e**-x is `share`, in [0, 1): changes to wait for until a fetch brings that much."""
    root = math.sqrt(2 * share)
    if root < 1e-3:
        return root + root * root / 3
    # The same as x - log(1 + x) = `goal`. The first guess is off by a few hundredths, and every step squares that.
    goal = -math.log1p(-share)
    changes = math.sqrt(2 * goal) + 0.7 * goal
    for _ in range(3):
        changes -= (changes - math.log1p(changes) - goal) * (1 + changes) / changes
    return changes
