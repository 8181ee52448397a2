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
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from ..errors import ParseFailed
from ..model.failure_groups import fold
from ..model.item import (
    AnyItem,
    Item,
    KeyedDict,
    content_hash,
    declared_key,
    in_own_order,
    item_content,
    on_fault_of,
    own_url,
    safe_text,
    schema_of,
    type_name,
    validate,
)
from ..model.item_account import LONGEST_EXAMPLE, REASON_OF_STEP, Conflict, ItemCounts, OnFault, add_reasons
from ..model.record import ItemSchema, Record, RecordIdentity, Tally
from ..model.route import FetchOptions
from ..model.url import UrlRules, site_of
from ..process.signals import is_cancellation
from .clean import clean
from .inspection import Inspection, Inspector, failure_in
from .quality_rules import is_filled, values_of

_UNLINKED = FetchOptions(unlinked=True)  # a plain GET of a start page
MARK_BYTES = 5  # of a fingerprint, in the key of an item without one
ON_FAULT_STEP = "on_fault"  # the step that drops faulty items
MOST_FAULTS = 50  # listed for a page that fails because of them
LONGEST_REASON = 120  # characters of a drop's reason in the account
MOST_REMARKS = 5  # kinds of drops, and of faults, that are listed for one page


class PageLike(Protocol):
    """The part of a page that the pipeline itself needs; steps receive the spider's own `Page`."""

    @property
    def url(self) -> str: ...


class Drop(msgspec.Struct, frozen=True):
    """A step returns this to leave an item out. `step` is counted in place of the step's own name."""

    reason: str
    step: str = ""


