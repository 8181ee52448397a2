"""Every target of an output: the rows are those of the changes, whatever is repeated, late or refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.backends.outputs.open import open_target
from gossamer.errors import LeaseLost, Misconfigured
from gossamer.model.output import ErasedRecord
from gossamer.model.record import StoredRecord
from gossamer.store.contract import Version
from gossamer.store.outputs.contract import Batch, Change, ColumnsWidened, Output, write_in_parts
from gossamer.store.outputs.plan import Plan, column_name

from ..services.postgres import schema_of, shared_postgres
from .outputs import SCHEMA, TARGETS, Target, record, shown


@pytest.fixture(params=TARGETS)
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    one = Target(request.param, tmp_path, request)
    await one.prepare()
    return one


@pytest.fixture
async def output(target: Target) -> AsyncIterator[Output]:
    opened = target.open(target.plan())
    yield opened
    await opened.close()


def batch(plan: Plan, *records: StoredRecord, number: int = 1, fence: int = 1) -> Batch:
    changes = [change for one in records if (change := plan.change(one, deletes=True)) is not None]
    return Batch(number=number, fence=fence, changes=changes, schemas=[SCHEMA])


async def test_rows_are_the_records_with_columns_of_the_declared_types(target: Target, output: Output) -> None:
    some = [record(1), record(2, title="a 'quoted' \"lamp\"; -- \N{SNOWMAN}", amount=None), record(3, stock=0)]

    assert await write_in_parts(output, batch(target.plan(), *some)) == []

    assert await target.rows() == {one.key: shown(one) for one in some}


async def test_a_repeated_batch_changes_nothing(target: Target, output: Output) -> None:
    wanted = batch(target.plan(), record(1), record(2))
    await write_in_parts(output, wanted)

    await write_in_parts(output, wanted)

    assert await target.rows() == {"k1": shown(record(1)), "k2": shown(record(2))}


async def test_a_newer_version_replaces_the_row_and_an_older_one_does_not(target: Target, output: Output) -> None:
    old, new = record(1), record(1, version=2, amount="2.00")
    await write_in_parts(output, batch(target.plan(), new))

    await write_in_parts(output, batch(target.plan(), old, number=2))

    assert await target.rows() == {"k1": shown(new)}


async def test_a_value_that_is_gone_is_empty_in_the_row(target: Target, output: Output) -> None:
    await write_in_parts(output, batch(target.plan(), record(1)))

    await write_in_parts(output, batch(target.plan(), record(1, version=2, amount=None), number=2))

    assert (await target.rows())["k1"] == ("lamp", None, 3, False)


@pytest.mark.parametrize(
    ("terms", "left"), [({"gone": "flag"}, True), ({"gone": "keep"}, False), ({"gone": "delete"}, None)]
)
async def test_a_gone_record_is_flagged_kept_or_deleted(
    target: Target, terms: dict[str, str], left: bool | None
) -> None:
    plan = target.plan(**terms)
    output = target.open(plan)
    await write_in_parts(output, batch(plan, record(1), record(2)))

    await write_in_parts(output, batch(plan, record(1, version=2, gone=True), number=2))
    await output.close()

    rows = await target.rows()
    assert rows.pop("k2") == shown(record(2))
    assert rows == ({} if left is None else {"k1": ("lamp", 1.5, 3, left)})


async def told_anew(output: Output, *batches: Batch) -> list[str]:
    """Write all batches, and all of them again when columns have changed, as a follower does; return what was said."""
    said: list[str] = []
    while True:
        try:
            for one in batches:
                assert await write_in_parts(output, one) == []
            return said
        except ColumnsWidened as told:
            said.append(str(told))


@pytest.mark.parametrize("other", ["many", "007", [1, 2], {"left": 1}, True], ids=str)
async def test_a_field_of_another_type_makes_the_column_of_our_table_a_text(
    target: Target, output: Output, other: Any
) -> None:
    plan = target.plan()
    batches = [batch(plan, record(1), record(2)), batch(plan, record(3, stock=other), record(4), number=2)]

    said = await told_anew(output, *batches)

    name = "stock_left" if isinstance(other, dict) else "stock"
    if not target.has_types:
        assert await target.values("k3", name) == [1 if isinstance(other, dict) else other]
        return
    wanted = other if isinstance(other, str) else msgspec.json.encode(other).decode()
    rows = {key: str(row[2]) for key, row in (await target.rows()).items() if key != "k3"}
    assert rows == {"k1": "3", "k2": "3", "k4": "3"}
    value = (await target.values("k3", name))[0]
    if target.name == "folder-jsonl":
        assert value == (1 if isinstance(other, dict) else other)
    elif name == "stock":
        assert value == wanted
        assert [("stock is" in one) for one in said] == ([True] if target.has_history else [])


async def test_a_point_makes_a_column_of_whole_numbers_one_of_decimals(target: Target, output: Output) -> None:
    if not target.has_history:
        pytest.skip("not a table")
    plan = target.plan()

    said = await told_anew(output, batch(plan, record(1)), batch(plan, record(2, stock=2.25), number=2))

    assert [float((await target.values(key, "stock"))[0]) for key in ("k1", "k2")] == [3, 2.25]
    assert await target.query(f"SELECT sum(stock) > 5.2 FROM {target.table('products')}") in ([(True,)], [(1,)])
    assert len(said) == 1


async def test_the_column_of_a_key_keeps_its_type(target: Target) -> None:
    if not target.has_history:
        pytest.skip("not a table")
    plan = target.plan(columns={"stock": "stock", "title": "title", "at": "_last_changed"}, key=("stock",))
    output = target.open(plan)
    await write_in_parts(output, batch(plan, record(1)))

    [refused] = await write_in_parts(output, batch(plan, record(1), record(2, stock="many"), number=2))

    assert "stock is " in refused.reason
    assert refused.reason.endswith("'many' is no whole number that fits. It identifies a row, and keeps its type.") or (
        refused.reason.endswith("'many' is no number. It identifies a row, and keeps its type.")
    )
    assert await target.query(f"SELECT stock, title FROM {target.table('products')}") == [(3, "lamp")]
    one = record(1)
    erased = ErasedRecord(type=one.type, site=one.site, key=one.key, url=one.url, data=one.data)
    await write_in_parts(output, Batch(number=3, fence=1, changes=[plan.erase(erased)], schemas=[SCHEMA]))
    await output.close()
    assert await target.query(f"SELECT stock FROM {target.table('products')}") == []


@pytest.mark.parametrize("between", [False, True], ids=["before", "between"])
async def test_of_two_outputs_on_a_table_none_makes_a_column_narrower(target: Target, between: bool) -> None:
    if not target.has_history:
        pytest.skip("not a table")
    plan = target.plan()
    one, other = target.open(plan), open_target(target.url, plan, id="other", root=target.folder)
    await write_in_parts(one, batch(plan, record(1)))
    await write_in_parts(other, batch(plan, record(2)))

    async def widen() -> None:
        await told_anew(other, batch(plan, record(2), record(3, stock="many"), record(4, stock="007"), number=2))

    if between:  # of what one of them found out, and its alteration
        engine = one._engine  # type: ignore[attr-defined]
        transact = engine.transact

        async def interrupted(work: Any) -> Any:
            try:
                return await transact(work)
            except BaseException:
                engine.transact = transact
                await widen()
                raise

        engine.transact = interrupted
    else:
        await widen()

    await told_anew(one, batch(plan, record(1), record(5, stock=1.5), number=2))

    await one.close()
    await other.close()
    stocks = {key: row[2] for key, row in (await target.rows()).items()}
    assert stocks == {"k1": "3", "k2": "3", "k3": "many", "k4": "007", "k5": "1.5"}


async def test_a_new_table_and_a_new_column_fit_all_rows_of_the_batch_that_makes_them(
    target: Target, output: Output
) -> None:
    if not target.has_history:
        pytest.skip("not a table")
    plan = target.plan()

    def lamps(number: int, name: str) -> Batch:
        some = [record(number), record(number + 1, stock="many")]
        for one, value in zip(some, (number, "a"), strict=True):
            one.data[name] = value
        return batch(plan, *some, number=number)

    said = await told_anew(output, lamps(1, "first"), lamps(3, "second"))

    assert said == []
    assert [str((await target.values(key, "first"))[0]) for key in ("k1", "k2")] == ["1", "a"]
    assert [str((await target.values(key, "second"))[0]) for key in ("k3", "k4")] == ["3", "a"]
    assert [(await target.values(key, "stock"))[0] for key in ("k3", "k4")] == ["3", "many"]


ADDED = {
    "index": "CREATE INDEX by_title ON PRODUCTS (title)",
    "unique index": "CREATE UNIQUE INDEX by_title ON products (title, _key)",
    "default": "ALTER TABLE products ADD COLUMN note VARCHAR DEFAULT 'none'",
    "trigger": "CREATE TRIGGER touched AFTER INSERT ON Products BEGIN SELECT 1; END",
    "generated": "ALTER TABLE products ADD COLUMN large GENERATED ALWAYS AS (stock > 5) VIRTUAL",
    "check": "ALTER TABLE products ADD COLUMN note VARCHAR CHECK (note <> 'x')",
    "comment": "COMMENT ON COLUMN products.title IS 'shown'",
}


@pytest.mark.parametrize(
    ("name", "added"),
    [("sqlite", one) for one in ADDED if one != "comment"]
    + [("duckdb", one) for one in ("index", "unique index", "default", "comment")],
)
async def test_a_table_to_which_a_person_has_added_something_is_not_made_anew(
    name: str, added: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Target(name, tmp_path, request)
    plan = target.plan()
    output = target.open(plan)
    await write_in_parts(output, batch(plan, record(1)))
    await target.query(ADDED[added])
    definition = {
        "sqlite": "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'gossamer%' ORDER BY 1",
        "duckdb": "SELECT sql FROM duckdb_tables() UNION ALL SELECT sql FROM duckdb_indexes() ORDER BY 1",
    }[name]
    before = await target.query(definition)

    refused = await write_in_parts(output, batch(plan, record(2, stock="many"), record(3), number=2))

    await output.close()
    assert [(one.change.identity[2], "something that Gossamer did not make" in one.reason) for one in refused] == [
        ("k2", True)
    ]
    assert await target.query(definition) == before
    assert set(await target.rows()) == {"k1", "k3"}


async def test_the_history_of_a_table_of_ours_gets_the_new_type_too(target: Target) -> None:
    if not target.has_history:
        pytest.skip("no history")
    plan = target.plan(history="past")
    output = target.open(plan)
    versions = _versions(record(1), record(1, version=2, stock="many"))
    old = plan.change(record(1), deletes=True, versions=versions[:1])
    new = plan.change(record(1, version=2, stock="many"), deletes=True, versions=versions)
    assert old is not None
    assert new is not None

    first = Batch(number=1, fence=1, changes=[old], schemas=[SCHEMA])
    await told_anew(output, first, Batch(number=2, fence=1, changes=[new], schemas=[SCHEMA]))

    await output.close()
    found = await target.query(f"SELECT version, stock FROM {target.table('past')} ORDER BY version")
    assert found == [(1, "3"), (2, "many")]


async def test_a_column_that_the_database_does_not_alter_has_dead_rows_with_the_reason(
    postgres: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Target("postgres", tmp_path, request)
    await target.prepare()
    plan = target.plan()
    output = target.open(plan)
    await write_in_parts(output, batch(plan, record(1)))
    await target.query(f"CREATE VIEW {target.table('shown')} AS SELECT stock FROM {target.table('products')}")

    refused = await write_in_parts(output, batch(plan, record(2, stock="many"), record(3), number=2))

    await output.close()
    [(key, reason)] = [(one.change.identity[2], one.reason) for one in refused]
    assert key == "k2"
    assert "stock is bigint: 'many' is no number. " in reason
    assert "cannot alter type of a column used by a view" in reason
    assert set(await target.rows()) == {"k1", "k3"}


@pytest.mark.parametrize(
    ("limit", "time", "said"),
    [
        ("LOCKED_WITHIN", timedelta(milliseconds=1), "lock timeout"),
        ("ALTERED_WITHIN", timedelta(milliseconds=50), "that takes longer than 0:00:00.050000"),
    ],
)
async def test_a_column_that_takes_too_long_to_alter_has_dead_rows_and_the_output_goes_on(
    postgres: Any,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    time: timedelta,
    said: str,
) -> None:
    import asyncpg

    target = Target("postgres", tmp_path, request)
    await target.prepare()
    plan = target.plan()
    output = target.open(plan)
    await write_in_parts(output, batch(plan, record(1)))
    monkeypatch.setattr(f"gossamer.backends.outputs.postgres.{limit}", time)
    reader = await asyncpg.connect(shared_postgres().address())
    if limit == "LOCKED_WITHIN":
        await reader.transaction().start()
        await reader.fetch(f"SELECT * FROM {target.table('products')}")
    else:  # an index that is made anew with the table, for an hour
        slow = f"{schema_of(tmp_path)}.slow"
        await reader.execute(
            f"CREATE FUNCTION {slow}(text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN"
            " IF current_query() LIKE 'ALTER%' THEN PERFORM pg_sleep(3600); END IF; RETURN $1; END $$;"
            f" CREATE INDEX ON {target.table('products')} ({slow}(title))"
        )

    refused = await write_in_parts(output, batch(plan, record(2, stock="many"), record(3), number=2))

    await output.close()
    await reader.close()
    assert [(one.change.identity[2], said in one.reason) for one in refused] == [("k2", True)]
    assert set(await target.rows()) == {"k1", "k3"}


async def test_a_manifest_says_which_types_the_columns_of_its_files_have(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Target("folder-parquet", tmp_path, request)
    plan = target.plan()
    output = target.open(plan)

    for number, stock in ((1, 3), (2, "many")):
        assert await output.write(batch(plan, record(number, stock=stock), number=number)) == []

    notes = [msgspec.json.decode(one.read_bytes()) for one in sorted((tmp_path / "lake" / "_batches").iterdir())]
    assert [one["files"][0]["columns"]["stock"] for one in notes] == ["int", "text"]
    assert {one["files"][0]["columns"]["price_amount"] for one in notes} == {"numeric"}


async def test_a_process_that_was_replaced_writes_nothing_more(target: Target, output: Output) -> None:
    successor = target.open(target.plan())
    await write_in_parts(output, batch(target.plan(), record(1), fence=1))
    await write_in_parts(successor, batch(target.plan(), record(1, version=2, title="new"), number=2, fence=2))

    with pytest.raises(LeaseLost):
        await write_in_parts(output, batch(target.plan(), record(2), number=2, fence=1))

    await successor.close()
    assert await target.rows() == {"k1": ("new", 1.5, 3, False)}


async def test_a_new_field_becomes_a_new_column(target: Target, output: Output) -> None:
    await write_in_parts(output, batch(target.plan(), record(1)))
    late = record(2)
    late.data["colour"] = "red"

    assert await write_in_parts(output, batch(target.plan(), late, number=2)) == []

    if target.has_history:  # a table
        found = await target.query(f"SELECT _key, colour FROM {target.table('products')} ORDER BY _key")
        assert found == [("k1", None), ("k2", "red")]


async def test_a_column_that_is_named_anew_is_added_to_a_table_that_gossamer_created(target: Target) -> None:
    if not target.has_history:
        pytest.skip("not a table")
    for number, column in enumerate(("title", "titel"), 1):
        plan = target.plan(columns={"sku": "_key", column: "title", f"seen_{number}": "_last_changed"}, key=("sku",))
        output = target.open(plan)
        assert await output.check()
        assert await write_in_parts(output, batch(plan, record(1, version=number), number=number)) == []
        await output.close()

    assert await target.query(f"SELECT sku, title, titel FROM {target.table('products')}") == [("k1", "lamp", "lamp")]


LONG = "description_" * 8  # PostgreSQL would cut both names to the same


async def test_a_field_may_have_any_name(target: Target, output: Output) -> None:
    odd = record(1)
    odd.data.update({"": 1, "\0": 2, "xmin": 3, "CTID": 4, f"{LONG}a": 5, f"{LONG}b": 6, "a.b": {"": 7}, 'say "hi"': 8})

    assert await write_in_parts(output, batch(target.plan(), odd)) == []

    names = ("_", "xmin_", "CTID_", column_name(f"{LONG}a"), column_name(f"{LONG}b"), "a.b_", 'say "hi"')
    assert [float(value) for value in await target.values("k1", *names)] == [1, 3, 4, 5, 6, 7, 8]


async def test_an_undeclared_number_is_as_exact_as_it_was(target: Target, output: Output) -> None:
    some = [record(1), record(2), record(3)]
    for one, number in zip(some, (1, 2**53 + 1, 2**62 + 1), strict=True):
        one.data.update({"id": number, "share": 0.1, "small": 1e-12})

    assert await write_in_parts(output, batch(target.plan(), *some)) == []

    assert [int((await target.values(one.key, "id"))[0]) for one in some] == [1, 2**53 + 1, 2**62 + 1]
    assert [float(value) for value in await target.values("k2", "share", "small")] == [0.1, 1e-12]


async def test_an_erased_record_is_in_no_row_and_in_no_history(target: Target) -> None:
    plan = target.plan(history="history") if target.has_history else target.plan()
    output = target.open(plan)
    versions = _versions(record(1), record(1, version=2, title="SECRET person"))
    change = plan.change(record(1, version=2, title="SECRET person"), deletes=True, versions=versions)
    assert change is not None
    await write_in_parts(
        output, Batch(number=1, fence=1, changes=[change, *batch(plan, record(2)).changes], schemas=[SCHEMA])
    )

    erase = plan.erase(ErasedRecord(type="Product", site="shop.example", key="k1", url="", data={}))
    await write_in_parts(output, Batch(number=2, fence=1, changes=[erase], schemas=[SCHEMA]))
    await output.close()

    assert set(await target.rows()) == {"k2"}
    if target.has_history:
        assert await target.query(f"SELECT DISTINCT _key FROM {target.table('history')}") == [("k2",)]
    if target.name in ("sqlite", "folder-jsonl", "folder-parquet", "own-class"):
        assert all(b"SECRET" not in path.read_bytes() for path in target.folder.rglob("*") if path.is_file())


async def test_wide_rows_and_one_of_several_megabytes_are_written(target: Target, output: Output) -> None:
    some = [record(number) for number in range(200)]
    for one in some:
        one.data.update({f"field_{column}": f"{column} of {one.key}" for column in range(450)})
    some[77].data["field_3"] = "x" * 5_000_000

    assert await write_in_parts(output, batch(target.plan(), *some)) == []

    assert len(await target.rows()) == 200
    assert [len(value) for value in await target.values("k77", "field_3", "field_4")] == [5_000_000, len("4 of k77")]


async def test_fields_with_names_from_pages_do_not_make_files_of_thousands_of_columns(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    target = Target("folder-parquet", tmp_path, request)
    output = target.open(target.plan())
    some = [record(number) for number in range(8)]
    for one in some:
        one.data.update({f"{one.key}_{column}": column for column in range(400)})

    assert await write_in_parts(output, batch(target.plan(), *some)) == []

    assert [await target.values(one.key, f"{one.key}_399") for one in some] == [[399]] * 8
    notes = [msgspec.json.decode(one.read_bytes()) for one in (tmp_path / "lake" / "_batches").iterdir()]
    assert max(len(file["columns"]) for note in notes for file in note["files"]) <= 2000
    assert len(notes) == 2


async def test_check_says_what_it_found_and_writes_no_row(target: Target, output: Output) -> None:
    assert await output.check()
    assert await output.count() in (0, None)


# -- tables ----------------------------------------------------------------------------------------------------


def _versions(*records: StoredRecord) -> list[Version]:
    return [
        Version(
            at=one.last_changed,
            job=one.job,
            version=one.version,
            data=msgspec.json.encode(one.data).decode(),
            gone=one.gone_since is not None,
        )
        for one in records
    ]


OWN = {
    "sku": "_key",
    "name": "title",
    "price": "price.amount",
    "currency": "price.currency",
    "seen_at": "_last_changed",
}
MADE = (
    "CREATE TABLE {products} (id INTEGER, sku VARCHAR(20) PRIMARY KEY, name VARCHAR(20) NOT NULL, "
    "price DECIMAL(10, 2), "
    "currency VARCHAR(3), seen_at TIMESTAMP, mine VARCHAR(20) DEFAULT 'mine')"
)
HISTORY = "CREATE TABLE {history} (sku VARCHAR(20), price DECIMAL(10, 2), currency VARCHAR(3), seen_at TIMESTAMP)"


@pytest.fixture(params=("sqlite", "duckdb", "postgres"))
async def table(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "postgres":
        request.getfixturevalue("postgres")
    one = Target(request.param, tmp_path, request)
    await one.prepare()
    for made in (MADE, HISTORY):
        await one.query(made.format(products=one.table("products"), history=one.table("price_history")))
    return one


async def _told(target: Target, terms: dict[str, Any], steps: Sequence[Sequence[StoredRecord]]) -> list[str]:
    """Write each record in all of its versions so far."""
    plan = target.plan(**terms)
    output = target.open(plan)
    reasons: list[str] = []
    past: dict[str, list[StoredRecord]] = {}
    for number, records in enumerate(steps, 1):
        changes: list[Change] = []
        for one in records:
            known = past.setdefault(one.key, [])
            known.append(one)
            change = plan.change(one, deletes=one.version > 1, versions=_versions(*known))
            changes += [change] if change is not None else []
        for _ in range(2):  # as after a crash
            refused = await write_in_parts(output, Batch(number=number, fence=1, changes=changes, schemas=[SCHEMA]))
        reasons += [one.reason for one in refused]
    await output.close()
    return reasons


async def test_a_table_of_ones_own_keeps_its_other_columns_and_gets_a_history_of_prices(table: Target) -> None:
    steps = [
        [record(1), record(2)],
        [record(1, version=2, title="desk lamp"), record(2, version=2, amount="2.25")],  # the price of one is as before
        [record(2, version=3, amount="3.00")],
    ]

    assert await _told(table, {"columns": OWN, "history": "price_history"}, steps) == []

    rows = await table.query(f"SELECT sku, name, price, currency, mine FROM {table.table('products')} ORDER BY sku")
    assert [(sku, name, float(price), *rest) for sku, name, price, *rest in rows] == [
        ("k1", "desk lamp", 1.5, "EUR", "mine"),
        ("k2", "lamp", 3.0, "EUR", "mine"),
    ]
    past = await table.query(f"SELECT sku, price FROM {table.table('price_history')} ORDER BY sku, seen_at")
    assert [(sku, float(price)) for sku, price in past] == [("k1", 1.5), ("k2", 1.5), ("k2", 2.25), ("k2", 3.0)]


@pytest.mark.parametrize("name", ["postgres", "duckdb"])  # SQLite has no arrays
async def test_a_list_fills_a_column_of_an_array(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if name == "postgres":
        request.getfixturevalue("postgres")
    target = Target(name, tmp_path, request)
    await target.prepare()
    await target.query(
        f"CREATE TABLE {target.table('products')} (sku VARCHAR(20) PRIMARY KEY, tags VARCHAR(20)[], sizes INTEGER[])"
    )
    some = [record(number) for number in range(1, 5)]
    some[0].data.update({"tags": ["a", 'say "b", {c}', None], "sizes": [1, 2]})
    some[1].data.update({"tags": [], "sizes": None})
    some[2].data.update({"tags": "no list"})
    some[3].data.update({"sizes": ["many"]})

    reasons = await _told(target, {"columns": {"sku": "_key", "tags": "tags", "sizes": "sizes"}}, [some])

    rows = await target.query(f"SELECT sku, tags, sizes FROM {target.table('products')} ORDER BY sku")
    assert rows == [("k1", ["a", 'say "b", {c}', None], [1, 2]), ("k2", [], None)]
    assert len(reasons) == 2
    assert any("is no list" in reason for reason in reasons)


async def test_the_history_has_only_versions_that_match(table: Target) -> None:
    steps = [
        [record(1), record(2, amount="50.00")],
        [record(1, version=2, amount="60.00"), record(2, version=2, amount="70.00")],
        [record(1, version=3, amount="2.00")],
    ]

    assert await _told(table, {"columns": OWN, "history": "price_history", "where": "price.amount < 10"}, steps) == []

    past = await table.query(f"SELECT sku, price FROM {table.table('price_history')} ORDER BY sku, seen_at")
    assert [(sku, float(price)) for sku, price in past] == [("k1", 1.5), ("k1", 2.0)]
    rows = await table.query(f"SELECT sku FROM {table.table('products')}")
    assert rows == [("k1",)]


async def test_what_the_database_refuses_is_a_dead_row(table: Target) -> None:
    bad = record(2)
    bad.data["title"] = None  # the column is NOT NULL

    reasons = await _told(table, {"columns": OWN}, [[record(1), bad, *(record(number) for number in range(3, 40))]])

    assert len(reasons) == 1
    assert "name" in reasons[0]
    assert (await table.query(f"SELECT count(*) FROM {table.table('products')}"))[0][0] == 38


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"columns": {**OWN, "nmae": "title"}}, "no column 'nmae'"),
        ({"columns": OWN, "key": ("name",)}, "Make it unique"),
        ({}, "no column '_type'"),
    ],
)
async def test_a_table_that_does_not_fit_stops_the_output_with_a_sentence(
    table: Target, terms: dict[str, Any], said: str
) -> None:
    with pytest.raises(Misconfigured, match=said):
        await _told(table, terms, [[record(1)]])
