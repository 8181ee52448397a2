"""Who can write to the archive (a folder, a bucket), and to nothing else.

Tried:

- another body under the reference of a page that was fetched, and a page of another site: for a reparse, a WARC export,
  a replay and the copy that `scrape` with `max_age` gives
- heads with wrong types, unknown fields, negative and lying lengths, NaN, nesting without end, a head of many megabytes
- frames that claim, or hold, more than fits into memory: zstd, and gzip inside it
- another content under the hash of a file; a symbolic link in its place

Not prevented: pages can be removed, and status, headers and the path of a page's URL can be changed, because the
records have a hash of the body alone. The body of a request that was too long for the queue is taken as it is there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.object.archive import ObjectArchive
from gossamer.clock import VirtualClock
from gossamer.errors import Permanent
from gossamer.model.job import JobTerms
from gossamer.model.page import Headers, Snapshot
from gossamer.project.open import Project
from gossamer.store.page_format import MAX_PAGE_BYTES, unpack_page
from tests.conformance.archives import ARCHIVES
from tests.unit.archived import SHOP, archived_visit
from tests.unit.commandline import ProjectFolder
from tests.unit.commandline import project as project

NOW = 1_800_000_000.0
SPIDER = """
from gossamer import Item, Page, Spider

class Thing(Item, key="name"):
    name: str
    price: str

class Shop(Spider):
    start_urls = ["https://shop.example/1"]
    def parse(self, page: Page):
        yield Thing(name=page.css("h1::text").get(), price=page.css("b::text").get())
