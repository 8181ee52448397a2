"""What a visit stores: records (extracted data), attempts (the audit log) and the facts about the page."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from .item_account import ItemCounts
from .route import DIRECT

RecordIdentity: TypeAlias = tuple[str, str, str]  # type, site, key


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One item, ready to be stored. Identity is (type, site, key); `data` is a JSON object.

    `content_hash` covers only the data: an unchanged record is not rewritten. `schema` is the id of the item's
    ItemSchema. `reparsed_at` is set if the page was parsed again from the archive: then the record replaces the one
    that an older parser made from the same visit.
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
    schema: str = ""
    reparsed_at: float | None = None


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record as read from the store."""

    type: str
    site: str
    key: str
    url: str
    job: str
    spider: str
    data: dict[str, Any]  # the fields of the item
    first_seen: float
    last_changed: float
    last_checked: float
    version: int
    gone_since: float | None = None  # since when the page has been gone
    schema: str = ""
    number: int = 0  # its place in the order of first storage, in this store; above 0


class ItemSchema(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The declared fields of a type of item at one time: `id` is a hash of `definition`, a JSON object."""

    id: str
    type: str
    definition: str


class Tally(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the quality checks counted for one field of one type of item on one day (UTC, `2027-01-31`).

    `field` "*" means the item as a whole, type "*" the pages of the spider. With `rule` "" all values are counted: of
    the `checked` values, `filled` were not empty and `faulty` broke a rule. Otherwise `rule` names one rule, and
    `faulty` counts the values that broke it.
    """

    spider: str
    day: str
    type: str
    field: str
    rule: str = ""
    checked: int = 0
    filled: int = 0
    faulty: int = 0


def day_of(at: float) -> str:
    """The day of a tally: the date in UTC of a time in seconds."""
    return _day(int(at // 86_400))


@lru_cache(maxsize=16)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d")


Fingerprint: TypeAlias = bytes  # an Attempt has a field named `bytes`, which hides the type


class Attempt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of the audit log: one attempt to fetch and parse a URL, and its outcome."""

    at: float
    job: str
    url: str
    fingerprint: Fingerprint
    site: str
    worker: str
    attempt: int
    outcome: str  # done, unchanged, redirected, dropped, blocked, retry, dead, released, reparsed, unparsed, imported
    route: str = DIRECT.name
    proxy: str | None = None
    status: int | None = None
    bytes: int = 0
    latency: float = 0.0  # seconds
    cost: float = 0.0  # credits
    reason: str = ""
    error: str = ""


NO_BODY = 0  # in place of a status: no response came, and the copy is from an earlier visit


class PageFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The facts about a fetched page that its next visit needs: validators, the reference of the raw copy, the links.

    `links` are packed requests (crawl/page_facts.py), kept only for pages with validators: after a 304 the page is not
    parsed again, and these links are followed. `parser` is the version of the code that parsed it; "": not everything
    that the page said is in the records, so the next visit requests it in full, however fresh its copy is.
    `failure` is the reason why the page left no records ("parse", "quality", "http-404"), "" if there was none.
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
    spider: str = ""
    failure: str = ""
    content: bytes = b""  # a hash of the records: it changes with them, not with every byte of the page
    rhythm: str = ""  # how often the page changes, as JSON (schedule/change_rate.py); "" for pages that are not watched


class PageResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything that one visit stores, in one step that may safely be repeated.

    `items` is the account of the page's items as far as it is known before its records are stored: the store adds what
    becomes of each record. None: the attempt settles nothing, or nothing was parsed.
    """

    attempt: Attempt
    page: PageFacts | None = None
    records: tuple[Record, ...] = ()
    quality: tuple[Tally, ...] = ()
    schemas: tuple[ItemSchema, ...] = ()
    items: ItemCounts | None = None
