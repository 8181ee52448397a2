"""`gossamer warc`, as a user sees it."""

from __future__ import annotations

import re

import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.unit.commandline import Project
from tests.unit.commandline import project as project
from tests.unit.crawled import BODY, SHOP, crawl_half
from tests.unit.warcs import members, record, response


@pytest.fixture
def crawled(project: Project) -> Project:
    project.fill(crawl_half)
    return project


def test_archived_pages_go_out_and_come_in_again(crawled: Project, tmp_path, monkeypatch) -> None:
    said = crawled.run("warc", "export", "-o", "out/{job}.warc.gz", "--job", "books")
    assert (said.code, said.out, said.err) == (0, "", "1 page written to out/books-1.warc.gz\n")
    with (crawled.folder / "out/books-1.warc.gz").open("rb") as file:
        pages = [one.content_stream().read() for one in ArchiveIterator(file) if one.rec_type == "response"]
    assert pages == [BODY]
    # The pages are in the project already; in another one they are new.
    said = crawled.run("warc", "import", "out/books-1.warc.gz", "--spider", "books")
    assert said.err.startswith("0 pages imported, 1 known")
    monkeypatch.setenv("GOSSAMER_RECORDS", "sqlite:///other/records.db")
    monkeypatch.setenv("GOSSAMER_ARCHIVE", "folder:///other/archive")
    said = crawled.run("warc", "import", "out/books-1.warc.gz", "--spider", "books")
    assert (said.code, said.err) == (0, "1 page imported, 1 other records\n")


def test_what_is_odd_in_a_file_is_told_in_one_line_each(project: Project) -> None:
    content = members(
        record("resource", "dns:shop.example", b"x"), response("/1", b"one"), response("/2", b"two" * 999)
    )
    (project.folder / "theirs.warc.gz").write_bytes(content[:-9])
    said = project.run("warc", "import", "theirs.warc.gz", "--spider", "shop", "--job", "theirs-1")
    assert said.code == 0
    damage, summary = said.err.splitlines()
    assert re.fullmatch(
        r"Warning: damaged: theirs\.warc\.gz at byte [0-9,]+: it ends in the middle of a record", damage
    )
    assert summary == "2 pages imported, 1 of them cut short, 1 not of the web"
    assert "imported" in project.run("why", f"{SHOP}/1").out


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["export", "-o", "x.zip"], "End it in .warc.gz"),
        (["export", "--job", "boks"], "Did you mean books?"),
        (["export", "--since", "yesterday"], "is no time"),
        (["import", "missing.warc", "--spider", "x"], "cannot be read"),
        (["import", "gossamer.toml", "--spider", "x"], "is no WARC file"),
    ],
)
def test_bad_input_gets_one_line(crawled: Project, words: list[str], answer: str) -> None:
    said = crawled.run("warc", *words)
    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_pages_of_others_need_a_spider(project: Project) -> None:
    (project.folder / "theirs.warc.gz").write_bytes(members(response("/1", b"one")))
    said = project.run("warc", "import", "theirs.warc.gz")
    assert (said.code, "--spider NAME" in said.err) == (1, True)
