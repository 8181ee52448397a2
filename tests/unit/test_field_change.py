"""How often a field changes, from the history of its records, and what that means for rules that are learned again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, cast

import pytest

from gossamer import Money
from gossamer.model.record import StoredRecord
from gossamer.project.spiders.field_change import field_changes
from gossamer.recipe.induction.decision import Decision
from gossamer.recipe.induction.induce import induce
from gossamer.store.contract import RecordHistory, Version
from tests.unit.test_induction import goal, sample

DAY = 86_400.0


class Histories:
    """The versions of records, by key."""

    def __init__(self, prices: dict[str, Sequence[str]]) -> None:
        self._prices = prices

    async def history(self, type: str, site: str, key: str) -> list[Version]:
        return [
            Version(at=at * DAY, job="j", version=at + 1, data=json.dumps({"price": price, "sku": key}))
            for at, price in enumerate(self._prices[key])
        ]


def record(key: str, versions: int, days: float) -> StoredRecord:
    return StoredRecord(
        type="Lamp", site="shop.example", key=key, url=f"https://shop.example/{key}", job="j", spider="shop", data={},
        first_seen=0.0, last_changed=0.0, last_checked=days * DAY, version=versions,
    )  # fmt: skip


async def rates(prices: dict[str, Sequence[str]], days: float = 10) -> dict[str, float]:
    records = [record(key, len(steps), days) for key, steps in prices.items()]
    store = cast("RecordHistory", Histories(prices))
    return await field_changes(store, records, ["price", "sku"], (days + 1) * DAY)


async def test_a_field_that_changes_every_other_day_is_expected_to_change_by_then():
    found = await rates({f"k{at}": ["1", "2", "3", "4", "5", "6"] for at in range(10)})

    assert found["price"] == pytest.approx(0.4, abs=0.02)
    assert found["sku"] < 0.02


async def test_records_that_were_seen_once_say_nothing_of_changes():
    assert await rates({f"k{at}": ["1"] for at in range(10)}, days=0) == {}
    assert await rates({"k1": ["1", "2"]}) == {}


def prices_after(changed: float, change: float | None) -> Decision:
    """What follows where this share of 20 prices has changed, and `change` was to be expected."""
    wanted = goal("price", "money")
    samples = []
    for at in range(20):
        now = Decimal(at * 7 + 5) + (Decimal("1.15") if at < 20 * changed else 0)
        samples.append(
            sample(f"<h1>L{at}</h1><b class=cost>€{now}</b>", {"price": Money(Decimal(at * 7 + 5), "EUR")}, at)
        )
    goals: list[Any] = [type(wanted)(name="price", options=wanted.options, change=change)]
    return induce(goals, samples)[0].decision


def test_prices_heal_if_no_more_of_them_changed_than_their_history_says():
    assert prices_after(0.3, None) is Decision.HEAL
    assert prices_after(0.4, 0.35) is Decision.HEAL
    assert prices_after(0.4, 0.01) is Decision.PROPOSE
    assert prices_after(0.8, None) is not Decision.HEAL
    assert prices_after(0.8, 0.9) is not Decision.HEAL


@pytest.mark.parametrize("change", [None, 0.01, 0.9])
def test_keys_that_changed_are_refused(change):
    wanted = goal("sku", "text")
    key = type(wanted)(name="sku", options=wanted.options, key=True, change=change)
    samples = [
        sample(f"<p class=code>{'N' if at % 2 else 'K'}-{at}00</p>", {"sku": f"K-{at}00"}, at) for at in range(20)
    ]

    assert induce([key], samples)[0].decision is Decision.REFUSE
