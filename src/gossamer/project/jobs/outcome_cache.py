"""Caches recently read pages, for clients that poll a running job.

A page that is done does not change, so its documents need not be made again for each poll. Bounded by bytes and time: a
page that was erased from the archive is shown no longer than KEPT.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta
from typing import TYPE_CHECKING

from ...clock import Clock
from .api_views import weight_of

if TYPE_CHECKING:
    from ..pages.results import PageOutcome

KEPT = timedelta(minutes=1)
MOST_BYTES = 32 * 1024 * 1024
MOST_OF_ONE = 1024 * 1024  # bytes; a bigger page is not cached

Key = tuple[str, bytes]  # a job, and what the client wants from a page


class OutcomeCache:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, int, PageOutcome]] = OrderedDict()  # oldest first
        self._bytes = 0

    def get(self, key: Key) -> PageOutcome | None:
        self._drop_old()
        found = self._kept.get(key)
        return found[2] if found is not None else None

    def put(self, key: Key, outcome: PageOutcome) -> None:
        weight = weight_of(outcome.data) + len(key[1])
        if weight > MOST_OF_ONE or key in self._kept:
            return
        self._kept[key] = (self._clock.monotonic() + KEPT.total_seconds(), weight, outcome)
        self._bytes += weight
        self._drop_old()

    def _drop_old(self) -> None:
        now = self._clock.monotonic()
        while self._kept and (self._bytes > MOST_BYTES or next(iter(self._kept.values()))[0] <= now):
            _, (_, weight, _) = self._kept.popitem(last=False)
            self._bytes -= weight
