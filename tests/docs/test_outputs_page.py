"""The examples of docs/outputs.md do what the page says of them, as they are written there."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.clock import VirtualClock
from gossamer.errors import Misconfigured, Transient
from gossamer.project.access.keys import OWNER
from gossamer.project.open import Project, open_project
from gossamer.project.outputs.outputs import NoFilter, OutputName, check_output, list_outputs, show_output
from gossamer.project.outputs.run import follower_of
from gossamer.settings import load
from tests.conformance.outputs import SCHEMA
from tests.conformance.stores import NOW, book, result
from tests.services.postgres import schema_of, shared_postgres

from .manual import ROOT, blocks_of

PAGE = ROOT / "docs" / "outputs.md"
TABLES = (
    "CREATE TABLE products (sku varchar(40) PRIMARY KEY, name text NOT NULL, price numeric(10, 2), currency char(3),"
    " page text, seen_at timestamp, shelf text DEFAULT 'A')",
    "CREATE TABLE price_history (sku varchar(40), price numeric(10, 2), seen_at timestamp)",
)
Query = Callable[[str], Awaitable[list[tuple[Any, ...]]]]


async def store(
    project: Project, clock: VirtualClock, *, more: dict[str, Any] | None = None, **products: tuple[str, str]
) -> None:
    """What a crawl finds a day later: title and price by key, and `more` fields."""
    clock.advance(86400)
    for key, (title, amount) in products.items():
        price = {"amount": amount, "currency": "EUR"}
        record = book(key, at=clock.now(), title=title, price=price, stock=1, **more or {})
        record = msgspec.structs.replace(record, type="Product", schema=SCHEMA.id)
        await project.records.save([result(record, schemas=(SCHEMA,))])


async def write(project: Project, name: str) -> None:
    assert await follower_of(project, name, project.settings.outputs[name]).catch_up()


@pytest.fixture(params=("sqlite", "postgres"))
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Query]:
    """The address of a shop's database with both tables, and how to ask it."""
    if request.param == "sqlite":

        async def ask_file(sql: str) -> list[tuple[Any, ...]]:
            with sqlite3.connect(tmp_path / "shop.db") as file:
                return file.execute(sql).fetchall()

        address, query = "sqlite:///shop.db?table=products", ask_file
    else:
        request.getfixturevalue("postgres")
        import asyncpg

        server, name = shared_postgres().address(), schema_of(tmp_path)
        connection = await asyncpg.connect(server)
        await connection.execute(f"CREATE DATABASE {name}")
        await connection.close()
        database = f"{server.rpartition('/')[0]}/{name}"

        async def ask_server(sql: str) -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(database)
            try:
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        address, query = f"{database}/products", ask_server
    for table in TABLES:
        await query(table)
    return address, query


async def test_twelve_lines_fill_products_and_price_history_of_a_shop(shop: tuple[str, Query], tmp_path: Path) -> None:
    address, query = shop
    [code] = [one.code for one in blocks_of(PAGE) if one.language == "toml" and "[outputs.shop.columns]" in one.code]
    assert len(code.splitlines()) == 12
    written = re.sub(r'(?m)^url = ".*"$', f'url = "{address}"', code)  # nothing else is changed
    (tmp_path / "gossamer.toml").write_text(written, encoding="utf-8")

    clock = VirtualClock(NOW)
    async with open_project(load(start=tmp_path, environ={}), clock=clock) as project:
        await store(project, clock, lamp=("Lamp", "9.50"), vase=("Vase", "12.00"), gift=("Gift", "0"))
        await write(project, "shop")
        await store(project, clock, lamp=("Desk lamp", "9.50"), vase=("Vase", "11.00"))
        await write(project, "shop")

    found = await query("SELECT sku, name, price, currency, page, shelf FROM products ORDER BY sku")
    assert [(sku, name, float(price), *rest) for sku, name, price, *rest in found] == [
        ("lamp", "Desk lamp", 9.5, "EUR", "https://shop.example/lamp", "A"),
        ("vase", "Vase", 11.0, "EUR", "https://shop.example/vase", "A"),
    ]
    past = await query("SELECT sku, price, seen_at FROM price_history ORDER BY sku, seen_at")
    assert [(sku, float(price), str(at)[:10]) for sku, price, at in past] == [
        ("lamp", 9.5, "2027-01-16"),  # none for a new title
        ("vase", 12.0, "2027-01-16"),
        ("vase", 11.0, "2027-01-17"),
    ]


