"""How many journeys run at once in this process, and why a slow site does not take the slots of others.

A request that has waited for more than a second holds a socket and little else. Such a journey moves into a second
lane, as wide as the first, and its slot serves another page. Pages of a site that was slow the last time move at once.
When the slow lane is full, slow journeys keep their slots: the total stays bounded.

A journey whose page is done, and that only waits for the state to settle it, moves into a third lane, so that the next
page is leased in the same batch as that settlement.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

SLOW_AFTER = timedelta(seconds=1)
SITES_REMEMBERED = 10_000
QUICK, SLOW, SETTLING = range(3)


class Slots:
    """Up to `width` journeys in each lane. Belongs to one event loop."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._lanes = [0, 0, 0]  # journeys in each
        self._slow_sites: dict[str, None] = {}
        self.changed = asyncio.Event()
        self.settling: Callable[[], None] = lambda: None  # called when a page is done, and is being settled

    @property
    def free(self) -> int:
        return max(0, self._width - self._lanes[QUICK])

    def resize(self, width: int) -> None:
        """Change the width of the lanes. Journeys in progress go on; surplus slots disappear as they are freed."""
        self._width = width
        self.changed.set()

    @property
    def busy(self) -> int:
        return sum(self._lanes)

    def take(self, site: str) -> Slot:
        """Take a slot for a journey to `site`."""
        self._lanes[QUICK] += 1
        return Slot(self, site, known_slow=site in self._slow_sites)

    def _move(self, lane: int, to: int) -> int:
        """Move the journey to lane `to` if there is room; return the lane it is in now."""
        if self._lanes[to] >= self._width:
            return lane
        self._lanes[lane] -= 1
        self._lanes[to] += 1
        self.changed.set()
        return to

    def _give_back(self, lane: int) -> None:
        self._lanes[lane] -= 1
        self.changed.set()

    def _remember(self, site: str, slow: bool) -> None:
        if slow:
            self._slow_sites[site] = None
            if len(self._slow_sites) > SITES_REMEMBERED:
                del self._slow_sites[next(iter(self._slow_sites))]
        else:
            self._slow_sites.pop(site, None)


class Slot:
    """The slot of one journey."""

    __slots__ = ("_began", "_lane", "_loop", "_site", "_slots", "_timer")

    def __init__(self, slots: Slots, site: str, *, known_slow: bool) -> None:
        self._slots = slots
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._lane = slots._move(QUICK, SLOW) if known_slow else QUICK
        late = self._loop.call_later(SLOW_AFTER.total_seconds(), self._late) if self._lane == QUICK else None
        self._timer = late

    def _late(self) -> None:
        if self._lane == QUICK:
            self._lane = self._slots._move(QUICK, SLOW)

    def settle(self) -> None:
        """The page is done, and is being settled."""
        self._lane = self._slots._move(self._lane, SETTLING)
        self._slots.settling()

    def leave(self) -> None:
        """The journey is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._slots._remember(self._site, self._loop.time() - self._began > SLOW_AFTER.total_seconds())
        self._slots._give_back(self._lane)
