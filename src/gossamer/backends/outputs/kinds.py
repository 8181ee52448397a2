"""The kinds of columns of a target's table, and how the values of items are written for them. Pure.

A kind comes from the declared type of a field, from the type that a database gives a column, or from a value where
nothing is declared.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias

import msgspec

from ...model.record import ItemSchema
from ...store.outputs.plan import column_name

Kind: TypeAlias = Literal["text", "int", "float", "numeric", "number", "bool", "time", "date", "json", "list"]
Cell: TypeAlias = str | int | float | None

_DECLARED: dict[str, Kind] = {
    "text": "text", "int": "int", "float": "float", "decimal": "numeric", "bool": "bool", "datetime": "time",
    "date": "date", "list": "json", "object": "json",
}  # fmt: skip
_MONEY: dict[str, Kind] = {"amount": "numeric", "currency": "text"}
_CODE = re.compile(r"\s*0\d")  # 007 is a code
EXACT = 2**53  # beyond it, floating point does not hold every whole number
LARGEST = 10**29  # a decimal with nine digits behind the point holds no more
OWN_KINDS: dict[str, Kind] = {
    "_type": "text", "_site": "text", "_key": "text", "_url": "text", "_spider": "text", "_version": "int",
    "_first_seen": "time", "_last_changed": "time", "_gone_since": "time",
}  # fmt: skip
_BY_WORD: tuple[tuple[str, Kind], ...] = (
    ("timestamp", "time"), ("datetime", "time"), ("date", "date"), ("bool", "bool"), ("json", "json"), ("bit", "text"),
    ("int", "int"), ("serial", "int"), ("double", "float"), ("float", "float"), ("real", "float"),
    ("numeric", "numeric"), ("decimal", "numeric"),
)  # fmt: skip


def kind_of_type(type: str) -> Kind:
    """The kind of a column by the name of its type in a database; text for all others, which the database reads
    itself."""
    word = type.lower()
    if word.endswith("[]"):
        return "list"
    if "interval" in word or "point" in word:
        return "text"
    return next((kind for part, kind in _BY_WORD if part in word), "text")


def kind_of_value(value: object) -> Kind:
    """The kind of a column of which only a value is known."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int) and EXACT < abs(value) < LARGEST:
        return "numeric"
    if isinstance(value, int | float):
        return "number"  # the next one may have a point
    return "json" if isinstance(value, list | dict) else "text"


def declared_kinds(schemas: Sequence[ItemSchema], sources: Mapping[str, str]) -> dict[str, Kind]:
    """The columns that declared fields fill, with their kinds: those of `sources` (column by column the path of its
    field), or all of them, flattened. Two types that disagree make it a text."""
    found: dict[str, Kind] = {}
    for schema in schemas:
        fields = dict(_flat(msgspec.json.decode(schema.definition).get("fields", {}), "_" if not sources else "."))
        if sources:
            wanted = {column: fields[path] for column, path in sources.items() if path in fields}
        else:
            wanted = {column_name(path): kind for path, kind in fields.items()}
        for column, kind in wanted.items():
            found[column] = kind if found.get(column, kind) == kind else "text"
    own = {column: OWN_KINDS[path] for column, path in sources.items() if path in OWN_KINDS} if sources else OWN_KINDS
    return {**found, **own}


def _flat(fields: Mapping[str, Any], joint: str, prefix: str = "", depth: int = 1) -> Iterator[tuple[str, Kind]]:
    for name, field in fields.items():
        word = field.get("type")
        parts = (
            {"amount": {"type": "decimal"}, "currency": {"type": "text"}} if word == "money" else field.get("fields")
        )
        if parts and depth <= 3:
            yield from _flat(parts, joint, f"{prefix}{name}{joint}", depth + 1)
            if joint == ".":
                yield f"{prefix}{name}", "json"
        elif word in _DECLARED:
            yield f"{prefix}{name}", _DECLARED[word]
        else:
            yield f"{prefix}{name}", "text"


def cell(value: Any, kind: Kind) -> Cell:  # Any: whatever an item may hold
    """A value for a column of this kind. Raises ValueError if it is none."""
    if value is None:
        return None
    match kind:
        case "text":
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()
        case "json":
            return msgspec.json.encode(value).decode()
        case "list":
            if not isinstance(value, list):
                raise ValueError(f"{value!r:.60} is no list")
            return msgspec.json.encode(value).decode()
        case "int":
            return _whole(value)
        case "float":
            number = float(_number(value))
            if not math.isfinite(number):
                raise ValueError(f"{value!r:.60} is no finite number")
            return number
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case "numeric" | "number":
            return format(_number(value), "f")
        case "bool":
            return _truth(value)
        case "time":
            return _moment(value)
        case "date":
            return _moment(value)[:10] if len(str(value)) > 10 else date.fromisoformat(str(value)).isoformat()


def fits(value: Any, kind: Kind) -> bool:
    try:
        cell(value, kind)
    except ValueError:
        return False
    return True


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"{value!r:.60} is no number")
    if isinstance(value, str) and _CODE.match(value):
        raise ValueError(f"{value!r:.60} would lose its zeros as a number")
    try:
        return Decimal(str(value).strip())
    except InvalidOperation:
        raise ValueError(f"{value!r:.60} is no number") from None


def _whole(value: Any) -> int:
    number = _number(value)
    if not number.is_finite() or number != number.to_integral_value() or abs(number) >= 2**63:
        raise ValueError(f"{value!r:.60} is no whole number that fits")
    return int(number)


def _truth(value: Any) -> str:
    word = str(value).strip().lower()
    if word not in ("true", "false", "1", "0"):
        raise ValueError(f"{value!r:.60} is neither true nor false")
    return "true" if word in ("true", "1") else "false"


def _moment(value: Any) -> str:
    try:
        found = datetime.fromisoformat(str(value))
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{value!r:.60} is no date or time in ISO 8601") from None
    return found.isoformat(timespec="microseconds")
