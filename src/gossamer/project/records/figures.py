"""The figures of a project over time, for people and programs without Prometheus: `history` and `totals`.

What it does: reads the counts of `Records` (every attempt once, in the commit that stored it) and arranges them in
steps of equal length. Minutes are kept for a day, ten minutes for 30 days. How it fails: BackendUnavailable;
Misconfigured for invalid times and steps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ...errors import Misconfigured
from ...model.figures import (
    OTHER,
    DomainFigures,
    Figures,
    Latency,
    added_domains,
    added_latency,
    figures_of,
    pages_of,
    success_rate,
    sum_figures,
)
from ...model.job import Job
from ...model.record import Attempt
from ...store.contract import AttemptQuery, FigurePart
from ...store.figure_rules import KEEP_MINUTES, KEEP_TEN_MINUTES, TEN_MINUTES
from ..open import Project

MINUTE = 60
MOST_POINTS = 3000
USUAL_POINTS = 360  # at most in a history whose steps the caller does not set
STEPS = (60, 300, 600, 1800, 3600, 6 * 3600, 24 * 3600)  # the steps to choose from in that case
MOST_DOMAINS = 50  # listed, busiest first
SHORT = 600.0  # seconds: a job this short is drawn from its attempts, which have exact times
SHORT_STEPS = 60
MOST_ATTEMPTS = 5_000  # read for such a job


class RoutePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One route within a step."""

    pages: dict[str, int]  # by outcome
    success_rate: float | None
    p50: float | None  # seconds
    p95: float | None
    p99: float | None
    credits: float
    bytes: int


class DomainPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One site within a step. `seconds` is the average response time; None if there were no responses."""

    pages: dict[str, int]  # by outcome
    success_rate: float | None
    errors: int
    seconds: float | None
    bytes: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one step. If nothing happened, its counts are empty and its rates None.

    `pages` counts attempts by outcome: a page that was done after two retries counts three times. `per_second` is their
    number over the elapsed part of the step. In the history of one domain or job the fields below `bytes` are empty:
    they are counted only for the whole project.
    """

    at: float  # start of the step
    pages: dict[str, int]
    per_second: float
    success_rate: float | None
    seconds: float | None  # average response time
    bytes: int
    p50: float | None = None  # seconds within which half of the responses arrived
    p95: float | None = None
    p99: float | None = None
    errors: dict[str, int] = {}  # by reason
    items: int = 0
    credits: float = 0.0
    routes: dict[str, RoutePoint] = {}


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of `step` seconds, oldest first and without gaps. `whole` sums them up in one point, `domains` are the
    busiest sites of that time; `other` among them stands for those not listed by name."""

    since: float
    until: float
    step: int
    domain: str | None
    job: str | None
    points: list[Point]
    whole: Point
    domains: dict[str, DomainPoint]


async def totals(project: Project) -> Figures:
    """Everything ever counted; none of these numbers ever decreases."""
    return await project.records.total_figures()


async def history(
    project: Project,
    *,
    since: float,
    until: float | None = None,
    step: int | None = None,
    domain: str | None = None,
    job: str | None = None,
    busiest: int = MOST_DOMAINS,
) -> History:
    """What happened from `since` until now, or `until`, in steps of `step` seconds; with `domain`, only on that site;
    with `job`, only by that job. `busiest` is how many sites to list; with 0 the project's history is far cheaper.

    Times are seconds since the epoch. The first step begins at or before `since`. Beyond a day, a step is at least ten
    minutes long. Raises Misconfigured for an empty period, and for more than 3000 steps.
    """
    now = project.clock.now()
    end = now if until is None else min(until, now)
    if not since < end:
        raise Misconfigured("The history begins at or after its end. Let `since` be earlier.")
    length = _step_of(since, end, now, step)
    first = int(since // length) * length
    wanted = FigurePart(domain=domain, job=job, domains=busiest > 0)
    rows = await project.records.figures(first, end, wanted)
    name = domain if domain is not None else job
    parts: dict[int, list[Figures]] = {start: [] for start in range(first, math.ceil(end), length)}
    for row in rows:
        parts[row.start // length * length].append(_without(row.figures, name))
    return History(
        since=first,
        until=end,
        step=length,
        domain=domain,
        job=job,
        points=[_point(start, min(start + length, end), some, name) for start, some in parts.items()],
        whole=_point(first, end, [part for some in parts.values() for part in some], name),
        domains=_domain_points([row.figures for row in rows], busiest if name is None else 1),
    )


async def job_history(project: Project, job: Job) -> History | None:
    """The figures of a job from its start to its end, or now; None if they are deleted. For a short job its attempts
    are counted by the second. If more than MOST_JOBS jobs work in one minute, only the busiest are counted by name."""
    now = project.clock.now()
    since = max(job.created_at, now - KEEP_TEN_MINUTES)
    end = now if job.finished_at is None else min(job.finished_at, now)
    if end < since:
        return None
    if end - since < SHORT and (attempts := await _all_attempts(project, job)) is not None:
        return _counted(attempts, job.id, since, max(end, since + 1))
    return await history(project, since=min(since, now - 1), until=max(end, since + 1), job=job.id)


async def _all_attempts(project: Project, job: Job) -> list[Attempt] | None:
    """None for more than MOST_ATTEMPTS."""
    found = await project.records.attempt_log(
        AttemptQuery(job=job.id, since=job.created_at - 60.0), limit=MOST_ATTEMPTS
    )
    return list(found.attempts) if found.next is None else None


def _counted(attempts: Sequence[Attempt], job: str, since: float, until: float) -> History:
    step = max(1, math.ceil((until - since) / SHORT_STEPS))
    first = int(since)
    parts: dict[int, list[tuple[Attempt, int]]] = {start: [] for start in range(first, math.ceil(until), step)}
    for one in attempts:
        place = min(max(first + int(one.at - first) // step * step, first), max(parts))
        parts[place].append((one, 0))
    return History(
        since=first,
        until=until,
        step=step,
        domain=None,
        job=job,
        points=[
            _point(at, min(at + step, until), [_without(figures_of(some), None)], None) for at, some in parts.items()
        ],
        whole=_point(first, until, [_without(figures_of((one, 0) for one in attempts), None)], None),
        domains={},
    )


def _step_of(since: float, end: float, now: float, wanted: int | None) -> int:
    """The length of a step. Rows of ten minutes cannot be split."""
    least = MINUTE if since >= now - KEEP_MINUTES + TEN_MINUTES else TEN_MINUTES
    if wanted is None:
        return next((one for one in STEPS if one >= least and (end - since) / one <= USUAL_POINTS), STEPS[-1])
    if wanted < MINUTE:
        raise Misconfigured(f"A step of {wanted} seconds is too short: figures are counted by the minute.")
    length = -(-max(wanted, least) // least) * least
    if (end - since) / length > MOST_POINTS:
        raise Misconfigured(f"That would be more than {MOST_POINTS} steps. Ask for longer steps, or for less time.")
    return length


def _point(start: float, end: float, parts: Sequence[Figures], name: str | None) -> Point:
    """`name` is that of a domain or a job: then the parts hold only its figures."""
    if name is not None:
        return _point_of_one(start, end, [own for one in parts for own in (*one.domains.values(), *one.jobs.values())])
    figures = sum_figures(parts, most_domains=0)
    outcomes = figures.outcomes()
    latency = _all_routes(figures)
    return Point(
        at=start,
        pages=outcomes,
        per_second=_per_second(sum(outcomes.values()), start, end),
        success_rate=success_rate(outcomes),
        seconds=latency.seconds / latency.fetches if latency.fetches else None,
        bytes=sum(figures.bytes.values()),
        p50=latency.quantile(0.5),
        p95=latency.quantile(0.95),
        p99=latency.quantile(0.99),
        errors=figures.errors,
        items=figures.items,
        credits=sum(figures.credits.values()),
        routes={route: _route_point(figures, route) for route in _routes(figures)},
    )


def _point_of_one(start: float, end: float, parts: Sequence[DomainFigures]) -> Point:
    point = _domain_point(added_domains(parts))
    return Point(
        at=start,
        pages=point.pages,
        per_second=_per_second(sum(point.pages.values()), start, end),
        success_rate=point.success_rate,
        seconds=point.seconds,
        bytes=point.bytes,
    )


def _domain_point(figures: DomainFigures) -> DomainPoint:
    return DomainPoint(
        pages=figures.pages,
        success_rate=success_rate(figures.pages),
        errors=figures.errors,
        seconds=figures.seconds / figures.fetches if figures.fetches else None,
        bytes=figures.bytes,
    )


def _without(figures: Figures, name: str | None) -> Figures:
    """What a point is made of, without the domains: adding them up for every point would cost more than everything
    else."""
    return figures if name is not None else msgspec.structs.replace(figures, domains={}, jobs={})


def _domain_points(parts: Sequence[Figures], most: int) -> dict[str, DomainPoint]:
    figures = sum_figures([Figures(domains=one.domains) for one in parts], most_domains=most)
    names = sorted(figures.domains, key=lambda name: (name == OTHER, -pages_of(figures.domains[name]), name))
    return {name: _domain_point(figures.domains[name]) for name in names}


def _route_point(figures: Figures, route: str) -> RoutePoint:
    pages = {outcome: routes[route] for outcome, routes in figures.pages.items() if route in routes}
    latency = figures.latency.get(route, Latency())
    return RoutePoint(
        pages=pages,
        success_rate=success_rate(pages),
        p50=latency.quantile(0.5),
        p95=latency.quantile(0.95),
        p99=latency.quantile(0.99),
        credits=figures.credits.get(route, 0.0),
        bytes=figures.bytes.get(route, 0),
    )


def _routes(figures: Figures) -> list[str]:
    return sorted({route for routes in figures.pages.values() for route in routes})


def _all_routes(figures: Figures) -> Latency:
    return added_latency(list(figures.latency.values())) if figures.latency else Latency()


def _per_second(count: int, start: float, end: float) -> float:
    return round(count / (end - start), 3) if end > start else 0.0
