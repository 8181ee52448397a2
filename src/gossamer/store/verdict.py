"""What a newly scraped record does to the one that is held: decided here, without I/O, for every record store alike."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from ..model.record import Record

UNCHANGED = "unchanged"  # the outcome of an attempt that was answered with 304


class Verdict(Enum):
    """What a newly scraped record does to the one that is held."""

    NEW = "new"
    CHANGED = "changed"
    CHECKED = "checked"  # same content, or too soon to rewrite: only the times move
    LATE = "late"  # a newer scrape was here first


class Held(msgspec.Struct):
    """What the store knows of a record while a batch is being decided. Mutable: it follows the batch."""

    number: int
    content_hash: bytes
    first_seen: float
    last_changed: float
    last_checked: float
    version: int
    page: int


def judge(held: Held | None, content_hash: bytes, scraped_at: float, min_age: float) -> Verdict:
    """Decide what becomes of a scrape. Whatever the order of arrival, the newest scrape is the one that stays.

    Two scrapes of the same instant that differ: the greater hash stays, so that two workers agree on the winner
    and repeating a batch changes nothing. `min_age` (seconds) protects a version that is younger than that.
    """
    if held is None:
        return Verdict.NEW
    if scraped_at < held.last_checked:
        return Verdict.LATE
    if content_hash == held.content_hash:
        return Verdict.CHECKED
    if scraped_at == held.last_checked and content_hash < held.content_hash:
        return Verdict.LATE
    if scraped_at - held.last_changed < min_age:
        return Verdict.CHECKED
    return Verdict.CHANGED


def last_of_each(records: tuple[Record, ...]) -> Sequence[Record]:
    """A page that gives one key twice means the last one; storing both would make two versions at every visit."""
    if len(records) < 2:
        return records
    return list({(record.type, record.site, record.key): record for record in records}.values())


def mend(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD; pairs become the character they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
