"""Exports: complete files or none, every record as it is stored, nothing that a spreadsheet would run."""

from __future__ import annotations

import asyncio
import csv
import gzip
import io
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.errors import BackendUnavailable, GossamerError, Misconfigured
from gossamer.model.record import ItemSchema, StoredRecord
from gossamer.store.contract import RecordQuery, Retirement
from gossamer.store.export import ExportFormat, export, format_of, named, probe_destination, read_cell
from gossamer.store.export.text_formats import Columns, cell_of
from tests.patience import PATIENCE

from ..conformance.stores import NOW, book, page_of, result, tried
from .test_folder_archive import disk_ends_after

CLOCK = VirtualClock(NOW + 10_000)
ALL = RecordQuery()
META_COLUMNS = [
    "_type", "_site", "_key", "_url", "_job", "_spider", "_first_seen", "_last_changed", "_last_checked", "_version",
    "_gone_since",
]  # fmt: skip


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    async with open_sqlite_records(tmp_path / "db" / "records.db", CLOCK) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    out = tmp_path / "out"
    out.mkdir()
    return out


async def fill(store: SqliteRecords, *items: dict[str, Any]) -> None:
    await store.save([result(book(f"k{n}", **item)) for n, item in enumerate(items)])


def unzstd(content: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(content)


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().decode().split("\n")[:-1]]


def table_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


async def test_json_lines_hold_the_item_first_and_the_rest_under_meta(store: SqliteRecords, folder: Path) -> None:
    await fill(store, {"title": "Émile", "price": 12.5})
    await store.save([result(book("k0", title="Émile", price=13, at=NOW + 60.25, job="books-2"))])
    assert (await export(store, ALL, folder / "books.jsonl")).records == 1
    [line] = lines_of(folder / "books.jsonl")
    assert list(line) == ["title", "price", "_meta"]
    assert line == {
        "title": "Émile",
        "price": 13,
        "_meta": {
            "type": "Book", "site": "shop.example", "key": "k0", "url": "https://shop.example/k0", "job": "books-2",
            "spider": "books", "first_seen": "2027-01-15T08:00:00.000Z", "last_changed": "2027-01-15T08:01:00.250Z",
            "last_checked": "2027-01-15T08:01:00.250Z", "version": 2,
        },
    }  # fmt: skip


async def test_csv_has_a_column_for_every_field_of_any_record(store: SqliteRecords, folder: Path) -> None:
    await fill(
        store,
        {"title": "A", "price": 1.5},
        {"title": "B", "tags": ["x", {"y": 1}], "in_stock": True},
        {"title": None, "price": -5, "note": 'says "hi",\r\nthen goes'},
    )
    assert (await export(store, ALL, folder / "books.csv")).records == 3
    rows = table_of(folder / "books.csv")
    assert list(rows[0]) == ["title", "price", "tags", "in_stock", "note", *META_COLUMNS]
    assert [list(row.values())[:5] for row in rows] == [
        ["A", "1.5", "", "", ""],
        ["B", "", '["x",{"y":1}]', "true", ""],
        ["", "-5", "", "", 'says "hi",\r\nthen goes'],
    ]
    assert rows[0]["_key"] == "k0"
    assert rows[0]["_first_seen"] == "2027-01-15T08:00:00.000Z"
    raw = (folder / "books.csv").read_bytes()
    assert raw.startswith(b"title,price,tags,")
    assert b'"says ""hi"",\r\nthen goes"' in raw
    assert raw.endswith(b"\r\n")


