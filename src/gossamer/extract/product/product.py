"""`Product` and `product_of`: from a page to the product that it offers, or to None.

What it does: collects the claims of every source (JSON-LD, microdata, Open Graph and other metas, data in scripts, the
visible page, the address), lets `Claims` decide, and judges whether the page is a product page at all.
How it fails: nothing raises. An unreadable source claims nothing, and a page that is not markup has no product.
How it recovers: every source is limited in size and count, so a hostile page costs milliseconds, not minutes.

How a page is judged. Signs are weighed: data that describes this page's product (3), metas that call it a product
(2), a price near the title or one marked as such (1.5 each), a buy button (1), a labelled number (1), a script that
describes it (1), words about stock (0.75), a number of the address that the page uses (0.5), a form for the cart
(0.5). Data that lists several products, and metas that call the page an article, count against it. Two points make
a product page. A category page has many prices, but in tiles that link elsewhere, not at its title: it is not a product
page.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import msgspec
from turbohtml import Document

from ...errors import InvalidUrl
from ...model.money import Money
from ..markup import Markup
from ..structured.facts import StatedFacts, named_metas
from .availability import Availability, buy_buttons, claim_stock, has_buy_form
from .claims import Claim, Claims, ClaimSource, FoundValue
from .details import claim_details
from .identifiers import brand_in_link, claim_address, claim_attributes, claim_labels, claim_named, without_label
from .identity import PageIdentity
from .meta_values import claim_loose_microdata, claim_metas
from .prices import claim_prices
from .schema_org import claim_breadcrumbs, claim_loose_rating, claim_things
from .scripts import claim_scripts
from .visible_page import VisiblePage

_SEEN = (ClaimSource.PAGE, ClaimSource.SCRIPT)
_SKU_IN_SCRIPT = re.compile(
    rb"""["']?\bsku["']?\s{0,3}:\s{0,3}(?:["']([A-Za-z0-9][A-Za-z0-9_./-]{2,40})["']|([0-9]{3,20})\b)"""
)
_MOST_SOURCE = 3_000_000  # bytes of a page searched for such a number
_WORDS = re.compile(r"\w+")
_SURE_LABEL = 0.79  # confidence of a number with a clear label close to the title


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """The product that a page offers. A field missing on the page is None, or an empty tuple.

    `found["price"]` has the source of the price and its confidence; every value found has such an entry. `rating` is on
    a scale of 0 to 5. `regular_price` is the old price that is struck through.
    """

    url: str
    title: str | None = None
    price: Money | None = None
    regular_price: Money | None = None
    currency: str | None = None
    availability: Availability | None = None
    rating: float | None = None
    review_count: int | None = None
    brand: str | None = None
    sku: str | None = None
    gtin: str | None = None
    mpn: str | None = None
    description: str | None = None
    images: tuple[str, ...] = ()
    breadcrumbs: tuple[str, ...] = ()
    found: dict[str, FoundValue] = {}

    def to_dict(self) -> dict[str, Any]:
        """The values without their sources, to be yielded as an item: `yield page.product().to_dict()`."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "found"}


_FIELDS = tuple(name for name in Product.__struct_fields__ if name not in ("url", "found"))
_ENOUGH = 2.0  # points that make a product page
_LEAST_SURE = 0.2  # values with less confidence are left out


def product_of(page: Markup) -> Product | None:
    """The product that the page offers; None if it is not a product page."""
    tree = page.tree
    if tree is None:
        return None
    facts = page.facts
    social, others = named_metas(facts)
    metas = {**others, **social}
    identity = PageIdentity(tree, page.url, metas)
    claims = Claims()
    signs = _signs_in_data(claims, tree, facts, identity)
    signs += _signs_in_metas(claims, metas, identity)
    signs += _signs_on_page(claims, tree, page.body, identity)
    if signs < _ENOUGH:
        return None
    check_claims(claims, identity, page.body)
    return _product(claims, page)


def _signs_in_data(claims: Claims, tree: Document, facts: StatedFacts, identity: PageIdentity) -> float:
    verdicts: set[str] = set()
    notations = (
        (ClaimSource.JSON_LD, facts.json_ld_things, 0.9),
        (ClaimSource.MICRODATA, facts.microdata_things, 0.85),
    )
    for source, things, sure in notations:
        if things:
            verdicts.add(claim_things(claims, things, source, sure, identity))
            claim_breadcrumbs(claims, things, source, sure)
            if not claims.of("rating"):
                claim_loose_rating(claims, things, source, sure * 0.8, identity)
    loose = False
    if not any(claim.source is ClaimSource.MICRODATA for claim in claims.of("price")):
        loose = claim_loose_microdata(claims, tree, identity)
    if "product" in verdicts:
        return 3.0
    return -2.0 if "list" in verdicts else 1.5 if loose else 0.0


def _signs_in_metas(claims: Claims, metas: dict[str, str], identity: PageIdentity) -> float:
    signs = 2.0 if claim_metas(claims, metas, identity.home) else 0.0
    kind = metas.get("og:type", "").casefold()
    return signs - 1.5 if kind.startswith(("article", "blog", "product.group", "profile", "video")) else signs


def _signs_on_page(claims: Claims, tree: Document, source: bytes, identity: PageIdentity) -> float:
    signs = 0.0
    visible = VisiblePage(tree, identity)
    buttons = buy_buttons(visible)
    form = has_buy_form(tree)
    currency = claims.settle("currency")
    known = str(currency.value) if currency is not None else None
    priced = claim_prices(claims, visible, buttons, known, identity.home)
    numbers = claim_labels(claims, visible, identity) + claim_named(claims, visible, identity)
    claim_attributes(claims, visible)
    confirmed = claim_address(claims, identity, source)
    claim_details(claims, visible, identity)
    if claims.surest("price") < 0.7 or claims.surest("sku") < 0.5 or claims.surest("brand") < 0.4:
        signs += 1.0 if claim_scripts(claims, tree, identity) else 0.0
    said = claim_stock(claims, visible, button=bool(buttons), form=form, has_price=bool(claims.of("price")))
    signs += 1.5 if priced else 0.0
    signs += 1.0 if buttons else 0.5 if form else 0.0
    signs += 1.0 if numbers else 0.0
    signs += 0.5 if confirmed else 0.0
    signs += 0.75 if said else 0.0
    return signs


def _product(claims: Claims, page: Markup) -> Product:
    found: dict[str, FoundValue] = {}
    for field in _FIELDS:
        settled = claims.settle(field)
        if settled is not None and settled.confidence >= _LEAST_SURE:
            found[field] = settled
    _join_addresses(found, page)
    _agree_on_currency(found)
    return Product(url=page.url, found=found, **{field: each.value for field, each in found.items()})


def _join_addresses(found: dict[str, FoundValue], page: Markup) -> None:
    images = found.pop("images", None)
    if images is None:
        return
    absolute: list[str] = []
    for image in images.value:
        try:
            absolute.append(page.urljoin(image))
        except InvalidUrl:
            continue
    if absolute:
        found["images"] = FoundValue(tuple(dict.fromkeys(absolute)), images.source, images.confidence)


def _agree_on_currency(found: dict[str, FoundValue]) -> None:
    """Make the two agree: the currency of the price counts, and a price without one takes the currency of the page."""
    price, currency = found.get("price"), found.get("currency")
    if price is None:
        # A currency without a price says nothing about the product.
        found.pop("currency", None)
        return
    if not price.value.currency and currency is not None:
        money = msgspec.structs.replace(price.value, currency=currency.value)
        found["price"] = FoundValue(money, price.source, price.confidence)
    elif price.value.currency and (currency is None or currency.value != price.value.currency):
        found["currency"] = FoundValue(price.value.currency, price.source, price.confidence)


def check_claims(claims: Claims, identity: PageIdentity, source: bytes) -> None:
    _check_brand(claims, identity)
    _check_number(claims, identity, source)
    _check_price(claims)


def _check_brand(claims: Claims, identity: PageIdentity) -> None:
    host = _squeezed(urlsplit(identity.url).netloc)
    names = [_squeezed(name) for name in identity.names]

    def checked(claim: Claim) -> Claim | None:
        value = without_label(brand_in_link(str(claim.value)), "brand")
        squeezed = _squeezed(value)
        if not squeezed or squeezed.isdigit():
            return None
        sure = claim.confidence
        if any(squeezed in name for name in names):
            sure = 1 - (1 - sure) * 0.6
        elif claim.source in _SEEN and squeezed not in host:
            sure *= 0.85
        return Claim(value, claim.source, sure)

    claims.revise("brand", checked)


def _check_number(claims: Claims, identity: PageIdentity, source: bytes) -> None:
    def checked(claim: Claim) -> Claim | None:
        text = without_label(str(claim.value), "sku")
        words = text.split()
        phrase = len(words) > 3 or (len(words) > 1 and not any(char.isdigit() for char in text))
        return Claim(text, claim.source, claim.confidence * (0.3 if phrase else 1.0))

    claims.revise("sku", checked)
    labelled = [one for one in claims.of("sku") if one.source is ClaimSource.PAGE and one.confidence >= _SURE_LABEL]
    settled = claims.settle("sku")
    if (
        settled is not None
        and len(labelled) == 1
        and settled.source != ClaimSource.PAGE.value
        and identity.names_number(str(settled.value))
        and not identity.names_number(str(labelled[0].value))
    ):
        claims.add("sku", labelled[0].value, ClaimSource.PAGE, settled.confidence + 0.01)
    if claims.surest("sku") < 0.5:
        found = _SKU_IN_SCRIPT.findall(source, 0, _MOST_SOURCE)
        numbers = {(quoted or bare).decode("ascii") for quoted, bare in found}
        if len(numbers) == 1:
            claims.add("sku", numbers.pop(), ClaimSource.SCRIPT, 0.55)


def _check_price(claims: Claims) -> None:
    settled = claims.settle("price")
    seen = [one for one in claims.of("price") if one.source is ClaimSource.PAGE]
    struck = {one.value.amount for one in claims.of("regular_price") if one.source is ClaimSource.PAGE}
    if settled is None or settled.value.amount not in struck:
        return
    if not any(one.value.amount < settled.value.amount and one.confidence >= 0.5 for one in seen):
        return

    def checked(claim: Claim) -> Claim:
        money: Money = claim.value
        return claim if money.amount not in struck else Claim(money, claim.source, claim.confidence * 0.3)

    claims.revise("price", checked)


def _squeezed(text: str) -> str:
    return "".join(_WORDS.findall(text[:400].casefold()))