"""
HEAD: dict[str, Any] = {
    "url": f"{SHOP}/", "requested_url": f"{SHOP}/", "status": 200, "headers": [["Content-Type", "text/html"]],
    "fetched_at": NOW, "cut": False, "kind": "parse", "job": "shop-1", "data": "", "length": 2,
}  # fmt: skip


def frame(line: bytes, body: bytes = b"ab") -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(line + b"\n" + body + b"\n")


def head(**changes: Any) -> bytes:
    return json.dumps({**HEAD, **changes}).encode()


HEADS = {
    "no URL": head(url=None),
    "a status in words": head(status="two hundred"),
    "a time in words": head(fetched_at="yesterday"),
    "a time that is no number": head(fetched_at=float("nan")),
    "data that is a tree": head(data={"a": [1]}),
    "a callback that is a number": head(kind=7),
    "a depth in words": head(depth="deep"),
    "headers that are numbers": head(headers=[[1, 2]]),
    "headers in one piece": head(headers=["ab"]),
    "an unknown field": head(code="import os"),
    "a negative length": head(length=-3, packed_length=-3, screenshot=5),
    "a length beyond the end": head(length=2**40),
    "a body that is not gzip": head(packed="gzip", packed_length=2),
    "an unknown packing": head(packed="pickle", packed_length=2),
    "a text": b'"\\ud800"',
    "a list": b"[1]",
    "a number without end": b'{"length":' + b"9" * 5000 + b"}",
    "nesting without end": b'{"a":' + b"[" * 100_000,
    "nesting that ends": b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}


@pytest.fixture(params=ARCHIVES)
async def archive(request: pytest.FixtureRequest) -> AsyncIterator[FolderArchive | ObjectArchive]:
    async with ARCHIVES[request.param](request)(VirtualClock(NOW), "host/1/1") as opened:
        assert isinstance(opened, FolderArchive | ObjectArchive)
        yield opened


@pytest.mark.parametrize("line", HEADS.values(), ids=HEADS)
async def test_a_forged_head_is_a_damaged_page_and_nothing_else(
    archive: FolderArchive | ObjectArchive, line: bytes
) -> None:
    page = frame(line)
    await archive.write_segment("2027-01-15/host-1.zst", page)
    ref = f"2027-01-15/host-1.zst#0+{len(page)}"

    with pytest.raises(Permanent, match="is damaged"):
        await archive.get(ref)
    (found,) = await archive.get_many([ref])

    assert isinstance(found, Permanent)


def test_a_head_of_many_megabytes_is_not_read() -> None:
    with pytest.raises(ValueError, match="its head has"):
        unpack_page(frame(b'{"headers":[' + b'["",""],' * 9_000_000))


def test_a_bomb_is_refused_by_what_it_claims() -> None:
    claims = b"\x28\xb5\x2f\xfd\xc0\x00" + (MAX_PAGE_BYTES + 1).to_bytes(8, "little") + b"\x01\x00\x00"
    with pytest.raises(ValueError, match="claims to unpack"):
        unpack_page(claims)
    unknown = zstandard.ZstdCompressor(write_content_size=False).compress(head() + b"\nab\n")
    with pytest.raises((ValueError, zstandard.ZstdError)):
        unpack_page(unknown)


# -- pages that are not those that were fetched --------------------------------------------------------------------


def forged(body: str, **changes: Any) -> Any:
    """A visit of shop.example whose copy in the archive was replaced."""

    async def fill(system: Project) -> None:
        job, _ = await system.state.jobs.open_job("shop", JobTerms(), fresh=True)
        await system.state.control.cancel_job(job.id)
        real = await archived_visit(system, f"{SHOP}/1", job.id, "shop", "parse", "<h1>Cup</h1><b>5</b>")
        assert real.page is not None
        url = f"{SHOP}/1"
        copy = Snapshot(
            url=url, requested_url=url, status=200, headers=Headers([("content-type", "text/html")]),
            body=body.encode(), fetched_at=system.clock.now(), kind="parse", job=job.id,
        )  # fmt: skip
        (ref,) = await system.archive.put([msgspec.structs.replace(copy, **changes)])
        facts = msgspec.structs.replace(real.page, archive_ref=ref)
        await system.records.save([msgspec.structs.replace(real, page=facts)])

    return fill


FORGERIES = {
    "another body": forged("<h1>Cup</h1><b>0.01</b>"),
    "another site": forged("<h1>Cup</h1><b>5</b>", url="https://bank.example/1"),
    "another site that asked": forged("<h1>Cup</h1><b>5</b>", requested_url="https://bank.example/1"),
    "an address that is none": forged("<h1>Cup</h1><b>5</b>", url="javascript:alert(1)"),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_no_record_is_made_of_a_page_that_was_not_fetched(project: ProjectFolder, forgery: Any) -> None:
    project.write("spiders/shop.py", SPIDER)
    project.fill(forgery)

    said = project.run("reparse", "--processes", "1")

    assert said.code == 1, said.err
    assert "raw page lost" in said.out, said
    assert project.run("export").out == ""


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_what_was_not_fetched_is_neither_exported_nor_replayed(project: ProjectFolder, forgery: Any) -> None:
    project.write("spiders/shop.py", SPIDER)
    project.fill(forgery)

    said = project.run("warc", "export", "-o", "pages.warc")

    assert b"msgtype=response" not in (project.folder / "pages.warc").read_bytes(), said.err
    assert "the archive was changed" in said.out + said.err
    assert "0.01" not in project.run("crawl", "shop", "--replay", "-o", "out.jsonl").out
    written = project.folder / "out.jsonl"
    assert not written.exists() or b"Cup" not in written.read_bytes()


# -- files -----------------------------------------------------------------------------------------------------------


async def test_a_file_is_what_its_name_says_or_an_error(archive: FolderArchive | ObjectArchive, tmp_path: Path) -> None:
    name = sha256(b"a price list").hexdigest()
    other = tmp_path / "other"
    other.write_bytes(b"another price list")
    await archive.put_file(other, name)

    with pytest.raises(Permanent, match="is not what its name says"):
        _ = [piece async for piece in archive.read_file(name)]


async def test_a_link_in_the_place_of_a_file_brings_no_other_file(tmp_path: Path) -> None:
    name, secret = sha256(b"a price list").hexdigest(), tmp_path / "secret"
    secret.write_text("key = 1")
    place = tmp_path / "archive" / "files" / name[:2] / name
    place.parent.mkdir(parents=True)
    place.symlink_to(secret)
    async with FolderArchive(tmp_path / "archive", level=1, writer="w") as archive:
        with pytest.raises(Permanent, match="is not what its name says"):
            _ = [piece async for piece in archive.read_file(name)]
