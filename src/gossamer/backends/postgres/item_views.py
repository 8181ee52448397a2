"""Typed views in PostgreSQL, and queries that cannot write. What a value becomes: the functions item_* of
schema/format-001.sql."""

# ruff: noqa: S608 - names that hold no quotes, and escaped literals

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec

from ...errors import Misconfigured
from ...store.item_views import Path, Selected
from ..records.dialect import SqlSession
from ..records.views import SqlItemViews, literal
from .address import quoted
from .connection import PostgresDatabase
from .errors import DRIVER_ERRORS, translate_at_work
from .record_sql import PostgresSql
from .stored_text import to_stored

_TAKE_TURN = "SELECT pg_advisory_xact_lock(1735356262, hashtext('@records'::regclass::oid::text))"
_NAMES = """
WITH ours AS (SELECT relnamespace AS schema FROM pg_class WHERE oid = '@records'::regclass)
SELECT relname::text FROM pg_class JOIN ours ON relnamespace = schema
UNION SELECT typname::text FROM pg_type JOIN ours ON typnamespace = schema"""
CANCEL_WITHIN = 30.0  # seconds, for the server to end a query whose time is over
_PATIENCE = "SET LOCAL lock_timeout = '2s'"  # a long query on a view must not hold up the crawl


class PostgresItemViews(SqlItemViews):
    names = _NAMES
    time = "to_timestamp({})"
    replaces = True
    stored = staticmethod(to_stored)

    def __init__(self, sql: PostgresSql, database: PostgresDatabase) -> None:
        super().__init__(sql)
        self._database = database
        self._schema = quoted(database.address.schema)

    async def take_turn(self, session: SqlSession) -> None:
        await session.define(_PATIENCE)
        await session.rows(_TAKE_TURN)

    def place(self, name: str) -> str:
        return f"{self._schema}.{super().place(name)}"

    def value(self, path: Path, kind: str) -> str:
        return f"{self._schema}.item_{kind}(data{''.join(f' -> {literal(part)}' for part in path)})"

    async def select(self, sql: str, *, limit: int, seconds: float) -> Selected:
        place = self._database.address.place
        try:
            async with self._database.pool.acquire() as connection, connection.transaction(readonly=True):
                await connection.execute(
                    f"SET LOCAL statement_timeout = {int(seconds * 1000)}; SET LOCAL TimeZone = 'UTC'; "
                    f"SET LOCAL search_path TO {self._schema}, public"
                )
                # Inside another SELECT, only a query can stand; and it gives no more rows than are wanted.
                statement = await connection.prepare(f"SELECT * FROM (\n{sql}\n) AS answer LIMIT {limit + 1}")
                if statement.get_parameters():
                    raise Misconfigured("The query has a place for a value ($1). Write the value itself.")
                rows = await statement.fetch(timeout=seconds + CANCEL_WITHIN)  # the server ends it before
                columns = statement.get_attributes()
        except (OverflowError, ValueError) as error:
            raise Misconfigured(f"A value in the answer is too large for us ({error}). Cast it to text.") from error
        except asyncpg.QueryCanceledError as error:
            raise Misconfigured(f"The query took longer than {seconds:g} s. Narrow it, or raise --seconds.") from error
        except (asyncpg.SyntaxOrAccessError, asyncpg.DataError, asyncpg.ReadOnlySQLTransactionError,
                asyncpg.FeatureNotSupportedError, asyncpg.InvalidCursorDefinitionError) as error:  # fmt: skip
            said = str(error).partition("\n")[0]
            raise Misconfigured(f"PostgreSQL did not take the query: {said}. Write one SELECT.") from error
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, place) from error
        nested = [column.type.name in ("json", "jsonb") for column in columns]
        shown = [tuple(map(_shown, row, nested)) for row in rows]
        return Selected(tuple(column.name for column in columns), shown[:limit], len(rows) > limit)


def _shown(value: Any, nested: bool) -> Any:
    return msgspec.json.decode(value) if nested and value is not None else value
