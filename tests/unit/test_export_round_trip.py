"""Nasty texts through an item, a record, the store and an export, and back: byte for byte the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.model.item import content_hash, item_data, item_key, type_name
from gossamer.model.record import Record
from gossamer.store.contract import RecordQuery
from gossamer.store.export import export, read_cell
from gossamer.store.export.parquet import rows_of
from tests.corpora import corpus

from ..conformance.stores import NOW, result

NAUGHTY = [
    "", " ", "\t", "\r", "\n", "\r\n", "\x01\x1b[31m", "'", "''", "'=1", "''=1", "=1+1", "-1", "-1+1", "+", "@a", "＝1",
    '"', '""', ',";\n', "\\", "\\N", "\\u0000", "null", "None", "true", "1", "1.0", "1e5", "0x10", "NaN", "-0",
    "2027-01-31", "2027-01-31T12:00:00Z", "{}", "[]", '{"a":1}', "_meta", "é", "e\u0301", "日本", "👩‍👩‍👧", "\ufeff",
    "\u2028", "\u202e", "\uffff", "\U0010ffff", "\x7f", "\x85", "\xa0", "x" * 100_000, "<script>",
    "'; DROP TABLE records; --",
]  # fmt: skip


async def there_and_back(texts: list[str], folder: Path) -> dict[str, list[str]]:
    """The texts as each format gives them back."""
    async with open_sqlite_records(folder / "records.db", VirtualClock(NOW)) as store:
        records = []
        for number, text in enumerate(texts):
            item = {"number": number, "text": text, "list": [text], "object": {"text": text}}
            data = item_data(item)
            records.append(
                Record(
                    type=type_name(item), site="shop.example", key=item_key(item), url="https://shop.example/",
                    job="job-1", spider="shop", data=data, content_hash=content_hash(data), scraped_at=NOW,
                )
            )  # fmt: skip
        await store.save([result(*records)])
        for name in ("x.jsonl", "x.csv", "x.parquet"):
            assert (await export(store, RecordQuery(), folder / name)).records == len(texts)
    lines = [json.loads(line) for line in (folder / "x.jsonl").read_bytes().split(b"\n")[:-1]]
    csv.field_size_limit(10_000_000)
    with (folder / "x.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, strict=True))
    rows = list(rows_of(folder / "x.parquet"))
    return {
        "jsonl": [line["text"] for line in lines],
        "jsonl, in a list": [line["list"][0] for line in lines],
        "csv": [read_cell(row["text"]) for row in table],
        "csv, in a list": [json.loads(read_cell(row["list"]))[0] for row in table],
        "parquet": [row["text"] for row in rows],
        "parquet, in an object": [row["object"]["text"] for row in rows],
    }


def differing(texts: list[str], read: dict[str, list[str]]) -> list[tuple[str, str]]:
    assert all(len(column) == len(texts) for column in read.values())
    return [
        (where, text)
        for where, column in read.items()
        for text, back in zip(texts, column, strict=True)
        if text.encode() != back.encode()
    ]


async def test_naughty_texts_come_back_as_they_were(tmp_path: Path) -> None:
    assert differing(NAUGHTY, await there_and_back(NAUGHTY, tmp_path)) == []


async def test_the_big_list_of_naughty_strings_comes_back_as_it_was(tmp_path: Path) -> None:
    file = corpus("blns", "blns.json")
    strings: list[str] = json.loads(file.read_text(encoding="utf-8"))
    assert len(strings) > 400
    assert differing(strings, await there_and_back(strings, tmp_path)) == []
