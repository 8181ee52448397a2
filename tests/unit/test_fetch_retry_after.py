from __future__ import annotations

from datetime import timedelta
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.fetch.retry_after import LONGEST, parse_retry_after

NOW = 1_800_000_000.0


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("0", timedelta(0)),
        ("120", timedelta(seconds=120)),
        (" 1.5 ", timedelta(seconds=1.5)),
        ("1e12", LONGEST),
        ("1000000000000", LONGEST),
        ("9" * 400, LONGEST),
        ("1e999", LONGEST),
        (formatdate(NOW + 90, usegmt=True), timedelta(seconds=90)),
        (formatdate(NOW - 90, usegmt=True), timedelta(0)),
        (formatdate(NOW + 1e9, usegmt=True), LONGEST),
    ],
)
def test_a_wish_is_read_and_clamped(value: str, wait: timedelta) -> None:
    assert parse_retry_after(value, NOW) == wait


@pytest.mark.parametrize(
    "value", ["", "-1", "-1e9", "nan", "inf", "soon", "1 minute", "١٢", "1_000", "Fri, 99 Foo 2099", "\x00", "9" * 5000]
)
def test_what_is_no_wish_gives_none(value: str) -> None:
    assert parse_retry_after(value, NOW) is None


@given(st.text())
def test_no_text_raises_or_asks_for_more_than_a_year(value: str) -> None:
    wait = parse_retry_after(value, NOW)
    assert wait is None or timedelta(0) <= wait <= LONGEST
