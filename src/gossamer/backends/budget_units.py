"""Credits as integers, and the days in the names of budgets. Shared by the backends that store budgets. No I/O.

Sums of fractions such as 0.1 drift when they are added as floats, and a bound that drifts is not hard. So a budget
counts billionths of a token. Smaller fractions are rounded so that a bound is reached early and never exceeded: up when
taken, down when given back, down for the bound itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

PER_TOKEN = 10**9
MOST = 2**62 - 1  # the highest bound; it plus one taking still fits into 64 bits

_DAY = re.compile(r"(?:day|domain)/(\d{4}-\d\d-\d\d)(?:/.*)?", re.DOTALL)


def units_to_take(credits: float) -> int:
    """Raises ValueError for an amount below zero, or not a number."""
    return min(_units(credits, ROUND_CEILING), MOST + 1)


def units_to_give(credits: float) -> int:
    """Raises as `units_to_take`."""
    return min(_units(credits, ROUND_FLOOR), MOST + 1)


def units_allowed(limit: float) -> int:
    """Raises as `units_to_take`."""
    return min(_units(limit, ROUND_FLOOR), MOST)


def credits_in(units: int) -> float:
    return units / PER_TOKEN


def days_before(budgets: Iterable[str], day: str) -> list[str]:
    """The budgets of days before `day`. Budgets of jobs belong to no day."""
    dated = ((budget, _DAY.fullmatch(budget)) for budget in budgets)
    return [budget for budget, found in dated if found is not None and found[1] < day]


def _units(credits: float, rounding: str) -> int:
    if not credits >= 0:
        raise ValueError(f"{credits} is not an amount of credits.")
    if credits > MOST / PER_TOKEN:
        return MOST + 1
    # The shortest decimal with this float value: 0.1 as it was written, not 0.1000000000000000055.
    return int(Decimal(repr(float(credits))).scaleb(9).to_integral_value(rounding))
