"""What all workers share about ways: what was learned about each site, and what was spent. Two contracts.

Every verb is atomic. Times are those of the backend's shared clock.
How they fail: BackendUnavailable; where a server is asked, it is then not known whether it happened.
How they recover: ask again. What was learned twice is refused the second time; what was taken twice makes a bound be
reached early. It is never passed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What was learned about a site. A site that was never blocked has none.

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


class RouteBook(Protocol):
    """Standings of sites. Bounded by the number of sites that ever blocked."""

    async def standing(self, site: str) -> Standing | None: ...

    async def learn(self, standing: Standing, *, instead_of: Standing | None) -> bool:
        """Write it down if what is known of the site is still `instead_of`; True when it was. One of many who saw the
        same block wins, and exactly one worker gets to try a cheaper route again."""
        ...

    async def standings(self, limit: int = 1000) -> list[Standing]:
        """The sites that were learned about last come first."""
        ...

    async def forget(self, site: str | None = None) -> int:
        """Forget one site, or all; return how many were forgotten."""
        ...


class Bound(msgspec.Struct, frozen=True):
    """A purse and how many tokens may be taken from it in all. Its name says what for: `job/3`, `day/2026-11-15`."""

    purse: str
    limit: float


class BudgetBook(Protocol):
    """Tokens that were spent. A hard bound: whatever workers do at the same moment, it is never passed."""

    async def take(self, tokens: float, bounds: Sequence[Bound]) -> str | None:
        """Take tokens from all the purses or from none. None when they were taken, else the name of the first purse
        that has too few. Nothing (0) can always be taken. Raises ValueError for what is no amount."""
        ...

    async def give_back(self, tokens: float, purses: Sequence[str]) -> None:
        """What was taken and not used. Never below zero; a purse that was forgotten stays so."""
        ...

    async def spent(self) -> dict[str, float]:
        """Every purse and what was taken from it, by name."""
        ...

    async def forget_budgets(self, before: str) -> int:
        """Drop purses of days (`day/...`, `domain/DAY/...`) before the day given as `2026-11-15`; return how many."""
        ...
