"""A SQLite file of the user as the target of an output. Errors: BatchRefused, Misconfigured, BackendUnavailable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ...errors import BackendUnavailable, BatchRefused, GossamerError, Misconfigured
from .kinds import Cell, Kind
from .sql import Session, are_as, make_anew, to_its_end

T = TypeVar("T")
WAITS = 10.0  # seconds, for others that write to the file
_REFUSES = ("readonly", "not a database", "malformed", "unable to open", "is not authorized")


class SqliteEngine:
    types: Mapping[Kind, str] = MappingProxyType({
        "text": "TEXT", "int": "INTEGER", "float": "REAL", "numeric": "NUMERIC", "number": "NUMERIC",
        "bool": "BOOLEAN", "time": "TIMESTAMP",
        "date": "DATE", "json": "JSON",
    })  # fmt: skip
    parameter = "?"
    elements = "temp.gossamer_rows"  # JSON would be read anew for each column

    def __init__(self, path: Path) -> None:
        self.place = str(path)
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await to_its_end(self._transact(work))

    async def _transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            if self._connection is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._connection = await asyncio.to_thread(self._open)
            connection = self._connection
            await asyncio.to_thread(connection.execute, "BEGIN IMMEDIATE")
            try:
                found = await work(_Session(connection))
                await asyncio.to_thread(connection.execute, "COMMIT")
                return found
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError, MemoryError) as error:
            raise self._translated(error) from error

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=WAITS, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA secure_delete = ON")  # what is erased is not left in free pages
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection

    async def columns(self, session: Session, table: str) -> dict[str, str]:
        rows = await session.rows("SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0", table)
        return {name: type or "TEXT" for name, type in rows}

    async def unique_keys(self, session: Session, table: str) -> list[frozenset[str]]:
        primary = await session.rows("SELECT name FROM pragma_table_info(?) WHERE pk > 0", table)
        found = [frozenset(name for (name,) in primary)] if primary else []
        for (index,) in await session.rows(
            'SELECT name FROM pragma_index_list(?) WHERE "unique" = 1 AND partial = 0 ORDER BY name', table
        ):
            names = [name for (name,) in await session.rows("SELECT name FROM pragma_index_info(?)", index)]
            if None not in names:
                found.append(frozenset(names))
        return found

    def pick(self, place: int, type: str) -> str:
        return f"(v{place} = 'true')" if "BOOL" in type.upper() else f"v{place}"

    def lock(self, table: str) -> str:
        return ""  # the file has one writer

    async def alter(self, session: Session, table: str, types: Mapping[str, str], known: Mapping[str, str]) -> bool:
        if not are_as(await self.columns(session, table), known):
            return False

        async def definition(name: str) -> list[tuple[str, str]]:
            rows = await session.rows(
                "SELECT type, sql FROM sqlite_master WHERE tbl_name = ? COLLATE NOCASE AND type <> 'view'", name
            )
            return sorted((type, str(sql).partition("(")[2]) for type, sql in rows)

        key = await session.rows("SELECT name FROM pragma_table_info(?) WHERE pk > 0 ORDER BY pk", table)
        await session.rows("PRAGMA legacy_alter_table = ON")  # a view of this table does not prevent its replacement
        await make_anew(self, session, table, types, [name for (name,) in key], definition)
        return True

    async def purge(self, tables: Sequence[str]) -> None:
        """Deleted rows are overwritten (secure_delete), but not what was moved when a page of the file was rebuilt."""
        try:
            for statement in ("VACUUM", "PRAGMA wal_checkpoint(TRUNCATE)"):
                if self._connection is not None:
                    await to_its_end(asyncio.to_thread(self._connection.execute, statement))
        except sqlite3.Error as error:
            raise self._translated(error) from error

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.to_thread(connection.close)

    def _translated(self, error: Exception) -> GossamerError:
        said = str(error)
        if isinstance(error, sqlite3.IntegrityError | sqlite3.DataError):
            return BatchRefused(said)
        if isinstance(error, MemoryError):
            return BatchRefused("There is no memory for it", too_large=True)
        if any(word in said for word in _REFUSES) or isinstance(error, PermissionError):
            return Misconfigured(f"{self.place} cannot be written: {said}. Name another file, or mend this one.")
        return BackendUnavailable(f"{self.place} cannot be written at the moment: {said}.")


class _Session:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        return await asyncio.to_thread(lambda: self._connection.execute(sql, values).fetchall())

    async def take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        await asyncio.to_thread(self._take, sql, cells)

    def _take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        connection, width = self._connection, len(cells[0])
        names = ", ".join(f"v{place}" for place in range(width))
        connection.execute(f"CREATE TEMP TABLE gossamer_rows ({names})")
        connection.executemany(f"INSERT INTO gossamer_rows VALUES ({', '.join('?' * width)})", cells)  # noqa: S608
        connection.execute(sql)
        connection.execute("DROP TABLE gossamer_rows")
