"""How well prices are read from texts: amount and currency sign, both exact, over the cases of price-parser."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any, NamedTuple

from price_parser import Price

from gossamer.model.currencies import CODES
from gossamer.model.money import Money, first_price

from .corpora import CORPORA, absent

SET = "price-parser"
THEIRS = 1049  # what the price-parser library reads of these cases


class WrittenPrice(NamedTuple):
    """An amount and the sign of its currency as the text writes it ("US$"); None for a part that the text lacks."""

    amount: Decimal | None
    sign: str | None


def written_price(
    text: str | None, currency_text: str | None = None, *, decimal_separator: str | None = None
) -> WrittenPrice:
    """The price in a text and its currency sign as written. `currency_text` is a second text that may hold the sign.

    The set asks for signs that stand anywhere in a text, which Gossamer does not read: those, and the texts without a
    number of ours, are read by the library. `decimal_separator` ("." or ",") settles texts such as "1.000".
    """
    theirs = Price.fromstring(text, currency_hint=currency_text, decimal_separator=decimal_separator)
    ours = None if decimal_separator else first_price(text)
    if ours is None:
        return WrittenPrice(theirs.amount, theirs.currency)
    amount, _, written = ours
    # Our signs stand directly beside the number, and may be longer: "US$" where the library reads "$".
    sign = theirs.currency
    if written and (sign is None or (len(written) > len(sign) and sign in written and written[:3] not in CODES)):
        sign = written
    return WrittenPrice(amount, sign)


def cases() -> list[dict[str, Any]]:
    """The cases of the set, numbers as Decimal."""
    text = (CORPORA / SET / "cases.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return found


def is_exact(case: dict[str, Any]) -> bool:
    """True when amount and sign are read as the case states them."""
    got = written_price(case["price_raw"], case["currency_raw"], decimal_separator=case.get("decimal_separator"))
    return got.amount == true_amount(case) and got.sign == case["currency"]


def true_amount(case: dict[str, Any]) -> Decimal | None:
    return None if case["amount"] is None else Decimal(case["amount"])


def report() -> list[str]:
    """The lines of this section."""
    missing = absent(SET)
    if missing:
        return missing
    known = cases()
    exact = sum(map(is_exact, known))
    amounts = 0
    started = time.perf_counter()
    read = [Money.parse(case["price_raw"]) for case in known]
    seconds = time.perf_counter() - started
    amounts = sum(
        (money.amount if money else None) == true_amount(case) for money, case in zip(read, known, strict=True)
    )
    return [
        f"amount and written sign exact: {exact} of {len(known)} (price-parser: {THEIRS})",
        f"Money.parse, amount exact:     {amounts} of {len(known)}, {len(known) / seconds:,.0f} texts/s",
    ]
