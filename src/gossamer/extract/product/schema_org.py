"""Reads the product of a page, and its main offer, from JSON-LD or microdata in the vocabulary of schema.org.

The page's own thing is the one with the page's address, with the page's title as its name, or with its number in the
address. Several with one name are variants of one product. Several with different names, none like the title, are a
list and not a product.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

from ...model.currencies import NO_DECIMALS, THREE_DECIMALS
from ...model.money import Money, currency_code
from ..structured.things import Thing, plain_text
from .availability import Availability, availability_of
from .claims import Claims, ClaimSource
from .identifiers import gtin_of
from .identity import PageIdentity

_PRODUCTS = frozenset(
    "product productgroup productmodel individualproduct someproducts vehicle car motorcycle".split()  # noqa: SIM905
)
# Types that count as products if they have an offer.
_SALEABLE = frozenset(
    """book event musicevent theaterevent comedyevent sportsevent festival screeningevent softwareapplication
    mobileapplication webapplication videogame course movie musicalbum accommodation apartment house
    realestatelisting touristtrip menuitem""".split()  # noqa: SIM905
)
_GTINS = ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "isbn", "upc")
_MOST_OFFERS = 300  # offers of one product that are read
_OLD_PRICE_TYPES = ("listprice", "strikethroughprice", "msrp", "suggestedretailprice", "regularprice", "srp")
_PLAIN_NUMBER = re.compile(r"\d{1,15}(?:\.(\d{1,20}))?(?:[eE][+-]?\d{1,2})?")
_DEAREST = 10**15
_OBTAINABLE = frozenset({Availability.IN_STOCK, Availability.LIMITED, Availability.ONLINE_ONLY})


def claim_things(claims: Claims, things: list[Thing], source: ClaimSource, sure: float, identity: PageIdentity) -> str:
    """Claim the data about the page's product. Return what the data describe: "product", "list" or "nothing"."""
    products = [thing for thing in things if not thing.others and _is_product(thing)]
    own, verdict = _own(products, identity)
    if not own:
        return verdict
    first = own[0]
    group = next((thing for thing in own if "productgroup" in thing.types), None)
    if group is not None:
        _claim_plain(claims, group, source, sure * 0.95, identity)
        own = [thing for thing in own if thing is not group] + [
            variant for variant in group.things("hasvariant") if variant not in own
        ]
        first = _best_variant(own, identity) or group
    _claim_plain(claims, first, source, sure, identity, number_sure=1 if len(own) == 1 else 0.6)
    offers = [offer for thing in own for offer in thing.things("offers", "offerdetails", "offer")]
    chosen = _choose_offer(first.things("offers", "offerdetails", "offer") or offers, identity)
    _claim_offers(claims, chosen, offers, source, sure, identity.home)
    if chosen is not None and not claims.of("sku"):
        claims.add("sku", _article_number(chosen.text("sku")), source, sure * 0.7)
        claims.add("gtin", gtin_of(chosen.text(*_GTINS)), source, sure * 0.7)
        claims.add("mpn", chosen.text("mpn"), source, sure * 0.6)
    if not offers:
        _claim_offers(claims, first, [first], source, sure * 0.8, identity.home)
    return "product"


def claim_breadcrumbs(claims: Claims, things: list[Thing], source: ClaimSource, sure: float) -> None:
    """Claim the longest list of breadcrumbs in the data."""
    best: tuple[str, ...] = ()
    for thing in things:
        if "breadcrumblist" not in thing.types and not thing.types & {"breadcrumb"}:
            continue
        steps: list[tuple[float, str]] = []
        for at, step in enumerate(thing.things("itemlistelement")[:30]):
            name = step.text("name") or next((item.text("name") for item in step.things("item")), "")
            place = step.number("position")
            if name:
                steps.append((place if place is not None else at, plain_text(name, 200)))
        if len(steps) > len(best):
            best = tuple(name for _, name in sorted(steps, key=lambda step: step[0]))
    claims.add("breadcrumbs", best, source, sure)


def claim_loose_rating(
    claims: Claims, things: list[Thing], source: ClaimSource, sure: float, identity: PageIdentity
) -> None:
    """Claim a rating outside of the product, unless there are several that differ."""
    held = {id(rating) for thing in things for rating in thing.things("aggregaterating")}
    loose = [
        thing
        for thing in things
        if "aggregaterating" in thing.types and not thing.others and id(thing) not in held and _of_here(thing, identity)
    ]
    if len({(rating.number("ratingvalue"), rating.count("reviewcount", "ratingcount")) for rating in loose}) == 1:
        _claim_rating(claims, loose[0], source, sure)


