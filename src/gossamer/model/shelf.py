"""The shelf: small, cold state of a project, such as keys, callbacks and alerts. One contract for all of it.

A row has a kind, a key, a value (JSON), and optionally a time by which it is listed and a time at which it expires.
What a value means is known to its book alone, which is written once for all backends.
How it fails: BackendUnavailable (nothing happened). How it recovers: a commit is atomic, so the caller repeats it.
Queues, leases, paces and budgets are not kept here: they change with every page, together with the queue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from .schedule import Term

T = TypeVar("T")
ABSENT = b""  # in place of a stamp: there is no such row


class ShelfRow(msgspec.Struct, frozen=True, kw_only=True):
    """`stamp` is random and new with every write: a row that was dropped and made again does not look unchanged."""

    key: str
    value: bytes
    stamp: bytes
    at: float | None = None
    until: float | None = None


class Put(msgspec.Struct, frozen=True, kw_only=True):
    """Write a row. `expects` is the stamp that it must have now, ABSENT if there must be none, or None: whatever is
    there is replaced. After `until` the row is as good as dropped."""

    kind: str
    key: str
    value: bytes
    at: float | None = None
    until: float | None = None
    expects: bytes | None = None


class DropRow(msgspec.Struct, frozen=True, kw_only=True):
    """Delete a row, if there is one. `expects` as in Put."""

    kind: str
    key: str
    expects: bytes | None = None


class Trim(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the newest rows of a kind, by their times, and delete the others."""

    kind: str
    keep: int


Change = Put | DropRow | Trim


class Shelf(Protocol):
    """Rows by kind and key. Times are those of the backend's clock; expired rows are never returned."""

    async def get(self, kind: str, key: str) -> ShelfRow | None: ...

    def rows(self, kind: str) -> AsyncIterator[ShelfRow]:
        """Every row of a kind, unordered, in constant memory. One that is changed meanwhile may come twice."""

    async def timed(
        self,
        kind: str,
        *,
        after: float | None = None,
        until: float | None = None,
        limit: int,
        newest: bool = False,
        prefix: str = "",
        each: int | None = None,
        group: int = 0,
    ) -> list[ShelfRow]:
        """Rows with a time later than `after` and not later than `until`, the earliest first, or the `newest`. With
        `each`, at most that many rows whose keys have the same first `group` characters."""

    async def count(self, kind: str) -> int:
        """How many rows there are, perhaps including some that have expired."""

    async def commit(self, changes: Sequence[Change], term: Term | None = None) -> bool:
        """Make all changes, in this order, or none: False if a row is not as a change expects it. With a `term`, only
        while that scheduler leads. Raises LeaseLost."""

    async def time(self) -> float:
        """The time by the clock of this backend."""


class ShelfKind(Generic[T]):
    """The rows of one kind, as values of one type. Books are made of these."""

    def __init__(self, shelf: Shelf, name: str, type: type[T]) -> None:
        self.name = name
        self._shelf = shelf
        self._read = msgspec.json.Decoder(type).decode

    def read(self, row: ShelfRow) -> T:
        return self._read(row.value)

    async def get(self, key: str) -> T | None:
        row = await self._shelf.get(self.name, key)
        return self._read(row.value) if row is not None else None

    async def all(self) -> list[T]:
        """Every value, by key. For kinds of which there are few."""
        found = {row.key: row.value async for row in self._shelf.rows(self.name)}
        return [self._read(found[key]) for key in sorted(found)]

    async def timed(
        self,
        *,
        after: float | None = None,
        until: float | None = None,
        limit: int,
        newest: bool = False,
        prefix: str = "",
        each: int | None = None,
        group: int = 0,
    ) -> list[T]:
        """As Shelf.timed."""
        rows = await self._shelf.timed(
            self.name, after=after, until=until, limit=limit, newest=newest, prefix=prefix, each=each, group=group
        )
        return [self._read(row.value) for row in rows]

    def put(
        self, key: str, value: T, *, at: float | None = None, until: float | None = None, expects: bytes | None = None
    ) -> Put:
        encoded = msgspec.json.encode(value)
        return Put(kind=self.name, key=key, value=encoded, at=at, until=until, expects=expects)

    def drop(self, key: str) -> DropRow:
        return DropRow(kind=self.name, key=key)

    async def change(self, key: str, change: Callable[[T | None], T | None]) -> T | None:
        """Replace the value by what `change` makes of it, in one atomic step; return the new value. A `change` that
        returns None, or the value that it was given, changes nothing. It may be called several times."""
        while True:
            row = await self._shelf.get(self.name, key)
            known = self._read(row.value) if row is not None else None
            new = change(known)
            if new is None or new is known:
                return new
            at, until = (row.at, row.until) if row is not None else (None, None)
            expects = row.stamp if row is not None else ABSENT
            if await self._shelf.commit([self.put(key, new, at=at, until=until, expects=expects)]):
                return new
