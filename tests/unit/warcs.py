"""What the tests of WARC files share: pages, a project in a folder, and files as others write them."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.cli.warc import decoded
from gossamer.clock import VirtualClock
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageFacts
from gossamer.model.url import UrlRules, fingerprint
from gossamer.store.contract import VisitQuery
from gossamer.store.warc.taking import Imported, WarcImport

NOW = 1_800_000_000.0
SHOP = "https://shop.example"
LIMIT = 1_000_000
ANY = ("", "parse", "quality", "http-302", "http-404")


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

    async def take(self, *files: Path, **options: Any) -> Imported:
        options.setdefault("spider", "shop")
        task = WarcImport(
            self.records, self.archive, UrlRules(), decode=decoded, max_body=LIMIT, worker="host/1/1",
            clock=VirtualClock(NOW), **options,
        )  # fmt: skip
        state = Imported()
        try:
            for file in files:
                state = await task.take(file)
        finally:
            task.close()
        return state

    async def visits(self, **which: Any) -> list[PageFacts]:
        return [facts async for facts in self.records.archived(VisitQuery(**{"failures": ANY, **which}))]

    async def pages(self) -> dict[str, Snapshot]:
        """What the archive holds, by address."""
        return {facts.url: await self.archive.get(facts.archive_ref) for facts in await self.visits()}


@asynccontextmanager
async def project_in(folder: Path) -> AsyncIterator[Project]:
    clock = VirtualClock(NOW)
    async with (
        open_sqlite_records(folder / "records.db", clock) as records,
        FolderArchive(folder / "archive", level=1, writer="host/1/1", clock=clock) as archive,
    ):
        yield Project(records, archive)


def facts_of(snapshot: Snapshot, ref: str, **changes: Any) -> PageFacts:
    facts = PageFacts(
        fingerprint=fingerprint(snapshot.requested_url), url=snapshot.requested_url, job=snapshot.job,
        fetched_at=snapshot.fetched_at, status=snapshot.status, archive_ref=ref, spider="shop",
    )  # fmt: skip
    return msgspec.structs.replace(facts, **changes)


def record(
    kind: str, uri: str, block: bytes, number: int = 0, date: str = "2027-01-15T08:00:00Z", **fields: str
) -> bytes:
    """A record as other programs write it."""
    lines = {
        "WARC-Type": kind,
        "WARC-Target-URI": uri,
        "WARC-Date": date,
        "WARC-Record-ID": f"<urn:uuid:{number}>",
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    lines.setdefault("Content-Length", str(len(block)))
    head = "WARC/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n"
    return head.encode() + block + b"\r\n\r\n"


def answer(body: bytes, *headers: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join([status, *headers, "", ""]).encode("latin-1") + body


def response(path: str, body: bytes, *headers: str, status: str = "HTTP/1.1 200 OK", **fields: Any) -> bytes:
    return record("response", f"{SHOP}{path}", answer(body, *headers, status=status), **fields)


def members(*records: bytes) -> bytes:
    return b"".join(gzip.compress(one) for one in records)
