"""`python -m bench.recrawl`: how current are our copies, when a fifth of the pages can be fetched in a day?

10,000 simulated pages change at random, each with a rate of its own. The rates are drawn from a log-normal
distribution with a long tail: the middle page changes every 20 days, one in six daily or more often, one in six less
than once in a year. At the start there is no copy of any page, and nothing is known. For 60 days every policy may make
the same number of fetches; the adaptive one in a run each day, as a schedule with a budget does it, the variants of it
whenever a fetch is to be had. Days 20 to 60 count; the first 20, in which the learning ones learn, are shown beside it.

Freshness is the share of pages whose copy is what the site shows, averaged over time. The best that is possible is
computed from the true rates, which nobody can know, and crawled as well. It is not far above uniform re-crawl: pages
that hardly change are fresh anyhow, and those that change all the time are lost anyhow. So what is won is also told
in fetches: how many more would uniform re-crawl need to be as fresh?
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from gossamer.schedule.change_rate import USUAL, Prior, Rhythm, prior_of, rate, seen, sums_of
from gossamer.schedule.recrawl import FINGERPRINT, NEVER, KnownPage, PageChoice, RecrawlBounds, due

from .recrawl_price import DAY, eased, freshness, interval_for, price_for, purse
from .table import table

PAGES = 10_000
SHARE_PER_DAY = 0.2
DAYS = 60
WARM_UP = 20
TICK = 3600.0
MIDDLE = 1 / (20 * DAY)
SPREAD = 3.0
BOUNDS = RecrawlBounds(3600.0, 30 * DAY)
UNBOUND = RecrawlBounds(1.0)
LEAST_OF_BEST = 0.9
LEAST_OVER_UNIFORM = 0.02

Estimator = Callable[[Rhythm, Prior], float]


class Policy(Protocol):
    """Chooses among the pages, which are numbers, and hears what became of its choice."""

    def choose(self, now: float, allowed: float) -> Iterable[int]: ...

    def hear(self, page: int, now: float, changed: bool) -> None: ...

    def read_sitemap(self, outdated: Sequence[float]) -> None:
        """Before each choice: when each page changed first after our copy, if it did before now."""


class Planned:
    """Every page at an interval that was fixed beforehand; whoever is most overdue goes first."""

    def __init__(self, intervals: Sequence[float]) -> None:
        self._intervals = intervals
        self._plan = [(NEVER, page) for page in range(len(intervals))]

    def choose(self, now: float, allowed: float) -> list[int]:
        chosen: list[int] = []
        while self._plan and self._plan[0][0] <= now and len(chosen) < int(allowed):
            chosen.append(heapq.heappop(self._plan)[1])
        return chosen

    def hear(self, page: int, now: float, changed: bool) -> None:
        heapq.heappush(self._plan, (now + self._intervals[page], page))

    def read_sitemap(self, outdated: Sequence[float]) -> None:
        """Sites say nothing here."""


class Best:
    """Knows the true rates."""

    def __init__(self, rates: Sequence[float], per_day: float, bounds: RecrawlBounds) -> None:
        self._pages = [KnownPage(page, rate, NEVER) for page, rate in enumerate(rates)]
        self._per_day, self._bounds = per_day, bounds
        self._price = price_for(rates, per_day, bounds)

    def choose(self, now: float, allowed: float) -> list[int]:
        price = eased(self._price, allowed, self._per_day)
        return due(self._pages, now, self._bounds, int(allowed), price=price)

    def hear(self, page: int, now: float, changed: bool) -> None:
        self._pages[page] = KnownPage(page, self._pages[page].rate, now)

    def read_sitemap(self, outdated: Sequence[float]) -> None:
        """Sites say nothing here."""


class Adaptive(Best):
    """Learns from its own fetches. What is usual, and the price, are found anew every day."""

    def __init__(self, pages: int, per_day: float, bounds: RecrawlBounds, estimator: Estimator) -> None:
        super().__init__([USUAL] * pages, per_day, bounds)
        self._rhythms: list[Rhythm | None] = [None] * pages
        self._prior = Prior()
        self._day = 0
        self._estimator = estimator

    def choose(self, now: float, allowed: float) -> list[int]:
        if now // DAY > self._day:
            self._day = int(now // DAY)
            checked = (page.rate for page in self._pages if (known := self._rhythms[page.id]) and known.checks)
            self._prior = prior_of(sums_of(checked))
            self._price = price_for((page.rate for page in self._pages), self._per_day, self._bounds)
        return super().choose(now, allowed)

    def hear(self, page: int, now: float, changed: bool) -> None:
        rhythm = self._rhythms[page] = seen(self._rhythms[page], now, changed=changed)
        known = self._estimator(rhythm, self._prior) if rhythm.checks else self._prior.middle
        self._pages[page] = KnownPage(page, known, now)


class Scheduled:
    """What the product does: one run a day, with the choice that a schedule with a budget uses. Of the first `dated`
    pages the sitemap says when they changed."""

    def __init__(self, pages: int, per_day: float, bounds: RecrawlBounds, dated: int = 0) -> None:
        self._rhythms: list[Rhythm | None] = [None] * pages
        self._per_day, self._bounds, self._dated = per_day, bounds, dated
        self._outdated: Sequence[float] = ()

    def choose(self, now: float, allowed: float) -> Iterable[int]:
        if allowed < self._per_day - 0.5:  # it is a sum of hours
            return ()
        choice = PageChoice()
        for page, rhythm in enumerate(self._rhythms):
            choice.note(
                page.to_bytes(FINGERPRINT), rhythm, None if rhythm is None else rhythm.last, self._lastmod(page, now)
            )
        return sorted(int.from_bytes(name) for name in choice.choose(now, self._bounds, round(allowed)))

    def hear(self, page: int, now: float, changed: bool) -> None:
        self._rhythms[page] = seen(
            self._rhythms[page], now, changed=changed, announced=self._lastmod(page, now) if changed else None
        )

    def read_sitemap(self, outdated: Sequence[float]) -> None:
        self._outdated = outdated

    def _lastmod(self, page: int, now: float) -> float | None:
        rhythm, changed = self._rhythms[page], self._outdated[page]
        if page >= self._dated or rhythm is None:
            return None
        return changed if rhythm.last < changed <= now else rhythm.first


def plain_division(rhythm: Rhythm, prior: Prior) -> float:
    return rhythm.changes / (rhythm.last - rhythm.first)


def evenly_spaced(rhythm: Rhythm, prior: Prior) -> float:
    """Cho and Garcia-Molina's: unbiased for checks at equal intervals, but for half a check."""
    kept = rhythm.checks - rhythm.changes
    return -math.log((kept + 0.5) / (rhythm.checks + 0.5)) * rhythm.checks / (rhythm.last - rhythm.first)


