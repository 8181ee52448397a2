"""Visible prices: whose sign they bear, which of two is the old one, and what a shared sign means where it stands."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gossamer.model.money import Money

from .productpages import json_ld, kettle, read, shop

BUY = "<button>Add to cart</button>"


@pytest.mark.parametrize(
    ("html", "amount", "currency"),
    [
        ('<p class="price">Rs. 500</p>', "500", "INR"),
        ('<p class="price">Rs.1,29,999</p>', "129999", "INR"),
        ('<p class="price">S/. 50.00</p>', "50.00", "PEN"),
        ('<p class="price"><b>kr.</b> <b>1.299,00</b></p>', "1299.00", "kr"),
        ('<p class="price"><b>Rs.</b><b>500</b></p>', "500", "INR"),
        ('<p class="price">$<b>12</b><b>.</b><sup>50</sup></p>', "12.50", "USD"),
    ],
)
def test_point_of_an_abbreviation_is_no_decimal_mark(html: str, amount: str, currency: str) -> None:
    assert read(shop(html + BUY)).price == Money(Decimal(amount), currency)


@pytest.mark.parametrize(
    ("price", "neighbour", "amount", "currency"),
    [
        ("A$ 99.90", "or 4 payments of A$ 24.98", "99.90", "AUD"),
        ("R$ 1.299,90", "12x de R$ 108,32", "1299.90", "BRL"),
        ("C$ 99", "in our shop", "99", "CAD"),
    ],
)
def test_neighbour_does_not_change_the_sign(price: str, neighbour: str, amount: str, currency: str) -> None:
    product = read(f"<h1>Blue Widget</h1><p class=price>{price}</p><p>{neighbour}</p>{BUY}", "https://shop.example/p")
    assert product.price == Money(Decimal(amount), currency)


def test_word_beside_a_bare_number_is_no_sign() -> None:
    product = read(shop(f'<p>Blue pictEUR</p><p class="price">12</p><p>Kruh</p><p>In stock</p>{BUY}'))
    assert product.price == Money(Decimal(12), "")


@pytest.mark.parametrize(
    "part", ["12x de R$ 108,32", "12 × R$ 108,32", "or 4 payments of R$ 108.32", "Pay in 4: R$ 108.32"]
)
def test_part_of_the_price_is_not_the_price_wherever_it_stands(part: str) -> None:
    product = read(
        f"<main><h1>Blue Widget</h1><p class=price>R$ 1.299,90</p>{BUY}</main><p>{part}</p>", "https://shop.example/p"
    )
    assert product.price == Money(Decimal("1299.90"), "BRL")


@pytest.mark.parametrize(
    ("html", "new", "old"),
    [
        ("<p class=price>Was £49.99 Now £39.99</p>", "39.99", "49.99"),
        ("<p>Was £49.99 Now £39.99</p>", "39.99", "49.99"),
        ("<p class=price>Now £39.99 (was £49.99)</p>", "39.99", "49.99"),
        ("<p class=price>statt £99,00 nur £79,00</p>", "79.00", "99.00"),
        ("<p class=price>£79,00 statt £99,00</p>", "79.00", "99.00"),
        ("<p class=price>RRP: £20 Our price: £15</p>", "15", "20"),
        ("<p class=price>Antes £20 Ahora £15</p>", "15", "20"),
        ("<p class=price>Was <b>£49.99</b> Now <b>£39.99</b></p>", "39.99", "49.99"),
        ("<p><span>Was:</span> <span>£49.99</span></p><p class=price>£39.99</p>", "39.99", "49.99"),
    ],
)
def test_new_price_is_the_price_and_the_old_one_the_regular(html: str, new: str, old: str) -> None:
    product = read(shop(html + BUY))
    assert product.price == Money(Decimal(new), "GBP")
    assert product.regular_price == Money(Decimal(old), "GBP")


@pytest.mark.parametrize(
    "text",
    [
        "£49.99 or only £12.50 per month",
        "Was £59.99 Save £10",
        "Was £59.99 – £10 off",
        "Save £10 (was £59.99)",
        "£10 off, was £59.99",
    ],
)
def test_what_is_saved_or_paid_by_the_month_is_not_the_new_price(text: str) -> None:
    product = read(shop(f'<p>{text}</p><p class="price">£49.99</p>{BUY}'))
    assert product.price == Money(Decimal("49.99"), "GBP")


def test_old_price_alone_is_no_regular_price() -> None:
    assert read(shop(f"<p class=price>Was £49.99</p><p>SKU: 1234</p>{BUY}")).regular_price is None


@pytest.mark.parametrize(
    ("url", "lang", "price", "currency"),
    [
        ("https://shop.com.au/p", "en", "$5", "AUD"),
        ("https://shop.ca/p", "", "$5", "CAD"),
        ("https://shop.example/p", "en-NZ", "$5", "NZD"),
        ("https://shop.example/p", "zh-CN", "¥5", "CNY"),
        ("https://shop.example/p", "ja", "¥5", "JPY"),
        ("https://shop.tw/p", "zh-Hant", "5元", "TWD"),
        ("https://shop.com/p", "zh-HK", "¥5", "CNY"),
        ("https://shop.com/p", "zh-HK", "$5", "HKD"),
        ("https://shop.com.co/p", "es", "$5", "COP"),
        ("https://shop.se/p", "sv", "5 kr", "SEK"),
        ("https://shop.com/p", "da-DK", "5 kr.", "DKK"),
        ("https://shop.com.pk/p", "en", "Rs. 5", "PKR"),
        ("https://shop.com.au/p", "en-AU", "US$ 5", "USD"),
        ("https://shop.de/p", "de-AT", "$5", "USD"),
        ("https://shop.co/p", "en", "$5", "USD"),
        ("https://shop.co.jp/p", "en-US", "$5", "USD"),
        ("https://127.0.0.1/p", "en", "$5", "USD"),
    ],
)
def test_sign_that_several_currencies_share_means_the_one_at_home(
    url: str, lang: str, price: str, currency: str
) -> None:
    html = f'<html lang="{lang}"><h1>Blue Kettle</h1><p class="price">{price}</p>{BUY}</html>'
    product = read(html, url)
    assert product.price == Money(Decimal(5), currency)


def test_sign_in_data_means_the_currency_at_home_too() -> None:
    offers = {"@type": "Offer", "price": "5.00", "priceCurrency": "$"}
    assert read(json_ld(kettle(offers=offers)), "https://shop.com.au/p").currency == "AUD"
    written = {"@type": "Offer", "price": "$5.00"}
    assert read(json_ld(kettle(offers=written)), "https://shop.com.au/p").currency == "AUD"


def test_code_in_data_counts_more_than_the_country() -> None:
    html = shop(f'<p class="price">$5.00</p>{BUY}', json_ld(kettle(offers={"price": "5.00", "priceCurrency": "USD"})))
    assert read(html, "https://shop.com.au/p").currency == "USD"


FEES = [
    "Shipping: 4,90 €", "zzgl. 4,90 € Versand", "Frais de port : 4,90 €", "Livraison 4,90 €", "Toimitus 4,90 €",
    "Wysyłka 4,90 zł", "送料 500円", "배송비 3,000원", "Szállítás 990 Ft", "Free delivery over £20", "Pfand 0,25 €",
    "Du sparst 10,00 €", "41,24 € zzgl. MwSt.", "Sin IVA 41,24 €", "40 € hors TVA", "税抜 4,536円", "Installation 20 €",
    "Niedrigster Preis der letzten 30 Tage: 45,90 €", "Prix le plus bas des 30 derniers jours : 45,90 €",
    "4 interest-free payments of $12.48", "2 for 89,90 €", "Clubprijs € 44,90", "Ord. pris 59,90 €",
]  # fmt: skip
UNITS = [
    "2,50 €/kg", "(2,50 € / 100 g)", "1 kg = 2,50 €", "100 g: 2,50 €", "2,50 € per liter", "€2.50 each",
    "£0.25 per 100g", "2,50 € le kg", "2,50 € / m²", "Prix au kilo : 2,50 €", "2,50 € je Stück", "0,25 zł / szt.",
    "$0.25/fl oz", "$2.50/ct", "Grundpreis: 2,50 € pro 100 ml", "Precio por unidad 2,50 €", "unit price $2.50",
]  # fmt: skip


@pytest.mark.parametrize("other", [*FEES, *UNITS])
def test_what_stands_beside_the_price_is_not_the_price_and_does_not_hide_it(other: str) -> None:
    for body in (f"<p>49,90 €</p><p>{other}</p>", f"<p>{other}</p><p>49,90 €</p>"):
        price = read(shop(body + BUY)).price

        assert price is not None
        assert (price.amount, price.currency) == (Decimal("49.90"), "EUR"), body


def test_cents_in_an_element_of_their_own_are_read_beside_a_price_for_blind_readers() -> None:
    html = "<p class=price><span class=sr-only>Price $49.90</span><span aria-hidden=true>$49</span><sup>90</sup></p>"

    assert read(shop(html + BUY)).price == Money(Decimal("49.90"), "USD")


def test_arabic_marks_are_read() -> None:
    assert Money.parse("١٬٢٩٩٫٩٠ ر.س") == Money(Decimal("1299.90"), "SAR")
