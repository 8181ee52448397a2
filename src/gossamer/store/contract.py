"""Contracts of storage: `RecordStore` (records, attempts, page facts) and `Archive` (raw pages).

How they fail: `BackendUnavailable`, and then nothing of the batch is stored. How they recover: every write is
idempotent, so the caller repeats it. Writes are batched by the caller (store/batching.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from ..model.page import Snapshot
from ..model.record import Attempt, PageFacts, PageResult, StoredRecord


class RecordQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are meant. None does not restrict. `since` is compared with last_changed."""

    job: str | None = None
    spider: str | None = None
    type: str | None = None
    site: str | None = None
    url: str | None = None  # the page it was found on, after redirects
    since: float | None = None
    until: float | None = None


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One step in a record's history: what it looked like from `at` on."""

    at: float
    job: str
    version: int
    data: str


class RecordStore(Protocol):
    async def save(self, results: Sequence[PageResult]) -> list[int]:
        """Store all of it in one commit; return, for each result, how many of its records were new or changed.

        A record is identified by (type, site, key). Same content hash: only `last_checked` moves. An older
        `scraped_at` never replaces a newer one. A result whose outcome is "unchanged" confirms the records that
        its page gave before: they were checked, and this job saw them. Saving the same result twice leaves what
        saving it once left.
        """
        ...

    async def facts(self, fingerprints: Sequence[bytes]) -> dict[bytes, PageFacts]:
        """The newest facts of each known page."""
        ...

    async def attempts(self, fingerprint: bytes) -> list[Attempt]:
        """The audit log of a URL, oldest first."""
        ...

    async def visits(self, fingerprint: bytes) -> list[PageFacts]:
        """Every archived visit of a URL, oldest first."""
        ...

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        """Every version of a record, oldest first."""
        ...

    async def count(self, query: RecordQuery) -> int: ...

    def records(self, query: RecordQuery) -> AsyncIterator[StoredRecord]:
        """Stream records in order of first storage, in flat memory."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Forget attempts, and visits that a newer one has replaced, older than that; return how many went.

        Records, their history and the newest facts of a page are never pruned.
        """
        ...


class Archive(Protocol):
    async def put(self, snapshots: Sequence[Snapshot]) -> list[str]:
        """Write pages durably; return one reference each. A reference names its place and never changes."""
        ...

    async def get(self, ref: str) -> Snapshot:
        """Read a page back. Raises Permanent when the reference names nothing."""
        ...

    async def prune(self, older_than: timedelta) -> int:
        """Delete pages older than that; return the number of bytes given back."""
        ...