class Result:
    """What became of one policy."""

    def __init__(self) -> None:
        self.early = self.late = 0.0  # page-seconds of freshness before and after the end of the warm-up
        self.fetches = 0
        self.seconds = 0.0

    def add(self, start: float, end: float) -> None:
        border = WARM_UP * DAY
        self.early += max(min(end, border) - start, 0.0)
        self.late += max(end - max(start, border), 0.0)


def crawl(rates: Sequence[float], policy: Policy, per_day: float, days: int, seed: int) -> Result:
    """Let a policy crawl. Nothing but the first change after a fetch matters, so nothing else is drawn."""
    chance, began, result = random.Random(seed), time.process_time(), Result()
    fetched, outdated = [NEVER] * len(rates), [NEVER] * len(rates)
    allowed = 0.0
    for tick in range(1, int(days * DAY / TICK) + 1):
        now = tick * TICK
        allowed = purse(allowed, per_day, TICK)
        policy.read_sitemap(outdated)
        for page in list(policy.choose(now, allowed)):
            if fetched[page] > NEVER:
                result.add(fetched[page], min(outdated[page], now))
            policy.hear(page, now, outdated[page] < now)
            fetched[page], outdated[page] = now, now + chance.expovariate(rates[page])
            allowed -= 1
            result.fetches += 1
    for start, end in zip(fetched, outdated, strict=True):
        if start > NEVER:
            result.add(start, min(end, days * DAY))
    result.early /= len(rates) * WARM_UP * DAY
    result.late /= len(rates) * (days - WARM_UP) * DAY
    result.seconds = time.process_time() - began
    return result


