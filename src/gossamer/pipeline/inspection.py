"""The inspector: applies the rules of quality_rules.py to the items of a page and counts the faults for the score.

It reads only one thing from the store: the earlier data of records that have a price. How it fails: a user's rule that
raises fails the page with ParseFailed, as any step does.
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
from ..settings.quality_tables import QualityTable
from .quality_rules import PRICES, Fault, Rule, faults_of, fill_of, own_faults, values_of

# One inspected item: its type, its fields, which of them are filled, its faults, and the habits it completed.
_Look: TypeAlias = tuple[str, tuple[str, ...], tuple[bool, ...], Sequence[Fault], Sequence[str]]
Latest: TypeAlias = Callable[[Sequence[RecordIdentity]], Awaitable[dict[RecordIdentity, str]]]

WHOLE = "*"  # as a field: the item as a whole; as a type: the pages of a spider
USUAL = "usual"  # the "rule" of a tally that says: by that day the field was nearly always filled
NO_ITEMS = "no-items"
MOST_FIELDS = 200  # per type; a dict may have a new key in every item
ENOUGH = 50  # items that establish a habit
RECENT = 30  # last items that show whether a habit is broken
FEWEST = 10  # of those, before it is judged
MOST_ALIKE = 256  # kinds of pages with one faultless item whose tallies are cached


class Habits:
    """Which fields are nearly always filled, according to tallies of earlier days (`USUAL`) or the first items of
    today.

    A product without a price is no fault; if most recent products have none, something is wrong. An established habit
    stays one as long as the days are remembered: a layout change must not become the new habit.
    """

    def __init__(self, share: float | None, counted: Iterable[Tally] = (), *, strict: bool = False) -> None:
        self._share = share
        self._strict = strict  # one empty value breaks a habit; for pages that were held back because of such a value
        self._usual = {(one.type, one.field) for one in counted if one.rule == USUAL}
        self._watched: dict[str, dict[str, _Habit]] = {}  # by type and field

    def broken(self, type: str, field: str) -> bool:
        """Was the field nearly always filled, and is it empty in most of the last items?"""
        if self._share is None or (type, field) not in self._usual:
            return False
        if self._strict:
            return True
        habit = self._watched.get(type, {}).get(field)
        recent = habit.recent if habit is not None else ()
        return len(recent) >= FEWEST and 2 * sum(recent) < len(recent)

    def note(self, type: str, fields: Iterable[str], filled: Iterable[bool]) -> list[str]:
        """Count one value of each field. Return the fields that have just completed a habit, which the caller then
        stores as a tally.

        Fields beyond MOST_FIELDS of a type are not watched.
        """
        watched = self._watched.get(type)
        if watched is None:
            watched = self._watched[type] = {}
        completed = []
        for field, full in zip(fields, filled, strict=True):
            habit = watched.get(field)
            if habit is None:
                if len(watched) >= MOST_FIELDS:
                    continue
                habit = watched[field] = _Habit()
            habit.recent.append(full)
            if habit.checked < ENOUGH and habit.count(full, self._share):
                self._usual.add((type, field))
                completed.append(field)
        return completed

    def watches(self, type: str, field: str) -> bool:
        return field in self._watched.get(type, {})


class _Habit:
    """How often one field was filled: in the first ENOUGH items, and in the last ones."""

    __slots__ = ("checked", "filled", "recent")

    def __init__(self) -> None:
        self.checked = self.filled = 0
        self.recent: deque[bool] = deque(maxlen=RECENT)

    def count(self, filled: bool, share: float | None) -> bool:
        """Count one of the first values. True if it completes a habit."""
        self.checked += 1
        self.filled += filled
        return self.checked == ENOUGH and share is not None and self.filled >= share * ENOUGH


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What the inspector found on one page."""

    tallies: tuple[Tally, ...] = ()
    faults: tuple[Fault, ...] = ()
    fine: int = 0  # items without a fault
    faulty: int = 0
    empty: bool = False  # no items, which is a fault here
    by_item: dict[int, Sequence[Fault]] = {}  # the faults of each faulty item, by its index


