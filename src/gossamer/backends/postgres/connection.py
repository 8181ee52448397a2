"""One PostgreSQL database: a connection pool, checks when it is opened, and transactions that are repeated on conflict.

How it fails: every driver error is translated (errors.py); a failed transaction leaves nothing behind. If the
connection is lost during a commit, it is unknown whether it succeeded: every write must be safe to repeat.
How it recovers: the pool reconnects on the next call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar

import asyncpg

from ...errors import BackendUnavailable, Misconfigured, StoreRefused
from .address import Address, quoted, read_address
from .errors import COLLISIONS, DRIVER_ERRORS, translate, translate_at_work
from .migrations import Migration, known_migrations, migrate, require_schema

T = TypeVar("T")
Row = Any  # asyncpg's records: the driver has no types
Connection = Any

OLDEST = 13  # the oldest version that supports all of our SQL
MAX_CONNECTIONS = 4  # per process: the sink's, and a few for reading
CONNECT_WITHIN = timedelta(seconds=10)
ANSWER_WITHIN = timedelta(seconds=60)  # for any single statement
HANGS_AFTER = timedelta(seconds=5)  # of silence within a transaction
CLOSE_WITHIN = timedelta(seconds=5)
MAX_TRIES = 30  # of a transaction that collides with others; each collision means that another one succeeded

_TABLE = re.compile(r"@([a-z_]+)")

# Few rows are looked up in tables that may be huge, and statistics may be missing during a first crawl: always use an
# index, never read a whole table to sort or hash it.
PLAN_FOR_LOOKUPS = "; ".join(
    f"SET LOCAL enable_{way} = off" for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
)

_LOOK = """
SELECT current_setting('server_encoding') AS encoding, pg_is_in_recovery() AS is_replica,
    current_setting('transaction_read_only') = 'on' AS is_read_only
