"""Converts texts and records to what MongoDB can hold.

A lone surrogate means nothing and becomes U+FFFD, as in every record store; any other text is stored unchanged. A
record's text is stored exactly, as `source`. Beside it, `data` is the same as a document that can be queried:

- a dot or a leading dollar sign in a field name is written wide (U+FF0E, U+FF04), a NUL there as U+FFFD;
- integers of more than 64 bits are floating point numbers;
- it is left out (null) if the record is nested deeper than MongoDB allows, or has more than a million bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from ...model.item import safe_text
from ...model.record import PageResult
from ...store.record_rules import is_utf8, mend, parts_of, texts_of, with_texts
from .errors import Unstorable

MOST_QUERYABLE = 1_000_000  # bytes of a record; as a document with names for every entry it can be eight times as long
MOST_STORED = 15_500_000  # bytes; a whole document may have 16 MB
DEEPEST = 60  # levels; a whole document may have 100
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


def stored_results(results: Sequence[PageResult]) -> Sequence[PageResult]:
    """The results with lone surrogates replaced; the same objects if there are none, which is the usual case.

    Raises Unstorable for one that is too large.
    """
    for result in results:
        _demand_room(result)
    return results if is_utf8(texts_of(results)) else [with_texts(result, mend) for result in results]


def queryable(source: str) -> Any:  # whatever JSON holds
    """The record as a document; None if MongoDB cannot hold it."""
    if len(source) > MOST_QUERYABLE or len(source.encode()) > MOST_QUERYABLE:
        return None
    try:
        return _cleaned(_decoded(source), 1)
    except (ValueError, RecursionError):
        return None


def _decoded(source: str) -> Any:
    try:
        return msgspec.json.decode(source)
    except msgspec.DecodeError:
        return json.loads(source)  # what other writers call JSON: escaped lone surrogates, NaN


def _cleaned(value: Any, level: int) -> Any:
    if isinstance(value, str):
        return value if value.isascii() else mend(value)
    if isinstance(value, int):  # includes booleans, which stay as they are
        return value if _LEAST <= value <= _MOST else _floating(value)
    if not isinstance(value, (list, dict)):
        return value
    if level > DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        return [_cleaned(entry, level + 1) for entry in value]
    return {_field_name(name): _cleaned(entry, level + 1) for name, entry in value.items()}


def _floating(number: int) -> float:
    try:
        return float(number)
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def _field_name(name: str) -> str:
    name = safe_text(name).replace(".", "\uff0e")
    return f"\uff04{name[1:]}" if name.startswith("$") else name


def _demand_room(result: PageResult) -> None:
    for part in parts_of(result):
        values = [value for value in msgspec.structs.astuple(part) if isinstance(value, (str, bytes))]
        if sum(map(len, values)) * 4 <= MOST_STORED:  # no character has more than four bytes
            continue
        size = sum(len(one) if isinstance(one, bytes) else len(one.encode("utf-8", "surrogatepass")) for one in values)
        if size > MOST_STORED:
            what = f"{type(part).__name__} of {result.attempt.url[:200]}"
            raise Unstorable(f"The {what} has {size:,} bytes. A document of MongoDB holds 16 MB: make it smaller.")
