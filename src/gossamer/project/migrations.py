"""The record store's tables brought to the schema of this version."""

from __future__ import annotations

import msgspec

from ..backends.addresses import MONGO, POSTGRES, postgres_schema, scheme_of
from ..settings import Settings


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    """The migrations that were applied, in order, and what there is to say of it."""

    applied: list[str]
    in_words: str


async def migrate_records(settings: Settings) -> Migrated:
    """Apply what is missing; nothing where the store does so whenever it is opened. Raises BackendUnavailable."""
    scheme = scheme_of(settings, "records")
    if scheme in MONGO:
        return Migrated(
            applied=[], in_words="nothing to do: collections in MongoDB are made whenever the store is opened"
        )
    if scheme not in POSTGRES:
        return Migrated(applied=[], in_words="nothing to do: a SQLite file is brought up to date whenever it is opened")
    from ..backends.postgres.connection import migrate_database  # its driver is an extra

    applied, address = await migrate_database(settings.records, schema=postgres_schema(settings))
    where = f"{address.place}, schema {address.schema}"
    return Migrated(applied=list(applied), in_words=f"{'up to date' if applied else 'was up to date already'}: {where}")
