"""The rules that all record stores share, decided without I/O: what a newly scraped record does to the stored one, what
two jobs saw differently, how cursors and stored data are read, how quality tallies add up.

A record can come in two ways. A visit brings what a page says now; of several visits the newest wins, in whatever order
they arrive. A reparse reads an archived visit again with a newer parser; it replaces what was extracted from that
visit, and never what a newer visit brought. Saving the same thing twice changes nothing, whatever happened in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeVar

import msgspec

from ..errors import Misconfigured, Permanent
from ..model.record import (
    NO_BODY,
    Attempt,
    ItemSchema,
    PageFacts,
    PageResult,
    Record,
    RecordIdentity,
    StoredRecord,
    Tally,
)
from ..model.run_records import DifferenceKind
from .contract import Difference

S = TypeVar("S", bound=msgspec.Struct)

UNCHANGED = "unchanged"  # the outcome of an attempt that was answered with 304
REPARSED = "reparsed"  # the outcome of an attempt that read an archived visit again
UNPARSED = "unparsed"  # of one that tried to, and failed to parse it
REPEAT = "repeat after a lost lease"  # the reason of an attempt that fetched a page again which was already done
NO_PAGE = 0  # `Held.page` of a record that its page no longer gives


class RecordVerdict(Enum):
    """What a newly scraped record does to the stored one."""

    NEW = "new"
    CHANGED = "changed"
    BACK = "back"  # it was gone: the same content, or other
    CHECKED = "checked"  # same content: only the times move
    HELD = "held"  # other content, but too soon to rewrite: only the times move
    LATE = "late"  # a newer scrape was stored first


REWRITES = (RecordVerdict.CHANGED, RecordVerdict.BACK)  # the record gets a new version


class Held(msgspec.Struct):
    """What the store knows of a record while a batch is being decided. Mutable: it follows the batch.

    `page` is the store's number of the page that last gave it.
    """

    number: int
    content_hash: bytes
    first_seen: float
    last_changed: float
    last_checked: float
    version: int
    page: int
    gone: bool = False
    spider: str = ""  # that wrote the present version


def receive(
    held: Held | None, record: Record, page: int, *, now: float, min_age: float, stale: bool = False
) -> tuple[RecordVerdict, Held]:
    """Decide about a record that `page` gave, and update `held` (a new one has the number 0).

    `min_age` (seconds) protects a version that is younger than that. `stale`: it was read from an archived visit, and
    the page has been visited successfully since (`is_stale`).
    """
    # A worker whose clock is ahead must not freeze the record until all other clocks have caught up.
    scraped_at = at = min(record.scraped_at, now)
    if record.reparsed_at is not None:
        at = max(scraped_at, min(record.reparsed_at, now))
    if held is None:
        return RecordVerdict.NEW, Held(
            0, record.content_hash, scraped_at, at, scraped_at, 1, page, spider=record.spider
        )
    if record.reparsed_at is None:
        verdict = judge(held, record.content_hash, scraped_at, min_age)
    else:
        same_page = held.page == page
        verdict = judge_reparsed(held, record.content_hash, scraped_at, at, min_age, same_page=same_page, stale=stale)
    if scraped_at < held.first_seen:
        held.first_seen = scraped_at
    if verdict is not RecordVerdict.LATE:
        held.page = page
        if scraped_at > held.last_checked:
            held.last_checked = scraped_at
    if verdict in REWRITES:
        held.content_hash = record.content_hash
        held.last_changed = max(at, held.last_changed)
        held.version += 1
        held.gone = False
        held.spider = record.spider
    return verdict, held


def judge(held: Held | None, content_hash: bytes, scraped_at: float, min_age: float) -> RecordVerdict:
    """Decide about a record of a visit. Whatever the order of arrival, the newest visit wins.

    Of two different scrapes of the same instant the greater hash wins, so that two workers agree and repeating a batch
    changes nothing. A record that was gone and is seen by a newer visit is back.
    """
    if held is None:
        return RecordVerdict.NEW
    if scraped_at < held.last_checked:
        return RecordVerdict.LATE
    if held.gone:
        # The very visit that gave it before it was gone is not news.
        return RecordVerdict.BACK if scraped_at > held.last_checked else RecordVerdict.LATE
    if content_hash == held.content_hash:
        return RecordVerdict.CHECKED
    if scraped_at == held.last_checked and (content_hash < held.content_hash or held.last_changed > scraped_at):
        return RecordVerdict.LATE  # it changed after it was scraped: a reparse has replaced what this visit gave
    if 0 <= scraped_at - held.last_changed < min_age:
        return RecordVerdict.HELD
    return RecordVerdict.CHANGED


def judge_reparsed(
    held: Held,
    content_hash: bytes,
    scraped_at: float,
    at: float,
    min_age: float = 0.0,
    *,
    same_page: bool,
    stale: bool = False,
) -> RecordVerdict:
    """Decide about a record that a newer parser read at the time `at` from an archived visit.

    It wins over what was extracted from this visit before, even if the page was found unchanged since. It loses against
    a newer visit of another page that gives the same record, and against one of this page (`stale`). A record that is
    gone stays gone, unless the visit is newer than what is known of it, or an earlier parser had missed it there. What
    a visit gives for the first time (that of a dead letter) is held back by `min_age` as if it came from the site now.
    """
    if held.last_changed > at:
        return RecordVerdict.LATE  # by a newer reparse, or because it is gone since
    if held.gone:
        news = scraped_at > held.last_checked or held.page == NO_PAGE
        return RecordVerdict.BACK if news and not stale else RecordVerdict.LATE
    if scraped_at < held.last_checked and (stale or not same_page):
        return RecordVerdict.LATE
    if content_hash == held.content_hash:
        return RecordVerdict.CHECKED
    if scraped_at > held.last_checked and 0 <= scraped_at - held.last_changed < min_age:
        return RecordVerdict.HELD
    return RecordVerdict.CHANGED


def version_seen(held: Held, content_hash: bytes) -> int:
    """The version that a job saw when it scraped this content, after `receive`; 0 if that version is not kept.

    0 also means that something was held back from the records: in the same commit the page loses its `parser`, so that
    its next visit requests it in full.
    """
    return held.version if content_hash == held.content_hash and not held.gone else 0


def spider_of(result: PageResult) -> str:
    """The spider of the visit; "" if unknown."""
    if result.page is not None:
        return result.page.spider
    return result.records[0].spider if result.records else ""


def is_stale(result: PageResult, newest: float | None) -> bool:
    """Is this a reparse of an older visit than the `newest` successful one of this page by the same spider?

    Then the newer visit's records stand, and the job counts as having seen them: it cannot tell that any are missing.
    Visits by another spider since then say nothing about the records of this one.
    """
    if newest is None or result.attempt.outcome != REPARSED:
        return False
    if result.page is not None:
        return result.page.fetched_at < newest
    return bool(result.records) and result.records[0].scraped_at < newest


def reparse_visitors(results: Sequence[PageResult], number: dict[bytes, int]) -> dict[int, tuple[int, str]]:
    """The positions of results that were read from the archive, each with the number of its page and its spider."""
    return {
        place: (number[one.attempt.fingerprint], spider_of(one))
        for place, one in enumerate(results)
        if one.attempt.outcome == REPARSED
    }


def archived_visits(results: Iterable[PageResult]) -> list[PageFacts]:
    """The visits with their own raw copy. A 304 brought no body, nor did a failure: their facts refer to an earlier
    copy, which is listed already."""
    return [
        one.page
        for one in results
        if one.page is not None and one.page.archive_ref and one.page.status not in (NO_BODY, 304)
    ]


def reparsed_pages(results: Iterable[PageResult]) -> list[PageFacts]:
    """The facts of archived visits that were parsed again: their spider and outcome are better known now."""
    return [
        one.page
        for one in results
        if one.attempt.outcome in (REPARSED, UNPARSED) and one.page is not None and one.page.archive_ref
    ]


def last_of_each(records: tuple[Record, ...]) -> Sequence[Record]:
    """If a page gives one key twice, the last one counts; storing both would make two versions at every visit."""
    if len(records) < 2:
        return records
    return list({(record.type, record.site, record.key): record for record in records}.values())


def mend(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD; pairs become the character they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_utf8(text: str) -> bool:
    """Is it free of lone surrogates?"""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parts_of(result: PageResult) -> Iterator[Attempt | PageFacts | Record | Tally | ItemSchema]:
    """Every struct in a result."""
    yield result.attempt
    if result.page is not None:
        yield result.page
    yield from result.records
    yield from result.quality
    yield from result.schemas


def texts_of(results: Iterable[PageResult]) -> str:
    """All texts in these results, joined, so that one search finds out whether any must be changed."""
    values = (value for one in results for part in parts_of(one) for value in msgspec.structs.astuple(part))
    return "".join(value for value in values if type(value) is str)


def with_texts(result: PageResult, change: Callable[[str], str]) -> PageResult:
    """The result with every text changed."""

    def changed(part: S) -> S:
        texts = {name: change(x) for name, x in msgspec.structs.asdict(part).items() if isinstance(x, str)}
        return msgspec.structs.replace(part, **texts)

    return PageResult(
        attempt=changed(result.attempt),
        page=None if result.page is None else changed(result.page),
        records=tuple(map(changed, result.records)),
        quality=tuple(map(changed, result.quality)),
        schemas=tuple(map(changed, result.schemas)),
        items=result.items,
    )


class Seen(msgspec.Struct, frozen=True):
    """A record that at least one of two jobs saw, or that the later one marked as gone, and in which versions they saw
    it: None not at all, 0 in one that is not kept."""

    record: int
    before: int | None
    after: int | None

    @property
    def may_differ(self) -> bool:
        if self.before is None or self.after is None:
            return True
        return self.before != self.after and self.before > 0 and self.after > 0


class VersionMark(msgspec.Struct, frozen=True):
    """A version without its data."""

    version: int
    at: float
    job: str
    gone: bool


def difference_kind(
    seen: Seen, versions: Sequence[VersionMark], after: str, ends: tuple[float, float]
) -> tuple[DifferenceKind, int, int]:
    """What became of a record of which all `versions` are known, oldest first, and which of them are compared: 0 for
    none. `after` is the later job. Whether the content of the two differs is left to `difference`."""
    if seen.before is not None and seen.after is not None:
        return "changed", seen.before, seen.after
    if seen.after is not None:
        upto = seen.after or versions[-1].version
        known = [one for one in versions if one.at <= ends[0] and one.job != after and one.version <= upto]
        if not known:
            return "added", 0, seen.after
        return ("back" if known[-1].gone else "again"), known[-1].version, seen.after
    last = [one for one in versions if one.at <= ends[1] or one.job == after][-1:]
    kind: DifferenceKind = "gone" if last and last[0].gone else "unseen"
    return kind, seen.before or (last[0].version if last else 0), 0


def difference(
    identity: RecordIdentity, url: str, kind: DifferenceKind, before: str | None, after: str | None, reason: str = ""
) -> Difference | None:
    """The difference, if there is one; `before` and `after` are the data of the versions compared, None if not kept."""
    type_, site, key = identity
    if kind in ("changed", "again"):
        differ = before is not None and after is not None and before != after
        if not differ and kind == "changed":  # changed and changed back is no difference
            return None
        kind = "changed" if differ else "again"
    return Difference(
        kind=kind, type=type_, site=site, key=key, url=url, before=before if kind != "added" else None, after=after,
        reason=reason,
    )  # fmt: skip


def write_cursor(kind: str, store: str, place: int) -> str:
    return f"{kind}:{store}:{place}"


def read_cursor(text: str, kind: str, store: str, newest: int) -> int:
    """The position of a cursor. `newest` is the one that the store would give now. Raises Misconfigured."""
    given, _, rest = text.partition(":")
    name, _, place = rest.partition(":")
    is_number = place.isascii() and place.isdigit() and len(place) < 20
    if given == kind and name == store and is_number and int(place) <= newest:
        return int(place)
    raise Misconfigured(
        "This cursor belongs to another record store, or to a newer state of this one. Read everything once without a "
        "cursor, and continue from the cursor that you get then."
    )


def stored_record(data: str, /, **fields: Any) -> StoredRecord:  # Any: the other fields, as they are
    """The record with its data decoded. Raises Permanent if that is not JSON."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        value = _lenient_json(data, f"{fields['type']} {fields['key']!r} of {fields['site']}")
    return StoredRecord(data=value, **fields)


