"""Parquet: every column has a type, every value comes back, memory does not grow with the rows."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import Item, Money
from gossamer.errors import MissingExtra
from gossamer.model.item import item_data, schema_of
from gossamer.model.record import ItemSchema, StoredRecord
from gossamer.store.contract import RecordQuery
from gossamer.store.export import export, parquet

NOW = 1_800_000_000.0
STRING = pa.string()


class RowBuffer:
    """Records as a store would give them."""

    def __init__(self, items: list[dict[str, Any]], schema: ItemSchema | None = None) -> None:
        self._items = items
        self._schema = schema

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        for number, item in enumerate(self._items):
            yield StoredRecord(
                type="Book", site="shop.example", key=f"k{number}", url=f"https://shop.example/{number}", job="books-1",
                spider="books", data=item, first_seen=NOW, last_changed=NOW + 0.25, last_checked=NOW + 1, version=1,
                schema=self._schema.id if self._schema is not None else "",
            )  # fmt: skip

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        return [(self._schema, NOW)] if self._schema is not None else []


def written(items: list[dict[str, Any]], folder: Path, schema: ItemSchema | None = None) -> Path:
    path = folder / "x.parquet"
    done = asyncio.run(export(RowBuffer(items, schema), RecordQuery(), path))
    assert done.records == len(items)
    return path


def types_of(path: Path) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pq.read_schema(path)}


def own(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_")}


def test_undeclared_columns_get_the_type_of_their_values(tmp_path: Path) -> None:
    items: list[dict[str, Any]] = [
        {
            "n": 1,
            "x": 1,
            "yes": True,
            "t": "2027-01-31T12:00:00Z",
            "tags": ["a"],
            "size": {"w": 1, "h": None},
            "any": 1,
        },
        {"n": -(2**63), "x": 0.5, "yes": None, "t": "", "tags": [], "size": {"w": 2, "h": 0.5}, "any": "1"},
    ]
    path = written(items, tmp_path)
    assert types_of(path) == {
        "n": pa.int64(), "x": pa.float64(), "yes": pa.bool_(), "t": STRING, "tags": pa.list_(STRING),
        "size": pa.struct({"w": pa.int64(), "h": pa.float64()}), "any": STRING,
        **{f"_{name}": STRING for name in ("type", "site", "key", "url", "job", "spider")},
        **{f"_{name}": pa.timestamp("us", "UTC")
           for name in ("first_seen", "last_changed", "last_checked", "gone_since")},
        "_version": pa.int64(),
    }  # fmt: skip
    rows = pq.read_table(path).to_pylist()
    assert [row["any"] for row in rows] == ["1", '"1"']
    assert rows[0]["_last_changed"] == datetime.fromtimestamp(NOW + 0.25, UTC)
    assert [own(row) for row in parquet.rows_of(path)] == items


@pytest.mark.parametrize(
    "values",
    [[1, "a"], [True, 1], [2**63], [2**53 + 1, 0.5], [{"a": 1}, {"b": 1}], [{}], [[1], ["a"]], [{"a": [1, "x"]}],
     [[{}]], [{"a": 1}, [1]], [[[[[[[[[[1]]]]]]]]]]],
)  # fmt: skip
def test_values_of_no_one_type_are_json_and_come_back(values: list[Any], tmp_path: Path) -> None:
    path = written([{"v": value} for value in values], tmp_path)
    field = pq.read_schema(path).field("v")
    assert (field.type, field.metadata[b"gossamer"]) == (STRING, b"json")
    assert [row["v"] for row in parquet.rows_of(path)] == values


class Author(Item):
    name: str
    born: date | None = None


class Book(Item, key="title"):
    title: str
    price: Money | None = None
    weight: float | None = None
    pages: int | None = None
    published: datetime | None = None
    local: datetime | None = None
    rate: Decimal | None = None
    author: Author | None = None
    translations: list[datetime] = msgspec.field(default_factory=list)
    never: Decimal | None = None
    nor: list[int] = msgspec.field(default_factory=list)


def test_declared_fields_have_the_declared_type(tmp_path: Path) -> None:
    books = [
        Book(
            title="Émile",
            price=Money(Decimal("12.50"), "EUR"),
            weight=1,
            pages=300,
            published=datetime.fromisoformat("2027-01-31T12:00:00.5+02:00"),
            local=datetime(2027, 1, 31, 12),
            rate=Decimal("-0.123456"),
            author=Author(name="J.-J.", born=date(1712, 6, 28)),
            translations=[datetime(2027, 2, 1, tzinfo=UTC)],
        ),
        Book(title="Candide"),
    ]
    path = written([msgspec.json.decode(item_data(book)) for book in books], tmp_path, schema_of(books[0]))
    money = pa.struct({"amount": pa.decimal128(38, 4), "currency": STRING})
    moment = pa.timestamp("us", "UTC")
    types = types_of(path)
    assert {name: kind for name, kind in types.items() if not name.startswith("_")} == {
        "title": STRING, "price": money, "weight": pa.float64(), "pages": pa.int64(), "published": moment,
        "local": pa.timestamp("us"), "rate": pa.decimal128(38, 9),
        "author": pa.struct({"name": STRING, "born": pa.date32()}), "translations": pa.list_(moment),
        "never": pa.decimal128(38, 4), "nor": pa.list_(pa.int64()),
    }  # fmt: skip
    first, second = (own(row) for row in pq.read_table(path).to_pylist())
    assert first == {
        "title": "Émile", "price": {"amount": Decimal("12.50"), "currency": "EUR"}, "weight": 1.0, "pages": 300,
        "published": books[0].published, "local": books[0].local, "rate": Decimal("-0.123456"),
        "author": {"name": "J.-J.", "born": date(1712, 6, 28)}, "translations": books[0].translations, "never": None,
        "nor": [],
    }  # fmt: skip
    assert second == dict.fromkeys(second) | {"title": "Candide", "translations": [], "nor": []}


@pytest.mark.parametrize(
    ("declared", "texts"),
    [
        ("datetime", ["2027-01-31T12:00:00Z", "yesterday"]),
        ("datetime", ["2027-01-31T12:00:00Z", "2027-01-31T12:00:00"]),
        ("datetime", ["9999-12-31T23:59:59-12:00", "2027-02-30T12:00:00Z", "2027-01-31T12:00:00.1234567Z"]),
        ("date", ["2027-01-31", "2027-02-30"]),
        ("decimal", ["1.5", "1E+2"]),
        ("decimal", ["1" * 38 + ".5"]),
        ("decimal", ["0." + "1" * 19]),
    ],
)
def test_a_declared_column_with_a_value_that_does_not_fit_is_text(
    declared: str, texts: list[str], tmp_path: Path
) -> None:
    definition = msgspec.json.encode({"fields": {"v": {"type": declared}}}).decode()
    path = written([{"v": text} for text in texts], tmp_path, ItemSchema(id="1", type="Book", definition=definition))
    assert types_of(path)["v"] == STRING
    assert [row["v"] for row in parquet.rows_of(path)] == texts


def test_an_item_keeps_its_own_fields_whatever_they_are_called(tmp_path: Path) -> None:
    path = written([{"_type": 1, "_first_seen": "long ago", "": "", "a.b": 1}], tmp_path)
    (row,) = parquet.rows_of(path)
    assert (row["_type"], row["_first_seen"], row[""], row["a.b"], row["_key"]) == (1, "long ago", "", 1, "k0")


def test_no_record_makes_an_empty_table(tmp_path: Path) -> None:
    table = pq.read_table(written([], tmp_path))
    assert (table.num_rows, table.column_names[0]) == (0, "_type")


def test_row_groups_are_bounded_by_rows_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1000)
    assert pq.ParquetFile(written([{"n": n} for n in range(2600)], tmp_path)).num_row_groups == 3
    monkeypatch.setattr(parquet, "GROUP_BYTES", 500_000)
    file = pq.ParquetFile(written([{"t": "x" * 1000} for _ in range(2600)], tmp_path))
    assert file.num_row_groups > 3
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    assert file.metadata.num_rows == 2600


def test_without_pyarrow_the_package_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'gossamer\[parquet\]'"):
        written([{"n": 1}], tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("format", ["jsonl", "csv", "parquet"])
def test_memory_does_not_grow_with_the_rows(format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 1000)
    asyncio.run(export(RowBuffer([{"n": 1}]), RecordQuery(), tmp_path / f"x.{format}"))  # what is loaded once is loaded

    def peak(rows: int) -> int:
        items = [{"text": "x" * 300, "n": 1}] * rows
        tracemalloc.start()
        try:
            asyncio.run(export(RowBuffer(items), RecordQuery(), tmp_path / f"x.{format}"))
            return tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory()
        finally:
            tracemalloc.stop()

    few = peak(800)
    assert peak(2400) < few + 1_000_000  # the rows themselves would be three times that


names = st.sampled_from(["a", "b", "_key", "é,\"'\n", ""])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
plain = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts
)
nested = st.recursive(plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))
alike = st.sampled_from(
    [st.integers(-(2**63), 2**63 - 1), texts, st.lists(st.booleans()), st.fixed_dictionaries({"x": texts, "y": plain})]
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Some columns hold one kind of values, some hold anything."""
    kinds = {name: draw(alike) if draw(st.booleans()) else nested for name in ("a", "b", "_key")}
    made = draw(st.lists(st.fixed_dictionaries({}, optional=kinds), max_size=5))
    return [msgspec.json.decode(msgspec.json.encode(item)) for item in made]


@settings(max_examples=40, deadline=None)
@given(items=tables())
def test_every_value_comes_back_equal(items: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = list(parquet.rows_of(written(items, Path(folder))))
    for number, (item, row) in enumerate(zip(items, rows, strict=True)):
        assert {name: row.get(name) for name in item} == item
        # What an item lacks is nothing, in every column but those of the record.
        assert all(row[name] is None for name in ("a", "b") if name in row and name not in item)
        assert "_key" in item or row["_key"] == f"k{number}"
