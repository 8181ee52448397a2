"""A DuckDB file of the user as the target of an output. The file is open only while a batch is written, because DuckDB
lets nobody else read it meanwhile. Extensions are never fetched. Errors: BatchRefused, Misconfigured,
BackendUnavailable."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from ...errors import BackendUnavailable, BatchRefused, GossamerError, Misconfigured, MissingExtra
from .kinds import Cell, Kind
from .sql import Session, are_as, column, make_anew, to_its_end

T = TypeVar("T")
log = logging.getLogger("gossamer.outputs")


class DuckdbEngine:
    types: Mapping[Kind, str] = MappingProxyType({
        "text": "VARCHAR", "int": "BIGINT", "float": "DOUBLE", "numeric": "DECIMAL(38,9)",
        "number": "DOUBLE", "bool": "BOOLEAN",
        "time": "TIMESTAMP WITH TIME ZONE", "date": "DATE", "json": "JSON",
    })  # fmt: skip
    parameter = "?"
    elements = """(SELECT unnest(from_json(?::JSON, '[["VARCHAR"]]')) AS v) AS e"""  # read once for all columns

    def __init__(self, path: Path) -> None:
        try:
            import duckdb
        except ImportError as error:
            raise MissingExtra("Outputs to DuckDB need one more package: pip install 'gossamer[duckdb]'.") from error
        self.place = str(path)
        self._path = path
        self._driver: Any = duckdb

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await to_its_end(self._transact(work))

    async def _transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = await asyncio.to_thread(self._open)
            try:
                await asyncio.to_thread(connection.execute, "BEGIN")
                found = await work(_Session(connection))
                await asyncio.to_thread(connection.execute, "COMMIT")
                return found
            except BaseException:
                with suppress(self._driver.Error):
                    connection.execute("ROLLBACK")
                raise
            finally:
                await asyncio.to_thread(connection.close)
        except (self._driver.Error, OSError) as error:
            raise self._translated(error) from error

    def _open(self) -> Any:
        return self._driver.connect(
            str(self._path),
            config={"autoinstall_known_extensions": False, "autoload_known_extensions": False, "threads": 1},
        )

    async def columns(self, session: Session, table: str) -> dict[str, str]:
        schema, _, name = table.rpartition(".")
        rows = await session.rows(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND schema_name = ?"
            " AND NOT internal ORDER BY column_index",
            name,
            schema or "main",
        )
        return {str(name): str(type) for name, type in rows}

    async def unique_keys(self, session: Session, table: str) -> list[frozenset[str]]:
        schema, _, name = table.rpartition(".")
        rows = await session.rows(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE table_name = ? AND schema_name = ?"
            " AND constraint_type IN ('PRIMARY KEY', 'UNIQUE') ORDER BY constraint_type",
            name,
            schema or "main",
        )
        return [frozenset(names) for (names,) in rows]

    def pick(self, place: int, type: str) -> str:
        through = "::JSON" if type.endswith("[]") else ""  # the text of a list is not read as JSON
        return f"(v[{place + 1}]){through}::{type}"

    def lock(self, table: str) -> str:
        return ""  # the file has one writer

    async def alter(self, session: Session, table: str, types: Mapping[str, str], known: Mapping[str, str]) -> bool:
        if not are_as(await self.columns(session, table), known):
            return False
        schema, _, plain = table.rpartition(".")
        where = "WHERE table_name = ? AND schema_name = ?"

        async def definition(name: str) -> tuple[object, ...]:
            at = name.rpartition(".")[2], schema or "main"
            [(sql, said)] = await session.rows(f"SELECT sql, comment FROM duckdb_tables() {where}", *at)  # noqa: S608
            indexes = await session.rows(f"SELECT sql FROM duckdb_indexes() {where}", *at)  # noqa: S608
            notes = await session.rows(f"SELECT comment FROM duckdb_columns() {where} AND comment <> ''", *at)  # noqa: S608
            return str(sql).partition("(")[2], said, indexes, notes

        [(key,)] = await session.rows(
            f"SELECT constraint_column_names FROM duckdb_constraints() {where} AND constraint_type = 'PRIMARY KEY'",  # noqa: S608
            plain,
            schema or "main",
        )
        await make_anew(self, session, table, types, key, definition)
        return True

    async def purge(self, tables: Sequence[str]) -> None:
        try:
            await to_its_end(asyncio.to_thread(self._rewrite))
        except (self._driver.Error, OSError) as error:
            if isinstance(error, self._driver.IOException | OSError):
                raise self._translated(error) from error
            log.warning("%s may still hold deleted rows: it cannot be written anew (%s).", self.place, error)

    def _rewrite(self) -> None:
        """DuckDB leaves deleted rows in the blocks of its file: a copy takes its place."""
        draft = self._path.with_name(f".{self._path.name}.draft")
        for old in (draft, draft.with_name(f"{draft.name}.wal")):
            old.unlink(missing_ok=True)
        connection = self._open()
        try:
            name = column(connection.execute("SELECT current_database()").fetchone()[0])
            quoted_path = str(draft).replace("'", "''")
            connection.execute(f"ATTACH '{quoted_path}' AS written_anew")
            connection.execute(f"COPY FROM DATABASE {name} TO written_anew")
            connection.execute("DETACH written_anew")
            connection.execute("CHECKPOINT")
            shutil.copymode(self._path, draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(self._path)  # nobody else has the file open while we write to it
        finally:
            connection.close()
            draft.unlink(missing_ok=True)

    async def close(self) -> None:
        """Nothing is open between two batches."""

    def _translated(self, error: Exception) -> GossamerError:
        said = str(error).partition("\n")[0]
        driver = self._driver
        if isinstance(error, driver.ConversionException | driver.ConstraintException | driver.OutOfRangeException):
            return BatchRefused(said)
        if isinstance(error, driver.OutOfMemoryException):
            return BatchRefused(f"DuckDB has no memory for it ({said})", too_large=True)
        if "not a valid DuckDB" in said or isinstance(
            error, PermissionError | driver.CatalogException | driver.BinderException | driver.ParserException
        ):
            return Misconfigured(f"{self.place} cannot be written: {said}")
        return BackendUnavailable(f"{self.place} cannot be written at the moment: {said}")


class _Session:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = await asyncio.to_thread(
            lambda: self._connection.execute(sql, list(values)).fetchall()
        )
        return found

    async def take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        await self.rows(sql, msgspec.json.encode(cells).decode())