async def test_a_spreadsheet_finds_no_formula(store: SqliteRecords, folder: Path) -> None:
    hostile = [
        "=1+1",
        "+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "＝1+1",
        "＋1",
        "－1+2",
        "＠A1",
        "+1-800",
        "\ufeff=1+1",
        ";=1+1",
        ",=1",
        "|=1",
        " =1",
        "\xa0=1",
        "\u3000＝1",
        "\u200b\u200d\u2060=1",
        "\x00=1",
        "\x1b=1",
        "\u202e=1",
        "﹦1",
        "\ufeff;\u200b=1",
    ]
    guarded_before = ["'=1", "''-2+3", "'-5", "';=1", "'\ufeff=1"]
    harmless = ["-5", "+3.25", "-1e5", "-1,5", "a=b", "'quoted", "''", "", "\ufeffa"]
    await fill(store, {"=name": "x"}, *({"cell": text} for text in hostile + guarded_before + harmless), {"cell": -7.5})
    await export(store, ALL, folder / "x.csv")
    rows = table_of(folder / "x.csv")
    cells = [row["cell"] for row in rows[1:]]
    assert cells == [f"'{text}" for text in hostile + guarded_before] + harmless + ["-7.5"]
    assert [read_cell(cell) for cell in cells[:-1]] == hostile + guarded_before + harmless
    assert rows[0]["'=name"] == "x"


@pytest.mark.parametrize("separator", [";", "\t", "|"])
async def test_a_cell_stays_one_cell_for_a_spreadsheet_that_separates_otherwise(
    store: SqliteRecords, folder: Path, separator: str
) -> None:
    text = f"Lamp{separator}=1+1"
    await fill(store, {"title": text, f"a{separator}b": "x"})
    await export(store, ALL, folder / "x.csv")
    head, row, *_ = (folder / "x.csv").read_text(encoding="utf-8").split("\n")
    assert row.startswith(f'"{text}",x,')
    assert f'"a{separator}b"' in head
    assert next(csv.reader([row], delimiter=separator))[0].startswith(text)
    assert table_of(folder / "x.csv")[0]["title"] == text


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.sampled_from("'=+-@\t\r\n＝＋－＠ 1.5e,a\";\ufeff\u200b\xa0"), max_size=6))
def test_every_text_can_be_read_back_from_its_cell(text: str) -> None:
    cell = cell_of(text)
    assert read_cell(cell) == text
    assert cell == "" or cell[0] not in "=+-@\t\r\n＝＋－＠" or re.fullmatch(r"[+-][0-9.,e+-]+", cell)


async def test_an_item_keeps_its_own_fields_whatever_they_are_called(store: SqliteRecords, folder: Path) -> None:
    await fill(store, {"_meta": "mine", "_type": "mine too"})
    await export(store, ALL, folder / "x.jsonl")
    await export(store, ALL, folder / "x.csv")
    assert lines_of(folder / "x.jsonl") == [{"_meta": "mine", "_type": "mine too"}]
    [row] = table_of(folder / "x.csv")
    assert (row["_meta"], row["_type"], row["_key"]) == ("mine", "mine too", "k0")


async def test_a_job_exports_what_it_saw_changed_or_not(store: SqliteRecords, folder: Path) -> None:
    await fill(store, {"n": 0}, {"n": 1}, {"n": 2})
    again = [book("k0", n=0, at=NOW + 1, job="books-2"), book("k2", n=9, at=NOW + 1, job="books-2")]
    await store.save([result(*again)])
    assert (await export(store, RecordQuery(job="books-2"), folder / "x.jsonl")).records == 2
    assert [line["n"] for line in lines_of(folder / "x.jsonl")] == [0, 9]


async def test_nothing_to_export_makes_an_empty_file(store: SqliteRecords, folder: Path) -> None:
    assert (await export(store, ALL, folder / "x.jsonl")).records == 0
    assert (await export(store, ALL, folder / "x.csv")).records == 0
    assert (folder / "x.jsonl").read_bytes() == b""
    assert (folder / "x.csv").read_bytes() == (",".join(META_COLUMNS) + "\r\n").encode()


@pytest.mark.parametrize("format", ["jsonl", "csv"])
async def test_many_records_keep_their_order(store: SqliteRecords, folder: Path, format: str) -> None:
    await fill(store, *({"n": n} for n in range(1000)))
    assert (await export(store, ALL, folder / "x", format)).records == 1000
    read = lines_of(folder / "x") if format == "jsonl" else table_of(folder / "x")
    assert [int(row["n"]) for row in read] == list(range(1000))


