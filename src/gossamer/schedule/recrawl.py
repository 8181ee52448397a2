"""Which pages to fetch again, when there are fewer fetches than changes. Pure: no clock is read, nothing is kept.

The aim is freshness: the share of time in which our copy of a page is what the site shows, averaged over all pages.
A page that changes at random with a rate r and is fetched every t seconds is fresh for a share of (1 - e**-rt) / rt.
A budget is best spent when one fetch more would bring the same everywhere. So there is a price: the time of
freshness, in seconds, that a fetch has to bring. From the price follows the interval of every page, and from the budget
the price. The outcome is not what one would guess: pages that change more often are fetched more often, up to a point.
Beyond it a copy would be out of date so soon that the fetch is better spent on others.

Bounds come before the price: no page is fetched again within the shortest interval, and one is due after the longest,
whatever it brings. The budget comes before the longest interval: it is the caller's `limit` that is never exceeded,
and pages that have waited longest go first.

Fails: a budget below zero and bounds that cannot be kept raise ValueError. Everything else has an answer: no pages, no
budget, pages that never change, pages that change all the time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Generic, TypeVar

import msgspec

from .change_rate import SLOWEST, Rhythm

DAY = 86_400.0
NEVER = -math.inf  # the last fetch of a page that we have no copy of
_STEPS_PER_DOUBLING = 64  # rates that differ by less than a hundredth are priced together
_CHEAPEST, _DEAREST = 1e-6, 1 / SLOWEST
_BISECTIONS = 60
_A_LIFETIME = 100 * 365 * DAY  # beyond it a date says nothing, and may be none
_STILL = -1_000_000  # the group of the pages that do not change

Id = TypeVar("Id")


class Bounds(msgspec.Struct, frozen=True):
    """The shortest and the longest interval between two fetches of a page, in seconds. The longest may be endless."""

    shortest: float
    longest: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.longest or self.shortest == math.inf:
            raise ValueError(f"A page cannot be fetched every {self.shortest:g} to {self.longest:g} seconds.")


class Known(msgspec.Struct, Generic[Id], frozen=True, gc=False):
    """A page as far as it matters here: its rate of changes per second, and when we fetched it (or `NEVER`).

    `stale` means that our copy is out of date for certain, because the site announced a newer one.
    """

    id: Id
    rate: float
    fetched: float
    stale: bool = False


def freshness(rate: float, interval: float) -> float:
    """The share of time in which a page is fresh that is fetched at this interval."""
    changes = rate * interval
    return -math.expm1(-changes) / changes if changes > 0 else 1.0


def gain(rate: float, elapsed: float) -> float:
    """The seconds of freshness that a fetch brings, when every fetch of it comes so long after the one before.

    It grows with the time, up to 1 / rate: the mean time until the next change.
    """
    if rate <= 0:
        return 0.0
    changes = rate * elapsed
    if changes < 1e-4:  # the next line would be the difference of two almost equal numbers
        return changes * elapsed * (1 / 2 - changes / 3)
    return (1 - (1 + changes) * math.exp(-changes)) / rate if changes < 700 else 1 / rate


def interval_for(rate: float, price: float, bounds: Bounds) -> float:
    """The interval after which a fetch of this page brings its price, within the bounds."""
    if rate <= 0:
        return bounds.longest
    share = price * rate
    if share >= 1:
        return bounds.longest  # it never brings that much
    return min(max(_changes_for(share) / rate, bounds.shortest), bounds.longest)


def fetches_per_day(rates: Iterable[float], price: float, bounds: Bounds) -> float:
    """What all the pages take at this price."""
    return _fetches_per_day(_priced_together(rates), price, bounds)


def price_for(rates: Iterable[float], per_day: float, bounds: Bounds) -> float:
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


def due(pages: Iterable[Known[Id]], now: float, price: float, bounds: Bounds, limit: int) -> list[Id]:
    """The pages to fetch now, `limit` at most.

    First those that waited longer than the longest interval, the longest wait first: a page without a copy, before all.
    Then those that bring at least the price, the greatest gain first. Its cost is one pass; memory is that of `limit`.
    """
    if limit <= 0:
        return []
    best = heapq.nlargest(limit, _takers(pages, now, price, bounds), key=lambda taker: taker[:2])
    return [page for _, _, page in best]


def explain(
    rhythm: Rhythm | None,
    rate: float,
    price: float,
    bounds: Bounds,
    now: float,
    *,
    moment: Callable[[float], str] = lambda at: f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC",
) -> str:
    """Why the page is fetched again when it is: one sentence, for `gossamer why`."""
    if rhythm is None:
        return "not fetched yet; pages without a copy go first"
    rate = max(rate, SLOWEST)
    if rhythm.checks:
        guess = "about" if rhythm.changes else "perhaps"
        counts = f"{_many(rhythm.checks, 'check')}, {_many(rhythm.changes, 'change')}"
        habit = f"changes {guess} every {_span(1 / rate)} ({counts})"
    else:
        habit = f"fetched once; pages here change about every {_span(1 / rate)}"
    interval = interval_for(rate, price, bounds)
    reason = _reason(rate, price, interval, bounds)
    if interval > _A_LIFETIME:
        return f"{habit}; not fetched again{reason}"
    following = rhythm.last + interval
    when = f"next at {moment(following)}" if following > now else f"due since {moment(following)}"
    return f"{habit}; fetched again every {_span(interval)}{reason}; {when}"


def _reason(rate: float, price: float, interval: float, bounds: Bounds) -> str:
    if price == math.inf:
        return ", because the budget does not pay for more"
    if price * rate >= 1:
        return ", because it changes too often to be kept current within the budget"
    if interval == bounds.longest:
        return ", the longest interval allowed"
    if interval == bounds.shortest:
        return ", the shortest interval allowed"
    return ""


def _takers(pages: Iterable[Known[Id]], now: float, price: float, bounds: Bounds) -> Iterator[tuple[float, float, Id]]:
    """Gain, time since the last fetch and id of every page that is due."""
    shortest, longest, twice = bounds.shortest, bounds.longest, 2 * price
    for page in pages:
        elapsed = now - page.fetched
        if elapsed >= longest:
            yield math.inf, elapsed, page.id
            continue
        rate = page.rate
        if elapsed < shortest:
            continue
        if page.stale:
            worth = 1 / rate if rate > 0 else math.inf
        # A gain is less than r * t * t / 2 and less than 1 / r: most pages are passed over without asking further.
        elif rate * elapsed * elapsed <= twice or rate * price >= 1:
            continue
        else:
            worth = gain(rate, elapsed)
        if worth >= price:
            yield worth, elapsed, page.id


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


def _fetches_per_day(groups: Iterable[tuple[float, int]], price: float, bounds: Bounds) -> float:
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


def _span(seconds: float) -> str:
    for unit, length in (("year", 365 * DAY), ("day", DAY), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= length * 1.5 or (seconds >= length and unit == "minute"):
            return f"{seconds / length:,.1f}".removesuffix(".0") + f" {unit}s"
    return f"{seconds:.0f} seconds"


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
