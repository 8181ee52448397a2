"""`gossamer warc export`, as a user sees it."""

from __future__ import annotations

import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts, PageResult
from gossamer.model.url import fingerprint
from gossamer.project.open import Project
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project
from tests.unit.crawled import BODY, SHOP, attempt, crawl_half


@pytest.fixture
def crawled(project: ProjectFolder) -> ProjectFolder:
    project.fill(crawl_half)
    return project


def test_archived_pages_go_out(crawled: ProjectFolder) -> None:
    said = crawled.run("warc", "export", "-o", "out/{job}.warc.gz", "--job", "books")
    assert (said.code, said.out, said.err) == (0, "", "1 page written to out/books-1.warc.gz\n")
    with (crawled.folder / "out/books-1.warc.gz").open("rb") as file:
        pages = [one.content_stream().read() for one in ArchiveIterator(file) if one.rec_type == "response"]
    assert pages == [BODY]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["export", "-o", "x.zip"], "End it in .warc.gz"),
        (["export", "--job", "boks"], "Did you mean books?"),
        (["export", "--since", "yesterday"], "is not a time"),
    ],
)
def test_bad_input_gets_one_line(crawled: ProjectFolder, words: list[str], answer: str) -> None:
    said = crawled.run("warc", *words)
    assert (said.code, said.out) == (1, "")
    assert answer in said.err
    assert said.err.count("\n") == 1


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
