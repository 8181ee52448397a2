"""What the rules of a recipe find on a page, and what becomes of it: sources, types, transforms, objects, faults."""

from __future__ import annotations

import pytest

from gossamer.errors import ParseFailed
from gossamer.model.item import item_key, validate
from gossamer.parse.page import Page
from gossamer.recipe.spider import check_page, unread
from tests.unit.recipes import fields, page_of, parsed, values

PAGE = """<!doctype html><html><head><title>Lamp</title><base href="/sub/">
<meta name="description" content="A good lamp"><meta property="og:title" content="The Lamp">
<script type="application/ld+json">{"@context": "https://schema.org", "@graph": [{"@type": "WebPage"},
 {"@type": "Product", "name": "Opal Lamp", "brand": {"@type": "Brand", "name": "Orb"}, "image": ["/a.png", "/b.png"],
 "offers": [{"@type": "Offer", "price": "25.95", "priceCurrency": "EUR"}]}]}</script>
<script>window.__STATE__ = {"stock": {"qty": 7, "shops": ["Ulm", "Bonn"]}, "open": true}; other = {"a": 1};</script>
</head><body><main class="product" data-facts='{"sku": "L-7", "weight": 2.5}'><h1> Opal
 Lamp </h1><p class="price">now € 1.299,00</p><p class="was">on request</p><span class="empty"></span>
<span class="tag">warm</span><span class="tag">glass, round</span><span class="score">4.5 of 5</span>
<span class="reviews">(1,234 reviews)</span><time datetime="2024-03-01T10:00:00+02:00">1 March</time>
<a class="more" href="../more">more</a><div class="text"><p>Light <b>and</b> <a href="x">dark</a>.</p></div>
<span class="stock">In stock</span><script>var id = {"id":4711};</script>
<ul><li><b>Ann</b> <i>5</i></li><li><b>Ben</b> <i>3</i></li></ul></main></body></html>"""


IMAGES = ["https://shop.example/a.png", "https://shop.example/b.png"]


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ('"h1"', "Opal Lamp"),
        ('{ css = "h1::text" }', "Opal Lamp"),
        ('{ xpath = "//h1" }', "Opal Lamp"),
        ('{ xpath = "count(//li)", type = "int" }', 2),
        ('{ css = ".price", type = "money" }', {"amount": "1299.00", "currency": "EUR"}),
        ('{ css = ".score", type = "float" }', 4.5),
        ('{ css = ".score", type = "decimal" }', "4.5"),
        ('{ css = ".reviews", type = "int" }', 1234),
        ('{ css = "time::attr(datetime)", type = "date" }', "2024-03-01T10:00:00+02:00"),
        ('{ css = "time::attr(datetime)", type = "day" }', "2024-03-01"),
        ('{ css = ".more", type = "url" }', "https://shop.example/more"),
        ('{ css = ".stock", type = "bool", true = ["in stock"] }', True),
        ('{ css = ".was", type = "bool", true = ["in stock"] }', False),
        ('{ css = ".gone", type = "bool", default = false }', False),
        ('{ css = ".tag", type = "list" }', ["warm", "glass, round"]),
        ('{ css = "li i", type = "list", of = "int" }', [5, 3]),
        ('{ css = ".text p", type = "html" }', '<p>Light <b>and</b> <a href="x">dark</a>.</p>'),
        ('{ css = ".text", type = "markdown" }', "Light **and** [dark](https://shop.example/sub/x)."),
        ('{ css = [".gone", "h1"] }', "Opal Lamp"),
        ('[{ css = ".gone" }, { structured = "Product.name" }]', "Opal Lamp"),
        ('{ sources = [".was", ".price"], type = "money" }', {"amount": "1299.00", "currency": "EUR"}),
        ('{ regex = \'"id":(\\d+)\', type = "int" }', 4711),
        ('{ css = ".reviews", regex = "[0-9,]+" }', "1,234"),
        ('{ css = "main::attr(data-facts)", json = "$.sku" }', "L-7"),
        ('{ css = "main::attr(data-facts)", json = "$.weight", type = "float" }', 2.5),
        ('{ json = "$.stock.qty", after = "window.__STATE__ =", type = "int" }', 7),
        ('{ json = "$.stock.shops[*]", after = "window.__STATE__ =", type = "list" }', ["Ulm", "Bonn"]),
        ('{ json = "$.open", after = "window.__STATE__ =", type = "bool" }', True),
        ('{ structured = "product.brand" }', "Orb"),
        ('{ structured = "Product.offers.price", type = "decimal" }', "25.95"),
        ('{ structured = "Product.image", type = "list", of = "url" }', IMAGES),
        ('{ structured = "opengraph.og:title" }', "The Lamp"),
        ('{ structured = "meta.description" }', "A good lamp"),
        ('{ product = "brand" }', "Orb"),
        ('{ constant = "shop" }', "shop"),
        ('{ constant = 5, type = "int" }', 5),
        ('{ url = "page" }', "https://shop.example/things/7?ref=a"),
        ('{ url = "page", regex = "things/(?P<extract>[0-9]+)", type = "int" }', 7),
        ('{ data = "shelf" }', "lamps"),
        ('{ css = ".gone", default = "none" }', "none"),
        ('{ css = ".empty" }', None),
        ('{ css = ".tag", transforms = ["last"] }', "glass, round"),
        ('{ css = ".tag", transforms = ["last", { split = "," }, "first", "upper"] }', "GLASS"),
        ('{ css = ".tag", transforms = [{ split = "," }], type = "list" }', ["warm", "glass", "round"]),
        ('{ css = ".tag", transforms = [{ join = " + " }] }', "warm + glass, round"),
        ('{ css = "h1", transforms = [{ replace = "\\\\s+", with = "-" }, "lower"] }', "opal-lamp"),
        ('{ css = ".reviews", transforms = ["number", { prefix = "n" }] }', "n1234"),
        ('{ css = "h1", transforms = ["squash", { cut = 4 }] }', "Opal"),
    ],
)  # fmt: skip
def test_a_rule_finds_its_value(rule, value):
    spider = fields(f"value = {rule}")

    assert values(spider, page_of(PAGE, data={"shelf": "lamps"}))["value"] == value


