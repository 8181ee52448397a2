"""Figures of a project: the counts of one minute or, added up, of all time.

Every stored attempt counts once, in the minute in which it was made. Figures are values that can be added. None of
their parts grows without bound: names beyond the maximum are counted under `other`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from .record import Attempt, PageResult

MINUTE = 60
OTHER = "other"
MOST_DOMAINS = 200  # named in one row of figures
MOST_JOBS = 50  # likewise
MOST_NAMES = 100  # of reasons and of routes, likewise
MOST_GATHERED = 10 * MOST_DOMAINS  # names gathered in one sum before the largest are chosen
BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)  # seconds: the buckets of `Latency`

SUCCESSES = frozenset(("done", "unchanged", "redirected"))
FAILURES = frozenset(("retry", "blocked", "dead"))
ERRORS = frozenset((*FAILURES, "released"))  # outcomes whose reason is an error
NO_ERRORS = frozenset(("login",))  # reasons that are no error: the site asked for credentials

T = TypeVar("T")
Number = TypeVar("Number", int, float)
Count = int  # a field named `bytes` hides the type


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long requests took: the count of each bucket (one more than BOUNDS, for longer ones), and the sum."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    seconds: float = 0.0

    @property
    def fetches(self) -> int:
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The time within which that share of the requests was answered, estimated from the buckets; None if there are
        none."""
        wanted, below, lower = share * self.fetches, 0, 0.0
        if not self.fetches:
            return None
        for count, upper in zip(self.counts, BOUNDS, strict=False):
            if count and below + count >= wanted:
                return lower + (upper - lower) * (wanted - below) / count
            below, lower = below + count, upper
        return BOUNDS[-1]


class DomainFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcomes of the requests to one site, or of one job. `seconds` is the sum over its `fetches`."""

    pages: dict[str, Count] = {}  # by outcome
    errors: Count = 0
    fetches: Count = 0
    seconds: float = 0.0
    bytes: Count = 0


class Figures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All counts. Routes are named as in the settings; `archive` stands for pages that were parsed again."""

    pages: dict[str, dict[str, Count]] = {}  # by outcome and route: every attempt, not only the last
    domains: dict[str, DomainFigures] = {}
    jobs: dict[str, DomainFigures] = {}  # per minute only: a total has none, because jobs come and go
    latency: dict[str, Latency] = {}  # by route
    errors: dict[str, Count] = {}  # by reason
    credits: dict[str, float] = {}  # by route
    bytes: dict[str, Count] = {}  # by route, as received
    items: Count = 0

    def outcomes(self) -> dict[str, int]:
        """How many pages had each outcome, over all routes."""
        return {outcome: sum(routes.values()) for outcome, routes in self.pages.items()}


NOTHING = Figures()


def success_rate(outcomes: Mapping[str, int]) -> float | None:
    """The share of requests that succeeded; None if there were none.

    Pages that robots.txt forbids, and requests given back because of a proxy or an unreachable site, count as neither
    success nor failure.
    """
    good = sum(outcomes.get(name, 0) for name in SUCCESSES)
    bad = sum(outcomes.get(name, 0) for name in FAILURES)
    return good / (good + bad) if good + bad else None


# -- counting ------------------------------------------------------------------------------------------------------