def _of_here(rating: Thing, identity: PageIdentity) -> bool:
    """False when the rating says that it is about something other than the page's product."""
    rated = rating.things("itemreviewed")
    named = rated[0].text("name") if rated else rating.text("itemreviewed", "itemname")
    if rated and rated[0].types and not rated[0].types & (_PRODUCTS | _SALEABLE | {"thing"}):
        return False
    return not named or identity.likeness(named) >= 0.6


def _is_product(thing: Thing) -> bool:
    if thing.types & _PRODUCTS:
        return True
    return bool(thing.types & _SALEABLE) and bool(thing.things("offers"))


def _own(products: list[Thing], identity: PageIdentity) -> tuple[list[Thing], str]:
    """The thing or the variants that are the page's own, and what the data as a whole describe."""
    if not products:
        return [], "nothing"
    scored = [(_score(thing, identity), thing) for thing in products]
    top = max(score for score, _ in scored)
    names = {thing.text("name").casefold() for thing in products}
    if len(products) > 1 and len(names) > 1 and top < 0.6:
        return [], "list"
    if (
        len(products) == 1
        and top < 0.1
        and products[0].text("name")
        and identity.names
        and not products[0].things("offers")
    ):
        return [], "nothing"
    best = next(thing for score, thing in scored if score == top)
    name = best.text("name").casefold()
    same = [thing for _, thing in scored if thing is best or (name and thing.text("name").casefold() == name)]
    same.sort(key=lambda thing: thing is not best)
    return same, "product"


def _score(thing: Thing, identity: PageIdentity) -> float:
    score = identity.likeness(thing.text("name"))
    if any(
        identity.is_here(address) for address in (thing.text("url"), thing.text("@id"), thing.text("mainentityofpage"))
    ):
        score += 0.6
    if any(identity.names_number(thing.text(name)) for name in ("sku", "productid", "mpn")):
        score += 0.5
    if thing.things("offers"):
        score += 0.2
    if "productgroup" in thing.types:
        score += 0.3
    return score


def _best_variant(variants: list[Thing], identity: PageIdentity) -> Thing | None:
    for variant in variants:
        offers = variant.things("offers")
        numbers = [variant.text("sku"), variant.text("productid"), *(offer.text("sku") for offer in offers)]
        if any(identity.names_number(number) for number in numbers):
            return variant
    return variants[0] if variants else None


def _claim_plain(
    claims: Claims, thing: Thing, source: ClaimSource, sure: float, identity: PageIdentity, number_sure: float = 1
) -> None:
    """Claim everything but the offers. The number of one variant among many is less sure to be the right one."""
    claims.add("title", plain_text(thing.text("name"), 400), source, sure)
    claims.add("brand", plain_text(thing.text("brand"), 100), source, sure)
    claims.add("brand", plain_text(thing.text("manufacturer", "author"), 100), source, sure * 0.4)
    for name, share in (("sku", 1.0), ("productid", 0.9), ("identifier", 0.5)):
        number = _article_number(thing.text(name))
        share *= 1.0 if identity.names_number(number) else number_sure * 0.85
        claims.add("sku", number, source, sure * share)
    claims.add("gtin", gtin_of(thing.text(*_GTINS)), source, sure)
    mpn = _article_number(thing.text("mpn", "model"))
    # A shop that does not know the maker's number repeats its own.
    if any(char.isdigit() for char in mpn) and mpn != _article_number(thing.text("sku")):
        claims.add("mpn", mpn, source, sure * 0.8)
    claims.add("description", plain_text(thing.text("description"), 1000), source, sure)
    images = [
        image.text("contenturl", "url") if isinstance(image, Thing) else plain_text(str(image))
        for image in thing.values("image", "photo")[:30]
    ]
    claims.add("images", tuple(image for image in images if image), source, sure)
    for rating in thing.things("aggregaterating")[:1] or [thing]:
        _claim_rating(claims, rating, source, sure)