Step: TypeAlias = Callable[..., Any]  # (item, page) -> item | Drop | None, plain or async


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A dropped item: by which step, and why."""

    step: str
    reason: str
    type: str = ""


class Piped(msgspec.Struct, frozen=True):
    """The records of one page to store, the dropped items, and the account of all items as far as it is known before
    the records are stored."""

    records: list[Record]
    dropped: list[Dropped]
    inspection: Inspection = Inspection()
    schemas: tuple[ItemSchema, ...] = ()
    items: ItemCounts = ItemCounts()

    @property
    def held_back(self) -> bool:
        """Is something that the page says not in its records: an item that a step dropped, or one in conflict?"""
        return bool(self.dropped) or self.items.conflict > 0

    def remarks(self) -> str:
        """One line about dropped items, conflicts and faults; empty if there were none."""
        clash = self.items.example
        if not self.dropped and clash is None and not self.inspection.faults:
            return ""
        told = []
        if clash is not None:
            told.append(f"{_counted(self.items.conflict, 'item')} in conflict (another one has the key {clash.key})")
        told += [
            f"{_counted(count, 'item')} dropped by {what}"
            for what, count in _tally(f"{one.step} ({one.reason})" for one in self.dropped)
        ]
        told += [
            f"{_counted(count, 'fault')} {rule}"
            for rule, count in _tally(f"{one.rule} ({one.message})" for one in self.inspection.faults)
        ]
        return "; ".join(told)


def _reasons(dropped: list[Dropped]) -> dict[str, int]:
    """By step and reason, without the values in it: a step may name each item."""
    reasons: dict[str, int] = {}
    for (step, reason), count in Counter((one.step, one.reason) for one in dropped).items():
        name = f"{step}{REASON_OF_STEP}{fold(reason)}"[:LONGEST_REASON]
        add_reasons(reasons, {safe_text(name): count})
    return reasons


def _tally(entries: Iterable[str]) -> list[tuple[str, int]]:
    return Counter(entries).most_common(MOST_REMARKS)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


class _NotAsDeclared(ParseFailed):
    """An item misses required fields, or has some of the wrong type."""


class Pipeline:
    """The steps of one spider, shared by all pages. `cleans=False` leaves texts as the spider gave them. `on_fault` is
    what becomes of a faulty item whose type does not say. `rules` tell a plain request from others for the same URL."""

    def __init__(
        self,
        steps: Sequence[Step] = (),
        *,
        inspector: Inspector | None = None,
        cleans: bool = True,
        on_fault: OnFault = "store",
        rules: UrlRules | None = None,
    ) -> None:
        self._steps = tuple((_name_of(step), step) for step in steps)
        self._inspector = inspector
        self._cleans = cleans
        self._on_fault = on_fault
        self._rules = rules or UrlRules()
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
        request: tuple[str, bytes] | None = None,
    ) -> Piped:
        """Pass the items of one page through all steps. `now` is when they were scraped. The items of a `new` page have
        no earlier records to compare with. `request` is the URL and the fingerprint of the page's task.

        Raises ParseFailed, and BackendUnavailable if the inspector asks the store.
        """
        dropped: list[Dropped] = []
        kept: list[AnyItem] = []
        yielded = refused = 0
        for item in items:
            yielded += 1
            try:
                checked = _checked(item, self._cleans)
                passed = await self._own_steps(checked, page, dropped) if self._steps else checked
            except _NotAsDeclared as failure:
                if on_fault_of(item, self._on_fault) != "drop":
                    failure.faulty = 1
                    raise
                refused += 1
                dropped.append(Dropped(ON_FAULT_STEP, failure.detail.partition("\n")[0], type_name(item)))
                continue
            if passed is not None:
                kept.append(passed)
        refused_early = refused
        site = site_of(page.url)
        basket = _Winners(site, page.url, partial(self._place, page.url, request))
        for item in kept:
            basket.add(item)
        winners = basket.found
        inspection = Inspection()
        if self._inspector is not None:
            found = [(identity, item) for identity, (item, _) in winners.items()]
            inspection = await self._inspector.inspect(found, page, now, new=new)
            if inspection.by_item:
                refused += self._refuse(found, inspection, winners, dropped, page)
        records: list[Record] = []
        schemas: dict[str, ItemSchema] = {}
        for (type_, _, key), (item, content) in winners.items():
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
                data=in_own_order(item, content),
                content_hash=content_hash(content),
                scraped_at=now,
                schema=schema.id if schema is not None else "",
            )
            records.append(record)
        counts = ItemCounts(
            yielded=yielded,
            equal=basket.equal,
            conflict=basket.conflict,
            dropped=len(dropped) - refused,
            faulty=refused,
            fine=inspection.fine,
            flawed=inspection.faulty + refused_early,
            reasons=_reasons(dropped) if dropped else {},
            example=basket.example,
        )
        return Piped(records, dropped, inspection, tuple(schemas.values()), counts)

    def _place(self, url: str, request: tuple[str, bytes] | None) -> str:
        """What stands for the page in the key of an item without one: its URL, and for a request that is more than a
        plain GET what tells it from others for this URL."""
        place = safe_text(url)
        if request is None or request[1] in (self._rules.fingerprint(request[0], how) for how in (None, _UNLINKED)):
            return place
        return f"{place} {request[1][:MARK_BYTES].hex()}"

    def _refuse(
        self,
        found: Sequence[tuple[RecordIdentity, AnyItem]],
        inspection: Inspection,
        winners: dict[RecordIdentity, tuple[AnyItem, str]],
        dropped: list[Dropped],
        page: PageLike,
    ) -> int:
        """Leave out the faulty items whose type says so; return how many. Raises ParseFailed if one fails its page."""
        refused, failing = 0, []
        for place, faults in inspection.by_item.items():
            identity, item = found[place]
            match on_fault_of(item, self._on_fault):
                case "drop":
                    del winners[identity]
                    dropped.append(Dropped(ON_FAULT_STEP, f"{faults[0].field} is {faults[0].rule}", identity[0]))
                    refused += 1
                case "fail":
                    failing.append(faults)
        if failing:
            told = [fault.message for faults in failing for fault in faults]
            failure = ParseFailed(
                safe_text(f"{_counted(len(failing), 'item')} of {page.url} faulty, and on_fault = 'fail': {told[0]}"),
                detail=safe_text("\n".join(told[:MOST_FAULTS])),
            )
            failure.faulty = len(failing)
            raise failure
        return refused

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
                result = result or Drop("the step returned nothing")
                dropped.append(Dropped(result.step or name, result.reason, type_name(item)))
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
        raise _NotAsDeclared(str(refused), detail=refused.detail, type=type_name(item), fields=fields) from None


def _name_of(step: Step) -> str:
    return str(getattr(step, "__name__", type(step).__name__))


class _Winners:
    """One item per key with its JSON, in order of first appearance. Of several items with one declared key the last
    wins, unless it has fewer filled fields.

    An item without a declared key is known by its `url`, or by its page if it has none. Of several different items of a
    page with the same, the second and later ones are known by their place among these as well.
    """

    def __init__(self, site: str, page: str, place: Callable[[], str]) -> None:
        self._site = site
        self._page = page
        self._place = place
        self._places: dict[tuple[str, str], dict[str, int]] = {}  # by type and url: the place of each content
        self.found: dict[RecordIdentity, tuple[AnyItem, str]] = {}
        self.equal = self.conflict = 0
        self.example: Conflict | None = None

    def add(self, item: AnyItem) -> None:
        content, type_ = item_content(item), type_name(item)
        key = declared_key(item)
        if not key:
            own = own_url(item)
            if own == safe_text(self._page):
                own = self._place()
            key = own or (item.place if isinstance(item, KeyedDict) else "") or self._place()
            places = self._places.setdefault((type_, key), {})
            place = places.setdefault(content, len(places) + 1)
            if place > 1:
                key = f"{key} #{place}"
        identity = (type_, self._site, key)
        rival = self.found.get(identity)
        if rival is not None:
            if rival[1] == content:
                self.equal += 1
                return
            self.conflict += 1
            if self.example is None:
                where = safe_text(self._page[:LONGEST_EXAMPLE])
                self.example = Conflict(type=type_, key=key[:LONGEST_EXAMPLE], url=where)
            if _filled(item) < _filled(rival[0]):
                return
        self.found[identity] = (item, content)


def _filled(item: AnyItem) -> int:
    return sum(map(is_filled, values_of(item).values()))
