"""The product as a reader sees it: pages that carry no data at all."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gossamer.extract.product import Availability
from gossamer.model.money import Money

from .productpages import json_ld, kettle, offer, read, shop

BUY = "<button>Add to cart</button>"


@pytest.mark.parametrize(
    ("html", "amount", "currency"),
    [
        ('<p class="price">£51.77</p>', "51.77", "GBP"),
        ('<p class="price"><span>1</span><span>.</span><sup>99</sup> €</p>', "1.99", "EUR"),
        ('<p class="price">$<b>12</b><sup>50</sup></p>', "12.50", "USD"),
        ("<p>Preis:</p><p>19,- €</p>", "19", "EUR"),
        ("<div>最低價$<span>99</span>元起</div>", "99", "USD"),
        ('<div class="box"><strong>€ <span>20,-</span></strong></div>', "20", "EUR"),
        ('<p class="price">1&nbsp;299,00 Kč</p>', "1299.00", "CZK"),
    ],
)
def test_price_near_the_title_is_read(html: str, amount: str, currency: str) -> None:
    product = read(shop(html + BUY))
    assert product.price == Money(Decimal(amount), currency)
    assert product.found["price"].source == "page"


@pytest.mark.parametrize(
    "other",
    [
        '<del class="price">99,00 €</del>',
        '<span class="price old-price">99,00 €</span>',
        '<span class="price" style="text-decoration: line-through">99,00 €</span>',
        '<p class="shipping-price">Versand: 4,90 €</p>',
        "<p>or 12 × 2,50 € per month</p>",
        '<p class="price-per-unit">99,00 € / kg</p>',
        '<div class="related-products"><span class="price">3,00 €</span></div>',
        '<div class="tile"><a href="/p/other"><img src="o.jpg"></a><span class="price">3,00 €</span></div>',
        '<label>with lid <span class="price">+ 5,00 €</span></label>',
        '<div style="display:none"><span class="price">3,00 €</span></div>',
    ],
)
def test_other_prices_are_not_the_price(other: str) -> None:
    product = read(shop(other + '<span class="price">20,00 €</span>' + other + BUY))
    assert product.price == Money(Decimal("20.00"), "EUR")


def test_struck_price_is_the_regular_price() -> None:
    product = read(shop('<s class="price">30,00 €</s> <span class="price">20,00 €</span>' + BUY))
    assert product.regular_price == Money(Decimal("30.00"), "EUR")
    assert product.price == Money(Decimal("20.00"), "EUR")


@pytest.mark.parametrize(
    ("html", "sku"),
    [
        ("<p>SKU: AB-1234</p>", "AB-1234"),
        ("<p>Item #AB-1234</p>", "AB-1234"),
        ("<p>Artikelnummer <b>991 </b></p>", "991"),
        ("<table><tr><th>Item no.</th><td>77-120</td></tr></table>", "77-120"),
        ("<p>Код товара: 73556</p>", "73556"),
        ("<li><strong>Šifra:</strong> 9470</li>", "9470"),
        ("<p>商品編號：M67296549</p>", "M67296549"),
        ('<span class="product-code">466/7999</span>', "466/7999"),
        ('<p class="reference">Ref. 1002/710</p>', "1002/710"),
    ],
)
def test_number_beside_its_label_is_the_sku(html: str, sku: str) -> None:
    product = read(shop(f'<p class="price">5 €</p>{html}{BUY}', ""), "https://shop.example/blue-kettle")
    assert product.sku == sku
    assert product.found["sku"].source == "page"


def test_number_in_the_address_counts_when_the_page_uses_it() -> None:
    used = read(shop(f'<p class="price">5 €</p><form data-product-id="48213">{BUY}</form>'))
    assert (used.sku, used.found["sku"].source) == ("48213", "url")
    assert used.found["sku"].confidence > 0.5


def test_number_in_the_address_alone_is_not_told() -> None:
    assert read(shop(f'<p class="price">5 €</p>{BUY}')).sku is None


def test_clear_label_counts_more_than_a_number_of_the_data_nobody_shows() -> None:
    html = shop("<p>Product code: 76730204</p>", json_ld(kettle(sku="237908842", offers=offer("9"))))
    assert read(html, "https://shop.example/blue-kettle").sku == "76730204"


@pytest.mark.parametrize(
    ("html", "availability"),
    [
        ('<p class="stock">In stock</p>', Availability.IN_STOCK),
        ('<p class="availability">Auf Lager</p>', Availability.IN_STOCK),
        ('<div id="availability">Currently unavailable.</div>', Availability.OUT_OF_STOCK),
        ("<p>Нет в наличии</p>", Availability.OUT_OF_STOCK),
        ("<p>在庫切れ</p>", Availability.OUT_OF_STOCK),
        ('<p class="stock">nicht auf Lager</p>', Availability.OUT_OF_STOCK),
        ('<p class="stock">Vorbestellen</p>', Availability.PRE_ORDER),
        ("<p>נגמר במלאי</p>", Availability.OUT_OF_STOCK),
        ("<p>אין במלאי</p>", Availability.OUT_OF_STOCK),
        ("<p>Нема в наявності</p>", Availability.OUT_OF_STOCK),
        ("<p>在庫なし</p>", Availability.OUT_OF_STOCK),
        ("<p>Sin existencias</p>", Availability.OUT_OF_STOCK),
        ("<p>Momentan nicht lieferbar</p>", Availability.OUT_OF_STOCK),
        ("<p>Nie ma na składzie</p>", Availability.OUT_OF_STOCK),
        ("<p>This item isn't in stock</p>", Availability.OUT_OF_STOCK),
        ("<p>Backordered</p>", Availability.BACK_ORDER),
        ('<p class="stock">Available on backorder</p>' + BUY, Availability.BACK_ORDER),
        ('<p class="stock" hidden>Sold out</p>' + BUY, Availability.IN_STOCK),
        ('<div class="related"><p class="stock">Sold out</p></div>' + BUY, Availability.IN_STOCK),
        ("<ul><li>S</li><li class='out-of-stock'>M (sold out)</li></ul>" + BUY, Availability.IN_STOCK),
        (BUY, Availability.IN_STOCK),
    ],
)
def test_words_about_stock_are_understood(html: str, availability: Availability) -> None:
    product = read(shop(f'<p>SKU: 48213</p><p class="price">5 €</p>{html}'))
    assert product.availability is availability


@pytest.mark.parametrize(
    ("html", "brand"),
    [
        ("<a>Marke: Acme</a>", "Acme"),
        ("<table><tr><td>Производитель</td><td>ООО Чайник</td></tr></table>", "ООО Чайник"),
        ("<p>Brand: R.K.</p>", "R.K."),
    ],
)
def test_brand_beside_its_label_is_read(html: str, brand: str) -> None:
    assert read(shop(f'<p class="price">5 €</p>{html}{BUY}')).brand == brand


def test_gtin_and_number_of_the_maker_are_read_beside_their_labels() -> None:
    product = read(shop(f'<p class="price">5 €</p><p>EAN: 4006381333931</p><p>Herstellernummer: HMP-2000</p>{BUY}'))
    assert (product.gtin, product.mpn) == ("4006381333931", "HMP-2000")


def test_stars_and_their_count_are_read() -> None:
    product = read(shop(f'<p>4,6 von 5 Sternen</p><p>1.533 Bewertungen</p><p class="price">5 €</p>{BUY}'))
    assert (product.rating, product.review_count) == (4.6, 1533)


def test_breadcrumbs_are_read_without_the_title() -> None:
    steps = '<li><a href="/">Home</a></li><li><a href="/k">Kettles</a></li><li>Blue Kettle</li>'
    trail = f'<ol class="breadcrumbs">{steps}</ol>'
    assert read(shop(f'{trail}<p class="price">5 €</p>{BUY}')).breadcrumbs == ("Home", "Kettles")


def test_pictures_described_as_the_title_are_the_product_s() -> None:
    html = '<img src="/i/1.jpg" alt="Blue Kettle"><img src="/logo.png" alt="Shop logo of the year">'
    assert read(shop(f'{html}<p class="price">5 €</p>{BUY}')).images == ("https://shop.example/i/1.jpg",)


def test_title_is_the_heading() -> None:
    product = read(shop(f'<p class="price">5 €</p>{BUY}'))
    assert (product.title, product.found["title"].source) == ("Blue Kettle", "page")
    assert product.url == "https://shop.example/p/blue-kettle-48213"


def test_utility_classes_hide_nothing() -> None:
    product = read(shop(f'<div class="relative overflow-hidden md:hidden"><p class="price">5 €</p></div>{BUY}'))
    assert product.price == Money(Decimal(5), "EUR")


def test_brand_in_an_element_called_so_is_read() -> None:
    assert read(shop(f'<a class="product-brand">Acme</a><p class="price">5 €</p>{BUY}')).brand == "Acme"


def test_letters_of_a_model_are_no_currency() -> None:
    product = read(shop(f'<p>AMD R5 1600</p><p>TOP 10</p><p>Product code: K1</p><p class="price">5 €</p>{BUY}'))
    assert product.price == Money(Decimal(5), "EUR")
    unpriced = read(shop(f"<p>AMD R5 1600</p><p>TOP 10</p><p>Product code: K-100</p><p>In stock</p>{BUY}"))
    assert unpriced.price is None


@pytest.mark.parametrize(
    ("label", "field", "value"),
    [
        ("Best.-Nr.", "sku", "KX-481"), ("Kód zboží", "sku", "KX-481"), ("Artikkelnummer", "sku", "KX-481"),
        ("Nº de artículo", "sku", "KX-481"), ("Mã hàng", "sku", "KX-481"), ("Teilenummer", "mpn", "AB-77120"),
        ("Réf. fabricant", "mpn", "AB-77120"), ("Kod kreskowy", "gtin", "4006381333931"),
        ("バーコード", "gtin", "4006381333931"), ("Hersteller / Marke", "brand", "Zorvex"),
        ("Gamintojas", "brand", "Zorvex"),
    ],
)  # fmt: skip
def test_labels_of_many_languages(label: str, field: str, value: str) -> None:
    product = read(shop(f"<p>9,90 €</p>{BUY}<table><tr><th>{label}</th><td>{value}</td></tr></table>"))

    assert getattr(product, field) == value
