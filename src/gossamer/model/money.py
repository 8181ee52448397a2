"""`Money`, and how prices are read from texts as shops write them.

What it does: `Money.parse` reads the price in a text and names its currency by the ISO code.
How it fails: a text without a number gives None; nothing raises for any text. How it recovers: only the first 300
characters are read, and every rule reads them once, so a hostile text costs no more than a long price.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

import msgspec

from .currencies import AFTER_ONLY, CODES, SHARED, SIGNS, SMALL_CODES, THREE_DECIMALS

GAPS = " \u00a0\u2009\u202f'’"  # characters between groups of three digits
_NO_GAPS = str.maketrans("", "", GAPS)
_ARABIC_MARKS = str.maketrans("٫٬", ".,")
_LONGEST = 300  # characters read from a text; a price stands near its beginning
_LONGEST_SIGN = max(map(len, SIGNS))
_FIRST_CHARS = frozenset(sign[0] for sign in (*SIGNS, *CODES, *SMALL_CODES))
_LAST_CHARS = frozenset(sign[-1] for sign in (*SIGNS, *CODES, *SMALL_CODES))
_WITH_POINT = tuple(sign for sign in SIGNS if sign.endswith("."))
_BEFORE_ONLY = " \u00a0\u202f\t\n:-−"  # characters between a sign and the number after it
_DASHES = re.compile(r"(?:[.,]?[-–—]+)?\s*")  # "12,- €"

# A number, in this order: groups of three digits separated by spaces; digits with separators, perhaps with a stray
# space before the last two ("118, 99"); a fraction alone. A sign between the whole and the fraction ("35€ 99") is
# searched for later. The point of an abbreviation is not a decimal mark ("Rs.500", "S/.50", "₹.500"); that of "$.99"
# is.
_NUMBER = re.compile(
    rf"\d{{1,3}}(?:[{GAPS}]\d{{3}})+(?!\d)(?:[.,]\d+)?"
    r"|\d+(?:[.,]\d+)*(?:[.,]\x20\d\d(?![\d.,%]))?"
    r"|[.,](?<![^\W\d_].)(?<!/.)(?:\d\d?(?!\d)|(?<![₹₨₱₦৳].)\d+)"
)
_CENTS_AFTER_SIGN = re.compile(r"\s?([€£])(?:\s?(\d\d)|(\d))(?!\d|[.,]\d|\s?[€£%])(?![^\W\d_])")
_MINUS = re.compile(r"(?:(?:^|[\s(€$£¥])[-−]\s*|[-−][€$£¥]\s*)$")
_PLAIN_PRICE = re.compile(r"([€$£])(\d{1,6}(?:\.\d\d)?)", re.ASCII)  # as most shops write it: needs no rules
_DATE = re.compile(r"\d{1,2}\.\d{1,2}\.\d{4}|\d{4}\.\d{1,2}\.\d{1,2}")


class Money(msgspec.Struct, frozen=True):
    """An amount in a currency: an ISO 4217 code if known, else the sign as written ("kr"), "" if the text names
    none."""

    amount: Decimal
    currency: str

    @classmethod
    def parse(cls, text: str | None, currency: str | None = None, *, home: tuple[str, ...] = ()) -> Money | None:
        """Read the first price in the text, or the first number if none has a currency beside it.

        `currency` is used if the text names none, or only a sign that it shares with others. `home` lists the
        currencies of the place where the text was written: without a `currency`, the first of them that uses the shared
        sign is meant. A single separator before exactly three digits groups thousands, unless the currency has three
        decimals (dinars). None if there is no number.
        """
        found = first_price(text, currency, home)
        return None if found is None else cls(found[0], found[1])

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}".strip()


def currency_code(written: str | None, home: tuple[str, ...] = ()) -> str:
    """The ISO code of a sign, a word or a code ("us$", "€", "eur"); "" for any other text. `home`: see
    `Money.parse`."""
    text = (written or "").strip()[:20]
    if text.upper() in CODES:
        return text.upper()
    return _at_home(text, home) if text in SIGNS else ""


def _at_home(sign: str, home: tuple[str, ...]) -> str:
    """The currency of a known sign; if several share it, the first of `home`."""
    if home and sign in SHARED:
        return next((code for code in home if code in _sharers(sign)), SIGNS[sign])
    return SIGNS[sign]


def _meant(sign: str, default: str | None, home: tuple[str, ...]) -> str:
    """The caller's currency if it is written with this sign, else that of the sign."""
    return default if default and can_mean(sign, default) and sign in SHARED else _at_home(sign, home)


def can_mean(sign: str, currency: str) -> bool:
    """Can the sign or code stand for the currency? `$` for CAD, but `£` not for EUR."""
    if sign in SHARED:
        return currency in _sharers(sign)
    return currency in (SIGNS.get(sign), sign.upper())


