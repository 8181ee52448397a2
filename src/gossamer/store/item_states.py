"""What becomes of an item when its record is stored: the state that the account of its page counts, decided without I/O
after `receive` (record_rules.py)."""

from __future__ import annotations

import msgspec

from ..model.item import REPLACEMENT, safe_text
from ..model.item_account import (
    BACK,
    CHANGED,
    CONFLICT,
    COUNT_FIELDS,
    EQUAL,
    HELD,
    LONGEST_EXAMPLE,
    NEW,
    Conflict,
    ItemCounts,
)
from ..model.item_account import UNCHANGED as SAME
from ..model.record import Record
from .record_rows import Values, item_values
from .record_rules import NO_PAGE, Held, RecordVerdict, version_seen

SEEN_STATES = ("", NEW, CHANGED, SAME, HELD, BACK)  # of a sighting, as stored: the position. 0: unknown
CONTENT_BYTES = 8  # of a content hash, in a sighting


class Sighting(msgspec.Struct):
    """What a job saw of a record: the version, and what it first got: from which page, with which content, and what
    became of that item. Mutable: it follows the batch."""

    version: int = 0
    page: int = NO_PAGE
    state: int = 0
    content: bytes = b""


def see(
    seen: Sighting | None, record: Record, page: int, verdict: RecordVerdict, held: Held
) -> tuple[str, Sighting, bool]:
    """What becomes of an item that `page` yielded: its state, the sighting of its job, and whether that has changed.
    Call it after `receive`.

    A job compares an item with what it first saw of the record, not with what is stored: whether two items of one run
    are in conflict does not depend on other jobs, nor on the order in which pages are stored again. The page that the
    job had the record from first may be stored any number of times, and its item stays what it was.
    """
    content = record.content_hash[:CONTENT_BYTES]
    version = version_seen(held, record.content_hash)
    if seen is None:
        seen = Sighting(-1)
    news = version > seen.version
    if news:
        seen.version = version
    if seen.state and seen.page != page:
        return (EQUAL if seen.content == content else CONFLICT), seen, news
    if seen.state and seen.content == content:
        return SEEN_STATES[seen.state], seen, news
    state = _first_state(verdict, held, record)
    if seen.state and state == CHANGED:  # the page was read again, and says something else by now
        first = SEEN_STATES[seen.state]
        state = first if first in (NEW, BACK) else CHANGED
    seen.page, seen.state, seen.content = page, SEEN_STATES.index(state), content
    return state, seen, True


def _first_state(verdict: RecordVerdict, held: Held, record: Record) -> str:
    match verdict:
        case RecordVerdict.NEW:
            return NEW
        case RecordVerdict.CHANGED:
            return CHANGED
        case RecordVerdict.BACK:
            return BACK
        case RecordVerdict.CHECKED:
            return SAME
    return SAME if version_seen(held, record.content_hash) else HELD


class ItemStates:
    """Adds what becomes of the records of one page to the account of its items."""

    __slots__ = ("_counts", "_example", "_held", "_shared_with")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._example: Conflict | None = None
        self._held: dict[str, int] = {}
        self._shared_with = ""

    def add(self, state: str, record: Record, verdict: RecordVerdict, other_spider: str) -> None:
        """Count one record. `other_spider` wrote its last version; "" if that was this one."""
        self._counts[state] = self._counts.get(state, 0) + 1
        if state == CONFLICT and self._example is None:
            self._example = conflict_of(record)
        elif state == HELD:
            why = "store.min_rewrite_age" if verdict is RecordVerdict.HELD else "a newer scrape"
            self._held[why] = self._held.get(why, 0) + 1
        if other_spider:
            self._counts["shared"] = self._counts.get("shared", 0) + 1
            self._shared_with = other_spider

    def values(self, known: ItemCounts) -> Values:
        """The account of the page as it is stored (`item_values`), from what was `known` before its records were."""
        if self._held or self._example is not None or self._shared_with:
            known = msgspec.structs.replace(
                known,
                reasons={**known.reasons, **self._held},
                example=known.example or self._example,
                shared_with=self._shared_with,
            )
        values = item_values(known)
        for name, count in self._counts.items():
            values[_PLACES[name]] += count
        return values


_PLACES = {name: place for place, name in enumerate(COUNT_FIELDS)}


def conflict_of(record: Record) -> Conflict:
    """A record whose item is in conflict, as an example."""
    return Conflict(type=_plain(record.type), key=_plain(record.key), url=_plain(record.url))


def _plain(text: str) -> str:
    """A short text that every store takes as it is; U+FDD0 escapes NUL in PostgreSQL."""
    return safe_text(text[:LONGEST_EXAMPLE]).replace("\ufdd0", REPLACEMENT)
