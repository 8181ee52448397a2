"""A store as a stream of rows, for `gossamer move`, `backup` and `restore`, and the mark that a copy leaves.

How it fails: `BackendUnavailable`; rows that were loaded stay, and the mark says that the store is incomplete. How it
recovers: run the command again. It clears the store and loads everything anew; loading a batch twice is harmless.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec

Row = TypeVar("Row")


class MoveStatus(StrEnum):
    """What a mark says about the store it is in."""

    ARRIVING = "arriving"  # a move into it has begun and is not verified: no other command may work here
    RESTORING = "restoring"  # the same, for a backup that is being restored
    MOVED = "moved"  # its contents are elsewhere now: this is the old copy


class MoveMark(msgspec.Struct, frozen=True, kw_only=True, rename={"status": "standing", "counts": "tally"}):
    """A note in a store. `place` is where its contents come from or went to, without secrets.

    `counts` is what an old copy held when it was left, so that later work there is noticed.
    """

    status: MoveStatus
    place: str
    at: float
    counts: dict[str, int] = {}


class RowStream(Protocol[Row]):
    """The whole content of a store, row by row. Only one command uses it at a time. Workers may go on while it dumps,
    and not while it counts or loads."""

    async def mark(self) -> MoveMark | None: ...

    async def set_mark(self, mark: MoveMark | None) -> None: ...

    async def counts(self) -> dict[str, int]:
        """How many rows of each kind there are, counted one by one. Empty if the store holds nothing.

        All backends use the same names, and give the same numbers for the same rows.
        """

    def dump(self) -> AsyncGenerator[Sequence[Row]]:
        """All rows as of one moment, in batches, in an order in which they can be loaded. Close it (`aclosing`).

        A state may be as of a moment in which it never was, if it could have been left so by a crash: pages that were
        settled meanwhile may be queued, and are fetched again. Raises BackendUnavailable if it cannot tell.
        """

    async def load(self, batch: Sequence[Row]) -> None:
        """Add the rows. A row that exists already stays as it is."""

    async def finish(self) -> None:
        """Do what needs all rows, after the last batch."""

    async def clear(self) -> None:
        """Delete everything but the mark."""
