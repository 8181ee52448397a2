"""Credits as whole numbers: what is written is what is counted, and rounding never passes a bound."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.backends.budget_units import MOST, credits_in, days_before, units_allowed, units_to_give, units_to_take

AMOUNTS = st.floats(min_value=0, max_value=1e9, allow_nan=False)


@pytest.mark.parametrize(
    ("credits", "units"),
    [(0, 0), (1, 10**9), (0.1, 10**8), (0.0003, 300_000), (1e-9, 1), (12.5003, 12_500_300_000), (1e9, 10**18)],
)
def test_an_amount_of_up_to_nine_digits_after_the_point_is_what_was_written(credits, units):
    assert units_to_take(credits) == units_to_give(credits) == units_allowed(credits) == units
    assert credits_in(units) == credits


def test_what_is_finer_is_taken_up_and_given_back_down():
    assert (units_to_take(1e-10), units_to_give(1e-10), units_allowed(1e-10)) == (1, 0, 0)
    assert (units_to_take(1 / 3), units_to_give(1 / 3)) == (333_333_334, 333_333_333)


@given(AMOUNTS, AMOUNTS)
def test_what_is_taken_within_a_bound_is_within_it_exactly(credits, limit):
    if units_to_take(credits) <= units_allowed(limit):
        # Compared as the decimals that people read, not as the floats behind them.
        assert Fraction(repr(credits)) <= Fraction(repr(limit))
    assert units_to_give(credits) <= units_to_take(credits) <= units_to_give(credits) + 1


@pytest.mark.parametrize("credits", [float("inf"), 1e300, 1e10])
def test_amounts_beyond_counting_are_bounds_that_nothing_as_big_fits_into(credits):
    assert units_allowed(credits) == MOST
    assert units_to_take(credits) == MOST + 1
    assert units_allowed(credits) + units_to_take(credits) < 2**63


@pytest.mark.parametrize("credits", [-1e-9, -1, float("-inf"), float("nan")])
def test_what_is_no_amount_is_refused(credits):
    for read in (units_to_take, units_to_give, units_allowed):
        with pytest.raises(ValueError, match="not an amount of credits"):
            read(credits)


def test_days_are_read_from_the_names_of_budgets():
    budgets = [
        "day/2027-01-30",
        "day/2027-01-31",
        "domain/2027-01-30/a/b\nc",
        "job/2027-01-30",
        "day/x",
        "holiday/2027-01-01",
    ]

    assert days_before(budgets, "2027-01-31") == ["day/2027-01-30", "domain/2027-01-30/a/b\nc"]
