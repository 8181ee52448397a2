"""What goes wrong with a PostgreSQL server, provoked on a real one: each fault has its error, its advice, no password.

Where a server must be cut off in the middle, `Cable` is put between: a TCP proxy that can be cut.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest

from gossamer.backends.postgres.address import read_address
from gossamer.backends.postgres.connection import PostgresDatabase, open_database
from gossamer.backends.postgres.errors import translate
from gossamer.backends.postgres.records import PostgresRecords, open_postgres_records
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, BadState, GossamerError, Misconfigured
from gossamer.store.contract import RecordQuery, RecordStore
from tests.patience import PATIENCE

from ..conformance.stores import NOW, book, page_of, result, tried
from ..services.postgres import GUARDED, PASSWORD, PostgresServer, schema_of

CLOCK = VirtualClock(NOW + 10_000)
EVERYTHING = RecordQuery()
AT_LAST = timedelta(seconds=PATIENCE)  # where an answer comes


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return schema_of(tmp_path)


@pytest.fixture
async def database(postgres: PostgresServer, schema: str) -> AsyncIterator[PostgresDatabase]:
    async with open_database(postgres.address(), schema=schema) as opened:
        yield opened


@pytest.fixture
def store(database: PostgresDatabase) -> PostgresRecords:
    return PostgresRecords(database, CLOCK)


async def refusal(address: str, schema: str = "gossamer", *, within: timedelta = AT_LAST) -> GossamerError:
    with pytest.raises(GossamerError) as caught:
        async with open_postgres_records(address, CLOCK, schema=schema, connect_within=within):
            pass
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)
    return caught.value


def batch(count: int = 20, at: float = NOW) -> list:
    return [
        result(book(f"{n}", at=at, v=at), page=page_of(f"https://shop.example/{n}", at=at, archive_ref="r"))
        for n in range(count)
    ]


# -- coming in ---------------------------------------------------------------------------------------------


async def test_a_wrong_password(postgres: PostgresServer) -> None:
    postgres.sql(f"DROP ROLE IF EXISTS {GUARDED}", f"CREATE ROLE {GUARDED} LOGIN PASSWORD 'another'")
    error = await refusal(postgres.address(user=GUARDED, password=PASSWORD))
    assert isinstance(error, Misconfigured)
    assert "Check the user and the password" in str(error)


async def test_a_user_that_does_not_exist(postgres: PostgresServer) -> None:
    error = await refusal(postgres.address(user="nobody_here", password=PASSWORD))
    assert isinstance(error, Misconfigured)
    assert 'role "nobody_here" does not exist' in str(error)


async def test_a_database_that_does_not_exist(postgres: PostgresServer) -> None:
    error = await refusal(postgres.address("nowhere", password=PASSWORD))
    assert isinstance(error, Misconfigured)
    assert 'database "nowhere" does not exist. Create it with `createdb' in str(error)


async def test_a_user_who_may_not_make_tables(postgres: PostgresServer, schema: str) -> None:
    postgres.sql(f"CREATE ROLE guest_{schema} LOGIN")
    error = await refusal(postgres.address(user=f"guest_{schema}"), schema)
    assert isinstance(error, Misconfigured)
    assert "GRANT CREATE ON DATABASE" in str(error)


async def test_no_connection_left(postgres: PostgresServer, schema: str) -> None:
    postgres.sql(f"CREATE ROLE single_{schema} LOGIN CONNECTION LIMIT 1")
    address = postgres.address(user=f"single_{schema}")
    connection = await asyncpg.connect(address)
    error = await refusal(address, schema)
    await connection.close()
    assert isinstance(error, BackendUnavailable)
    assert "run fewer workers" in str(error)


async def test_a_database_in_another_encoding(postgres: PostgresServer, schema: str) -> None:
    name = f"latin_{schema}"
    postgres.sql(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    error = await refusal(postgres.address(name))
    assert isinstance(error, Misconfigured)
    assert "encoded in LATIN1" in str(error)


async def test_a_read_only_user(postgres: PostgresServer, schema: str) -> None:
    postgres.sql(
        f"CREATE ROLE reader_{schema} LOGIN", f"ALTER ROLE reader_{schema} SET default_transaction_read_only = on"
    )
    error = await refusal(postgres.address(user=f"reader_{schema}"), schema)
    assert isinstance(error, BackendUnavailable)
    assert "address of the primary" in str(error)


async def test_a_server_that_has_stopped_and_one_that_is_a_replica(lone_postgres: PostgresServer) -> None:
    lone_postgres.stop()
    error = await refusal(lone_postgres.address(password=PASSWORD))
    assert isinstance(error, BackendUnavailable)
    assert "refused the connection. Start it" in str(error)

    lone_postgres.become_standby()
    error = await refusal(lone_postgres.address())
    assert isinstance(error, BackendUnavailable)
    assert "is a read-only replica. Set `records` to the address of the primary" in str(error)


async def test_a_host_that_does_not_exist() -> None:
    error = await refusal(f"postgresql://u:{PASSWORD}@no-such-host.invalid/db")
    assert isinstance(error, BackendUnavailable)
    assert "name of the host is not known" in str(error)


async def test_an_option_that_nobody_knows(postgres: PostgresServer) -> None:
    error = await refusal(f"{postgres.address()}?colour=blue")
    assert isinstance(error, Misconfigured)
    assert 'unrecognized configuration parameter "colour"' in str(error)


async def test_a_server_without_tls_where_it_is_asked_for(postgres: PostgresServer) -> None:
    error = await refusal(f"{postgres.address(password=PASSWORD)}?sslmode=require")
    assert isinstance(error, BackendUnavailable)
    assert "Check host, port and sslmode" in str(error)


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "What answers is not PostgreSQL"),
        (b"-ERR unknown command\r\n", "What answers is not PostgreSQL"),
        (b"", "closes the connection without a message"),
        (None, "does not answer"),
    ],
)
async def test_a_server_of_another_kind(answer: bytes | None, advice: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if answer is None:
            await reader.read()  # says nothing till the other side goes
        writer.write(answer or b"")
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        within = timedelta(milliseconds=500) if answer is None else AT_LAST
        error = await refusal(f"postgresql://u:{PASSWORD}@127.0.0.1:{port}/db", within=within)
    assert isinstance(error, BackendUnavailable)  # who worked with PostgreSQL there before waits until it is back
    assert advice in str(error)


@pytest.mark.parametrize(
    "address",
    [
        "mysql://u:s3cret-pa55@host/db",
        "postgresql://u:s3cret-pa55/x@host/db",
        "postgresql://u:s3cret-pa55#x@host/db",
        "postgresql://u:s3cret-pa55?x@host/db",
        "postgresql://u:s3cret-pa55",
        "postgresql://u:x@host:s3cret-pa55/db",
        "postgresql://u:s3cret-pa55@host:99999/db",
        "postgresql://u:s3cret-pa55@[::1/db",
        "postgresql://u:s3cret-pa55@host/db?sslmode=bogus",
        "postgresql://u:s3cret-pa55@host/db?schema=a-b",
        "postgresql://u:s3cret-pa55@host/db?schema=pg_x",
    ],
)
async def test_an_address_that_cannot_be_read_is_not_shown(address: str) -> None:
    error = await refusal(address)
    assert isinstance(error, Misconfigured)
    assert error.__cause__ is None  # it would quote the password in a traceback


def test_an_address_never_prints_its_password() -> None:
    address = read_address("postgresql://u:s3cret-pa55@a:1,[::1]:2/db?schema=books&password=s3cret-pa55", "gossamer")
    assert "s3cret-pa55" not in repr(address) + str(address) + address.place
    assert (address.place, address.schema) == ("PostgreSQL at a:1,[::1]:2, database 'db'", "books")


# -- at work -----------------------------------------------------------------------------------------------


async def test_a_server_that_turns_read_only_is_waited_for(
    postgres: PostgresServer, schema: str, store: PostgresRecords
) -> None:
    user = f"worker_{schema}"
    postgres.sql(
        f"CREATE ROLE {user} LOGIN", f"GRANT ALL ON SCHEMA {schema} TO {user}",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {user}",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO {user}",
    )  # fmt: skip
    async with open_database(postgres.address(user=user), schema=schema) as database:
        worker = PostgresRecords(database, CLOCK)
        postgres.sql(f"ALTER ROLE {user} SET default_transaction_read_only = on")
        await database.pool.expire_connections()
        with pytest.raises(BackendUnavailable, match="has become read-only"):
            await worker.save(batch())
        postgres.sql(f"ALTER ROLE {user} RESET default_transaction_read_only")
        await database.pool.expire_connections()
        assert await worker.save(batch()) == [1] * 20


async def test_tables_that_somebody_dropped(postgres: PostgresServer, schema: str, store: PostgresRecords) -> None:
    postgres.sql(f"DROP TABLE {schema}.attempts CASCADE")
    with pytest.raises(BadState, match="lacks tables of ours"):
        await store.save(batch())
    assert await store.count(EVERYTHING) == 0


async def test_a_connection_that_is_ended_in_the_middle_leaves_nothing_and_is_replaced(
    postgres: PostgresServer, schema: str, store: PostgresRecords
) -> None:
    await store.save(batch(1))
    blocker = await asyncpg.connect(postgres.address())
    async with blocker.transaction():
        await blocker.execute(f"SELECT FROM {schema}.records FOR UPDATE")
        saving = asyncio.create_task(store.save(batch(at=NOW + 1)))
        victim = await waiting_backend(blocker)
        await blocker.execute("SELECT pg_terminate_backend($1)", victim)
        with pytest.raises(BackendUnavailable, match="The interrupted work can be repeated"):
            await saving
    assert postgres.sql(f"SELECT count(*) FROM {schema}.pages") == ["1"]
    await blocker.close()
    assert await store.save(batch(at=NOW + 1)) == [1] * 20
    assert await store.count(EVERYTHING) == 20


async def test_a_caller_who_gives_up_leaves_nothing_behind(
    postgres: PostgresServer, schema: str, store: PostgresRecords
) -> None:
    await store.save(batch(1))
    blocker = await asyncpg.connect(postgres.address())
    async with blocker.transaction():
        await blocker.execute(f"SELECT FROM {schema}.records FOR UPDATE")
        saving = asyncio.create_task(store.save(batch(at=NOW + 1)))
        await waiting_backend(blocker)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    await blocker.close()
    assert await store.count(EVERYTHING) == 1
    assert await store.save(batch(at=NOW + 1)) == [1] * 20


async def test_a_deadlock_with_a_stranger_is_repeated_inside(
    postgres: PostgresServer, schema: str, database: PostgresDatabase, store: PostgresRecords
) -> None:
    """We hold the pages and want a record; the stranger holds the record and wants a page. One of us must yield."""
    await store.save(batch(1))
    met: list[BaseException | None] = []
    async with database.pool.acquire() as connection:
        connection.add_query_logger(lambda query: met.append(query.exception))
    stranger = await asyncpg.connect(postgres.address())
    await stranger.execute("SET deadlock_timeout = '1min'")  # so that it is ours that is broken
    async with stranger.transaction():
        await stranger.execute(f"SELECT FROM {schema}.records FOR UPDATE")
        saving = asyncio.create_task(store.save(batch(1, at=NOW + 1)))
        watcher = await asyncpg.connect(postgres.address())
        await waiting_backend(watcher)
        await stranger.execute(f"SELECT FROM {schema}.pages FOR UPDATE")
    assert await saving == [1]
    assert asyncpg.DeadlockDetectedError in map(type, met)
    await watcher.close()
    await stranger.close()


@pytest.mark.parametrize(("table", "order"), [("pages", "fingerprint"), ("records", "identity")])
async def test_two_saves_of_the_same_rows_never_deadlock(
    postgres: PostgresServer, schema: str, database: PostgresDatabase, store: PostgresRecords, table: str, order: str
) -> None:
    """A stranger holds the middle row, so that both saves stand half-way with locks in hand; then they may go on."""
    await store.save(batch(40))
    met: list[BaseException | None] = []
    stranger, watcher = [await asyncpg.connect(postgres.address()) for _ in range(2)]

    def seen(turn: int) -> list:
        """What each sees comes from the same pages, or (to meet at the records only) from pages of its own."""
        results = batch(40, at=NOW + 1 + turn)
        if table == "records":
            results = [
                result(*one.records, attempt=tried(f"https://shop.example/{turn}/{n}", at=NOW + 1 + turn))
                for n, one in enumerate(results)
            ]
        return results[:: 1 - 2 * turn]

    async with open_database(postgres.address(), schema=schema) as others:
        other = PostgresRecords(others, CLOCK)
        for one in (database, others):
            async with one.pool.acquire() as connection:
                connection.add_query_logger(lambda query: met.append(query.exception))
        async with stranger.transaction():
            await stranger.execute(f"SELECT FROM {schema}.{table} ORDER BY {order} OFFSET 20 LIMIT 1 FOR UPDATE")
            saves = [asyncio.create_task(one.save(seen(turn))) for turn, one in enumerate((store, other))]
            await waiting_backend(watcher, count=2)
        counts = await asyncio.gather(*saves)
    assert sum(counts[1]) == 40  # the newer one
    assert len(met) > 10
    assert set(met) == {None}
    await stranger.close()
    await watcher.close()


async def test_an_answer_lost_after_the_commit_is_repaired_by_saving_again(
    postgres: PostgresServer, schema: str, store: PostgresRecords
) -> None:
    async with cable_to(postgres) as cable:
        async with open_postgres_records(cable.address, CLOCK, schema=schema) as remote:
            await remote.save(batch(1))
            cable.cut_after(b"COMMIT;")
            with pytest.raises(BackendUnavailable):
                await remote.save(batch(at=NOW + 1))
            assert await store.count(EVERYTHING) == 20  # stored, and the caller does not know
            cable.mend()
            assert await remote.save(batch(at=NOW + 1)) == [0] * 20
        assert len(await store.history("Book", "shop.example", "0")) == 2
        assert postgres.sql(f"SELECT count(*) FROM {schema}.attempts") == ["21"]


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_server_that_goes_down_under_load_loses_nothing_that_was_confirmed(
    lone_postgres: PostgresServer, schema: str, how: str
) -> None:
    confirmed: dict[str, int] = {}
    enough = asyncio.Event()

    async def write(store: RecordStore, worker: int) -> None:
        for number in range(10_000):
            results = [result(book(f"{worker}-{number}-{n}", n=n)) for n in range(5)]
            await store.save(results)
            confirmed.update({one.records[0].key: 1 for one in results})
            if len(confirmed) > 100:
                enough.set()

    async with open_postgres_records(lone_postgres.address(), CLOCK, schema=schema) as store:
        writers = [asyncio.create_task(write(store, worker)) for worker in range(3)]
        await enough.wait()
        await asyncio.to_thread(getattr(lone_postgres, how))
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [BackendUnavailable] * 3, outcomes
        with pytest.raises(BackendUnavailable):
            await store.save(batch())
        await asyncio.to_thread(lone_postgres.start)
        stored = [record.key async for record in store.records(EVERYTHING)]
        assert len(stored) == len(set(stored))
        assert not confirmed.keys() - set(stored)
        assert len(set(stored) - confirmed.keys()) <= 3 * 5  # what was under way
        assert await store.save([result(book(key, n=int(key[-1]))) for key in stored]) == [0] * len(stored)


# Faults that are hard to provoke on a healthy machine. The classes are the driver's own.
@pytest.mark.parametrize(
    ("error", "kind", "advice"),
    [
        (asyncpg.DiskFullError("could not extend file"), BackendUnavailable, "Free some space"),
        (asyncpg.OutOfMemoryError("out of memory"), BackendUnavailable, "server's log"),
        (asyncpg.CannotConnectNowError("the database system is starting up"), BackendUnavailable, "Wait until"),
        (asyncpg.CrashShutdownError("terminating connection"), BackendUnavailable, "can be repeated"),
        (asyncpg.QueryCanceledError("statement timeout"), BackendUnavailable, "can be repeated"),
        (asyncpg.InvalidSQLStatementNameError("no statement"), Misconfigured, "PgBouncer 1.21"),
        (asyncpg.DuplicatePreparedStatementError("exists"), Misconfigured, "PgBouncer 1.21"),
        (asyncpg.ProtocolError("unexpected message"), BackendUnavailable, "was lost"),
        (asyncpg.InternalClientError("unknown protocol state"), BackendUnavailable, "was lost"),
        (asyncpg.InterfaceError("connection is closed"), BackendUnavailable, "was lost"),
        (ConnectionResetError("reset by peer"), BackendUnavailable, "was lost"),
        (BrokenPipeError("broken pipe"), BackendUnavailable, "was lost"),
        (PermissionError(13, "Permission denied"), BackendUnavailable, "cannot be reached"),
        (asyncpg.InternalServerError("cache lookup failed"), BackendUnavailable, "server's log"),
        (asyncpg.PostgresSyntaxError("syntax error"), GossamerError, "error 42601"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_every_other_fault_is_translated(error: Exception, kind: type[GossamerError], advice: str) -> None:
    translated = translate(error, "PostgreSQL at db:5432")
    assert isinstance(translated, kind)
    assert advice in str(translated)
    assert "PostgreSQL at db:5432" in str(translated)


def test_no_error_of_the_driver_is_left_untranslated() -> None:
    classes = [value for value in vars(asyncpg).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 200
    for one in classes:
        translated = translate(one("said"), "PostgreSQL at db:5432")
        assert isinstance(translated, GossamerError)
        assert type(translated) is not GossamerError


# -- tools -------------------------------------------------------------------------------------------------


async def waiting_backend(connection: asyncpg.Connection, count: int = 1) -> int:
    """The process of a save that waits for a lock, as soon as so many do."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'gossamer' AND wait_event_type = 'Lock'"
            )
            if len(found) >= count:
                return int(found[0]["pid"])


