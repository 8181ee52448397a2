"""The product that a page offers: `product_of(page)`, or `page.product()`.

Reading order: product.py (`Product`, and how a page is judged), claims.py (which value is believed), identity.py
(whether data are about this page's product). Then the sources. Data: structured/things.py, schema_org.py (JSON-LD and
microdata), meta_values.py, scripts.py. The visible page: visible_page.py, prices.py, availability.py, identifiers.py,
details.py.
"""

from .availability import Availability
from .claims import ClaimSource, FoundValue
from .product import Product, product_of

__all__ = ["Availability", "ClaimSource", "FoundValue", "Product", "product_of"]
