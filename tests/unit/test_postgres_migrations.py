"""The tables of PostgreSQL made, brought up to date, and refused when they do not fit; `gossamer migrate`."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.postgres.connection import check_version, migrate_database, open_database
from gossamer.backends.postgres.migrations import Migration, known_migrations
from gossamer.backends.postgres.records import PostgresRecords, open_postgres_records
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.backends.worker_names import worker_name
from gossamer.clock import VirtualClock
from gossamer.errors import BadState, Misconfigured, MissingExtra
from gossamer.frontier.contract import JobTerms
from gossamer.model.task import Lease
from gossamer.project.open import Project
from gossamer.store.contract import RecordQuery

from ..conformance.stores import NOW, book, result
from ..services.postgres import PostgresServer, schema_of
from .commandline import ProjectFolder, candidate
from .commandline import project as project

CLOCK = VirtualClock(NOW + 10_000)
KNOWN = known_migrations()
NEXT = [*KNOWN, Migration(len(KNOWN) + 1, "format-002", "ALTER TABLE records ADD COLUMN colour text;\nSELECT 1;")]
BROKEN = [*KNOWN, Migration(len(KNOWN) + 1, "format-002", "CREATE TABLE half (n int); SELECT 1 / 0;")]


@pytest.fixture
def schema(tmp_path: Path) -> str:
    return schema_of(tmp_path)


def columns(postgres: PostgresServer, schema: str, table: str) -> list[str]:
    return postgres.sql(
        f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{table}'"
    )


async def test_the_first_opening_makes_the_tables_and_the_next_finds_them(
    postgres: PostgresServer, schema: str
) -> None:
    for expected in (1, 0):
        async with open_postgres_records(postgres.address(), CLOCK, schema=schema) as store:
            assert await store.save([result(book())]) == [expected]
    assert postgres.sql(f"SELECT number, name FROM {schema}.migrations") == [
        f"{one.number}|{one.name}" for one in KNOWN
    ]


async def test_the_views_are_those_of_the_sqlite_file_and_show_the_same(
    postgres: PostgresServer, schema: str, tmp_path: Path
) -> None:
    async with (
        open_postgres_records(postgres.address(), CLOCK, schema=schema) as store,
        open_sqlite_records(tmp_path / "records.db", CLOCK) as file,
    ):
        for records in (store, file):
            await records.save([result(book())])
    connection = sqlite3.connect(tmp_path / "records.db")
    try:
        views = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
        views -= {"attempts", "visits"}  # which are tables in PostgreSQL
        assert len(views) == 9  # three of them of the type Book
        for view in views:
            told = connection.execute(f"SELECT * FROM {view}")
            assert sorted(columns(postgres, schema, view)) == sorted(column[0] for column in told.description), view
            assert postgres.sql(f"SELECT count(*) FROM {schema}.{view}") == [str(len(told.fetchall()))], view
        seen = connection.execute("SELECT first_seen FROM record_list").fetchone()[0]
    finally:
        connection.close()
    shown = (
        f"SELECT to_char(first_seen AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') FROM {schema}.record_list"
    )
    assert postgres.sql(shown) == [seen]


async def test_many_that_open_an_empty_database_at_once_make_the_tables_once(
    postgres: PostgresServer, schema: str
) -> None:
    async def open_and_save(key: str) -> None:
        async with open_postgres_records(postgres.address(), CLOCK, schema=schema) as store:
            await store.save([result(book(key))])

    await asyncio.gather(*(open_and_save(f"{n}") for n in range(6)))
    assert postgres.sql(f"SELECT count(*) FROM {schema}.records") == ["6"]
    assert postgres.sql(f"SELECT count(*) FROM {schema}.migrations") == [str(len(KNOWN))]


async def test_an_empty_schema_that_the_owner_made_for_us_is_filled(postgres: PostgresServer, schema: str) -> None:
    postgres.sql(
        f"CREATE ROLE tenant_{schema} LOGIN",
        f"CREATE SCHEMA {schema} AUTHORIZATION tenant_{schema}",
    )
    address = postgres.address(user=f"tenant_{schema}")
    async with open_postgres_records(address, CLOCK, schema=schema) as store:
        assert await store.save([result(book())]) == [1]


OTHER = "UPDATE {}.migrations SET script = 'other'"
NONE = "ALTER TABLE {}.migrations DROP COLUMN script"


@pytest.mark.parametrize("change", [OTHER, NONE])
async def test_tables_of_a_build_before_the_first_release_with_the_same_number_are_refused(
    postgres: PostgresServer, schema: str, change: str
) -> None:
    address = postgres.address()
    async with open_postgres_records(address, CLOCK, schema=schema):
        pass
    postgres.sql(change.format(schema))

    with pytest.raises(BadState, match=r"before 0\.1\.0.*drop the schema, or name another one"):
        async with open_postgres_records(address, CLOCK, schema=schema):
            pass
    with pytest.raises(BadState, match=r"before 0\.1\.0"):
        await migrate_database(address, schema=schema)


async def test_tables_of_an_older_version_wait_for_migrate(postgres: PostgresServer, schema: str) -> None:
    address = postgres.address()
    async with open_postgres_records(address, CLOCK, schema=schema) as store:
        await store.save([result(book("kept"))])

    with pytest.raises(Misconfigured, match="run: gossamer migrate"):
        async with open_database(address, schema=schema, migrations=NEXT):
            pass
    assert "colour" not in columns(postgres, schema, "records")

    assert (await migrate_database(address, schema=schema, migrations=NEXT))[0] == ["format-002"]
    assert (await migrate_database(address, schema=schema, migrations=NEXT))[0] == []
    assert "colour" in columns(postgres, schema, "records")
    async with open_database(address, schema=schema, migrations=NEXT) as database:
        kept = PostgresRecords(database, CLOCK)
        assert [record.key async for record in kept.records(RecordQuery())] == ["kept"]
    with pytest.raises(BadState, match="newer Gossamer"):
        async with open_postgres_records(address, CLOCK, schema=schema):
            pass
    with pytest.raises(BadState, match="newer Gossamer"):
        await migrate_database(address, schema=schema)


async def test_tables_from_before_the_first_release_are_refused_with_what_to_do(
    postgres: PostgresServer, schema: str
) -> None:
    unreleased = [Migration(1, "records-001", "CREATE TABLE records (number bigint)")]
    await migrate_database(postgres.address(), schema=schema, migrations=unreleased)
    message = r"before 0\.1\.0.*Export what you need.*\?schema=NAME"
    with pytest.raises(BadState, match=message):
        await migrate_database(postgres.address(), schema=schema)
    with pytest.raises(BadState, match=message):
        async with open_database(postgres.address(), schema=schema):
            pass
    assert postgres.sql(f"SELECT count(*) FROM {schema}.migrations") == ["1"]


def test_tables_are_not_changed_while_workers_are_at_work(
    project: ProjectFolder, postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("gossamer.toml", f'records = "{postgres.address()}?schema={schema}"')
    held: list[Lease] = []

    async def hold(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=False)
        await system.state.frontier.add(job.id, [candidate("https://shop.example/1")])
        held.extend((await system.state.frontier.lease(job.id, worker_name(), 1)).leases)

    async def stop(system: Project) -> None:
        await system.state.frontier.release(held[0], timedelta(0), "stopped")

    project.fill(hold)
    assert project.run("migrate").code == 0  # there is nothing to change

    # when a newer version with other tables comes to a fleet at work
    monkeypatch.setattr("gossamer.backends.postgres.connection.known_migrations", lambda: NEXT)
    for command in (("migrate",), ("export", "-o", "x.jsonl")):
        refused = project.run(*command)
        assert refused.code == 1
        said = " ".join(refused.err.split())
        assert re.search("In this order: stop all workers, .*, run.* gossamer migrate.*, start", said.replace("`", " "))
    assert "colour" not in columns(postgres, schema, "records")

    # then it is migrated when the workers are gone
    monkeypatch.undo()
    monkeypatch.chdir(project.folder)
    project.fill(stop)
    monkeypatch.setattr("gossamer.backends.postgres.connection.known_migrations", lambda: NEXT)
    migrated = project.run("migrate")
    assert migrated.code == 0, migrated.err
    assert "colour" in columns(postgres, schema, "records")


async def test_a_migration_that_fails_changes_nothing(postgres: PostgresServer, schema: str) -> None:
    async with open_postgres_records(postgres.address(), CLOCK, schema=schema):
        pass
    with pytest.raises(Exception, match="division by zero"):
        await migrate_database(postgres.address(), schema=schema, migrations=BROKEN)
    assert columns(postgres, schema, "half") == []
    assert postgres.sql(f"SELECT max(number) FROM {schema}.migrations") == [str(len(KNOWN))]


@pytest.mark.parametrize("table", ["customers (name text)", "migrations (id text)"])
async def test_a_schema_of_another_program_is_refused_and_left_alone(
    postgres: PostgresServer, schema: str, table: str
) -> None:
    postgres.sql(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.{table}")
    with pytest.raises(BadState, match=r"not Gossamer's.*\?schema="):
        async with open_postgres_records(postgres.address(), CLOCK, schema=schema):
            pass
    assert postgres.sql(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'") == ["1"]


async def test_the_address_may_name_the_schema(postgres: PostgresServer, schema: str) -> None:
    async with open_postgres_records(f"{postgres.address()}?schema={schema}", CLOCK, schema="unused") as store:
        await store.save([result(book())])
    assert postgres.sql(f"SELECT key FROM {schema}.records") == ["b1"]
    assert postgres.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'unused'") == ["0"]


def test_a_server_that_is_too_old_is_named() -> None:
    check_version(13, "PostgreSQL at db")
    with pytest.raises(Misconfigured, match=r"db is version 12; Gossamer needs PostgreSQL 13 or newer"):
        check_version(12, "PostgreSQL at db")


def test_without_its_driver_the_message_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("gossamer.backends.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[fleet\]'"):
        __import__("gossamer.backends.postgres.records")


def test_gossamer_migrate_tells_what_it_did(project: ProjectFolder, postgres: PostgresServer, schema: str) -> None:
    postgres.sql(
        f"CREATE ROLE owner_{schema} LOGIN PASSWORD 'not-shown'",
        f"CREATE SCHEMA {schema} AUTHORIZATION owner_{schema}",
    )
    address = postgres.address(user=f"owner_{schema}", password="not-shown")
    project.write("gossamer.toml", f'records = "{address}?schema={schema}"')

    first, second = project.run("migrate"), project.run("migrate")

    assert (first.code, second.code) == (0, 0)
    assert first.lines[0] == "records  applied format-001"
    assert "up to date already" in second.out
    assert f"schema {schema}" in second.out
    assert "not-shown" not in first.out + first.err + second.out
    assert postgres.sql(f"SELECT count(*) FROM {schema}.migrations") == [str(len(KNOWN))]


def test_gossamer_migrate_has_nothing_to_do_for_sqlite(project: ProjectFolder) -> None:
    said = project.run("migrate")

    assert (said.code, said.err) == (0, "")
    assert "nothing to do" in said.out
    assert not (project.folder / "gossamer-data").exists()


def test_gossamer_migrate_without_a_server_gets_one_line(project: ProjectFolder) -> None:
    project.write("gossamer.toml", 'records = "postgresql://u:not-shown@127.0.0.1:1/db"')

    said = project.run("migrate")

    assert said.code == 1
    assert "refused the connection. Start it" in said.err
    assert said.err.count("\n") == 1
    assert "not-shown" not in said.err
