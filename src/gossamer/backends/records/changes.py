"""What a batch of records becomes, decided without I/O between one look-up and a handful of statements (writes.py). The
rule for a single record: store/record_rules.py."""

from __future__ import annotations

from typing import Any

import msgspec

from ...model.record import Record
from ...store.item_states import ItemStates, Sighting, see
from ...store.record_rules import REWRITES, Held, RecordVerdict, receive, version_seen

Identity = tuple[Any, ...]  # what a dialect finds a record by: type, site and key, or their hash


class RecordDraft(msgspec.Struct):
    """A record while the batch is decided. Mutable: it follows the batch."""

    identity: Identity
    held: Held
    is_new: bool
    record: Record | None = None  # the newest version in this batch; None: the stored one stays
    has_moved: bool = False  # its times or its page differ from the stored ones


class PastVersion(msgspec.Struct, frozen=True):
    """A version that was replaced inside the batch."""

    draft: RecordDraft
    version: int
    at: float
    record: Record


class RecordChanges:
    """Takes the records of a batch one by one; afterwards its lists say what to write."""

    def __init__(
        self, held: dict[Identity, Held], now: float, min_age: float, seen: dict[tuple[str, int], Sighting]
    ) -> None:
        self._drafts = {identity: RecordDraft(identity, one, is_new=False) for identity, one in held.items()}
        self._now = now
        self._min_age = min_age
        self._stored = seen
        self._given: dict[tuple[str, Identity], Sighting] = {}
        self._seers: set[tuple[str, Identity]] = set()
        self.superseded: list[int] = []  # numbers of records whose stored version is replaced
        self.past: list[PastVersion] = []
        self.new: list[RecordDraft] = []  # in the order of the batch
        self.held_back = False  # the store has another version of a record that was taken since this was reset

    def take(self, identity: Identity, record: Record, page: int, stale: bool, account: ItemStates | None) -> bool:
        """Decide about one record that `page` yielded, and note what became of it. True if it is new or changed."""
        draft = self._drafts.get(identity)
        writer = record.spider if draft is None else draft.held.spider
        if draft is None:
            verdict, held = receive(None, record, page, now=self._now, min_age=self._min_age, stale=stale)
            draft = self._drafts[identity] = RecordDraft(identity, held, is_new=True, record=record)
            self.new.append(draft)
        else:
            held = draft.held
            verdict = self._receive(draft, record, page, stale)
        self.held_back |= not version_seen(held, record.content_hash)
        name = (record.job, identity)
        known = self._given.get(name) or self._stored.get((record.job, held.number))
        state, seen, news = see(known, record, page, verdict, held)
        if news:
            self._given[name] = seen
        if writer != record.spider:
            self._seers.add((writer if held.spider == record.spider else record.spider, identity))
        if account is not None:
            account.add(state, record, verdict, writer if writer != record.spider else "")
        return verdict is RecordVerdict.NEW or verdict in REWRITES

    def _receive(self, draft: RecordDraft, record: Record, page: int, stale: bool) -> RecordVerdict:
        held = draft.held
        version, last_changed, first_seen = held.version, held.last_changed, held.first_seen
        verdict, _ = receive(held, record, page, now=self._now, min_age=self._min_age, stale=stale)
        if verdict in REWRITES:
            if draft.record is None:
                self.superseded.append(held.number)
            else:
                self.past.append(PastVersion(draft, version, last_changed, draft.record))
            draft.record = record
        elif verdict is not RecordVerdict.LATE or held.first_seen < first_seen:
            draft.has_moved = True
        return verdict

    @property
    def changed(self) -> list[RecordDraft]:
        """Records to be rewritten."""
        return [draft for draft in self._drafts.values() if draft.record is not None and not draft.is_new]

    @property
    def moved(self) -> list[Held]:
        """Records of which only times and page are to be written."""
        return [draft.held for draft in self._drafts.values() if draft.record is None and draft.has_moved]

    @property
    def sightings(self) -> list[tuple[str, int, int, int, int, bytes]]:
        """Which job saw which record in which version, and what it first got of it: call it after the new records have
        their numbers."""
        return sorted(
            (job, self._drafts[identity].held.number, one.version, one.page, one.state, one.content)
            for (job, identity), one in self._given.items()
        )

    @property
    def seers(self) -> list[tuple[str, int]]:
        """Which spiders saw records that another one wrote last; as above."""
        return sorted((spider, self._drafts[identity].held.number) for spider, identity in self._seers)
