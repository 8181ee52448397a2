"""Which type a column has, read off the values in it. Pure: no file, no Arrow.

Every value is held without loss, or the column is text. A declared field (model/schema.py) is what makes a text a date,
a time or a decimal; a text that nobody declared stays text, whatever it looks like. `Money` is told by its two fields.

    bool, int (64 bit), float, text, decimal, date, zoned (a moment), naive (a time without zone)
    list        of one kind of values
    struct      objects that all have the same fields
    json        everything else, as JSON text: mixed kinds, objects of changing fields, integers beyond 64 bit
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

import msgspec

Declared: TypeAlias = Mapping[str, Any]  # the description of one field: {"type": "list", "of": {"type": "text"}}

TEXTUAL = frozenset({"text", "decimal", "date", "zoned", "naive"})
SCALES = (4, 9, 18)  # digits after the point: a few steps, so that files of many days have one type
DIGITS = 38
MAX_LEVELS = 8
MAX_FIELDS = 64  # of a struct

_EXACT = 2**53  # integers up to here are floats without loss
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL = re.compile(r"[+-]?[0-9]{1,60}(\.[0-9]{1,60})?")
_MONEY = {"amount": {"type": "decimal"}, "currency": {"type": "text"}}
_NOTHING: Declared = {}


class Kind(msgspec.Struct, frozen=True):
    """The type of a column, or of what is inside one. `scale` is of a decimal, `inside` of a list or a struct."""

    word: str
    scale: int = 0
    inside: tuple[tuple[str, Kind], ...] = ()


class Sample:
    """What the values of one column have been so far, in memory that does not grow with their number."""

    __slots__ = ("_children", "_declared", "_level", "_scale", "_unlike", "_whole", "_wide", "_words")

    def __init__(self, level: int = 0) -> None:
        self._words: set[str] = set()
        self._level = level
        self._wide = False  # an integer that a float cannot hold
        self._whole = 0  # digits before the point, of decimals
        self._scale = 0
        self._children: dict[str, Sample] | None = None
        self._unlike = False  # objects of different fields
        self._declared: Declared | None = None

    def see(self, value: Any, declared: Declared = _NOTHING) -> None:  # Any: whatever JSON holds
        if declared is not self._declared:
            self._declared = declared if self._declared in (None, declared) else _NOTHING
        if value is None:
            return
        kind = type(value)
        if kind is str:
            self._words.add(self._word_of(value, declared.get("type")) if declared else "text")
        elif kind is bool:
            self._words.add("bool")
        elif kind is int:
            exact = -_EXACT <= value <= _EXACT
            fits = "float" if exact and declared.get("type") == "float" else "int"
            self._words.add(fits if _INT_MIN <= value <= _INT_MAX else "json")
            self._wide = self._wide or not exact
        elif kind is float:
            self._words.add("float")
        elif self._level >= MAX_LEVELS:
            self._words.add("json")
        elif kind is list:
            self._words.add("list")
            self._see_list(value, declared.get("of") or _NOTHING)
        else:
            self._words.add("struct")
            self._see_object(value, declared)

    def _word_of(self, text: str, wanted: object) -> str:
        if wanted == "datetime":
            moment = moment_of(text)
            return "text" if moment is None else ("zoned" if moment.tzinfo is not None else "naive")
        if wanted == "date":
            return "text" if day_of(text) is None else "date"
        if wanted == "decimal":
            number = decimal_of(text)
            if number is None:
                return "text"
            whole, _, fraction = text.strip("+-").partition(".")
            self._whole, self._scale = max(self._whole, len(whole)), max(self._scale, len(fraction))
            return "decimal"
        return "text"

    def _see_list(self, values: list[Any], declared: Declared) -> None:
        inside = self._inside("item")
        inside.see(None, declared)  # an empty list has a type as well, where it is declared
        for value in values:
            inside.see(value, declared)

    def _see_object(self, value: dict[str, Any], declared: Declared) -> None:
        if self._unlike:
            return
        fields = _MONEY if value.keys() == _MONEY.keys() else declared.get("fields") or _NOTHING
        known = self._children
        # A list's only child is called "item": a column of lists and objects is JSON anyway.
        if not 0 < len(value) <= MAX_FIELDS or (known is not None and known.keys() != value.keys()):
            self._unlike, self._children = True, None
            return
        for name, inner in value.items():
            self._inside(name).see(inner, fields.get(name) or _NOTHING)

    def _inside(self, name: str) -> Sample:
        if self._children is None:
            self._children = {}
        if name not in self._children:
            self._children[name] = Sample(self._level + 1)
        return self._children[name]

    def kind(self) -> Kind:
        """The narrowest type that holds all of it."""
        words = self._words
        if not words:
            return _declared_kind(self._declared or _NOTHING)
        if words == {"int", "float"} and not self._wide:
            return Kind("float")
        if words == {"decimal"}:
            scale = next((scale for scale in SCALES if scale >= self._scale), None)
            fits = scale is not None and self._whole + scale <= DIGITS
            return Kind("decimal", scale or 0) if fits else Kind("text")
        if words <= TEXTUAL and len(words) > 1:
            return Kind("text")
        if len(words) > 1 or words == {"json"} or (words == {"struct"} and self._unlike):
            return Kind("json")
        (word,) = words
        if word not in ("list", "struct"):
            return Kind(word)
        inside = tuple((name, child.kind()) for name, child in (self._children or {}).items())
        return Kind("json") if any(kind.word == "json" for _, kind in inside) else Kind(word, 0, inside)


def _declared_kind(declared: Declared) -> Kind:
    """The type of a column without one value in it."""
    word = declared.get("type")
    if word in ("bool", "int", "float", "date"):
        return Kind(word)
    if word == "decimal":
        return Kind("decimal", SCALES[0])
    if word == "money":
        return Kind("struct", 0, tuple((name, _declared_kind(inner)) for name, inner in _MONEY.items()))
    if word == "list":
        return Kind("list", 0, (("item", _declared_kind(declared.get("of") or _NOTHING)),))
    return Kind("zoned") if word == "datetime" else Kind("text")


def moment_of(text: str) -> datetime | None:
    """A date and time as items write them, in UTC where it names a zone. None for any other text."""
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February; the year 0 somewhere
        return None


def day_of(text: str) -> date | None:
    if _DAY.fullmatch(text) is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def decimal_of(text: str) -> Decimal | None:
    """A plain decimal number; None for any other text, exponents too."""
    return Decimal(text) if _DECIMAL.fullmatch(text) else None
