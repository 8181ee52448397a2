"""Amounts of money, and how they are read from text as shops write it."""

from __future__ import annotations

import re
from decimal import Decimal

import msgspec

_CODES = frozenset(
    """
    AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD
    CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF
    GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK
    LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD
    OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN
    SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XOF XPF
    YER ZAR ZMW ZWL
    """.split()  # noqa: SIM905 - one code per word reads better
)  # fmt: skip

_SYMBOLS = {
    "US$": "USD", "A$": "AUD", "AU$": "AUD", "C$": "CAD", "CA$": "CAD", "NZ$": "NZD", "HK$": "HKD", "S$": "SGD",
    "NT$": "TWD", "MX$": "MXN", "R$": "BRL", "€": "EUR", "£": "GBP", "$": "USD", "¥": "JPY", "￥": "JPY",
    "円": "JPY", "元": "CNY", "₹": "INR", "Rs.": "INR", "Rs": "INR", "₽": "RUB", "руб": "RUB", "₩": "KRW",
    "원": "KRW",
    "₺": "TRY", "TL": "TRY", "₴": "UAH", "грн": "UAH", "₪": "ILS", "₫": "VND", "฿": "THB", "₱": "PHP", "₦": "NGN",
    "₸": "KZT", "zł": "PLN", "Kč": "CZK", "Ft": "HUF", "lei": "RON", "лв": "BGN", "Fr.": "CHF", "SFr.": "CHF",
    "kr.": "kr", "kr": "kr", "Kr": "kr", "KR": "kr", "Euro": "EUR", "euro": "EUR",
}  # fmt: skip

# Signs that several currencies share: there the caller's word counts more than ours.
_SHARED = frozenset({"$", "¥", "￥", "£", "kr", "kr.", "Kr", "KR", "Rs", "Rs."})

_SIGN = "|".join(re.escape(sign) for sign in sorted(_SYMBOLS, key=len, reverse=True))
_BEFORE = re.compile(rf"(?<![^\W\d_])(?:({_SIGN})|([A-Z]{{3}}))\s*[-−]?\s*$")
_AFTER = re.compile(rf"(?:[.,]?\s?[-–—]+)?\s*(?:({_SIGN})|([A-Z]{{3}}))(?![^\W\d_])")

_GAP = " \u00a0\u2009\u202f'’"
_NUMBER = re.compile(rf"\d{{1,3}}(?:[{_GAP}]\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,]\d+)*|[.,]\d+")
_LONGEST = 300  # characters that are looked at: a price is not hidden deeper in a text


class Money(msgspec.Struct, frozen=True):
    """An amount in a currency: an ISO 4217 code where it is known, the sign as written where it is not ("kr"),
    "" where the text names none."""

    amount: Decimal
    currency: str

    @classmethod
    def parse(cls, text: str | None, currency: str | None = None) -> Money | None:
        """Read the first price in the text, or the first number where no currency stands beside one.

        `currency` is used when the text names none, or only a sign that several currencies share. A single
        separator before exactly three digits groups thousands. None when there is no number.
        """
        if not text:
            return None
        text = text[:_LONGEST]
        first: Money | None = None
        for match in _NUMBER.finditer(text):
            before, after = text[: match.start()], text[match.end() :]
            if after.lstrip().startswith("%"):
                continue
            amount = _amount(match[0])
            if re.search(r"(?:^|[\s(€$£¥])[-−]\s*$", before) or re.search(r"[-−][€$£¥]\s*$", before):
                amount = -amount
            found = _currency(before, after, currency)
            if found:
                return cls(amount, found)
            first = first or cls(amount, currency or "")
        return first

    def __str__(self) -> str:
        return f"{self.amount} {self.currency}".strip()


def _currency(before: str, after: str, wish: str | None) -> str:
    """The currency that stands directly beside a number, or ""."""
    for match in (_BEFORE.search(before), _AFTER.match(after)):
        if match is None:
            continue
        sign: str | None = match[1]
        if sign:
            return wish if wish and sign in _SHARED else _SYMBOLS[sign]
        code: str = match[2]
        if code in _CODES:
            return code
    return ""


def _amount(number: str) -> Decimal:
    for gap in _GAP:
        number = number.replace(gap, "")
    marks = [char for char in number if char in ".,"]
    if not marks:
        return Decimal(number)
    last = marks[-1]
    whole, _, fraction = number.rpartition(last)
    only_groups = len(set(marks)) == 1 and (
        len(marks) > 1 or (len(fraction) == 3 and 1 <= len(whole) <= 3 and whole.strip("0") != "")
    )
    if only_groups:
        return Decimal(number.replace(last, ""))
    return Decimal(f"{whole.replace(',', '').replace('.', '') or '0'}.{fraction}")
