"""How many journeys run at once in this process, and why a slow site does not take the others' places.

A request that has waited for more than a second holds a socket and little else. Such a journey steps aside into
a second lane (as wide as the first), and its slot serves another page. A site that was slow the last time steps
aside at once. When the slow lane is full, slow journeys count like any other: nothing is unbounded.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

SLOW_AFTER = timedelta(seconds=1)
SITES_REMEMBERED = 10_000


class Slots:
    """`width` journeys in the quick lane, up to as many in the slow one. Belongs to one event loop."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._quick = 0
        self._slow = 0
        self._slow_sites: dict[str, None] = {}
        self.changed = asyncio.Event()

    @property
    def free(self) -> int:
        return max(0, self._width - self._quick)

    def resize(self, width: int) -> None:
        """Make the quick lane that wide. Journeys under way go on; slots beyond the width go as they are freed."""
        self._width = width
        self.changed.set()

    @property
    def busy(self) -> int:
        return self._quick + self._slow

    def take(self, site: str) -> Slot:
        """Take a slot for a journey to `site`."""
        self._quick += 1
        return Slot(self, site, known_slow=site in self._slow_sites)

    def _step_aside(self) -> bool:
        if self._slow >= self._width:
            return False
        self._quick -= 1
        self._slow += 1
        self.changed.set()
        return True

    def _give_back(self, slow: bool) -> None:
        if slow:
            self._slow -= 1
        else:
            self._quick -= 1
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

    __slots__ = ("_aside", "_began", "_loop", "_site", "_slots", "_timer")

    def __init__(self, slots: Slots, site: str, *, known_slow: bool) -> None:
        self._slots = slots
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._aside = known_slow and slots._step_aside()
        self._timer = None if self._aside else self._loop.call_later(SLOW_AFTER.total_seconds(), self._late)

    def _late(self) -> None:
        self._aside = self._slots._step_aside()

    def leave(self) -> None:
        """The journey is over."""
        if self._timer is not None:
            self._timer.cancel()
        self._slots._remember(self._site, self._loop.time() - self._began > SLOW_AFTER.total_seconds())
        self._slots._give_back(self._aside)
