"""`Pipeline`: turns the items that a spider yields into records. Steps in order: clean, validate, the spider's own,
validate again if there were any, deduplicate, inspect (inspection.py).

How it fails: an item without required fields, or a step that raises, is a ParseFailed for the whole page. A step may
also drop an item, with a reason; the rest of the page goes on. How it recovers: nothing is stored before all items of
the page have passed, so the page can simply be parsed again.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from ..errors import ParseFailed
from ..model.item import AnyItem, Item, content_hash, item_data, item_key, schema_of, type_name, validate
from ..model.record import ItemSchema, Record, RecordIdentity, Tally
from ..model.url import site_of
from ..process.signals import is_cancellation
from .clean import clean
from .inspection import Inspection, Inspector, failure_in
from .quality_rules import is_filled, values_of

MOST_REMARKS = 5  # kinds of drops, and of faults, that are listed for one page


class PageLike(Protocol):
    """The part of a page that the pipeline itself needs; steps receive the spider's own `Page`."""

    @property
    def url(self) -> str: ...


class Drop(msgspec.Struct, frozen=True):
    """A step returns this to leave an item out."""

    reason: str


Step: TypeAlias = Callable[..., Any]  # (item, page) -> item | Drop | None, plain or async


DEDUPLICATE = "deduplicate"  # the built-in step that leaves one item of each key


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A dropped item: by which step, and why."""

    step: str
    reason: str
    type: str = ""


class Piped(msgspec.Struct, frozen=True):
    """The records of one page to store, and the dropped items."""

    records: list[Record]
    dropped: list[Dropped]
    inspection: Inspection = Inspection()
    schemas: tuple[ItemSchema, ...] = ()

    @property
    def held_back(self) -> bool:
        """Did a step drop an item? Of several items with one key on a page, one is the record: none is held back."""
        return any(one.step != DEDUPLICATE for one in self.dropped)

    def remarks(self) -> str:
        """One line about dropped items and faults; empty if there were none."""
        if not self.dropped and not self.inspection.faults:
            return ""
        told = [
            f"{_counted(count, 'item')} dropped by {what}"
            for what, count in _tally(f"{one.step} ({one.reason})" for one in self.dropped)
        ]
        told += [
            f"{_counted(count, 'fault')} {rule}"
            for rule, count in _tally(f"{one.rule} ({one.message})" for one in self.inspection.faults)
        ]
        return "; ".join(told)


def _tally(entries: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(entries).most_common(MOST_REMARKS)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class Pipeline:
    """The steps of one spider, shared by all pages. `cleans=False` leaves texts as the spider gave them."""

    def __init__(self, steps: Sequence[Step] = (), *, inspector: Inspector | None = None, cleans: bool = True) -> None:
        self._steps = tuple((_name_of(step), step) for step in steps)
        self._inspector = inspector
        self._cleans = cleans
        # Are there user-defined steps or rules, which may take any time?
        self.has_user_code = bool(steps) or (inspector is not None and inspector.has_user_code)

    async def run(
        self,
        items: Iterable[AnyItem],
        page: PageLike,
        *,
        spider: str,
        job: str,
        now: float,
        new: bool = False,
    ) -> Piped:
        """Pass the items of one page through all steps. `now` is when they were scraped. The items of a `new` page have
        no earlier records to compare with.

        Raises ParseFailed, and BackendUnavailable if the inspector asks the store.
        """
        dropped: list[Dropped] = []
        kept: list[AnyItem] = []
        for item in items:
            checked = _checked(item, self._cleans)
            passed = await self._own_steps(checked, page, dropped) if self._steps else checked
            if passed is not None:
                kept.append(passed)
        site = site_of(page.url)
        winners = _winners(kept, dropped, site)
        inspection = Inspection()
        if self._inspector is not None:
            found = [(identity, item) for identity, (item, _) in winners.items()]
            inspection = await self._inspector.inspect(found, page, now, new=new)
        records: list[Record] = []
        schemas: dict[str, ItemSchema] = {}
        for (type_, _, key), (item, data) in winners.items():
            schema = schema_of(item)
            if schema is not None:
                schemas[schema.id] = schema
            record = Record(
                type=type_,
                site=site,
                key=key,
                url=page.url,
                job=job,
                spider=spider,
                data=data,
                content_hash=content_hash(data),
                scraped_at=now,
                schema=schema.id if schema is not None else "",
            )
            records.append(record)
        return Piped(records, dropped, inspection, tuple(schemas.values()))

    def refused(self, failure: ParseFailed, at: float) -> tuple[Tally, ...]:
        """The tallies of a page that could not be parsed."""
        return self._inspector.refused(failure, at) if self._inspector is not None else ()

    async def _own_steps(self, item: AnyItem, page: PageLike, dropped: list[Dropped]) -> AnyItem | None:
        for name, step in self._steps:
            try:
                result = step(item, page)
                if inspect.isawaitable(result):
                    result = await result
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a step may raise anything; it fails this page only
                if is_cancellation(error):
                    raise
                what = f"The pipeline step {name} failed on an item ({type_name(item)}) of {page.url}"
                raise failure_in(what, error) from error
            if result is None or isinstance(result, Drop):
                reason = result.reason if result is not None else "the step returned nothing"
                dropped.append(Dropped(name, reason, type_name(item)))
                return None
            if not isinstance(result, Item | dict):
                raise ParseFailed(
                    f"The pipeline step {name} gave a {type(result).__name__}."
                    f" It may give the item, Drop(reason) or None."
                )
            item = result
        return _validated(item)


def _checked(item: AnyItem, cleans: bool) -> AnyItem:
    try:
        return _validated(clean(item) if cleans else item)
    except RecursionError as error:
        raise ParseFailed(f"An item ({type_name(item)}) is nested too deeply to be stored. Flatten it.") from error


def _validated(item: AnyItem) -> AnyItem:
    try:
        return validate(item)
    except ParseFailed as refused:
        fields = [line.partition(" ")[0].partition(".")[0].partition("[")[0] for line in refused.detail.splitlines()]
        raise ParseFailed(str(refused), detail=refused.detail, type=type_name(item), fields=fields) from None


def _name_of(step: Step) -> str:
    return str(getattr(step, "__name__", type(step).__name__))


def _winners(items: list[AnyItem], dropped: list[Dropped], site: str) -> dict[RecordIdentity, tuple[AnyItem, str]]:
    """One item per key with its JSON, in order of first appearance. Of several items the last wins, unless it has fewer
    filled fields."""
    winners: dict[RecordIdentity, tuple[AnyItem, str]] = {}
    for item in items:
        data = item_data(item)
        identity = (type_name(item), site, item_key(item))
        rival = winners.get(identity)
        if rival is not None:
            dropped.append(Dropped(DEDUPLICATE, f"another item of the page has the key {identity[2]}", identity[0]))
            if _filled(item) < _filled(rival[0]):
                continue
        winners[identity] = (item, data)
    return winners


def _filled(item: AnyItem) -> int:
    return sum(map(is_filled, values_of(item).values()))
