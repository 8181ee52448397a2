"""The guard at the store's door: when too many of the last items are faulty, nothing more is let in.

A site that changes its layout turns good records into rubbish, page after page. A spider that demands a minimum of
quality stops storing when the share of faultless items among the last ones falls below it. The pages themselves are
kept: they wait among the dead letters (reason "quality"), and are parsed again from the archive when the spider has
been mended. When the pages get better by themselves, the guard opens again.

Each process has a guard of its own for each job, and starts with an open mind.
"""

from __future__ import annotations

from collections import deque

import msgspec

FEWEST = 20  # items before it judges
REPLAY = "gossamer dead replay --reason quality"
REPARSE = "gossamer reparse, for what was stored before it was noticed"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """The guard has just closed or opened."""

    spider: str
    score: float
    minimum: float
    closed: bool
    message: str


class Guard:
    """Watches one spider. `minimum` is a share of faultless items between 0 and 1; None: it never closes."""

    def __init__(self, spider: str, minimum: float | None, window: int, *, keeps_pages: bool = True) -> None:
        self._spider = spider
        self._keeps_pages = keeps_pages
        self._minimum = minimum
        self._last: deque[bool] = deque(maxlen=max(window, FEWEST))
        self._fine = 0
        self.closed = False

    @property
    def score(self) -> float:
        """The share of faultless ones among the last; 1.0 when there were none."""
        return self._fine / len(self._last) if self._last else 1.0

    def note(self, fine: int, faulty: int) -> Turn | None:
        """Take note of the items of one page. Tells when that has closed or opened the guard."""
        for good in _spread(fine, faulty, self._last.maxlen or FEWEST):
            if len(self._last) == self._last.maxlen:
                self._fine -= self._last[0]
            self._last.append(good)
            self._fine += good
        if self._minimum is None or len(self._last) < FEWEST or self.closed == (self.score < self._minimum):
            return None
        self.closed = not self.closed
        shares = f"{self.score:.0%} of the last items of {self._spider} are without faults"
        message = (
            f"Only {shares}, and {self._minimum:.0%} are demanded. Nothing more is stored; {self._pages()}. Mend the"
            f" spider, then: {REPLAY}; and: {REPARSE}"
            if self.closed
            else f"{shares}: records are stored again. For what waits: {REPLAY}"
        )
        return Turn(spider=self._spider, score=self.score, minimum=self._minimum, closed=self.closed, message=message)

    def _pages(self) -> str:
        return "the raw pages wait" if self._keeps_pages else "pages will be fetched again (store.keep_pages is off)"

    def refusal(self, url: str) -> str:
        """Why a page is held back."""
        return (
            f"{url} is not stored: only {self.score:.0%} of the last items of {self._spider} are without faults. Mend"
            f" the spider, then: {REPLAY}"
        )


def _spread(fine: int, faulty: int, most: int) -> list[bool]:
    """The items of one page, the faulty ones evenly among the others: on a long page their share is what counts."""
    count = fine + faulty
    if count > most:
        faulty, count = round(faulty * most / count), most
    return [(place + 1) * faulty // count == place * faulty // count for place in range(count)]