def minute_of(attempt: Attempt, now: float) -> int:
    """The first second of the minute in which the attempt counts. A time in the future counts as now."""
    return int(min(attempt.at, now) // MINUTE) * MINUTE


def counted(results: Iterable[PageResult], now: float) -> dict[int, Figures]:
    """The figures of these results, by minute."""
    minutes: dict[int, list[tuple[Attempt, int]]] = {}
    for result in results:
        minutes.setdefault(minute_of(result.attempt, now), []).append((result.attempt, len(result.records)))
    return {start: figures_of(some) for start, some in minutes.items()}


def figures_of(attempts: Iterable[tuple[Attempt, int]]) -> Figures:
    """The figures of these attempts, each with the number of its items."""
    pages: dict[str, dict[str, int]] = {}
    by_site: dict[str, list[Attempt]] = {}
    by_job: dict[str, list[Attempt]] = {}
    latency: dict[str, list[float]] = {}
    errors: dict[str, int] = {}
    credits: dict[str, float] = {}
    received: dict[str, int] = {}
    items = 0
    for attempt, given in attempts:
        route = attempt.route
        routes = pages.setdefault(attempt.outcome, {})
        routes[route] = routes.get(route, 0) + 1
        by_site.setdefault(attempt.site, []).append(attempt)
        by_job.setdefault(attempt.job, []).append(attempt)
        if attempt.latency:
            latency.setdefault(route, []).append(attempt.latency)
        if is_error(attempt):
            errors[attempt.reason] = errors.get(attempt.reason, 0) + 1
        if attempt.cost:
            credits[route] = credits.get(route, 0.0) + attempt.cost
        if attempt.bytes:
            received[route] = received.get(route, 0) + attempt.bytes
        items += given
    return Figures(
        pages=pages,
        domains={site: _of_some(some) for site, some in by_site.items()},
        jobs={job: _of_some(some) for job, some in by_job.items()},
        latency={route: _latency(seconds) for route, seconds in latency.items()},
        errors=errors,
        credits=credits,
        bytes=received,
        items=items,
    )


def is_error(attempt: Attempt) -> bool:
    return attempt.outcome in ERRORS and attempt.reason not in NO_ERRORS


def _of_some(attempts: Sequence[Attempt]) -> DomainFigures:
    pages: dict[str, int] = {}
    errors, fetches, seconds, received = 0, 0, 0.0, 0
    for attempt in attempts:
        pages[attempt.outcome] = pages.get(attempt.outcome, 0) + 1
        errors += is_error(attempt)
        fetches += attempt.latency > 0
        seconds += attempt.latency
        received += attempt.bytes
    return DomainFigures(pages=pages, errors=errors, fetches=fetches, seconds=seconds, bytes=received)


def _latency(seconds: Sequence[float]) -> Latency:
    counts = [0] * (len(BOUNDS) + 1)
    for one in seconds:
        counts[bisect_left(BOUNDS, one)] += 1
    return Latency(counts=tuple(counts), seconds=sum(seconds))


# -- adding up -----------------------------------------------------------------------------------------------------


def sum_figures(figures: Sequence[Figures], *, most_domains: int = MOST_DOMAINS) -> Figures:
    """The sum of all. Beyond `most_domains`, the domains with the fewest pages count as `other`; so do jobs."""
    if len(figures) == 1 and len(figures[0].domains) <= most_domains and len(figures[0].jobs) <= MOST_JOBS:
        return figures[0]
    return Figures(
        pages={name: _sum(parts) for name, parts in _gathered(one.pages for one in figures).items()},
        domains=_largest(_together([one.domains for one in figures]), most_domains),
        jobs=_largest(_together([one.jobs for one in figures]), MOST_JOBS),
        latency={name: added_latency(parts) for name, parts in _gathered(one.latency for one in figures).items()},
        errors=_sum([one.errors for one in figures]),
        credits=_sum([one.credits for one in figures]),
        bytes=_sum([one.bytes for one in figures]),
        items=sum(one.items for one in figures),
    )


def taken_into(total: Figures, more: Figures, *, most_domains: int) -> Figures:
    """The total plus `more`: none of its numbers ever decreases, so they can serve as counters.

    A domain that is named in the total stays named. While there is room a new one is named too; after that it replaces
    the smallest, if it had more pages in `more` than the smallest ever had.
    """
    named = {name: figures for name, figures in total.domains.items() if name != OTHER}
    rest = [total.domains[OTHER]] if OTHER in total.domains else []
    for name, figures in sorted(more.domains.items(), key=lambda one: (-pages_of(one[1]), one[0])):
        if name in named:
            named[name] = added_domains([named[name], figures])
        elif name == OTHER or most_domains <= 0:
            rest.append(figures)
        elif len(named) < most_domains:
            named[name] = figures
        else:
            smallest = min(named, key=lambda one: (pages_of(named[one]), one))
            if pages_of(figures) > pages_of(named[smallest]):
                rest.append(named.pop(smallest))
                named[name] = figures
            else:
                rest.append(figures)
    domains = {**named, **({OTHER: added_domains(rest)} if rest else {})}
    return msgspec.structs.replace(sum_figures([total, more], most_domains=0), domains=domains, jobs={})


def pages_of(figures: DomainFigures) -> int:
    return sum(figures.pages.values())


def added_domains(parts: Sequence[DomainFigures]) -> DomainFigures:
    if len(parts) == 1:
        return parts[0]
    return DomainFigures(
        pages=_sum([one.pages for one in parts]),
        errors=sum(one.errors for one in parts),
        fetches=sum(one.fetches for one in parts),
        seconds=sum(one.seconds for one in parts),
        bytes=sum(one.bytes for one in parts),
    )


def _together(tables: Sequence[dict[str, DomainFigures]]) -> dict[str, DomainFigures]:
    if len(tables) != 2:
        return {name: added_domains(parts) for name, parts in _gathered(tables).items()}
    first, more = tables  # a batch on top of its minute: only entries in the batch are added up
    return first | {name: added_domains([first[name], one]) if name in first else one for name, one in more.items()}


def _largest(domains: dict[str, DomainFigures], most: int) -> dict[str, DomainFigures]:
    if len(domains) <= most:
        return domains
    names = sorted((name for name in domains if name != OTHER), key=lambda name: (-pages_of(domains[name]), name))
    kept, rest = names[:most], [*names[most:], *((OTHER,) if OTHER in domains else ())]
    return {**{name: domains[name] for name in kept}, OTHER: added_domains([domains[name] for name in rest])}


def _gathered(tables: Iterable[Mapping[str, T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for table in tables:
        for name, value in table.items():
            place = name if name in found or len(found) < MOST_GATHERED else OTHER
            found.setdefault(place, []).append(value)
    return found


def _sum(tables: Sequence[Mapping[str, Number]]) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for table in tables:
        for name, value in table.items():
            place = name if name in found or len(found) < MOST_NAMES else OTHER
            found[place] = found[place] + value if place in found else value
    return found


def added_latency(parts: Sequence[Latency]) -> Latency:
    if len(parts) == 1:
        return parts[0]
    counts = tuple(sum(column) for column in zip(*(one.counts for one in parts), strict=True))
    return Latency(counts=counts, seconds=sum(one.seconds for one in parts))
