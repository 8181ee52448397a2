"""The type that texts of one place have in common: an address, a day, a price, yes or no, a number; else text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

from ...extract.dates import page_date, shown_dates
from ...model.money import Money, first_price
from ..model import FieldType
from .words import said

_LONGEST_PRICE = 24
_LONGEST_DATE = 40
_ADDRESSES = re.compile(r"https?://\S+|/[\w./%-]+\.\w{2,5}(?:\?\S*)?")
_NUMBER = re.compile(r"(-?\d{1,3}(?:[.,'’ \u00a0\u202f]\d{3})+(?:[.,]\d{1,4})?|-?\d+(?:[.,]\d{1,4})?)(\D.{0,13})?")
_NUMERIC_DAY = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4})")
_MARKS = re.compile(r"['’ \u00a0\u202f]")


def typed(texts: Sequence[str | None]) -> tuple[FieldType, list[Any]]:
    """The type that all of the texts have, and their values."""
    told = [text for text in texts if text is not None]
    if (days := _days_by_votes(texts)) is not None:
        return FieldType.DAY, list(days)
    for kind, read in (
        (FieldType.URL, lambda text: text if _ADDRESSES.fullmatch(text) else None),
        (FieldType.DAY, _day),
        (FieldType.MONEY, _price),
        (FieldType.BOOL, said),
    ):
        values = [read(text) if text is not None else None for text in texts]
        if sum(value is not None for value in values) == len(told) and (
            kind is not FieldType.BOOL or len(set(values) - {None}) == 2
        ):
            return kind, values
    numbers = _numbers(told)
    if numbers is not None:
        left = iter(numbers)
        amounts = [next(left) if text is not None else None for text in texts]
        if all(number == int(number) for number in numbers):
            return FieldType.INT, [None if one is None else int(one) for one in amounts]
        return FieldType.FLOAT, [None if one is None else float(one) for one in amounts]
    return FieldType.TEXT, list(texts)


def _day(text: str) -> date | None:
    if len(text) > _LONGEST_DATE or text.isdigit() or (re.fullmatch(r"[\d.,]+", text) and text.count(".") < 2):
        return None
    found = page_date(text)
    if found is None and len(shown := shown_dates(text)) == 1:
        found = shown[0].day
    return found.date() if found is not None else None


def _price(text: str) -> Money | None:
    found = first_price(text) if len(text) <= _LONGEST_PRICE else None
    return Money(found[0], found[1]) if found is not None and found[1] else None


def _numbers(texts: Sequence[str]) -> list[Decimal] | None:
    """The numbers, if every text is one number with the same unit behind it: a version or an address is none."""
    found = [match for text in texts if (match := _NUMBER.fullmatch(text)) is not None]
    if len(found) < len(texts) or len({(match[2] or "").strip() for match in found}) > 1:
        return None
    plain = [_MARKS.sub("", match[1]) for match in found]
    if any(re.match(r"-?0\d", one) for one in plain):
        return None  # a number with zeros in front is a name
    decimals = re.compile(r"([.,])(?:\d{1,2}|\d{4,})$")
    point = next((match[1] for one in plain if (match := decimals.search(one)) is not None), "")
    groups = ".,".replace(point, "") if point else ".,"
    bare = [re.sub(f"[{groups}]", "", one) for one in plain]
    plain = [one.replace(point, ".") if point else one for one in bare]
    return [Decimal(one) for one in plain] if all(one.count(".") <= 1 for one in plain) else None


def _days_by_votes(texts: Sequence[str | None]) -> list[date | None] | None:
    """Days in numbers, if one of the texts says whether the day or the month comes first."""
    matches = [_NUMERIC_DAY.fullmatch(text) if text is not None else None for text in texts]
    if any(match is None for match, text in zip(matches, texts, strict=True) if text is not None):
        return None
    first, second = (max(int(match[at]) for match in matches if match is not None) for at in (1, 2))
    if (first > 12) == (second > 12):
        return None
    day, month = (1, 2) if first > 12 else (2, 1)
    try:
        return [match and date(int(match[3]), int(match[month]), int(match[day])) for match in matches]
    except ValueError:
        return None
