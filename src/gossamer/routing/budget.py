"""What routes cost, and the hard limits on it: credits are taken before a request leaves, unused ones are returned.

If a worker dies in between, its credits stay taken: no limit is ever exceeded, but one may be reached a little early.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from ..clock import Clock
from ..errors import BudgetSpent
from ..model.route import Route
from .contract import Bound, BudgetBook

LONGEST_WAIT = timedelta(minutes=30)  # for a page whose budget is spent, before it is tried again
JOB_WAIT = timedelta(minutes=10)
FOR_CHANGE = timedelta(seconds=5)  # how long a page waits for credits that others return
ASK_AGAIN = timedelta(milliseconds=200)


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """Credits that may be spent; None means no limit."""

    job: float | None = None
    day: float | None = None
    domain: float | None = None  # for each day


_NO_BUDGETS = Budgets()


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Credits taken for one request, and from which budgets."""

    route: Route
    taken: float
    budgets: tuple[str, ...]


def yesterday(clock: Clock) -> str:
    """The day before today, in the names of budgets. Credits taken before midnight may be returned after it."""
    return (datetime.fromtimestamp(clock.now(), UTC) - timedelta(days=1)).date().isoformat()


def bounds_for(budgets: Budgets, *, job: str, site: str, day: str) -> list[Bound]:
    """The limits for a request of the job to the site on that day."""
    named = ((f"job/{job}", budgets.job), (f"day/{day}", budgets.day), (f"domain/{day}/{site}", budgets.domain))
    return [Bound(name, limit) for name, limit in named if limit is not None]


class BudgetKeeper:
    """Takes and returns credits for one job. `budgets_for(site)` says what may be spent there."""

    def __init__(
        self, book: BudgetBook, job: str, budgets_for: Callable[[str], Budgets], clock: Clock, *, max_body: int
    ) -> None:
        self._book = book
        self._job = job
        self._budgets_for = budgets_for
        self._clock = clock
        self._max_body = max_body

    async def pay(self, site: str, route: Route) -> Receipt:
        """Take the most that one request may cost. Raises BudgetSpent."""
        bounds = self._bounds(site)
        most = route.cost(self._max_body)
        if not bounds or most == 0:
            return Receipt(route, most, ())
        deadline = self._clock.monotonic() + FOR_CHANGE.total_seconds()
        while (empty := await self._book.take(most, bounds)) is not None:
            # If bytes are paid for, much more is taken than most pages cost, and is returned in a moment.
            if route.price_per_gb == 0 or self._clock.monotonic() >= deadline:
                raise self._spent(empty, next(bound.limit for bound in bounds if bound.budget == empty), route)
            await self._clock.sleep(ASK_AGAIN.total_seconds())
        return Receipt(route, most, tuple(bound.budget for bound in bounds))

    async def settle(self, receipt: Receipt, received: int | None, charged: float | None = None) -> float:
        """The request is over: return its cost. `received` None means that it never left; `charged` is what the vendor
        reports. If a vendor charges more than the route's price, that is recorded, even beyond a limit."""
        if received is None:
            cost = 0.0
        elif charged is not None:
            cost = charged + receipt.route.price_per_gb * received / 1e9
        else:
            cost = receipt.route.cost(received)
        if receipt.budgets and cost < receipt.taken:
            await self._book.give_back(receipt.taken - cost, receipt.budgets)
        elif receipt.budgets and cost > receipt.taken:
            await self._book.take(cost - receipt.taken, [Bound(name, float("inf")) for name in receipt.budgets])
        return cost

    def _bounds(self, site: str) -> list[Bound]:
        budgets = self._budgets_for(site)
        if budgets == _NO_BUDGETS:
            return []
        return bounds_for(budgets, job=self._job, site=site, day=self._today().date().isoformat())

    def _today(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now(), UTC).replace(hour=0, minute=0, second=0, microsecond=0)

    def _spent(self, budget: str, limit: float, route: Route) -> BudgetSpent:
        kind = budget.partition("/")[0]
        words = {
            "job": f"The budget of this job ({limit:g} credits, router.budget_job) is spent; raise it to go on",
            "day": f"The budget of this day ({limit:g} credits, router.budget_day) is spent",
            "domain": f"The budget of this domain for the day ({limit:g} credits, router.budget_domain) is spent",
        }[kind]
        tomorrow = self._today() + timedelta(days=1)
        wait = JOB_WAIT if kind == "job" else tomorrow - datetime.fromtimestamp(self._clock.now(), UTC)
        message = f"{words}. A page by route {route.name} may cost {route.cost(self._max_body):g}."
        return BudgetSpent(message, wait=min(wait, LONGEST_WAIT), budget=budget)
