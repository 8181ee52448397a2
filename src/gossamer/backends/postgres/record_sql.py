"""The dialect of PostgreSQL: how the shared record store (backends/records/) speaks to a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ...store.contract import RecordQuery
from ..records import dialect as records
from ..records.dialect import Dialect, Row
from .connection import PostgresDatabase, PostgresTransaction
from .stored_text import identity_of, read, to_stored

T = TypeVar("T")


def _with_key(query: RecordQuery) -> tuple[str, tuple[Any, ...]]:
    return "SELECT number FROM @records WHERE key = $1", (query.key,)


# A cursor is the id of the oldest transaction that was open when the cursor was given; ids are never reused. Older
# transactions are complete: what they wrote is before the cursor. What an open one writes is after it, however late it
# commits. Is the newest revision ahead of that? Then it is from another server: see ADOPT.
_NEWEST = """
SELECT id, pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS newest,
    coalesce((SELECT revision FROM @records ORDER BY revision DESC LIMIT 1) >= pg_snapshot_xmax(pg_current_snapshot()),
        false) AS is_ahead
FROM @store"""

# Revisions from the future are those of another server: the tables were restored from a copy. They count as changed
# now; otherwise no cursor would ever reach them.
ADOPT = """
UPDATE @records SET revision = pg_current_xact_id() WHERE revision >= pg_snapshot_xmax(pg_current_snapshot())"""

POSTGRES = Dialect(
    kind="pg",
    newest=_NEWEST,
    text="source",
    contents="source, data",
    hashes=("identity",),
    visits="@visits",
    revision="pg_current_xact_id()",
    scanned="@records AS records",
    place="{}::bigint::text::xid8",
    next_place="pg_current_xact_id()",
    identity=lambda type, site, key: (identity_of(to_stored(type), to_stored(site), to_stored(key)),),
    identified=lambda n: f"records.identity = ${n}",
    with_key=_with_key,
    attempts="@attempts",
    marking="LOCK TABLE @erased IN EXCLUSIVE MODE",
    erasing="",
    prunes=(
        "DELETE FROM @attempts WHERE page BETWEEN $1 AND $2 AND at < $3",
        "DELETE FROM @visits AS visits USING @pages AS pages WHERE pages.number = visits.page "
        "AND page BETWEEN $1 AND $2 AND visits.fetched_at < $3 AND visits.archive_ref <> pages.archive_ref",
    ),
)

# FOR NO KEY UPDATE inside LATERAL locks the rows one by one, in the order of the array, which is that of all writers.
_LOCK = """
SELECT found.number FROM unnest($1::bytea[]) AS wanted (identity) CROSS JOIN LATERAL (
    SELECT number FROM @records AS records WHERE records.identity = wanted.identity FOR NO KEY UPDATE
) AS found"""
_IDENTITIES = "SELECT identity FROM @records WHERE number = ANY ($1::bigint[])"

# An operator may have turned off that commits wait for the disk; these must.
_DURABLY = """
SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"""


class PostgresSql:
    """Fulfils `SqlDatabase`."""

    dialect = POSTGRES

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def rows(self, sql: str, *values: Any, quick: bool = False) -> list[Row]:
        return _rows(await self._database.rows(sql, *map(_bound, values)))

    async def look_up(self, sql: str, *values: Any) -> list[Row]:
        return _rows(await self._database.transact(lambda session: session.rows(sql, *map(_bound, values))))

    async def transact(self, work: Callable[[records.SqlSession], Awaitable[T]]) -> T:
        async def write(session: PostgresTransaction) -> T:
            await session.run(_DURABLY)
            return await work(PostgresSession(session))

        return await self._database.transact(write)


class PostgresSession:
    """Fulfils `SqlSession` of the shared record store."""

    def __init__(self, session: PostgresTransaction) -> None:
        self._session = session

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        return _rows(await self._session.rows(sql, *map(_bound, values)))

    async def run(self, sql: str, *values: Any) -> int:
        return await self._session.run(sql, *map(_bound, values))

    async def run_many(self, sql: str, rows: Sequence[Row]) -> None:
        await self._session.run_many(sql, [tuple(map(_bound, row)) for row in rows])

    async def define(self, sql: str) -> None:
        await self._session.define(sql)

    async def lock_records(self, numbers: Sequence[int]) -> list[int]:
        identities = sorted(identity for (identity,) in await self._session.rows(_IDENTITIES, numbers))
        return [number for (number,) in await self._session.rows(_LOCK, identities)]


def _bound(value: Any) -> Any:
    if type(value) is list:
        return [_bound(one) for one in value]
    return to_stored(value) if type(value) is str else value


def _rows(rows: Iterable[Sequence[Any]]) -> list[Row]:
    return [tuple(read(value) if type(value) is str else value for value in row) for row in rows]
