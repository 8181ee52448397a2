"""What all workers share about routes: what was learned about each site, and what was spent. Two contracts.

Every verb is atomic. Times are those of the backend's shared clock.
How they fail: BackendUnavailable; where a server is asked, it is then not known whether it happened.
How they recover: ask again. What was learned twice is refused the second time; what was taken twice makes a bound be
reached early. It is never passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

MOST_PATTERNS = 64  # of one site; then what was learned first is forgotten


class LearnedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route that was learned for the pages of a pattern (patterns.py) of a site. Pages that were never blocked have
    none.

    `route` is where the next page begins. `recheck_at` is when a cheaper one may be tried again; `patience` (seconds)
    is how long the wait after that will be if it fails again.
    """

    site: str
    route: str
    since: float
    reason: str = ""  # the block that led here
    blocks: int = 0
    recheck_at: float = 0.0
    patience: float = 0.0
    pattern: str = ""  # "": all pages of the site that have no row of their own


class RouteBook(Protocol):
    """Learned routes. Bounded by the number of sites that ever blocked, and MOST_PATTERNS of each."""

    async def learned(self, site: str) -> list[LearnedRoute]:
        """What is known of the site, by pattern."""
        ...

    async def learn(self, learned: LearnedRoute, *, instead_of: LearnedRoute | None) -> bool:
        """Write it down if what is known of that pattern of the site is still `instead_of`; True when it was. Of many
        workers that saw the same block one wins, and exactly one gets to try a cheaper route again."""
        ...

    async def learned_routes(self, limit: int = 1000) -> list[LearnedRoute]:
        """What was learned last comes first."""
        ...

    async def forget(self, site: str | None = None) -> int:
        """Forget one site, or all; return how many sites were forgotten."""
        ...


class Bound(msgspec.Struct, frozen=True):
    """How many tokens may be spent from one budget in all. Its name says what for: `job/3`, `day/2026-11-15`."""

    budget: str
    limit: float


class BudgetBook(Protocol):
    """Tokens that were spent, by budget. A hard bound: whatever workers do at the same moment, it is never passed."""

    async def take(self, tokens: float, bounds: Sequence[Bound]) -> str | None:
        """Take tokens from all the budgets or from none. None when they were taken, else the name of the first budget
        that has too few left. Nothing (0) can always be taken. Raises ValueError for what is no amount."""
        ...

    async def give_back(self, tokens: float, budgets: Sequence[str]) -> None:
        """Return what was taken and not used. Never below zero; a budget that was forgotten stays so."""
        ...

    async def spent(self) -> dict[str, float]:
        """Every budget and what was taken from it, by name."""
        ...

    async def forget_budgets(self, before: str) -> int:
        """Drop budgets of days (`day/...`, `domain/DAY/...`) before the day given as `2026-11-15`; return how many."""
        ...