def _lenient_json(text: str, what: str) -> Any:
    """Read what other writers call JSON: with escaped lone surrogates, or NaN."""
    try:
        return json.loads(mend(json.dumps(json.loads(text), ensure_ascii=False)))
    except ValueError as error:
        raise Permanent(f"The stored {what} is not JSON. Correct or delete its row in the table records.") from error


TallyKey = tuple[str, str, str, str, str]  # day, spider, type, field, rule: the order in which rows are written


def sum_tallies(tallies: Sequence[Tally]) -> list[tuple[TallyKey, tuple[int, int, int]]]:
    """The sums of checked, filled and faulty for each key, in the order of keys, so that all writers lock in the same
    order."""
    sums: dict[TallyKey, list[int]] = {}
    times = Counter(map(id, tallies))  # pages that are alike share their tallies
    for tally in {id(tally): tally for tally in tallies}.values():
        key = (tally.day, tally.spider, tally.type, tally.field, tally.rule)
        one = sums.get(key)
        if one is None:
            one = sums[key] = [0, 0, 0]
        count = times[id(tally)]
        one[0] += tally.checked * count
        one[1] += tally.filled * count
        one[2] += tally.faulty * count
    return [(key, (one[0], one[1], one[2])) for key, one in sorted(sums.items())]
