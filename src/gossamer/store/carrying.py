"""What a record store and an archive are made of when they are carried elsewhere (model/carrying.py has the contract).

Records are carried with all they have: history, sightings, the page that gave them. An archive is carried file by file
under the same names: references stay good, and pages keep the day they were fetched on, by which they are pruned.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from ..model.carrying import Carrier
from ..model.record import Attempt, ItemSchema, PageFacts, Tally
from .contract import Version


class CarriedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that was tried. `facts` is None when it was never fetched."""

    fingerprint: bytes
    url: str
    job: str
    facts: PageFacts | None
    attempts: tuple[Attempt, ...] = ()
    visits: tuple[PageFacts, ...] = ()


class CarriedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its past versions, oldest first, and the jobs that saw it, each with the version it saw last.
    `page` is the fingerprint of the page that gave it last."""

    type: str
    site: str
    key: str
    url: str
    job: str
    spider: str
    data: str
    content_hash: bytes
    first_seen: float
    last_changed: float
    last_checked: float
    version: int
    gone_since: float | None = None
    schema: str = ""
    page: bytes = b""
    past: tuple[Version, ...] = ()
    seen_by: tuple[tuple[str, int], ...] = ()


class CarriedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A shape of items, and when it was stored first."""

    shape: ItemSchema
    first_stored: float


RecordItem = CarriedPage | CarriedRecord | CarriedSchema | Tally  # poured in this order
RecordCarrier = Carrier[RecordItem]


class Segment(msgspec.Struct, frozen=True, order=True):
    """A file or object of an archive: `2027-01-31/host-1.zst`."""

    name: str
    size: int


class ArchiveCarrier(Protocol):
    """An archive as its files. They never change, so that one of the same name and size needs no second copy."""

    def segments(self) -> AsyncIterator[Segment]:
        """Every file that pages can be in."""
        ...

    async def read(self, name: str) -> bytes:
        """A whole file. Raises Permanent when there is none of that name."""
        ...

    async def write(self, name: str, content: bytes) -> None:
        """Make a file, whole and durable, or nothing of it."""
        ...
