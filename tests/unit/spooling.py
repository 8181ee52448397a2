"""What the tests of the spool share: results to spool, stores that can be away, and a disk that ends."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from gossamer.backends.folder.archive import FolderArchive
from gossamer.backends.sqlite.records import SqliteRecords, open_sqlite_records
from gossamer.clock import SystemClock
from gossamer.errors import BackendUnavailable, Misconfigured
from gossamer.model.events import Event, Spooled
from gossamer.model.page import Headers, Snapshot
from gossamer.model.record import PageResult
from gossamer.store.waiting import Waiting
from tests.patience import PATIENCE

from ..conformance.stores import NOW, book, page_of, result, tried


def visit(n: int) -> PageResult:
    url = f"https://shop.example/{n}"
    return result(book(f"{n}", n=n), page=page_of(url), attempt=tried(url, at=NOW + n))


def snap(n: int, body: bytes | None = None) -> Snapshot:
    url = f"https://shop.example/{n}"
    return Snapshot(
        url=url, requested_url=url, status=200, headers=Headers([("etag", f'"{n}"')]),
        body=f"page {n}".encode() if body is None else body, fetched_at=NOW,
    )  # fmt: skip


def waiting(n: int, body: bytes | None = None) -> Waiting:
    return Waiting(result=visit(n), snapshot=snap(n, body))


def number_of(one: Waiting) -> int:
    return int(one.result.attempt.url.rpartition("/")[2])


@contextmanager
def disk_ends_after(size: int) -> Iterator[None]:
    """No file of this process may grow beyond `size`, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def flip_in_a_frame(file: Path, position: int) -> bytes:
    """Flip a bit on the disk in the result at that position of a spool file; return its bytes as they are then."""
    with closing(sqlite3.connect(file)) as database:
        frame = bytes(database.execute("SELECT frame FROM results ORDER BY n").fetchall()[position][0])
    flipped = bytearray(frame)
    flipped[-10] ^= 0x10
    content = file.read_bytes()
    assert content.count(frame) == 1  # it lies in one piece
    file.write_bytes(content.replace(frame, flipped))
    return bytes(flipped)


class Fickle:
    """A real store that can be away, with a note of everything it was asked to save and did save."""

    def __init__(self, store: SqliteRecords) -> None:
        self._store = store
        self.down = False
        self.refusal = ""
        self.asked = 0
        self.saved: list[str] = []
        self.asked_again = asyncio.Event()

    async def save(self, results: Sequence[PageResult]) -> list[int]:
        self.asked += 1
        self.asked_again.set()
        if self.down:
            raise BackendUnavailable("The store is away.")
        if self.refusal:
            raise Misconfigured(self.refusal)
        counts = await self._store.save(results)
        self.saved += [one.attempt.url.rpartition("/")[2] for one in results]
        return counts

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


class FickleArchive:
    """A real archive that can be away, with a note of how many pages it was given."""

    def __init__(self, archive: FolderArchive) -> None:
        self._archive = archive
        self.down = False
        self.pages = 0

    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        if self.down:
            raise BackendUnavailable("The archive is away.")
        self.pages += len(snapshots)
        return await self._archive.put(snapshots)

    async def get(self, ref: str) -> Snapshot:
        return await self._archive.get(ref)

    async def prune(self, older_than: timedelta) -> int:
        return await self._archive.prune(older_than)


class Ears:
    """Hears events, and lets a test wait for one."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self._news = asyncio.Event()

    def emit(self, event: Event) -> None:
        self.heard.append(event)
        self._news.set()

    async def hear(self, wanted: Callable[[Event], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not any(wanted(event) for event in self.heard):
                self._news.clear()
                await self._news.wait()


def all_stored(event: Event) -> bool:
    return isinstance(event, Spooled) and event.bytes == 0


@pytest.fixture
async def sqlite(tmp_path: Path) -> AsyncIterator[SqliteRecords]:
    async with open_sqlite_records(tmp_path / "records.db", SystemClock()) as opened:
        yield opened


@pytest.fixture
def store(sqlite: SqliteRecords) -> Fickle:
    return Fickle(sqlite)


@pytest.fixture
def ears() -> Ears:
    return Ears()
