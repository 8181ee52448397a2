"""What an offer of schema.org says: price, currency, availability; and which offer counts where there are several."""

from __future__ import annotations

import math
import re
from decimal import Decimal

from ...model.currencies import NO_DECIMALS, THREE_DECIMALS
from ...model.money import Money, currency_code
from .claims import Claims
from .identity import PageIdentity
from .stock import availability_of
from .things import Thing
from .values import Availability, Source

_MOST = 300  # offers of one product that are looked at
_OLD = ("listprice", "strikethroughprice", "msrp", "suggestedretailprice", "regularprice", "srp")
_PLAIN = re.compile(r"\d{1,15}(?:\.(\d{1,20}))?(?:[eE][+-]?\d{1,2})?")
_DEAREST = 10**15
_HAD = frozenset({Availability.IN_STOCK, Availability.LIMITED, Availability.ONLINE_ONLY})


def choose_offer(offers: list[Thing], identity: PageIdentity) -> Thing | None:
    """The offer that names the page's address or number, else the first that can be had, else the first."""
    flat = _flat(offers)
    if not flat:
        return None
    for offer in flat:
        if identity.names_number(offer.text("sku")) or identity.names_number(offer.text("@id", "identifier")):
            return offer
    priced = [offer for offer in flat if _price(offer, identity.home)[0] is not None] or flat
    return next((offer for offer in priced if availability_of(offer.text("availability")) in _HAD), priced[0])


def claim_offers(
    claims: Claims, chosen: Thing | None, offers: list[Thing], source: Source, sure: float, home: tuple[str, ...]
) -> None:
    """Note the chosen offer's price, and whether any of the offers can be had."""
    if chosen is None:
        return
    price, regular = _price(chosen, home)
    if price is None:
        price = next((each for each, _ in (_price(offer, home) for offer in _flat(offers)) if each is not None), None)
    if price is not None:
        # A price of nothing is mostly a template that was not filled.
        if price.amount > 0:
            claim_price(claims, price, source, sure)
        else:
            claims.add("price", price, source, 0.1)
            claims.add("currency", price.currency, source, sure)
    if regular is not None and price is not None and regular.amount > price.amount:
        claims.add("regular_price", regular, source, sure * 0.8)
    stated = [availability_of(offer.text("availability")) for offer in _flat(offers)]
    known = [each for each in stated if each is not None]
    if known:
        # One size of many is sold out: the product as such can still be had.
        claims.add("availability", next((each for each in known if each in _HAD), known[0]), source, sure)


def _flat(offers: list[Thing]) -> list[Thing]:
    """The offers, those inside an AggregateOffer before it."""
    flat: list[Thing] = []
    for offer in offers[:_MOST]:
        flat += offer.things("offers")[:_MOST]
        flat.append(offer)
    return flat[:_MOST]


def _price(offer: Thing, home: tuple[str, ...]) -> tuple[Money | None, Money | None]:
    """The price, and the regular price where one is told."""
    currency = offer.text("pricecurrency", "currency")
    price = money_of(offer.plain("price"), currency, home)
    regular: Money | None = None
    for part in offer.things("pricespecification")[:20]:
        money = money_of(part.plain("price", "minprice"), part.text("pricecurrency") or currency, home)
        kind = part.text("pricetype").lower()
        if any(old in kind for old in _OLD):
            regular = regular or money
        elif money is not None and price is None:
            price = money
    if price is None or price.amount == 0:
        price = money_of(offer.plain("lowprice"), currency, home) or price
    return price, regular


def money_of(value: object, currency: str, home: tuple[str, ...] = ()) -> Money | None:
    """A price as data states it: a number, or a text. None for what is no price.

    A plain number with a point is one with decimals, whatever their count; only where the currency has none does
    the point of a text part thousands. `home` are the currencies of the site's place.
    """
    code = currency_code(currency, home)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        exact = math.isfinite(value) and 0 <= value < _DEAREST
        return Money(Decimal(str(value)), code) if exact else None
    text = value if isinstance(value, str) else ""
    plain = _PLAIN.fullmatch(text)
    if plain is not None and not (code in NO_DECIMALS and len(plain[1] or "") == 3):
        amount = Decimal(text)
        if amount >= _DEAREST:
            return None
        # "1.29999E7" is how machines write 12999900.
        return Money(amount.quantize(Decimal(1)) if _decimals(amount) < 0 else amount, code)
    money = Money.parse(text, code or None, home=home)
    return money if money is not None and 0 <= money.amount < _DEAREST else None


def claim_price(claims: Claims, price: Money, source: Source, sure: float) -> None:
    """Note a price that data states. "1.299" may be a careless shop's thousand: the page decides, if it shows one."""
    amount = price.amount
    if _decimals(amount) == 3 and 1 <= amount < 1000 and price.currency not in THREE_DECIMALS:
        claims.add("price", price, source, sure * 0.85)
        claims.add("price", Money(Decimal(int(amount * 1000)), price.currency), source, sure * 0.5)
    else:
        claims.add("price", price, source, sure)
    claims.add("currency", price.currency, source, sure)


def _decimals(amount: Decimal) -> int:
    exponent = amount.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
