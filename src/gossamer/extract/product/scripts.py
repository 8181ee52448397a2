"""Finds the product in data inside scripts: the state of the shop's application, data for its analytics.

An object in a script counts only if it is about this page's product: its name resembles the title, its address is this
page's, or its number is in the address. Scripts that mention neither name nor number are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from turbohtml import Document

from ..structured.lenient_json import read_json, read_literal
from ..structured.things import plain_text
from .availability import Availability, availability_of
from .claims import Claims, ClaimSource
from .identifiers import gtin_of
from .identity import PageIdentity
from .schema_org import claim_price, money_of

_MOST_SCRIPTS = 150
_LONGEST = 1_500_000  # characters of one script
_MOST_TEXT = 3_000_000  # characters of all scripts together
_MOST_NODES = 20_000  # values of one script that are visited
_MOST_STARTS = 12
_START = re.compile(r"(?:=|\(|,|:)\s{0,5}(?=\{\s{0,5}[\"'\w])")
_LONGEST_MENDED = 400_000  # characters of broken JSON worth repairing
_LITERAL = 30_000  # characters of a JavaScript object worth repairing

_NAME = ("name", "title", "productname", "product_name", "item_name", "displayname", "producttitle", "prodname")
_NUMBER = (
    "sku", "productid", "product_id", "id", "item_id", "itemid", "productcode", "code", "articlenumber", "partnumber",
    "pid", "asin", "productsku",
)  # fmt: skip
_ADDRESS = ("url", "producturl", "canonicalurl", "link", "href", "@id", "canonical", "pdpurl")
_PRICE = (
    "price", "saleprice", "currentprice", "finalprice", "sale_price", "sellingprice", "productprice", "product_price",
    "unitprice", "offerprice", "now", "pricevalue", "item_price",
)  # fmt: skip
_INSIDE = (
    "value", "amount", "current", "now", "price", "min", "raw", "gross", "sale", "formatted", "centamount",
    "sellingprice", "final", "formattedvalue",
)  # fmt: skip
_CURRENCY = (
    "currency", "pricecurrency", "currencycode", "currencyiso", "currency_code", "currencyisocode", "product_currency",
)  # fmt: skip
_BRAND = ("brand", "item_brand", "brandname", "product_brand", "manufacturer", "productbrand", "brand_name")
_STOCK = (
    "availability", "stockstatus", "stock_status", "instock", "in_stock", "isinstock", "available", "isavailable",
    "product_stock", "availabilitystatus", "stock",
)  # fmt: skip
_GTIN = ("gtin", "gtin13", "gtin14", "gtin12", "gtin8", "ean", "ean13", "upc", "barcode", "eancode")
_MPN = ("mpn", "manufacturerpartnumber", "manufacturer_part_number", "mfrpartnumber", "mpnumber")


def claim_scripts(claims: Claims, tree: Document, identity: PageIdentity) -> bool:
    """Claim the scripts' data about the page's product. True if one of them has its price."""
    spoken = False
    total = 0
    marks = [*identity.numbers[:4], *(name[:24] for name in identity.headings[:1] if len(name) >= 8)]
    for script in tree.select("script:not([src])")[:_MOST_SCRIPTS]:
        kind = (script.attr("type") or "").lower()
        if "ld+json" in kind or "html" in kind or "template" in kind:
            continue
        text = script.text
        if not 30 < len(text) <= _LONGEST or total + len(text) > _MOST_TEXT:
            continue
        if not any(mark in text for mark in marks) or not ("rice" in text or "rand" in text or "sku" in text):
            continue
        total += len(text)
        for value in _values(text, whole="json" in kind):
            for node in _objects(value):
                spoken = _claim(claims, node, identity) or spoken
    return spoken


def _values(text: str, *, whole: bool) -> Iterator[Any]:
    """The values in a script: the whole text, or the objects that are assigned or passed in it."""
    if whole or text.lstrip()[:1] in ("{", "["):
        yield from read_json(text, _LONGEST_MENDED)
        return
    at = 0
    for _ in range(_MOST_STARTS):
        start = _START.search(text, at)
        if start is None:
            return
        end = _end_of(text, start.end())
        if end is None:
            return
        piece = text[start.end() : end]
        values = read_json(piece, _LONGEST_MENDED)
        if not values and len(piece) <= _LITERAL:
            values = read_literal(piece)
        yield from values
        at = end


_BRACKETS = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[{}]", re.DOTALL)


def _end_of(text: str, start: int) -> int | None:
    """The end of the object that starts at `start`; None if it is not closed."""
    depth = 0
    for count, match in enumerate(_BRACKETS.finditer(text, start)):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
            if depth <= 0:
                return match.end()
        if count > 200_000:
            return None
    return None


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """All objects inside a value, the outer ones first; at most _MOST_NODES values are visited."""
    level = [value]
    seen = 0
    while level and seen < _MOST_NODES:
        inner: list[Any] = []
        for each in level:
            seen += 1
            if isinstance(each, dict):
                yield each
                inner += each.values()
            elif isinstance(each, list):
                inner += each[:500]
        level = [each for each in inner[:_MOST_NODES] if isinstance(each, dict | list)]


def _claim(claims: Claims, node: dict[str, Any], identity: PageIdentity) -> bool:
    """Claim the values of an object if it is about the page's product. True if it has the price."""
    if not 2 <= len(node) <= 400:
        return False
    keys = {str(name).lower(): value for name, value in node.items()}
    sure = _relevance(keys, identity)
    if sure == 0:
        return False
    said = False
    price = _first(keys, _PRICE)
    currency = _text(keys, _CURRENCY)
    if isinstance(price, dict):
        inner = {str(name).lower(): value for name, value in price.items()}
        currency = currency or _text(inner, _CURRENCY)
        price = _first(inner, _INSIDE)
    if isinstance(price, str | int | float | Decimal) and not isinstance(price, bool):
        money = money_of(price.strip()[:40] if isinstance(price, str) else price, currency, identity.home)
        if money is not None and 0 < money.amount < 10_000_000:
            claim_price(claims, money, ClaimSource.SCRIPT, 0.6 * sure)
            said = True
    brand = _first(keys, _BRAND)
    if isinstance(brand, dict):
        brand = next((value for name, value in brand.items() if str(name).lower() in ("name", "label", "title")), None)
    if isinstance(brand, str):
        claims.add("brand", plain_text(brand, 60), ClaimSource.SCRIPT, 0.6 * sure)
    number = _text(keys, _NUMBER)
    if number and any(char.isdigit() for char in number) and len(number) <= 40:
        claims.add("sku", number, ClaimSource.SCRIPT, (0.5 if identity.names_number(number) else 0.35) * sure)
    claims.add("gtin", gtin_of(_text(keys, _GTIN)), ClaimSource.SCRIPT, 0.6 * sure)
    claims.add("mpn", _text(keys, _MPN)[:80], ClaimSource.SCRIPT, 0.5 * sure)
    stock = _first(keys, _STOCK)
    if isinstance(stock, bool):
        stated = Availability.IN_STOCK if stock else Availability.OUT_OF_STOCK
        claims.add("availability", stated, ClaimSource.SCRIPT, 0.4 * sure)
    elif isinstance(stock, str):
        claims.add("availability", availability_of(stock), ClaimSource.SCRIPT, 0.5 * sure)
    return said


def _relevance(keys: dict[str, Any], identity: PageIdentity) -> float:
    """0 if the object is about something else, 1 if its name and its number or address are the product's."""
    name = _text(keys, _NAME)
    like = identity.likeness(name) if len(name) >= 4 else 0.0
    numbered = any(identity.names_number(str(keys[key])[:60]) for key in _NUMBER if key in keys)
    addresses = [str(keys[key])[:500] for key in _ADDRESS if key in keys]
    here = any("/" in address and identity.is_here(address) for address in addresses)
    if like >= 0.8:
        return 1.0 if numbered or here else 0.8
    return (0.8 if not name else 0.3) if numbered or here else 0.0


def _first(keys: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((keys[name] for name in names if keys.get(name) not in (None, "", [], {})), None)


def _text(keys: dict[str, Any], names: tuple[str, ...]) -> str:
    value = _first(keys, names)
    return plain_text(str(value), 400) if isinstance(value, str | int) and not isinstance(value, bool) else ""