@pytest.mark.parametrize(
    ("number", "rule", "value"),
    [
        ("24.375", 'type = "money", currency = "EUR"', {"amount": "24.375", "currency": "EUR"}),
        ("24.375", 'type = "money", transforms = ["strip"]', {"amount": "24.375", "currency": ""}),
        ("1299", 'type = "money"', {"amount": "1299", "currency": ""}),
        ("1e-7", 'type = "decimal"', "1E-7"),
        ("5.25", 'type = "decimal", decimal = ","', "5.25"),
        ("-5.25", 'type = "float", decimal = ","', -5.25),
        ("5.0", 'type = "int"', 5),
        ("1e15", 'type = "int"', 10**15),
        ("1e21", 'type = "int"', None),
        ("5.25", 'type = "int"', None),
        ("9" * 400, 'type = "float"', None),
        ("1", 'type = "bool"', True),
        ("1709287200", 'type = "day"', "2024-03-01"),
        ("24.375", 'type = "text"', "24.375"),
        ("[1.5, null, 2.25]", 'type = "list", of = "decimal", decimal = ","', ["1.5", "2.25"]),
    ],
)  # fmt: skip
def test_a_number_in_json_is_that_number(number, rule, value):
    spider = fields(f'value = {{ json = "$.n", {rule} }}')

    assert values(spider, page_of(f'{{"n": {number}}}', label="application/json"))["value"] == value


def test_a_number_in_the_recipe_is_that_number():
    spider = fields(
        """
        fee = { constant = 24.375, type = "money" }
        share = { css = ".gone", type = "decimal", decimal = ",", default = 5.25 }
        """
    )

    assert values(spider, page_of(PAGE)) == {"fee": {"amount": "24.375", "currency": ""}, "share": "5.25"}


@pytest.mark.parametrize("lazy", ["data-src", "data-lazy-src", "data-original"])
def test_the_address_of_a_lazy_image_is_that_of_the_real_one(lazy):
    spider = fields('value = { css = "img", type = "url" }')

    found = values(spider, page_of(f"<img src='data:image/gif;base64,R0lGOD' {lazy}='/a.png'>"))

    assert found == {"value": "https://shop.example/a.png"}


def test_what_could_not_be_read_is_remembered_only_as_long_as_the_page():
    spider = fields('name = "b"\nstars = { css = "b", type = "int" }', 'each = "li"\nkey = "name"')
    snapshot = page_of(PAGE).snapshot
    pages = [Page(snapshot, spider=spider) for _ in range(3)]

    given = [list(spider.thing(page)) for page in pages]

    assert all(unread(item, page) for page, items in zip(pages, given, strict=True) for item in items)
    assert unread(given[0][0], Page(snapshot, spider=spider)) is None
    assert vars(spider) == {}


def test_what_is_found_is_as_the_item_declares():
    spider = fields(
        """
        title = { css = "h1", required = true }
        price = { css = ".price", type = "money" }
        tags = { css = ".tag", type = "list" }
        none = { css = ".gone", type = "list", of = "date" }
        at = { css = "time::attr(datetime)", type = "date" }
        """
    )

    (item,) = parsed(spider, page_of(PAGE)).items

    assert validate(item) is item
    assert item_key(item) == "https://shop.example/things/7?ref=a"


def test_objects_and_lists_of_them_are_items_in_the_item():
    spider = fields(
        """
        [pages.thing.fields.voices]
        each = "li"
        fields.author = { css = "b", required = true }
        fields.stars = { css = "i", type = "int" }
        [pages.thing.fields.offer]
        within = ".product"
        fields.score = { css = ".score", type = "float" }
        [pages.thing.fields.absent]
        within = ".gone"
        fields.score = ".score"
        """
    )

    assert values(spider, page_of(PAGE)) == {
        "voices": [{"author": "Ann", "stars": 5}, {"author": "Ben", "stars": 3}],
        "offer": {"score": 4.5},
        "absent": None,
    }