@pytest.mark.parametrize(("name", "unpack"), [("x.jsonl.gz", gzip.decompress), ("x.jsonl.zst", unzstd)])
async def test_the_extension_compresses(
    store: SqliteRecords, folder: Path, name: str, unpack: Callable[[bytes], bytes]
) -> None:
    await fill(store, *({"n": n} for n in range(1000)))
    assert (await export(store, ALL, folder / name)).records == 1000
    lines = unpack((folder / name).read_bytes()).decode().splitlines()
    assert [json.loads(line)["n"] for line in lines] == list(range(1000))
    first = (folder / name).read_bytes()
    await export(store, ALL, folder / name)
    assert (folder / name).read_bytes() == first


def test_items_of_many_names_make_no_endless_table() -> None:
    columns = Columns(limit=2)
    stored = StoredRecord(
        type="Book", site="shop.example", key="k", url="u", job="j", spider="s",
        data={"a": 1, "b": 2, "c": 3, "_more": 4}, first_seen=NOW, last_changed=NOW, last_checked=NOW, version=1,
    )  # fmt: skip
    row = columns.row(stored)
    assert (row["a"], row["b"], row["_more"]) == (1, 2, {"c": 3, "_more": 4})
    assert columns.names() == ["a", "b", "_more", *META_COLUMNS]


async def test_a_record_that_is_gone_says_since_when(store: SqliteRecords, folder: Path) -> None:
    # Given a record that a second crawl looked for and did not find
    await store.save([result(book("k0", n=0), page=page_of("https://shop.example/k0"))])
    await store.save(
        [result(attempt=tried("https://shop.example/k0", at=NOW + 60, job="books-2", status=404, outcome="dead"))]
    )
    assert await store.retire(Retirement(job="books-2", spider="books", at=NOW + 60)) == 1
    for name in ("x.jsonl", "x.csv"):
        # When all records are exported, and when those that are still there are
        assert (await export(store, ALL, folder / name)).records == 1
        assert (await export(store, RecordQuery(gone=False), folder / f"now.{name}")).records == 0
    # Then the time is in the first
    assert lines_of(folder / "x.jsonl")[0]["_meta"]["gone_since"] == "2027-01-15T08:01:00.000Z"
    assert table_of(folder / "x.csv")[0]["_gone_since"] == "2027-01-15T08:01:00.000Z"


@pytest.mark.parametrize(
    ("name", "format", "expected"),
    [
        ("a.jsonl", None, ExportFormat("jsonl")),
        ("A.CSV", None, ExportFormat("csv")),
        ("a.ndjson", None, ExportFormat("jsonl")),
        ("a.txt", "CSV", ExportFormat("csv")),
        ("-", None, ExportFormat("jsonl")),
        ("a.csv", "jsonl", ExportFormat("jsonl")),
        ("a.csv.gz", None, ExportFormat("csv", "gzip")),
        ("a.jl.ZST", None, ExportFormat("jsonl", "zstd")),
        ("a.gz", "jsonl", ExportFormat("jsonl", "gzip")),
        ("a.parquet", None, ExportFormat("parquet")),
    ],
)  # fmt: skip
def test_the_form_is_named_or_read_off_the_file_name(name: str, format: str | None, expected: ExportFormat) -> None:
    assert format_of(name, format) == expected


def test_a_name_may_hold_the_time_and_the_job() -> None:
    assert named("a-{date}/{job}-{time}.csv", now=NOW, job="books/1") == "a-2027-01-15/books-1-20270115T080000Z.csv"
    assert named("plain.csv", now=NOW) == "plain.csv"


@pytest.mark.parametrize("name", ["{tiem}.csv", "{}.csv", "{job}.csv"])
def test_a_placeholder_that_stands_for_nothing_is_named(name: str) -> None:
    with pytest.raises(Misconfigured, match=r"\{job\}"):
        named(name, now=NOW)


