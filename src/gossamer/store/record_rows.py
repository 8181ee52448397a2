"""The rows of a record store in a form independent of the backend: a move copies them, a backup file holds them
(model/stream.py). A record comes with its history and sightings, a page with its attempts and archived visits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from ..model.item_account import COUNT_FIELDS, Conflict, ItemCounts, add_reasons
from ..model.record import Attempt, ItemSchema, PageFacts, Tally
from ..model.stream import RowStream
from .contract import SentNote, Version


class DumpedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that was tried. `facts` is None if it was never fetched."""

    fingerprint: bytes
    url: str
    job: str
    facts: PageFacts | None
    attempts: tuple[Attempt, ...] = ()
    visits: tuple[PageFacts, ...] = ()
    items: tuple[tuple[str, float, ItemCounts], ...] = ()  # job, time, account


class DumpedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its past versions, oldest first, and the jobs that saw it, each with the version it last saw.
    `page` is the fingerprint of the page that last gave it; `first_seen_on` has, by job, the page that first gave it,
    what became of that item (item_states.py: SEEN_STATES) and the start of its content hash, where that is known."""

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
    spiders: tuple[str, ...] = ()  # that saw it, and did not write it last
    first_seen_on: tuple[tuple[str, bytes, int, bytes], ...] = ()


class DumpedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """A schema of items, and when it was first stored."""

    shape: ItemSchema
    first_stored: float


class ErasedMark(msgspec.Struct, frozen=True, kw_only=True):
    """A record or page that was erased: its hash (store/erasure.py), and until when it is not stored."""

    mark: bytes
    until: float


RecordRow = DumpedPage | DumpedRecord | DumpedSchema | Tally | SentNote | ErasedMark  # dumped in this order
RecordStream = RowStream[RecordRow]

# Columns, in the order of the tables. The fingerprint of attempts and visits is that of their page.
PAGE_FIELDS = PageFacts.__struct_fields__
ATTEMPT_FIELDS = ("at", "job", "worker", "url", "site", "attempt", "outcome", "route", "proxy", "status", "bytes",
                  "latency", "cost", "reason", "error")  # fmt: skip
VISIT_FIELDS = ("fetched_at", "url", "job", "status", "archive_ref", "body_hash", "spider", "failure")
TALLY_FIELDS = ("day", "spider", "type", "field", "rule", "checked", "filled", "faulty")
RECORD_FIELDS = DumpedRecord.__struct_fields__[:14]  # from type to schema
SENT_FIELDS = SentNote.__struct_fields__
MARK_FIELDS = ErasedMark.__struct_fields__
PAST_FIELDS = ("version", "at", "job", "data", "gone", "schema")
COUNTED = {
    "records": "records", "earlier versions": "superseded", "sightings": "sightings", "pages": "pages",
    "attempts": "attempts", "archived visits": "visits", "shapes of items": "schemas", "quality counts": "quality",
    "accounts of items": "item_counts", "notes of sent requests": "sent_notes", "marks of erased": "erased",
}  # fmt: skip  # what `counts` calls the rows of each table
TABLES = ("erased", "sent_notes", "figures", "figure_sheets", "quality", "schemas", "item_counts", "visits", "attempts",
          "seen_by", "sightings", "superseded", "records", "pages")  # fmt: skip  # children first
ERASABLE = tuple(table for table in TABLES if not table.startswith(("figure", "quality", "schemas", "erased")))


class RecordCounts:
    """The `counts` of a record store that holds the rows that were offered."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()

    def offer(self, batch: Sequence[RecordRow]) -> None:
        for row in batch:
            match row:
                case DumpedPage():
                    self._kinds.update({"pages": 1, "attempts": len(row.attempts), "archived visits": len(row.visits)})
                    self._kinds["accounts of items"] += len(row.items)
                case DumpedRecord():
                    self._kinds.update({"records": 1, "earlier versions": len(row.past)})
                    self._kinds["sightings"] += len(row.seen_by)
                case _:
                    self._kinds[_COUNTED[type(row)]] += 1

    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self._kinds.items() if count}


