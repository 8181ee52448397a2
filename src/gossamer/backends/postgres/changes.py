"""What a batch of records does to the tables, decided without I/O from what the store holds (and holds locked).

A batch may bring several versions of one record. Only the last of them is written to `records`; those in between go
to `superseded` directly, so that every table is written with one statement per batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from ...model.record import Record
from ...store.verdict import Held, Verdict, judge


class Draft(msgspec.Struct):
    """A record while the batch is being decided. Mutable: it follows the batch."""

    identity: bytes
    held: Held
    is_new: bool
    record: Record | None = None  # the newest version that this batch brings; None: the stored one stays
    has_moved: bool = False  # its times or its page are other than stored


class Past(msgspec.Struct, frozen=True):
    """A version that came and went inside the batch."""

    draft: Draft
    version: int
    at: float
    record: Record


def identity_of(type: str, site: str, key: str) -> bytes:
    """The hash under which a record is found. The texts are as stored, so that NUL can stand between them."""
    return blake2b(f"{type}\0{site}\0{key}".encode(), digest_size=16).digest()


class RecordChanges:
    """Takes the records of a batch one by one; afterwards its lists say what is to be written."""

    def __init__(self, held: dict[bytes, Held], now: float, min_age: float) -> None:
        self._drafts = {identity: Draft(identity, one, is_new=False) for identity, one in held.items()}
        self._now = now
        self._min_age = min_age
        self._seen: dict[tuple[str, bytes], Draft] = {}
        self.superseded: list[int] = []  # numbers of records whose stored version is replaced
        self.past: list[Past] = []

    def take(self, record: Record, page: int) -> bool:
        """Decide about one record that `page` gave. True when it is new or changed."""
        identity = identity_of(record.type, record.site, record.key)
        draft = self._drafts.get(identity)
        # A worker whose clock runs ahead must not freeze the record until everybody else's has caught up.
        at = min(record.scraped_at, self._now)
        verdict = judge(draft.held if draft is not None else None, record.content_hash, at, self._min_age)
        if draft is None:
            held = Held(0, record.content_hash, at, at, at, 1, page)
            draft = self._drafts[identity] = Draft(identity, held, is_new=True, record=record)
        elif verdict is Verdict.CHANGED:
            self._change(draft, record, at, page)
        elif verdict is Verdict.CHECKED or at < draft.held.first_seen:
            held = draft.held
            held.first_seen = min(held.first_seen, at)
            held.last_checked = max(held.last_checked, at)
            if verdict is Verdict.CHECKED:
                held.page = page
            draft.has_moved = True
        self._seen[record.job, identity] = draft
        return verdict is Verdict.NEW or verdict is Verdict.CHANGED

    def confirm(self, unchanged: Iterable[tuple[int, str, float]]) -> None:
        """Pages that a job found unchanged at a time: what they gave was checked, and the job saw it."""
        given: dict[int, list[Draft]] = {}
        for draft in self._drafts.values():
            given.setdefault(draft.held.page, []).append(draft)
        for page, job, at in unchanged:
            for draft in given.get(page, ()):
                draft.held.last_checked = max(draft.held.last_checked, min(at, self._now))
                draft.has_moved = True
                self._seen[job, draft.identity] = draft

    def _change(self, draft: Draft, record: Record, at: float, page: int) -> None:
        held = draft.held
        if draft.record is None:
            self.superseded.append(held.number)
        else:
            self.past.append(Past(draft, held.version, held.last_changed, draft.record))
        draft.record = record
        held.content_hash = record.content_hash
        held.last_changed = held.last_checked = at
        held.version += 1
        held.page = page

    @property
    def new(self) -> list[Draft]:
        """Records to be added, in the order of the batch."""
        return [draft for draft in self._drafts.values() if draft.is_new]

    @property
    def changed(self) -> list[Draft]:
        """Records to be rewritten."""
        return [draft for draft in self._drafts.values() if draft.record is not None and not draft.is_new]

    @property
    def moved(self) -> list[Draft]:
        """Records of which only the times and the page are to be written."""
        return [draft for draft in self._drafts.values() if draft.record is None and draft.has_moved]

    @property
    def sightings(self) -> list[tuple[str, int]]:
        """Which job saw which record, by number: to be asked when the new ones have theirs."""
        return [(job, draft.held.number) for (job, _), draft in self._seen.items()]
