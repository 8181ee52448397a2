"""Every type of items is a view with real columns, in every record store: `records.views` of store/contract.py."""

from __future__ import annotations

import asyncio
import json
import sys
import types
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.model.item import Item, Money, content_hash, item_data, schema_of
from gossamer.model.record import ItemSchema, Record
from gossamer.store.contract import RecordQuery, Records, Retirement
from gossamer.store.item_views import MOST_COLUMNS, RESERVED, STORED_COLUMNS, ItemView

from .stores import NOW, OpenRecords, book, result, visit
from .stores import backend as backend
from .stores import clock as clock
from .stores import open_records as open_records
from .stores import record_store as record_store


def stored(
    item: Item | dict[str, Any], key: str, *, type: str = "", at: float = NOW
) -> tuple[Record, ItemSchema | None]:
    schema, data = schema_of(item), item_data(item)
    record = msgspec.structs.replace(
        book(key, at=at),
        type=type or _name_of(item),
        data=data,
        content_hash=content_hash(data),
        schema=schema.id if schema is not None else "",
    )
    return record, schema


def _name_of(item: Item | dict[str, Any]) -> str:
    return "item" if isinstance(item, dict) else type(item).__name__


async def save(store: Records, *items: Item | dict[str, Any], at: float = NOW, type: str = "") -> None:
    """Each item under its place as key."""
    made = [stored(item, f"{place}", at=at, type=type) for place, item in enumerate(items)]
    await store.save([result(record, schemas=(schema,) if schema else ()) for record, schema in made])


async def rows(store: Records, sql: str) -> list[tuple[Any, ...]]:
    return (await store.views.select(sql, limit=1000, seconds=30)).rows


async def columns(store: Records, view: str) -> list[str]:
    found = (await store.views.select(f"SELECT * FROM {view}", limit=1, seconds=30)).columns
    return [name for name in found if name not in STORED_COLUMNS]


async def view_of(store: Records, type: str) -> ItemView:
    views, problem = await store.views.refresh()
    assert problem == ""
    return next(view for view in views if view.type == type)


def as_utc(value: Any) -> datetime:
    found = datetime.fromisoformat(value) if isinstance(value, str) else value
    assert found.tzinfo is not None, "a time without a zone"
    return found.astimezone(UTC)


class Product(Item, key="sku"):
    sku: str
    title: str
    price: Money | None = None
    seen: datetime | None = None


# -- what people ask --------------------------------------------------------------------------------------------------


async def test_a_type_can_be_asked_by_the_names_of_its_fields(record_store: Records) -> None:
    await save(
        record_store,
        Product(sku="a", title="Lamp", price=Money(amount=Decimal("9.90"), currency="EUR")),
        Product(sku="b", title="Vase", price=Money(amount=Decimal("10.00"), currency="EUR")),
    )
    found = await rows(record_store, "SELECT title, price_amount FROM product WHERE price_amount < 10")
    assert [(title, float(amount)) for title, amount in found] == [("Lamp", 9.9)]
    meta = await rows(
        record_store, "SELECT _site, _key, _version, _gone_since, _first_seen FROM product WHERE sku = 'b'"
    )
    assert meta[0][:4] == ("shop.example", "1", 1, None)
    assert as_utc(meta[0][4]).timestamp() == NOW


async def test_the_history_says_from_when_to_when_and_the_changes_say_what(record_store: Records) -> None:
    dear, cheap = Money(amount=Decimal(12), currency="EUR"), Money(amount=Decimal(9), currency="EUR")
    await save(record_store, Product(sku="a", title="Lamp", price=dear))
    await save(record_store, Product(sku="a", title="Lamp", price=cheap), at=NOW + 60)
    await record_store.save([visit("https://shop.example/0", at=NOW + 90, job="books-2")])
    await record_store.retire(Retirement(job="books-2", spider="books", at=NOW + 120))

    history = "SELECT price_amount, _valid_from, _valid_to, _gone FROM product_history ORDER BY _version"
    found = await rows(record_store, history)
    assert [float(row[0]) for row in found] == [12, 9, 9]
    times = [(as_utc(start).timestamp(), end and as_utc(end).timestamp()) for _, start, end, _ in found]
    assert times == [(NOW, NOW + 60), (NOW + 60, NOW + 120), (NOW + 120, None)]
    assert [bool(row[3]) for row in found] == [False, False, True]
    field, old, new, at = (await rows(record_store, "SELECT field, old, new, at FROM product_changes"))[0]
    assert (field, as_utc(at).timestamp()) == ("price", NOW + 60)
    assert [value["amount"] if isinstance(value, dict) else json.loads(value)["amount"] for value in (old, new)] == [
        "12",
        "9",
    ]
    assert len(await rows(record_store, "SELECT field FROM product_changes")) == 1  # being gone is no change of a field


