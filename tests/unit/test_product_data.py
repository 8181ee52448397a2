"""The product as a page's data tells it: JSON-LD, microdata, Open Graph, scripts."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gossamer.extract.product import Availability, product_of
from gossamer.model.money import Money

from .productpages import json_ld, kettle, offer, page_of, read, shop


def test_json_ld_gives_every_field() -> None:
    thing = kettle(
        sku="BK-1",
        mpn="M-77",
        gtin13="4006381333931",
        brand={"@type": "Brand", "name": "Acme"},
        description="<p>Boils  water.</p>",
        image=["/a.jpg", {"@type": "ImageObject", "url": "https://cdn.example/b.jpg"}],
        aggregateRating={"@type": "AggregateRating", "ratingValue": "9", "bestRating": 10, "reviewCount": 12},
        offers=offer("19.90", availability="https://schema.org/InStock"),
    )
    trail = {
        "@type": "BreadcrumbList",
        "itemListElement": [
            {"@type": "ListItem", "position": 2, "item": {"@id": "/k", "name": "Kettles"}},
            {"@type": "ListItem", "position": 1, "name": "Kitchen"},
        ],
    }

    product = read(json_ld(thing, trail))

    assert product.title == "Blue Kettle"
    assert product.price == Money(Decimal("19.90"), "EUR")
    assert product.currency == "EUR"
    assert product.availability is Availability.IN_STOCK
    assert (product.rating, product.review_count) == (4.5, 12)
    assert (product.brand, product.sku, product.mpn, product.gtin) == ("Acme", "BK-1", "M-77", "4006381333931")
    assert product.description == "Boils water."
    assert product.images == ("https://shop.example/a.jpg", "https://cdn.example/b.jpg")
    assert product.breadcrumbs == ("Kitchen", "Kettles")
    assert product.found["price"].source == "json-ld"
    assert 0.8 <= product.found["price"].confidence < 1


def test_microdata_is_read() -> None:
    product = read(
        shop(
            '<div itemscope itemtype="http://schema.org/Product"><span itemprop="name">Blue Kettle</span>'
            '<meta itemprop="sku" content="K1"><div itemprop="offers" itemscope itemtype="http://schema.org/Offer">'
            '<meta itemprop="priceCurrency" content="GBP"><span itemprop="price" content="5.00">five pounds</span>'
            '<link itemprop="availability" href="http://schema.org/OutOfStock"></div></div>'
        )
    )
    assert product.price == Money(Decimal("5.00"), "GBP")
    assert product.availability is Availability.OUT_OF_STOCK
    assert product.sku == "K1"
    assert product.found["price"].source == "microdata"


def test_microdata_without_a_scope_is_read() -> None:
    product = read(
        shop(
            '<b itemprop="price" content="7.50">x</b><i itemprop="priceCurrency" content="EUR"></i>'
            '<b itemprop="sku">K1</b><button>Add to cart</button>'
        )
    )
    assert product.price == Money(Decimal("7.50"), "EUR")
    assert product.sku == "K1"
    assert product.found["price"].source == "microdata"


def test_open_graph_is_read() -> None:
    product = read(
        shop(
            "",
            '<meta property="og:type" content="product"><meta property="product:price:amount" content="12.00">'
            '<meta property="product:price:currency" content="SEK"><meta property="product:availability" content="oos">'
            '<meta property="product:retailer_item_id" content="A77"><meta property="product:brand" content="Acme">',
        )
    )
    assert product.price == Money(Decimal("12.00"), "SEK")
    assert product.availability is Availability.OUT_OF_STOCK
    assert (product.sku, product.brand) == ("A77", "Acme")
    assert product.found["price"].source == "opengraph"


@pytest.mark.parametrize(
    "script",
    [
        '<script type="application/json">{"props":{"product":{"name":"Blue Kettle","price":{"value":14.5,'
        '"currency":"EUR"},"sku":"48213","brand":{"name":"Acme"},"inStock":true}}}</script>',
        "<script>dataLayer.push({ecommerce: {detail: {products: [{'name': 'Blue Kettle', 'id': '48213',"
        " 'price': '14.50', 'currency': 'EUR', 'brand': 'Acme', 'availability': 'in stock',}]}}});</script>",
        '<script>window.__STATE__ = {"other":{"name":"Red Pan","price":3},"this":{"name":"Blue Kettle",'
        '"id":"48213","price":"14.50","currency":"EUR","brand":"Acme","stockStatus":"IN_STOCK"}};</script>',
    ],
)
def test_data_of_scripts_is_read_when_it_is_about_this_product(script: str) -> None:
    product = read(shop("<p>A kettle.</p><button>Buy now</button>" + script))
    assert product.price == Money(Decimal("14.50"), "EUR")
    assert (product.sku, product.brand) == ("48213", "Acme")
    assert product.availability is Availability.IN_STOCK
    assert product.found["price"].source == "page script"


def test_broken_json_ld_is_mended() -> None:
    product = read(
        '<script type="application/ld+json">{"@type":"Product","name":"Blue\nKettle",'
        '"offers":{"@type":"Offer","price":9,"priceCurrency":"EUR",},}</script>'
    )
    assert product.price == Money(Decimal(9), "EUR")


def test_sources_that_agree_make_a_value_surer() -> None:
    alone = read(json_ld(kettle(offers=offer("9.00"))))
    agreed = read(shop('<p class="price">9,00 €</p>', json_ld(kettle(offers=offer("9.00")))))
    assert agreed.found["price"].confidence > alone.found["price"].confidence


def test_the_fuller_writing_of_a_number_is_kept() -> None:
    product = read(shop("<p>Article number: 482.13</p>", json_ld(kettle(sku="48213", offers=offer("9")))))
    assert product.sku == "482.13"


def test_variant_in_the_address_is_the_product() -> None:
    group = {
        "@type": "ProductGroup",
        "name": "Blue Kettle",
        "hasVariant": [
            kettle(sku="11111", offers=offer("10.00")),
            kettle(sku="48213", offers=offer("12.00")),
        ],
    }
    product = read(json_ld(group))
    assert product.sku == "48213"
    assert product.price == Money(Decimal("12.00"), "EUR")


def test_a_size_that_is_gone_does_not_make_the_product_gone() -> None:
    offers = [
        offer("10.00", sku="S", availability="https://schema.org/OutOfStock"),
        offer("11.00", sku="M", availability="https://schema.org/InStock"),
    ]
    product = read(json_ld(kettle(offers=offers)))
    assert product.availability is Availability.IN_STOCK
    assert product.price == Money(Decimal("11.00"), "EUR")


def test_aggregate_offer_gives_the_lowest_price() -> None:
    aggregate = {"@type": "AggregateOffer", "lowPrice": "5.00", "highPrice": "9.00", "priceCurrency": "EUR"}
    assert read(json_ld(kettle(offers=aggregate))).price == Money(Decimal("5.00"), "EUR")


def test_list_price_of_an_offer_is_the_regular_price() -> None:
    specification = [
        {"@type": "UnitPriceSpecification", "price": "30.00", "priceType": "https://schema.org/ListPrice"},
        {"@type": "UnitPriceSpecification", "price": "20.00"},
    ]
    thing = kettle(offers={"@type": "Offer", "priceCurrency": "EUR", "priceSpecification": specification})
    product = read(json_ld(thing))
    assert product.price == Money(Decimal("20.00"), "EUR")
    assert product.regular_price == Money(Decimal("30.00"), "EUR")


def test_product_with_the_page_s_name_is_chosen_among_many() -> None:
    others = [kettle(name=f"Red Pan {number}", offers=offer("1.00")) for number in range(5)]
    product = read(shop("", json_ld(*others, kettle(offers=offer("9.00")))))
    assert product.price == Money(Decimal("9.00"), "EUR")


def test_related_products_are_not_the_product() -> None:
    thing = kettle(offers=offer("9.00"), isRelatedTo=[kettle(sku="X", offers=offer("1.00"))])
    assert read(json_ld(thing)).price == Money(Decimal("9.00"), "EUR")


def test_number_of_the_maker_that_repeats_the_shop_s_is_none() -> None:
    assert read(json_ld(kettle(sku="AB-12", mpn="AB-12", offers=offer("9")))).mpn is None


@pytest.mark.parametrize("gtin", ["4006381333932", "123", "0000000000000"])
def test_gtin_with_a_wrong_check_digit_is_none(gtin: str) -> None:
    assert read(json_ld(kettle(gtin13=gtin, offers=offer("9")))).gtin is None


@pytest.mark.parametrize("brand", ["null", "{{brand}}", "$brand", ""])
def test_templates_that_nobody_filled_are_no_values(brand: str) -> None:
    assert read(json_ld(kettle(brand=brand, offers=offer("9")))).brand is None


@pytest.mark.parametrize(
    ("price", "currency", "amount"),
    [("1299", "EUR", "1299"), ("1.299,00", "EUR", "1299.00"), ("1.250", "KWD", "1.250"), ("GBP 12,99", "", "12.99")],
)
def test_prices_in_data_are_read_as_shops_write_them(price: str, currency: str, amount: str) -> None:
    product = read(json_ld(kettle(offers={"@type": "Offer", "price": price, "priceCurrency": currency})))
    assert product.price is not None
    assert product.price.amount == Decimal(amount)


@pytest.mark.parametrize(
    "html",
    [
        "<h1>About us</h1><p>We sell kettles since 1920.</p>",
        '<html><head><meta property="og:type" content="article"></head><h1>Ten kettles</h1><p>From 9 € to 90 €.</p>',
        shop("", json_ld(kettle(name="Red Pan", offers=offer("1")), kettle(name="Green Pot", offers=offer("2")))),
        "<h1>Kettles</h1>"
        + "".join(
            f'<div class="tile"><a href="/p/{n}"><img src="{n}.jpg"></a><h3><a href="/p/{n}">Kettle {n}</a></h3>'
            f'<span class="price">{n},99 €</span><button>Add to cart</button></div>'
            for n in range(1, 20)
        ),
    ],
    ids=["about", "article", "list in data", "category"],
)
def test_page_that_offers_no_single_product_has_none(html: str) -> None:
    assert product_of(page_of(html, "https://shop.example/kettles")) is None


def test_what_is_no_markup_has_no_product() -> None:
    page = page_of('{"@type": "Product", "name": "Blue Kettle"}', content_type="application/json")
    assert page.tree is None
    assert product_of(page) is None