class Inspector:
    """The inspector of one spider in one process. Without `latest`, prices are not compared with earlier ones."""

    def __init__(
        self,
        spider: str,
        terms: QualityTable,
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
        # By day, callback, type, fields and which of them are filled: the tallies of a page with one faultless item.
        self._alike: dict[tuple[str, str, str, tuple[str, ...], tuple[bool, ...]], tuple[Tally, ...]] = {}
        self.has_user_code = bool(self._rules)

    async def inspect(
        self, items: Sequence[tuple[RecordIdentity, AnyItem]], page: object, at: float, *, new: bool = False
    ) -> Inspection:
        """Inspect all items of the page. A `new` page was never visited before, so the store is not asked for earlier
        records. Raises ParseFailed, BackendUnavailable."""
        before = {} if new else await self._before(items)
        habits, day, kind = self._habits, day_of(at), getattr(page, "kind", "")
        looks: list[_Look] = []
        faults: list[Fault] = []
        by_item: dict[int, Sequence[Fault]] = {}
        for place, (identity, item) in enumerate(items):
            values = values_of(item)
            found = faults_of(item, self._terms, values=values, before=before.get(identity), broken=habits.broken)
            if self._rules:
                found += self._own(item, page)
            fields, filled = fill_of(values)
            looks.append((identity[0], fields, filled, found, habits.note(identity[0], fields, filled)))
            if found:
                faults += found
                by_item[place] = found
        # A page without items, if its callback nearly always found some and recently finds none.
        empty = bool(kind) and not items and habits.broken(WHOLE, kind)
        if empty:
            faults.append(Fault(WHOLE, NO_ITEMS, f"no items, as on most recent pages of {kind}"))
        usual = habits.note(WHOLE, (kind,), (bool(items),)) if kind else []
        return Inspection(
            tallies=self._tallies(day, kind, looks, usual, empty),
            faults=tuple(faults),
            fine=len(items) - len(by_item),
            faulty=len(by_item) + empty,
            empty=empty,
            by_item=by_item,
        )

    def _tallies(
        self, day: str, kind: str, looks: Sequence[_Look], usual: Sequence[str], empty: bool
    ) -> tuple[Tally, ...]:
        """Most pages have one faultless item with the same fields filled as before: they share the same tally objects,
        so that a batch is summed up at once."""
        alike = None
        if len(looks) == 1 and not usual:
            type, fields, filled, found, completed = looks[0]
            if not found and not completed:
                alike = (day, kind, type, fields, filled)
                known = self._alike.get(alike)
                if known is not None:
                    return known
        counted = _Counts(self._spider, day)
        for look in looks:
            counted.item(look, self._habits)
        if kind:
            counted.kind(kind, bool(looks), empty, usual, self._habits)
        counted.page(failed=False)
        tallies = counted.tallies()
        if alike is not None:
            if len(self._alike) >= MOST_ALIKE:
                self._alike.clear()
            self._alike[alike] = tallies
        return tallies

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
            raise failure_in(f"A quality rule failed on an item ({type_name(item)})", error) from error


def failure_in(what: str, error: BaseException) -> ParseFailed:
    """The failure of a page in which the user's code raised; its detail is the traceback."""
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

    def item(self, look: _Look, habits: Habits) -> None:
        kind, fields, filled, faults, completed = look
        wrong = {fault.field for fault in faults}
        self._add(kind, WHOLE, "", 1, 1, 1 if faults else 0)
        for field, full in zip(fields, filled, strict=True):
            if field in completed:
                self._add(kind, field, USUAL, 1, 1, 0)
            if habits.watches(kind, field):
                self._add(kind, field, "", 1, int(full), int(field in wrong))
        for field, rule in dict.fromkeys((fault.field, fault.rule) for fault in faults):
            self._add(kind, field, rule, 0, 0, 1)

    def refused(self, type: str, fields: Sequence[str]) -> None:
        self._add(type, WHOLE, "", 1, 0, 1)
        for field in dict.fromkeys(fields):
            self._add(type, field, "", 1, 0, 1)
            self._add(type, field, "not-as-declared", 0, 0, 1)

    def kind(self, kind: str, filled: bool, broken: bool, usual: Sequence[str], habits: Habits) -> None:
        if usual:
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