def proportional(rates: Sequence[float], per_day: float) -> list[float]:
    """Intervals in proportion to the time between changes, none below the shortest one."""
    low, high = 1e-6, 1e6  # changes per fetch
    for _ in range(60):
        middle = math.sqrt(low * high)
        taken = sum(DAY / max(middle / rate, BOUNDS.shortest) for rate in rates)
        low, high = (middle, high) if taken > per_day else (low, middle)
    return [max(high / rate, BOUNDS.shortest) for rate in rates]


def uniform_for(rates: Iterable[float], goal: float) -> float:
    """The share of the pages per day that uniform re-crawl would have to fetch to be as fresh as that."""
    known = list(rates)
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = math.sqrt(low * high)
        reached = sum(freshness(rate, DAY / middle) for rate in known) / len(known)
        low, high = (middle, high) if reached < goal else (low, middle)
    return high


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.recrawl", description=__doc__)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--days", type=int, default=DAYS, help=f"more than {WARM_UP} (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    rates = [MIDDLE * math.exp(chance.gauss(0.0, SPREAD)) for _ in range(chosen.pages)]
    per_day = SHARE_PER_DAY * chosen.pages
    policies: dict[str, Policy] = {
        "uniform": Planned([DAY / SHARE_PER_DAY] * chosen.pages),
        "in proportion to true rates": Planned(proportional(rates, per_day)),
        "adaptive": Scheduled(chosen.pages, per_day, BOUNDS),
        "  with lastmod of half the pages": Scheduled(chosen.pages, per_day, BOUNDS, chosen.pages // 2),
        "  every hour": Adaptive(chosen.pages, per_day, BOUNDS, rate),
        "  every hour, by plain division": Adaptive(chosen.pages, per_day, BOUNDS, plain_division),
        "  every hour, by Cho and Garcia-Molina": Adaptive(chosen.pages, per_day, BOUNDS, evenly_spaced),
        "best possible (true rates)": Best(rates, per_day, UNBOUND),
    }
    results = {name: crawl(rates, policy, per_day, chosen.days, chosen.seed) for name, policy in policies.items()}
    uniform, adaptive, best = (results[name].late for name in ("uniform", "adaptive", "best possible (true rates)"))
    rows = [
        (
            name,
            f"{found.late:.1%}",
            f"{(found.late - uniform) * 100:+.1f}",
            f"{found.late / best:.1%}",
            f"{found.early:.1%}",
            f"{found.fetches / chosen.days:,.0f}",
            f"{found.seconds:.1f}",
        )
        for name, found in results.items()
    ]
    print(
        table(("re-crawl", "fresh", "points to uniform", "of best", f"days 0-{WARM_UP}", "fetches/day", "CPU s"), rows)
    )
    price = price_for(rates, per_day, UNBOUND)
    computed = sum(freshness(rate, interval_for(rate, price, UNBOUND)) for rate in rates) / len(rates)
    needed = uniform_for(rates, adaptive)
    print(f"By computation the best possible is {computed:.1%}.")
    print(f"Adaptive wins {(adaptive - uniform) / (best - uniform):.0%} of what the best wins over uniform re-crawl.")
    print(f"Uniform would have to make {needed / SHARE_PER_DAY - 1:.0%} more fetches to be as fresh as adaptive.")
    kept = adaptive >= uniform + LEAST_OVER_UNIFORM and adaptive >= LEAST_OF_BEST * best
    promise = f"{LEAST_OVER_UNIFORM * 100:.0f} points over uniform, and {LEAST_OF_BEST:.0%} of the best"
    print(f"Promised: {promise}. {'Kept.' if kept else 'NOT KEPT.'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
