"""What the ready parsers for products and articles give: their values, and the fields that `auto` makes of them."""

from __future__ import annotations

from .model import Field, FieldType, Reading, Source, SourceKind

_TEXTS, _URLS = (FieldType.LIST, FieldType.TEXT), (FieldType.LIST, FieldType.URL)

# Name of the value -> its type; for a list, also that of its entries.
PRODUCT: dict[str, FieldType | tuple[FieldType, FieldType]] = {
    "title": FieldType.TEXT,
    "price": FieldType.MONEY,
    "regular_price": FieldType.MONEY,
    "currency": FieldType.TEXT,
    "availability": FieldType.TEXT,
    "rating": FieldType.FLOAT,
    "review_count": FieldType.INT,
    "brand": FieldType.TEXT,
    "sku": FieldType.TEXT,
    "gtin": FieldType.TEXT,
    "mpn": FieldType.TEXT,
    "description": FieldType.TEXT,
    "images": _URLS,
    "breadcrumbs": _TEXTS,
}
ARTICLE: dict[str, FieldType | tuple[FieldType, FieldType]] = {
    "title": FieldType.TEXT,
    "text": FieldType.TEXT,
    "markdown": FieldType.MARKDOWN,
    "authors": _TEXTS,
    "published": FieldType.DATE,
    "modified": FieldType.DATE,
    "language": FieldType.TEXT,
    "site_name": FieldType.TEXT,
    "description": FieldType.TEXT,
    "image": FieldType.URL,
    "words": FieldType.INT,
}
READY = {SourceKind.PRODUCT.value: PRODUCT, SourceKind.ARTICLE.value: ARTICLE}
_REQUIRED = ("title",)
_LEFT_OUT = {"product": ("currency",), "article": ("markdown",)}  # said already by another field


def auto_fields(parser: str) -> tuple[Field, ...]:
    """A field for every value of the parser; the title is required."""
    fields = []
    for name, kind in READY[parser].items():
        if name in _LEFT_OUT[parser]:
            continue
        source = Source(kind=SourceKind(parser), name=name)
        reading = Reading(type=kind[0], of=kind[1]) if isinstance(kind, tuple) else Reading(type=kind)
        fields.append(Field(name=name, sources=(source,), reading=reading, required=name in _REQUIRED))
    return tuple(fields)
