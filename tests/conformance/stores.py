"""The record stores that must behave alike, and what their suites share: fixtures, and things to store.

A new backend joins by a line in RECORD_STORES; a server that it needs is a fixture of the same name. The suites
speak to the contract alone: no SQL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import Clock, VirtualClock
from gossamer.model.record import Attempt, ItemSchema, PageFacts, PageResult, Record, StoredRecord, Tally
from gossamer.store.contract import RecordQuery, Records

from ..services.postgres import schema_of, shared_postgres

RecordOpener = Callable[[Path, Clock, timedelta | None], AbstractAsyncContextManager[Records]]


def _open_postgres(folder: Path, clock: Clock, age: timedelta | None) -> AbstractAsyncContextManager[Records]:
    from gossamer.backends.postgres.records import open_postgres_records  # its driver is an extra

    return open_postgres_records(shared_postgres().address(), clock, min_rewrite_age=age, schema=schema_of(folder))


RECORD_STORES: dict[str, RecordOpener] = {
    "sqlite": lambda folder, clock, age: open_sqlite_records(folder / "records.db", clock, min_rewrite_age=age),
    "postgres": _open_postgres,
}


NOW = 1_800_000_000.0
HOUR = 3600.0
EVERYTHING = RecordQuery()

OpenRecords = Callable[..., AbstractAsyncContextManager[Records]]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW + 1000 * HOUR)


@pytest.fixture(scope="module", params=RECORD_STORES)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name != "sqlite":
        request.getfixturevalue(name)  # the server of that name: tests/services
    return name


@pytest.fixture
def open_records(backend: str, tmp_path: Path, clock: VirtualClock) -> OpenRecords:
    """Opens the same place every time: one call is one process."""

    def open_one(min_rewrite_age: timedelta | None = None) -> AbstractAsyncContextManager[Records]:
        return RECORD_STORES[backend](tmp_path, clock, min_rewrite_age)

    return open_one


@pytest.fixture
async def record_store(open_records: OpenRecords) -> AsyncIterator[Records]:
    async with open_records() as store:
        yield store


async def all_of(store: Records, query: RecordQuery = EVERYTHING) -> list[StoredRecord]:
    """The records that a query finds, without their numbers, which tell only in what order this store got them."""
    return [msgspec.structs.replace(record, number=0) async for record in store.records(query)]


def fingerprint_of(url: str) -> bytes:
    return blake2b(url.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def book(key: str = "b1", *, at: float = NOW, job: str = "books-1", **fields: Any) -> Record:
    data = msgspec.json.encode(fields or {"title": "Emma"})
    return Record(
        type="Book", site="shop.example", key=key, url=f"https://shop.example/{key}", job=job, spider="books",
        data=data.decode(), content_hash=blake2b(data, digest_size=16).digest(), scraped_at=at,
    )  # fmt: skip


def tried(url: str = "https://shop.example/b1", *, at: float = NOW, **changes: Any) -> Attempt:
    attempt = Attempt(
        at=at, job="books-1", url=url, fingerprint=fingerprint_of(url), site="shop.example", worker="host/1/1",
        attempt=0, outcome="done", status=200, bytes=40_000, latency=0.125,
    )  # fmt: skip
    return msgspec.structs.replace(attempt, **changes)


def page_of(url: str = "https://shop.example/b1", *, at: float = NOW, **changes: Any) -> PageFacts:
    page = PageFacts(fingerprint=fingerprint_of(url), url=url, job="books-1", fetched_at=at, status=200)
    return msgspec.structs.replace(page, **changes)


def result(
    *records: Record,
    page: PageFacts | None = None,
    attempt: Attempt | None = None,
    quality: tuple[Tally, ...] = (),
    schemas: tuple[ItemSchema, ...] = (),
) -> PageResult:
    """What a visit leaves behind; the attempt is made to fit the first record when none is given."""
    if attempt is None:
        attempt = tried(records[0].url, at=records[0].scraped_at, job=records[0].job) if records else tried()
    return PageResult(attempt=attempt, page=page, records=records, quality=quality, schemas=schemas)


def reparse(
    url: str, *records: Record, visit: float, at: float, job: str = "reparse-1", failure: str = "", **changes: Any
) -> PageResult:
    """What is left behind when the visit of a page is read again from the archive, at a later time."""
    again = tuple(msgspec.structs.replace(one, scraped_at=visit, reparsed_at=at, job=job) for one in records)
    attempt = tried(url, at=at, job=job, outcome="reparsed", route="archive")
    facts = page_of(url, at=visit, archive_ref=f"copy of {visit}", spider="books", failure=failure, **changes)
    return PageResult(attempt=attempt, page=facts, records=again)


def visit(
    url: str, *records: Record, at: float, job: str = "books-1", outcome: str = "done", failure: str = ""
) -> PageResult:
    """A visit whose raw page is archived. The records are made to fit it."""
    given = tuple(msgspec.structs.replace(one, scraped_at=at, job=job) for one in records)
    attempt = tried(url, at=at, job=job, outcome=outcome)
    facts = page_of(url, at=at, job=job, archive_ref=f"copy of {at}", spider="books", failure=failure)
    return PageResult(attempt=attempt, page=facts, records=given)
