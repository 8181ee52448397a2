"""Texts as values: numbers without guessing, moments with zones, yes and no."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from gossamer.extract.numbers import first_number
from gossamer.recipe.model import FieldType
from gossamer.recipe.model import TypeOptions as Options
from gossamer.recipe.values import UnreadableValue, read
from tests.unit.recipes import page_of

PAGE = page_of("")  # fetched on 14 November 2023, 22:13:20 UTC
STOCK = Options(type=FieldType.BOOL, true=("available", "in stock"), false=("unavailable", "not in stock"))


@pytest.mark.parametrize(
    ("text", "decimal", "number"),
    [
        ("1,234.5 kg", ".", "1234.5"),
        ("1.234,5 kg", ",", "1234.5"),
        ("12 345 678", ".", "12345678"),
        ("10'000", ".", "10000"),
        ("(−4)", ".", "-4"),
        ("A5", ".", "5"),
        (".5", ".", "0.5"),
        ("20%", ".", "20"),
        ("none", ".", None),
        ("x" * 400 + "5", ".", None),
    ],
)  # fmt: skip
def test_a_number_is_found_in_words(text, decimal, number):
    assert first_number(text, decimal) == number


@pytest.mark.parametrize(
    ("text", "decimal"), [("1.299,00", "."), ("1,299.00", ","), ("12.05.2024", "."), ("1,29", ".")]
)
def test_a_number_that_could_mean_two_things_is_not_guessed(text, decimal):
    with pytest.raises(ValueError, match="decimal ="):
        first_number(text, decimal)


@pytest.mark.parametrize(
    ("text", "reading", "value"),
    [
        ("7 of 9", Options(type=FieldType.INT), 7),
        ("7.00", Options(type=FieldType.INT), 7),
        ("0.10", Options(type=FieldType.DECIMAL), Decimal("0.10")),
        ("Yes", Options(type=FieldType.BOOL), True),
        ("Sold out!", Options(type=FieldType.BOOL, false=("sold out",)), False),
        ("Not sold out", Options(type=FieldType.BOOL, false=("sold out",)), True),
        ("Now in stock", STOCK, True),
        ("Unavailable", STOCK, False),
        ("Not in stock", STOCK, False),
        ("Not here. In stock elsewhere", STOCK, True),
        ("not in the shop, available online", STOCK, True),
        ("现在有货", Options(type=FieldType.BOOL, true=("有货",), false=("缺货",)), True),
        ("no longer available", Options(type=FieldType.BOOL, true=("available",)), False),
        ("non-disponible", Options(type=FieldType.BOOL, true=("disponible",)), False),
        ("isn’t available", Options(type=FieldType.BOOL, true=("available",)), False),
        ("2024-03-01", Options(type=FieldType.DATE), datetime(2024, 3, 1, tzinfo=UTC)),
        ("2024-03-01T10:00Z", Options(type=FieldType.DATE, zone="Europe/Berlin"), datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("2024-07-01 10:00", Options(type=FieldType.DATE, zone="Europe/Berlin"), datetime(2024, 7, 1, 8, tzinfo=UTC)),
        ("Fri, 01 Mar 2024 10:00:00 +0200", Options(type=FieldType.DATE), datetime(2024, 3, 1, 8, tzinfo=UTC)),
        ("Fri, 01 Mar 2024 4:05 pm GMT", Options(type=FieldType.DATE), datetime(2024, 3, 1, 16, 5, tzinfo=UTC)),
        ("1709287200", Options(type=FieldType.DATE), datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("1709287200000", Options(type=FieldType.DATE), datetime(2024, 3, 1, 10, tzinfo=UTC)),
        ("1. März 2024", Options(type=FieldType.DAY, languages=("de",)), date(2024, 3, 1)),
        ("yesterday", Options(type=FieldType.DAY, languages=("en",)), date(2023, 11, 13)),
        ("01/03/24", Options(type=FieldType.DAY, formats=("%Y", "%d/%m/%y")), date(2024, 3, 1)),
    ],
)  # fmt: skip
def test_a_text_is_read_as_its_type(text, reading, value):
    assert read(text, reading, PAGE) == value


def test_a_moment_keeps_the_zone_that_is_written():
    found = read("2024-03-01T10:00:00+02:00", Options(type=FieldType.DATE, zone="Asia/Tokyo"), PAGE)

    assert found.tzinfo == timezone(timedelta(hours=2))


@pytest.mark.parametrize(
    ("text", "reading", "why"),
    [
        ("many", Options(type=FieldType.INT), "there is no int"),
        ("4.5", Options(type=FieldType.INT), "not a whole number"),
        ("9" * 30, Options(type=FieldType.INT), "more than 18 digits"),
        ("free", Options(type=FieldType.MONEY), "there is no price"),
        ("perhaps", Options(type=FieldType.BOOL), "neither yes nor no"),
        ("b", Options(type=FieldType.BOOL, true=("x",), false=("y",)), "none of the words"),
        ("not available", STOCK, "none of the words"),
        ("preavailable", STOCK, "none of the words"),
        ("sold out / in stock", Options(type=FieldType.BOOL, true=("in stock",), false=("sold out",)), "words of both"),
        ("soon", Options(type=FieldType.DATE, languages=("en",)), "not a date"),
        ("2024", Options(type=FieldType.DATE), "day, month and year"),
        ("March 2024", Options(type=FieldType.DAY), "day, month and year"),
        ("12 May", Options(type=FieldType.DAY, languages=("en",)), "day, month and year"),
        ("2024-03", Options(type=FieldType.DATE), "day, month and year"),
        ("1.3.24", Options(type=FieldType.DATE, formats=("%Y-%m-%d",)), "not written like %Y-%m-%d"),
        ("99999999999", Options(type=FieldType.DATE), "not a plausible date"),
        ("javascript:void(0)", Options(type=FieldType.URL), "not a web address"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_says_why(text, reading, why):
    with pytest.raises(UnreadableValue, match=why):
        read(text, reading, PAGE)
