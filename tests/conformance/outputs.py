"""The outputs that must behave alike, and what their suites share. A new target joins by its name in TARGETS, its
address in `url` or its class in `open`, and how its rows are read back in `rows` and `values`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from gossamer.backends.outputs.open import open_target
from gossamer.model.record import ItemSchema, StoredRecord
from gossamer.project.outputs.own import OwnOutput
from gossamer.settings.output_tables import OutputTable
from gossamer.store.outputs.contract import Output
from gossamer.store.outputs.plan import Plan
from gossamer.units import Secret

from ..docs.manual import blocks_of
from ..services.postgres import schema_of, shared_postgres

Rows = dict[str, tuple[Any, ...]]  # by key: title, amount, stock, gone

SCHEMA = ItemSchema(
    id="s1",
    type="Product",
    definition=msgspec.json.encode(
        {
            "key": ["url"],
            "fields": {
                "title": {"type": "text"},
                "price": {"type": "money", "optional": True},
                "stock": {"type": "int"},
            },
        }
    ).decode(),
)


class Target:
    """A target in a folder of the test."""

    def __init__(self, name: str, folder: Path, request: pytest.FixtureRequest) -> None:
        self.name = name
        self.folder = folder
        self.request = request

    @property
    def url(self) -> str:
        match self.name:
            case "sqlite":
                return "sqlite:///target.db?table=products"
            case "duckdb":
                return "duckdb:///target.duckdb?table=products"
            case "postgres":
                return f"{shared_postgres().address()}/{schema_of(self.folder)}.products"
            case "folder-jsonl":
                return "folder:///lake?format=jsonl"
            case "folder-parquet":
                return "folder:///lake"
            case _:
                raise KeyError(self.name)

    @property
    def has_history(self) -> bool:
        return not self.name.startswith(("folder", "own"))

    @property
    def has_types(self) -> bool:
        """Whether a column has a type, so that a row may not fit."""
        return self.name != "own-class"

    async def prepare(self) -> None:
        if self.name == "postgres":
            import asyncpg

            connection = await asyncpg.connect(shared_postgres().address())
            await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema_of(self.folder)}")
            await connection.close()

    def plan(self, **terms: Any) -> Plan:
        if self.name == "own-class":
            return Plan(OutputTable(use="jsons:Jsons", **terms))
        return Plan(OutputTable(url=Secret(self.url), **terms))

    def open(self, plan: Plan) -> Output:
        if self.name == "own-class":  # that of the manual
            return OwnOutput("own", "jsons:Jsons", own_class(str(self.folder / "own")))
        return open_target(self.url, plan, id="test", root=self.folder)

    async def rows(self, table: str = "products") -> Rows:
        """What a reader of the target sees: of each record its newest row."""
        if self.name == "own-class":
            names = ("title", "price_amount", "stock", "_gone_since")
            return {key: _plain(tuple(row.get(one) for one in names)) for key, row in own_rows(self.folder).items()}
        found = await self.query(f"SELECT _key, title, price_amount, stock, _gone_since FROM {self.table(table)}")
        return {row[0]: _plain(row[1:]) for row in found}

    async def values(self, key: str, *columns: str) -> list[Any]:
        """Values of the newest row of a record."""
        if not self.has_history:
            row = own_rows(self.folder)[key] if self.name == "own-class" else newest_rows(self.folder / "lake")[key]
            return [row[name] for name in columns]
        picked = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
        [row] = await self.query(f"SELECT {picked} FROM {self.table('products')} WHERE _key = '{key}'")
        return list(row)

    def table(self, name: str) -> str:
        return f"{schema_of(self.folder)}.{name}" if self.name == "postgres" else name

    async def query(self, sql: str) -> list[Any]:
        match self.name:
            case "sqlite":
                import sqlite3

                with sqlite3.connect(self.folder / "target.db") as file:
                    return file.execute(sql).fetchall()
            case "duckdb":
                import duckdb

                with duckdb.connect(str(self.folder / "target.duckdb")) as connection:
                    return connection.execute(sql).fetchall()
            case "postgres":
                import asyncpg

                server = await asyncpg.connect(shared_postgres().address())
                try:
                    return [tuple(row) for row in await server.fetch(sql)]
                finally:
                    await server.close()
        return lake_rows(self.folder / "lake")


def own_class(folder: str) -> Output:
    page = Path(__file__).parents[2] / "docs" / "outputs.md"
    [code] = [one.code for one in blocks_of(page) if one.title == "jsons.py"]
    found: dict[str, Any] = {}
    exec(compile(code, "jsons.py", "exec"), found)
    jsons: Output = found["Jsons"](folder)
    return jsons


def own_rows(folder: Path) -> dict[str, dict[str, Any]]:
    found = [msgspec.json.decode(path.read_bytes())["row"] for path in (folder / "own").glob("*.json")]
    return {row["_key"]: row for row in found}


def lake_rows(folder: Path) -> list[Any]:
    """The newest row of each record that is not deleted, from files."""
    names = ("_key", "title", "price_amount", "stock", "_gone_since")
    rows = newest_rows(folder).values()
    return [tuple(row.get(name) for name in names) for row in rows if not row["_deleted"]]


def newest_rows(folder: Path) -> dict[str, dict[str, Any]]:
    newest: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.rglob("type=*/*/*")):
        for row in read_file(path.name, path.read_bytes()):
            if row["_key"] not in newest or newest[row["_key"]]["_version"] <= row["_version"]:
                newest[row["_key"]] = row
    return newest


def read_file(name: str, content: bytes) -> list[dict[str, Any]]:
    if name.endswith(".parquet"):
        import pyarrow.parquet

        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return rows
    lines = zstandard.ZstdDecompressor().stream_reader(content).read().splitlines()
    return [msgspec.json.decode(line) for line in lines]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    title, amount, stock, gone = row
    return title, None if amount is None else float(amount), stock, gone is not None


TARGETS = ("sqlite", "duckdb", "postgres", "folder-jsonl", "folder-parquet", "own-class")


def record(
    number: int,
    *,
    version: int = 1,
    title: str = "lamp",
    amount: str | None = "1.50",
    stock: Any = 3,
    gone: bool = False,
    at: float | None = None,
    type: str = "Product",
) -> StoredRecord:
    at = 1_800_000_000.0 + version if at is None else at
    price = {"amount": amount, "currency": "EUR"} if amount is not None else None
    return StoredRecord(
        type=type,
        site="shop.example",
        key=f"k{number}",
        url=f"https://shop.example/{number}",
        job="j-1",
        spider="shop",
        data={"title": title, "price": price, "stock": stock},
        first_seen=1_800_000_000.0,
        last_changed=at,
        last_checked=at,
        version=version,
        gone_since=at if gone else None,
        schema="s1",
        number=number + 1,
    )


def shown(one: StoredRecord) -> tuple[Any, ...]:
    price = one.data["price"]
    amount = float(price["amount"]) if price is not None else None
    return one.data["title"], amount, one.data["stock"], one.gone_since is not None