def _claim_rating(claims: Claims, rating: Thing, source: ClaimSource, sure: float) -> None:
    """Claim the rating, brought to a scale of five, and the number of reviews."""
    value, best = rating.number("ratingvalue"), rating.number("bestrating")
    if value is not None:
        if best is not None and best > 5 and value <= best:
            value = value * 5 / best
        if 0 < value <= 5:
            claims.add("rating", round(value, 2), source, sure)
    claims.add("review_count", rating.count("reviewcount", "ratingcount"), source, sure)


def _article_number(text: str) -> str:
    """The text, if it may be the number of an article: a few words, neither a sentence nor an address; else ""."""
    text = plain_text(text, 81)
    for prefix in ("sku:", "mpn:", "isbn:", "ean:", "gtin:"):
        if text.lower().startswith(prefix):
            text = text[len(prefix) :].strip()
    return text if len(text) <= 80 and "://" not in text and text.count(" ") <= 4 else ""


def _choose_offer(offers: list[Thing], identity: PageIdentity) -> Thing | None:
    """The offer with the number in the page's address, else the first available one, else the first."""
    flat = _flat(offers)
    if not flat:
        return None
    for offer in flat:
        if identity.names_number(offer.text("sku")) or identity.names_number(offer.text("@id", "identifier")):
            return offer
    priced = [offer for offer in flat if _price(offer, identity.home)[0] is not None] or flat
    return next((offer for offer in priced if availability_of(offer.text("availability")) in _OBTAINABLE), priced[0])


def _claim_offers(
    claims: Claims, chosen: Thing | None, offers: list[Thing], source: ClaimSource, sure: float, home: tuple[str, ...]
) -> None:
    """Claim the chosen offer's price, and whether any of the offers is available."""
    if chosen is None:
        return
    price, regular = _price(chosen, home)
    if price is None:
        price = next((each for each, _ in (_price(offer, home) for offer in _flat(offers)) if each is not None), None)
    if price is not None:
        # A price of zero is usually an unfilled template.
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
        # If one of many sizes is sold out, the product is still available.
        claims.add("availability", next((each for each in known if each in _OBTAINABLE), known[0]), source, sure)


def _flat(offers: list[Thing]) -> list[Thing]:
    """The offers, those inside an AggregateOffer before it."""
    flat: list[Thing] = []
    for offer in offers[:_MOST_OFFERS]:
        flat += offer.things("offers")[:_MOST_OFFERS]
        flat.append(offer)
    return flat[:_MOST_OFFERS]


def _price(offer: Thing, home: tuple[str, ...]) -> tuple[Money | None, Money | None]:
    """The price, and the regular price if the offer states one."""
    currency = offer.text("pricecurrency", "currency")
    price = money_of(offer.plain("price"), currency, home)
    regular: Money | None = None
    for part in offer.things("pricespecification")[:20]:
        money = money_of(part.plain("price", "minprice"), part.text("pricecurrency") or currency, home)
        kind = part.text("pricetype").lower()
        if any(old in kind for old in _OLD_PRICE_TYPES):
            regular = regular or money
        elif money is not None and price is None:
            price = money
    if price is None or price.amount == 0:
        price = money_of(offer.plain("lowprice"), currency, home) or price
    return price, regular


def money_of(value: object, currency: str, home: tuple[str, ...] = ()) -> Money | None:
    """The price in a value of data, which is a number or a text; None for any other value.

    In a plain number the point separates decimals, whatever their count; only in a text of a currency without decimals
    does it separate thousands. `home` are the currencies of the shop's country.
    """
    code = currency_code(currency, home)
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        exact = math.isfinite(value) and 0 <= value < _DEAREST
        return Money(Decimal(str(value)), code) if exact else None
    text = value if isinstance(value, str) else ""
    plain = _PLAIN_NUMBER.fullmatch(text)
    if plain is not None and not (code in NO_DECIMALS and len(plain[1] or "") == 3):
        amount = Decimal(text)
        if amount >= _DEAREST:
            return None
        # "1.29999E7" is how machines write 12999900.
        return Money(amount.quantize(Decimal(1)) if _decimals(amount) < 0 else amount, code)
    money = Money.parse(text, code or None, home=home)
    return money if money is not None and 0 <= money.amount < _DEAREST else None


def claim_price(claims: Claims, price: Money, source: ClaimSource, sure: float) -> None:
    """Claim a price that data state. "1.299" may be a careless shop's thousand: then the visible price decides."""
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
