"""WARC files: what is written can be read by others, what was written here comes back exactly as it was."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from gossamer.errors import Misconfigured
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageResult
from gossamer.model.url import site_of
from gossamer.store.contract import VisitQuery
from gossamer.store.export import FilePlace
from gossamer.store.warc.writing import Kept, export_warc

from .warcs import LIMIT, NOW, SHOP, Project, facts_of, page, project_in

PAGES = [
    page("/plain", b"<h1>One</h1>"),
    page("/empty", b"", status=204, headers=Headers()),
    page(
        "/packed",
        b"<p>It was packed</p>",
        headers=Headers(
            [("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"), ("Set-Cookie", "a=1"),
             ("Set-Cookie", "b=2"), ("content-length", "7"), ("X-Odd", "caf\udce9 \u00e9"),
             ("X-Lines", "a\r\nX-Injected: b"), ("bad name", "x")]
        ),
    ),
    page("/strange?q=%C3%A9&x=y", bytes(range(256)) * 20, status=599, cut=True, fetched_at=NOW + 0.123456),
    page("/moved", b"WARC/1.0\r\nContent-Length: 5\r\n\r\nhello", requested_url=f"{SHOP}/asked"),
    page(
        "/rendered", b"<p>Drawn</p>", kind="book", depth=3, data='{"shelf":"é"}',
        screenshot=b"\x89PNG\r\n\x1a\n" + b"\0" * 99,
    ),
]  # fmt: skip


async def visited(project: Project, snapshots: list[Snapshot], **changes: Any) -> None:
    """As a crawl would leave them."""
    refs = await project.archive.put(snapshots)
    results = []
    for snapshot, ref in zip(snapshots, refs, strict=True):
        facts = facts_of(snapshot, ref, **changes)
        attempt = Attempt(
            at=snapshot.fetched_at, job=facts.job, url=facts.url, fingerprint=facts.fingerprint,
            site=site_of(facts.url), worker="host/1/1", attempt=1, outcome="done", status=snapshot.status,
        )  # fmt: skip
        results.append(PageResult(attempt=attempt, page=facts))
    await project.records.save(results)


async def exported(project: Project, path: Path, **which: Any) -> Kept:
    visits = project.records.archived(VisitQuery(**which))
    return await export_warc(visits, project.archive, FilePlace(path), program="Gossamer test")


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    async with project_in(tmp_path / "here") as opened:
        yield opened


@pytest.mark.parametrize("name", ["x.warc.gz", "x.warc"])
async def test_another_reader_finds_every_page(project: Project, tmp_path: Path, name: str) -> None:
    await visited(project, PAGES)
    assert await exported(project, tmp_path / name) == Kept(pages=len(PAGES))
    kinds, bodies, statuses, headers = [], {}, {}, {}
    with (tmp_path / name).open("rb") as file:
        for record in ArchiveIterator(file, check_digests="raise"):
            kinds.append(record.rec_type)
            assert record.rec_headers.protocol == "WARC/1.1"
            content = record.content_stream().read()
            if record.rec_type == "response":
                uri = record.rec_headers.get_header("WARC-Target-URI")
                bodies[uri] = content
                statuses[uri] = record.http_headers.get_statuscode()
                headers[uri] = record.http_headers.headers
    assert kinds[:3] == ["warcinfo", "response", "metadata"]
    assert (kinds.count("response"), kinds.count("metadata"), kinds.count("resource")) == (len(PAGES), len(PAGES), 1)
    assert bodies == {one.url: one.body for one in PAGES}
    assert statuses == {one.url: str(one.status) for one in PAGES}
    assert headers[f"{SHOP}/packed"] == [
        ("X-Archive-Orig-Content-Encoding", "gzip"), ("X-Archive-Orig-Transfer-Encoding", "chunked"),
        ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("X-Archive-Orig-content-length", "7"),
        ("X-Odd", "café Ã©"),  # the bytes as they came: no UTF-8, so this reader takes them for Latin-1
        ("X-Lines", "a X-Injected: b"), ("Content-Length", "20"),
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["x.warc.gz", "x.warc"])
async def test_our_own_file_comes_back_exactly(project: Project, tmp_path: Path, name: str) -> None:
    # Given pages of a crawl, one of which could not be parsed
    await visited(project, PAGES[:-1])
    await visited(project, PAGES[-1:], failure="parse")
    await exported(project, tmp_path / name)
    # When another project takes the file
    async with project_in(tmp_path / "there") as other:
        state = await other.take(tmp_path / name, spider=None)
        # Then every page is what it was, filed as it was
        assert (state.pages, state.cut, state.unreadable, state.damages) == (len(PAGES), 1, 0, ())
        assert await other.pages() == await project.pages()
        assert {facts.url: (facts.spider, facts.job, facts.failure) for facts in await other.visits()} == {
            facts.url: (facts.spider, facts.job, facts.failure) for facts in await project.visits()
        }


async def test_imported_pages_wait_for_a_parser(project: Project, tmp_path: Path) -> None:
    foreign_file(tmp_path / "x.warc.gz", ("/a", "200 OK", b"<p>A</p>"), ("/b", "404 Not Found", b"<p>No</p>"))
    await project.take(tmp_path / "x.warc.gz", spider="mine")
    (waiting,) = [facts async for facts in project.records.archived(VisitQuery(spider="mine", job="mine-warc"))]
    assert (waiting.url, waiting.failure, waiting.parser, waiting.status) == (f"{SHOP}/a", "", "", 200)
    (missed,) = await project.visits(spider="mine", failures=("http-404",))
    assert missed.url == f"{SHOP}/b"
    (attempt,) = await project.records.attempts(waiting.fingerprint)
    assert (attempt.outcome, attempt.route, attempt.job, attempt.at) == ("imported", "warc", "mine-warc", NOW)


def foreign_file(path: Path, *pages: tuple[str, str, bytes]) -> None:
    """As a crawler writes it that uses the usual library."""
    with path.open("wb") as file:
        writer = WARCWriter(file, gzip=True)
        writer.write_record(writer.create_warcinfo_record(path.name, {"software": "theirs"}))
        for where, status, body in pages:
            head = StatusAndHeaders(status, [("Content-Type", "text/html")], protocol="HTTP/1.1")
            dated = {"WARC-Date": "2027-01-15T08:00:00Z"}
            writer.write_record(
                writer.create_warc_record(
                    f"{SHOP}{where}",
                    "response",
                    io.BytesIO(body),
                    len(body),
                    http_headers=head,
                    warc_headers_dict=dated,
                )
            )


@pytest.mark.parametrize(
    "lie",
    [
        b'"fetched_at": NaN',
        b'"status": 7',
        b'"fetched_at": 1900000000',
        b'"depth": -1',
        b'"url": "javascript:0"',
        b'"headers": 5',
        b"[" * 100_000,
    ],
)
async def test_a_page_that_only_says_to_be_ours_is_like_any_other(project: Project, tmp_path: Path, lie: bytes) -> None:
    # Given a file of ours into whose metadata somebody wrote
    await visited(project, [page("/a")])
    await exported(project, tmp_path / "x.warc")
    with (tmp_path / "x.warc").open("rb") as file:
        written = [(one.rec_type, one.rec_headers, one.content_stream().read()) for one in ArchiveIterator(file)]
    block = next(block for kind, _, block in written if kind == "metadata")
    forged = lie if lie.startswith(b"[") else block[:-1] + b", " + lie + b"}"
    content = (tmp_path / "x.warc").read_bytes().replace(block, forged)
    content = content.replace(b"Content-Length: %d\r\n" % len(block), b"Content-Length: %d\r\n" % len(forged))
    (tmp_path / "x.warc").write_bytes(content)
    # When it is taken
    async with project_in(tmp_path / "there") as other:
        state = await other.take(tmp_path / "x.warc", spider="mine")
        # Then the page is there, with what its response says
        assert (state.pages, state.damages) == (1, ())
        (one,) = (await other.pages()).values()
        assert (one.url, one.status, one.fetched_at, one.job) == (f"{SHOP}/a", 200, NOW, "")


async def test_a_file_of_others_needs_a_spider(project: Project, tmp_path: Path) -> None:
    foreign_file(tmp_path / "x.warc.gz", ("/a", "200 OK", b"<p>A</p>"))
    with pytest.raises(Misconfigured, match="--spider NAME"):
        await project.take(tmp_path / "x.warc.gz", spider=None)
    assert await project.visits() == []


async def test_the_same_file_twice_is_taken_once(project: Project, tmp_path: Path) -> None:
    foreign_file(tmp_path / "x.warc.gz", ("/a", "200 OK", b"<p>A</p>"), ("/b", "200 OK", b"<p>B</p>"))
    assert (await project.take(tmp_path / "x.warc.gz")).pages == 2
    again = await project.take(tmp_path / "x.warc.gz")
    assert (again.pages, again.known, again.other) == (0, 2, 1)
    assert len(await project.visits()) == 2


async def test_pages_whose_raw_copy_is_gone_are_left_out_and_counted(project: Project, tmp_path: Path) -> None:
    await visited(project, [page("/a"), page("/b")])
    lost = msgspec.structs.replace(facts_of(page("/c"), "2020-01-01/none-1.zst#0+10"), fetched_at=NOW)
    attempt = Attempt(
        at=NOW, job="shop-1", url=lost.url, fingerprint=lost.fingerprint, site="shop.example", worker="w", attempt=1,
        outcome="done",
    )  # fmt: skip
    await project.records.save([PageResult(attempt=attempt, page=lost)])
    kept = await exported(project, tmp_path / "x.warc.gz")
    assert (kept.pages, kept.lost) == (2, 1)
    assert "none-1.zst" in kept.first_loss


async def test_pages_are_chosen_by_spider_job_and_time(project: Project, tmp_path: Path) -> None:
    await visited(project, [page("/a"), page("/b", fetched_at=NOW + 60)])
    await visited(project, [page("/c", job="films-1")], spider="films")
    for which, count in (({"spider": "films"}, 1), ({"job": "shop-1"}, 2), ({"since": NOW + 1}, 1), ({}, 3)):
        assert (await exported(project, tmp_path / "x.warc.gz", **which)).pages == count


async def test_another_ending_is_refused(project: Project, tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"\.warc\.gz"):
        await exported(project, tmp_path / "x.zip")
    assert not (tmp_path / "x.zip").exists()


async def test_a_body_longer_than_the_limit_is_cut(project: Project, tmp_path: Path) -> None:
    foreign_file(tmp_path / "x.warc.gz", ("/a", "200 OK", b"x" * (LIMIT + 1)), ("/b", "200 OK", b"y" * LIMIT))
    state = await project.take(tmp_path / "x.warc.gz")
    pages = await project.pages()
    assert (state.pages, state.cut) == (2, 1)
    assert {url: (len(one.body), one.cut) for url, one in pages.items()} == {
        f"{SHOP}/a": (LIMIT, True),
        f"{SHOP}/b": (LIMIT, False),
    }