@pytest.mark.parametrize(("name", "format"), [("a.doc", None), ("noextension", None), ("a.csv", "xml")])
async def test_an_unknown_format_lists_the_known_ones(
    store: SqliteRecords, folder: Path, name: str, format: str | None
) -> None:
    with pytest.raises(Misconfigured, match=r"jsonl.*csv.*parquet"):
        await export(store, ALL, folder / name, format)
    assert list(folder.iterdir()) == []


class Interrupted(Exception):
    pass


class FailingMidway:
    """A real store that breaks while it is being read."""

    def __init__(self, store: SqliteRecords) -> None:
        self._store = store

    async def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        async for record in self._store.records(query):
            yield record
        raise Interrupted

    async def schemas(self, type: str | None = None) -> list[tuple[ItemSchema, float]]:
        return []


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv", "x.csv.gz", "x.parquet"])
async def test_an_export_that_fails_leaves_the_old_file_and_no_other(
    store: SqliteRecords, folder: Path, name: str
) -> None:
    await fill(store, {"n": 1})
    (folder / name).write_text("the old one")
    with pytest.raises(Interrupted):
        await export(FailingMidway(store), ALL, folder / name)
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [(name, "the old one")]


@pytest.mark.parametrize("name", ["x.jsonl", "new/folder/x.csv.gz", "x.parquet"])
def test_a_place_that_can_be_written_is_tried_and_left_as_it_was(folder: Path, name: str) -> None:
    probe_destination(folder / name)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["x.xls", "file/x.csv", "x.parquet.gz"])
def test_a_place_that_cannot_be_written_is_told_before_the_crawl(folder: Path, name: str) -> None:
    (folder / "file").write_text("")
    with pytest.raises(Misconfigured):
        probe_destination(folder / name)


async def test_a_full_disk_leaves_the_old_file(store: SqliteRecords, folder: Path) -> None:
    await fill(store, *({"text": "x" * 1000} for _ in range(100)))
    (folder / "x.jsonl").write_text("the old one")
    with disk_ends_after(50_000), pytest.raises(BackendUnavailable, match="records are safe"):
        await export(store, ALL, folder / "x.jsonl")
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("x.jsonl", "the old one")]


async def test_a_link_stays_a_link_and_permissions_stay(store: SqliteRecords, folder: Path) -> None:
    (folder / "real.jsonl").write_text("old")
    (folder / "real.jsonl").chmod(0o600)
    (folder / "link.jsonl").symlink_to("real.jsonl")
    await fill(store, {"n": 1})
    await export(store, ALL, folder / "link.jsonl")
    assert (folder / "link.jsonl").is_symlink()
    assert lines_of(folder / "real.jsonl")[0]["n"] == 1
    assert stat.S_IMODE((folder / "real.jsonl").stat().st_mode) == 0o600


async def test_a_device_is_written_to_and_not_replaced(store: SqliteRecords, folder: Path) -> None:
    await fill(store, {"n": 1})
    assert (await export(store, ALL, Path("/dev/null"), "jsonl")).records == 1
    assert Path("/dev/null").is_char_device()
    with pytest.raises(BackendUnavailable):
        await export(store, ALL, Path("/dev/full"), "jsonl")


async def test_missing_folders_are_made(store: SqliteRecords, folder: Path) -> None:
    await fill(store, {"n": 1})
    await export(store, ALL, folder / "a" / "b" / "x.jsonl")
    assert len(lines_of(folder / "a/b/x.jsonl")) == 1


@pytest.mark.parametrize("name", ["", "file/x.jsonl", "nul\0.jsonl", "half\ud800.jsonl", "x" * 300 + ".jsonl"])
async def test_an_impossible_place_is_misconfigured(store: SqliteRecords, folder: Path, name: str) -> None:
    (folder / "file").write_text("")
    with pytest.raises(Misconfigured) as caught:
        await export(store, ALL, folder / name, "jsonl")
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, GossamerError)
    assert [path.name for path in folder.iterdir()] == ["file"]


