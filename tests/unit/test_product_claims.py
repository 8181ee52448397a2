"""Which of several claims is believed."""

from __future__ import annotations

from decimal import Decimal

from gossamer.extract.product import ClaimSource
from gossamer.extract.product.claims import Claims
from gossamer.model.money import Money


def test_two_weak_sources_that_agree_beat_a_stronger_one() -> None:
    claims = Claims()
    claims.add("sku", "A1", ClaimSource.JSON_LD, 0.7)
    claims.add("sku", "B2", ClaimSource.PAGE, 0.6)
    claims.add("sku", "B2", ClaimSource.ADDRESS, 0.5)
    found = claims.settle("sku")
    assert found is not None
    assert (found.value, found.source, found.confidence) == ("B2", "page", 0.8)


def test_a_source_that_repeats_itself_gains_nothing() -> None:
    claims = Claims()
    for _ in range(500):
        claims.add("sku", "A1", ClaimSource.PAGE, 0.4)
    claims.add("sku", "B2", ClaimSource.JSON_LD, 0.5)
    found = claims.settle("sku")
    assert found is not None
    assert (found.value, found.confidence) == ("B2", 0.5)


def test_prices_agree_by_amount() -> None:
    claims = Claims()
    claims.add("price", Money(Decimal("9.00"), "EUR"), ClaimSource.JSON_LD, 0.9)
    claims.add("price", Money(Decimal(9), ""), ClaimSource.PAGE, 0.5)
    found = claims.settle("price")
    assert found is not None
    assert found.value == Money(Decimal("9.00"), "EUR")
    assert found.confidence == 0.95


def test_nothing_claimed_is_nothing_found() -> None:
    claims = Claims()
    claims.add("brand", "", ClaimSource.JSON_LD, 0.9)
    claims.add("brand", None, ClaimSource.PAGE, 0.9)
    assert claims.settle("brand") is None
    assert claims.surest("brand") == 0


def test_no_confidence_is_certainty() -> None:
    claims = Claims()
    for source in ClaimSource:
        claims.add("brand", "Acme", source, 0.9)
    assert claims.surest("brand") == 0.99
