"""Credits: taken before a request leaves, given back when it cost less, and never more than the bounds allow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gossamer.backends.sqlite.state import open_sqlite_state
from gossamer.clock import VirtualClock
from gossamer.errors import BudgetSpent
from gossamer.frontier.politeness import SiteTerms
from gossamer.model.route import Route
from gossamer.routing.budget import BudgetKeeper, Budgets

GB = 10**9
API = Route(name="api", transport="managed", vendor="v", price=9.0)
HOME = Route(name="home", pool="home", price=1.0, price_per_gb=100.0)


@pytest.fixture
def clock():
    return VirtualClock(datetime(2026, 11, 15, 23, 50, tzinfo=UTC).timestamp())


@pytest.fixture
async def book(tmp_path, clock):
    async with open_sqlite_state(
        tmp_path / "state.db", clock, lease_duration=timedelta(minutes=1), terms_for=lambda site: SiteTerms()
    ) as state:
        yield state.budgets


def budget_with(book, clock, *, job="7", **budgets):
    return BudgetKeeper(book, job, lambda site: Budgets(**budgets), clock, max_body=GB // 100)


async def test_what_a_page_may_cost_is_taken_and_what_it_did_not_cost_comes_back(book, clock):
    budget = budget_with(book, clock, day=10.0, domain=5.0)

    receipt = await budget.pay("a.test", HOME)
    assert await book.spent() == {"day/2026-11-15": 2.0, "domain/2026-11-15/a.test": 2.0}

    cost = await budget.settle(receipt, GB // 1000)
    assert cost == pytest.approx(1.1)
    assert (await book.spent())["day/2026-11-15"] == pytest.approx(1.1)


async def test_a_request_that_never_left_costs_nothing(book, clock):
    budget = budget_with(book, clock, day=10.0)
    receipt = await budget.pay("a.test", API)
    assert await budget.settle(receipt, None) == 0.0
    assert (await book.spent()).get("day/2026-11-15", 0.0) == 0.0


async def test_a_vendor_that_charges_less_is_believed_and_so_is_one_that_charges_more(book, clock):
    budget = BudgetKeeper(book, "7", lambda site: Budgets(job=20.0), clock, max_body=GB)
    assert await budget.settle(await budget.pay("a.test", API), 100, charged=5.0) == 5.0
    assert await book.spent() == {"job/7": 5.0}
    assert await budget.settle(await budget.pay("a.test", API), 100, charged=15.0) == 15.0
    assert await book.spent() == {"job/7": 20.0}


@pytest.mark.parametrize(
    ("budgets", "setting"),
    [
        ({"job": 20.0}, "router.budget_job"),
        ({"day": 20.0}, "router.budget_day"),
        ({"domain": 20.0}, "router.budget_domain"),
    ],
)
async def test_a_bound_is_never_passed_and_the_refusal_names_the_setting(book, clock, budgets, setting):
    budget = BudgetKeeper(book, "7", lambda site: Budgets(**budgets), clock, max_body=GB)
    for _ in range(2):
        await budget.settle(await budget.pay("a.test", API), 100)
    with pytest.raises(BudgetSpent, match=setting) as refusal:
        await budget.pay("a.test", API)
    assert list((await book.spent()).values()) == [18.0]
    assert refusal.value.wait <= timedelta(minutes=30)


async def test_a_cheaper_route_may_still_be_paid_when_a_dear_one_may_not(book, clock):
    budget = BudgetKeeper(book, "7", lambda site: Budgets(day=10.0), clock, max_body=GB)
    await budget.settle(await budget.pay("a.test", API), 100)
    with pytest.raises(BudgetSpent):
        await budget.pay("a.test", API)
    assert (await budget.pay("a.test", Route(name="direct"))).taken == 1.0


async def test_each_domain_has_its_own_budget_and_a_new_day_fills_it(book, clock):
    budget = BudgetKeeper(book, "7", lambda site: Budgets(domain=9.0), clock, max_body=GB)
    await budget.settle(await budget.pay("a.test", API), 100)
    await budget.settle(await budget.pay("b.test", API), 100)
    with pytest.raises(BudgetSpent) as refusal:
        await budget.pay("a.test", API)
    assert refusal.value.wait == timedelta(minutes=10)  # it is ten to midnight

    clock.advance(600)
    await budget.settle(await budget.pay("a.test", API), 100)


async def test_without_bounds_nothing_is_written_down(book, clock):
    budget = BudgetKeeper(book, "7", lambda site: Budgets(), clock, max_body=GB)
    assert await budget.settle(await budget.pay("a.test", API), 100) == 9.0
    assert await book.spent() == {}
