"""The quality guard: when too many of the last items are faulty, no more records of the spider are stored.

A site that changes its layout turns good records into rubbish, page after page. A spider with a quality minimum stops
storing when the share of faultless items among the last ones falls below it. The pages are kept: they wait among the
dead letters (reason "quality"), and are parsed again from the archive when the spider has been fixed. If the pages get
better by themselves, the guard opens again.

Each process has one guard per job. A new one first counts what the account of the job's items says of the last pages,
whichever process parsed them, as long as the same version of the spider did: a restart in the middle of a bad run does
not open it, and one with a mended spider does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

FEWEST = 20  # items that the guard must have seen before it closes
REPLAY = "gossamer dead replay --reason quality"
REPARSE = "gossamer reparse, for what was stored before it was noticed (gossamer quality --faulty)"


class GuardChange(msgspec.Struct, frozen=True, kw_only=True):
    """The guard has just closed or opened; the fields are those of the event QualityChanged."""

    spider: str
    score: float
    minimum: float
    closed: bool
    message: str


class QualityGuard:
    """Watches one spider. `minimum` is the required share of faultless items (0 to 1); None never closes the guard."""

    def __init__(self, spider: str, minimum: float | None, window: int, *, keeps_pages: bool = True) -> None:
        self._spider = spider
        self._keeps_pages = keeps_pages
        self._minimum = minimum
        self._last: deque[bool] = deque(maxlen=max(window, FEWEST))
        self._fine = 0
        self.closed = False

    @property
    def score(self) -> float:
        """The share of faultless items among the last ones; 1.0 before the first item."""
        return self._fine / len(self._last) if self._last else 1.0

    def recall(self, pages: Iterable[tuple[int, int]]) -> None:
        """Count the faultless and faulty items of earlier pages, oldest first. It may be closed afterwards."""
        for fine, faulty in pages:
            self.note(fine, faulty)

    def note(self, fine: int, faulty: int) -> GuardChange | None:
        """Count the items of one page. Return the change if they have closed or opened the guard."""
        for good in _spread(fine, faulty, self._last.maxlen or FEWEST):
            if len(self._last) == self._last.maxlen:
                self._fine -= self._last[0]
            self._last.append(good)
            self._fine += good
        if self._minimum is None or len(self._last) < FEWEST or self.closed == (self.score < self._minimum):
            return None
        self.closed = not self.closed
        shares = f"{self.score:.0%} of the last items of {self._spider} are without faults"
        pages = "the raw pages wait" if self._keeps_pages else "pages will be fetched again (store.keep_pages is off)"
        message = (
            f"Only {shares}; {self._minimum:.0%} are required. Nothing more is stored; {pages}. Fix the"
            f" spider, then: {REPLAY}; and: {REPARSE}"
            if self.closed
            else f"{shares}: records are stored again. For what waits: {REPLAY}"
        )
        return GuardChange(
            spider=self._spider, score=self.score, minimum=self._minimum, closed=self.closed, message=message
        )

    def refusal(self, url: str) -> str:
        """The message of the dead letter for a page that the closed guard holds back."""
        return (
            f"{url} is not stored: only {self.score:.0%} of the last items of {self._spider} are without faults. Fix"
            f" the spider, then: {REPLAY}"
        )


def _spread(fine: int, faulty: int, most: int) -> list[bool]:
    """The items of one page, with the faulty ones spread evenly. Of a page with more than `most` items, `most` are
    counted, with the same share of faulty ones."""
    count = fine + faulty
    if count > most:
        faulty, count = round(faulty * most / count), most
    return [(place + 1) * faulty // count == place * faulty // count for place in range(count)]