# -- names ------------------------------------------------------------------------------------------------------------


async def test_names_that_fold_together_or_are_reserved_get_names_of_their_own(record_store: Records) -> None:
    for type in ("Order", "order", "records", "record", "Café", "a-b", "3d", "sqlite_x", "x" * 200, "x" * 199, "item"):
        await save(record_store, {"v": type}, type=type)
    views, problem = await record_store.views.refresh()
    assert problem == ""
    assert len({view.name.lower() for view in views}) == len(views) == 11
    for view in views:
        assert await rows(record_store, f"SELECT v FROM {view.name}") == [(view.type,)]
        assert await rows(record_store, f"SELECT v FROM {view.name}_history") == [(view.type,)]
        assert await rows(record_store, f"SELECT field FROM {view.name}_changes") == []
    assert {view.type: view.name for view in views}["Order"] == "order_"
    assert {view.type: view.name for view in views}["item"] == "item"


async def test_any_text_can_be_the_name_of_a_field(record_store: Records) -> None:
    names = ["key", "select", "Title", "title", "TITLE", "@id", "a b", 'say "hi"', "back\\slash", "tab\t",
             "it's", "$1", "x::int", "größe", "Ärger", "_site", "_data", "", "1st", "{value}", "%s", "价格", "?1",
             "-- no"]  # fmt: skip
    await save(record_store, {name: f"v{place}" for place, name in enumerate(names)})
    view = await view_of(record_store, "item")
    by_field = {column.path[0]: column.name for column in view.columns if column.path}
    for place, name in enumerate(names):
        assert await rows(record_store, f"SELECT {by_field[name]} FROM item") == [(f"v{place}",)], name
    assert by_field["key"] == "key"
    assert by_field["select"] == "select_"
    assert await rows(record_store, "SELECT _site FROM item") == [("shop.example",)]


async def test_three_hundred_fields_are_columns_and_more_than_fit_are_in_the_data(record_store: Records) -> None:
    await save(record_store, {f"f{n}": n for n in range(300)})
    assert sorted(await columns(record_store, "item")) == sorted(f"f{n}" for n in range(300))
    await save(record_store, {f"f{n}": n for n in range(MOST_COLUMNS + 50)}, at=NOW + 1)
    assert len(await columns(record_store, "item")) == MOST_COLUMNS
    assert await rows(record_store, "SELECT f299 FROM item") == [(299,)]


# -- types that change ------------------------------------------------------------------------------------------------


def item_type(name: str, fields: dict[str, Any]) -> Callable[..., Item]:
    def body(space: dict[str, Any]) -> None:
        space["__annotations__"] = {field: hint | None for field, hint in fields.items()}
        space.update(dict.fromkeys(fields))

    return types.new_class(name, (Item,), {}, body)  # type: ignore[no-any-return]


async def test_a_type_that_changes_keeps_its_view_and_its_columns(record_store: Records) -> None:
    first, second = item_type("Shop", {"size": str, "old": int}), item_type("Shop", {"size": int, "fresh": bool})
    await save(record_store, first(size="large", old=1), first(size="7", old=2))
    await save(record_store, second(size=5, fresh=True), at=NOW + 1)
    names = ["size", "old", "fresh"]
    assert set(names) <= set(await columns(record_store, "shop"))
    found = await rows(record_store, "SELECT size, old, fresh FROM shop ORDER BY _key")
    assert [tuple(map(bool, row)) for row in found] == [(True, False, True), (False, True, False)]
    assert found[0][0] == 5  # and the text of the other record does not fit any more: it is in its data
    await save(record_store, first(size="huge", old=3), at=NOW + 2)
    assert len(await rows(record_store, "SELECT * FROM shop_history")) == 4


