"""What an offer of schema.org says: price, currency, availability; and which offer counts where there are several."""

from __future__ import annotations

import re
from decimal import Decimal

from ...model.currencies import CODES
from ...model.money import Money, currency_code
from .claims import Claims
from .identity import Identity
from .stock import availability_of
from .things import Thing
from .values import Availability, Source

_MOST = 300  # offers of one product that are looked at
_OLD = ("listprice", "strikethroughprice", "msrp", "suggestedretailprice", "regularprice", "srp")
_PLAIN = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_HAD = frozenset({Availability.IN_STOCK, Availability.LIMITED, Availability.ONLINE_ONLY})


def choose_offer(offers: list[Thing], identity: Identity) -> Thing | None:
    """The offer that names the page's address or number, else the first that can be had, else the first."""
    flat = _flat(offers)
    if not flat:
        return None
    for offer in flat:
        if identity.names_number(offer.text("sku")) or identity.names_number(offer.text("@id", "identifier")):
            return offer
    priced = [offer for offer in flat if _price(offer)[0] is not None] or flat
    return next((offer for offer in priced if availability_of(offer.text("availability")) in _HAD), priced[0])


def claim_offers(claims: Claims, chosen: Thing | None, offers: list[Thing], source: Source, sure: float) -> None:
    """Note the chosen offer's price, and whether any of the offers can be had."""
    if chosen is None:
        return
    price, regular = _price(chosen)
    if price is None:
        price = next((each for each, _ in map(_price, _flat(offers)) if each is not None), None)
    if price is not None:
        # A price of nothing is mostly a template that was not filled.
        claims.add("price", price, source, sure if price.amount > 0 else 0.1)
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


def _price(offer: Thing) -> tuple[Money | None, Money | None]:
    """The price, and the regular price where one is told."""
    currency = offer.text("pricecurrency", "currency")
    price = money_of(offer.text("price"), currency)
    regular: Money | None = None
    for part in offer.things("pricespecification")[:20]:
        money = money_of(part.text("price", "minprice"), part.text("pricecurrency") or currency)
        kind = part.text("pricetype").lower()
        if any(old in kind for old in _OLD):
            regular = regular or money
        elif money is not None and price is None:
            price = money
    if price is None or price.amount == 0:
        price = money_of(offer.text("lowprice"), currency) or price
    return price, regular


def money_of(text: str, currency: str) -> Money | None:
    """A price as data states it. A plain number with a point is one with decimals, whatever their count."""
    code = currency_code(currency) or (currency if currency in CODES else "")
    if _PLAIN.fullmatch(text):
        whole, _, fraction = text.partition(".")
        # "1.299" of careless shops is a thousand; "1.2990" and "12.5" are not.
        if not (len(fraction) == 3 and whole != "0" and code not in ("KWD", "BHD", "OMR", "TND", "JOD")):
            return Money(Decimal(text), code)
    money = Money.parse(text, code or None)
    return money if money is not None and money.amount >= 0 else None
