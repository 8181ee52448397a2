"""Numbers as data and pages write them: stars and counts of reviews.

How it fails: what is no number, less than nothing or beyond reason is None; nothing raises. Only the beginning of a
text is looked at.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

_LONGEST = 60
_LARGEST = 1_000_000_000
_GAPS = " \u00a0\u2009\u202f'’"
_NUMBER = re.compile(r"(?<![\w.,−-])\d{1,9}(?:[.,]\d{1,20})?(?!\d|[.,]\d|[eE][+-]?\d)")
_COUNT = re.compile(
    rf"(?<![\w.,−-])(\d{{1,3}}(?:[.,{_GAPS}]\d{{2,3}})*[.,{_GAPS}]\d{{3}}|\d{{1,9}}(?:[.,]\d{{1,2}})?)(?![\d.,]\d|\d)"
    r"(?:\s?(k|tsd|тыс|тис|m|mio|mln|млн|千|천|万|萬|만)(?![^\W\d_]))?(?!\w)",
    re.IGNORECASE,
)
_THOUSAND, _TEN_THOUSAND, _MILLION = 1_000, 10_000, 1_000_000
_UNITS = {
    "k": _THOUSAND, "tsd": _THOUSAND, "тыс": _THOUSAND, "тис": _THOUSAND, "千": _THOUSAND, "천": _THOUSAND,
    "万": _TEN_THOUSAND, "萬": _TEN_THOUSAND, "만": _TEN_THOUSAND,
    "m": _MILLION, "mio": _MILLION, "mln": _MILLION, "млн": _MILLION,
}  # fmt: skip
_MARKS = re.compile(rf"[.,{_GAPS}]")


def number_of(value: object) -> float | None:
    """A number, or the first in a text: "4,6", "4.6/5". None for what is none or less than nothing."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) and 0 <= value < _LARGEST else None
    match = _NUMBER.search(value[:_LONGEST]) if isinstance(value, str) else None
    return float(match[0].replace(",", ".")) if match is not None else None


def count_of(value: object) -> int | None:
    """A whole number, or the first in a text: "1,234", "1 234", "1.2k". None for what is none."""
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        whole = math.isfinite(value) and 0 <= value < _LARGEST and value == int(value)
        return int(value) if whole else None
    match = _COUNT.search(value[:_LONGEST]) if isinstance(value, str) else None
    if match is None:
        return None
    parts = _MARKS.split(match[1])
    unit = _UNITS.get((match[2] or "").lower(), 1)
    if len(parts) == 1 or len(parts[-1]) == 3:
        count = Decimal("".join(parts)) * unit
    else:
        count = Decimal(f"{parts[0]}.{parts[1]}") * unit
    return int(count) if count == int(count) and count < _LARGEST else None
