"""`gossamer migrate`: bring the tables of the record store to the schema of this version."""

from __future__ import annotations

from ..backends.addresses import MONGO, POSTGRES, postgres_schema, scheme_of
from ..settings import Settings
from ..text import visible
from .app import app, out, run_async, settings_with


@app.command("migrate")
def migrate_verb() -> None:
    """Bring the record store's tables up to date. Can be run as often as you like."""
    settings = settings_with()
    if scheme_of(settings, "records") in POSTGRES:
        run_async(_migrate_postgres(settings))
    elif scheme_of(settings, "records") in MONGO:
        out.print("records  nothing to do: collections in MongoDB are made whenever the store is opened")
    else:
        out.print("records  nothing to do: a SQLite file is brought up to date whenever it is opened")


async def _migrate_postgres(settings: Settings) -> None:
    from ..backends.postgres.connection import migrate_database

    applied, address = await migrate_database(settings.records, schema=postgres_schema(settings))
    where = visible(f"{address.place}, schema {address.schema}")
    for name in applied:
        out.print(f"records  applied {name}", markup=False)
    out.print(f"records  up to date: {where}" if applied else f"records  was up to date already: {where}", markup=False)