_COUNTED: dict[type, str] = {
    DumpedSchema: "shapes of items", Tally: "quality counts", SentNote: "notes of sent requests",
    ErasedMark: "marks of erased",
}  # fmt: skip

Values = Sequence[Any]  # Any: one row of a table, whose columns have different types


attempt_values = attrgetter(*ATTEMPT_FIELDS)
visit_values = attrgetter(*VISIT_FIELDS)


def fields_of(row: msgspec.Struct, names: Sequence[str]) -> list[Any]:
    return [getattr(row, name) for name in names]


def group_rows(rows: Iterable[Values]) -> dict[int, list[Values]]:
    """Rows by the number in their first column; the rest of each row, in order."""
    groups: dict[int, list[Values]] = {}
    for number, *rest in rows:
        groups.setdefault(number, []).append(rest)
    return groups


def dumped_page(
    columns: Values, attempts: Iterable[Values], visits: Iterable[Values], items: Iterable[Values]
) -> DumpedPage:
    """From the PAGE_FIELDS of a page, the ATTEMPT_FIELDS of its attempts, the VISIT_FIELDS of its visits, and job,
    time, COUNT_FIELDS, parser and notes of the accounts of its items."""
    facts = dict(zip(PAGE_FIELDS, columns, strict=True))
    page = facts["fingerprint"]
    return DumpedPage(
        fingerprint=page,
        url=facts["url"],
        job=facts["job"],
        facts=PageFacts(**facts) if facts["fetched_at"] is not None else None,
        attempts=tuple(Attempt(fingerprint=page, **dict(zip(ATTEMPT_FIELDS, one, strict=True))) for one in attempts),
        visits=tuple(PageFacts(fingerprint=page, **dict(zip(VISIT_FIELDS, one, strict=True))) for one in visits),
        items=tuple(sorted((job, at, item_counts(counts)) for job, at, *counts in items)),
    )


def dumped_record(
    columns: Values, page: bytes | None, past: Iterable[Values], seen: Iterable[Values], spiders: Iterable[Values]
) -> DumpedRecord:
    """From the RECORD_FIELDS of a record, the PAST_FIELDS of its past versions, the job and version of each sighting
    (with the page, state and content of the first, in stores that keep these), and the other spiders that saw it."""
    sightings = sorted((job, version, first) for job, version, *first in seen)
    return DumpedRecord(
        **dict(zip(RECORD_FIELDS, columns, strict=True)),
        page=page or b"",
        past=tuple(
            Version(version=version, at=at, job=job, data=data, gone=bool(gone), schema=schema)
            for version, at, job, data, gone, schema in past
        ),
        seen_by=tuple((job, version) for job, version, _ in sightings),
        first_seen_on=tuple((job, *first) for job, _, first in sightings if first and first[0] is not None),
        spiders=tuple(sorted(spider for (spider,) in spiders)),
    )


# -- the account of items ---------------------------------------------------------------------------------------------


class _ItemNotes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of an account that is not numbers."""

    reasons: dict[str, int] = {}
    example: Conflict | None = None
    shared_with: str = ""


def item_values(counts: ItemCounts) -> list[Any]:
    """COUNT_FIELDS, then the parser and the notes."""
    notes = ""
    if counts.reasons or counts.example or counts.shared_with:
        notes = msgspec.json.encode(_ItemNotes(counts.reasons, counts.example, counts.shared_with)).decode()
    return [*_counts_of(counts), counts.parser, notes]


def item_counts(values: Values, notes: Iterable[str] = ()) -> ItemCounts:
    """From COUNT_FIELDS, the parser and the notes, which may be those of many pages."""
    *numbers, parser, own = values
    reasons: dict[str, int] = {}
    example, shared_with = None, ""
    for text in filter(None, (own, *notes)):
        one = msgspec.json.decode(text, type=_ItemNotes)
        add_reasons(reasons, one.reasons)
        example, shared_with = example or one.example, shared_with or one.shared_with
    return ItemCounts(
        **dict(zip(COUNT_FIELDS, map(int, numbers), strict=True)),
        reasons=reasons, example=example, shared_with=shared_with, parser=parser,
    )  # fmt: skip


_counts_of = attrgetter(*COUNT_FIELDS)
