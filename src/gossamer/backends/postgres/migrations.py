"""Creates and migrates the tables: numbered scripts in schema/, each applied once and recorded in `migrations`.

Opening the store creates missing tables only. Later changes are made only by `gossamer migrate`, at a moment that the
operator chooses: workers of the old version may still be running.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from hashlib import blake2b
from importlib import resources
from typing import Any

import asyncpg
import msgspec

from ...errors import BadState, Misconfigured
from .address import quoted

FIRST = "format-001"  # the script of 0.1.0; those before it had other names
LOCK = 0x676F7373  # "goss": one migration at a time per database
MIGRATES_WITHIN = timedelta(hours=24)  # per script; an index on a large table takes its time

_NOTE = """
CREATE TABLE migrations (
    number integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL, script text NOT NULL)"""
_IDLE = re.compile(r"--[^\n]*|\s+")  # comments and spaces
_APPLIED = """
SELECT to_regclass(quote_ident($1) || '.migrations') IS NOT NULL AS is_ours,
    (SELECT count(*) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = $1) AS relations
"""
_EXISTS = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)"


class Migration(msgspec.Struct, frozen=True):
    """One script: `format-001` is number 1."""

    number: int
    name: str
    script: str

    @property
    def mark(self) -> str:
        """Tells the first script from those of builds before the first release, which have the same number."""
        return blake2b(_IDLE.sub("", self.script).encode(), digest_size=8).hexdigest()


def known_migrations() -> list[Migration]:
    """The scripts of this version, in order."""
    folder = resources.files(__package__) / "schema"
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return [
        Migration(number, file.name.removesuffix(".sql"), file.read_text(encoding="utf-8"))
        for number, file in enumerate(files, 1)
    ]


async def require_schema(connection: Any, schema: str, place: str, known: Sequence[Migration]) -> None:
    """Create the tables if they are missing. Raises Misconfigured if they are too old, BadState if too new."""
    applied = await newest_applied(connection, schema, place, known)
    if applied is None:
        await migrate(connection, schema, place, known)
        return
    _refuse_newer(applied, schema, place, known)
    if applied < len(known):
        raise Misconfigured(
            f"The tables in {place}, schema {schema}, are those of an older Gossamer (schema {applied}, this one needs "
            f"{len(known)}). In this order: stop all workers, schedulers and servers of the older version, run: "
            f"gossamer migrate, start this one."
        )


async def migrate(
    connection: Any,
    schema: str,
    place: str,
    known: Sequence[Migration],
    before: Callable[[], Awaitable[None]] | None = None,
) -> list[str]:
    """Apply the missing scripts, all or none; return their names. Concurrent callers wait. `before` is called if there
    are tables to change, and may refuse."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK, timeout=MIGRATES_WITHIN.total_seconds())
        applied = await newest_applied(connection, schema, place, known)
        _refuse_newer(applied or 0, schema, place, known)
        if applied is None and not await connection.fetchval(_EXISTS, schema):
            await connection.execute(f"CREATE SCHEMA {quoted(schema)}")
        await connection.execute(f"SET LOCAL search_path TO {quoted(schema)}")
        if applied is None:
            await connection.execute(_NOTE)
        missing = known[applied or 0 :]
        if missing and applied is not None and before is not None:
            await before()
        for migration in missing:
            await connection.execute(migration.script, timeout=MIGRATES_WITHIN.total_seconds())
            values = (migration.number, migration.name, migration.mark)
            await connection.execute("INSERT INTO migrations VALUES ($1, $2, now(), $3)", *values)
    return [migration.name for migration in missing]


async def newest_applied(connection: Any, schema: str, place: str, known: Sequence[Migration]) -> int | None:
    """The number of the newest applied migration; None if there are no tables. Raises BadState."""
    found = await connection.fetchrow(_APPLIED, schema)
    if found["is_ours"]:
        try:
            done = await connection.fetchrow(
                f"SELECT max(number) AS newest, min(name) AS first, "  # noqa: S608 - a quoted name
                f"max(to_jsonb(done) ->> 'script') FILTER (WHERE number = 1) AS script "
                f"FROM {quoted(schema)}.migrations AS done"
            )
        except (asyncpg.UndefinedColumnError, asyncpg.UndefinedFunctionError) as error:
            raise _foreign(schema, place) from error
        if done["first"] is not None and (done["first"], done["script"]) != (FIRST, known[0].mark):
            raise BadState(
                f"The tables in {place}, schema {schema}, were made by a Gossamer from before 0.1.0 and are not read. "
                f"Export what you need with that version, then drop the schema, or name another one in the address: "
                f"postgresql://.../database?schema=NAME"
            )
        return done["newest"] or 0
    if found["relations"]:
        raise _foreign(schema, place)
    return None


def _refuse_newer(applied: int, schema: str, place: str, known: Sequence[Migration]) -> None:
    if applied > len(known):
        raise BadState(
            f"The tables in {place}, schema {schema}, were made by a newer Gossamer (schema {applied}, this one knows "
            f"{len(known)}). Upgrade Gossamer on this machine."
        )


def _foreign(schema: str, place: str) -> BadState:
    return BadState(
        f"The schema {schema} in {place} holds tables that are not Gossamer's. "
        f"Name another one in the address: postgresql://.../database?schema=NAME"
    )
