"""Numbers and texts in a page's data: a number is a number, a count is whole, an entity is a letter."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gossamer.model.money import Money

from .productpages import json_ld, kettle, read, shop


def priced(price: str, currency: str = "EUR") -> str:
    """A page whose JSON-LD holds the price exactly as given: quoted or not."""
    return (
        '<script type="application/ld+json">{"@type":"Product","name":"Blue Kettle","offers":{"@type":"Offer",'
        f'"price":{price},"priceCurrency":"{currency}"}}}}</script>'
    )


@pytest.mark.parametrize(
    ("price", "currency", "amount"),
    [
        ("24.375", "EUR", "24.375"),
        ("1.299", "EUR", "1.299"),
        ("1299", "EUR", "1299"),
        ("1.5e3", "EUR", "1500"),
        ('"1.29999E7"', "INR", "12999900"),
        ('"24.375"', "EUR", "24.375"),
        ("12.345", "JPY", "12.345"),
        ('"250.000"', "IDR", "250000"),
        ('"1,299"', "EUR", "1299"),
    ],
)
def test_number_in_json_ld_is_read_as_a_number(price: str, currency: str, amount: str) -> None:
    assert read(priced(price, currency)).price == Money(Decimal(amount), currency)


@pytest.mark.parametrize("price", ["1e22", "1e400", "-5", "true", '"1e99"', "9" * 60])
def test_number_that_cannot_be_a_price_is_none(price: str) -> None:
    assert read(priced(price)).price is None


@pytest.mark.parametrize(
    "html",
    [
        shop(
            '<div itemscope itemtype="http://schema.org/Product"><span itemprop="name">Blue Kettle</span>'
            '<div itemprop="offers" itemscope itemtype="http://schema.org/Offer">'
            '<meta itemprop="priceCurrency" content="EUR"><meta itemprop="price" content="24.375"></div></div>'
        ),
        shop(
            '<i itemprop="price" content="24.375"></i><i itemprop="priceCurrency" content="EUR"></i>'
            "<button>Buy</button>"
        ),
        shop(
            "",
            '<meta property="og:type" content="product"><meta property="product:price:amount" content="24.375">'
            '<meta property="product:price:currency" content="EUR">',
        ),
    ],
    ids=["microdata", "no scope", "open graph"],
)
def test_point_in_an_attribute_for_machines_begins_the_decimals(html: str) -> None:
    assert read(html).price == Money(Decimal("24.375"), "EUR")


def test_page_that_shows_thousands_corrects_data_that_means_them() -> None:
    product = read(shop('<p class="price">1.299,00 €</p><button>Buy</button>', priced('"1.299"')))
    assert product.price is not None
    assert product.price.amount == 1299


def test_price_that_microdata_takes_from_the_text_is_read_as_the_reader_reads_it() -> None:
    product = read(
        shop(
            '<div itemscope itemtype="http://schema.org/Product"><span itemprop="name">Blue Kettle</span>'
            '<div itemprop="offers" itemscope itemtype="http://schema.org/Offer"><meta itemprop="priceCurrency" '
            'content="EUR"><p class="price"><span itemprop="price">1.299</span> €</p></div></div><button>Buy</button>'
        )
    )
    assert product.price == Money(Decimal(1299), "EUR")


def rated(**rating: object) -> str:
    return json_ld(kettle(offers={"@type": "Offer", "price": "5"}, aggregateRating={"ratingValue": 4.5, **rating}))


@pytest.mark.parametrize(
    ("stated", "count"),
    [
        ("1,234", 1234),
        ("1.234", 1234),
        ("1 234", 1234),
        ("1\u00a0234", 1234),
        ("1,23,456", 123456),
        ("1.2k", 1200),
        ("1,2 K", 1200),
        ("3M", 3_000_000),
        ("1234.0", 1234),
        ("(17) reviews", 17),
        ("2 万", 20_000),
        (1234, 1234),
        (12.0, 12),
        ("12.5", None),
        ("-3", None),
        (-3, None),
        ("1e400", None),
        ("many", None),
    ],
)
def test_count_of_reviews_is_a_whole_number(stated: object, count: int | None) -> None:
    assert read(rated(reviewCount=stated)).review_count == count


@pytest.mark.parametrize(
    ("stated", "stars"),
    [
        ("4,6", 4.6),
        ("4.757894736842105", 4.76),
        ("4.6/5", 4.6),
        ("Rated 4.6", 4.6),
        (4, 4.0),
        ("-1", None),
        (-1, None),
        ("1e400", None),
        ("1e0", None),
    ],
)
def test_rating_is_a_number_of_its_scale(stated: object, stars: float | None) -> None:
    assert read(rated(ratingValue=stated)).rating == stars


def test_rating_beyond_every_number_is_none() -> None:
    page = rated(ratingValue=77.5).replace("77.5", "1e400")
    assert "1e400" in page
    assert read(page).rating is None


def test_entities_in_json_ld_are_undone_once() -> None:
    thing = kettle(
        name="Tom &amp; Jerry&#39;s Kettle",
        brand="Black &amp; Decker",
        description="&lt;p&gt;Up to 3 &lt; 4 cups, &amp;amp; more&lt;/p&gt;",
        image="/i?a=1&amp;b=2",
        offers={"@type": "Offer", "price": "5"},
    )

    product = read(json_ld(thing), "https://shop.example/p/1")

    assert (product.title, product.brand) == ("Tom & Jerry's Kettle", "Black & Decker")
    assert product.description == "Up to 3 < 4 cups, &amp; more"
    assert product.images == ("https://shop.example/i?a=1&b=2",)


def test_entities_that_markup_has_undone_are_left_alone() -> None:
    product = read(
        shop(
            '<div itemscope itemtype="http://schema.org/Product"><b itemprop="name">Blue Kettle</b>'
            '<meta itemprop="brand" content="A&amp;amp;B"><p class="price">5 €</p><button>Buy</button></div>'
        )
    )
    assert product.brand == "A&amp;B"
