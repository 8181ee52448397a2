"""Inspecting the items of one page: the rules of quality.py applied, and what they find counted for the score.

The only question it asks the store is what a record with a price looked like before. How it fails: a rule of the user's
own that raises is a ParseFailed for the page, as in any step.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from ..errors import ParseFailed
from ..model.item import AnyItem, safe_text, type_name
from ..model.record import Tally
from ..settings.tables import Quality
from .quality import PRICES, Fault, Rule, faults_of, is_filled, own_faults, values_of

Identity: TypeAlias = tuple[str, str, str]  # type, site, key
Latest: TypeAlias = Callable[[Sequence[Identity]], Awaitable[dict[Identity, str]]]

WHOLE = "*"  # the item as a whole, or the pages of a spider
ENOUGH = 50  # items that make a habit
RECENT = 30  # items that show whether a habit is broken
FEWEST = 10  # of these, before it is judged


class Habits:
    """Which fields are nearly always filled: by what was counted on earlier days, else by the first items of today.

    A product without a price is no fault; when most of the last products have none, something is wrong. What is
    learned stays as it is: a layout that changes half way must not become the new habit.
    """

    def __init__(self, share: float | None, counted: Iterable[Tally] = ()) -> None:
        self._share = share
        self._checked: dict[tuple[str, str], int] = {}
        self._filled: dict[tuple[str, str], int] = {}
        self._recent: dict[tuple[str, str], deque[bool]] = {}
        for tally in counted:
            if not tally.rule and WHOLE not in (tally.type, tally.field):
                self._count((tally.type, tally.field), tally.checked, tally.filled)

    def broken(self, type: str, field: str) -> bool:
        """Was the field nearly always filled, and is it empty in most of the last items?"""
        checked = self._checked.get((type, field), 0)
        if self._share is None or checked < ENOUGH or self._filled[type, field] < self._share * checked:
            return False
        recent = self._recent.get((type, field), ())
        return len(recent) >= FEWEST and 2 * sum(recent) < len(recent)

    def note(self, type: str, field: str, filled: bool) -> None:
        if self._checked.get((type, field), 0) < ENOUGH:
            self._count((type, field), 1, int(filled))
        self._recent.setdefault((type, field), deque(maxlen=RECENT)).append(filled)

    def _count(self, field: tuple[str, str], checked: int, filled: int) -> None:
        self._checked[field] = self._checked.get(field, 0) + checked
        self._filled[field] = self._filled.get(field, 0) + filled


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on one page."""

    tallies: tuple[Tally, ...] = ()
    faults: tuple[Fault, ...] = ()
    fine: int = 0  # items without a fault
    faulty: int = 0


class Inspector:
    """Of one spider in one process. Without `latest` no price is compared with the one before."""

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

    async def inspect(self, items: Sequence[tuple[Identity, AnyItem]], page: object, at: float) -> Inspection:
        """Look at all items that the page gave. Raises ParseFailed, BackendUnavailable."""
        counted = _Counts(self._spider, day_of(at))
        before = await self._before(items)
        faults: list[Fault] = []
        faulty = 0
        for identity, item in items:
            found = faults_of(item, self._terms, before=before.get(identity), broken=self._habits.broken)
            if self._rules:
                found += self._own(item, page)
            counted.item(item, found, self._habits)
            faults += found
            faulty += bool(found)
        counted.page(failed=False)
        return Inspection(tallies=counted.tallies(), faults=tuple(faults), fine=len(items) - faulty, faulty=faulty)

    def refused(self, failure: ParseFailed, at: float) -> tuple[Tally, ...]:
        """What is counted for a page that could not be parsed."""
        counted = _Counts(self._spider, day_of(at))
        if failure.fields:
            counted.refused(failure.type, failure.fields)
        counted.page(failed=True)
        return counted.tallies()

    async def _before(self, items: Sequence[tuple[Identity, AnyItem]]) -> dict[Identity, Mapping[str, Any]]:
        if self._latest is None:
            return {}
        priced = [identity for identity, item in items if _has_price(item)]
        stored = await self._latest(priced) if priced else {}
        found: dict[Identity, Mapping[str, Any]] = {}
        for identity, data in stored.items():
            try:
                found[identity] = msgspec.json.decode(data, type=dict[str, Any])
            except msgspec.DecodeError:  # written by others; nothing to compare with
                continue
        return found

    def _own(self, item: AnyItem, page: object) -> list[Fault]:
        try:
            return list(own_faults(self._rules, item, page))
        except ParseFailed:
            raise
        except Exception as error:
            told = "".join(traceback.format_exception_only(error)).strip().rpartition("\n")[2]
            raise ParseFailed(
                safe_text(f"A quality rule failed on a {type_name(item)}: {told[:500]}"),
                detail=safe_text("".join(traceback.format_exception(error)))[-20_000:],
            ) from error


def day_of(at: float) -> str:
    return _day(int(at // 86_400))


@lru_cache(maxsize=16)
def _day(number: int) -> str:
    return datetime.fromtimestamp(number * 86_400, UTC).strftime("%Y-%m-%d")


def _has_price(item: AnyItem) -> bool:
    names = item.keys() if isinstance(item, dict) else item.__struct_fields__
    return not PRICES.isdisjoint(names)


class _Counts:
    """Adds up, for one page, what becomes tallies."""

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
            habits.note(kind, field, filled)
            self._add(kind, field, "", 1, int(filled), int(field in wrong))
        for field, rule in dict.fromkeys((fault.field, fault.rule) for fault in faults):
            self._add(kind, field, rule, 0, 0, 1)

    def refused(self, type: str, fields: Sequence[str]) -> None:
        self._add(type, WHOLE, "", 1, 0, 1)
        for field in dict.fromkeys(fields):
            self._add(type, field, "", 1, 0, 1)
            self._add(type, field, "not-as-declared", 0, 0, 1)

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
