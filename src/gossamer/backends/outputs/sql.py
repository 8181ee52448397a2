"""What the tables of outputs need of an SQL database: a transaction, its columns and keys, rows given as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ...errors import Misconfigured
from .kinds import Cell, Kind

T = TypeVar("T")


class Session(Protocol):
    """A transaction."""

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]: ...

    async def take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        """A statement that reads `elements`, which are these."""
        ...


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it is: its columns with their types, the key, and whether it is ours."""

    name: str
    types: dict[str, str]
    key: tuple[str, ...]
    made: bool
    guard: str | None = None  # the column with the time of a row's version


class Misfit(Exception):
    """Columns of a table of ours cannot hold the values of a batch; `types` can."""

    def __init__(self, layout: Layout, types: dict[str, str]) -> None:
        self.layout = layout
        self.types = types


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

    async def alter(self, session: Session, table: str, types: Mapping[str, str], known: Mapping[str, str]) -> bool:
        """Give columns other types than `known`, and keep their values; False, and nothing is done, if the columns have
        other ones by now. Raises Misconfigured if that cannot be done."""
        ...

    async def purge(self, tables: Sequence[str]) -> None:
        """Remove what deleted rows of these tables have left in the files, as far as the database allows."""
        ...

    async def close(self) -> None: ...


def layout_sql(table: str, types: Mapping[str, str], key: Sequence[str]) -> str:
    """What CREATE TABLE makes a table of ours of."""
    told = ", ".join(f"{column(name)} {type}{' NOT NULL' if name in key else ''}" for name, type in types.items())
    return f"{quoted(table)} ({told}, PRIMARY KEY ({', '.join(map(column, key))}))"


async def make_anew(
    engine: Engine,
    session: Session,
    table: str,
    types: Mapping[str, str],
    key: Sequence[str],
    definition: Callable[[str], Awaitable[object]],
) -> None:
    """Give columns other types where the database alters none: the table is copied. Raises Misconfigured if there is
    more to it than an output makes, as its definition (without the name) shows: a copy would lose that."""
    columns = await engine.columns(session, table)
    schema, dot, name = table.rpartition(".")
    draft = f"{schema}{dot}gossamer_draft"
    await session.rows(f"CREATE TABLE {layout_sql(draft, columns, key)}")
    if await definition(draft) != await definition(table):
        raise Misconfigured(
            f"It keeps its type: {table} has something that Gossamer did not make, such as an index, a trigger, a"
            f" default or a generated column, and would lose it. Alter the column, and rewind the output."
        )
    values = ", ".join(f"CAST({column(one)} AS {types[one]})" if one in types else column(one) for one in columns)
    for statement in (
        f"DROP TABLE {quoted(draft)}",
        f"CREATE TABLE {layout_sql(draft, {**columns, **types}, key)}",
        f"INSERT INTO {quoted(draft)} SELECT {values} FROM {quoted(table)}",  # noqa: S608 - quoted names
        f"DROP TABLE {quoted(table)}",
        f"ALTER TABLE {quoted(draft)} RENAME TO {quoted(name)}",
    ):
        await session.rows(statement)


def are_as(there: Mapping[str, str], known: Mapping[str, str]) -> bool:
    """Whether columns that are known have these types still."""
    return all(there.get(name) == type for name, type in known.items())


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
