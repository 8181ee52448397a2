"""What the tables of outputs need of an SQL database: a transaction, its columns and keys, rows given as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from .kinds import Cell, Kind

T = TypeVar("T")


class Session(Protocol):
    """A transaction."""

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]: ...

    async def take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        """A statement that reads `elements`, which are these."""
        ...


class Engine(Protocol):
    """A database. Its errors are translated: BatchRefused, Misconfigured, Transient."""

    place: str
    types: Mapping[Kind, str]  # of columns that we create
    parameter: str  # of a statement with one value
    elements: str  # a table of the rows that a statement takes

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T: ...

    async def columns(self, session: Session, table: str) -> dict[str, str]:
        """The columns of a table with their types as the database writes them; empty: there is no such table."""
        ...

    async def unique_keys(self, session: Session, table: str) -> list[frozenset[str]]:
        """The sets of columns that are unique; the primary key first."""
        ...

    def pick(self, place: int, type: str) -> str:
        """The value at a place of a row of `elements`, as this type."""
        ...

    def lock(self, table: str) -> str:
        """A statement that keeps others from creating this table at once; "" if there is no need."""
        ...

    async def alter(self, session: Session, table: str, types: Mapping[str, str]) -> None:
        """Give columns other types, and keep their values."""
        ...

    async def purge(self, tables: Sequence[str]) -> None:
        """Remove what deleted rows of these tables have left in the files, as far as the database allows."""
        ...

    async def close(self) -> None: ...


async def make_anew(
    engine: Engine, session: Session, table: str, types: Mapping[str, str], indexes: Sequence[str]
) -> None:
    """Give columns other types where keys and columns with an index cannot be altered: the table is copied, and its
    indexes are made again by these statements."""
    columns = await engine.columns(session, table)
    [key, *_] = await engine.unique_keys(session, table)
    schema, dot, name = table.rpartition(".")
    draft = f"{schema}{dot}gossamer_draft"
    told = ", ".join(
        f"{column(one)} {types.get(one, type)}{' NOT NULL' if one in key else ''}" for one, type in columns.items()
    )
    primary = ", ".join(column(one) for one in columns if one in key)
    values = ", ".join(f"CAST({column(one)} AS {types[one]})" if one in types else column(one) for one in columns)
    for statement in (
        f"CREATE TABLE {quoted(draft)} ({told}, PRIMARY KEY ({primary}))",
        f"INSERT INTO {quoted(draft)} SELECT {values} FROM {quoted(table)}",  # noqa: S608 - quoted names
        f"DROP TABLE {quoted(table)}",
        f"ALTER TABLE {quoted(draft)} RENAME TO {quoted(name)}",
        *indexes,
    ):
        await session.rows(statement)


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await `work`, which uses threads, to its end even if the caller is cancelled: a thread cannot be stopped."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # nobody waits for it: asyncio would print it
        raise


def quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


def column(name: str) -> str:
    """A column's name in quotes; unlike that of a table, it may have dots."""
    return '"' + name.replace('"', '""').replace("\0", "") + '"'
