"""The inspector: applies the rules of quality_rules.py to the items of a page and counts the faults for the score.

It asks the store one thing only: the earlier data of records that have a price. How it fails: a rule of the user's own
that raises fails the page with ParseFailed, as any step does.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from ..errors import ParseFailed
from ..model.item import AnyItem, safe_text, type_name
from ..model.record import RecordIdentity, Tally, day_of
from ..process.signals import is_cancellation
from ..settings.tables import Quality
from .quality_rules import PRICES, Fault, Rule, faults_of, is_filled, own_faults, values_of

Latest: TypeAlias = Callable[[Sequence[RecordIdentity]], Awaitable[dict[RecordIdentity, str]]]

WHOLE = "*"  # as a field: the item as a whole; as a type: the pages of a spider
USUAL = "usual"  # the "rule" of a tally that says: by that day the field was nearly always filled
NO_ITEMS = "no-items"
MOST_FIELDS = 200  # fields of one type that are counted; a dict may have a new key in every item
ENOUGH = 50  # items that make a habit
RECENT = 30  # last items that show whether a habit is broken
FEWEST = 10  # of those, before it is judged


class Habits:
    """Which fields are nearly always filled, as the tallies of earlier days (`USUAL`) or the first items of today show.

    A product without a price is no fault; when most of the last products have none, something is wrong. What was once
    a habit stays one for as long as the days are remembered: a layout that changes must not become the new habit.
    """

    def __init__(self, share: float | None, counted: Iterable[Tally] = (), *, strict: bool = False) -> None:
        self._share = share
        self._strict = strict  # one empty value breaks a habit; used for pages that were held back for such a value
        self._usual = {(one.type, one.field) for one in counted if one.rule == USUAL}
        self._checked: dict[tuple[str, str], int] = {}
        self._filled: dict[tuple[str, str], int] = {}
        self._recent: dict[tuple[str, str], deque[bool]] = {}
        self._fields: dict[str, int] = {}  # how many fields of a type are watched

    def broken(self, type: str, field: str) -> bool:
        """True when the field was nearly always filled and is empty in most of the last items."""
        if self._share is None or (type, field) not in self._usual:
            return False
        if self._strict:
            return True
        recent = self._recent.get((type, field), ())
        return len(recent) >= FEWEST and 2 * sum(recent) < len(recent)

    def note(self, type: str, field: str, filled: bool) -> bool:
        """Count one value. True when it has just completed a habit, which the caller then stores as a tally.

        Fields beyond MOST_FIELDS of a type are not watched.
        """
        name = (type, field)
        recent = self._recent.get(name)
        if recent is None:
            if self._fields.get(type, 0) >= MOST_FIELDS:
                return False
            self._fields[type] = self._fields.get(type, 0) + 1
            recent = self._recent[name] = deque(maxlen=RECENT)
        recent.append(filled)
        checked = self._checked.get(name, 0)
        if checked >= ENOUGH:
            return False
        self._checked[name] = checked + 1
        self._filled[name] = self._filled.get(name, 0) + filled
        if checked + 1 < ENOUGH or self._share is None or self._filled[name] < self._share * ENOUGH:
            return False
        self._usual.add(name)
        return True

    def watches(self, type: str, field: str) -> bool:
        return (type, field) in self._recent


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the inspector found on one page."""

    tallies: tuple[Tally, ...] = ()
    faults: tuple[Fault, ...] = ()
    fine: int = 0  # items without a fault
    faulty: int = 0
    empty: bool = False  # no items, and that is a fault


