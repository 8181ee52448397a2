"""Prices in texts: amount, currency, sign as written."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quality import prices as quality
from quality.prices import WrittenPrice, written_price
from quality.product import may_mean

from gossamer.model.money import Money, currency_code
from tests.corpora import corpus


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("35€ 99", "35.99", "EUR"),
        ("35€99", "35.99", "EUR"),
        ("99 € 79 €", "99", "EUR"),
        ("118, 99 TL", "118.99", "TRY"),
        ("1.837, 32 €", "1837.32", "EUR"),
        ("$ 8. 94", "8.94", "USD"),
        ("CAD $5", "5", "CAD"),
        ("NZ$ 12", "12", "NZD"),
        ("131 990 тг.", "131990", "KZT"),
        ("249 ₽", "249", "RUB"),
        ("特價$99元起", "99", "USD"),
        ("294元起", "294", "CNY"),
        ("1.250 KWD", "1.250", "KWD"),
        ("1,250 KWD", "1250", "KWD"),
        ("3 Ausgaben für nur 14,85 EUR", "14.85", "EUR"),
        ("50 - $2.00", "2.00", "USD"),
        ("zł 12", "12", "PLN"),
        ("Rs.500", "500", "INR"),
        ("Rs. 500", "500", "INR"),
        ("Rs.1,29,999", "129999", "INR"),
        ("S/.50", "50", "PEN"),
        ("kr.50", "50", "kr"),
        ("Kr.1.299,00", "1299.00", "kr"),
        ("Rp.50.000", "50000", "IDR"),
        ("Bs.50", "50", "BOB"),
        ("₹.500", "500", "INR"),
        ("approx.50 €", "50", "EUR"),
        ("$.99", "0.99", "USD"),
        (".99 €", "0.99", "EUR"),
        ("Border 12", "12", ""),
        ("Kruh 12", "12", ""),
    ],
)
def test_money_is_read_where_number_and_sign_stand_together(text: str, amount: str, currency: str) -> None:
    assert Money.parse(text) == Money(Decimal(amount), currency)


@pytest.mark.parametrize("text", ["15.08.2017", "2017.08.15"])
def test_date_is_no_money(text: str) -> None:
    assert Money.parse(text) is None


@pytest.mark.parametrize(
    ("text", "wish", "home", "currency"),
    [
        ("$5", None, ("AUD",), "AUD"),
        ("$5", "CAD", ("AUD",), "CAD"),
        ("¥5", None, ("HKD", "CNY"), "CNY"),
        ("$5", None, ("EUR",), "USD"),
        ("US$5", None, ("AUD",), "USD"),
        ("£5", "EUR", (), "GBP"),
        ("£5", "EGP", (), "EGP"),
        ("$5 off", "EUR", (), "USD"),
        ("5", None, ("AUD",), ""),
    ],
)
def test_shared_sign_means_the_currency_at_home(
    text: str, wish: str | None, home: tuple[str, ...], currency: str
) -> None:
    assert Money.parse(text, wish, home=home) == Money(Decimal(5), currency)


def test_sign_is_given_as_written() -> None:
    assert written_price("US$:12.99") == WrittenPrice(Decimal("12.99"), "US$")
    assert written_price("12,99", "EUR incl. VAT") == WrittenPrice(Decimal("12.99"), "EUR")
    assert written_price("1.000", decimal_separator=".") == WrittenPrice(Decimal("1.000"), None)
    assert written_price("Free!") == WrittenPrice(Decimal(0), None)
    assert written_price(None) == WrittenPrice(None, None)


def test_sign_can_mean_the_currencies_that_share_it() -> None:
    assert may_mean("$", "ARS")
    assert may_mean("kr", "SEK")
    assert may_mean("€", "EUR")
    assert may_mean("EUR", "EUR")
    assert not may_mean("€", "USD")
    assert not may_mean("$", "EUR")


def test_code_of_a_currency_is_found_however_it_is_written() -> None:
    assert [currency_code(text) for text in ("eur", " € ", "US$", "Rs.", "gold", "", None)] == [
        "EUR", "EUR", "USD", "INR", "", "", "",
    ]  # fmt: skip


@given(st.text(), st.text() | st.none())
def test_reading_a_price_never_raises(text: str, currency: str | None) -> None:
    Money.parse(text, currency)


@pytest.mark.parametrize("text", ["1," * 200, "9" * 400, "€" * 400, "1 000" * 100, "- " * 200, "." * 400, "1€" * 200])
def test_texts_that_only_look_like_prices_are_read_to_the_end(text: str) -> None:
    money = Money.parse(text)
    assert money is None or money.amount >= 0


def test_known_prices_are_read_at_least_as_well_as_by_the_library() -> None:
    corpus(quality.SET)
    cases = quality.cases()
    assert len(cases) == 1185
    assert sum(map(quality.is_exact, cases)) >= 1110
    amounts = [Money.parse(case["price_raw"]) for case in cases]
    right = sum(
        (money.amount if money else None) == quality.true_amount(case)
        for money, case in zip(amounts, cases, strict=True)
    )
    assert right >= 1155
