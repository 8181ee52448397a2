"""A budget of fetches goes to the pages where it keeps the most copies current."""

from __future__ import annotations

import math
import random

import pytest
from bench.recrawl import Adaptive, Best, Planned, crawl, proportional
from bench.recrawl_price import DAY, eased, freshness, interval_for, price_for, purse
from hypothesis import given
from hypothesis import strategies as st

from gossamer.schedule.change_rate import rate
from gossamer.schedule.recrawl import NEVER, KnownPage, RecrawlBounds, due, gain

HOUR = 3600.0
BOUNDS = RecrawlBounds(HOUR, 30 * DAY)
WIDE = RecrawlBounds(1.0)

rates_of_pages = st.floats(1e-10, 0.1)
prices = st.floats(1.0, 1e9)


def long_tailed(count: int, seed: int = 1, middle: float = 10 * DAY) -> list[float]:
    chance = random.Random(seed)
    return [chance.lognormvariate(0.0, 2.5) / middle for _ in range(count)]


def spent(rates: list[float], price: float, bounds: RecrawlBounds) -> float:
    return sum(DAY / interval_for(rate, price, bounds) for rate in rates)


def fresh(rates: list[float], intervals: list[float]) -> float:
    return sum(map(freshness, rates, intervals)) / len(rates)


# -- prices and intervals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.05, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("bounds", [BOUNDS, WIDE, RecrawlBounds(60.0, 25 * DAY)])
def test_the_price_takes_the_budget(share, bounds):
    rates = long_tailed(5000)
    price = price_for(rates, share * len(rates), bounds)
    assert spent(rates, price, bounds) == pytest.approx(share * len(rates), rel=0.02)


@given(rates_of_pages, prices)
def test_at_its_interval_a_page_brings_the_price(rate, price):
    interval = interval_for(rate, price, WIDE)
    if interval == math.inf:
        assert 1 / rate <= price
    elif interval == WIDE.shortest:
        assert gain(rate, interval) >= price * 0.999
    else:
        assert gain(rate, interval) == pytest.approx(price, rel=1e-6)


@given(st.floats(0, 10), st.floats(0, 1e15) | st.just(math.inf))
def test_no_interval_is_out_of_bounds(rate, price):
    assert BOUNDS.shortest <= interval_for(rate, price, BOUNDS) <= BOUNDS.longest


def test_quicker_pages_are_fetched_more_often_up_to_a_point():
    price = 12 * HOUR
    intervals = [
        interval_for(changes / DAY, price, WIDE) for changes in (0.001, 0.01, 0.1, 0.5, 1.0, 1.5, 1.9, 2.0, 50)
    ]
    quickest = intervals.index(min(intervals))
    assert intervals[: quickest + 1] == sorted(intervals[: quickest + 1], reverse=True)
    assert intervals[quickest:] == sorted(intervals[quickest:])
    assert 0 < quickest < 5
    assert intervals[-2:] == [math.inf, math.inf]


def test_the_allotment_is_fresher_than_equal_or_proportional_intervals():
    rates, per_day = long_tailed(1000), 200.0
    price = price_for(rates, per_day, WIDE)
    best = fresh(rates, [interval_for(rate, price, WIDE) for rate in rates])
    equal = fresh(rates, [5 * DAY] * len(rates))
    in_proportion = fresh(rates, [DAY * sum(rates) / (per_day * rate) for rate in rates])
    assert best > equal + 0.03
    assert equal > in_proportion + 0.1


def test_no_fetch_would_bring_more_elsewhere():
    rates = long_tailed(40, seed=2)
    price = price_for(rates, 8.0, WIDE)
    frequencies = [1 / interval_for(rate, price, WIDE) for rate in rates]
    best = sum(freshness(rate, 1 / often) if often else 0.0 for rate, often in zip(rates, frequencies, strict=True))
    moved = 0.001 / DAY
    for giver in range(len(rates)):
        for taker in range(len(rates)):
            if giver == taker or frequencies[giver] <= moved:
                continue
            after = list(frequencies)
            after[giver] -= moved
            after[taker] += moved
            other = sum(freshness(rate, 1 / often) if often else 0.0 for rate, often in zip(rates, after, strict=True))
            assert other <= best + 1e-9


