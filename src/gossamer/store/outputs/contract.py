"""The contract `Output`: a target that records are written to as they change. A new kind of target is one file that
fulfils it, and a line in backends/outputs/open.py, or `use` in a project's settings; tests/conformance/test_outputs.py
runs against each.

How it fails: `Transient` while the target is away (the same changes come again, when it is back), `Misconfigured` if a
person must change something (the output stops, and says so), `LeaseLost` if another process has taken it over. A row
that the target refuses fails nothing else: `write` returns it, or raises `BatchRefused`, and it is found by halves. How
it recovers: every write may be repeated, and the target is the same as after one. Nothing is kept between two writes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from ...errors import BackendUnavailable, BatchRefused
from ...model.record import ItemSchema, RecordIdentity

PUT, DELETE, ERASE = "put", "delete", "erase"
ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 32 * 1024 * 1024
SMALL_ROW = 1024 * 1024  # never too large for a target: one that says so has no memory left


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

    @property
    def size(self) -> int:
        """In bytes, as JSON."""
        return len(msgspec.json.encode((self.row, self.past)))


class Refused(msgspec.Struct, frozen=True):
    """A change that the target refused, and why."""

    change: Change
    reason: str


class ColumnsWidened(Exception):
    """The target has given columns of a table that it created itself another type, as the message says, and has written
    nothing: every record is wanted again, because the rows so far have what the database made of them."""


class Unforeseen(BackendUnavailable):
    """A class of the project raised an error of which nobody knows what it means: the batch may be too much for it."""


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Changes in the order in which they are to be made. `fence` and `number` never decrease; a repeated batch has the
    same number, and a greater fence if another process repeats it. `part` tells parts of a batch apart that came one by
    one. `schemas` are the declared fields of the types so far."""

    number: int
    fence: int
    part: str = ""
    changes: Sequence[Change]
    schemas: Sequence[ItemSchema] = ()


@runtime_checkable
class Output(Protocol):
    """A target, open. A batch has at most `rows_at_once`, and ends when it has `bytes_at_once`; `mirrors`: it holds
    rows, which can be deleted, and not messages; `numbered`: what it writes goes by the number of a batch, which comes
    again as it was. What is not abstract may be left out by classes that derive from this
    one."""

    @property
    def rows_at_once(self) -> int:
        return ROWS_AT_ONCE

    @property
    def bytes_at_once(self) -> int:
        return BYTES_AT_ONCE

    @property
    def mirrors(self) -> bool:
        return True

    @property
    def numbered(self) -> bool:
        return not self.mirrors

    @abstractmethod
    async def check(self) -> str:
        """Whether the target can be written, without writing a row: what was found, in words. Raises Misconfigured,
        Transient."""
        ...

    @abstractmethod
    async def write(self, batch: Batch) -> list[Refused]:
        """Make all changes durably, or none, except those that are refused. Raises BatchRefused if it cannot tell which
        are; ColumnsWidened; Transient, Misconfigured, LeaseLost for a fence smaller than one the target has seen."""
        ...

    async def count(self) -> int | None:
        """How many rows there are; None if that cannot be told."""
        return None

    async def close(self) -> None:
        """Let go of what is open. A closed output is not used again."""
        return


async def write_in_parts(output: Output, batch: Batch) -> list[Refused]:
    """Write a batch, or its halves if the target does not take it, and so on: a row that it does not take alone is
    refused. Raises what `Output.write` raises, but for BatchRefused."""
    try:
        return await output.write(batch)
    except BatchRefused as error:
        changes, half = batch.changes, len(batch.changes) // 2
        if not half:
            if error.too_large and sum(one.size for one in changes) < SMALL_ROW:
                raise BackendUnavailable(str(error)) from error
            return [Refused(one, str(error)) for one in changes]
    refused: list[Refused] = []
    for mark, some in (("a", changes[:half]), ("b", changes[half:])):
        refused += await write_in_parts(output, msgspec.structs.replace(batch, part=batch.part + mark, changes=some))
    return refused
