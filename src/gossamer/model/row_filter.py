"""A condition on the fields of a record, as people write it in `where`: `price.amount < 10 and brand == "Acme"`.

A comparison has a field on its left (dots lead into objects; `_type`, `_site`, `_key`, `_url` and `_spider` are the
store's own), one of `== != < <= > >= contains`, and a text in quotes, a number, `true`, `false` or `none` on its
right. `and`, `or`, `not` and brackets combine them. A number is compared by value, whether the item holds it as a
number or as a text of digits, and so is a moment in ISO 8601, in whatever zone (UTC where none is named). A field that
is missing is `none`, and less or more than nothing. Nothing is evaluated as a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, TypeAlias

from ..errors import Misconfigured

Fields: TypeAlias = Mapping[str, Any]
Test: TypeAlias = Callable[[Fields], bool]

LONGEST = 2000  # characters of a condition
DEEPEST = 20  # brackets in brackets

_WORD = re.compile(
    r"""\s*(?:(?P<text>"[^"]*"|'[^']*')|(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?)(?![\w.])|(?P<sign>==|!=|<=|>=|=|<|>|\(|\))"""
    r"""|(?P<name>[^\W\d][\w.-]*))"""
)
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ]|$)")
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
_VALUES = {"true": True, "false": False, "none": None, "null": None}


def row_filter(text: str) -> Test:
    """The test that a condition describes.

    >>> row_filter('price.amount < 10')({"price": {"amount": "9.50"}})
    True

    Raises Misconfigured for one that cannot be read.
    """
    if len(text) > LONGEST:
        raise Misconfigured(f"A condition may have {LONGEST:,} characters.")
    return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words: list[tuple[str, str]] = []
        place, end = 0, len(text.rstrip())
        while place < end:
            found = _WORD.match(text, place)
            if found is None:
                raise self._fault(f"{text[place:].strip()[:20]!r} is not expected")
            self._words.append((found.lastgroup or "", found[found.lastgroup or 0]))
            place = found.end()
        self._next = 0

    def whole(self) -> Test:
        test = self._either(0)
        if self._next < len(self._words):
            raise self._fault(f"{self._words[self._next][1]!r} is not expected")
        return test

    def _either(self, depth: int) -> Test:
        tests = [self._all(depth)]
        while self._take("or"):
            tests.append(self._all(depth))
        return tests[0] if len(tests) == 1 else lambda fields: any(test(fields) for test in tests)

    def _all(self, depth: int) -> Test:
        tests = [self._one(depth)]
        while self._take("and"):
            tests.append(self._one(depth))
        return tests[0] if len(tests) == 1 else lambda fields: all(test(fields) for test in tests)

    def _one(self, depth: int) -> Test:
        if depth > DEEPEST:
            raise self._fault("it is nested too deeply")
        if self._take("not"):
            inner = self._one(depth + 1)
            return lambda fields: not inner(fields)
        if self._take("("):
            inner = self._either(depth + 1)
            if not self._take(")"):
                raise self._fault("a bracket is not closed")
            return inner
        return self._comparison()

    def _comparison(self) -> Test:
        kind, field = self._word("a field")
        if kind != "name":
            raise self._fault(f"a field is expected, not {field}")
        _, sign = self._word("a comparison after " + field)
        kind, written = self._word("a value")
        wanted = self._value(kind, written)
        if sign != "contains" and (moment := _moment(wanted)) is not None:
            wanted = _Moment(wanted, moment)
        path = field.split(".")
        if sign in ("==", "=", "!="):
            unlike = sign == "!="
            return lambda fields: _equal(value_at(fields, path), wanted) is not unlike
        if sign == "contains":
            return lambda fields: _contains(value_at(fields, path), wanted)
        if sign not in _SIGNS:
            raise self._fault(f"{sign!r} is no comparison; there are == != < <= > >= contains")
        compare = _SIGNS[sign]
        if isinstance(wanted, bool) or wanted is None:
            raise self._fault(f"{written} is neither less nor more than anything")
        return lambda fields: _ordered(value_at(fields, path), wanted, compare)

    def _value(self, kind: str, written: str) -> Any:
        if kind == "text":
            return written[1:-1]
        if kind == "number":
            return Decimal(written)
        if kind == "name" and written.lower() in _VALUES:
            return _VALUES[written.lower()]
        raise self._fault(f'{written} is no value; a text has quotes: "{written}"')

    def _word(self, what: str) -> tuple[str, str]:
        if self._next == len(self._words):
            raise self._fault(f"{what} is missing at the end")
        self._next += 1
        return self._words[self._next - 1]

    def _take(self, word: str) -> bool:
        if self._next < len(self._words):
            kind, written = self._words[self._next]
            if kind != "text" and written.lower() == word:
                self._next += 1
                return True
        return False

    def _fault(self, why: str) -> Misconfigured:
        return Misconfigured(
            f"The condition {self._text[:100]!r} cannot be read: {why}. Write it like price.amount < 10 and"
            f' brand == "Acme".'
        )


def value_at(fields: Fields, path: list[str]) -> Any:
    """The value at a path of names; None where there is none."""
    value: Any = fields
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


class _Moment(NamedTuple):
    text: str
    at: datetime


def _moment(value: Any) -> datetime | None:
    if not isinstance(value, str) or not _MOMENT.match(value):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, _Moment):
        return value == wanted.text or _moment(value) == wanted.at
    return _number(value) == wanted if isinstance(wanted, Decimal) else value == wanted


def _contains(value: Any, wanted: Any) -> bool:
    if isinstance(value, str):
        return str(wanted) in value
    return isinstance(value, list) and any(_equal(one, wanted) for one in value)


def _ordered(value: Any, wanted: Any, compare: Callable[[Any, Any], bool]) -> bool:
    if isinstance(wanted, Decimal):
        number = _number(value)
        return number is not None and compare(number, wanted)
    if isinstance(wanted, _Moment):
        moment = _moment(value)
        if moment is not None:
            return compare(moment, wanted.at)
        wanted = wanted.text
    return isinstance(value, str) and compare(value, wanted)
