"""Carrying what one backend holds into another: the contract that both sides of a move fulfil, and the mark they bear.

How it fails: `BackendUnavailable`; what was filled so far stays, under the mark that it is not complete. How it
recovers: the move is run again. It clears what it had begun and fills anew; filling a batch twice changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Standing(StrEnum):
    """What a mark says of the place that bears it."""

    ARRIVING = "arriving"  # a move into it has begun and is not verified: nobody may work here
    MOVED = "moved"  # its contents are elsewhere now: this is the old copy


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A note that a move leaves. `place` is the other side, without secrets.

    `tally` is what an old copy held when it was left, so that work done there since can be noticed.
    """

    standing: Standing
    place: str
    at: float
    tally: dict[str, int] = {}


class Carrier(Protocol[T]):
    """One side of a move. Nobody else works on it meanwhile."""

    async def mark(self) -> Mark | None: ...

    async def set_mark(self, mark: Mark | None) -> None: ...

    async def tally(self) -> dict[str, int]:
        """How many there are of each kind, counted one by one. Empty when there is nothing at all.

        The names are the same on every backend, and so are the numbers when all was carried.
        """
        ...

    def pour(self) -> AsyncIterator[Sequence[T]]:
        """Everything, in batches, in an order in which it can be filled."""
        ...

    async def fill(self, batch: Sequence[T]) -> None:
        """Take a batch in. What is there already stays as it is."""
        ...

    async def settle(self) -> None:
        """All batches are in: make what depends on all of them."""
        ...

    async def clear(self) -> None:
        """Forget everything but the mark."""
        ...
