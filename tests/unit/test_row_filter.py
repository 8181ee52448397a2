"""Conditions on the fields of a record, as people write them in `where`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import Misconfigured
from gossamer.model.row_filter import LONGEST, row_filter

LAMP = {
    "title": "Desk lamp",
    "price": {"amount": "9.50"},
    "stock": 3,
    "new": True,
    "tags": ["red", "tall"],
    "brand": None,
    "seen": "2026-11-19T20:00:00+05:30",
    "day": "2026-11-19",
}


@pytest.mark.parametrize(
    "condition",
    [
        "price.amount < 10",
        "price.amount == 9.5",
        "stock >= 3 and stock != 4",
        'title == "Desk lamp"',
        "title contains 'lamp'",
        "tags contains 'red'",
        "new == true",
        "brand == none",
        "colour == none and not (stock > 3 or new == false)",
        "stock > 5 or stock < 4 and new == true",
        'seen == "2026-11-19T14:30:00Z"',
        'seen < "2026-11-19T15:00:00Z" and seen > "2026-11-19T14:00"',
        'day == "2026-11-19" and day < "2026-11-20T00:00:00Z" and not day < "2026-11-19"',
        'title < "2026-11-19" or title > "2026-11-19"',  # a text that is no moment is compared as one
    ],
)
def test_a_condition_that_holds(condition: str) -> None:
    assert row_filter(condition)(LAMP)


@pytest.mark.parametrize(
    "condition",
    [
        "price.amount >= 10",
        "colour > 1",
        "colour < 1",
        "title < 5",
        "brand contains 'x'",
        "price == 9.5",
        "title.x == 1",
        'seen > "2026-11-19T15:00:00Z"',
        'seen contains "14:30"',
        'day == "2026-13-45"',
    ],
)
def test_a_condition_that_does_not_hold(condition: str) -> None:
    assert not row_filter(condition)(LAMP)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("price <", "a value is missing"),
        ("price ~ 3", "'~ 3' is not expected"),
        ("price == cheap", "a text has quotes"),
        ("price == 3)", "')' is not expected"),
        ("(price == 3", "a bracket is not closed"),
        ("3 == price", "a field is expected"),
        ("price < none", "neither less nor more"),
        ("(" * 50 + "a == 1" + ")" * 50, "nested too deeply"),
        ("a == 1 " * LONGEST, "characters"),
        ("__import__('os').system('true')", "is not expected"),
    ],
)
def test_a_condition_that_cannot_be_read_is_refused_with_a_sentence(condition: str, said: str) -> None:
    with pytest.raises(Misconfigured, match=said.replace("(", r"\(").replace(")", r"\)")):
        row_filter(condition)


@given(st.text(max_size=60), st.dictionaries(st.text(max_size=3), st.none() | st.integers() | st.text(max_size=3)))
def test_any_text_is_a_condition_or_refused(condition: str, fields: dict[str, object]) -> None:
    try:
        test = row_filter(condition)
    except Misconfigured:
        return
    assert test(fields) in (True, False)
