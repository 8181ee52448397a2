"""What a batch of records does to the tables, decided without I/O from what the store holds (and holds locked).

A batch may bring several versions of one record. Only the last of them is written to `records`; those in between go
to `superseded` directly, so that every table is written with one statement per batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

import msgspec

from ...model.record import Record
from ...store.record_rules import Held, Verdict, receive, version_seen


class Draft(msgspec.Struct):
    """A record while the batch is being decided. Mutable: it follows the batch."""

    identity: bytes
    held: Held
    is_new: bool
    record: Record | None = None  # the newest version that this batch brings; None: the stored one stays
    back_by: str | None = None  # the job that found it again, as it was before it was gone
    has_moved: bool = False  # its times or its page are other than stored


class Past(msgspec.Struct, frozen=True):
    """A version that came and went inside the batch."""

    draft: Draft
    version: int
    at: float
    record: Record


def identity_of(*texts: str) -> bytes:
    """The hash under which a record is found: of type, site and key. The texts are as stored, so that NUL can stand
    between them."""
    return blake2b("\0".join(texts).encode(), digest_size=16).digest()


class RecordChanges:
    """Takes the records of a batch one by one; afterwards its lists say what is to be written."""

    def __init__(self, held: dict[bytes, Held], now: float, min_age: float) -> None:
        self._drafts = {identity: Draft(identity, one, is_new=False) for identity, one in held.items()}
        self._now = now
        self._min_age = min_age
        self._seen: dict[tuple[str, bytes], int] = {}
        self.superseded: list[int] = []  # numbers of records whose stored version is replaced
        self.past: list[Past] = []

    def take(self, record: Record, page: int, *, stale: bool = False) -> bool:
        """Decide about one record that `page` gave. True when it is new or changed."""
        identity = identity_of(record.type, record.site, record.key)
        draft = self._drafts.get(identity)
        if draft is None:
            verdict, held = receive(None, record, page, now=self._now, min_age=self._min_age, stale=stale)
            draft = self._drafts[identity] = Draft(identity, held, is_new=True, record=record)
        else:
            verdict = self._receive(draft, record, page, stale)
        self._see(record.job, identity, version_seen(draft.held, record.content_hash))
        return verdict is Verdict.NEW or verdict is Verdict.CHANGED

    def _receive(self, draft: Draft, record: Record, page: int, stale: bool) -> Verdict:
        held = draft.held
        version, last_changed, first_seen = held.version, held.last_changed, held.first_seen
        verdict, _ = receive(held, record, page, now=self._now, min_age=self._min_age, stale=stale)
        if verdict is Verdict.CHANGED:
            if draft.record is None:
                self.superseded.append(held.number)
            else:
                self.past.append(Past(draft, version, last_changed, draft.record))
            draft.record = record
        elif verdict is Verdict.CHECKED or held.first_seen < first_seen:
            draft.has_moved = True
        return verdict

    def confirm(self, unchanged: Sequence[tuple[int, str, float]]) -> None:
        """Pages that a job found unchanged at a time: what they gave is there and was checked, and the job saw it."""
        given = self._given()
        found = [(draft, job, min(at, self._now)) for page, job, at in unchanged for draft in given.get(page, ())]
        for draft, job, at in found:
            if draft.held.gone and draft.held.last_checked < at:
                self._bring_back(draft, job, at)
        for draft, job, at in found:
            known = draft.held.last_checked <= at and not draft.held.gone
            self._see(job, draft.identity, draft.held.version if known else 0)
        for draft, _, at in found:
            draft.held.last_checked = max(draft.held.last_checked, at)
            draft.has_moved = True

    def pass_over(self, stale: Iterable[tuple[int, str]]) -> None:
        """Pages of which a job has read an older copy than the newest: it cannot tell that anything is missing."""
        given = self._given()
        for page, job in stale:
            for draft in given.get(page, ()):
                self._see(job, draft.identity, 0)

    def _given(self) -> dict[int, list[Draft]]:
        """What each page gave last."""
        given: dict[int, list[Draft]] = {}
        for draft in self._drafts.values():
            given.setdefault(draft.held.page, []).append(draft)
        return given

    def _bring_back(self, draft: Draft, job: str, at: float) -> None:
        held = draft.held
        self.superseded.append(held.number)
        held.gone = False
        held.last_changed = max(held.last_changed, at)
        held.version += 1
        draft.back_by = job

    def _see(self, job: str, identity: bytes, version: int) -> None:
        if version >= self._seen.get((job, identity), 0):
            self._seen[job, identity] = version

    @property
    def new(self) -> list[Draft]:
        """Records to be added, in the order of the batch."""
        return [draft for draft in self._drafts.values() if draft.is_new]

    @property
    def changed(self) -> list[Draft]:
        """Records to be rewritten."""
        return [draft for draft in self._drafts.values() if draft.record is not None and not draft.is_new]

    @property
    def back(self) -> list[Draft]:
        """Records that are there again, with the content they had."""
        return [draft for draft in self._drafts.values() if draft.back_by is not None]

    @property
    def moved(self) -> list[Draft]:
        """Records of which only the times and the page are to be written."""
        return [d for d in self._drafts.values() if d.record is None and d.back_by is None and d.has_moved]

    @property
    def sightings(self) -> list[tuple[str, int, int]]:
        """Which job saw which record in which version, by number: to be asked when the new ones have theirs."""
        return [(job, self._drafts[identity].held.number, version) for (job, identity), version in self._seen.items()]
