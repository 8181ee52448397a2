"""`gossamer export`, as a user sees it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.unit.commandline import project as project
from tests.unit.crawled import crawl_half


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
        (["--since", "yesterday"], "--since 'yesterday' is no time. Write how long ago (7d"),
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