async def test_values_that_do_not_fit_are_null_and_no_query_fails(record_store: Records) -> None:
    hints = {"a": int, "b": float, "c": bool, "d": Decimal, "e": datetime, "f": date, "g": str, "h": Money,
             "i": list[int], "j": dict[str, int]}  # fmt: skip
    kind = item_type("Odd", hints)
    bad = ["x", "", 10**30, -1, 1.5, True, None, [1], {"a": 1}, {"amount": [], "currency": {}}, "2024-02-30", "NaN",
           "0000-01-01", "2024-13-01T00:00:00Z", "2024-01-01T25:00:00Z", "2023-02-29", "now", "1e999", "1e-999", "--5",
           "2024-01-01T00:00:00+99:99", "2024-01-01T00:00:00.x", "9999-12-31T23:59:59-14:00", 5e-324, 1.7e308,
           "\ufdd00", "'", "\\"]  # fmt: skip
    await save(record_store, kind(), *(kind(**dict.fromkeys(hints, value)) for value in bad))
    for view in ("odd", "odd_history", "odd_changes"):
        await rows(record_store, f"SELECT * FROM {view}")
    assert await rows(record_store, "SELECT a FROM odd WHERE _key = '1'") == [(None,)]
    await save(record_store, *({"a": value} for value in bad))
    assert len(await rows(record_store, "SELECT a FROM item")) == len(bad)


async def test_the_largest_and_the_smallest_numbers_are_shown(record_store: Records) -> None:
    numbers = [sys.float_info.max, -sys.float_info.max, sys.float_info.min, 5e-324, 0.0]
    kind = item_type("Measure", {"value": float})
    await save(record_store, *(kind(value=one) for one in numbers))
    await view_of(record_store, "Measure")
    assert [value for (value,) in await rows(record_store, "SELECT value FROM measure ORDER BY _key")] == numbers


async def test_what_is_not_declared_gets_columns_from_what_was_seen(open_records: OpenRecords) -> None:
    async with open_records() as store:
        await save(store, {"n": 1, "nothing": None})
        assert await columns(store, "item") == ["n"]
    async with open_records() as store:  # another process, which has not seen that
        await save(store, {"n": 2.5, "t": "x"}, at=NOW + 1)
        assert await columns(store, "item") == ["n", "t"]
        assert [(float(n), t) for n, t in await rows(store, "SELECT n, t FROM item")] == [(2.5, "x")]
        await save(store, {"n": "many", "t": "y"}, at=NOW + 2)
        assert [str(n) for n, _ in await rows(store, "SELECT n, t FROM item")] == ["many"]


async def test_many_processes_make_the_same_views_at_once(open_records: OpenRecords) -> None:
    async def one(number: int) -> None:
        async with open_records() as store:
            await save(store, Product(sku="a", title="x"), at=NOW + number)
            await save(store, {f"own{number}": number}, at=NOW + number)

    await asyncio.gather(*(one(number) for number in range(4)))
    async with open_records() as store:
        assert set(await columns(store, "item")) == {f"own{number}" for number in range(4)}
        assert len(await rows(store, "SELECT * FROM product")) == 1


async def test_views_show_what_was_loaded_from_a_copy(record_store: Records) -> None:
    await save(record_store, Product(sku="a", title="x"), {"n": 1})
    batches = [batch async for batch in record_store.stream.dump()]
    await record_store.stream.clear()
    assert await rows(record_store, "SELECT * FROM product") == []
    for batch in batches:
        await record_store.stream.load(batch)
    await record_store.stream.finish()
    assert await rows(record_store, "SELECT sku FROM product") == [("a",)]
    assert await rows(record_store, "SELECT n FROM item") == [(1,)]


# -- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    ["DELETE FROM records", "DROP VIEW product", "SELECT 1; DELETE FROM records", "UPDATE records SET key = 'x'",
     "WITH gone AS (DELETE FROM records RETURNING 1) SELECT * FROM gone", "CREATE TABLE t (a int)",
     "COPY records TO PROGRAM 'cat'", "ATTACH 'x.db' AS x", "PRAGMA query_only = OFF", "SELECT load_extension('x')",
     "BEGIN", "COMMIT", "SELECT titel FROM product", "nonsense", "SELECT $1", "SELECT 1; COMMIT; DELETE FROM records"],
)  # fmt: skip
async def test_a_query_reads_or_is_refused(record_store: Records, sql: str) -> None:
    await save(record_store, Product(sku="a", title="x"))
    with pytest.raises(Misconfigured):
        await rows(record_store, sql)
    assert len(await rows(record_store, "SELECT * FROM records")) == 1