class Inspector:
    """The inspector of one spider in one process. Without `latest` no price is compared with the one before."""

    def __init__(
        self,
        spider: str,
        terms: Quality,
        *,
        rules: Sequence[Rule] = (),
        habits: Habits | None = None,
        latest: Latest | None = None,
    ) -> None:
        self._spider = spider
        self._terms = terms
        self._rules = tuple((str(getattr(rule, "__name__", type(rule).__name__)), rule) for rule in rules)
        self._habits = habits or Habits(terms.usual)
        self._latest = latest if terms.price_jump is not None else None
        self.has_user_code = bool(self._rules)

    async def inspect(
        self, items: Sequence[tuple[RecordIdentity, AnyItem]], page: object, at: float, *, new: bool = False
    ) -> Inspection:
        """Inspect all items of the page. A `new` page was never visited before, so the store is not asked for earlier
        records. Raises ParseFailed, BackendUnavailable."""
        counted = _Counts(self._spider, day_of(at))
        before = {} if new else await self._before(items)
        faults: list[Fault] = []
        faulty = 0
        for identity, item in items:
            found = faults_of(item, self._terms, before=before.get(identity), broken=self._habits.broken)
            if self._rules:
                found += self._own(item, page)
            counted.item(item, found, self._habits)
            faults += found
            faulty += bool(found)
        empty = self._unusually_empty(counted, page, bool(items))
        if empty is not None:
            faults.append(empty)
        counted.page(failed=False)
        return Inspection(
            tallies=counted.tallies(),
            faults=tuple(faults),
            fine=len(items) - faulty,
            faulty=faulty + (empty is not None),
            empty=empty is not None,
        )

    def _unusually_empty(self, counted: _Counts, page: object, filled: bool) -> Fault | None:
        """The fault of a page without items whose callback nearly always found some, and lately finds none."""
        kind = getattr(page, "kind", "")
        if not kind:
            return None
        broken = not filled and self._habits.broken(WHOLE, kind)
        counted.kind(kind, filled, broken, self._habits)
        return Fault(WHOLE, NO_ITEMS, f"no items, as on most pages of {kind} of late") if broken else None

    def refused(self, failure: ParseFailed, at: float) -> tuple[Tally, ...]:
        """The tallies of a page that could not be parsed."""
        counted = _Counts(self._spider, day_of(at))
        if failure.fields:
            counted.refused(failure.type, failure.fields)
        counted.page(failed=True)
        return counted.tallies()

    async def _before(self, items: Sequence[tuple[RecordIdentity, AnyItem]]) -> dict[RecordIdentity, Mapping[str, Any]]:
        if self._latest is None:
            return {}
        priced = [identity for identity, item in items if _has_price(item)]
        stored = await self._latest(priced) if priced else {}
        found: dict[RecordIdentity, Mapping[str, Any]] = {}
        for identity, data in stored.items():
            try:
                found[identity] = msgspec.json.decode(data, type=dict[str, Any])
            except msgspec.DecodeError:  # written by another program; there is nothing to compare with
                continue
        return found

    def _own(self, item: AnyItem, page: object) -> list[Fault]:
        try:
            return list(own_faults(self._rules, item, page))
        except (ParseFailed, KeyboardInterrupt):
            raise
        except BaseException as error:  # a rule may raise anything; it fails this page only
            if is_cancellation(error):
                raise
            raise failure_in(f"A quality rule failed on a {type_name(item)}", error) from error


def failure_in(what: str, error: BaseException) -> ParseFailed:
    """The failure of a page in which the user's own code raised; its detail is the traceback."""
    told = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
    return ParseFailed(
        safe_text(f"{what}: {told[:500]}"), detail=safe_text("".join(traceback.format_exception(error)))[-20_000:]
    )


def _has_price(item: AnyItem) -> bool:
    names = item.keys() if isinstance(item, dict) else item.__struct_fields__
    return not PRICES.isdisjoint(names)


class _Counts:
    """Adds up the tallies of one page."""

    def __init__(self, spider: str, day: str) -> None:
        self._spider = spider
        self._day = day
        self._counts: dict[tuple[str, str, str], list[int]] = {}

    def _add(self, type: str, field: str, rule: str, checked: int, filled: int, faulty: int) -> None:
        counts = self._counts.get((type, field, rule))
        if counts is None:
            self._counts[type, field, rule] = [checked, filled, faulty]
        else:
            counts[0] += checked
            counts[1] += filled
            counts[2] += faulty

    def item(self, item: AnyItem, faults: Sequence[Fault], habits: Habits) -> None:
        kind = type_name(item)
        wrong = {fault.field for fault in faults} if faults else ()
        self._add(kind, WHOLE, "", 1, 1, 1 if faults else 0)
        values = values_of(item)
        for field, value in values.items():
            filled = is_filled(value)
            if habits.note(kind, field, filled):
                self._add(kind, field, USUAL, 1, 1, 0)
            if habits.watches(kind, field):
                self._add(kind, field, "", 1, int(filled), int(field in wrong))
        for field, rule in dict.fromkeys((fault.field, fault.rule) for fault in faults):
            self._add(kind, field, rule, 0, 0, 1)

    def refused(self, type: str, fields: Sequence[str]) -> None:
        self._add(type, WHOLE, "", 1, 0, 1)
        for field in dict.fromkeys(fields):
            self._add(type, field, "", 1, 0, 1)
            self._add(type, field, "not-as-declared", 0, 0, 1)

    def kind(self, kind: str, filled: bool, broken: bool, habits: Habits) -> None:
        if habits.note(WHOLE, kind, filled):
            self._add(WHOLE, kind, USUAL, 1, 1, 0)
        if habits.watches(WHOLE, kind):
            self._add(WHOLE, kind, "", 1, int(filled), int(broken))
            if broken:
                self._add(WHOLE, kind, NO_ITEMS, 0, 0, 1)

    def page(self, *, failed: bool) -> None:
        self._add(WHOLE, WHOLE, "", 1, int(not failed), int(failed))

    def tallies(self) -> tuple[Tally, ...]:
        return tuple(
            Tally(
                spider=self._spider, day=self._day, type=type, field=field, rule=rule, checked=checked, filled=filled,
                faulty=faulty,
            )
            for (type, field, rule), (checked, filled, faulty) in self._counts.items()
        )  # fmt: skip
