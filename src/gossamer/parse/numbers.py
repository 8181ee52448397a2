"""Numbers in a text, read without guessing: one sign stands before the decimals, the others group thousands."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST = 300  # characters that are looked at
_GROUPS = " \u00a0\u2009\u202f'’"


@lru_cache(maxsize=4)
def _pattern(decimal: str) -> re.Pattern[str]:
    groups = re.escape(_GROUPS + ("," if decimal == "." else "."))
    point = re.escape(decimal)
    return re.compile(
        rf"(?<![\w.,])(?P<sign>[-−+])?\s?(?P<whole>\d{{1,3}}(?:[{groups}]\d{{3}})+(?!\d)|\d+)?(?:{point}(?P<part>\d+))?"
        rf"|(?P<late>\d{{1,3}}(?:[{groups}]\d{{3}})+(?!\d)|\d+)(?:{point}(?P<rest>\d+))?"
    )


def first_number(text: str, decimal: str = ".") -> str | None:
    """The first number as Python writes it: `1 234,5` with a decimal comma is `1234.5`.

    None when there is none. Raises ValueError where the number cannot be meant so: `1.299,00` with a decimal point.
    """
    text = text[:_LONGEST]
    for match in _pattern(decimal).finditer(text):
        whole = match["whole"] or match["late"]
        part = match["part"] or match["rest"]
        if whole is None and part is None:
            continue
        after = text[match.end() : match.end() + 2]
        if len(after) == 2 and after[0] in ".," and after[1].isdigit():
            shown = text[match.start() : match.end() + 6].strip()
            other = "," if decimal == "." else "."
            raise ValueError(f'{shown!r} is no number with decimal = "{decimal}"; try decimal = "{other}"')
        digits = "".join(char for char in whole or "0" if char.isdigit())
        sign = "-" if match["sign"] in ("-", "−") else ""
        return f"{sign}{digits}.{part}" if part else f"{sign}{digits}"
    return None
