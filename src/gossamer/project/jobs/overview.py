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
from ..access.keys import Caller
from ..alerts.alerts import firing_alerts
from ..open import Project
from ..records.figures import History, history
from ..workers.workers import list_workers

Range = Literal["hour", "day", "month"]
RANGES: dict[Range, tuple[timedelta, int]] = {
    "hour": (timedelta(hours=1), 60),
    "day": (timedelta(days=1), 600),
    "month": (timedelta(days=30), 6 * 3600),
}  # how far back, and the step, in seconds
RECENT = timedelta(minutes=5)
MOST_REASONS = 5


class WorkNow(msgspec.Struct, frozen=True, kw_only=True):
    """The work in progress that the caller may see. `dead` and `firing` are None for a caller who is not an admin."""

    running: int  # jobs
    paused: int
    open: int  # pages: queued, waiting and in hand
    in_hand: int
    waiting: int
    workers: int  # alive
    missing: int
    dead: int | None  # letters
    firing: int | None  # alerts


class Recent(msgspec.Struct, frozen=True, kw_only=True):
    """The last minutes, and today's cost. Rates are None if nothing happened."""

    per_second: float  # attempts
    done_per_second: float
    items_per_second: float
    success_rate: float | None
    p95: float | None  # seconds
    tokens_today: float


async def work_now(project: Project, caller: Caller) -> WorkNow:
    seen = [job for job in await project.state.jobs.running_jobs() if caller.sees(job)]
    counts = [await project.state.jobs.counts(job.id) for job in seen]
    workers = await list_workers(project)
    dead = sum((await project.state.queue.dead_reasons(DeadFilter())).values()) if caller.is_admin else None
    return WorkNow(
        running=sum(1 for job in seen if not job.paused),
        paused=sum(1 for job in seen if job.paused),
        open=sum(one.open for one in counts),
        in_hand=sum(one.leased for one in counts),
        waiting=sum(one.waiting for one in counts),
        workers=sum(1 for one in workers if not one.missing),
        missing=sum(1 for one in workers if one.missing),
        dead=dead,
        firing=len(await firing_alerts(project)) if caller.is_admin else None,
    )


async def recent(project: Project) -> Recent:
    now = project.clock.now()
    lately = await history(project, since=now - RECENT.total_seconds(), busiest=0)
    midnight = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    today = await history(project, since=min(midnight, now - 60), step=3600, busiest=0)
    passed = max(1.0, lately.until - lately.since)
    whole = lately.whole
    return Recent(
        per_second=whole.per_second,
        done_per_second=sum(whole.pages.get(name, 0) for name in SUCCESSES) / passed,
        items_per_second=whole.items / passed,
        success_rate=whole.success_rate,
        p95=whole.p95,
        tokens_today=today.whole.tokens,
    )


async def figures_over(project: Project, range: Range) -> History:
    back, step = RANGES[range]
    return await history(project, since=project.clock.now() - back.total_seconds(), step=step, busiest=0)


def by_result(pages: dict[str, int]) -> tuple[int, int, int]:
    """How many attempts succeeded, failed, and neither: forbidden by robots.txt, or given back."""
    good = sum(pages.get(name, 0) for name in SUCCESSES)
    bad = sum(count for name, count in pages.items() if name in ERRORS)
    return good, bad, sum(pages.values()) - good - bad


def top_reasons(found: History) -> list[str]:
    """The most frequent reasons of errors, in descending order."""
    counts = Counter(found.whole.errors)
    return [reason for reason, _ in counts.most_common(MOST_REASONS)]
