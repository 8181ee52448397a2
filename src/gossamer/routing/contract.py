"""What all workers share about routes: what was learned about each site, and what was spent. Two contracts.

Every verb is atomic. Times are those of the backend's shared clock.
How they fail: BackendUnavailable; with a server, it is then unknown whether the call took effect.
How they recover: call again. Learning something twice is refused the second time; taking credits twice makes a limit be
reached early. It is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

MOST_PATTERNS = 64  # per site; beyond that the oldest are forgotten


class LearnedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route that was learned for the pages of a pattern (patterns.py) of a site. Pages that were never blocked have
    none.

    `route` is where the next page begins. `recheck_at` is when a cheaper one may be tried again; `patience` (seconds)
    is the wait after that, if it fails again.
    """

    site: str
    route: str
    since: float
    reason: str = ""  # the block that led here
    blocks: int = 0
    recheck_at: float = 0.0
    patience: float = 0.0
    pattern: str = ""  # "": all pages of the site without a row for their pattern


class RouteBook(Protocol):
    """Learned routes. Bounded by the number of sites that ever blocked, and MOST_PATTERNS of each."""

    async def learned(self, site: str) -> list[LearnedRoute]:
        """The learned routes of the site, by pattern."""

    async def learn(self, learned: LearnedRoute, *, instead_of: LearnedRoute | None) -> bool:
        """Store it if the row of that pattern is still `instead_of`; True if it was. Of many workers that saw the same
        block one wins, and exactly one gets to try a cheaper route again."""

    async def learned_routes(self, limit: int = 1000) -> list[LearnedRoute]:
        """Learned routes, the latest first."""

    async def forget(self, site: str | None = None) -> int:
        """Forget one site, or all; return how many sites were forgotten."""


class Bound(msgspec.Struct, frozen=True):
    """The limit of one budget, in credits. Its name says what it is for: `job/3`, `day/2026-11-15`."""

    budget: str
    limit: float


class BudgetBook(Protocol):
    """Spent credits, by budget. A hard limit: whatever workers do at the same moment, it is never exceeded."""

    async def take(self, credits: float, bounds: Sequence[Bound]) -> str | None:
        """Take credits from all the budgets or from none. None if they were taken, else the name of the first budget
        with too few left. 0 can always be taken. Raises ValueError for an invalid amount."""

    async def give_back(self, credits: float, budgets: Sequence[str]) -> None:
        """Return unused credits. Never goes below zero; a deleted budget stays deleted."""

    async def spent(self) -> dict[str, float]:
        """Every budget with its spent credits, by name."""

    async def forget_budgets(self, before: str) -> int:
        """Delete budgets of days (`day/...`, `domain/DAY/...`) before the given day, `2026-11-15`; return how many."""