@lru_cache(maxsize=64)
def _sharers(sign: str) -> frozenset[str]:
    return frozenset(SHARED[sign].split())


class PriceInText(NamedTuple):
    """A number in a text, the currency beside it and the sign as written; both are "" for a bare number."""

    start: int
    end: int
    amount: Decimal
    currency: str
    sign: str


def prices_in(text: str, default: str | None = None, home: tuple[str, ...] = ()) -> Iterator[PriceInText]:
    """The numbers of a text that may be prices, in order, without percentages and dates."""
    text = text[:_LONGEST].translate(_ARABIC_MARKS)
    for match in _NUMBER.finditer(text):
        before, after = text[: match.start()], text[match.end() : match.end() + 40]
        if after.lstrip().startswith("%") or _DATE.fullmatch(match[0]):
            continue
        code, written = _currency(before, after, default, home)
        cents = _CENTS_AFTER_SIGN.match(after)
        amount = _amount(match[0], code or default or "", cents)
        if ("-" in before[-4:] or "−" in before[-4:]) and _MINUS.search(before[-8:]):
            amount = -amount
        yield PriceInText(match.start(), match.end(), amount, code, written)


def first_price(
    text: str | None, default: str | None = None, home: tuple[str, ...] = ()
) -> tuple[Decimal, str, str] | None:
    """What `Money.parse` reads: amount and currency, and the sign as written ("" for a bare number)."""
    if not text:
        return None
    plain = _PLAIN_PRICE.fullmatch(text)
    if plain is not None:
        sign = plain[1]
        return Decimal(plain[2]), _meant(sign, default, home), sign
    first: tuple[Decimal, str, str] | None = None
    for found in prices_in(text, default, home):
        if found.currency:
            return found.amount, found.currency, found.sign
        first = first or (found.amount, default or "", "")
    return first


def _currency(before: str, after: str, default: str | None, home: tuple[str, ...]) -> tuple[str, str]:
    """The currency directly beside a number, and its sign as written; two empty texts for a bare number."""
    for sign in (_sign_before(before[-30:]), _sign_after(after[:30])):
        if sign in SIGNS:
            return _meant(sign, default, home), sign
        if sign:
            return sign.upper(), sign
    return "", ""


def _sign_before(text: str) -> str:
    """The longest sign or code at the end of the text that is not the end of a word."""
    text = text.rstrip(_BEFORE_ONLY)
    if text.endswith("$") and text[:-1].rstrip()[-3:] in CODES:
        text = text[:-1].rstrip()  # "CAD $5"
    pointed = text[-1:] == "." and not text.endswith(_WITH_POINT)
    if pointed:
        text = text[:-1]  # "Rp.", "Bs.", "₹."; after a code, or one letter, the point ends a sentence
    if text[-1:] not in _LAST_CHARS:
        return ""
    for size in range(min(_LONGEST_SIGN, len(text)), 0, -1):
        sign = text[-size:]
        known = (sign in SIGNS and sign not in AFTER_ONLY) or _is_code(sign)
        if pointed and (sign not in SIGNS or (size == 1 and sign.isalpha())):
            continue
        if known and not (sign[0].isalpha() and text[-size - 1 : -size].isalpha()):
            return sign
    return ""


def _sign_after(text: str) -> str:
    """The longest sign or code at the start of the text that is not the start of a word."""
    gap = _DASHES.match(text)
    text = text[gap.end() :] if gap is not None else text
    if text[:1] not in _FIRST_CHARS:
        return ""
    for size in range(min(_LONGEST_SIGN, len(text)), 0, -1):
        sign = text[:size]
        # Chinese and Japanese are written without spaces: there a word may follow the sign.
        if (sign in SIGNS or _is_code(sign)) and (sign[-1] >= "\u2e80" or not text[size : size + 1].isalpha()):
            return sign
    return ""


def _is_code(text: str) -> bool:
    return text in CODES or text in SMALL_CODES


def _amount(number: str, currency: str, cents: re.Match[str] | None) -> Decimal:
    number = number.translate(_NO_GAPS)
    marks = [char for char in number if char in ".,"]
    if cents is not None and (not marks or len(number) - number.rfind(marks[-1]) == 4):
        return Decimal(f"{number.replace('.', '').replace(',', '')}.{cents[2] or cents[3]}")
    if not marks:
        return Decimal(number)
    last = marks[-1]
    whole, _, fraction = number.rpartition(last)
    only_groups = len(set(marks)) == 1 and (
        len(marks) > 1
        or (
            len(fraction) == 3
            and 1 <= len(whole) <= 3
            and whole.strip("0") != ""
            and not (last == "." and currency in THREE_DECIMALS)
        )
    )
    if only_groups:
        return Decimal(number.replace(last, ""))
    return Decimal(f"{whole.replace(',', '').replace('.', '') or '0'}.{fraction}")