EXPORT_SCRIPT = """
import asyncio, sys
from pathlib import Path
from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import SystemClock
from gossamer.store.contract import RecordQuery
from gossamer.store.export import export

async def main():
    async with open_sqlite_records(Path(sys.argv[1]), SystemClock()) as store:
        print((await export(store, RecordQuery(), Path("-"), sys.argv[2])).records, file=sys.stderr)

asyncio.run(main())
"""


async def exporting(store: SqliteRecords, format: str, **environment: str) -> subprocess.Popen[bytes]:
    path = store._database.path
    return subprocess.Popen(
        [sys.executable, "-c", EXPORT_SCRIPT, str(path), format],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("format", ["jsonl", "csv"])
async def test_standard_output_is_utf_8_in_any_locale(store: SqliteRecords, format: str) -> None:
    await fill(store, {"title": "日本\r\n"})
    process = await exporting(store, format, PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    out, err = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert (process.returncode, err) == (0, b"1\n")
    if format == "jsonl":
        assert json.loads(out)["title"] == "日本\r\n"
    else:
        assert next(csv.DictReader(io.StringIO(out.decode(), newline="")))["title"] == "日本\r\n"


@pytest.mark.parametrize("format", ["jsonl", "csv"])
async def test_a_reader_that_goes_away_ends_the_export_quietly(store: SqliteRecords, format: str) -> None:
    await fill(store, *({"text": "x" * 2000} for _ in range(500)))
    process = await exporting(store, format)
    assert process.stdout is not None
    assert process.stderr is not None
    await asyncio.to_thread(process.stdout.readline)
    process.stdout.close()
    err = await asyncio.to_thread(process.stderr.read)
    process.stderr.close()
    assert await asyncio.to_thread(process.wait, 30) == 0
    assert err.strip().isdigit(), err
    assert int(err) < 500


async def exported(items: list[dict[str, Any]], folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    async with open_sqlite_records(folder / "records.db", CLOCK) as store:
        await fill(store, *items)
        await export(store, ALL, folder / "x.jsonl")
        await export(store, ALL, folder / "x.csv")
    return lines_of(folder / "x.jsonl"), table_of(folder / "x.csv")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
plain = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts
items = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "", "é,\"'\n"]), plain | st.lists(plain, max_size=2), max_size=3),
    max_size=6,
)


@settings(max_examples=15, deadline=None)
@given(made=items)
def test_what_comes_out_is_what_went_in(made: list[dict[str, Any]]) -> None:
    made = [{**item, "n": n} for n, item in enumerate(made)]
    expected = [msgspec.json.decode(msgspec.json.encode(item)) for item in made]
    with tempfile.TemporaryDirectory() as folder:
        lines, rows = asyncio.run(exported(made, Path(folder)))
    for line in lines:
        line.pop("_meta")
    assert lines == expected
    assert len(rows) == len(made)
    for item, row in zip(expected, rows, strict=True):
        for name, value in item.items():
            cell = row[name]
            if isinstance(value, str):
                assert read_cell(cell) == value
            elif value is None:
                assert cell == ""
            elif isinstance(value, int | float) and not isinstance(value, bool):
                assert float(cell) == float(value)
            else:
                assert json.loads(cell) == value


def test_no_character_that_is_not_shown_hides_a_formula() -> None:
    """Whatever Unicode calls a blank, a control or a format character, alone and twice."""
    hidden = [
        char
        for number in range(sys.maxunicode + 1)
        if unicodedata.category(char := chr(number)) in ("Zs", "Zl", "Zp", "Cc", "Cf") and char not in NOT_HIDDEN
    ]
    assert [f"U+{ord(char):04X}" for char in hidden if not cell_of(f"{char}{char}=1").startswith("'")] == []


# Format characters that are drawn: signs of number and end in Arabic, Syriac, Kaithi; musical and Egyptian notation.
NOT_HIDDEN = frozenset(
    map(chr, (*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD))
) | frozenset(map(chr, (*range(0x13430, 0x13440), *range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B))))
