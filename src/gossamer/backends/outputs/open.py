"""Opens the target of an output by its address.

    postgresql://user:password@host:5432/database/table      or ...?table=schema.table
    sqlite:///file.db?table=products                         a file, relative to the project's folder
    duckdb:///file.duckdb?table=products
    mongodb://host/database/collection
    s3://bucket/prefix/?format=parquet&endpoint=...          or format=jsonl
    folder:///path/?format=jsonl

`?table=` is the name of the only type of items, in small letters, if it is left out; `records` if there are several.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

from ...errors import Misconfigured, MissingExtra
from ...store.outputs.contract import Output
from ...store.outputs.plan import Plan
from ...units import discreet
from .files import BucketFiles, FileOutput, FolderFiles
from .sql import Engine
from .table import TableOutput, table_name

DEFAULT_TABLE = "records"


def open_target(url: str, plan: Plan, *, id: str, root: Path, own: tuple[Path, ...] = ()) -> Output:
    """The target of an output; https is opened by the project. Nothing is dialled yet. `own` are files of the project,
    which are no target. Raises Misconfigured, MissingExtra."""
    scheme, _, rest = url.partition("://")
    scheme = scheme.lower()
    where, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    table = options.pop("table", "")
    left = urlencode(options)
    if scheme in ("postgresql", "postgres"):
        host, slash, path = where.partition("/")
        database, _, in_path = path.partition("/")
        address = f"postgresql://{host}{slash}{database}" + (f"?{left}" if left else "")
        return _table(_postgres(address), plan, table or unquote(in_path), id)
    if scheme in ("sqlite", "duckdb"):
        file = _path(scheme, where, root)
        if any(file.resolve() == one.resolve() for one in own):
            raise Misconfigured(f"{file} is a file of this project. Name another file for the output.")
        if left:
            raise Misconfigured(f"{scheme}:///{file.name}: only ?table= may follow the file.")
        if file.parent.suffix and not file.suffix and not file.parent.is_dir():  # meant as with postgresql
            raise Misconfigured(
                f"{scheme}://{where} would be a file in a folder {file.parent.name}. For the table {file.name} of a"
                f" file, write {scheme}://{where.rpartition('/')[0]}?table={file.name}."
            )
        return _table(_file(scheme, file), plan, table, id)
    if scheme in ("mongodb", "mongodb+srv"):
        from .mongodb import MongoOutput  # its driver is an extra

        host, _, path = where.partition("/")
        database, _, collection = path.partition("/")
        if not database or not collection or "/" in collection:
            raise Misconfigured("Write the address as mongodb://host/database/collection.")
        # The login is checked against `admin`, unless the address says otherwise, as is usual for MongoDB.
        address = f"{scheme}://{host}/" + (f"?{left}" if left else "")
        return MongoOutput(address, database, collection, discreet(f"{scheme}://{where}"), plan, id)
    format = options.pop("format", "parquet")
    if scheme == "folder":
        return FileOutput(FolderFiles(_path(scheme, where, root)), plan, format)
    if scheme == "s3":
        query = urlencode(options)
        return FileOutput(BucketFiles(f"s3://{where.rstrip('/')}" + (f"?{query}" if query else "")), plan, format)
    raise Misconfigured(f"{scheme[:40]}:// is no address of an output.")


def _table(engine: Engine, plan: Plan, table: str, id: str) -> TableOutput:
    name = table or (next(iter(plan.types)).lower() if len(plan.types) == 1 else DEFAULT_TABLE)
    history = plan.table.history
    if history and "." in name and "." not in history:
        history = f"{name.partition('.')[0]}.{history}"  # in the same schema
    return TableOutput(
        engine,
        plan,
        table_name(name, of="an output"),
        table_name(history, of="a history") if history else "",
        id,
    )


def _postgres(address: str) -> Engine:
    try:
        from .postgres import PostgresEngine  # its driver is an extra
    except ImportError as error:
        raise MissingExtra("Outputs to PostgreSQL need one more package: pip install 'gossamer[fleet]'.") from error
    return PostgresEngine(address, discreet(address.partition("?")[0]))


def _file(scheme: str, path: Path) -> Engine:
    if scheme == "sqlite":
        from .sqlite import SqliteEngine

        return SqliteEngine(path)
    from .duckdb import DuckdbEngine

    return DuckdbEngine(path)


def _path(scheme: str, where: str, root: Path) -> Path:
    if not where.startswith("/") or not where.strip("/"):
        raise Misconfigured(f"Write three slashes and a path: {scheme}:///exports/products.")
    return root / unquote(where[1:])
