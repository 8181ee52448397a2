"""Keeps suspects apart: pages that a worker had in progress when it died.

A process that dies uses up a delivery of every page that it had in progress, although only one of them killed it. From
then on each of them is a suspect, and is tried while no other page is in progress in the whole process: a few together
at first, then alone. So the page that kills becomes a dead letter, and the others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .held_lease import HeldLease

FEW = 4  # suspects that are tried together


def chosen(suspects: Sequence[HeldLease], max_deliveries: int) -> list[HeldLease]:
    """Choose the suspects to try together now: a few that are suspected for the first time, otherwise the first alone.

    When the next death would be the last one allowed, no other page may cause it.
    """
    first = suspects[0]
    if first.lease.delivery > 2 or max_deliveries <= 2:
        return [first]
    return [suspect for suspect in suspects if suspect.lease.delivery == 2][:FEW]


class Quarantine:
    """Shared by all workers of one process; belongs to its event loop. Journeys enter and leave; while suspects have
    the process to themselves, or wait for it, no other journey may begin."""

    def __init__(self) -> None:
        self._under_way = 0
        self.empty = asyncio.Event()  # no page is in progress except the suspects
        self.empty.set()
        self.free = asyncio.Event()  # no suspects have reserved the process
        self.free.set()

    def enter(self) -> None:
        """A page that is no suspect enters."""
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
        """Reserve the process for suspects; False if other suspects have it. Then wait until it is `empty`."""
        if not self.free.is_set():
            return False
        self.free.clear()
        return True

    def give_back(self) -> None:
        self.free.set()
