"""The overview: is it healthy, what runs, what waits."""

from __future__ import annotations

from ...project.job_table import running_rows
from ...project.keys import JOBS, SCRAPE
from .view import HOME, Context, View, Visit


async def running(visit: Visit) -> Context:
    jobs, total = await running_rows(visit.project, visit.caller)
    return {"jobs": jobs, "total": total}


VIEWS = (
    View(
        path=HOME,
        title="Overview",
        template="overview.html",
        regions={"running": running},
        scope=JOBS,
        or_scope=SCRAPE,
        group="Work",
    ),
)
