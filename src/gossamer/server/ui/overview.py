"""The overview: health, speed, running jobs and backlog."""

from __future__ import annotations

import msgspec

from ...project.access.keys import JOBS, METRICS, SCRAPE
from ...project.jobs.notes import marks
from ...project.jobs.overview import RANGES, Range, by_result, figures_over, recent, top_reasons, work_now
from ...project.jobs.table import running_rows
from ...project.records.figures import History
from .charts import Series
from .view import HOME, Context, View, Visit

COLOURS = ("bad", "warn", "c", "b", "d")


class OverviewFilters(msgspec.Struct, frozen=True, kw_only=True):
    range: Range = "hour"


async def now(visit: Visit) -> Context:
    return {"work": await work_now(visit.project, visit.caller)}


async def lately(visit: Visit) -> Context:
    if not visit.may(METRICS):
        return {"recent": None}
    return {"recent": await recent(visit.project), "work": await work_now(visit.project, visit.caller)}


async def charts(visit: Visit) -> Context:
    if not visit.may(METRICS):
        return {"figures": None}
    found = await figures_over(visit.project, visit.of(OverviewFilters).range)
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
            for reason, colour in zip(reasons, COLOURS, strict=False)
        ],
        "items": [Series("items", [point.items for point in found.points], "b")],
        "tokens": [Series("credits", [point.tokens for point in found.points], "a")] if found.whole.tokens else [],
    }


async def running(visit: Visit) -> Context:
    jobs, total = await running_rows(visit.project, visit.caller)
    return {"jobs": jobs, "total": total}


VIEWS = (
    View(
        path=HOME,
        title="Overview",
        template="overview.html",
        regions={"now": now, "lately": lately, "running": running, "charts": charts},
        query=OverviewFilters,
        scope=JOBS,
        or_scope=SCRAPE,
        group="Work",
    ),
)