class Cable:
    """Passes bytes on between clients and a server until it is told to cut at a word of the client's."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._word: bytes | None = None
        self.is_cut = False
        self.address = ""

    def cut_after(self, word: bytes) -> None:
        """Let the next message with that word reach the server, and no answer come back."""
        self._word = word

    def mend(self) -> None:
        self._word, self.is_cut = None, False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        with suppress(OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass_on(reader, server_writer))
                group.create_task(self._pass_back(server_reader, writer))
        server_writer.close()
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            if self._word is not None and self._word in chunk:
                self.is_cut = True
            writer.write(chunk)
            await writer.drain()
        writer.close()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (chunk := await reader.read(65536)) and not self.is_cut:
            writer.write(chunk)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def cable_to(server: PostgresServer) -> AsyncIterator[Cable]:
    cable = Cable(server.port)
    async with await asyncio.start_server(cable.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        cable.address = f"postgresql://postgres@127.0.0.1:{port}/postgres"
        yield cable


def test_a_transaction_that_the_server_ended_because_we_hung_can_be_made_again() -> None:
    ended = asyncpg.IdleInTransactionSessionTimeoutError("terminating connection due to idle-in-transaction timeout")
    assert isinstance(translate(ended, "PostgreSQL at here"), BackendUnavailable)


async def test_a_worker_that_hangs_in_a_transaction_is_ended_by_the_server(postgres: PostgresServer) -> None:
    async with (
        open_database(postgres.address(), schema="gossamer_hang") as database,
        database.pool.acquire() as connection,
    ):
        assert await connection.fetchval("SHOW idle_in_transaction_session_timeout") == "5s"