@pytest.mark.parametrize(
    ("rates", "per_day", "price"),
    [
        ([], 10.0, 0.0),
        ([1 / DAY], 0.0, math.inf),
        ([1 / DAY], 24.0, 0.0),  # as often as the shortest interval allows
        ([1 / DAY] * 10, 1e9, 0.0),
        ([1 / DAY] * 60, 1.0, math.inf),  # the longest interval of 30 days alone takes 2 a day
        ([0.0] * 10, 10.0, 0.0),  # what never changes takes nothing but the longest interval
    ],
)
def test_the_extremes_of_a_budget(rates, per_day, price):
    assert price_for(rates, per_day, BOUNDS) == price


@pytest.mark.parametrize("changes", [1e-9, 0.01, 1.0, 1e9])
def test_one_page_takes_the_whole_budget(changes):
    price = price_for([changes / DAY], 0.5, WIDE)
    assert interval_for(changes / DAY, price, WIDE) <= 2 * DAY * 1.02  # more where no price takes it exactly


def test_pages_that_are_too_quick_to_follow_still_get_the_budget():
    rates = [100 / DAY] * 50
    price = price_for(rates, 10.0, BOUNDS)
    pages = [KnownPage(number, rate, -number * HOUR) for number, rate in enumerate(rates)]
    assert due(pages, DAY, BOUNDS, 10, price=price) == list(range(49, 39, -1))


def test_nobody_is_left_out_for_being_a_little_quicker_than_those_priced_together_with_it():
    rates = [(100 + number / 10_000) / DAY for number in range(50)]
    price = price_for(rates, 10.0, BOUNDS)
    pages = [KnownPage(number, rate, 0.0) for number, rate in enumerate(rates)]
    assert due(pages, DAY, BOUNDS, 50, price=price) == list(range(50))


def test_a_fetch_brings_no_more_than_the_time_until_the_next_change():
    gains = [gain(1 / DAY, elapsed) for elapsed in (0.0, 1.0, 60.0, HOUR, DAY, 10 * DAY, 1000 * DAY, math.inf)]
    assert gains == sorted(gains)
    assert (gains[0], gains[-1]) == (0.0, DAY)
    assert gain(0.0, math.inf) == 0.0


@pytest.mark.parametrize("per_day", [-1.0, math.nan])
def test_an_impossible_budget_is_refused(per_day):
    with pytest.raises(ValueError, match="cannot be kept"):
        price_for([1 / DAY], per_day, BOUNDS)


@pytest.mark.parametrize(
    ("shortest", "longest"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0), (math.inf, math.inf), (1, math.nan)]
)
def test_impossible_bounds_are_refused(shortest, longest):
    with pytest.raises(ValueError, match="cannot be fetched"):
        RecrawlBounds(shortest, longest)


# -- what is due -------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(rates_of_pages, st.floats(0, 40 * DAY)), max_size=20), prices)
def test_due_are_the_pages_whose_interval_is_over(pages, price):
    now = 100 * DAY
    known = [KnownPage(number, rate, now - elapsed) for number, (rate, elapsed) in enumerate(pages)]
    chosen = set(due(known, now, BOUNDS, 100, price=price))
    for page in known:
        waited, interval = now - page.fetched, interval_for(page.rate, price, BOUNDS)
        if not math.isclose(waited, interval, rel_tol=1e-6):
            assert (page.id in chosen) == (waited > interval)


def test_the_greatest_gain_goes_first_and_the_limit_is_kept():
    pages = [KnownPage(f"every {days} days", 1 / (days * DAY), 0.0) for days in (0.1, 1, 3, 10, 300)]
    ordered = ["every 3 days", "every 1 days", "every 10 days", "every 0.1 days", "every 300 days"]
    gains = [gain(next(page.rate for page in pages if page.id == name), 5 * DAY) for name in ordered]
    assert gains == sorted(gains, reverse=True)
    assert due(pages, 5 * DAY, BOUNDS, 10) == ordered
    assert due(pages, 5 * DAY, BOUNDS, 2) == ordered[:2]
    assert due(pages, 5 * DAY, BOUNDS, 10, price=gains[2]) == ordered[:3]
    assert due(pages, 5 * DAY, BOUNDS, 0) == []