async def test_a_query_that_takes_too_long_ends(record_store: Records) -> None:
    endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    with pytest.raises(Misconfigured, match="longer than"):
        await record_store.views.select(endless, limit=1, seconds=0.2)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server whose other statements have three seconds."""
    monkeypatch.setattr("gossamer.backends.postgres.connection.ANSWER_WITHIN", timedelta(seconds=3))


async def test_a_query_may_take_longer_than_other_statements(hasty: None, record_store: Records) -> None:
    endless = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c"
    with pytest.raises(Misconfigured, match=r"longer than 3\.5 s"):
        await record_store.views.select(endless, limit=1, seconds=3.5)


async def test_rows_beyond_the_limit_are_said(record_store: Records) -> None:
    await save(record_store, *({"n": n} for n in range(5)))
    some = await record_store.views.select("SELECT n FROM item ORDER BY n", limit=2, seconds=5)
    assert (some.columns, some.rows, some.more) == (("n",), [(0,), (1,)], True)
    assert not (await record_store.views.select("SELECT n FROM item", limit=5, seconds=5)).more


# -- anything ---------------------------------------------------------------------------------------------------------

zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.none() | zones)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=3)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (str, texts),
    "bool": (bool, st.booleans()),
    "int": (int, st.integers(-(2**63), 2**63 - 1)),
    "float": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "decimal": (Decimal, decimals),
    "datetime": (datetime, times),
    "date": (date, st.dates()),
    "money": (Money, st.builds(Money, amount=decimals, currency=st.sampled_from(["EUR", "USD"]))),
    "list": (list[str], st.lists(texts, max_size=3)),
    "object": (dict[str, int], st.dictionaries(texts, st.integers(-(2**53), 2**53), max_size=3)),
}
NAMES = st.sampled_from(sorted(RESERVED)) | st.from_regex(r"[A-Za-zÀ-ÿ][A-Za-z0-9_]{0,12}", fullmatch=True).filter(
    lambda name: name.isidentifier() and name != "url"
)


@st.composite
def declarations(draw: st.DrawFn) -> tuple[dict[str, str], list[dict[str, Any]]]:
    kinds = draw(st.dictionaries(NAMES, st.sampled_from(sorted(KINDS)), min_size=1, max_size=6))
    value = {name: st.none() | KINDS[kind][1] for name, kind in kinds.items()}
    return kinds, draw(st.lists(st.fixed_dictionaries(value), min_size=1, max_size=4))


def as_shown(kind: str, value: Any) -> Any:
    """What both databases make of an exported value, compared."""
    if value is None:
        return None
    match kind:
        case "decimal":
            return float(value)
        case "bool":
            return bool(value)
        case "datetime":
            found = datetime.fromisoformat(value) if isinstance(value, str) else value
            return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
        case "date":
            return str(value)
        case "list" | "object":
            return json.loads(value) if isinstance(value, str) else value
    return value


numbers = count()


@pytest.mark.parametrize("examples", [5, pytest.param(60, marks=pytest.mark.long)])
def test_every_view_shows_what_an_export_gives(open_records: OpenRecords, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(declarations())
    def holds(drawn: tuple[dict[str, str], list[dict[str, Any]]]) -> None:
        asyncio.run(_shows_what_is_exported(open_records(), *drawn))

    holds()


async def _shows_what_is_exported(
    opening: AbstractAsyncContextManager[Records], kinds: dict[str, str], values: list[dict[str, Any]]
) -> None:
    name = f"Drawn{next(numbers)}"
    kind = item_type(name, {field: KINDS[one][0] for field, one in kinds.items()})
    async with opening as store:
        await save(store, *(kind(**one) for one in values))
        view = await view_of(store, name)
        exported = {one.key: one.data async for one in store.records(RecordQuery(type=name))}
        by_path = {column.path: column.name for column in view.columns if column.path}
        for field, one in kinds.items():
            parts = [(field, "amount"), (field, "currency")] if one == "money" else [(field,)]
            for path in parts:
                shown_as = "decimal" if path[-1] == "amount" and one == "money" else "text" if one == "money" else one
                found = dict(await rows(store, f"SELECT _key, {by_path[path]} FROM {view.name}"))
                for key, data in exported.items():
                    value = data[field]
                    wanted = value[path[1]] if len(path) > 1 and value is not None else value
                    assert as_shown(shown_as, found[key]) == as_shown(shown_as, wanted), (field, one)
