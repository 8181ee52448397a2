"""What is kept: records (extracted data), attempts (the audit log) and the facts about a page for its next visit."""

from __future__ import annotations

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One item, ready to be stored. Identity is (type, site, key); `data` is a JSON object.

    `content_hash` covers the data only: an unchanged record is not rewritten.
    """

    type: str
    site: str
    key: str
    url: str
    job: str
    spider: str
    data: str
    content_hash: bytes
    scraped_at: float


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as it is read back."""

    type: str
    site: str
    key: str
    url: str
    job: str
    spider: str
    data: dict[str, Any]  # whatever the item held
    first_seen: float
    last_changed: float
    last_checked: float
    version: int


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the audit log: what was tried for a URL and what came of it."""

    at: float
    job: str
    url: str
    fingerprint: bytes
    site: str
    worker: str
    attempt: int
    outcome: str  # done, unchanged, redirected, dropped, blocked, retry, dead, released
    route: str = "http"
    proxy: str | None = None
    status: int | None = None
    bytes: int = 0
    latency: float = 0.0  # seconds
    cost: float = 0.0  # tokens
    reason: str = ""
    error: str = ""


class PageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of a fetched page: its validators, where its raw copy is, the links it gave.

    `links` is a JSON list of requests, kept only for pages with validators: when the server says 304, the page
    is not parsed again and its links are followed from here. `parser` is the version of the code that parsed it.
    """

    fingerprint: bytes
    url: str
    job: str
    fetched_at: float
    status: int
    etag: str = ""
    last_modified: str = ""
    archive_ref: str = ""
    body_hash: bytes = b""
    parser: str = ""
    links: bytes = b""


class PageResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that one visit leaves behind; stored in one step, safely repeatable."""

    attempt: Attempt
    page: PageFacts | None = None
    records: tuple[Record, ...] = ()
