"""Which pages a run fetches again, if its schedule has a budget. Pure: no clock is read, nothing is stored.

The aim is freshness: the share of time in which our copy of a page is what the site shows, averaged over all pages.
A page that changes at random with a rate r and is fetched every t seconds is fresh for a share of (1 - e**-rt) / rt.
A budget is best spent when one more fetch would gain the same everywhere, so pages are ranked by the `gain` of a fetch.
The result is counter-intuitive: pages that change more often are fetched more often, up to a point. Beyond it a copy
would be out of date so soon that the fetch is better spent on others.

Bounds take precedence over the gain: no page is fetched again within the shortest interval, and every page is due after
the longest, whatever its gain. The budget takes precedence over the longest interval: it is never exceeded, and pages
that have waited longest go first. `python -m bench.recrawl` measures how close this comes to the optimum.

`PageChoice` collects all pages of a source, and chooses those on which the budget is best spent. It keeps 58 bytes per
page, and not its URL: a source may list millions.

Fails: bounds that cannot be kept raise ValueError. Everything else has an answer: no pages, no budget, pages that never
change, pages that change all the time, unknown pages.
"""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

import msgspec

from .change_rate import Prior, Rhythm, announced_since, current_after, prior_of, rate, sums_of

NEVER = -math.inf  # the last fetch of a page without a copy
FINGERPRINT = 16  # bytes
SAMPLE = 10_000  # pages from which the usual rate is estimated
_STALE, _SAME = 1, 2

Id = TypeVar("Id")


class RecrawlBounds(msgspec.Struct, frozen=True):
    """The shortest and the longest interval between two fetches of a page, in seconds. The longest may be endless."""

    shortest: float
    longest: float = math.inf

    def __post_init__(self) -> None:
        if not 0 < self.shortest <= self.longest or self.shortest == math.inf:
            raise ValueError(f"A page cannot be fetched every {self.shortest:g} to {self.longest:g} seconds.")


class KnownPage(msgspec.Struct, Generic[Id], frozen=True, gc=False):
    """The facts for the choice: a page's changes per second, and when we fetched it (or `NEVER`).

    `stale` means that our copy is certainly out of date, because the site announced a newer one.
    """

    id: Id
    rate: float
    fetched: float
    stale: bool = False


class PageChoice:
    """The pages of a source, with what is known of each."""

    def __init__(self, *, only_changed: bool = False) -> None:
        """`only_changed`: trust a site that says a page has not changed, until the longest interval is over."""
        self._only_changed = only_changed
        self._names = bytearray()
        self._fetched = array("d")
        self._found, self._found_time = array("d"), array("d")
        self._dated, self._quiet_time = array("d"), array("d")
        self._checked = array("B")  # whether the four arrays before it are set
        self._says = array("B")  # what the site says about the page

    def __len__(self) -> int:
        return len(self._fetched)

    def note(
        self, fingerprint: bytes, rhythm: Rhythm | None, fetched: float | None, lastmod: float | None = None
    ) -> None:
        """Add a page. `fetched` is when our copy was fetched, None without one. The fingerprint has 16 bytes."""
        self._names += fingerprint
        self._fetched.append(NEVER if fetched is None else fetched)
        checked = rhythm is not None and rhythm.checks > 0
        self._checked.append(checked)
        self._found.append(rhythm.found if checked and rhythm else 0.0)
        self._found_time.append(rhythm.found_time if checked and rhythm else 0.0)
        self._dated.append(rhythm.dated if checked and rhythm else 0.0)
        self._quiet_time.append(rhythm.quiet_time if checked and rhythm else 0.0)
        self._says.append(self._said(rhythm, fetched, lastmod))

    def choose(self, now: float, bounds: RecrawlBounds, budget: int) -> set[bytes]:
        """The fingerprints of the pages to fetch now, at most `budget`. Takes a few microseconds per page."""
        limit = budget
        while True:
            places = due(self._pages(now, bounds), now, bounds, limit)
            found = {self._name(place) for place in places}
            if len(found) >= budget or len(places) < limit:
                return found
            limit += budget - len(found)  # some pages were listed twice

    def _name(self, place: int) -> bytes:
        return bytes(self._names[place * FINGERPRINT : (place + 1) * FINGERPRINT])

    def _said(self, rhythm: Rhythm | None, fetched: float | None, lastmod: float | None) -> int:
        if lastmod is None or fetched is None:
            return 0
        if announced_since(fetched, lastmod) is not None:
            return _STALE if rhythm is None or rhythm.believes else 0
        return _SAME if self._only_changed and fetched >= current_after(lastmod) else 0

    def _pages(self, now: float, bounds: RecrawlBounds) -> Iterator[KnownPage[int]]:
        prior = self._prior()
        usual = rate(None, prior)
        for place, fetched in enumerate(self._fetched):
            says = self._says[place]
            if says == _SAME and now - fetched < bounds.longest:
                continue
            own = self._rate(place, prior) if self._checked[place] else usual
            yield KnownPage(place, own, fetched, says == _STALE)

    def _prior(self) -> Prior:
        """The usual rate, from a sample of the pages that were checked."""
        checked = sum(self._checked)
        step = max(math.ceil(checked / SAMPLE), 1)
        places = [place for place, known in enumerate(self._checked) if known][::step] if checked else []
        start = prior_of(sums_of(()))
        return prior_of(sums_of(self._rate(place, start) for place in places))

    def _rate(self, place: int, prior: Prior) -> float:
        rhythm = Rhythm(
            first=0.0,
            last=0.0,
            checks=1,
            found=self._found[place],
            found_time=self._found_time[place],
            dated=self._dated[place],
            quiet_time=self._quiet_time[place],
        )
        return rate(rhythm, prior)


def gain(rate: float, elapsed: float) -> float:
    """The seconds of freshness that a fetch gains, if every fetch of the page comes `elapsed` seconds after the
    previous.

    It grows with the time, up to 1 / rate: the mean time until the next change.
    """
    if rate <= 0:
        return 0.0
    changes = rate * elapsed
    if changes < 1e-4:  # the next line would be the difference of two almost equal numbers
        return changes * elapsed * (1 / 2 - changes / 3)
    return (1 - (1 + changes) * math.exp(-changes)) / rate if changes < 700 else 1 / rate


def due(
    pages: Iterable[KnownPage[Id]], now: float, bounds: RecrawlBounds, limit: int, *, price: float = 0.0
) -> list[Id]:
    """The pages to fetch now, at most `limit`.

    First those that waited longer than the longest interval, the longest wait first; pages without a copy come before
    all. Then those that gain at least the price (seconds of freshness), the greatest gain first. Takes one pass, and
    memory for `limit` pages.
    """
    if limit <= 0:
        return []
    best = heapq.nlargest(limit, _takers(pages, now, bounds, price), key=lambda taker: taker[:2])
    return [page for _, _, page in best]


def _takers(
    pages: Iterable[KnownPage[Id]], now: float, bounds: RecrawlBounds, price: float
) -> Iterator[tuple[float, float, Id]]:
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
        # A gain is less than r * t * t / 2 and less than 1 / r: most pages are ruled out without computing it.
        elif rate * elapsed * elapsed <= twice or rate * price >= 1:
            continue
        else:
            worth = gain(rate, elapsed)
        if worth >= price:
            yield worth, elapsed, page.id
