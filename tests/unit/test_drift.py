"""Drift: what is noticed of values that a rule takes from another place, and what sites do honestly."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from gossamer.project.spiders.drift import FieldDrift, Past, field_drift


def price(amount: float, currency: str = "EUR") -> dict[str, str]:
    return {"amount": f"{amount:.2f}", "currency": currency}


def amounts(seed: int, count: int = 60) -> list[float]:
    draw = random.Random(seed)
    return [round(draw.lognormvariate(3.5, 0.8), 2) for _ in range(count)]


def prices_became(change: Callable[[float, int], Any], seed: int = 1, count: int = 60) -> FieldDrift | None:
    was = amounts(seed, count)
    now = [change(amount, at) for at, amount in enumerate(was)]
    return became("price", [price(one) for one in was], [one if isinstance(one, dict) else price(one) for one in now])


def became(field: str, was: list[Any], now: list[Any]) -> FieldDrift | None:
    pairs = zip(was, now, strict=True)
    return field_drift("Lamp", field, [Past(str(at), (old,), new) for at, (old, new) in enumerate(pairs)])


WRONG: dict[str, tuple[str, Callable[[float, int], Any]]] = {
    "the list price": ("rise", lambda was, at: was * 1.25 if at % 3 else was),
    "the price for a pack": ("level", lambda was, at: was * 6),
    "cents": ("level", lambda was, at: was * 100),
    "the monthly rate": ("level", lambda was, at: was / 24),
    "another currency": ("currency", lambda was, at: price(was * 1.1, "USD")),
    "the price of shipping": ("constant", lambda was, at: 4.9),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("seed", range(5))
def test_another_amount_of_the_page_is_noticed(what, seed):
    sign, change = WRONG[what]
    draw = random.Random(seed)

    def beside_honest_moves(was: float, at: int) -> Any:
        return change(was * draw.uniform(0.9, 1.1) if draw.random() < 0.3 else was, at)

    found = prices_became(beside_honest_moves, seed)

    assert found is not None
    assert found.sign == sign
    assert len(found.examples) == 5
    assert found.words.startswith("price ")


@pytest.mark.parametrize("seed", range(40))
def test_prices_that_move_are_no_drift(seed):
    draw = random.Random(seed)
    share, size = draw.choice((0.1, 0.3, 0.6, 1.0)), draw.choice((0.02, 0.1, 0.4))
    assert (
        prices_became(lambda was, at: was * draw.uniform(1 - size, 1 + size) if draw.random() < share else was) is None
    )
    assert prices_became(lambda was, at: was * 1.04) is None, "all of them a little dearer"


@pytest.mark.parametrize("off", [0.8, 0.5])
def test_a_sale_and_its_end_are_no_drift(off):
    assert prices_became(lambda was, at: was * off) is None
    usual = amounts(3)
    ended = [Past(str(at), (price(was), price(was * off)), price(was)) for at, was in enumerate(usual)]
    assert field_drift("Lamp", "price", ended) is None


@pytest.mark.parametrize("change", [change for _, change in WRONG.values()])
def test_a_few_values_say_nothing(change):
    assert prices_became(change, count=8) is None


def test_goods_that_are_sold_out_are_no_drift():
    draw = random.Random(2)
    counts = [draw.randint(0, 60) for _ in range(60)]
    assert became("stock", counts, [0] * 60) is None
    assert became("stock", counts, [draw.randint(0, 900) for _ in range(60)]) is None, "a delivery"
    assert became("in_stock", [draw.random() < 0.8 for _ in range(60)], [False] * 60) is None
    words = [draw.choice(["In stock", "Few left", "Two weeks"]) for _ in range(60)]
    assert became("availability", words, ["Sold out"] * 60) is None


def test_another_assortment_is_no_drift():
    summer, winter = [price(one) for one in amounts(4, 80)], [price(one * 2.5) for one in amounts(5, 80)]
    assert field_drift("Lamp", "price", [], winter, summer) is None
    in_cents = [price(one * 100) for one in amounts(5, 80)]
    found = field_drift("Lamp", "price", [], in_cents, summer)
    assert found is not None
    assert found.sign == "level"


def test_other_numbers_drift_by_a_factor_that_all_of_them_have():
    draw = random.Random(6)
    ratings = [round(draw.uniform(2, 5), 1) for _ in range(40)]
    found = became("rating", ratings, [one * 20 for one in ratings])
    assert found is not None
    assert (found.sign, found.words) == ("scale", "rating is 20 times what it was, in the middle of 40 items")
    reviews = [draw.randint(0, 40) for _ in range(60)]
    assert became("reviews", reviews, [one + draw.randint(0, 90) for one in reviews]) is None


def test_texts_drift_when_they_are_the_same_everywhere_or_of_another_length():
    names = [f"Lamp {number} of brass" for number in range(40)]
    same = became("title", names, ["Our shop"] * 40)
    assert same is not None
    assert same.words == "title is the same in 40 of 40 items, and had 40 values before"
    alike = became("title", names, [f"Shelf {number % 5}" for number in range(40)])
    assert alike is not None
    assert alike.sign == "alike"
    longer = became("title", names, [f"{name}, 20 reviews, in stock, add to cart, compare, share" for name in names])
    assert longer is not None
    assert longer.sign == "length"
    assert became("title", names, [f"New: {name}" for name in names]) is None
    brands = ["Halden", "Kestrel", "Mira"] * 10
    assert became("brand", brands, ["Halden"] * 30) is None, "one of a few, as it may be"


def test_dates_drift_when_day_and_month_are_exchanged_or_years_pass():
    days = [date(2026, number % 12 + 1, number % 11 + 1) for number in range(48)]
    said = [day.isoformat() for day in days]
    swapped = became("posted", said, [date(day.year, day.day, day.month).isoformat() for day in days])
    assert swapped is not None
    assert swapped.sign == "dates"
    later = became("posted", said, [(day + timedelta(days=1000)).isoformat() for day in days])
    assert later is not None
    assert later.sign == "dates"
    today = became("posted", said, ["2027-01-31T08:00:00Z"] * 48)
    assert today is not None
    assert today.sign == "constant"
    assert became("posted", said, [(day + timedelta(days=9)).isoformat() for day in days]) is None


@pytest.mark.parametrize("huge", [10**400, 1e308, float("nan"), float("inf")])
def test_numbers_of_any_size_are_compared(huge):
    became("size", [1e-300 * (n + 1) for n in range(30)], [huge] * 15 + [n + 1.5 for n in range(15)])
    tiny = [{"amount": f"{n + 1}e-300", "currency": "EUR"} for n in range(30)]
    assert became("price", tiny, [{"amount": f"{n + 1}e306", "currency": "EUR"} for n in range(30)]) is not None
    became("price", tiny, [{"amount": str(huge), "currency": "EUR"}] * 30)
