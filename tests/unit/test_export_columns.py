"""The columns of tables: objects as columns of their own, a choice of columns, items without what else is known."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from gossamer.errors import Misconfigured
from gossamer.store.export import TableShape, export
from tests.unit.test_export import ALL, fill
from tests.unit.test_export import folder as folder
from tests.unit.test_export import store as store

BOOKS = (
    {"title": "A", "price": None, "tags": ["x"]},
    {"title": "B", "price": {"amount": "5.00", "currency": "EUR"}, "tags": []},
    {"title": "C", "price": {"amount": "7.50", "currency": "EUR"}, "maker": {"name": "M", "at": {"city": "Ghent"}}},
)


def rows_of(file: Path) -> list[list[str]]:
    with file.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream))


async def test_money_and_objects_are_columns_of_their_own(store, folder):
    await fill(store, *BOOKS)
    await export(store, ALL, folder / "x.csv", shape=TableShape(meta=False))
    assert rows_of(folder / "x.csv") == [
        ["title", "price_amount", "price_currency", "tags", "maker_name", "maker_at_city"],
        ["A", "", "", '["x"]', "", ""],
        ["B", "5.00", "EUR", "[]", "", ""],
        ["C", "7.50", "EUR", "", "M", "Ghent"],
    ]


async def test_a_field_of_that_name_is_not_lost_and_what_is_not_always_an_object_keeps_its_column(store, folder):
    await fill(store, {"price": {"amount": "5"}, "price_amount": 6}, {"price": "on request"})
    await export(store, ALL, folder / "x.csv", shape=TableShape(meta=False))
    assert rows_of(folder / "x.csv") == [["price", "price_amount"], ['{"amount":"5"}', "6"], ["on request", ""]]


@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
async def test_columns_can_be_chosen_and_a_mistyped_one_is_told(store, folder, name):
    await fill(store, *BOOKS)
    column = "price_amount" if name == "x.csv" else "price"
    chosen = TableShape(columns=("_key", column, "title"), meta=False)
    await export(store, ALL, folder / name, shape=chosen)
    if name == "x.csv":
        assert rows_of(folder / name)[:3] == [["_key", "price_amount", "title"], ["k0", "", "A"], ["k1", "5.00", "B"]]
    else:
        from gossamer.store.export.parquet import rows_of as parquet_rows

        assert [list(row) for row in parquet_rows(folder / name)] == [["_key", "price", "title"]] * 3

    before = (folder / name).read_bytes()
    with pytest.raises(Misconfigured, match=r"No record has a column 'titel'. Did you mean title\?"):
        await export(store, ALL, folder / name, shape=TableShape(columns=("titel",)))
    assert (folder / name).read_bytes() == before


async def test_json_lines_without_meta_and_columns_are_for_tables(store, folder):
    await fill(store, BOOKS[0])
    await export(store, ALL, folder / "x.jsonl", shape=TableShape(meta=False))
    assert json.loads((folder / "x.jsonl").read_text()) == BOOKS[0]
    with pytest.raises(Misconfigured, match="for tables"):
        await export(store, ALL, folder / "x.jsonl", shape=TableShape(columns=("title",)))
