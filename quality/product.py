"""How well products are read: F1 per attribute over the pages of the product-extraction set.

The measure is the set's own. For every page an attribute has a set of accepted values. Nothing where something is
true is missing; a value that is accepted is right; any other value is wrong, and what is true is then missing too.
Prices are compared as numbers. A currency sign counts as right when it can stand for the currency that was read.
"""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any, NamedTuple

from bench.table import table

from gossamer.extract.product import Product, product_of
from gossamer.model.currencies import SHARED
from gossamer.model.money import currency_code
from gossamer.parse.page import Page

from .corpora import CORPORA, absent, kept_aside, page_of

SET = "product-extraction"
ATTRIBUTES = ("price", "sku", "availability", "InStock", "OutOfStock", "brand", "currency", "gtin", "mpn")
# As published with the set, over all of its pages; nobody published the other attributes.
PUBLISHED = {
    "price": (0.918, 0.824, 0.685),
    "sku": (0.841, 0.765, 0.537),
    "availability": (0.957, 0.943, 0.626),
}


class Case(NamedTuple):
    name: str
    page: Page
    truth: dict[str, Any]


class Score(NamedTuple):
    """Counts of one attribute over all pages."""

    right: int = 0
    wrong: int = 0
    missing: int = 0

    @property
    def f1(self) -> float:
        told, true = self.right + self.wrong, self.right + self.missing
        return 2 * self.right / (told + true) if told + true else 0.0


def cases() -> list[Case]:
    """The pages of the set with their true values."""
    truth = json.loads((CORPORA / SET / "ground-truth.json").read_text(encoding="utf-8"))
    return [Case(name, page_of(SET, name, values["url"]), values) for name, values in sorted(truth.items())]


def scores(products: list[tuple[Product | None, dict[str, Any]]]) -> dict[str, Score]:
    """The score of every attribute."""
    found: dict[str, Score] = {}
    for attribute in ATTRIBUTES:
        right = wrong = missing = 0
        for product, truth in products:
            accepted = {_plain(attribute, value) for value in truth.get(attribute, ())}
            told = _told(attribute, product, truth)
            right += told is not None and told in accepted
            wrong += told is not None and told not in accepted
            missing += bool(accepted) and told not in accepted
        found[attribute] = Score(right, wrong, missing)
    return found


def may_mean(sign: str, code: str) -> bool:
    """True when a written sign can stand for the currency: "$" for every dollar and peso, "€" for EUR only."""
    return currency_code(sign) == code or code in SHARED.get(sign, "").split()


def report() -> list[str]:
    """The lines of this section."""
    missing = absent(SET)
    if missing:
        return missing
    known = cases()
    for case in known:
        assert case.page.tree is not None
    started = time.thread_time()
    products = [(product_of(case.page), case.truth) for case in known]
    seconds = time.thread_time() - started
    aside = scores([pair for case, pair in zip(known, products, strict=True) if kept_aside(case.name)])
    rows = []
    for attribute, score in scores(products).items():
        peers = [f"{each:.3f}" for each in PUBLISHED.get(attribute, ())] or ["", "", ""]
        counts = [str(each) for each in score]
        rows.append([attribute, f"{score.f1:.3f}", f"{aside[attribute].f1:.3f}", *peers, *counts])
    kilobytes = sum(len(case.page.body) for case in known) / len(known) / 1024
    return [
        table(["F1", "gossamer", "kept aside", "zyte", "diffbot", "extruct", "right", "wrong", "missing"], rows),
        f"{len(known)} pages of {kilobytes:,.0f} KB on average; {len(known) / seconds:,.0f} pages/s,"
        f" {1000 * seconds / len(known):.1f} ms of CPU each, once a page is parsed",
    ]


def _told(attribute: str, product: Product | None, truth: dict[str, Any]) -> object:
    """What was read, in the form in which the truth is given."""
    if product is None:
        return None
    if attribute == "price":
        return product.price.amount if product.price is not None else None
    if attribute in ("InStock", "OutOfStock"):
        return attribute if product.availability == attribute else None
    if attribute == "currency" and product.currency is not None:
        signs = truth.get("currency", ())
        return next((sign for sign in signs if may_mean(sign, product.currency)), product.currency)
    value = getattr(product, attribute)
    return None if value is None else str(value)


def _plain(attribute: str, value: str) -> object:
    return Decimal(value.strip().replace(",", "")) if attribute == "price" else value
