"""The overview: health, speed, running jobs and backlog."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from ...project.access.keys import JOBS, METRICS, SCRAPE
from ...project.jobs.notes import marks
from ...project.jobs.overview import (
    RANGES,
    Range,
    by_result,
    ended_badly,
    figures_between,
    figures_over,
    recent,
    top_reasons,
    work_now,
)
from ...project.jobs.table import running_rows
from ...project.records.figures import History
from .charts import Series
from .view import CHARTS_EVERY, HOME, Context, View, Visit

# What a failure is about has one colour on every chart. A second reason of the same sort is paler.
FAMILIES = {
    "parse": "c", "quality": "c", "conflict": "c", "blocked": "a", "http-403": "a", "http-429": "a", "http-451": "a",
    "timeout": "b", "http-4": "warn", "http-5": "bad", "proxy": "quiet", "budget": "quiet",
}  # fmt: skip
OTHER_COLOUR = "d"  # no connection, no name, no valid certificate


class OverviewFilters(msgspec.Struct, frozen=True, kw_only=True):
    """`since` and `until`, in seconds, are a part of the charts that somebody looks at closely."""

    range: Range = "hour"
    since: Annotated[int, Meta(ge=0, le=10**11)] | None = None
    until: Annotated[int, Meta(ge=0, le=10**11)] | None = None


async def now(visit: Visit) -> Context:
    return {"work": await work_now(visit.project, visit.caller)}


async def lately(visit: Visit) -> Context:
    if not visit.may(METRICS):
        return {"recent": None}
    return {"recent": await recent(visit.project), "work": await work_now(visit.project, visit.caller)}


async def charts(visit: Visit) -> Context:
    if not visit.may(METRICS):
        return {"figures": None}
    chosen = visit.of(OverviewFilters)
    if chosen.since is not None and chosen.until is not None:
        found = await figures_between(visit.project, chosen.since, chosen.until)
    else:
        found = await figures_over(visit.project, chosen.range)
    notes = await marks(visit.project, visit.caller, found.since, found.until) if visit.may(JOBS) else []
    return {"figures": found, "ranges": tuple(RANGES), "notes": notes, **chart_series(found)}


def pages_series(found: History) -> list[Series]:
    """Pages per second, by outcome."""
    results = [by_result(point.pages) for point in found.points]
    lengths = [max(1.0, min(found.step, found.until - point.at)) for point in found.points]
    return [
        Series("fetched", [good / length for (good, _, _), length in zip(results, lengths, strict=True)], "ok"),
        Series("failed", [bad / length for (_, bad, _), length in zip(results, lengths, strict=True)], "bad"),
        Series("left out", [rest / length for (_, _, rest), length in zip(results, lengths, strict=True)], "quiet"),
    ]


def chart_series(found: History) -> Context:
    """The series of the charts; all share `times`."""
    reasons = top_reasons(found)
    return {
        "times": [point.at for point in found.points],
        "pages": pages_series(found),
        "success": [Series("success", [point.success_rate for point in found.points], "ok")],
        "latency": [
            Series("p50", [point.p50 for point in found.points], "a"),
            Series("p95", [point.p95 for point in found.points], "b"),
            Series("p99", [point.p99 for point in found.points], "c"),
        ],
        "errors": [
            Series(reason, [point.errors.get(reason, 0) for point in found.points], colour)
            for reason, colour in colours_of(reasons).items()
        ],
        "items": [Series("items", [point.items for point in found.points], "b")],
        "credits": [Series("credits", [point.credits for point in found.points], "a")] if found.whole.credits else [],
    }


def colours_of(reasons: list[str]) -> dict[str, str]:
    """The colour of each reason."""
    found: dict[str, str] = {}
    for reason in sorted(reasons):
        colour = next((kind for start, kind in FAMILIES.items() if reason.startswith(start)), OTHER_COLOUR)
        found[reason] = colour if colour not in found.values() else f"{colour} again"
    return {reason: found[reason] for reason in reasons}


async def ended(visit: Visit) -> Context:
    return {"ended": await ended_badly(visit.project, visit.caller)}


async def running(visit: Visit) -> Context:
    jobs, total = await running_rows(visit.project, visit.caller)
    return {"jobs": jobs, "total": total}


VIEWS = (
    View(HOME, "Overview", "overview.html",
         {"now": now, "lately": lately, "running": running, "ended": ended, "charts": charts}, JOBS,
         query=OverviewFilters, or_scope=SCRAPE, group="Work", slow={"charts": CHARTS_EVERY}),
)  # fmt: skip
