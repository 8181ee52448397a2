"""The current activity of a project in one value: speed, success, responses, errors, jobs, the queue by site, workers.

`gossamer top` shows it. Each part is read from the stores on request. How it fails: BackendUnavailable from the state.
Without the record store the figures are missing, and `trouble` says why.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from ...clock import iso_time
from ...errors import Transient
from ...frontier.contract import DeadFilter
from ...model.alert import Severity
from ..alerts.alerts import AlertView, firing_alerts
from ..open import Project
from ..records.figures import MINUTE, DomainPoint, Point, history, totals
from ..sites.sites import QueuePage, queue_by_site
from ..workers.workers import WorkerView, list_workers
from .jobs import JobView, views_of

MINUTES = 30  # shown
NOW = 2  # minutes that count as now: the current one and the one before
JOBS = 8
SITES = 10


class RecentPace(msgspec.Struct, frozen=True, kw_only=True):
    """The current minute and the one before, and the totals of the minutes shown. Rates are per second."""

    counted: int  # attempts ever: two readings tell the speed in between
    pages_per_second: float
    items_per_second: float
    success_rate: float | None
    p50: float | None  # seconds
    p95: float | None
    p99: float | None
    bytes_per_second: float
    minutes: int  # that the fields below cover
    pages: int
    items: int
    credits: float
    errors: dict[str, int]  # by reason, most frequent first
    by_minute: list[float]  # pages per second, oldest first
    domains: dict[str, DomainPoint]  # the busiest


class TopView(msgspec.Struct, frozen=True, kw_only=True):
    """The current activity of the project. `at` is ISO 8601 in UTC. `pace` is None if the record store does not
    answer."""

    at: str
    pace: RecentPace | None
    jobs: list[JobView]  # running, those with the most open pages first
    running_jobs: int  # in all
    queue: QueuePage
    workers: list[WorkerView]
    workers_by_state: dict[str, int]
    alerts: list[AlertView]  # firing, most severe first
    dead_letters: int
    waiting_results: int  # on the disks of workers
    trouble: str | None


async def top_view(project: Project) -> TopView:
    """Read everything once."""
    running = await project.state.jobs.running_jobs()
    views = sorted(await views_of(project, running), key=lambda one: (-one.open, one.id))
    workers = await list_workers(project)
    pace, trouble = None, project.absent or None
    if trouble is None:
        try:
            pace = await _pace(project)
        except Transient as error:
            trouble = str(error)
    return TopView(
        at=iso_time(project.clock.now()),
        pace=pace,
        jobs=views[:JOBS],
        running_jobs=len(running),
        queue=await queue_by_site(project, limit=SITES),
        workers=workers,
        workers_by_state=dict(Counter("missing" if one.missing else one.state for one in workers).most_common()),
        alerts=sorted(
            await firing_alerts(project), key=lambda one: (list(Severity)[::-1].index(one.severity), one.since)
        ),
        dead_letters=sum((await project.state.queue.dead_reasons(DeadFilter())).values()),
        waiting_results=sum(one.waiting for one in workers),
        trouble=trouble,
    )


async def _pace(project: Project) -> RecentPace:
    now = project.clock.now()
    shown = await history(project, since=now - (MINUTES - 1) * MINUTE, step=MINUTE)
    recent = await history(project, since=now - (NOW - 1) * MINUTE, step=MINUTE, busiest=0)
    whole, last = shown.whole, recent.whole
    elapsed = recent.until - recent.since
    return RecentPace(
        counted=sum((await totals(project)).outcomes().values()),
        pages_per_second=last.per_second,
        items_per_second=round(last.items / elapsed, 3),
        success_rate=last.success_rate,
        p50=last.p50,
        p95=last.p95,
        p99=last.p99,
        bytes_per_second=round(last.bytes / elapsed, 1),
        minutes=MINUTES,
        pages=_pages(whole),
        items=whole.items,
        credits=whole.credits,
        errors=dict(Counter(whole.errors).most_common()),
        by_minute=[point.per_second for point in shown.points],
        domains=shown.domains,
    )


def _pages(point: Point) -> int:
    return sum(point.pages.values())
