"""Which pages of a source are fetched in one run of a schedule with a budget. Pure: nothing is read, no clock is asked.

A `Ledger` is told of all pages, and names those that the budget is best spent on. Of each page it keeps 58 bytes, and
not its address: a source may list millions.

Fails: never. No pages, no budget and pages that nobody knows are all answered.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

from .change_rate import Prior, Rhythm, announced_since, current_after, prior_of, rate, sums_of
from .recrawl import NEVER, Bounds, Known, due

FINGERPRINT = 16  # bytes
SAMPLE = 10_000  # pages that tell what is usual
_STALE, _SAME = 1, 2


class Ledger:
    """What is known of the pages of a source."""

    def __init__(self, *, only_changed: bool = False) -> None:
        """`only_changed`: a site that says a page has not changed is believed, until the longest interval is over."""
        self._only_changed = only_changed
        self._names = bytearray()
        self._fetched = array("d")
        self._found, self._found_time = array("d"), array("d")
        self._dated, self._quiet_time = array("d"), array("d")
        self._checked = array("B")  # whether the four before mean anything
        self._says = array("B")  # what the site says of it

    def __len__(self) -> int:
        return len(self._fetched)

    def note(
        self, fingerprint: bytes, rhythm: Rhythm | None, fetched: float | None, lastmod: float | None = None
    ) -> None:
        """A page. `fetched` is when our copy was, None without one. The fingerprint has 16 bytes."""
        self._names += fingerprint
        self._fetched.append(NEVER if fetched is None else fetched)
        checked = rhythm is not None and rhythm.checks > 0
        self._checked.append(checked)
        self._found.append(rhythm.found if checked and rhythm else 0.0)
        self._found_time.append(rhythm.found_time if checked and rhythm else 0.0)
        self._dated.append(rhythm.dated if checked and rhythm else 0.0)
        self._quiet_time.append(rhythm.quiet_time if checked and rhythm else 0.0)
        self._says.append(self._said(rhythm, fetched, lastmod))

    def choose(self, now: float, bounds: Bounds, budget: int) -> set[bytes]:
        """The fingerprints of the pages to fetch now, `budget` at most. It takes some microseconds for each page."""
        limit = budget
        while True:
            # No price: the best ones are taken until the budget of the run is spent.
            places = due(self._pages(now, bounds), now, 0.0, bounds, limit)
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

    def _pages(self, now: float, bounds: Bounds) -> Iterator[Known[int]]:
        prior = self._prior()
        usual = rate(None, prior)
        for place, fetched in enumerate(self._fetched):
            says = self._says[place]
            if says == _SAME and now - fetched < bounds.longest:
                continue
            own = self._rate(place, prior) if self._checked[place] else usual
            yield Known(place, own, fetched, says == _STALE)

    def _prior(self) -> Prior:
        """What is usual here, by a sample of the pages that were checked."""
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
