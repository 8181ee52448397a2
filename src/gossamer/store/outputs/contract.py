"""The contract `Output`: a target that records are written to as they change. A new kind of target is one file that
fulfils it, and a line in backends/outputs/open.py, or `use` in a project's settings; tests/conformance/test_outputs.py
runs against each.

How it fails: `Transient` while the target is away (the same batch comes again, when it is back), `Misconfigured` if a
person must change something (the output stops, and says so), `LeaseLost` if another process has taken it over. A row
that the target refuses fails nothing else: `write` returns it.
How it recovers: every write may be repeated, and the target is the same as after one. Nothing is kept between two
writes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from ...model.record import ItemSchema, RecordIdentity

PUT, DELETE, ERASE = "put", "delete", "erase"
ROWS_AT_ONCE = 1000


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a record as it was from `at` on."""

    version: int
    at: float
    row: dict[str, Any]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one record's row. `put`: the row is as here; `delete`: it goes, its history stays; `erase`:
    nothing of it is left. `row` has the values by column, as JSON has them; for `delete` and `erase` it serves to find
    the row.

    `past` are the rows of all its versions, oldest first; only for outputs with a history.
    """

    kind: Literal["put", "delete", "erase"]
    identity: RecordIdentity
    version: int
    at: float  # since when it has been like this
    row: dict[str, Any]
    past: tuple[Past, ...] = ()


class Refused(msgspec.Struct, frozen=True):
    """A change that the target refused, and why."""

    change: Change
    reason: str


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes in the order in which they are to be made. `fence` and `number` never decrease; a repeated batch has the
    same number, and a greater fence if another process repeats it. `schemas` are the declared fields of the types so
    far."""

    number: int
    fence: int
    changes: Sequence[Change]
    schemas: Sequence[ItemSchema] = ()


@runtime_checkable
class Output(Protocol):
    """A target, open. `rows_at_once` is the size of a batch that suits it; `mirrors`: it holds rows, which can be
    deleted, and not messages. What is not abstract may be left out by classes that derive from this one."""

    @property
    def rows_at_once(self) -> int:
        return ROWS_AT_ONCE

    @property
    def mirrors(self) -> bool:
        return True

    @abstractmethod
    async def check(self) -> str:
        """Whether the target can be written, without writing a row: what was found, in words. Raises Misconfigured,
        Transient."""
        ...

    @abstractmethod
    async def write(self, batch: Batch) -> list[Refused]:
        """Make all changes durably, or none, except those that are refused. Raises Transient, Misconfigured, LeaseLost
        for a fence smaller than one the target has seen."""
        ...

    async def count(self) -> int | None:
        """How many rows there are; None if that cannot be told."""
        return None

    async def close(self) -> None:
        """Let go of what is open. A closed output is not used again."""
        return
