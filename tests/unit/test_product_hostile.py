"""Pages made to hurt are read in bounded steps, and what they hide is still found or left out."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.extract.product import product_of
from gossamer.extract.structured.lenient_json import read_json, read_literal
from gossamer.model.money import Money

from .productpages import json_ld, kettle, offer, page_of, read, shop


@pytest.mark.parametrize(
    "body",
    [
        '<span class="price">9,99 €</span> ' * 30_000,
        '<div class="price">9 ' * 20_000,
        '<div class="stock">' * 50_000 + "sold out",
        "<h1>Blue Kettle</h1>" * 20_000,
        "<p>SKU: 48213</p>" * 20_000,
        '<div class="breadcrumb"><a href="x">a</a>' * 5_000,
        '<a href="/x"><img alt="Blue Kettle" src="a">' * 10_000,
        "9 €" * 300_000,
        '<i class="rating" aria-label="4.6 out of 5 kg" title="x5">' * 20_000,
        '<p class="price">Was ' + "9 € now 8 € " * 9 + "</p>",
        '<p class="' + "price " * 100_000 + '">9 €</p>',
        "<script>48213 price x = {" + "'" * 200_000 + "</script>",
        '<script>48213 price x = {"a' + "\\" * 200_000 + "</script>",
        "<script>48213 price " + 'x = {"a":' * 30_000 + "</script>",
        '<script>x = {"id":"48213","price":1,"a":' + '{"a":' * 20_000 + "1" + "}" * 20_000 + "}</script>",
    ],
    ids=lambda body: body[:24],
)
def test_page_that_repeats_itself_is_read(body: str) -> None:
    product = read(shop(body, json_ld(kettle(offers=offer("9.99")))))
    assert product.price is not None
    assert product.price.currency == "EUR"


def test_ten_thousand_blocks_of_data_are_read() -> None:
    product = read(json_ld(kettle(sku="48213", offers=offer("9.99"))) * 10_000)
    assert product.price == Money(Decimal("9.99"), "EUR")


def test_fifty_thousand_offers_are_read() -> None:
    product = read(json_ld(kettle(offers=[offer("9.99")] * 50_000)))
    assert product.price == Money(Decimal("9.99"), "EUR")


def test_data_that_refers_to_itself_ends() -> None:
    graph = {
        "@graph": [
            {"@id": "#a", "@type": "Product", "name": "Blue Kettle", "offers": {"@id": "#b"}},
            {"@id": "#b", "@type": "Offer", "price": "3", "itemOffered": {"@id": "#a"}},
        ]
    }
    assert read(json_ld(graph)).price == Money(Decimal(3), "")


@pytest.mark.parametrize("text", ["{" * 100_000, "[" * 100_000, '{"a":' * 50_000, "/*" * 50_000, ", }" * 50_000])
def test_json_nested_without_end_is_left_out(text: str) -> None:
    assert read_json(text) == []
    assert read_literal(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        ('<!-- {"a": [1, 2,],} -->', {"a": [1, 2]}),
        ('// <![CDATA[\n{"a": "//no comment"} // yes\n// ]]>', {"a": "//no comment"}),
        ('{"a": 1, /* two */ "b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_slips_in_json_are_mended(text: str, value: object) -> None:
    assert read_json(text) == [value]


def test_objects_in_a_row_are_all_read() -> None:
    assert read_json('{"a": 1}\n{"b": 2}') == [{"a": 1}, {"b": 2}]


def test_objects_of_javascript_are_read() -> None:
    assert read_literal("{a: 'it\\'s', $b: \"x: y\", 'c': [1, 2,]}") == [{"a": "it's", "$b": "x: y", "c": [1, 2]}]


_names = st.sampled_from(["@type", "name", "offers", "price", "sku", "brand", "image", "hasVariant", "@graph", "@id"])
_things = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("Product"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(_things)
def test_any_data_is_survived(thing: object) -> None:
    html = shop("", f'<script type="application/ld+json">{json.dumps(thing)}</script>')
    product = product_of(page_of(html))
    assert product is None or product.url
