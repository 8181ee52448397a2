"""The record stores that must behave alike. A new backend joins by adding a line here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from gossamer.backends.sqlite.records import open_sqlite_records
from gossamer.clock import Clock
from gossamer.model.record import Attempt, PageFacts, PageResult, Record
from gossamer.store.contract import RecordStore

from ..services.postgres import schema_of, shared_postgres

RecordOpener = Callable[[Path, Clock, timedelta | None], AbstractAsyncContextManager[RecordStore]]


def _open_postgres(folder: Path, clock: Clock, age: timedelta | None) -> AbstractAsyncContextManager[RecordStore]:
    from gossamer.backends.postgres.records import open_postgres_records  # its driver is an extra

    return open_postgres_records(shared_postgres().address(), clock, min_rewrite_age=age, schema=schema_of(folder))


RECORD_STORES: dict[str, RecordOpener] = {
    "sqlite": lambda folder, clock, age: open_sqlite_records(folder / "records.db", clock, min_rewrite_age=age),
    "postgres": _open_postgres,
}

NOW = 1_800_000_000.0


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


def result(*records: Record, page: PageFacts | None = None, attempt: Attempt | None = None) -> PageResult:
    """What a visit leaves behind; the attempt is made to fit the first record when none is given."""
    if attempt is None:
        attempt = tried(records[0].url, at=records[0].scraped_at, job=records[0].job) if records else tried()
    return PageResult(attempt=attempt, page=page, records=records)
