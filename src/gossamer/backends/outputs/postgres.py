"""A table in a PostgreSQL database of the user as the target of an output. Errors: BatchRefused, Misconfigured,
BackendUnavailable; none of them shows a password."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

import asyncpg
import msgspec

from ...errors import BackendUnavailable, BatchRefused, GossamerError, Misconfigured
from .kinds import Cell, Kind
from .sql import Session, are_as, column, quoted

T = TypeVar("T")
CONNECT_WITHIN = timedelta(seconds=10)
ANSWER_WITHIN = timedelta(seconds=60)
CLOSE_WITHIN = timedelta(seconds=5)
LOCKED_WITHIN = timedelta(seconds=10)  # a table whose column is altered
ALTERED_WITHIN = timedelta(hours=1)  # nobody reads the table meanwhile
VACUUM_SECONDS = 600
DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
    ValueError,
)

_COLUMNS = """
SELECT attname, format_type(atttypid, -1) FROM pg_attribute
WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
_UNIQUE = """
SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = to_regclass($1) AND indisunique AND indpred IS NULL AND indexprs IS NULL AND indimmediate
GROUP BY indexrelid, indisprimary ORDER BY indisprimary DESC, indexrelid"""


class PostgresEngine:
    types: Mapping[Kind, str] = MappingProxyType({
        "text": "text", "int": "bigint", "float": "double precision", "numeric": "numeric", "number": "numeric",
        "bool": "boolean",
        "time": "timestamp with time zone", "date": "date", "json": "jsonb",
    })  # fmt: skip
    parameter = "$1"
    elements = "jsonb_array_elements($1::jsonb) AS e(v)"  # json is read anew for each column

    def __init__(self, dsn: str, place: str) -> None:
        self.place = place
        self._dsn = dsn
        self._connection: Any = None

    async def transact(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(
                    self._dsn,
                    timeout=CONNECT_WITHIN.total_seconds(),
                    command_timeout=ANSWER_WITHIN.total_seconds(),
                    statement_cache_size=0,  # poolers and changed tables
                    server_settings={"application_name": "gossamer output", "TimeZone": "UTC"},
                )
            async with self._connection.transaction():
                return await work(_Session(self._connection))
        except DRIVER_ERRORS as error:
            raise self._translated(error) from (None if isinstance(error, ValueError) else error)

    async def columns(self, session: Session, table: str) -> dict[str, str]:
        return {str(one[0]): str(one[1]) for one in await session.rows(_COLUMNS, quoted(table))}

    async def unique_keys(self, session: Session, table: str) -> list[frozenset[str]]:
        return [frozenset(names) for (names,) in await session.rows(_UNIQUE, quoted(table))]

    def pick(self, place: int, type: str) -> str:
        value = f"(v->>{place})"
        if type.endswith("[]"):
            value = f"(CASE WHEN {value} IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text({value}::jsonb)) END)"
        return f"{value}::{type}"

    def lock(self, table: str) -> str:
        return "SELECT pg_advisory_xact_lock(hashtext('gossamer output'))"

    async def alter(self, session: Session, table: str, types: Mapping[str, str], known: Mapping[str, str]) -> bool:
        told = ", ".join(
            f"ALTER COLUMN {column(name)} TYPE {type} USING {column(name)}::{type}" for name, type in types.items()
        )
        try:
            # While it waits for a long query, everybody else waits for it.
            await session.rows(f"SET LOCAL lock_timeout = {int(LOCKED_WITHIN.total_seconds() * 1000)}")
            await session.rows("SET LOCAL statement_timeout = 0")
            await session.rows(f"LOCK TABLE {quoted(table)} IN ACCESS EXCLUSIVE MODE")
            if not are_as(await self.columns(session, table), known):
                return False
            await self._connection.execute(
                f"ALTER TABLE {quoted(table)} {told}", timeout=ALTERED_WITHIN.total_seconds()
            )
            return True
        except (asyncpg.PostgresError, TimeoutError) as error:
            code = getattr(error, "sqlstate", None) or ""
            if code[:2] in ("08", "40") or code[:3] == "57P":  # the server goes away, or two waited for each other
                raise
            why = str(error).partition("\n")[0] or f"that takes longer than {ALTERED_WITHIN}"
            raise Misconfigured(
                f"{self.place} does not alter it: {why}. Alter the column, and rewind the output."
            ) from error

    async def purge(self, tables: Sequence[str]) -> None:
        """Where the user may not, the server does so by itself, later."""
        if self._connection is not None:
            with suppress(*DRIVER_ERRORS):
                for table in tables:
                    await self._connection.execute(f"VACUUM {quoted(table)}", timeout=VACUUM_SECONDS)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=CLOSE_WITHIN.total_seconds())

    def _translated(self, error: Exception) -> GossamerError:
        said = str(error).partition("\n")[0]
        if isinstance(error, asyncpg.ClientConfigurationError) or type(error) is ValueError:
            return Misconfigured(
                f"{self.place}: the address cannot be read. Write postgresql://user@host:5432/database/table."
            )
        if isinstance(error, asyncpg.PostgresError):
            code = error.sqlstate or ""
            if code[:2] in ("22", "23", "54"):
                return BatchRefused(said)
            if code == "53200" or "invalid memory alloc request" in said:
                return BatchRefused(f"{self.place} has no memory for it ({said})", too_large=True)
            if code[:2] in ("28", "3D", "3F", "42", "0A") and code != "42P04":
                return Misconfigured(
                    f"{self.place} refuses: {said}. Grant what is missing, or correct the output's url."
                )
            return BackendUnavailable(f"{self.place} cannot work at the moment ({said}).")
        return BackendUnavailable(f"{self.place} does not answer ({said or type(error).__name__}).")


class _Session:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        found: list[Sequence[Any]] = await self._connection.fetch(sql, *values)
        return found

    async def take(self, sql: str, cells: Sequence[Sequence[Cell]]) -> None:
        await self._connection.execute(sql, msgspec.json.encode(cells).decode())
