"""`gossamer warc`, as a user sees it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts, PageResult
from gossamer.model.url import fingerprint
from gossamer.project.open import Project
from gossamer.store.contract import VisitQuery
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.crawled import BODY, SHOP, attempt, crawl_half
from tests.unit.warcs import members, record, response


def page(path: str, body: bytes, **changes: Any) -> bytes:
    """A page that was fetched before now."""
    return response(path, body, **{"date": "2026-01-15T08:00:00Z", **changes})


@pytest.fixture
def crawled(project: ProjectFolder) -> ProjectFolder:
    project.fill(crawl_half)
    return project


def test_archived_pages_go_out_and_come_in_again(crawled: ProjectFolder, tmp_path, monkeypatch) -> None:
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
    assert (said.code, said.err) == (
        0,
        "1 page imported, 1 other records\nTo make records of them: gossamer reparse --spider books\n",
    )


def test_what_is_odd_in_a_file_is_told_in_one_line_each(project: ProjectFolder) -> None:
    content = members(record("resource", "dns:shop.example", b"x"), page("/1", b"one"), page("/2", b"two" * 999))
    (project.folder / "theirs.warc.gz").write_bytes(content[:-9])
    said = project.run("warc", "import", "theirs.warc.gz", "--spider", "shop", "--job", "theirs-1")
    assert said.code == 0
    damage, summary, _ = said.err.splitlines()
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
def test_bad_input_gets_one_line(crawled: ProjectFolder, words: list[str], answer: str) -> None:
    said = crawled.run("warc", *words)
    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1


def test_pages_of_others_need_a_spider(project: ProjectFolder) -> None:
    (project.folder / "theirs.warc.gz").write_bytes(members(page("/1", b"one")))
    said = project.run("warc", "import", "theirs.warc.gz")
    assert (said.code, "--spider NAME" in said.err) == (1, True)


RECIPE = """
start = "https://shop.example/"

[pages.shelf]
follow = [{ css = "li a", to = "book" }]

[pages.book]
item = "Book"
[pages.book.fields]
title = "h1"
price = { css = ".price", type = "money" }
"""
BOOK = b"<h1>Dune</h1><p class=price>EUR 9.50</p>"


def test_pages_of_others_are_read_as_the_kind_that_they_look_like(project: ProjectFolder) -> None:
    # Given a recipe with two kinds of pages, and a file of others, which says of no page what it is
    project.write("spiders/shop.toml", RECIPE)
    shelf = page("/shelf", b"<ul><li><a href=/1>One</a></ul>")
    (project.folder / "theirs.warc.gz").write_bytes(members(shelf, page("/1", BOOK)))
    # When it is taken and parsed
    said = project.run("warc", "import", "theirs.warc.gz", "--spider", "spiders/shop.toml")
    assert said.err.endswith("To make records of them: gossamer reparse --spider spiders/shop.toml\n")
    said = project.run("reparse", "--spider", "shop", "--processes", "1")
    # Then the page of a book has given one, and the other one was no failure
    assert said.code == 0, said
    assert "2 parsed" in said.out
    assert "could not be parsed" not in said.out
    (line,) = project.run("export").lines
    assert (json.loads(line)["title"], json.loads(line)["_meta"]["url"]) == ("Dune", f"{SHOP}/1")


def test_the_kind_of_imported_pages_can_be_said(project: ProjectFolder) -> None:
    project.write("spiders/shop.toml", RECIPE)
    (project.folder / "theirs.warc.gz").write_bytes(members(page("/1", BOOK)))
    said = project.run("warc", "import", "theirs.warc.gz", "--spider", "shop", "--kind", "boook")
    assert (said.code, "it has book, parse, shelf" in said.err) == (1, True)
    said = project.run("warc", "import", "theirs.warc.gz", "--kind", "book")
    assert (said.code, "--spider NAME" in said.err) == (1, True)
    assert project.run("warc", "import", "theirs.warc.gz", "--spider", "shop", "--kind", "book").code == 0

    async def look(system: Project) -> None:
        (visit,) = [one async for one in system.records.archived(VisitQuery(spider="shop"))]
        assert (await system.archive.get(visit.archive_ref)).kind == "book"

    project.fill(look)


def test_absurd_times_can_be_shown_and_exported(project: ProjectFolder) -> None:
    # Given a visit at a time that no calendar has
    async def visit(system: Project) -> None:
        old = Snapshot(
            url=f"{SHOP}/1", requested_url=f"{SHOP}/1", status=200, headers=Headers(), body=b"x", fetched_at=3e11
        )
        (ref,) = await system.archive.put([old])
        facts = PageFacts(
            fingerprint=fingerprint(old.url), url=old.url, job="shop-1", fetched_at=3e11, status=200, archive_ref=ref
        )
        await system.records.save([PageResult(attempt=attempt("shop-1", "/1", 3e11, "done"), page=facts)])

    project.fill(visit)
    # Then it is told as the end of the calendar
    assert "9999-12-" in project.run("why", f"{SHOP}/1").out
    assert project.run("why", f"{SHOP}/1", "--json").json["visits"][0]["fetched_at"].startswith("9999-12-")
    said = project.run("warc", "export", "-o", "x.warc")
    assert (said.code, said.err) == (0, "1 page written to x.warc\n")
    assert b"\nWARC-Date: 9999-12-" in (project.folder / "x.warc").read_bytes()
