"""The fields of a drafted recipe: for every value that the ready parser found, the rules that find it too.

A rule is proposed only when it was tried: what it finds, read as the field's type, is the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from turbohtml import Element

from ...page import Page
from ..model import PRODUCT, FieldType, TypeOptions
from ..sources import structured_values
from ..values import UnreadableValue, value_of
from .pointing import selector_for

_MOST_ELEMENTS = 5000
_LONGEST = 200  # characters of an element that may hold a value
_PATHS = {
    "title": ("Product.name",),
    "price": ("Product.offers.price", "Product.offers.lowPrice"),
    "brand": ("Product.brand",),
    "sku": ("Product.sku",),
    "gtin": ("Product.gtin13", "Product.gtin", "Product.gtin12", "Product.gtin14", "Product.gtin8"),
    "mpn": ("Product.mpn",),
    "availability": ("Product.offers.availability",),
    "rating": ("Product.aggregateRating.ratingValue",),
    "review_count": ("Product.aggregateRating.reviewCount", "Product.aggregateRating.ratingCount"),
    "description": ("Product.description",),
    "images": ("Product.image",),
}
_HINTS = {  # words in a class or itemprop that speak for an element
    "title": ("title", "name", "heading"),
    "price": ("price", "cost", "amount"),
    "brand": ("brand", "vendor", "maker", "manufacturer"),
    "sku": ("sku", "article", "code", "number"),
    "rating": ("rating", "score", "stars"),
    "review_count": ("review", "count", "votes"),
    "gtin": ("gtin", "ean", "upc", "isbn"),
    "mpn": ("mpn",),
}
_VISIBLE = ("title", "price", "brand", "sku", "gtin", "mpn", "rating", "review_count")
_ORDER = (
    "sku", "title", "brand", "price", "availability", "rating", "review_count", "gtin", "mpn", "description", "images",
    "breadcrumbs",
)  # fmt: skip


class DraftField(msgspec.Struct, frozen=True, kw_only=True):
    """A field as it will be written: its rules in order, its type, and options as TOML knows them."""

    name: str
    rules: tuple[tuple[str, str], ...]  # (source, expression)
    type: str = "text"
    of: str = ""
    currency: str = ""
    required: bool = False
    transform: str = ""  # as TOML


def product_fields(page: Page, product: Any) -> list[DraftField]:  # Any: what the ready parser gave
    """A field for every value that the product parser found on the page."""
    texts = list(_leaf_texts(page))
    fields = []
    for name in _ORDER:
        value = getattr(product, name, None)
        if value in (None, "", ()):
            continue
        kind = PRODUCT[name]
        single, many = (kind[1], True) if isinstance(kind, tuple) else (kind, False)
        currency = value.currency if single is FieldType.MONEY else ""
        options = TypeOptions(type=single, currency=currency or None)
        rules = [("structured", path) for path in _structured(page, name, value, options)]
        if name in _VISIBLE:
            rules += [("css", selector) for selector in _shown_in(page, name, value, options, texts)]
        fields.append(
            DraftField(
                name=name,
                rules=tuple(rules) or (("product", name),),
                type="list" if many else single.value,
                of=single.value if many and single is not FieldType.TEXT else "",
                currency=currency if re.fullmatch(r"[A-Z]{3}", currency) else "",
                required=name == "title",
                transform="{ replace = '.*/', with = \"\" }" if name == "availability" and rules else "",
            )
        )
    return fields


def _structured(page: Page, name: str, value: Any, options: TypeOptions) -> Iterator[str]:
    """The first path of structured data that leads to the value."""
    data = page.structured()
    for path in _PATHS.get(name, ()):
        found = structured_values(data, path)
        if isinstance(value, tuple):
            if found and list(value) == [_read(entry, options, page) for entry in found]:
                yield path
                return
        elif found and (name == "availability" or _read(found[0], options, page) == value):
            yield path
            return


def _shown_in(
    page: Page, name: str, value: Any, options: TypeOptions, texts: list[tuple[Element, str]]
) -> Iterator[str]:
    """The selector of the element that shows the value best, if there is one."""
    hits = [
        (element, text) for element, text in texts if _read(text, options, page) == value and _fits(name, text, value)
    ]
    hits.sort(key=lambda hit: (not _is_hinted(name, hit[0]), hit[0].tag != "h1", len(hit[1])))
    for element, _ in hits[:5]:
        selector = selector_for(page, element)
        if selector is not None:
            yield selector
            return


def _fits(name: str, text: str, value: Any) -> bool:
    """A number in a long sentence is chance; one in a few words, or a price with its sign, is not."""
    if name in ("rating", "review_count"):
        return len(text) <= 25
    if name == "price":
        return len(text) <= 40
    return len(text) <= len(str(value)) + 3


def _is_hinted(name: str, element: Element) -> bool:
    words = " ".join((element.attr("class") or "", element.attr("itemprop") or "", element.attr("id") or "")).lower()
    return any(hint in words for hint in _HINTS[name])


def _leaf_texts(page: Page) -> Iterator[tuple[Element, str]]:
    """Short texts of the page with the elements that hold nothing else."""
    seen = 0
    for found in page.css("h1, h2, span, p, div, td, dd, li, strong, b, em, bdi, ins, a, data"):
        element = found.root
        if not isinstance(element, Element) or len(element.children) > 4 or element.select_one("*") is not None:
            continue
        seen += 1
        if seen > _MOST_ELEMENTS:
            return
        text = " ".join(element.text.split())
        if 0 < len(text) <= _LONGEST:
            yield element, text


def _read(raw: Any, options: TypeOptions, page: Page) -> Any:
    try:
        return value_of(raw, options, page)
    except UnreadableValue:
        return None
