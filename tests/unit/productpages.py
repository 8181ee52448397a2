"""Small pages of shops, as the tests of the product parser write them."""

from __future__ import annotations

import json
from typing import Any

from gossamer.extract.product import Product, product_of
from gossamer.model.page import Headers, Snapshot
from gossamer.parse.page import Page

URL = "https://shop.example/p/blue-kettle-48213"


def page_of(html: str, url: str = URL, content_type: str = "text/html; charset=utf-8") -> Page:
    headers = Headers([("content-type", content_type)])
    return Page(Snapshot(url=url, requested_url=url, status=200, headers=headers, body=html.encode(), fetched_at=0.0))


def read(html: str, url: str = URL) -> Product:
    """The product of a page that has one."""
    product = product_of(page_of(html, url))
    assert product is not None
    return product


def json_ld(*things: dict[str, Any]) -> str:
    return "".join(f'<script type="application/ld+json">{json.dumps(thing)}</script>' for thing in things)


def kettle(**more: Any) -> dict[str, Any]:
    """A product in JSON-LD."""
    return {"@context": "https://schema.org", "@type": "Product", "name": "Blue Kettle", **more}


def offer(price: str, **more: Any) -> dict[str, Any]:
    return {"@type": "Offer", "price": price, "priceCurrency": "EUR", **more}


def shop(body: str, head: str = "") -> str:
    """A page with a title and what a visitor sees under it."""
    return f"<html><head><title>Blue Kettle | Shop</title>{head}</head><body><h1>Blue Kettle</h1>{body}</body></html>"