def test_pages_without_a_copy_go_first_then_those_that_waited_too_long():
    pages = [
        KnownPage("best gain", 1 / (5 * DAY), 30 * DAY),
        KnownPage("31 days old", 1e-9, 9 * DAY),
        KnownPage("hopeless and 35 days old", 0.1, 5 * DAY),
        KnownPage("new", 1 / DAY, NEVER),
    ]
    assert due(pages, 40 * DAY, BOUNDS, 9, price=1.0) == ["new", "hopeless and 35 days old", "31 days old", "best gain"]


def test_nothing_is_due_before_the_shortest_interval():
    page = KnownPage("x", 1 / DAY, 0.0, True)
    assert due([page], HOUR - 1, BOUNDS, 1) == []
    assert due([page], HOUR, BOUNDS, 1) == ["x"]


def test_a_copy_that_is_surely_out_of_date_is_worth_more_than_one_that_may_be():
    announced, silent = KnownPage("announced", 1 / (9 * DAY), 0.0, True), KnownPage("silent", 1 / (9 * DAY), 0.0)
    assert due([silent, announced], 2 * DAY, BOUNDS, 2, price=DAY) == ["announced"]
    assert due([silent, announced], 20 * DAY, BOUNDS, 2, price=DAY) == ["announced", "silent"]
    assert due([KnownPage("too quick all the same", 10 / DAY, 0.0, True)], 2 * DAY, BOUNDS, 1, price=DAY) == []


def test_a_page_that_cannot_change_waits_for_the_longest_interval():
    still = KnownPage("still", 0.0, 0.0)
    assert due([still], 29 * DAY, BOUNDS, 1) == []
    assert due([still], 30 * DAY, BOUNDS, 1, price=math.inf) == ["still"]
    assert due([KnownPage("still", 0.0, 0.0, True)], DAY, BOUNDS, 1, price=1e9) == ["still"]


def test_fetches_are_saved_for_a_day_at_most():
    assert purse(0.5, 48.0, HOUR) == 2.5
    assert purse(40.0, 48.0, DAY) == 48.0
    assert purse(3.0, 48.0, -HOUR) == 3.0
    assert purse(0.0, 0.0, DAY) == 0.0
    assert purse(0.9, 0.5, DAY) == 1.0  # a budget of one page in two days comes to a whole fetch


def test_the_price_falls_while_fetches_are_left_over():
    assert [eased(100.0, saved, 48.0) for saved in (0.0, 12.0, 24.0, 48.0, 90.0)] == [100.0, 75.0, 50.0, 0.0, 0.0]
    assert eased(math.inf, 24.0, 48.0) == math.inf
    assert eased(math.inf, 48.0, 48.0) == 0.0
    assert eased(100.0, 0.0, 0.0) == 100.0


# -- a small crawl ---------------------------------------------------------------------------------------------------


def test_a_crawl_that_learns_beats_one_that_treats_all_pages_alike():
    rates, per_day = long_tailed(600, seed=4), 120.0
    policies = {
        "uniform": Planned([5 * DAY] * len(rates)),
        "proportional": Planned(proportional(rates, per_day)),
        "adaptive": Adaptive(len(rates), per_day, BOUNDS, rate),
        "best": Best(rates, per_day, WIDE),
    }
    results = {name: crawl(rates, policy, per_day, 60, 4) for name, policy in policies.items()}
    found = {name: result.late for name, result in results.items()}
    assert found["best"] > found["adaptive"] > found["uniform"] > found["proportional"]
    assert found["adaptive"] > 0.9 * found["best"]
    assert all(result.fetches <= 60 * per_day for result in results.values())
    assert results["adaptive"].fetches == pytest.approx(60 * per_day, rel=0.02)
