"""What the claims about a product say about each other."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gossamer.extract.product import Availability
from gossamer.extract.product.availability import spoken_availability

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


@pytest.mark.parametrize("sku", ["KX-481", "SKU: KX-481", "Ref. KX-481", "Item #KX-481"])
def test_a_label_is_not_part_of_a_number(sku: str) -> None:
    assert read(shop(BUY, json_ld(kettle(sku=sku, offers=offer("9.00"))))).sku == "KX-481"


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


GONE = [
    "Sold out",
    "Ausverkauft",
    "En rupture de stock",
    "Agotado",
    "Wyprzedane",
    "Нет в наличии",
    "売り切れ",
    "Stock: 0",
]


@pytest.mark.parametrize("words", [*GONE, "Notify me when available", "Benachrichtigen, sobald verfügbar"])
@pytest.mark.parametrize("html", ["<p class=stock>{}</p>", "<p>{}</p>", "<button disabled>{}</button>"])
def test_what_the_page_says_is_gone_is_gone_though_the_data_has_it(words: str, html: str) -> None:
    data = json_ld(kettle(offers=offer("9.00", availability="https://schema.org/InStock")))

    product = read(shop("<p class=price>9,00 €</p>" + html.format(words), data))

    assert product.availability is Availability.OUT_OF_STOCK


def test_what_the_page_sells_is_there_though_the_data_has_sold_it() -> None:
    data = json_ld(kettle(offers=offer("9.00", availability="https://schema.org/OutOfStock")))

    product = read(shop("<p class=price>9,00 €</p><p class=stock>In stock</p>" + BUY, data))

    assert product.availability is Availability.IN_STOCK


@pytest.mark.parametrize(
    "html",
    [
        "<p>Sold out</p>" + BUY,  # of a size, perhaps: the button says more
        "<ul><li>S <span class=stock>Sold out</span></li><li>M</li></ul>",
        "<p>Sold out? Tell us your size.</p>",
        "<p>Not available for collection</p>",
    ],
)
def test_words_about_something_else_contradict_no_data(html: str) -> None:
    data = json_ld(kettle(offers=offer("9.00", availability="https://schema.org/InStock")))

    assert read(shop("<p class=price>9,00 €</p>" + html, data)).availability is Availability.IN_STOCK


@pytest.mark.parametrize(
    ("script", "sku", "brand"),
    [
        (
            "dataLayer.push({'products': [{'name': 'Blue Kettle', 'id': 'KX-481', 'brand': 'Zorvex'}]})",
            "KX-481",
            "Zorvex",
        ),
        (
            "gtag('event', 'view', {items: [{item_id: 'KX-481', item_name: 'Blue Kettle', item_brand: 'Zorvex'}]})",
            "KX-481",
            "Zorvex",
        ),
        ('var product = {"sku": 778812, "title": "Blue Kettle", "brand": {"name": "Zorvex"}};', "778812", "Zorvex"),
    ],
)
def test_data_in_scripts_is_read_where_the_page_shows_a_price_and_no_number(script: str, sku: str, brand: str) -> None:
    product = read(shop(f"<p class=price>9,00 €</p>{BUY}<script>{script}</script>"), "https://shop.example/blue-kettle")

    assert (product.sku, product.brand) == (sku, brand)


def test_the_number_in_an_attribute_of_the_button_counts_if_it_is_the_only_one() -> None:
    html = shop("<p class=price>9,00 €</p><button data-product_sku=KX-481>Add to cart</button>")

    assert read(html, "https://shop.example/blue-kettle").sku == "KX-481"
    two = html.replace("</body>", "<div data-sku=KX-482></div></body>")
    assert read(two, "https://shop.example/blue-kettle").sku is None


@pytest.mark.parametrize(
    "link",
    [
        "<a href=/brands/zorvex>Zorvex</a>",
        "<a href=/marken/zorvex/><b>Zorvex</b></a>",
        "<a href=/s>Visit the Zorvex Store</a>",
        "<a href=/s>Visiter la boutique Zorvex</a>",
        "<a href=/s>Besuche den Zorvex-Store</a>",
        "<a href=/brands/zorvex>Ver mais artigos da Marca: Zorvex</a>",
        "<a href=/brands/zorvex>Mehr von der Marke: Zorvex</a>",
        "<a href=/brands/zorvex>See all products from Zorvex</a>",
    ],
)
def test_a_link_to_the_page_of_a_brand_names_it(link: str) -> None:
    assert read(shop(f"{link}<p class=price>9,00 €</p>{BUY}")).brand == "Zorvex"


@pytest.mark.parametrize("words", ["Back in stock!", "Wieder verfügbar", "再入荷しました"])
def test_what_is_back_can_be_had(words: str) -> None:
    assert spoken_availability(words) is not Availability.OUT_OF_STOCK


@pytest.mark.parametrize("words", ["Notify me when back in stock", "再入荷お知らせ", "Tell me when it is here"])
def test_who_is_to_be_told_cannot_have_it_now(words: str) -> None:
    assert spoken_availability(words) is Availability.OUT_OF_STOCK
