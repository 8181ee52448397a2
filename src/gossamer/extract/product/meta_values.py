"""Single values in attributes: those of <meta> (Open Graph, its product extension, other names that shops use), and
microdata properties outside of any item.
"""

from __future__ import annotations

from turbohtml import Document, Element

from ...model.money import Money, currency_code
from ..structured.things import plain_text
from .availability import availability_of
from .claims import Claims, ClaimSource
from .identifiers import gtin_of
from .identity import PageIdentity
from .schema_org import claim_price, money_of
from .visible_page import text_of

# The names for one field, the most telling first.
_PRICE = ("product:sale_price:amount", "product:price:amount", "og:price:amount", "product:price", "og:price")
_CURRENCY = ("product:sale_price:currency", "product:price:currency", "og:price:currency", "og:currency")
_SKU = ("product:retailer_item_id", "product:sku", "og:sku", "product:id", "og:product_id", "product:item_id")
_GTIN = ("product:ean", "product:upc", "og:upc", "product:gtin", "og:ean", "product:isbn")
_PLAIN_PRICE = ("price", "product:amount", "product-price", "productprice", "item_price", "cxenseparse:price")
_PLAIN_SKU = ("sku", "productid", "product_id", "product-id", "product_code", "itemid", "item_id", "product-sku")
_LABELLED = (("twitter:label1", "twitter:data1"), ("twitter:label2", "twitter:data2"))
# Microdata properties outside of any item: the field they fill, and the maximum length of a value.
_LOOSE = {
    "price": ("price", 40),
    "priceCurrency": ("currency", 3),
    "sku": ("sku", 40),
    "productID": ("sku", 40),
    "brand": ("brand", 60),
    "availability": ("availability", 200),
    "gtin13": ("gtin", 20),
    "mpn": ("mpn", 40),
}
_MOST_LOOSE = 500


def claim_metas(claims: Claims, metas: dict[str, str], home: tuple[str, ...]) -> bool:
    """Claim the values of the metas. True if they mark the page as a product page."""
    kind = metas.get("og:type", "").casefold()
    is_product = kind.rsplit(":", 1)[-1].rsplit(".", 1)[-1] in ("product", "item", "book")
    price = _first(metas, _PRICE)
    currency = _first(metas, _CURRENCY)
    og = ClaimSource.OPEN_GRAPH
    money = money_of(price, currency, home) if price else None
    if money is not None and money.amount > 0:
        claim_price(claims, money, og, 0.75)
        is_product = True
    old = _first(metas, ("product:original_price:amount", "og:price:standard_amount", "product:price:standard_amount"))
    regular = money_of(old, currency, home) if old else None
    if regular is not None and money is not None and regular.amount > money.amount:
        claims.add("regular_price", regular, og, 0.7)
    stated = _first(metas, ("product:availability", "og:availability", "availability"))
    claims.add("availability", availability_of(stated), og, 0.75)
    number = _first(metas, _SKU)
    claims.add("sku", number[:80], og, 0.6)
    claims.add("brand", plain_text(_first(metas, ("product:brand", "og:brand")), 100), og, 0.75)
    claims.add("mpn", _first(metas, ("product:mfr_part_no", "product:retailer_part_no"))[:80], og, 0.5)
    claims.add("gtin", gtin_of(_first(metas, _GTIN)), og, 0.7)
    claims.add("title", plain_text(metas.get("og:title", ""), 400), og, 0.5)
    claims.add("description", plain_text(metas.get("og:description", ""), 1000), og, 0.5)
    claims.add("images", (metas["og:image"],) if metas.get("og:image") else (), og, 0.6)
    claims.add("description", plain_text(metas.get("description", ""), 1000), ClaimSource.META, 0.4)
    _claim_plain_names(claims, metas, currency, home)
    return is_product or bool(number)


def _claim_plain_names(claims: Claims, metas: dict[str, str], currency: str, home: tuple[str, ...]) -> None:
    price = _first(metas, _PLAIN_PRICE)
    money = money_of(price, currency or _first(metas, ("currency", "pricecurrency")), home) if price else None
    if money is not None and money.amount > 0:
        claim_price(claims, money, ClaimSource.META, 0.6)
    claims.add("sku", _first(metas, _PLAIN_SKU)[:80], ClaimSource.META, 0.5)
    claims.add(
        "brand", plain_text(_first(metas, ("brand", "product-brand", "manufacturer")), 100), ClaimSource.META, 0.5
    )
    for label, data in _LABELLED:
        said, value = metas.get(label, "").casefold(), metas.get(data, "")
        if any(word in said for word in ("price", "preis", "prix", "prezzo", "precio", "preço", "цена", "cena")):
            money = _shown_price(value, currency, home)
            if money is not None and money.amount > 0:
                claims.add("price", money, ClaimSource.META, 0.5)
        elif "availab" in said:
            claims.add("availability", availability_of(value), ClaimSource.META, 0.5)
        elif "brand" in said:
            claims.add("brand", plain_text(value, 100), ClaimSource.META, 0.5)


def claim_loose_microdata(claims: Claims, tree: Document, identity: PageIdentity) -> bool:
    """Claim properties outside of any item, if the page has only one value for them: some shops forget the item.

    True if the price is among them.
    """
    loose: dict[str, set[tuple[str, bool]]] = {}
    for element in tree.select("[itemprop]")[:_MOST_LOOSE]:
        name = element.attr("itemprop") or ""
        if name in _LOOSE and element.closest("[itemscope]") is None:
            loose.setdefault(name, set()).add(_value(element))
    stated = {name: values.pop() for name, values in loose.items() if len(values) == 1}
    for name, (text, for_machines) in stated.items():
        field, longest = _LOOSE[name]
        value: object = text if len(text) <= longest else None
        if field == "price":
            currency = stated["priceCurrency"][0] if "priceCurrency" in stated else ""
            price = (money_of if for_machines else _shown_price)(text, currency, identity.home)
            if price is not None:
                claim_price(claims, price, ClaimSource.MICRODATA, 0.6)
            continue
        if field == "availability":
            value = availability_of(text)
        elif field == "gtin":
            value = gtin_of(text)
        claims.add(field, value, ClaimSource.MICRODATA, 0.6)
    return "price" in stated


def _shown_price(text: str, currency: str, home: tuple[str, ...]) -> Money | None:
    """The price in a visible text, where "1.299" is more than a thousand."""
    return Money.parse(text, currency_code(currency, home) or None, home=home)


def _value(element: Element) -> tuple[str, bool]:
    """The value of a property, and whether it comes from a machine-readable attribute."""
    stated = element.attr("content") or element.attr("href") or element.attr("value")
    return plain_text(stated if stated else text_of(element, 200), 200), bool(stated)


def _first(metas: dict[str, str], names: tuple[str, ...]) -> str:
    return next((plain_text(metas[name]) for name in names if metas.get(name)), "")
