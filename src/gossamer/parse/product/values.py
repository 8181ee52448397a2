"""What is known about a product, and how well: `Product`, `Found` and `Availability`. Values only."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from ...model.money import Money


class Availability(StrEnum):
    """Whether it can be had, in the words of schema.org."""

    IN_STOCK = "InStock"
    OUT_OF_STOCK = "OutOfStock"
    PRE_ORDER = "PreOrder"
    PRE_SALE = "PreSale"
    BACK_ORDER = "BackOrder"
    LIMITED = "LimitedAvailability"
    SOLD_OUT = "SoldOut"
    DISCONTINUED = "Discontinued"
    IN_STORE_ONLY = "InStoreOnly"
    ONLINE_ONLY = "OnlineOnly"
    MADE_TO_ORDER = "MadeToOrder"
    RESERVED = "Reserved"


class Source(StrEnum):
    """Where in the page a value was found."""

    JSON_LD = "json-ld"
    MICRODATA = "microdata"
    OPEN_GRAPH = "opengraph"
    META = "meta"
    SCRIPT = "page script"
    PAGE = "page"
    ADDRESS = "url"


class Found(msgspec.Struct, frozen=True):
    """One value, the best source that gave it, and how sure it is: 0 to 1. Sources that agree make it surer."""

    value: Any  # what the field of the product holds
    source: str
    confidence: float


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """The product a page offers. What the page does not tell is None, or an empty tuple.

    `found["price"]` tells where the price came from and how sure it is; there is one entry for every value that
    was found. `rating` is on a scale of 0 to 5. `regular_price` is the old price that is struck through.
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
    found: dict[str, Found] = {}

    def to_dict(self) -> dict[str, Any]:
        """The values without their sources, to be yielded as an item: `yield page.product().to_dict()`."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name != "found"}
