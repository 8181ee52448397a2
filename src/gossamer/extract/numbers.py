"""Numbers in texts and data. Prices are in model/money.py.

    first_number, nth_number   for recipes, which name the decimal separator: no guessing
    number_of      a rating, from data or from a text
    count_of       a count, from data or from a text with its groups and units: "1,234", "1.2k"

How it fails: without a number the result is None; `first_number` raises ValueError if the number contradicts the
decimal separator. Only the beginning of a text is read.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import lru_cache

from ..model.money import GAPS

_LONGEST = 300  # characters read
_LONGEST_FIGURE = 60  # of a rating or a count
_LARGEST = 1_000_000_000
_NUMBER = re.compile(r"(?<![\w.,−-])\d{1,9}(?:[.,]\d{1,20})?(?!\d|[.,]\d|[eE][+-]?\d)")
_COUNT = re.compile(
    rf"(?<![\w.,−-])(\d{{1,3}}(?:[.,{GAPS}]\d{{2,3}})*[.,{GAPS}]\d{{3}}|\d{{1,9}}(?:[.,]\d{{1,2}})?)(?![\d.,]\d|\d)"
    r"(?:\s?(k|tsd|тыс|тис|m|mio|mln|млн|千|천|万|萬|만)(?![^\W\d_]))?(?!\w)",
    re.IGNORECASE,
)
_UNITS = {
    **dict.fromkeys(("k", "tsd", "тыс", "тис", "千", "천"), 1_000),
    **dict.fromkeys(("万", "萬", "만"), 10_000),
    **dict.fromkeys(("m", "mio", "mln", "млн"), 1_000_000),
}
_MARKS = re.compile(rf"[.,{GAPS}]")


@lru_cache(maxsize=4)
def _pattern(decimal: str) -> re.Pattern[str]:
    groups = re.escape(GAPS + ("," if decimal == "." else "."))
    point = re.escape(decimal)
    return re.compile(
        rf"(?<![\w.,])(?P<sign>[-−+])?\s?(?P<whole>\d{{1,3}}(?:[{groups}]\d{{3}})+(?!\d)|\d+)?(?:{point}(?P<part>\d+))?"
        rf"|(?P<late>\d{{1,3}}(?:[{groups}]\d{{3}})+(?!\d)|\d+)(?:{point}(?P<rest>\d+))?"
    )


def first_number(text: str, decimal: str = ".") -> str | None:
    """The first number as Python writes it: `1 234,5` with a decimal comma is `1234.5`.

    Raises ValueError if the number contradicts the separator: `1.299,00` with a decimal point.
    """
    return nth_number(text, 1, decimal)


def nth_number(text: str, nth: int, decimal: str = ".") -> str | None:
    """As `first_number`, for the second number in "4.5 of 5", the third ..."""
    text = text[:_LONGEST]
    for match in _pattern(decimal).finditer(text):
        whole = match["whole"] or match["late"]
        part = match["part"] or match["rest"]
        if whole is None and part is None:
            continue
        nth -= 1
        if nth > 0:
            continue
        after = text[match.end() : match.end() + 2]
        if len(after) == 2 and after[0] in ".," and after[1].isdigit():
            shown = text[match.start() : match.end() + 6].strip()
            other = "," if decimal == "." else "."
            raise ValueError(f'{shown!r} is not a number with decimal = "{decimal}"; try decimal = "{other}"')
        digits = "".join(char for char in whole or "0" if char.isdigit())
        sign = "-" if match["sign"] in ("-", "−") else ""
        return f"{sign}{digits}.{part}" if part else f"{sign}{digits}"
    return None


def number_of(value: object) -> float | None:
    """A number, or the first in a text: "4,6", "4.6/5"; None if negative or implausibly large."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) and 0 <= value < _LARGEST else None
    match = _NUMBER.search(value[:_LONGEST_FIGURE]) if isinstance(value, str) else None
    return float(match[0].replace(",", ".")) if match is not None else None


def count_of(value: object) -> int | None:
    """A whole number, or the first in a text: "1,234", "1 234", "1.2k"; None if negative or implausibly large."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        whole = math.isfinite(value) and 0 <= value < _LARGEST and value == int(value)
        return int(value) if whole else None
    match = _COUNT.search(value[:_LONGEST_FIGURE]) if isinstance(value, str) else None
    if match is None:
        return None
    parts = _MARKS.split(match[1])
    unit = _UNITS.get((match[2] or "").lower(), 1)
    if len(parts) == 1 or len(parts[-1]) == 3:
        count = Decimal("".join(parts)) * unit
    else:
        count = Decimal(f"{parts[0]}.{parts[1]}") * unit
    return int(count) if count == int(count) and count < _LARGEST else None
