"""Items: keys, checks, JSON form; money as shops write it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import Misconfigured, ParseFailed
from gossamer.model.item import (
    Item,
    Money,
    content_hash,
    item_content,
    item_data,
    item_key,
    safe_text,
    type_name,
    validate,
)


class Author(Item):
    name: str
    born: int | None = None


class Book(Item, key="url"):
    title: str
    price: Money | None = None
    pages: int = 0
    authors: tuple[Author, ...] = ()
    seen: datetime | None = None
    weight: Decimal | None = None
    tags: frozenset[str] = frozenset()


class Offer(Item, key=("site", "sku")):
    site: str
    sku: int


class Quote(Item):
    text: str


class Parcel(Item, key="weight"):
    weight: float


@dataclass
class Maker:
    name: str


class Grade(Enum):
    BROKEN = "\ud800"


class Markup(str):
    """A text as other HTML parsers give it."""


class Loose(Item):
    when: datetime | str | None = None
    title: str


def test_key_is_the_named_field() -> None:
    assert item_key(Book(url="https://b.example/1", title="A")) == "https://b.example/1"


def test_key_of_several_fields_cannot_be_confused() -> None:
    first = Offer(site="a", sku=12)
    assert item_key(first) == '["a",12]'
    assert item_key(Offer(site="a,1", sku=2)) != item_key(Offer(site="a", sku=12))


def test_key_without_url_is_the_content() -> None:
    same, other = Quote(text="to be"), Quote(text="not to be")
    assert item_key(same) == item_key(Quote(text="to be"))
    assert item_key(same) != item_key(other)
    assert len(item_key(same)) == 32


def test_url_is_the_key_when_it_is_set_and_no_other_is_named() -> None:
    assert item_key(Quote(url="https://q.example/", text="x")) == "https://q.example/"


def test_plain_dict_is_an_item() -> None:
    assert type_name({"a": 1}) == "item"
    assert item_key({"url": "https://d.example/", "a": 1}) == "https://d.example/"
    assert item_key({"a": 1, "b": 2}) == item_key({"b": 2, "a": 1})


def test_unset_key_is_refused() -> None:
    with pytest.raises(ParseFailed, match="url is empty"):
        item_key(Book(title="A"))


def test_key_that_is_no_field_is_refused_with_a_suggestion() -> None:
    with pytest.raises(Misconfigured, match="Did you mean 'sku'"):

        class Wrong(Item, key="skuu"):
            sku: str


def test_type_name_is_the_class_name() -> None:
    assert type_name(Book) == "Book"
    assert type_name(Quote(text="x")) == "Quote"


def test_validation_names_every_fault() -> None:
    # given an item with faults of every sort, nested ones too
    title: Any = None
    pages: Any = "12"
    born: Any = "1900"
    weight: Any = "1.5"
    book = Book(title=title, pages=pages, weight=weight, authors=(Author(name=""), Author(name="B", born=born)))

    # when it is validated
    with pytest.raises(ParseFailed) as caught:
        validate(book)

    # then every one of them is listed
    assert caught.value.detail.splitlines() == [
        "url is missing (str)",
        "title is missing (str)",
        "pages should be int but is '12' (expected int, got str)",
        "authors[0].name is missing (str)",
        "authors[1].born should be int | None but is '1900' (expected int | null, got str)",
        "weight should be decimal.Decimal | None but is '1.5' (expected decimal | null, got str)",
    ]
    assert "6 fields" in str(caught.value)


def test_complete_item_passes_unchanged() -> None:
    book = Book(
        url="https://b.example/1",
        title="A",
        price=Money(Decimal("1.50"), "EUR"),
        authors=(Author(name="B", born=1900),),
        seen=datetime(2026, 1, 1, tzinfo=UTC),
        weight=Decimal(2),
        tags=frozenset({"x"}),
    )
    assert validate(book) is book


def test_empty_text_is_allowed_where_there_is_a_default() -> None:
    class Note(Item):
        body: str = ""

    validate(Note(body=""))


def test_none_is_refused_even_where_there_is_a_default() -> None:
    pages: Any = None
    with pytest.raises(ParseFailed, match="pages is missing"):
        validate(Book(url="u", title="A", pages=pages))


def test_bounds_of_annotated_fields_hold() -> None:
    class Rated(Item):
        stars: Annotated[float, msgspec.Meta(ge=0, le=5)]

    validate(Rated(stars=4.5))
    with pytest.raises(ParseFailed, match="stars"):
        validate(Rated(stars=7))


def test_types_that_cannot_be_checked_are_still_required() -> None:
    title: Any = None
    validate(Loose(when="today", title="A"))
    with pytest.raises(ParseFailed, match="title is missing"):
        validate(Loose(title=title))


def test_dict_keys_must_be_text() -> None:
    odd: Any = {"a": {1: 2}}
    with pytest.raises(ParseFailed, match="not a str"):
        validate(odd)


def test_data_keeps_the_declared_order_and_leaves_out_what_is_unset() -> None:
    data = item_data(Quote(text="x"))
    assert data == '{"text":"x"}'
    assert list(json.loads(item_data(Book(url="u", title="A"))))[:2] == ["url", "title"]


def test_data_spells_money_dates_and_sets_the_same_every_time() -> None:
    book = Book(
        url="u",
        title="A",
        price=Money(Decimal("51.70"), "GBP"),
        seen=datetime(2026, 1, 2, tzinfo=UTC),
        tags=frozenset({"c", "a", "b"}),
    )
    data = json.loads(item_data(book))
    assert data["price"] == {"amount": "51.70", "currency": "GBP"}
    assert data["seen"] == "2026-01-02T00:00:00Z"
    assert data["tags"] == ["a", "b", "c"]


def test_hostile_text_becomes_replacement_characters_in_the_same_order() -> None:
    book = Book(url="u\x00", title="a\ud800b\ud83d\ude00", authors=(Author(name="\x00"),))
    data = json.loads(item_data(book))
    assert list(data)[:2] == ["url", "title"]
    assert data["url"] == "u\ufffd"
    assert data["title"] == "a\ufffdb\U0001f600"
    assert data["authors"][0]["name"] == "\ufffd"
    assert item_key(book) == "u\ufffd"


def test_hostile_text_is_replaced_in_sets_and_in_values_of_other_classes() -> None:
    item = {"tags": {"d", "c", "b", "a\ud800", "e", "f"}, "maker": Maker("\ud800"), "grade": Grade.BROKEN}
    data = json.loads(item_data(item))
    assert data["tags"] == ["a\ufffd", "b", "c", "d", "e", "f"]
    assert data["maker"] == {"name": "\ufffd"}
    assert data["grade"] == "\ufffd"


def test_texts_of_a_class_of_their_own_are_texts() -> None:
    item = {"url": Markup("https://m.example/"), "title": Markup("x"), "tags": [Markup("\ud800")]}
    assert json.loads(item_data(item)) == {"url": "https://m.example/", "title": "x", "tags": ["\ufffd"]}
    assert type(item_key(item)) is str


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_key_that_is_no_number_is_empty(number: float) -> None:
    with pytest.raises(ParseFailed, match="weight is empty"):
        item_key(Parcel(weight=number))


def test_values_that_json_cannot_hold_are_refused_with_a_hint() -> None:
    with pytest.raises(ParseFailed, match=r"without \.get\(\)"):
        item_data({"a": object()})


def test_hash_changes_with_the_data_only() -> None:
    first, same, other = (content_hash(item_data(Quote(text=text))) for text in ("a", "a", "b"))
    assert first == same != other
    assert len(first) == 16


def test_a_dict_keeps_the_order_of_its_fields_and_is_the_same_in_another_order() -> None:
    item, other = (
        {"title": "x", "price": {"of": 1, "in": 2}, "a": None},
        {"a": None, "price": {"in": 2, "of": 1}, "title": "x"},
    )
    assert item_data(item) == '{"title":"x","price":{"in":2,"of":1},"a":null}'
    assert item_data(other) == '{"a":null,"price":{"in":2,"of":1},"title":"x"}'
    assert item_content(item) == item_content(other) == item_data(other)
    assert item_key(item) == item_key(other)


_json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters()), inner, max_size=4),
    max_leaves=15,
)


@given(st.dictionaries(st.text(st.characters()), _json_like, max_size=5))
def test_any_dict_becomes_valid_utf8_json_without_nul(item: dict[str, Any]) -> None:
    data = item_data(item)
    data.encode()
    assert "\\u0000" not in data or "\\\\u0000" in data
    assert isinstance(json.loads(data), dict)
    assert item_data(json.loads(data)) == data


@given(st.text(st.characters()))
def test_safe_text_is_idempotent_and_keeps_good_text(text: str) -> None:
    safe = safe_text(text)
    safe.encode()
    assert "\x00" not in safe
    assert safe_text(safe) == safe
    if "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text):
        assert safe == text


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("£51.77", "51.77", "GBP"),
        ("1.234,56 €", "1234.56", "EUR"),
        ("USD 12", "12", "USD"),
        ("12,-", "12", ""),
        ("12,- €", "12", "EUR"),
        ("1 299 kr", "1299", "kr"),
        ("¥1,200", "1200", "JPY"),
        ("CHF 1'299.50", "1299.50", "CHF"),
        ("1\u202f299,00\u00a0€", "1299.00", "EUR"),
        ("12.345.678", "12345678", ""),
        ("1.299", "1299", ""),
        ("0.299", "0.299", ""),
        ("1,5", "1.5", ""),
        ("1,23,456.00 INR", "123456.00", "INR"),
        ("-€5", "-5", "EUR"),
        ("Save 20% now $15.99", "15.99", "USD"),
        ("R$ 10,50", "10.50", "BRL"),
        ("12 all in", "12", ""),
    ],
)
def test_money_is_read_as_shops_write_it(text: str, amount: str, currency: str) -> None:
    assert Money.parse(text) == Money(Decimal(amount), currency)


def test_callers_currency_decides_where_the_text_does_not() -> None:
    assert Money.parse("5", "SEK") == Money(Decimal(5), "SEK")
    assert Money.parse("5 kr", "NOK") == Money(Decimal(5), "NOK")
    assert Money.parse("$5", "CAD") == Money(Decimal(5), "CAD")
    assert Money.parse("€5", "USD") == Money(Decimal(5), "EUR")


@pytest.mark.parametrize("text", [None, "", "free", "€", "100 %"])
def test_text_without_an_amount_is_no_money(text: str | None) -> None:
    assert Money.parse(text) is None


@given(st.text())
def test_reading_money_never_raises(text: str) -> None:
    Money.parse(text)