def test_several_items_of_a_page_are_told_apart_by_their_key():
    spider = fields('name = "b"\nstars = { css = "i", type = "int" }', 'each = "li"\nkey = "name"')

    items = parsed(spider, page_of(PAGE)).items

    assert [(item_key(item), item.stars) for item in items] == [("Ann", 5), ("Ben", 3)]


def test_a_json_page_is_read_by_paths_relative_to_each_item():
    spider = fields(
        'id = { json = "$.id", type = "int" }\nname = { json = "$.names[0]" }',
        'each = { json = "$.things[*]" }\nkey = "id"',
    )
    page = page_of('{"things": [{"id": 1, "names": ["a", "b"]}, {"id": 2, "names": []}]}', label="application/json")

    assert [(item.id, item.name) for item in parsed(spider, page).items] == [(1, "a"), (2, None)]


def test_a_required_field_that_cannot_be_read_fails_the_page_with_field_text_and_rule():
    spider = fields('price = { css = ".was", type = "money", required = true }\ntitle = "h1"')

    with pytest.raises(ParseFailed) as caught:
        parsed(spider, page_of(PAGE))

    assert str(caught.value) == (
        "shop.toml, pages.thing: 1 required field is missing on https://shop.example/things/7?ref=a: "
        "price: css .was found 'on request', in which there is no price"
    )
    assert caught.value.detail == "title: css h1 found 'Opal Lamp'"


def test_an_optional_field_that_cannot_be_read_is_empty_and_a_fault_of_the_item():
    spider = fields('price = { css = ".was", type = "money" }\ngone = ".gone"')
    page = Page(page_of(PAGE).snapshot, spider=spider)

    (item,) = list(spider.thing(page))

    assert (item.price, item.gone) == (None, None)
    assert unread(item, page) == ["price: css .was found 'on request', in which there is no price"]


def test_a_page_without_its_items_fails_unless_that_is_allowed():
    rules = 'name = "b"'
    with pytest.raises(ParseFailed, match=r"Thing: each css .gone found nothing"):
        parsed(fields(rules, 'each = ".gone"\nkey = "name"'), page_of(PAGE))
    with pytest.raises(ParseFailed, match=r"Thing: within css .gone found nothing"):
        parsed(fields(rules, 'within = ".gone"'), page_of(PAGE))

    assert parsed(fields(rules, 'each = ".gone"\nkey = "name"\nallow_empty = true'), page_of(PAGE)).items == []


def test_the_ready_parser_fills_the_fields_and_own_ones_come_on_top():
    spider = fields('stock = ".stock"\nbrand = { constant = "Mine" }', 'auto = "product"')

    found = values(spider, page_of(PAGE))

    assert (found["title"], found["brand"], found["stock"]) == ("Opal Lamp", "Mine", "In stock")
    assert list(found)[-1] == "stock"


@pytest.mark.parametrize(
    "body",
    [
        "<div>" * 30_000 + "<b>x</b>",
        "<b>" + "9" * 500_000 + "</b>",
        '<b>x</b><script>window.__STATE__ = ' + "[" * 100_000 + "</script>",
        "<script type='application/ld+json'>" + '{"a":' * 3000 + "1" + "}" * 3000 + "</script><b>x</b>",
        "",
        "\x00\x01",
    ],
    ids=["deep", "long", "open", "nested", "empty", "binary"],
)  # fmt: skip
def test_a_hostile_page_costs_little_and_raises_nothing_but_a_parse_failure(body):
    spider = fields(
        """
        number = { css = "b", type = "int" }
        date = { css = "b", type = "date" }
        state = { json = "$..x", after = "window.__STATE__" }
        data = { structured = "Product.name" }
        json = { json = "$.x" }
        """
    )

    found = values(spider, page_of(body))

    assert found == dict.fromkeys(("number", "date", "state", "data", "json"))


def test_json_that_is_too_deep_for_a_path_is_a_parse_failure():
    spider = fields('value = { json = "$..x" }')

    with pytest.raises(ParseFailed, match=r"json \$\.\.x cannot be followed here"):
        parsed(spider, page_of('{"a":' * 300 + "1" + "}" * 300, label="application/json"))


@pytest.mark.parametrize("text", ["£5", "5 £", "$5.00", "kr 5"])
def test_a_price_whose_sign_cannot_be_the_declared_currency_is_unreadable(text):
    spider = fields('value = { css = "b", type = "money", currency = "EUR" }')

    (note,) = check_page(spider, "thing", page_of(f"<b>{text}</b>")).notes

    assert note.value is None
    assert "is not one of EUR" in note.fault
