"""Suspects are tried apart: pages that a worker had in hand when it died.

A process that dies takes a delivery from every page that it had in hand, and only one of them killed it. Each of them
is a suspect from then on, and is worked on when no other page is in hand in the whole process: a few together at first,
alone after that. So the page that kills ends with the dead letters, and the others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .held_lease import HeldLease

FEW = 4  # suspects that are tried together


def chosen(suspects: Sequence[HeldLease], max_deliveries: int) -> list[HeldLease]:
    """Which of them are tried together now: a few that are suspected for the first time, else the first alone.

    When the next death would be the last one allowed, it must not be caused by another page.
    """
    first = suspects[0]
    if first.lease.delivery > 2 or max_deliveries <= 2:
        return [first]
    return [suspect for suspect in suspects if suspect.lease.delivery == 2][:FEW]


class Quarantine:
    """Shared by all workers of one process, and belongs to its event loop. Journeys enter and leave; while suspects
    have the place, or wait for it, no other journey may begin."""

    def __init__(self) -> None:
        self._under_way = 0
        self.empty = asyncio.Event()  # nothing is in hand but the suspects
        self.empty.set()
        self.free = asyncio.Event()  # no suspects have the place
        self.free.set()

    def enter(self) -> None:
        """A page that is no suspect is in hand."""
        self._under_way += 1
        self.empty.clear()

    def leave(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self.empty.set()

    @contextmanager
    def entered(self) -> Iterator[None]:
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def take(self) -> bool:
        """Reserve the process for suspects; False when other suspects have it. Then wait until it is `empty`."""
        if not self.free.is_set():
            return False
        self.free.clear()
        return True

    def give_back(self) -> None:
        self.free.set()