async def test_a_class_of_ones_own_keeps_a_file_for_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "jsons", raising=False)
    blocks = blocks_of(PAGE)
    [code] = [one.code for one in blocks if one.title == "jsons.py"]
    [terms] = [one.code for one in blocks if one.language == "toml" and "jsons:Jsons" in one.code]
    (tmp_path / "jsons.py").write_text(code, encoding="utf-8")
    (tmp_path / "gossamer.toml").write_text(terms, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    clock = VirtualClock(NOW)
    async with open_project(load(start=tmp_path, environ={}), clock=clock) as project:
        checked = await check_output(project, OWNER, OutputName(name="pages"))
        await store(project, clock, lamp=("Lamp", "9.50"), vase=("Vase", "12.00"))
        await write(project, "pages")
        await store(project, clock, lamp=("Desk lamp", "9.50"))
        await write(project, "pages")
        [view] = await list_outputs(project, OWNER, NoFilter())

    assert checked.found == "pages is a folder."
    assert (view.state, view.target, view.written) == ("up-to-date", "jsons:Jsons", 3)
    rows = [msgspec.json.decode(path.read_bytes())["row"] for path in (tmp_path / "pages").glob("*.json")]
    assert sorted((row["_key"], row["title"]) for row in rows) == [("lamp", "Desk lamp"), ("vase", "Vase")]


FAULTY = """
from gossamer import Output, Refused

class Faulty(Output):
    def __init__(self, key):
        self.key = key

    async def check(self):
        return self.key

    async def write(self, batch):
        raise ZeroDivisionError("what a library raises")

class Silent(Faulty):
    async def write(self, batch):
        return None

class Vague(Faulty):
    async def write(self, batch):
        return [Refused(change.identity, "no") for change in batch.changes]

class Wordless(Faulty):
    async def write(self, batch):
        return [Refused(change, ValueError("no")) for change in batch.changes]

class Unsure(Faulty):
    @property
    def mirrors(self):
        raise ZeroDivisionError("what a library raises")

class Endless(Faulty):
    rows_at_once = None
"""


@pytest.mark.parametrize(
    ("terms", "kind", "said"),
    [
        ('use = "faulty:Faulty"\noptions = ["key=1"]', Transient, r"faulty:Faulty.write failed \(ZeroDivisionError"),
        ('use = "faulty:Silent"\noptions = ["key=1"]', Misconfigured, "must return a list of gossamer.Refused"),
        ('use = "faulty:Vague"\noptions = ["key=1"]', Misconfigured, "Each has a change of the batch"),
        ('use = "faulty:Wordless"\noptions = ["key=1"]', Misconfigured, "and a text that says why"),
        ('use = "faulty:Unsure"\noptions = ["key=1"]', Transient, r"Unsure(.mirrors)? failed \(ZeroDivisionError"),
        ('use = "faulty:Endless"\noptions = ["key=1"]', Transient, r"Endless.rows_at_once failed \(TypeError"),
        ('use = "faulty:Faulty"', Misconfigured, "missing 1 required positional argument: 'key'"),
        ('use = "faulty:Faulty"\noptions = ["key=${NOWHERE}"]', Misconfigured, "NOWHERE"),
        ('use = "faulty:Nobody"', Misconfigured, "cannot be loaded"),
        ('use = "pathlib:Path"', Misconfigured, "is no output"),
    ],
)
async def test_a_class_of_ones_own_that_fails_says_which_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terms: str, kind: type[Exception], said: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    (tmp_path / "gossamer.toml").write_text(f"[outputs.own]\n{terms}\n", encoding="utf-8")
    clock = VirtualClock(NOW)
    async with open_project(load(start=tmp_path, environ={}), clock=clock) as project:
        await store(project, clock, lamp=("Lamp", "9.50"))
        with pytest.raises(kind, match=said):
            await write(project, "own")


TALKATIVE = """
from gossamer import Output, Refused
from gossamer.errors import Misconfigured

class Talkative(Output):
    def __init__(self, dsn, fails=""):
        self.words = f"could not connect to {dsn}"
        self.fails = fails
        if fails == "at once":
            raise OSError(self.words)

    async def check(self):
        return self.words

    async def write(self, batch):
        if self.fails == "away":
            raise OSError(self.words)
        if self.fails == "wrong":
            raise Misconfigured(self.words)
        return [Refused(change, self.words) for change in batch.changes]
"""


@pytest.mark.parametrize("fails", ["at once", "away", "wrong", "row"])
async def test_a_secret_among_the_options_is_in_nothing_that_the_class_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "talkative", raising=False)
    monkeypatch.setenv("GOSSAMER_SECRET_TOKEN", "s3cret-t0ken")
    (tmp_path / "talkative.py").write_text(TALKATIVE, encoding="utf-8")
    options = f'["dsn=queue.example/${{TOKEN}}/shop", "fails={fails}"]'
    (tmp_path / "gossamer.toml").write_text(
        f'[outputs.own]\nuse = "talkative:Talkative"\noptions = {options}\n', encoding="utf-8"
    )
    clock, said = VirtualClock(NOW), list[str]()
    async with open_project(load(start=tmp_path, environ={}), clock=clock) as project:
        await store(project, clock, lamp=("Lamp", "9.50"))
        try:
            await write(project, "own")
        except (Misconfigured, Transient) as error:
            said.append(str(error))
        try:
            said.append((await check_output(project, OWNER, OutputName(name="own"))).found)
        except Misconfigured as error:
            said.append(str(error))
        said += [one.reason for one in (await show_output(project, OWNER, OutputName(name="own"))).dead_rows]

    assert len(said) == 2
    assert all("could not connect to queue.example/***/shop" in words for words in said)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ('use = "a:B"\nurl = "sqlite:///x.db"', "Leave one of them out"),
        ('url = "sqlite:///x.db"\noptions = ["a=b"]', "are for a class of your own"),
        ('use = "a:B"\noptions = ["a"]', "name=value"),
        ('use = "a:B"\nhistory = "past"', "is for tables"),
        ("", "A class of your own is named by use"),
    ],
)
def test_settings_of_a_class_that_do_not_fit_are_named(tmp_path: Path, terms: str, said: str) -> None:
    (tmp_path / "gossamer.toml").write_text(f"[outputs.own]\n{terms}\n", encoding="utf-8")
    with pytest.raises(Misconfigured, match=said):
        load(start=tmp_path, environ={})


async def test_the_query_of_duckdb_finds_the_newest_row_of_each_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import duckdb

    [query] = [one.code for one in blocks_of(PAGE) if "read_parquet" in one.code]
    (tmp_path / "gossamer.toml").write_text('[outputs.lake]\nurl = "folder:///lake/"\nwhere = "stock == 1"\n')
    clock = VirtualClock(NOW)
    async with open_project(load(start=tmp_path, environ={}), clock=clock) as project:
        await store(project, clock, lamp=("Lamp", "9.50"), vase=("Vase", "12.00"))
        await write(project, "lake")
        await store(project, clock, vase=("Vase", "11.00"), more={"colour": "red"})
        await write(project, "lake")

    monkeypatch.chdir(tmp_path)
    with duckdb.connect() as connection:
        answer = connection.execute(query)
        names = [column[0] for column in answer.description]
        rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
    assert sorted((row["_key"], row["title"], float(row["price_amount"]), row["_version"]) for row in rows) == [
        ("lamp", "Lamp", 9.5, 1),
        ("vase", "Vase", 11.0, 2),
    ]
    assert {row["_key"]: row["colour"] for row in rows} == {"lamp": None, "vase": "red"}  # a field of later files
