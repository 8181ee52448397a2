"""What people ordered to be erased, as values: an order, its parts, and what a record store holds of a part."""

from __future__ import annotations

import msgspec

from .record import RecordIdentity

OPEN_ORDER = "forget"  # kinds of rows on the shelf
ENDED_ORDER = "forget-ended"
ORDER_PART = "forget-part"


class ErasedVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a record that is to be erased; `data` is JSON."""

    type: str
    site: str
    key: str
    url: str
    data: str


class Holdings(msgspec.Struct, frozen=True, kw_only=True):
    """What a record store holds of some records and pages. `own` are the pages that gave nothing else, `shared` those
    that gave other records too: fingerprints, with the address. `refs` are the raw copies of all of them. `jobs` saw
    these records, or marked them as gone."""

    versions: tuple[ErasedVersion, ...] = ()
    own: tuple[tuple[bytes, str], ...] = ()
    shared: tuple[tuple[bytes, str], ...] = ()
    refs: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()


class ForgetPart(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the records of an order, and pages (with their addresses) that were named themselves. `found` is None
    until all of it is marked as erased; `urls` are the addresses that were erased with it."""

    records: tuple[RecordIdentity, ...] = ()
    pages: tuple[tuple[bytes, str], ...] = ()
    found: Holdings | None = None
    erased: bool = False
    urls: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # addresses of files that the records named
    jobs: tuple[str, ...] = ()  # whose counts of records are other ones now


class ForgetOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to erase records. It names none of them: they are in its parts, which are deleted when it has ended.

    `until`: what was scraped until then. `left` says where something may be left."""

    id: str
    at: float
    by: str
    key: str = ""  # of the HTTP API
    until: float = 0.0
    parts: int = 0
    scan: bool = True
    rewrite: bool = False
    records: int = 0
    pages: int = 0
    copies: int = 0
    files: int = 0
    texts: int = 0  # rows of the state that named an erased address
    done: int = 0  # parts
    jobs: tuple[str, ...] = ()  # that saw erased files, until their records are counted again
    ended_at: float | None = None
    left: tuple[str, ...] = ()