"""


VACUUM_SECONDS = 3600  # at most, for a table


class Collision(Exception):
    """Raised inside a transaction: another one wrote the same row first. The work must be repeated."""


class PostgresTransaction:
    """A connection in a transaction. `@records` in its statements stands for that table in our schema."""

    def __init__(self, connection: Connection, schema: str) -> None:
        self._connection = connection
        self._schema = schema

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        found: list[Row] = await self._connection.fetch(with_schema(sql, self._schema), *values)
        return found

    async def run(self, sql: str, *values: Any) -> int:
        """Return how many rows were changed."""
        *_, changed = (await self._connection.execute(with_schema(sql, self._schema), *values)).split()
        return int(changed) if changed.isdecimal() else 0

    async def define(self, sql: str) -> None:
        """Run a statement as it is: an @ in it means nothing."""
        await self._connection.execute(sql)

    async def run_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        await self._connection.executemany(with_schema(sql, self._schema), rows)


class PostgresDatabase:
    """A database with our schema. `open_database` creates and closes it."""

    def __init__(self, pool: Any, address: Address) -> None:
        self.pool = pool
        self.address = address

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        """Read in one statement. Raises BackendUnavailable and other translated errors."""
        try:
            found: list[Row] = await self.pool.fetch(with_schema(sql, self.address.schema), *values)
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, self.address.place) from error
        return found

    async def transact(self, work: Callable[[PostgresTransaction], Awaitable[T]]) -> T:
        """Run `work` in one transaction and return its result after the commit. `work` may run several times."""
        collision: BaseException | None = None
        for _ in range(MAX_TRIES):
            try:
                async with self.pool.acquire() as connection, connection.transaction(isolation="read_committed"):
                    await connection.execute(PLAN_FOR_LOOKUPS)
                    return await work(PostgresTransaction(connection, self.address.schema))
            except (*COLLISIONS, Collision) as error:
                collision = error
            except DRIVER_ERRORS as error:
                raise translate_at_work(error, self.address.place) from error
        raise BackendUnavailable(
            f"{self.address.place}: {MAX_TRIES} tries collided with other writers. Try again later."
        ) from collision

    async def vacuum(self, tables: Sequence[str], *, rewrite: bool) -> str:
        """Remove deleted rows from the tables; return what may be left. With `rewrite`, tables are written anew, and
        nobody else can use them meanwhile."""
        how = "VACUUM (FULL, ANALYZE)" if rewrite else "VACUUM"
        try:
            async with self.pool.acquire() as connection:
                for table in tables:
                    await connection.execute(
                        with_schema(f"{how} @{table}", self.address.schema), timeout=VACUUM_SECONDS
                    )
                with suppress(asyncpg.PostgresError):  # only some users may
                    await connection.execute("CHECKPOINT")
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, self.address.place) from error
        log = "The write-ahead log of PostgreSQL, its replicas and archived logs"
        if rewrite:
            return f"{log} hold it until they are recycled."
        return f"Free space in the files of PostgreSQL is overwritten with time (--rewrite does it now). {log} as well."

    @asynccontextmanager
    async def as_of_now(self) -> AsyncIterator[PostgresDatabase]:
        """The database as of this moment, to be read for as long as it takes, while others write. Raises
        BackendUnavailable."""
        try:
            async with (
                self.pool.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                await connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = 0; {PLAN_FOR_LOOKUPS}")
                await connection.fetchval("SELECT 1")  # this fixes the moment
                yield _Snapshot(connection, self.address)
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, self.address.place) from error


class _Snapshot(PostgresDatabase):
    """One connection, in a transaction that sees one moment."""

    async def rows(self, sql: str, *values: Any) -> list[Row]:
        return await self.transact(lambda session: session.rows(sql, *values))

    async def transact(self, work: Callable[[PostgresTransaction], Awaitable[T]]) -> T:
        try:
            return await work(PostgresTransaction(self.pool, self.address.schema))
        except DRIVER_ERRORS as error:
            raise translate_at_work(error, self.address.place) from error


@lru_cache(maxsize=512)
def with_schema(sql: str, schema: str) -> str:
    """The statement with the schema before each table, explicit because poolers do not keep a search path."""
    return _TABLE.sub(lambda found: f"{quoted(schema)}.{found[1]}", sql)


@asynccontextmanager
async def open_database(
    address: str,
    *,
    schema: str,
    connect_within: timedelta = CONNECT_WITHIN,
    migrations: Sequence[Migration] | None = None,
) -> AsyncIterator[PostgresDatabase]:
    """Connect, check, create missing tables. Raises Misconfigured, BadState, BackendUnavailable."""
    place = read_address(address, schema)
    known = known_migrations() if migrations is None else migrations
    async with _connections(place, connect_within, MAX_CONNECTIONS) as pool:
        try:
            async with pool.acquire() as connection:
                await _check_server(connection, place)
                await require_schema(connection, place.schema, place.place, known)
        except DRIVER_ERRORS as error:
            raise translate(error, place.place) from error
        yield PostgresDatabase(pool, place)


async def migrate_database(
    address: str,
    *,
    schema: str,
    migrations: Sequence[Migration] | None = None,
    before: Callable[[], Awaitable[None]] | None = None,
) -> tuple[list[str], Address]:
    """Migrate the tables; return the names of the applied scripts, and the address. `before` is called before tables
    are changed, and may refuse. Raises as above."""
    place = read_address(address, schema)
    known = known_migrations() if migrations is None else migrations
    async with _connections(place, CONNECT_WITHIN, 1) as pool:
        try:
            async with pool.acquire() as connection:
                await _check_server(connection, place)
                return await migrate(connection, place.schema, place.place, known, before), place
        except DRIVER_ERRORS as error:
            raise translate(error, place.place) from error


@asynccontextmanager
async def _connections(address: Address, connect_within: timedelta, size: int) -> AsyncIterator[Any]:
    try:
        pool = asyncpg.create_pool(
            address.dsn,
            min_size=1,
            max_size=size,
            timeout=connect_within.total_seconds(),
            command_timeout=ANSWER_WITHIN.total_seconds(),
            server_settings={
                "application_name": "gossamer",
                # A worker that hangs during a save holds locks that others wait for; the server ends its transaction.
                "idle_in_transaction_session_timeout": str(int(HANGS_AFTER.total_seconds() * 1000)),
            },
            reset=_keep,
        )
        await pool
    except asyncpg.ClientConfigurationError as error:
        raise translate(error, address.place) from None  # its text may quote the address
    except ValueError:
        raise Misconfigured(
            f"{address.place}: an option in `records` cannot be read. Write it like "
            f"postgresql://user:password@host:5432/database?sslmode=require."
        ) from None
    except DRIVER_ERRORS as error:
        raise translate(error, address.place) from error
    try:
        yield pool
    finally:
        await _close(pool)


async def _keep(connection: Connection) -> None:
    """Do nothing when a connection returns to the pool: our sessions leave nothing behind."""


async def _close(pool: Any) -> None:
    with suppress(*DRIVER_ERRORS):  # a server that is gone has already closed them
        try:
            async with asyncio.timeout(CLOSE_WITHIN.total_seconds()):
                await pool.close()
        except TimeoutError:
            pool.terminate()


async def _check_server(connection: Connection, address: Address) -> None:
    check_version(connection.get_server_version().major, address.place)
    found = await connection.fetchrow(_LOOK)
    if found["is_replica"] or found["is_read_only"]:
        kind = "a read-only replica" if found["is_replica"] else "read-only for our user"
        # Never a wrong setting: it may have been the primary a moment ago, and may be it again.
        raise BackendUnavailable(f"{address.place} is {kind}. Set `records` to the address of the primary.")
    if found["encoding"] != "UTF8":
        raise Misconfigured(
            f"{address.place} is encoded in {found['encoding']}, which cannot hold every text. "
            f"Make another one with `createdb -E UTF8 -T template0 NAME`."
        )


def check_version(major: int, place: str) -> None:
    """Raises Misconfigured if the server is too old."""
    if major < OLDEST:
        raise StoreRefused(f"{place} is version {major}; Gossamer needs PostgreSQL {OLDEST} or newer. Upgrade it.")
