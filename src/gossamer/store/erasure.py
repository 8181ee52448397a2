"""The rules of erasure, decided without I/O, and what follows for a batch that is stored.

A record or page that was erased leaves a mark: a hash, and a time. A result that was fetched until then may still be on
its way, in a worker or in a spool: the records and copies that are marked are left out of it. Later visits are stored
again, unless it was erased for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from ..model.item_account import add_reasons
from ..model.left_out import ERASED as ERASED_REASON
from ..model.record import PageResult, RecordIdentity
from .contract import Archive, RecordStore
from .record_rules import mend

if TYPE_CHECKING:  # it packs what waits, which most commands do not
    from .waiting import Waiting

ERASED = -1  # in place of a count of `save`: something was left out, and the raw copy has to go
FOR_GOOD = 1e15  # later than any time
REASON = ERASED_REASON  # of items that were left out, and of URLs in the queue


def record_mark(record: RecordIdentity) -> bytes:
    return _hash("record", *map(mend, record))


def page_mark(fingerprint: bytes) -> bytes:
    return _hash("page", fingerprint.hex())


def _hash(*parts: str) -> bytes:
    return blake2b("\0".join(parts).encode(), digest_size=16, person=b"erased").digest()


class ResultMarks(msgspec.Struct, frozen=True, gc=False):
    """The marks that a result would have: of its page, and of each record."""

    page: bytes
    records: tuple[bytes, ...]


def marks_of(results: Sequence[PageResult]) -> list[ResultMarks]:
    return [
        ResultMarks(
            page_mark(result.attempt.fingerprint),
            tuple(record_mark((one.type, one.site, one.key)) for one in result.records),
        )
        for result in results
    ]


def every_mark(marks: Sequence[ResultMarks]) -> list[bytes]:
    return list({mark for one in marks for mark in (one.page, *one.records)})


def without_erased(
    results: Sequence[PageResult], marks: Sequence[ResultMarks], known: Mapping[bytes, float]
) -> list[tuple[PageResult | None, bool]]:
    """Each result as it may be stored (None: not at all), and whether something was left out. `known` are the marks
    that exist, each with its time."""
    if not known:
        return [(result, False) for result in results]
    return [_without_erased(result, one, known) for result, one in zip(results, marks, strict=True)]


def _without_erased(
    result: PageResult, marks: ResultMarks, known: Mapping[bytes, float]
) -> tuple[PageResult | None, bool]:
    began = result.attempt.at  # what was asked for before counts as scraped before, however late it came
    kept = tuple(
        one
        for one, mark in zip(result.records, marks.records, strict=True)
        if min(one.scraped_at, began) > known.get(mark, 0.0)
    )
    left_out = len(result.records) - len(kept)
    page_erased = began <= known.get(marks.page, 0.0)
    if not left_out and not page_erased:
        return result, False
    if page_erased and not kept:
        return None, True
    items = result.items
    if items is not None and left_out:
        reasons = dict(items.reasons)
        add_reasons(reasons, {REASON: left_out})
        items = msgspec.structs.replace(items, dropped=items.dropped + left_out, reasons=reasons)
    page = result.page
    if page is not None:  # without what would make the next visit a conditional one
        page = msgspec.structs.replace(
            page, archive_ref="", body_hash=b"", etag="", last_modified="", parser="", links=b""
        )
    return msgspec.structs.replace(result, records=kept, page=page, items=items), True


def with_erased(rows: Sequence[tuple[PageResult | None, bool]], counts: Iterator[int]) -> list[int]:
    """The answer of `save`, from the counts of the results that were stored."""
    stored = [next(counts) if result is not None else 0 for result, _ in rows]
    return [ERASED if left_out else count for count, (_, left_out) in zip(stored, rows, strict=True)]


async def store_batch(records: RecordStore, archive: Archive | None, batch: Sequence[Waiting]) -> list[int]:
    """Store results whose pages are archived, and remove the raw copies of those that were erased meanwhile; return
    how many records of each are new or changed. Raises what the stores raise."""
    counts = await records.save([one.result for one in batch])
    pages = [one.result.page for one, count in zip(batch, counts, strict=True) if count == ERASED]
    refs = [page.archive_ref for page in pages if page is not None and page.archive_ref]
    if refs and archive is not None:
        await archive.erase(refs)
    return [max(0, count) for count in counts]
