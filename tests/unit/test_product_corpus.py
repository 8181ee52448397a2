"""Real pages with known products: the scores may not fall. And real articles, which are no products.

The floors are a little under what is measured.
"""

from __future__ import annotations

import gzip

from quality import product as quality

from gossamer.extract.product import product_of
from tests.corpora import corpus

from .productpages import page_of

FLOORS = {
    "price": 0.89,
    "sku": 0.91,
    "availability": 0.95,
    "InStock": 0.97,
    "OutOfStock": 0.60,
    "brand": 0.80,
    "currency": 0.92,
    "gtin": 0.75,
    "mpn": 0.30,
}


def test_real_products_are_read_as_well_as_before() -> None:
    corpus(quality.SET)
    cases = quality.cases()
    assert len(cases) >= 60

    scores = quality.scores([(product_of(case.page), case.truth) for case in cases])

    assert {name: score.f1 for name, score in scores.items() if score.f1 < FLOORS[name]} == {}


def test_real_articles_are_no_products() -> None:
    files = sorted(corpus("article-extraction", "html").glob("*.gz"))[:40]
    assert len(files) == 40

    pages = [gzip.decompress(file.read_bytes()).decode("utf-8", "replace") for file in files]

    assert [file.name for file, page in zip(files, pages, strict=True) if product_of(page_of(page)) is not None] == []
