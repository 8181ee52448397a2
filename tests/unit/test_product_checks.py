"""What the claims about a product say about each other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from .productpages import json_ld, kettle, offer, read, shop

BUY = "<button>Add to cart</button>"


@pytest.mark.parametrize("brand", ["Acme", "Marca: Acme", "Brand: Acme", "Hersteller： Acme"])
def test_a_label_is_not_part_of_a_brand(brand: str) -> None:
    product = read(shop(BUY, json_ld(kettle(brand=brand, offers=offer("9.00")))))

    assert product.brand == "Acme"


def test_a_brand_that_the_title_has_beats_one_that_stands_on_the_page() -> None:
    html = shop("<p>Marke: Blue</p><p class=brand>Acme Kitchens</p>" + BUY, json_ld(kettle(offers=offer("9.00"))))

    assert read(html).brand == "Blue"


def test_a_labelled_number_beats_the_number_of_the_group_in_the_address() -> None:
    html = shop("<p>Product code: 77120345</p>" + BUY, json_ld(kettle(sku="48213", offers=offer("9.00"))))

    assert read(html).sku == "77120345"


def test_the_number_of_the_address_stays_where_a_label_confirms_it() -> None:
    data = json_ld(kettle(sku="48213", offers=offer("9.00")))

    assert read(shop("<p>Product code: 48213</p><p>Model no: 77120345</p>" + BUY, data)).sku == "48213"


def test_a_number_that_is_a_phrase_is_none() -> None:
    data = json_ld(kettle(sku="Blue Kettle with a lid", offers=offer("9.00")))

    product = read(shop("<p>SKU: BK-481</p>" + BUY, data))

    assert product.sku == "BK-481"


def test_the_only_sku_in_the_scripts_counts_where_nothing_better_is_known() -> None:
    script = '<script>window.page = {cart: [], "sku": "ZX-4410"}</script>'
    html = shop("<p class=price>9,00 €</p>" + BUY, script)

    assert read(html, "https://shop.example/blue-kettle").sku == "ZX-4410"
    two = html.replace("</script>", '; more = {"sku": "ZX-4411"}</script>')
    assert read(two, "https://shop.example/blue-kettle").sku is None


def test_the_lower_price_beside_a_struck_one_beats_the_struck_one_of_the_data() -> None:
    prices = '<div class=price><del>49,00 €</del> <span class="price sale-price">39,00 €</span></div>'

    product = read(shop(prices + BUY, json_ld(kettle(offers=offer("49.00")))))

    assert product.price is not None
    assert product.price.amount == Decimal("39.00")
    assert product.regular_price is not None
    assert product.regular_price.amount == Decimal("49.00")
