"""WARC files: what is written can be read by others."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.clock import VirtualClock
from gossamer.errors import Misconfigured
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import Attempt, PageFacts, PageResult
from gossamer.model.url import fingerprint, site_of
from gossamer.store.contract import VisitQuery
from gossamer.store.export import FileDestination
from gossamer.store.warc import OURS, Kept, export_warc

NOW = 1_800_000_000.0
SHOP = "https://shop.example"


def page(path: str = "/", body: bytes = b"<h1>Shop</h1>", **changes: Any) -> Snapshot:
    snapshot = Snapshot(
        url=f"{SHOP}{path}", requested_url=f"{SHOP}{path}", status=200,
        headers=Headers([("Content-Type", "text/html")]), body=body, fetched_at=NOW, job="shop-1",
    )  # fmt: skip
    return msgspec.structs.replace(snapshot, **changes)


class Project(msgspec.Struct, frozen=True):
    """A record store and an archive."""

    records: SqliteRecords
    archive: FolderArchive


def facts_of(snapshot: Snapshot, ref: str, **changes: Any) -> PageFacts:
    facts = PageFacts(
        fingerprint=fingerprint(snapshot.requested_url), url=snapshot.requested_url, job=snapshot.job,
        fetched_at=snapshot.fetched_at, status=snapshot.status, archive_ref=ref, spider="shop",
    )  # fmt: skip
    return msgspec.structs.replace(facts, **changes)


PAGES = [
    page("/plain", b"<h1>One</h1>"),
    page("/empty", b"", status=204, headers=Headers()),
    page(
        "/packed",
        b"<p>It was packed</p>",
        headers=Headers(
            [("Content-Encoding", "gzip"), ("Transfer-Encoding", "chunked"), ("Set-Cookie", "a=1"),
             ("Set-Cookie", "b=2"), ("content-length", "7"), ("X-Odd", "caf\udce9 \u00e9"),
             ("X-Lines", "a\r\nX-Injected: b"), ("X-Half", "\ud800"), ("bad name", "x")]
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
    return await export_warc(visits, project.archive, FileDestination(path), program="Gossamer test")


@pytest.fixture
async def project(tmp_path: Path) -> AsyncIterator[Project]:
    clock = VirtualClock(NOW)
    async with (
        open_sqlite_records(tmp_path / "records.db", clock) as records,
        FolderArchive(tmp_path / "archive", level=1, writer="host/1/1", clock=clock) as archive,
    ):
        yield Project(records, archive)


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
        ("X-Lines", "a X-Injected: b"), ("X-Half", "?"), ("Content-Length", "20"),
    ]  # fmt: skip


async def test_the_metadata_of_a_page_tells_all_that_gossamer_knows_of_it(project: Project, tmp_path: Path) -> None:
    await visited(project, PAGES[-1:], failure="parse")
    await exported(project, tmp_path / "x.warc.gz")
    with (tmp_path / "x.warc.gz").open("rb") as file:
        records = {one.rec_type: (one.rec_headers, one.content_stream().read()) for one in ArchiveIterator(file)}
    response, (head, block) = records["response"][0], records["metadata"]
    assert head.get_header("Content-Type") == OURS
    assert head.get_header("WARC-Concurrent-To") == response.get_header("WARC-Record-ID")
    assert json.loads(block) == {
        "url": f"{SHOP}/rendered", "requested_url": f"{SHOP}/rendered", "status": 200,
        "headers": [["Content-Type", "text/html"]], "fetched_at": NOW, "cut": False, "kind": "book", "job": "shop-1",
        "data": '{"shelf":"é"}', "depth": 3, "spider": "shop", "failure": "parse",
    }  # fmt: skip
    head, block = records["resource"]
    assert head.get_header("WARC-Target-URI") == f"urn:view:{SHOP}/rendered"
    assert block == PAGES[-1].screenshot


async def test_only_a_page_that_was_cut_is_marked_as_truncated(project: Project, tmp_path: Path) -> None:
    await visited(project, [page("/whole"), page("/long", b"<p>The beginn", cut=True)])
    await exported(project, tmp_path / "x.warc.gz")
    with (tmp_path / "x.warc.gz").open("rb") as file:
        heads = [one.rec_headers for one in ArchiveIterator(file) if one.rec_type == "response"]
    marks = {head.get_header("WARC-Target-URI"): head.get_header("WARC-Truncated") for head in heads}
    assert marks == {f"{SHOP}/whole": None, f"{SHOP}/long": "length"}


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
