"""JSON arrays and Excel workbooks of records, and lines that are written while a crawl goes on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.model.url import UrlRules
from gossamer.project.records.files import JoinedRecords
from gossamer.project.records.live_lines import LiveLines
from gossamer.store.contract import Records
from gossamer.store.export import FileDestination, TableShape, export
from tests.conformance.stores import EVERYTHING, NOW, book, result


@pytest.fixture
async def records(tmp_path: Path) -> AsyncIterator[Records]:
    async with open_sqlite_records(tmp_path / "records.db", VirtualClock(NOW + 1)) as store:
        yield store


@pytest.mark.parametrize("count", [0, 1, 3, 4000])
async def test_a_json_array_has_every_record_once(records: Records, tmp_path: Path, count: int) -> None:
    await records.save([result(*(book(f"b{n}", title=f"Emma {n} ]\n") for n in range(count)))]) if count else None

    await export(records, EVERYTHING, tmp_path / "books.json", shape=TableShape(meta=False))

    assert json.loads((tmp_path / "books.json").read_text()) == [{"title": f"Emma {n} ]\n"} for n in range(count)]


async def test_a_workbook_has_texts_and_numbers_and_never_a_formula(records: Records, tmp_path: Path) -> None:
    import openpyxl

    await records.save(
        [result(book("b1", title="=1+1", stock=3, tags=["a"]), book("b2", title="\x01Emma", stock=2**60))]
    )

    await export(records, EVERYTHING, tmp_path / "books.xlsx", shape=TableShape(meta=False))

    sheet = openpyxl.load_workbook(tmp_path / "books.xlsx")["records"]
    assert [[cell.value for cell in row] for row in sheet] == [
        ["title", "stock", "tags"],
        ["=1+1", 3, '["a"]'],
        ["Emma", str(2**60), None],
    ]
    assert {cell.data_type for row in sheet for cell in row if cell.value is not None} == {"s", "n"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def live(records: Records, path: Path) -> LiveLines:
    source = JoinedRecords(records, UrlRules())
    shape = TableShape(meta=False)
    return LiveLines(FileDestination(path), source, records.cursor, "books-1", VirtualClock(NOW), shape)


async def test_lines_come_as_records_are_stored_and_a_crawl_that_goes_on_has_each_once(
    records: Records, tmp_path: Path
) -> None:
    path = tmp_path / "books.jsonl"
    path.write_text("of yesterday\n")
    first = live(records, path)
    await first.step()
    assert path.read_text() == "of yesterday\n"  # until the first record comes
    await records.save([result(book("b1", n=1), book("b2", n=2))])
    await first.step()
    assert lines(path) == [{"n": 1}, {"n": 2}]
    await records.save([result(book("b3", n=3))])  # the process is killed before it writes this one

    second = live(records, path)
    await second.step()
    await records.save([result(book("b4", n=4))])

    assert await second.finish()
    second.close()
    assert lines(path) == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


async def test_what_was_seen_and_had_not_changed_comes_at_the_end(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "books.jsonl"
    await records.save([result(book("b1", job="books-0", n=1))])
    one = live(records, path)
    await one.step()
    await records.save([result(book("b1", at=NOW + 5, n=1)), result(book("b2", at=NOW + 5, n=2))])

    assert await one.finish()
    one.close()
    assert sorted(line["n"] for line in lines(path)) == [1, 2]


async def test_a_file_whose_record_changed_afterwards_is_replaced_as_a_whole(records: Records, tmp_path: Path) -> None:
    path = tmp_path / "books.jsonl"
    await records.save([result(book("b1", n=1))])
    one = live(records, path)
    await one.step()
    await records.save([result(book("b1", at=NOW + 5, n=2))])

    assert not await one.finish()
    one.close()
