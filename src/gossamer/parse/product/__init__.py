"""The product a page offers: `product_of(page)`, or `page.product()`. reading.py tells how; read it first."""

from .reading import product_of
from .values import Availability, Found, Product, Source

__all__ = ["Availability", "Found", "Product", "Source", "product_of"]
