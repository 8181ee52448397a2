"""The product of a page as JSON-LD or microdata tells it.

Which thing is the page's own: the one with the page's address, or whose name is the page's title, or whose number
stands in the address. Several with one name are the variants of one product. Several with different names and none
like the title are a list, and a list is no product.
"""

from __future__ import annotations

from .claims import Claims
from .identity import PageIdentity
from .offers import choose_offer, claim_offers
from .things import Thing, plain_text
from .values import Source

_PRODUCTS = frozenset(
    "product productgroup productmodel individualproduct someproducts vehicle car motorcycle".split()  # noqa: SIM905
)
# Things that are products when someone offers them.
_SALEABLE = frozenset(
    """book event musicevent theaterevent comedyevent sportsevent festival screeningevent softwareapplication
    mobileapplication webapplication videogame course movie musicalbum accommodation apartment house
    realestatelisting touristtrip menuitem""".split()  # noqa: SIM905
)
_GTINS = ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "isbn", "upc")


def claim_things(claims: Claims, things: list[Thing], source: Source, sure: float, identity: PageIdentity) -> str:
    """Note what the data says about the page's product. Gives "product", "list" or "nothing"."""
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
    chosen = choose_offer(first.things("offers", "offerdetails", "offer") or offers, identity)
    claim_offers(claims, chosen, offers, source, sure, identity.home)
    if chosen is not None and not claims.of("sku"):
        claims.add("sku", _number(chosen.text("sku")), source, sure * 0.7)
        claims.add("gtin", gtin_of(chosen.text(*_GTINS)), source, sure * 0.7)
        claims.add("mpn", chosen.text("mpn"), source, sure * 0.6)
    if not offers:
        claim_offers(claims, first, [first], source, sure * 0.8, identity.home)
    return "product"


def claim_trail(claims: Claims, things: list[Thing], source: Source, sure: float) -> None:
    """Note the breadcrumbs, the longest list the data has."""
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
    claims: Claims, things: list[Thing], source: Source, sure: float, identity: PageIdentity
) -> None:
    """Note the stars that hang under nothing, or under the product by its name. Several that differ say nothing."""
    held = {id(rating) for thing in things for rating in thing.things("aggregaterating")}
    loose = [
        thing
        for thing in things
        if "aggregaterating" in thing.types and not thing.others and id(thing) not in held and _of_here(thing, identity)
    ]
    if len({(rating.number("ratingvalue"), rating.count("reviewcount", "ratingcount")) for rating in loose}) == 1:
        claim_rating(claims, loose[0], source, sure)


def _of_here(rating: Thing, identity: PageIdentity) -> bool:
    """False when the rating says that it is about something else than the page's product."""
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
    """The thing or the variants that are the page's own, and what the data as a whole is."""
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
    claims: Claims, thing: Thing, source: Source, sure: float, identity: PageIdentity, number_sure: float = 1
) -> None:
    """Note everything but the offers. The number of one variant of many is less sure to be the one that is meant."""
    claims.add("title", plain_text(thing.text("name"), 400), source, sure)
    claims.add("brand", plain_text(thing.text("brand"), 100), source, sure)
    claims.add("brand", plain_text(thing.text("manufacturer", "author"), 100), source, sure * 0.4)
    for name, share in (("sku", 1.0), ("productid", 0.9), ("identifier", 0.5)):
        number = _number(thing.text(name))
        share *= 1.0 if identity.names_number(number) else number_sure * 0.85
        claims.add("sku", number, source, sure * share)
    claims.add("gtin", gtin_of(thing.text(*_GTINS)), source, sure)
    mpn = _number(thing.text("mpn", "model"))
    # A shop that has no number of the maker repeats its own.
    if any(char.isdigit() for char in mpn) and mpn != _number(thing.text("sku")):
        claims.add("mpn", mpn, source, sure * 0.8)
    claims.add("description", plain_text(thing.text("description"), 1000), source, sure)
    images = [
        image.text("contenturl", "url") if isinstance(image, Thing) else plain_text(str(image))
        for image in thing.values("image", "photo")[:30]
    ]
    claims.add("images", tuple(image for image in images if image), source, sure)
    for rating in thing.things("aggregaterating")[:1] or [thing]:
        claim_rating(claims, rating, source, sure)


def claim_rating(claims: Claims, rating: Thing, source: Source, sure: float) -> None:
    """Note stars and their count; stars of another scale are brought to five."""
    value, best = rating.number("ratingvalue"), rating.number("bestrating")
    if value is not None:
        if best is not None and best > 5 and value <= best:
            value = value * 5 / best
        if 0 < value <= 5:
            claims.add("rating", round(value, 2), source, sure)
    claims.add("review_count", rating.count("reviewcount", "ratingcount"), source, sure)


def _number(text: str) -> str:
    """A number of an article: one word or few, neither a sentence nor an address."""
    text = plain_text(text, 81)
    for prefix in ("sku:", "mpn:", "isbn:", "ean:", "gtin:"):
        if text.lower().startswith(prefix):
            text = text[len(prefix) :].strip()
    return text if len(text) <= 80 and "://" not in text and text.count(" ") <= 4 else ""


def gtin_of(text: str) -> str:
    """The digits of a GTIN, EAN, UPC or ISBN-13; "" for what has not their length or fails the check digit."""
    digits = "".join(char for char in text[:40] if char.isascii() and char.isdigit())
    if len(digits) not in (8, 12, 13, 14) or not digits.strip("0"):
        return ""
    weighted = sum(int(digit) * (3 if at % 2 else 1) for at, digit in enumerate(reversed(digits)))
    return digits if weighted % 10 == 0 else ""
