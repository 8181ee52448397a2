"""`gossamer export`, as a user sees it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import time
from hashlib import sha256

import msgspec
import pytest

from gossamer.frontier.contract import JobTerms
from gossamer.model.record import PageResult, Record
from gossamer.project.open import Project
from gossamer.store.contract import Retirement
from gossamer.store.export.parquet import rows_of
from tests.unit.commandline import COMMAND
from tests.unit.commandline import project as project
from tests.unit.crawled import attempt, crawl_half


@pytest.fixture
def crawled(project):
    project.fill(crawl_half)
    return project


def test_export_goes_to_standard_output_as_json_lines_and_the_count_to_stderr(crawled):
    said = crawled.run("export")

    (line,) = said.lines
    assert json.loads(line)["title"] == "Dune"
    assert said.err == "1 record\n"


def test_the_extension_decides_the_format(crawled):
    said = crawled.run("export", "-o", "books.csv")

    assert said.out == ""
    assert "1 record written to books.csv" in said.err
    (row,) = csv.DictReader(io.StringIO((crawled.folder / "books.csv").read_text()))
    assert (row["title"], row["price"]) == ("Dune", "9.5")
    assert crawled.run("export", "--format", "csv").lines[0].startswith("title,price")


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--job", "books-1"], 1),
        (["--job", "books"], 1),
        (["--spider", "books"], 1),
        (["--spider", "films"], 0),
        (["--type", "Book", "--site", "shop.example"], 1),
        (["--type", "Film"], 0),
        (["--since", "1h"], 1),
        (["--until", "1h"], 0),
        (["--since", "2020-01-31", "--until", "2999-01-31T12:00:00Z"], 1),
        (["--since", "2999-01-31T12:00"], 0),
    ],
)
def test_filters_narrow_what_is_written(crawled, words, count):
    said = crawled.run("export", *words)

    assert (said.code, len(said.lines)) == (0, count)
    assert ("No record matches" in said.err) == (count == 0)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is not a time. Write how long ago (7d"),
        (["--since", "1h", "--until", "2h"], "is not before"),
        (["--job", "boks"], "Did you mean books?"),
        (["--format", "xml"], "There is no export format 'xml'"),
        (["-o", "books.xls"], "does not tell the format"),
    ],
)
def test_bad_input_gets_one_line_and_writes_nothing(crawled, words, answer):
    said = crawled.run("export", *words)

    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1
    assert not list(crawled.folder.glob("books.*"))


def test_export_where_nothing_was_crawled_says_so(project):
    said = project.run("export")

    assert said.code == 1
    assert "Nothing has been crawled" in said.err
    assert not (project.folder / "gossamer-data").exists()


def book(key: str, **fields: object) -> Record:
    data = json.dumps(fields)
    return Record(
        type="Book", site="shop.example", key=key, url=f"https://shop.example/{key}", job="books-1", spider="books",
        data=data, content_hash=sha256(data.encode()).digest()[:16], scraped_at=time.time(),
    )  # fmt: skip


def store(crawled, *records: Record) -> None:
    async def save(system: Project) -> None:
        for one in records:
            tried = attempt("books-1", f"/{one.key}", one.scraped_at, "done")
            await system.records.save([PageResult(attempt=tried, records=(one,))])

    crawled.fill(save)


def retire(crawled) -> None:
    async def look(system: Project) -> None:
        now = system.clock.now()
        await system.records.save([PageResult(attempt=attempt("books-2", "/done", now, "dead", status=404))])
        assert await system.records.retire(Retirement(job="books-2", spider="books", at=now)) == 1

    crawled.fill(look)


def test_an_export_with_a_cursor_tells_everything_once_and_then_what_changed(crawled):
    # Given a first export, which tells everything
    first = crawled.run("export", "-o", "all.jsonl", "--since-cursor", "state/cursor.json")
    assert "1 record written to all.jsonl" in first.err
    # When nothing has changed, nothing is written, and that is no fault
    second = crawled.run("export", "-o", "none.jsonl", "--since-cursor", "state/cursor.json")
    assert (second.code, second.err) == (0, "Nothing has changed: no file was written.\n")
    assert not (crawled.folder / "none.jsonl").exists()
    # When one record is new and another one is gone, these two are told
    store(crawled, book("2", title="Emma"))
    retire(crawled)
    third = crawled.run("export", "-o", "{date}-changes.jsonl", "--since-cursor", "state/cursor.json")
    assert "2 records written to" in third.err
    (file,) = crawled.folder.glob("*-changes.jsonl")
    told = {line["title"]: line["_meta"] for line in map(json.loads, file.read_text().splitlines())}
    assert list(told) == ["Dune", "Emma"]
    assert "gone_since" in told["Dune"]
    assert "gone_since" not in told["Emma"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-changes\.jsonl", file.name)
    assert crawled.run("export", "--since-cursor", "state/cursor.json").out == ""


def test_records_that_are_gone_are_left_out_unless_they_are_wanted(crawled):
    store(crawled, book("2", title="Emma"))
    retire(crawled)
    assert [json.loads(line)["title"] for line in crawled.run("export").lines] == ["Emma"]
    assert [json.loads(line)["title"] for line in crawled.run("export", "--gone").lines] == ["Dune", "Emma"]


def test_a_cursor_stays_where_it_was_when_the_export_fails(crawled):
    crawled.run("export", "-o", "all.jsonl", "--since-cursor", "cursor.json")
    before = (crawled.folder / "cursor.json").read_bytes()
    store(crawled, book("2", title="Emma"))
    (crawled.folder / "file").write_text("")
    said = crawled.run("export", "-o", "file/x.jsonl", "--since-cursor", "cursor.json")
    assert (said.code, "cannot be written" in said.err) == (1, True)
    assert (crawled.folder / "cursor.json").read_bytes() == before
    assert len(crawled.run("export", "--since-cursor", "cursor.json").lines) == 1


@pytest.mark.parametrize("link", [None, os.symlink, os.link])
def test_the_export_and_its_cursor_are_two_files(crawled, link):
    (crawled.folder / "a.jsonl").write_text("mine")
    if link is not None:
        link("a.jsonl", "b.jsonl")
    said = crawled.run("export", "-o", "b.jsonl" if link else "a.jsonl", "--since-cursor", "./a.jsonl")
    assert (said.code, "another file for the cursor" in said.err) == (1, True)
    assert (crawled.folder / "a.jsonl").read_text() == "mine"


def test_a_cursor_goes_on_with_the_newest_job_of_a_spider(crawled):
    # Given an export of what the newest job of a spider has seen
    words = ("export", "--job", "books", "--since-cursor", "cursor.json")
    assert len(crawled.run(*words).lines) == 1

    # When there is a newer job of it
    async def again(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("books", JobTerms(), fresh=True)
        assert job.id == "books-2"

    crawled.fill(again)
    store(crawled, msgspec.structs.replace(book("2", title="Emma"), job="books-2"))
    # Then the next one tells what that one has found, and the same job under its own name is another choice
    assert [json.loads(line)["title"] for line in crawled.run(*words).lines] == ["Emma"]
    said = crawled.run("export", "--job", "books-2", "--since-cursor", "cursor.json")
    assert (said.code, "was made with --job books." in said.err) == (1, True)


@pytest.mark.parametrize("first", [True, False], ids=["the first export", "a later one"])
def test_an_export_that_is_killed_half_way_loses_nothing(crawled, first):
    # Given more to tell than a pipe holds
    if not first:
        crawled.run("export", "-o", "before.jsonl", "--since-cursor", "cursor.json")
    store(crawled, *(book(str(number), title="x" * 300_000) for number in range(2, 5)))
    before = {path.name: path.read_bytes() for path in crawled.folder.iterdir() if path.is_file()}
    # When the export is killed while its reader has had a part of it
    with subprocess.Popen(
        [COMMAND, "export", "--since-cursor", "cursor.json"], cwd=crawled.folder, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(1000).startswith(b"{")
        process.kill()
        assert process.wait() == -signal.SIGKILL
    # Then the cursor is where it was, and the next one tells all of it
    assert {path.name: path.read_bytes() for path in crawled.folder.iterdir() if path.is_file()} == before
    said = crawled.run("export", "--since-cursor", "cursor.json")
    told = {json.loads(line)["_meta"]["key"] for line in said.lines}
    assert told == ({"1", "2", "3", "4"} if first else {"2", "3", "4"})
    assert crawled.run("export", "--since-cursor", "cursor.json").out == ""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--since-cursor", "c.json", "--type", "Film"], "was made with --type Book"),
        (["--since-cursor", "c.json"], "was made with --type Book"),
        (["--since-cursor", "c.json", "--type", "Book", "--since", "1h"], "leave out --since"),
        (["--since-cursor", "gossamer.toml"], "not the cursor"),
        (["--since-cursor", "."], "cannot be read"),
        (["-o", "{tiem}.jsonl"], "{tiem} in '{tiem}.jsonl' is unknown"),
        (["-o", "{job}.jsonl"], "no job is named"),
        (["-o", "ftp://host/x.jsonl"], "only s3:// can be written to"),
        (["-o", "s3://b/x.jsonl"], "is not a bucket name"),
        (["-o", "x.parquet.gz"], "Parquet is compressed inside"),
    ],
)
def test_what_cannot_be_exported_is_told_and_changes_nothing(crawled, words, answer):
    crawled.run("export", "-o", "all.jsonl", "--since-cursor", "c.json", "--type", "Book")
    files = {path: path.read_bytes() for path in crawled.folder.iterdir() if path.is_file()}
    said = crawled.run("export", *words)
    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1
    assert {path: path.read_bytes() for path in crawled.folder.iterdir() if path.is_file()} == files


def test_the_job_can_name_the_file(crawled):
    assert crawled.run("export", "--job", "books", "-o", "{job}.csv").code == 0
    assert (crawled.folder / "books-1.csv").exists()


def test_a_table_of_typed_columns_can_be_made(crawled):
    assert "1 record written to x.parquet" in crawled.run("export", "-o", "x.parquet").err
    (row,) = rows_of(crawled.folder / "x.parquet")
    assert (row["title"], row["price"]) == ("Dune", 9.5)
