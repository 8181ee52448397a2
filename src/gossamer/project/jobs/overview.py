"""A project at a glance: running and waiting work, the workers, and figures for the last minutes, hour, day or month.

How it fails: BackendUnavailable, from the state in `work_now`, from the record store in `figures_over`.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from ...frontier.contract import DeadFilter
from ...model.figures import ERRORS, SUCCESSES
from ...model.outcome import Outcome
from ..access.keys import Caller
from ..alerts.alerts import firing_alerts
from ..open import Project
from ..records.figures import History, history
from ..workers.workers import list_workers
from .table import JobLine, rows_of

Range = Literal["hour", "day", "month"]
RANGES: dict[Range, tuple[timedelta, int]] = {
    "hour": (timedelta(hours=1), 60),
    "day": (timedelta(days=1), 600),
    "month": (timedelta(days=30), 6 * 3600),
}  # how far back, and the step, in seconds
CLOSEST = timedelta(minutes=5)  # figures are counted by the minute
RECENT = timedelta(minutes=5)
MOST_REASONS = 5
LATELY = timedelta(days=1)
RUNS_LOOKED_AT = 200
MOST_ENDED = 8
ENDED_BADLY = (Outcome.FAILED, Outcome.EMPTY, Outcome.HELD_BACK, Outcome.INCOMPLETE)


class WorkNow(msgspec.Struct, frozen=True, kw_only=True):
    """The work in progress that the caller may see. `dead`, `firing` and `incidents` are None for a caller who is not
    an admin."""

    running: int  # jobs
    paused: int
    open: int  # pages: queued, waiting and in progress
    in_progress: int
    waiting: int
    workers: int  # alive
    missing: int
    dead: int | None  # letters
    firing: int | None  # alerts
    incidents: int | None  # open; None as `dead`


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes, and today's cost. Rates are None if nothing happened."""

    per_second: float  # attempts
    done_per_second: float
    items_per_second: float
    success_rate: float | None
    p95: float | None  # seconds
    credits_today: float


async def work_now(project: Project, caller: Caller) -> WorkNow:
    seen = [job for job in await project.state.jobs.running_jobs() if caller.sees(job)]
    counts = [await project.state.jobs.counts(job.id) for job in seen]
    workers = await list_workers(project)
    dead = sum((await project.state.queue.dead_reasons(DeadFilter())).values()) if caller.is_admin else None
    return WorkNow(
        running=sum(1 for job in seen if not job.paused),
        paused=sum(1 for job in seen if job.paused),
        open=sum(one.open for one in counts),
        in_progress=sum(one.leased for one in counts),
        waiting=sum(one.waiting for one in counts),
        workers=sum(1 for one in workers if not one.missing),
        missing=sum(1 for one in workers if one.missing),
        dead=dead,
        firing=len(await firing_alerts(project)) if caller.is_admin else None,
        incidents=len(await project.state.alerts.open_incidents()) if caller.is_admin else None,
    )


async def ended_badly(project: Project, caller: Caller) -> list[JobLine]:
    """Runs of the last day that the caller may see and that did not end well, the latest first, at most MOST_ENDED."""
    since = project.clock.now() - LATELY.total_seconds()
    owners = None if caller.is_admin else ("", caller.id)
    found = [
        job
        for job in await project.state.history.page(RUNS_LOOKED_AT, owners=owners)
        if (job.finished_at or 0.0) >= since and job.outcome is not None and job.outcome.outcome in ENDED_BADLY
    ]
    return await rows_of(project, found[:MOST_ENDED])


async def recent(project: Project) -> Recent:
    now = project.clock.now()
    lately = await history(project, since=now - RECENT.total_seconds(), busiest=0)
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    begun = now > midnight
    today = (await history(project, since=midnight, step=3600, busiest=0)).whole.credits if begun else 0.0
    passed = max(1.0, lately.until - lately.since)
    whole = lately.whole
    return Recent(
        per_second=whole.per_second,
        done_per_second=sum(whole.pages.get(name, 0) for name in SUCCESSES) / passed,
        items_per_second=whole.items / passed,
        success_rate=whole.success_rate,
        p95=whole.p95,
        credits_today=today,
    )


async def figures_over(project: Project, range: Range) -> History:
    back, step = RANGES[range]
    return await history(project, since=project.clock.now() - back.total_seconds(), step=step, busiest=0)


async def figures_between(project: Project, since: float, until: float) -> History:
    """A part of that time, in steps that suit its length. At least some minutes long."""
    now = project.clock.now()
    last = min(max(until, since + CLOSEST.total_seconds()), now)
    return await history(project, since=min(since, last - CLOSEST.total_seconds()), until=last, busiest=0)


def by_result(pages: dict[str, int]) -> tuple[int, int, int]:
    """How many attempts succeeded, failed, and neither: forbidden by robots.txt, or given back."""
    good = sum(pages.get(name, 0) for name in SUCCESSES)
    bad = sum(count for name, count in pages.items() if name in ERRORS)
    return good, bad, sum(pages.values()) - good - bad


def top_reasons(found: History) -> list[str]:
    """The most frequent reasons of errors, in descending order."""
    counts = Counter(found.whole.errors)
    return [reason for reason, _ in counts.most_common(MOST_REASONS)]
